"""The lines on the sockets: `KIND|{json}` and a newline. Encode whole, decode piece by piece.

It must never fail, grow or slow down whatever bytes come; and it imports nothing heavy, because workers load it.
"""

import json
from functools import lru_cache
from typing import Any, NamedTuple

KEPT_OF_A_BAD_LINE = 200
LONGEST_KIND = 32
WORK_FRAME_LIMIT = 16 << 20
"""Bytes of a job or an outcome on its way, with all that the outcome enqueues."""

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_decoder = json.JSONDecoder()


class Frame(NamedTuple):
    """One well-formed line: its kind and its body, still encoded."""

    kind: str
    body: bytes

    def read(self) -> Any:
        """The body as plain data; raises ValueError if it is not JSON."""
        text = self.body.decode()
        try:
            value, end = _decoder.raw_decode(text)  # without looking for blanks around it: we write none
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        if end != len(text):
            raise ValueError(f"{len(text) - end} characters after the value")
        return value


class BadFrame(NamedTuple):
    """One line that is not a frame, cut to what a report may keep."""

    why: str
    line: bytes


def encode(kind: str, body: Any) -> bytes:
    """One frame as bytes, newline included."""
    return f"{kind}|{_encoder.encode(body)}\n".encode(errors="replace")


def encode_done(job: str, fence: int, result: str, follow: list[dict[str, Any]]) -> bytes:
    """The frame that says that a job is done. The result is JSON text already, and is put in as it is."""
    more = f',"follow":{_encoder.encode(follow)}' if follow else ""
    text = f'DONE|{{"id":{_encoder.encode(job)},"fence":{fence}{more},"result":{result}}}\n'
    return text.encode(errors="replace")


class Decoder:
    """Cuts a stream of bytes into frames; holds at most `limit` bytes of an unfinished line."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tail = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[Frame | BadFrame]:
        """The frames that `data` completes. A line over the limit gives one BadFrame and is skipped to its end."""
        if data.count(b"\n") == 1 and data.endswith(b"\n") and not (self._tail or self._skipping):
            line = data[:-1]  # one whole line, as nearly always
            return [_parse(line) if len(line) <= self._limit else _too_long(line, self._limit)]
        found: list[Frame | BadFrame] = []
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._skipping:
                self._skipping = False
                continue
            if self._tail:
                line = bytes(self._tail) + line
                self._tail.clear()
            found.append(_parse(line) if len(line) <= self._limit else _too_long(line, self._limit))
        if rest and not self._skipping:
            self._tail += rest
            if len(self._tail) > self._limit:
                found.append(_too_long(bytes(self._tail[:KEPT_OF_A_BAD_LINE]), self._limit))
                self._tail.clear()
                self._skipping = True
        return found

    def end(self) -> list[BadFrame]:
        """What is left unfinished when the stream ends: half a frame is a bad one."""
        line = bytes(self._tail[:KEPT_OF_A_BAD_LINE])
        self._tail.clear()
        return [BadFrame("the stream ended in the middle of a line", line)] if line else []


def _too_long(line: bytes, limit: int) -> BadFrame:
    return BadFrame(f"longer than {limit} bytes", line[:KEPT_OF_A_BAD_LINE])


def _parse(line: bytes) -> Frame | BadFrame:
    name, bar, body = line.partition(b"|")
    kind = _kind(name) if bar and len(name) <= LONGEST_KIND else None
    if kind is None:
        return BadFrame("not KIND|{json}", line[:KEPT_OF_A_BAD_LINE])
    return Frame(kind, body)


@lru_cache(maxsize=64)
def _kind(name: bytes) -> str | None:
    """The kind of that name, if it may be one; there are few, and each comes thousands of times a second."""
    return name.decode("ascii") if name.isalpha() and name.isupper() else None
