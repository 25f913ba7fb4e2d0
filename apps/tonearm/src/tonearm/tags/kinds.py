"""Detects the format of a file by its content, because file names can be wrong."""

from collections.abc import Callable
from typing import Any, BinaryIO, Literal, get_args

from mutagen.aiff import AIFF
from mutagen.flac import FLAC
from mutagen.mp3 import MP3
from mutagen.mp4 import MP4
from mutagen.oggopus import OggOpus
from mutagen.oggvorbis import OggVorbis
from mutagen.wave import WAVE

from tonearm.tags import id3
from tonearm.tags.malformed import Malformed

Kind = Literal["mp3", "flac", "vorbis", "opus", "m4a", "wav", "aiff"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SUFFIXES = frozenset(
    {".mp3", ".flac", ".ogg", ".oga", ".opus", ".m4a", ".m4b", ".mp4", ".wav", ".aif", ".aiff", ".aifc"}
)
"""File name extensions that a scan considers."""

READERS: dict[Kind, Callable[[BinaryIO], Any]] = {
    "mp3": MP3, "flac": FLAC, "vorbis": OggVorbis, "opus": OggOpus, "m4a": MP4, "wav": WAVE, "aiff": AIFF,
}  # fmt: skip


def kind_of(file: BinaryIO) -> Kind:
    """Returns the format. Raises Malformed if it is not supported. A file with an unknown start may still be an MP3."""
    file.seek(0)
    head = file.read(64)
    if tag := id3.span(head[:10]):
        file.seek(tag)
        behind = file.read(4)
        return "flac" if behind == b"fLaC" else "mp3"
    match head[:4], head[8:12]:
        case (b"fLaC", _):
            return "flac"
        case (b"OggS", _) if head[28:35] == b"\x01vorbis":
            return "vorbis"
        case (b"OggS", _) if head[28:36] == b"OpusHead":
            return "opus"
        case (b"OggS", _):
            raise Malformed("an Ogg file with neither Vorbis nor Opus")
        case (b"RIFF", b"WAVE"):
            return "wav"
        case (b"FORM", b"AIFF" | b"AIFC"):
            return "aiff"
        case _ if head[4:8] == b"ftyp":
            return "m4a"
        case _ if not head:
            raise Malformed("the file is empty")
        case _:
            return "mp3"


def opened(file: BinaryIO, kind: Kind) -> Any:
    """Opens the file with mutagen."""
    file.seek(0)
    return READERS[kind](file)
