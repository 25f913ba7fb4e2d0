"""Parses and builds Ogg and FLAC files as bytes: only the comments are generated, everything else is copied.

Saving through an object model would lose comments without a name or in another encoding, and audio that starts on the
page where the comments end.
"""

import hashlib
import shutil
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

from tonearm.tags import id3
from tonearm.tags.malformed import Malformed

PADDING_BLOCK, COMMENT_BLOCK = 1, 4
LARGEST_BLOCK = (1 << 24) - 1
ROOM = 1024
"""Padding after the blocks of a FLAC file, if the old padding does not suffice."""
CONTINUED, FIRST, LAST = 1, 2, 4
"""Flags of an Ogg page: it continues a packet; it is the first or the last page of its stream."""
START, NOWHERE = bytes(8), b"\xff" * 8
"""Positions of an Ogg page: of headers, and of a page on which no packet ends."""
FULL = 255
"""The length of a segment that the next one continues, and the most segments of a page."""
MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


@dataclass(frozen=True, slots=True)
class Page:
    """One Ogg page."""

    flags: int
    position: bytes
    serial: bytes
    sequence: int
    lacing: bytes
    body: bytes
    sound: bool = True
    """Whether its checksum is right; players skip a page with a wrong one."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The headers of an Ogg file and the pages of its audio."""

    serial: bytes
    packets: list[bytes]
    audio: Iterator[Page]
    sequence: int
    """The number of the first page of the audio if none is missing."""


@dataclass(frozen=True, slots=True)
class Comments:
    """A Vorbis comment as stored."""

    vendor: bytes
    entries: tuple[bytes, ...]
    rest: bytes


NO_COMMENTS = Comments(b"", (), b"")


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
        sound = checksum(head[:22] + bytes(4) + head[26:] + lacing + body) == head[22:26]
        yield Page(head[5], head[6:14], head[14:18], int.from_bytes(head[18:22], "little"), lacing, body, sound)


def checksum(page: bytes) -> bytes:
    """Returns the checksum of a page whose checksum field is zero: a CRC that zlib computes with mirrored bits."""
    mirrored = zlib.crc32(page.translate(MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return mirrored.to_bytes(4).translate(MIRRORED)


def render(page: Page) -> bytes:
    """Returns the page as bytes. A wrong checksum stays wrong."""
    head = b"OggS\0" + bytes([page.flags]) + page.position + page.serial + page.sequence.to_bytes(4, "little")
    tail = bytes([len(page.lacing)]) + page.lacing + page.body
    right = checksum(head + bytes(4) + tail)
    return head + (right if page.sound else bytes(byte ^ 0xFF for byte in right)) + tail


def paged(packets: Iterable[bytes], serial: bytes, sequence: int, flags: int = 0) -> Iterator[Page]:
    """Yields pages with these headers, the first one with these flags."""
    lacing = b"".join(bytes([FULL] * (len(packet) // FULL) + [len(packet) % FULL]) for packet in packets)
    body = b"".join(packets)
    at = 0
    for start in range(0, len(lacing), FULL):
        some = lacing[start : start + FULL]
        position = START if any(length < FULL for length in some) else NOWHERE
        yield Page(flags, position, serial, sequence, some, body[at : at + sum(some)])
        at, sequence, flags = at + sum(some), sequence + 1, CONTINUED if some[-1] == FULL else 0


def opening(file: BinaryIO, count: int) -> Opening:
    """Returns the first packets of the first stream, and the audio.

    Audio that starts on the page where the headers end becomes a page of its own.
    """
    packets: list[bytes] = []
    current = bytearray()  # pictures make these packets large
    rest = pages(file)
    first: bytes | None = None
    for page in rest:
        first = first or page.serial
        if page.serial != first:
            raise Malformed("an Ogg file with several parallel streams is not supported")
        if not page.sound:
            raise Malformed("a page with headers is damaged")
        at = 0
        for number, length in enumerate(page.lacing, 1):
            current += page.body[at : at + length]
            at += length
            if length < FULL:
                packets.append(bytes(current))
                current.clear()
            if len(packets) == count:
                lacing, body = page.lacing[number:], page.body[at:]
                if page.flags & LAST and not lacing:
                    raise Malformed("the file contains no audio")
                return Opening(first, packets, _audio(page, lacing, body, rest), page.sequence + (not lacing))
    raise Malformed("the headers are truncated")


def _audio(shared: Page, lacing: bytes, body: bytes, rest: Iterator[Page]) -> Iterator[Page]:
    if lacing:
        position = shared.position if any(length < FULL for length in lacing) else NOWHERE
        yield replace(shared, flags=shared.flags & LAST, position=position, lacing=lacing, body=body)
    yield from rest


def audio(file: BinaryIO, headers: int) -> bytes:
    """Returns a digest of all packets except comments, and of the audio pages without numbers and checksums."""
    found = opening(file, headers)
    digest = hashlib.blake2b()
    for packet in (found.packets[0], *found.packets[2:]):
        digest.update(len(packet).to_bytes(8) + packet)
    last = {found.serial: found.sequence - 1}
    for page in found.audio:
        step = 0 if page.flags & FIRST else page.sequence - last.get(page.serial, page.sequence)
        last[page.serial] = page.sequence
        place = page.position + page.serial + (step % (1 << 32)).to_bytes(8)
        digest.update(bytes([page.flags, page.sound, len(page.lacing)]) + place + page.lacing + page.body)
    return digest.digest()


def with_comments(file: BinaryIO, out: BinaryIO, headers: int, packet: bytes) -> None:
    """Writes the Ogg file with this comment packet; the audio starts on a page of its own."""
    found = opening(file, headers)
    serial, packets = found.serial, found.packets
    sequence = 0
    for page in (*paged(packets[:1], serial, 0, FIRST), *paged([packet, *packets[2:]], serial, 1)):
        out.write(render(page))
        sequence = page.sequence + 1
    shift = sequence - found.sequence
    for page in found.audio:
        if page.flags & FIRST:  # another file follows in this one, with numbers of its own
            shift = 0
        moved = shift if page.serial == serial else 0
        out.write(render(replace(page, sequence=(page.sequence + moved) % (1 << 32))))


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


def flac_with_comments(file: BinaryIO, out: BinaryIO, found: Comments) -> None:
    """Writes the FLAC file with these comments; the audio keeps its offset if the padding suffices."""
    old, start = blocks(file)
    file.seek(start)
    sync = file.read(2)
    if sync and (sync[0] != 0xFF or sync[1] & 0xFC != 0xF8):
        raise Malformed("no audio follows the metadata")
    file.seek(0)
    prefix = id3.span(file.read(10))
    file.seek(0)
    out.write(file.read(prefix + 4))
    made = [block for block in old if block[0] != PADDING_BLOCK]
    at = next((at for at, (number, _) in enumerate(made) if number == COMMENT_BLOCK), len(made))
    made[at : at + 1] = [] if found == NO_COMMENTS else [(COMMENT_BLOCK, build(found))]
    left = start - prefix - 4 - sum(4 + len(content) for _, content in made)
    if left:
        made.append((PADDING_BLOCK, bytes(min(left - 4, LARGEST_BLOCK) if left >= 4 else ROOM)))
    for at, (number, content) in enumerate(made, 1):
        if len(content) > LARGEST_BLOCK:
            raise Malformed("the comments would exceed 16 MiB, the limit of their format")
        out.write(bytes([number | (0x80 if at == len(made) else 0)]) + len(content).to_bytes(3) + content)
    file.seek(start)
    shutil.copyfileobj(file, out, 1 << 20)


def build(found: Comments) -> bytes:
    """Returns a Vorbis comment as bytes."""
    parts = [found.vendor, *found.entries]
    sized = [len(part).to_bytes(4, "little") + part for part in parts]
    return b"".join([sized[0], len(found.entries).to_bytes(4, "little"), *sized[1:], found.rest])


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
