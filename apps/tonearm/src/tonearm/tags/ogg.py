"""Ogg and FLAC as bytes: enough to see that audio and foreign comments are what they were."""

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
    """A Vorbis comment as it is stored."""

    vendor: bytes
    entries: tuple[bytes, ...]
    rest: bytes


def pages(file: BinaryIO) -> Iterator[Page]:
    """Every page in order; Malformed where something else stands between them."""
    file.seek(0)
    while head := file.read(27):
        if head[:5] != b"OggS\0" or len(head) < 27:
            raise Malformed(f"something that is no Ogg page at {file.tell() - len(head)}")
        lacing = file.read(head[26])
        body = file.read(sum(lacing))
        if len(lacing) < head[26] or len(body) < sum(lacing):
            raise Malformed("its last Ogg page is cut off")
        yield Page(head[5], head[6:14], head[14:18], int.from_bytes(head[18:22], "little"), lacing, body)


def opening(file: BinaryIO, count: int) -> tuple[list[bytes], Iterator[Page]]:
    """The first stream's first packets, and the pages behind them; audio must begin on a page of its own."""
    packets: list[bytes] = []
    current = bytearray()  # covers make these packets large
    rest = pages(file)
    first: bytes | None = None
    for page in rest:
        first = first or page.serial
        if page.serial != first:
            raise Malformed("several streams side by side in one Ogg file, which is not supported")
        at = 0
        for length in page.lacing:
            current += page.body[at : at + length]
            at += length
            if length < 255:
                packets.append(bytes(current))
                current.clear()
        if len(packets) > count or (len(packets) == count and current):
            raise Malformed("its audio begins on the page where its comments end")
        if len(packets) == count:
            return packets, rest
    raise Malformed("its headers are cut off")


def audio(file: BinaryIO, headers: int) -> bytes:
    """A digest of all packets but the comments, and of the audio's pages, whatever their numbers and checksums."""
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
    """A FLAC file's metadata blocks, and where its audio begins."""
    file.seek(0)
    start = id3.span(file.read(10))
    file.seek(start)
    if file.read(4) != b"fLaC":
        raise Malformed("it does not begin as a FLAC file does")
    found: list[tuple[int, bytes]] = []
    while True:
        head = file.read(4)
        size = int.from_bytes(head[1:])
        content = file.read(size)
        if len(head) < 4 or len(content) < size:
            raise Malformed("its metadata is cut off")
        found.append((head[0] & 0x7F, content))
        if head[0] & 0x80:
            return found, file.tell()


def flac_audio(file: BinaryIO) -> bytes:
    """A digest of the audio and of all blocks (pictures, cue sheet, seek table) but comments and padding."""
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
    """A Vorbis comment, taken apart."""

    def take(at: int) -> tuple[bytes, int]:
        size = int.from_bytes(data[at : at + 4], "little")
        if at + 4 + size > len(data):
            raise Malformed("its comments are cut off")
        return data[at + 4 : at + 4 + size], at + 4 + size

    vendor, at = take(0)
    count = int.from_bytes(data[at : at + 4], "little")
    at += 4
    entries: list[bytes] = []
    for _ in range(count):
        entry, at = take(at)
        entries.append(entry)
    return Comments(vendor, tuple(entries), data[at:])
