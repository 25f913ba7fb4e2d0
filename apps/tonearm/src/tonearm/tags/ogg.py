"""Parses Ogg and FLAC, to verify that audio and foreign comments are unchanged."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from tonearm.tags import id3
from tonearm.tags.malformed import Malformed

COMMENT_BLOCK, PADDING_BLOCK = 4, 1


@dataclass(frozen=True, slots=True)
class Page:
    """One Ogg page."""

    flags: int
    position: bytes
    serial: bytes
    sequence: int
    lacing: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Comments:
    """A Vorbis comment as stored."""

    vendor: bytes
    entries: tuple[bytes, ...]
    rest: bytes


def pages(file: BinaryIO) -> Iterator[Page]:
    """Yields all pages in order. Raises Malformed at other data between them."""
    file.seek(0)
    while head := file.read(27):
        if head[:5] != b"OggS\0" or len(head) < 27:
            raise Malformed(f"no Ogg page at {file.tell() - len(head)}")
        lacing = file.read(head[26])
        body = file.read(sum(lacing))
        if len(lacing) < head[26] or len(body) < sum(lacing):
            raise Malformed("the last Ogg page is truncated")
        yield Page(head[5], head[6:14], head[14:18], int.from_bytes(head[18:22], "little"), lacing, body)


def opening(file: BinaryIO, count: int) -> tuple[list[bytes], Iterator[Page]]:
    """Returns the first packets of the first stream and the following pages; audio must start on a new page."""
    packets: list[bytes] = []
    current = bytearray()  # pictures make these packets large
    rest = pages(file)
    first: bytes | None = None
    for page in rest:
        first = first or page.serial
        if page.serial != first:
            raise Malformed("an Ogg file with several parallel streams is not supported")
        at = 0
        for length in page.lacing:
            current += page.body[at : at + length]
            at += length
            if length < 255:
                packets.append(bytes(current))
                current.clear()
        if len(packets) > count or (len(packets) == count and current):
            raise Malformed("the audio starts on the page where the comments end")
        if len(packets) == count:
            return packets, rest
    raise Malformed("the headers are truncated")


def audio(file: BinaryIO, headers: int) -> bytes:
    """Returns a digest of all packets except comments, and of the audio pages without numbers and checksums."""
    packets, rest = opening(file, headers)
    digest = hashlib.blake2b()
    for packet in (packets[0], *packets[2:]):
        digest.update(len(packet).to_bytes(8) + packet)
    last: dict[bytes, int] = {}
    for page in rest:
        step = page.sequence - last.get(page.serial, page.sequence)
        last[page.serial] = page.sequence
        place = page.position + page.serial + step.to_bytes(8, signed=True)
        digest.update(bytes([page.flags, len(page.lacing)]) + place + page.lacing + page.body)
    return digest.digest()


def blocks(file: BinaryIO) -> tuple[list[tuple[int, bytes]], int]:
    """Returns the metadata blocks of a FLAC file and the offset of its audio."""
    file.seek(0)
    start = id3.span(file.read(10))
    file.seek(start)
    if file.read(4) != b"fLaC":
        raise Malformed("the file does not start with the FLAC signature")
    found: list[tuple[int, bytes]] = []
    while True:
        head = file.read(4)
        size = int.from_bytes(head[1:])
        content = file.read(size)
        if len(head) < 4 or len(content) < size:
            raise Malformed("the metadata is truncated")
        found.append((head[0] & 0x7F, content))
        if head[0] & 0x80:
            return found, file.tell()


def flac_audio(file: BinaryIO) -> bytes:
    """Returns a digest of the audio and of all blocks (pictures, cue sheet, seek table) except comments and padding."""
    found, start = blocks(file)
    digest = hashlib.blake2b()
    for number, content in found:
        if number not in (COMMENT_BLOCK, PADDING_BLOCK):
            digest.update(bytes([number]) + len(content).to_bytes(8) + content)
    file.seek(0)
    digest.update(file.read(id3.span(file.read(10))))
    file.seek(start)
    while piece := file.read(1 << 20):
        digest.update(piece)
    return digest.digest()


def comments(data: bytes) -> Comments:
    """Parses a Vorbis comment."""

    def take(at: int) -> tuple[bytes, int]:
        size = int.from_bytes(data[at : at + 4], "little")
        if at + 4 + size > len(data):
            raise Malformed("the comments are truncated")
        return data[at + 4 : at + 4 + size], at + 4 + size

    vendor, at = take(0)
    count = int.from_bytes(data[at : at + 4], "little")
    at += 4
    entries: list[bytes] = []
    for _ in range(count):
        entry, at = take(at)
        entries.append(entry)
    return Comments(vendor, tuple(entries), data[at:])
