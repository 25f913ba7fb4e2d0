"""Parses and builds ID3v2 tags as bytes: foreign frames stay byte for byte, only Tonearm's frames are generated.

Saving through an object model would drop unknown frames, merge duplicates and rewrite the rest.
"""

import re
import zlib
from dataclasses import dataclass, replace

from tonearm.tags.malformed import Malformed

HEADER = 10
ROOM = 1024
"""Padding after the frames, so that the next program need not move the audio."""
FRAME_ID = {
    2: re.compile(rb"[A-Z][A-Z0-9]{2}"),
    3: re.compile(rb"[A-Z][A-Z0-9]{3}"),
    4: re.compile(rb"[A-Z][A-Z0-9]{3}"),
}
UNSYNCHRONISED, EXTENDED, FOOTER = 0x80, 0x40, 0x10
TEXTS = ("latin-1", "utf-16", "utf-16-be", "utf-8")


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame with its stored body."""

    id: str
    body: bytes
    flags: bytes = b"\0\0"


@dataclass(frozen=True, slots=True)
class Id3:
    """One ID3v2 tag; `span` is its stored size in bytes."""

    version: int
    frames: tuple[Frame, ...]
    span: int = 0
    unsynchronised: bool = False
    """Version 4 only: all frames are unsynchronised, even if their own flags do not state it."""


def span(head: bytes) -> int:
    """Returns the size of the tag with this ten-byte header, or 0 if there is no tag."""
    if len(head) < HEADER or head[:3] != b"ID3" or head[3] == 0xFF or any(byte & 0x80 for byte in head[6:10]):
        return 0
    footer = HEADER if head[3] == 4 and head[5] & FOOTER else 0
    return HEADER + _whole(head[6:10], 7) + footer


def parse(data: bytes) -> Id3:
    """Parses the tag at the start of these bytes. Raises Malformed if it cannot be preserved."""
    length = span(data)
    if not length or len(data) < length:
        raise Malformed("the ID3 tag is truncated" if length else "the ID3 tag has no header")
    version, flags = data[3], data[5]
    if version not in FRAME_ID or (version == 2 and flags & EXTENDED):
        raise Malformed(f"ID3 version 2.{version} with flags {flags:#x} is not supported")
    body = data[HEADER : HEADER + _whole(data[6:10], 7)]
    if flags & UNSYNCHRONISED and version < 4:
        body = synchronised(body)
    if flags & EXTENDED:  # contains a checksum or limits of the old content, so a changed tag omits it
        body = body[_whole(body[:4], 7) if version == 4 else _whole(body[:4], 8) + 4 :]
    frames, clean = _frames(body, version, 7 if version == 4 else 8)
    if version == 4 and not clean:  # old versions of iTunes wrote 8-bit sizes into version 4
        others, others_clean = _frames(body, version, 8)
        frames = others if others_clean else frames
    return Id3(version, frames, length, version == 4 and bool(flags & UNSYNCHRONISED))


def render(tag: Id3) -> bytes:
    """Returns the encoded tag, in its old size if it fits."""
    wide = 3 if tag.version == 2 else 4
    bits = 7 if tag.version == 4 else 8
    frames = b"".join(
        frame.id.encode() + _bytes(len(frame.body), wide, bits) + (b"" if wide == 3 else frame.flags) + frame.body
        for frame in tag.frames
    )
    needed = HEADER + len(frames)
    room = tag.span - needed if needed <= tag.span <= needed + 64 * ROOM else ROOM
    flags = UNSYNCHRONISED if tag.unsynchronised else 0
    size = _bytes(len(frames) + room, 4, 7)
    return b"ID3" + bytes([tag.version, 0, flags]) + size + frames + bytes(room)


def fields(tag: Id3, frame: Frame) -> list[str]:
    """Returns the texts of a text frame, for TXXX the description first; empty if encrypted or not text."""
    body = _plain(tag, frame)
    if not frame.id.startswith("T") or not body or body[0] >= len(TEXTS):
        return []
    decoded = [text.removeprefix("\ufeff") for text in _decoded(body[1:], body[0]).split("\0")]
    while len(decoded) > 1 and not decoded[-1]:  # many programs also terminate the last text with a zero
        decoded.pop()
    return decoded


def text_frame(
    tag: Id3, id: str, texts: tuple[str, ...], *, title: str | None = None, like: Frame | None = None
) -> Frame:
    """Returns a new text frame (with a title for TXXX), in the encoding of another frame if possible."""
    all_texts = texts if title is None else (title, *texts)
    old = _plain(tag, like)[:1] if like and not tag.unsynchronised else b""  # only UTF-8 contains no byte FF
    if old in (b"\0", b"\1") and (old == b"\1" or all(_is_latin(text) for text in all_texts)):
        encoding = old[0]
    elif tag.version == 4:
        encoding = 3
    else:
        encoding = 0 if all(text.isascii() for text in all_texts) else 1
    if encoding == 1:
        body = b"\0\0".join(b"\xff\xfe" + text.encode("utf-16-le") for text in all_texts)
    else:
        body = b"\0".join(text.encode(TEXTS[encoding]) for text in all_texts)
    return Frame(id, bytes([encoding]) + body)


def with_frames(tag: Id3, frames: tuple[Frame, ...]) -> Id3:
    """Returns the tag with other frames."""
    return replace(tag, frames=frames)


def synchronised(data: bytes) -> bytes:
    """Reverses unsynchronisation: removes the zero after every FF."""
    return data.replace(b"\xff\0", b"\xff")


def _frames(body: bytes, version: int, bits: int) -> tuple[tuple[Frame, ...], bool]:
    """Returns the frames, and whether they end at the padding or at the end of the tag."""
    wide, head = (3, 6) if version == 2 else (4, 10)
    found: list[Frame] = []
    at = 0
    while at + head <= len(body) and FRAME_ID[version].fullmatch(body[at : at + wide]):
        size = _whole(body[at + wide : at + 2 * wide], bits)
        if at + head + size > len(body):
            break
        flags = b"\0\0" if version == 2 else body[at + 8 : at + 10]
        found.append(Frame(body[at : at + wide].decode(), body[at + head : at + head + size], flags))
        at += head + size
    return tuple(found), not body[at:].strip(b"\0")


def _plain(tag: Id3, frame: Frame) -> bytes:
    """Returns the content of the frame, without the data added by its flags."""
    body, flags = frame.body, frame.flags[1]
    if tag.version == 2 or (not flags and not tag.unsynchronised):
        return body
    zipped, secret, grouped = (0x08, 0x04, 0x40) if tag.version == 4 else (0x80, 0x40, 0x20)
    if flags & secret:
        return b""
    if tag.version == 4 and (flags & 0x02 or tag.unsynchronised):
        body = synchronised(body)
    if tag.version == 3 and flags & zipped:
        body = body[4:]
    body = body[1:] if flags & grouped else body
    if tag.version == 4 and flags & 0x01:
        body = body[4:]
    try:
        return zlib.decompress(body) if flags & zipped else body
    except zlib.error:
        return b""


def _decoded(text: bytes, encoding: int) -> str:
    if encoding == 1:  # every text starts with its own byte order mark; the first one applies to all
        return text.decode("utf-16-be" if text[:2] == b"\xfe\xff" else "utf-16-le", "replace")
    return text.decode(TEXTS[encoding], "replace")


def _is_latin(text: str) -> bool:
    return all(ord(letter) < 256 for letter in text)


def _whole(data: bytes, bits: int) -> int:
    number = 0
    for byte in data:
        number = number << bits | byte & ((1 << bits) - 1)
    return number


def _bytes(number: int, wide: int, bits: int) -> bytes:
    if number >= 1 << (wide * bits):
        raise Malformed(f"the ID3 tag would need {number} bytes in one field, more than ID3 allows")
    mask = (1 << bits) - 1
    return bytes(number >> bits * place & mask for place in range(wide - 1, -1, -1))
