"""Parses WAV and AIFF as chunks, of which one may contain an ID3 tag; all other chunks stay unchanged."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal

from tonearm.tags.malformed import Malformed

HEAD = 12
PIECE = 1 << 20
LARGEST = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk with the offset and the size of its content."""

    id: bytes
    start: int
    size: int

    @property
    def end(self) -> int:
        """Returns the offset of the next chunk."""
        return self.start + self.size + self.size % 2

    @property
    def is_id3(self) -> bool:
        """Returns whether the chunk contains an ID3 tag; both spellings of its id are in use."""
        return self.id.upper() == b"ID3 "


@dataclass(frozen=True, slots=True)
class Form:
    """A file of chunks. Bytes after its end are preserved."""

    order: Literal["little", "big"]
    head: bytes
    chunks: tuple[Chunk, ...]
    end: int

    def id3(self) -> Chunk | None:
        """Returns the chunk with the ID3 tag, or None."""
        return next((chunk for chunk in self.chunks if chunk.is_id3), None)


def parse(file: BinaryIO) -> Form:
    """Returns the chunks of the file. Raises Malformed if they do not fit, as in a truncated file."""
    length = os.fstat(file.fileno()).st_size
    file.seek(0)
    head = file.read(HEAD)
    order: Literal["little", "big"] = "little" if head[:4] == b"RIFF" else "big"
    end = 8 + int.from_bytes(head[4:8], order)
    if len(head) < HEAD or end > length:
        raise Malformed(
            f"the header states {end} bytes, but the file has {length}: it is truncated or was never finished"
        )
    chunks: list[Chunk] = []
    at = HEAD
    while at + 8 <= end:
        file.seek(at)
        start = file.read(8)
        chunk = Chunk(start[:4], at + 8, int.from_bytes(start[4:], order))
        if chunk.start + chunk.size > end:
            raise Malformed(f"chunk {chunk.id!r} at {at} extends beyond the end")
        chunks.append(chunk)
        at = chunk.end
    return Form(order, head, tuple(chunks), max(end, min(at, length)))


def compose(source: BinaryIO, out: BinaryIO, form: Form, tag: bytes | None) -> None:
    """Writes the file with this ID3 tag, or without one, in the position of the old tag or at the end."""
    out.write(form.head)
    old = form.id3()
    for chunk in form.chunks:
        if chunk is old and tag is not None:
            _put(out, form, chunk.id, tag)
        elif chunk is not old:
            source.seek(chunk.start - 8)
            copy(source, out, 8 + chunk.size)
            out.write(bytes(chunk.size % 2))
    if old is None and tag is not None:
        _put(out, form, b"id3 " if form.order == "little" else b"ID3 ", tag)
    size = out.tell() - 8
    if size > LARGEST:
        raise Malformed("the file would exceed 4 GiB, the limit of its format")
    source.seek(form.end)
    copy(source, out)
    out.seek(4)
    out.write(size.to_bytes(4, form.order))


def copy(source: BinaryIO, out: BinaryIO, count: int | None = None) -> None:
    """Copies this number of bytes, or the rest, from the current position of the source."""
    for piece in pieces(source, count):
        out.write(piece)


def pieces(file: BinaryIO, count: int | None = None) -> Iterator[bytes]:
    """Yields this number of bytes, or the rest, from the current position. Raises Malformed at an early end."""
    left = count
    while left is None or left:
        piece = file.read(PIECE if left is None else min(left, PIECE))
        if not piece and left:
            raise Malformed("the file ends too early")
        if not piece:
            return
        yield piece
        left = None if left is None else left - len(piece)


def _put(out: BinaryIO, form: Form, id: bytes, content: bytes) -> None:
    out.write(id + len(content).to_bytes(4, form.order) + content + bytes(len(content) % 2))
