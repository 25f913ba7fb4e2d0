"""Writes ONNX files: encodes the few messages of the format that a small network needs.

Building a model does not require the `onnx` package, and running it requires only onnxruntime.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

OPSET = 18
IR_VERSION = 9  # of the same year as the opset; onnxruntime reads it since 1.14

_FLOAT, _INT64 = 1, 7
_INT, _INTS = 2, 7


@dataclass(slots=True)
class Graph:
    """A graph under construction; every method returns the name of its result."""

    name: str
    parts: list[bytes] = field(default_factory=list[bytes])
    names: int = 0

    def constant(self, value: NDArray[np.float32] | NDArray[np.int64]) -> str:
        """Adds constant numbers to the model."""
        name = self._new()
        array = np.ascontiguousarray(value)
        dims = b"".join(_number(1, size) for size in array.shape)
        raw = array.astype(array.dtype.newbyteorder("<")).tobytes()
        kind = _FLOAT if array.dtype == np.float32 else _INT64
        self.parts.append(_bytes(5, dims + _number(2, kind) + _text(8, name) + _bytes(9, raw)))
        return name

    def op(self, kind: str, inputs: Sequence[str], output: str | None = None, **attributes: int | Sequence[int]) -> str:
        """Adds an operator on named inputs."""
        output = output or self._new()
        ends = [_text(1, name) for name in inputs] + [_text(2, output)]
        settings = [_bytes(5, _attribute(name, value)) for name, value in attributes.items()]
        self.parts.append(_bytes(1, b"".join([*ends, _text(4, kind), *settings])))
        return output

    def input(self, name: str, shape: Sequence[int | str]) -> str:
        """Adds an input: a float32 tensor; a named dimension may have any size."""
        self.parts.append(_bytes(11, _value(name, shape)))
        return name

    def output(self, name: str, shape: Sequence[int | str]) -> None:
        """Adds an output."""
        self.parts.append(_bytes(12, _value(name, shape)))

    def model(self) -> bytes:
        """Returns the encoded file."""
        graph = b"".join(self.parts) + _text(2, self.name)
        opset = _text(1, "") + _number(2, OPSET)
        return _number(1, IR_VERSION) + _text(2, "tonearm") + _bytes(7, graph) + _bytes(8, opset)

    def _new(self) -> str:
        self.names += 1
        return f"v{self.names}"


def _value(name: str, shape: Sequence[int | str]) -> bytes:
    dims = [_bytes(1, _number(1, size) if isinstance(size, int) else _text(2, size)) for size in shape]
    tensor = _number(1, _FLOAT) + _bytes(2, b"".join(dims))
    return _text(1, name) + _bytes(2, _bytes(1, tensor))


def _attribute(name: str, value: int | Sequence[int]) -> bytes:
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, _INT)
    return _text(1, name) + b"".join(_number(8, item) for item in value) + _number(20, _INTS)


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _text(number: int, value: str) -> bytes:
    return _bytes(number, value.encode())


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
