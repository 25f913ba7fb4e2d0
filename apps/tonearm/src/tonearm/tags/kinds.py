"""Which format a file is in, told by its content: names lie."""

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
"""How the names of files end that are worth a look."""

READERS: dict[Kind, Callable[[BinaryIO], Any]] = {
    "mp3": MP3, "flac": FLAC, "vorbis": OggVorbis, "opus": OggOpus, "m4a": MP4, "wav": WAVE, "aiff": AIFF,
}  # fmt: skip


def kind_of(file: BinaryIO) -> Kind:
    """The file's format; Malformed if it is none of ours. A file that begins with anything else may still be an MP3."""
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
            raise Malformed("an Ogg file with neither Vorbis nor Opus in it")
        case (b"RIFF", b"WAVE"):
            return "wav"
        case (b"FORM", b"AIFF" | b"AIFC"):
            return "aiff"
        case _ if head[4:8] == b"ftyp":
            return "m4a"
        case _ if not head:
            raise Malformed("it is empty")
        case _:
            return "mp3"


def opened(file: BinaryIO, kind: Kind) -> Any:
    """The file as mutagen reads it."""
    file.seek(0)
    return READERS[kind](file)
