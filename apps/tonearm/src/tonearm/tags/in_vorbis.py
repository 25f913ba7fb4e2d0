"""Tonearm's tags in Vorbis comments: `TONEARM_GENRE` in FLAC, Ogg Vorbis and Opus."""

import shutil
from collections.abc import Iterable
from typing import Any, BinaryIO

from tonearm.tags import ogg
from tonearm.tags.kinds import Kind, opened
from tonearm.tags.plan import Existing, Plan

NAMESPACE = "tonearm_"
HEADERS = {"vorbis": 3, "opus": 2}


def look(file: BinaryIO, kind: Kind, tags: Iterable[str]) -> Existing:
    """Returns the current tags."""
    pairs: list[tuple[str, str]] = list(opened(file, kind).tags or ())
    own: dict[str, tuple[str, ...]] = {}
    for key, value in pairs:
        if key.lower().startswith(NAMESPACE):
            name = key.lower().removeprefix(NAMESPACE)
            own[name] = (*own.get(name, ()), value)
    return Existing(own, {tag: tuple(v for k, v in pairs if k.upper() == tag and v) for tag in tags})


def foreign(file: BinaryIO, kind: Kind, tags: Iterable[str]) -> tuple[bytes, list[bytes], bytes]:
    """Returns, as stored, the vendor, all comments except Tonearm's and these, and the trailing bytes."""
    found = _stored(file, kind)
    wanted = {tag.encode() for tag in tags}

    def is_foreign(entry: bytes) -> bool:
        key = entry.partition(b"=")[0].upper()
        return not key.startswith(NAMESPACE.upper().encode()) and key not in wanted

    kept = found.rest if kind == "opus" and found.rest[:1] and found.rest[0] & 1 else b""
    return found.vendor, [entry for entry in found.entries if is_foreign(entry)], kept


def compose(source: BinaryIO, out: BinaryIO, kind: Kind, existing: Existing, plan: Plan) -> None:
    """Writes the file as planned."""
    source.seek(0)
    shutil.copyfileobj(source, out, 1 << 20)
    file = opened(out, kind)
    if file.tags is None:
        file.add_tags()
    tags: Any = file.tags
    for key in {key for key, _ in tags if key.lower().startswith(NAMESPACE)}:
        del tags[key]
    for name, values in plan.standard.items():
        if existing.standard.get(name, ()) != values:
            _put(tags, name, values)
    for name in sorted(plan.own):
        tags[(NAMESPACE + name).upper()] = list(plan.own[name])
    out.seek(0)
    file.save(out)


def audio(file: BinaryIO, kind: Kind) -> bytes:
    """Returns a digest of audio, headers and pictures."""
    return ogg.flac_audio(file) if kind == "flac" else ogg.audio(file, HEADERS[kind])


def _put(tags: Any, name: str, values: tuple[str, ...]) -> None:
    """Sets a standard tag, keeping the spelling of its name."""
    spelt = next((key for key, _ in tags if key.upper() == name), name)
    if any(key.upper() == name for key, _ in tags):
        del tags[spelt]
    if values:
        tags[spelt] = list(values)


def _stored(file: BinaryIO, kind: Kind) -> ogg.Comments:
    if kind == "flac":
        found = [content for number, content in ogg.blocks(file)[0] if number == ogg.COMMENT_BLOCK]
        return ogg.comments(found[0]) if found else ogg.Comments(b"", (), b"")
    packet = ogg.opening(file, HEADERS[kind])[0][1]
    return ogg.comments(packet[7 if kind == "vorbis" else 8 :])
