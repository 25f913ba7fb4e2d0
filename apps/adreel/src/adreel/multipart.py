"""Reads a multipart body as it arrives, one part after another; only the part that is being read is in memory."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from email.message import Message

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser

from adreel.errors import Refused

LONGEST_HEADER = 8 << 10


@dataclass
class Begin:
    """The beginning of a part."""

    field: str
    filename: str | None
    """The name of the file; None if the part is a field."""


@dataclass
class End:
    """The end of a part."""


Piece = Begin | bytes | End


@dataclass
class _Collector:
    """Collects what the parser has found in one chunk of the body."""

    found: list[Piece] = field(default_factory=list[Piece])
    name: bytes = b""
    value: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    complete: bool = False

    def header_field(self, data: bytes, start: int, end: int) -> None:
        self.name += data[start:end]
        self._check()

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self.value += data[start:end]
        self._check()

    def header_end(self) -> None:
        self.headers[self.name.decode("latin-1").lower()] = self.value.decode("utf-8", "replace")
        self.name = self.value = b""

    def headers_finished(self) -> None:
        disposition = Message()
        disposition["content-disposition"] = self.headers.get("content-disposition", "")
        named, file = (disposition.get_param(word, header="content-disposition") for word in ("name", "filename"))
        self.headers = {}
        self.found.append(Begin(_text(named) or "", _text(file)))

    def part_data(self, data: bytes, start: int, end: int) -> None:
        self.found.append(bytes(data[start:end]))

    def part_end(self) -> None:
        self.found.append(End())

    def end(self) -> None:
        self.complete = True

    def _check(self) -> None:
        if len(self.name) + len(self.value) > LONGEST_HEADER or len(self.headers) > 20:
            raise Refused(431, "headers", "the headers of a part are too long")


def _text(found: object) -> str | None:
    """Returns a parameter of a header: plain, or with a charset (RFC 2231)."""
    if isinstance(found, tuple):
        charset, _, value = found  # pyright: ignore[reportUnknownVariableType]
        try:
            return str(value).encode("latin-1", "replace").decode(str(charset or "utf-8"), "replace")  # pyright: ignore[reportUnknownArgumentType]
        except LookupError:
            return str(value)  # pyright: ignore[reportUnknownArgumentType]
    return None if found is None else str(found)


def boundary_of(content_type: str) -> bytes:
    """Returns the boundary that the header Content-Type names. Raises Refused."""
    header = Message()
    header["content-type"] = content_type
    found = _text(header.get_param("boundary"))
    if not found or len(found) > 200:
        raise Refused(400, "multipart", "the Content-Type multipart/form-data has no boundary")
    return found.encode("latin-1", "replace")


async def pieces(stream: AsyncIterator[bytes], boundary: bytes) -> AsyncIterator[Piece]:
    """Yields the parts of a body. Raises Refused if the body is malformed, or ends before its last boundary."""
    collector = _Collector()
    parser = MultipartParser(
        boundary,
        {
            "on_header_field": collector.header_field,
            "on_header_value": collector.header_value,
            "on_header_end": collector.header_end,
            "on_headers_finished": collector.headers_finished,
            "on_part_data": collector.part_data,
            "on_part_end": collector.part_end,
            "on_end": collector.end,
        },
    )
    async for chunk in stream:
        try:
            parser.write(chunk)
        except MultipartParseError as error:
            raise Refused(400, "multipart", f"the multipart body is malformed: {error}") from error
        found, collector.found = collector.found, []
        for piece in found:
            yield piece
    if not collector.complete:
        raise Refused(400, "incomplete", "the upload ended before its end")
