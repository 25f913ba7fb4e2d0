"""Tonearm's tags in Vorbis comments: `TONEARM_GENRE` in FLAC, Ogg Vorbis and Opus.

All other comments stay byte for byte, including those without a name and those that are not UTF-8.
"""

from collections.abc import Iterable, Mapping
from typing import BinaryIO

from tonearm.tags import ogg
from tonearm.tags.kinds import Kind
from tonearm.tags.malformed import Malformed
from tonearm.tags.outcome import Refusal
from tonearm.tags.plan import Existing, Plan, Values

NAMESPACE = "TONEARM_"
HEADERS = {"vorbis": 3, "opus": 2}
SIGNATURES = {"vorbis": b"\x03vorbis", "opus": b"OpusTags"}


def look(file: BinaryIO, kind: Kind, tags: Iterable[str]) -> Existing:
    """Returns the current tags."""
    entries = _stored(file, kind).entries
    own: dict[str, Values] = {}
    for entry in entries:
        if (key := _key(entry)).startswith(NAMESPACE):
            name = key.removeprefix(NAMESPACE).lower()
            own[name] = (*own.get(name, ()), _value(entry))
    return Existing(own, {tag: tuple(map(_value, _of(entries, tag))) for tag in tags})


def foreign(file: BinaryIO, kind: Kind, tags: Iterable[str]) -> ogg.Comments:
    """Returns all comments as stored, except Tonearm's and those with a value in these standard tags."""
    found = _stored(file, kind)
    ours = {entry for tag in tags for entry in _of(found.entries, tag)}
    kept = tuple(entry for entry in found.entries if entry not in ours and not _key(entry).startswith(NAMESPACE))
    return ogg.Comments(found.vendor, kept, found.rest)


def compose(source: BinaryIO, out: BinaryIO, kind: Kind, existing: Existing, plan: Plan) -> None:
    """Writes the file as planned."""
    found = _stored(source, kind)
    changed = {tag: values for tag, values in plan.standard.items() if existing.standard.get(tag, ()) != values}
    own = [f"{NAMESPACE}{name.upper()}={value}".encode() for name in sorted(plan.own) for value in plan.own[name]]
    made = ogg.Comments(found.vendor, (*_changed(found.entries, changed), *own), found.rest)
    if kind == "flac":
        ogg.flac_with_comments(source, out, made)
    else:
        ogg.with_comments(source, out, HEADERS[kind], SIGNATURES[kind] + ogg.build(made))


def audio(file: BinaryIO, kind: Kind) -> bytes:
    """Returns a digest of audio, headers and pictures."""
    return ogg.flac_audio(file) if kind == "flac" else ogg.audio(file, HEADERS[kind])


def _changed(entries: tuple[bytes, ...], changed: Mapping[str, Values]) -> list[bytes]:
    """Returns the foreign comments with changed standard tags, each in the place of its first value."""
    made: list[bytes] = []
    left = dict(changed)
    for entry in entries:
        key = _key(entry)
        if key in changed and _value(entry):
            made += _entries(key, left.pop(key), _of(entries, key)) if key in left else []
        elif not key.startswith(NAMESPACE):
            made.append(entry)
    for key, values in left.items():
        made += _entries(key, values, [])
    return made


def _entries(tag: str, values: Values, old: list[bytes]) -> list[bytes]:
    """Returns the comments of a standard tag; values that stay are kept as stored, and the name keeps its spelling."""
    name = old[0].partition(b"=")[0] if old else tag.encode()
    made: list[bytes] = []
    for value in values:
        same = next((entry for entry in old if _value(entry) == value), None)
        if same is not None:
            old.remove(same)
        made.append(name + b"=" + value.encode() if same is None else same)
    for entry in old:
        if _value(entry).encode() != entry.partition(b"=")[2]:
            raise Refusal("not-kept", f"{tag} has a value that is not UTF-8, so undo could not restore it")
    return made


def _of(entries: Iterable[bytes], tag: str) -> list[bytes]:
    """Returns the comments with a value in a standard tag."""
    return [entry for entry in entries if _key(entry) == tag and _value(entry)]


def _key(entry: bytes) -> str:
    """Returns the name of a comment in upper case; empty for a comment without a name."""
    name, equals, _ = entry.partition(b"=")
    return name.decode("ascii", "replace").upper() if equals else ""


def _value(entry: bytes) -> str:
    return entry.partition(b"=")[2].decode("utf-8", "replace")


def _stored(file: BinaryIO, kind: Kind) -> ogg.Comments:
    if kind == "flac":
        found = [content for number, content in ogg.blocks(file)[0] if number == ogg.COMMENT_BLOCK]
        return ogg.comments(found[0]) if found else ogg.NO_COMMENTS
    packet = ogg.opening(file, HEADERS[kind]).packets[1]
    if not packet.startswith(SIGNATURES[kind]):
        raise Malformed("the second packet does not contain the comments")
    return ogg.comments(packet[len(SIGNATURES[kind]) :])
