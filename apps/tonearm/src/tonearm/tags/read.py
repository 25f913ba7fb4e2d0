"""Reads the tags and properties of a file as plain data. Reads headers and tags only; decodes nothing."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tonearm.tags import chunks, formats
from tonearm.tags.kinds import Kind, kind_of, opened
from tonearm.tags.malformed import Malformed
from tonearm.tags.outcome import Refusal
from tonearm.tags.place import FILE, regular

YEAR = re.compile(r"\d{4}")
NATIVE = {
    "id3": {"title": "TIT2", "artist": "TPE1", "album": "TALB", "year": "TDRC", "genre": "TCON"},
    "mp4": {"title": "\xa9nam", "artist": "\xa9ART", "album": "\xa9alb", "year": "\xa9day", "genre": "\xa9gen"},
    "vorbis": {"title": "title", "artist": "artist", "album": "album", "year": "date", "genre": "genre"},
}
INFO = {"title": b"INAM", "artist": b"IART", "album": b"IPRD", "year": b"ICRD", "genre": b"IGNR"}
"""Tag names in a WAV file without an ID3 tag."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The file cannot be read as audio, with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags and properties of a file."""

    kind: Kind
    title: str | None
    artist: tuple[str, ...]
    album: str | None
    year: int | None
    genre: tuple[str, ...]
    duration: float
    """Seconds according to the header; nothing is decoded."""
    sample_rate: int
    channels: int
    has_cover: bool
    own: Mapping[str, tuple[str, ...]]
    """Tonearm's own tags: labels by group, and bookkeeping."""


def read(path: str | Path) -> Tags | Unreadable:
    """Returns the tags of a file, or the reason why they cannot be read. Raises nothing, even for hostile files."""
    try:
        with regular(os.open(path, FILE & ~os.O_NOFOLLOW)) as file:
            return read_open(file)
    except OSError as error:
        return Unreadable(error.strerror or str(error))
    except (Malformed, Refusal) as error:
        return Unreadable(str(error))
    except Exception as error:  # mutagen raises many exception types on damaged files
        return Unreadable(f"{type(error).__name__}: {error}")


def read_open(file: BinaryIO) -> Tags:
    """Returns the tags of an open file; may raise any exception of the readers."""
    kind = kind_of(file)
    found = opened(file, kind)
    texts = _texts(file, kind, found.tags)
    year = YEAR.search(" ".join(texts["year"]))
    return Tags(
        kind=kind,
        title=next(iter(texts["title"]), None),
        artist=texts["artist"],
        album=next(iter(texts["album"]), None),
        year=int(year[0]) if year else None,
        genre=texts["genre"],
        duration=float(found.info.length),
        sample_rate=int(
            getattr(found.info, "sample_rate", 48000)
        ),  # Opus always decodes to 48 kHz, and the header does not state it
        channels=int(found.info.channels),
        has_cover=_has_cover(kind, found),
        own=_own(file, kind),
    )


def _own(file: BinaryIO, kind: Kind) -> Mapping[str, tuple[str, ...]]:
    try:
        return formats.look(file, kind, ()).own
    except Malformed:  # a truncated file is readable, but never written
        return {}


def _texts(file: BinaryIO, kind: Kind, tags: Any) -> dict[str, tuple[str, ...]]:
    family = {"mp3": "id3", "wav": "id3", "aiff": "id3", "m4a": "mp4"}.get(kind, "vorbis")
    if not tags and kind == "wav":
        return _info(file)
    found: dict[str, tuple[str, ...]] = {}
    for name, key in NATIVE[family].items():
        value = tags.get(key) if tags else None
        values = (value.genres if key == "TCON" else value.text) if family == "id3" and value is not None else value
        found[name] = tuple(str(text).strip() for text in values or () if str(text).strip())
    return found


def _has_cover(kind: Kind, found: Any) -> bool:
    tags: Any = found.tags or {}
    match kind:
        case "mp3" | "wav" | "aiff":
            return any(key.startswith("APIC") for key in tags)
        case "m4a":
            return bool(tags.get("covr"))
        case "flac" if found.pictures:
            return True
        case _:
            return bool(tags) and ("metadata_block_picture" in tags or "coverart" in tags)


def _info(file: BinaryIO) -> dict[str, tuple[str, ...]]:
    """Returns the INFO list of a WAV file, decoded with a guessed encoding."""
    said: dict[bytes, str] = {}
    try:
        for chunk in chunks.parse(file).chunks:
            file.seek(chunk.start)
            data = file.read(min(chunk.size, 1 << 16)) if chunk.id == b"LIST" else b""
            at = 4 if data[:4] == b"INFO" else len(data)
            while at + 8 <= len(data):
                size = int.from_bytes(data[at + 4 : at + 8], "little")
                said[data[at : at + 4]] = _either(data[at + 8 : at + 8 + size])
                at += 8 + size + size % 2
    except Malformed:
        return dict.fromkeys(INFO, ())
    return {name: (said[key],) if said.get(key) else () for name, key in INFO.items()}


def _either(data: bytes) -> str:
    text = data.split(b"\0")[0]
    try:
        return text.decode().strip()
    except UnicodeDecodeError:
        return text.decode("latin-1").strip()
