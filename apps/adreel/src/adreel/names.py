"""Names and ids: what a client calls a file, made fit to be shown; ids that sort by time; containers by content."""

import os
import re
import secrets
import unicodedata
from pathlib import Path

from adreel import clock

LONGEST = 200
HEAD = 4096
"""Bytes at the beginning of a file that decide about its container."""
_ID = re.compile(r"[0-9a-f]{21}")
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,5}")
_BOXES = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")
_TS = 188
CONTAINERS = "MP4, MOV, MKV, WebM, AVI, MPEG-TS, MPEG-PS, FLV, ASF, Ogg or MXF"


def new_id() -> str:
    """Returns an id that nobody can guess; ids that are made later sort later."""
    return f"{clock.now_ms():011x}{secrets.token_hex(5)}"


def is_id(text: str) -> bool:
    """Returns whether `new_id` could have made this."""
    return _ID.fullmatch(text) is not None


def shown(name: str) -> str:
    """Returns the last part of a file name without control characters and lone surrogates, cut to 200 characters."""
    text = name.encode("utf-8", "replace").decode().replace("\\", "/").rstrip("/").rpartition("/")[2]
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(text) > LONGEST:
        text = f"{text[: LONGEST - 12]}…{text[-10:]}"
    return text or "unnamed"


def folded(text: str) -> str:
    """Returns a text as searches compare it: without differences of case, and of how accents are stored."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def is_text(path: Path) -> bool:
    """Returns whether a path is UTF-8, so that it can be stored."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def suffix(name: str) -> str:
    """Returns the ending of a file name if it is harmless, otherwise none."""
    found = re.search(r"\.[^.]*$", name)
    return found[0].lower() if found and _SUFFIX.fullmatch(found[0]) else ""


def container(head: bytes) -> str | None:
    """Returns the container that a file begins with; None if it is none that holds films."""
    if head[4:8] in _BOXES:
        return "mp4"
    for mark, found in (
        (b"\x1aE\xdf\xa3", "matroska"),
        (b"FLV\x01", "flv"),
        (b"0&\xb2u\x8ef\xcf\x11", "asf"),
        (b"OggS", "ogg"),
        (b"\x00\x00\x01\xba", "mpeg-ps"),
        (b"\x00\x00\x01\xb3", "mpeg-ps"),
        (b"\x06\x0e+4\x02\x05\x01\x01", "mxf"),
    ):
        if head.startswith(mark):
            return found
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "avi"
    return "mpeg-ts" if _is_ts(head) else None


def _is_ts(head: bytes) -> bool:
    """Returns whether packets of a transport stream begin in every place where one should, with or without times."""
    for first, step in ((0, _TS), (4, _TS + 4)):
        places = range(first, min(len(head), first + 8 * step), step)
        if len(places) >= 2 and all(head[place] == 0x47 for place in places):
            return True
    return False
