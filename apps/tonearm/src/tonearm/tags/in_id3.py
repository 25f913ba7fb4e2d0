"""Tonearm's tags in ID3: TXXX frames `tonearm:genre` in MP3, WAV and AIFF, in the version of the existing tag."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

from tonearm.tags import chunks, id3
from tonearm.tags.id3 import Frame, Id3
from tonearm.tags.kinds import Kind
from tonearm.tags.plan import Existing, Plan, Values

NAMESPACE = "tonearm:"
NEW_VERSION = 4
FOOTER = 128
USER_TEXT = {2: "TXX", 3: "TXXX", 4: "TXXX"}
NATIVE = {
    "GENRE": {2: ("TCO",), 3: ("TCON",), 4: ("TCON",)},
    "MOOD": {
        4: ("TMOO", "TXXX"),
        3: ("TXXX", "TMOO"),
    },  # TMOO was added in version 4; some programs write it into version 3
    "GROUPING": {2: ("GP1",), 3: ("GRP1",), 4: ("GRP1",)},  # iTunes 12 and later read TIT1 as the work
}
"""Frames of standard tags by version, the preferred one first; other tags are TXXX frames with their name."""


@dataclass(frozen=True, slots=True)
class Held:
    """The ID3 tag of a file and its position; None for a file without one."""

    tag: Id3 | None
    form: chunks.Form | None


def held(file: BinaryIO, kind: Kind) -> Held:
    """Reads the ID3 tag of the file. Raises Malformed if it cannot be preserved."""
    if kind == "mp3":
        file.seek(0)
        length = id3.span(file.read(id3.HEADER))
        file.seek(0)
        return Held(id3.parse(file.read(length)) if length else None, None)
    form = chunks.parse(file)
    chunk = form.id3()
    if chunk is None:
        return Held(None, form)
    file.seek(chunk.start)
    content = file.read(chunk.size)
    return Held(id3.parse(content) if content.strip(b"\0") else None, form)


def look(file: BinaryIO, kind: Kind, tags: Iterable[str]) -> Existing:
    """Returns the current tags."""
    tag = held(file, kind).tag
    if tag is None:
        before = Id3(NEW_VERSION, seeds(file, kind))
        return Existing({}, {name: _values(before, name) for name in tags}, bare=True)
    return Existing(own(tag), {name: _values(tag, name) for name in tags})


def own(tag: Id3) -> dict[str, Values]:
    """Returns the content of the namespace."""
    found: dict[str, Values] = {}
    for frame in tag.frames:
        if name := _own_name(tag, frame):
            found[name] = (*found.get(name, ()), *id3.fields(tag, frame)[1:])
    return found


def foreign(file: BinaryIO, kind: Kind, tags: Iterable[str]) -> list[Frame]:
    """Returns all frames, as stored, that are neither Tonearm's nor of one of these standard tags."""
    tag = held(file, kind).tag or Id3(NEW_VERSION, seeds(file, kind))
    return [frame for frame in tag.frames if not _own_name(tag, frame) and not _standard(tag, frame, tags)]


def compose(source: BinaryIO, out: BinaryIO, kind: Kind, existing: Existing, plan: Plan) -> None:
    """Writes the file as planned; all frames except Tonearm's, and all audio, stay unchanged."""
    old = held(source, kind)
    tag = old.tag or Id3(NEW_VERSION, seeds(source, kind))
    new = id3.with_frames(tag, _changed(tag, existing, plan))
    made_by_us = "made" in existing.own and not plan.own
    removed = (made_by_us or old.tag is None) and set(new.frames) <= set(seeds(source, kind))
    data = None if removed else id3.render(new)
    if old.form is not None:
        chunks.compose(source, out, old.form, data)
        return
    out.write(data or b"")
    source.seek(old.tag.span if old.tag else 0)
    chunks.copy(source, out)


def audio(file: BinaryIO, kind: Kind) -> bytes:
    """Returns a digest of everything outside the ID3 tag: audio, other chunks, other tags at the end."""
    digest = hashlib.blake2b()
    old = held(file, kind)
    if old.form is None:
        file.seek(old.tag.span if old.tag else 0)
        for piece in chunks.pieces(file):
            digest.update(piece)
        return digest.digest()
    mine = old.form.id3()
    digest.update(old.form.head[:4] + old.form.head[8:])
    for chunk in old.form.chunks:
        if chunk is not mine:
            digest.update(chunk.id + chunk.size.to_bytes(8))
            file.seek(chunk.start)
            for piece in chunks.pieces(file, chunk.size):
                digest.update(piece)
    file.seek(old.form.end)
    for piece in chunks.pieces(file):
        digest.update(piece)
    return digest.digest()


def seeds(file: BinaryIO, kind: Kind) -> tuple[Frame, ...]:
    """Returns the content of an ID3v1 footer as frames: readers ignore the footer once there is a newer tag."""
    if kind != "mp3":
        return ()
    file.seek(0, 2)
    file.seek(max(0, file.tell() - FOOTER))
    data = file.read(FOOTER)
    if len(data) < FOOTER or data[:3] != b"TAG":
        return ()
    numbered = data[125] == 0 and data[126] != 0  # the last two bytes of the comment may contain the track number
    said = {
        "TIT2": _old_text(data[3:33]),
        "TPE1": _old_text(data[33:63]),
        "TALB": _old_text(data[63:93]),
        "TDRC": _old_text(data[93:97]),
        "TRCK": str(data[126]) if numbered else "",
        "TCON": str(data[127]) if data[127] < 192 else "",
    }
    blank = Id3(NEW_VERSION, ())
    comment = _old_text(data[97:125] if numbered else data[97:127])
    comments = (Frame("COMM", b"\3eng\0" + comment.encode()),) if comment else ()
    return (*(id3.text_frame(blank, name, (text,)) for name, text in said.items() if text), *comments)


def _old_text(data: bytes) -> str:
    return data.split(b"\0")[0].decode("latin-1").strip()


def _changed(tag: Id3, existing: Existing, plan: Plan) -> tuple[Frame, ...]:
    moved = {name for name, values in plan.standard.items() if existing.standard.get(name, ()) != values}
    frames: list[Frame] = []
    placed: set[str] = set()
    for frame in tag.frames:
        if _own_name(tag, frame):
            continue
        name = _standard(tag, frame, moved)
        if name is None:
            frames.append(frame)
        elif name not in placed and plan.standard[name]:
            frames.append(_standard_frame(tag, name, plan.standard[name], frame))
            placed.add(name)
    for name in sorted(moved - placed):
        if plan.standard[name]:
            frames.append(_standard_frame(tag, name, plan.standard[name]))
    user = USER_TEXT[tag.version]
    ours = [id3.text_frame(tag, user, plan.own[name], title=NAMESPACE + name) for name in sorted(plan.own)]
    return (*frames, *ours)


def _standard_frame(tag: Id3, name: str, values: Values, old: Frame | None = None) -> Frame:
    chosen = old.id if old else _ids(tag, name)[0]
    return id3.text_frame(tag, chosen, values, title=name if chosen == USER_TEXT[tag.version] else None, like=old)


def _own_name(tag: Id3, frame: Frame) -> str | None:
    """Returns the name in the namespace; other programs may have changed its case."""
    if frame.id != USER_TEXT[tag.version]:
        return None
    texts = id3.fields(tag, frame)
    ours = texts and texts[0].lower().startswith(NAMESPACE)
    return texts[0].lower().removeprefix(NAMESPACE) if ours else None


def _ids(tag: Id3, name: str) -> tuple[str, ...]:
    return NATIVE.get(name, {}).get(tag.version, (USER_TEXT[tag.version],))


def _standard(tag: Id3, frame: Frame, names: Iterable[str]) -> str | None:
    """Returns which of these standard tags the frame contains."""
    for name in names:
        if frame.id not in _ids(tag, name):
            continue
        if frame.id != USER_TEXT[tag.version] or (id3.fields(tag, frame) or [""])[0].upper() == name:
            return name
    return None


def _values(tag: Id3, name: str) -> Values:
    found: list[str] = []
    for frame in tag.frames:
        if _standard(tag, frame, (name,)):
            texts = id3.fields(tag, frame)
            found += texts[1:] if frame.id == USER_TEXT[tag.version] else texts
    return tuple(text for text in found if text)
