"""The frames on the sockets: `KIND|{json}` and a newline. Encodes whole frames and decodes a stream incrementally.

Decoding must not fail, use unbounded memory or slow down, whatever bytes arrive. Workers load this module, so it
imports nothing heavy.
"""

import json
from functools import lru_cache
from typing import Any, NamedTuple

from chargehand import codec

KEPT_OF_A_BAD_LINE = 200
LONGEST_KIND = 32
WORK_FRAME_LIMIT = 16 << 20
"""The maximum size in bytes of a job or an outcome, including the jobs that the outcome enqueues."""
PERMIT_BYTES = 8
"""The size of a permit: the number of a job among those that a worker was sent ahead."""
STACKS_MARK = b"\0"
"""Precedes and ends the stacks that a pulse thread writes. No stack contains it: faulthandler escapes such characters.
"""

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_decoder = json.JSONDecoder()


class Frame(NamedTuple):
    """A well-formed frame: its kind and its encoded body."""

    kind: str
    body: bytes

    def read(self) -> Any:
        """Decodes the body; its texts stay escaped. Raises ValueError if it is not JSON."""
        return _decode(self.body.decode())

    def read_restored(self) -> Any:
        """Decodes the body, with the application's own texts restored. Raises ValueError if it is not JSON."""
        return _decode(codec.restore_json(self.body.decode()))


def _decode(text: str) -> Any:
    try:
        value, end = _decoder.raw_decode(text)  # does not skip whitespace: frames contain none around the body
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if end != len(text):
        raise ValueError(f"{len(text) - end} characters after the value")
    return value


class BadFrame(NamedTuple):
    """A line that is not a frame, truncated for reports."""

    why: str
    line: bytes


def encode(kind: str, body: Any) -> bytes:
    """Encodes a frame, including its newline. The texts of the application must be escaped."""
    return codec.to_utf8(f"{kind}|{_encoder.encode(body)}\n")


def encode_done(job: str, claim: int, result: str, follow: list[dict[str, Any]], seconds: float | None = None) -> bytes:
    """Encodes the DONE frame; the result is JSON already and is inserted unchanged."""
    more = f',"follow":{_encoder.encode(follow)}' if follow else ""
    took = "" if seconds is None else f',"us":{int(seconds * 1e6)}'
    text = f'DONE|{{"id":{_encoder.encode(job)},"fence":{claim}{took}{more},"result":{result}}}\n'
    return codec.to_utf8(text)


def encode_keep(job: str, claim: int, state: str) -> bytes:
    """Encodes the KEEP frame; the checkpoint is JSON already and is inserted unchanged."""
    return codec.to_utf8(f'KEEP|{{"id":{_encoder.encode(job)},"fence":{claim},"state":{state}}}\n')


class Decoder:
    """Splits a stream of bytes into frames; buffers at most `limit` bytes of an incomplete line."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tail = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[Frame | BadFrame]:
        """Returns the frames that `data` completes; a line over the limit yields one BadFrame and is skipped."""
        if data.find(b"\n") == len(data) - 1 and data and not (self._tail or self._skipping):
            line = data[:-1]  # the usual case: exactly one line
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
        """Returns a BadFrame if the stream ended in the middle of a line."""
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
    """Returns the kind, or None if it is malformed; cached, because few kinds arrive thousands of times a second."""
    return name.decode("ascii") if name.isalpha() and name.isupper() else None
