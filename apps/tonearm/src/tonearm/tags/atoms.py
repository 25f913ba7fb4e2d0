"""Parses MP4 atoms, to verify that samples, chunk offsets and everything except the tags are unchanged."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from tonearm.tags.malformed import Malformed

CONTAINERS = frozenset({b"moov", b"trak", b"mdia", b"minf", b"stbl", b"udta", b"moof", b"traf", b"mvex", b"edts"})
EMPTY = frozenset({b"free", b"skip"})
ABSOLUTE = frozenset({b"tfra", b"saio", b"iloc"})
"""Atoms with file offsets that mutagen does not adjust. A file with one of them must keep its layout."""
DEEPEST = 12


@dataclass(frozen=True, slots=True)
class Atom:
    """One atom with the offsets of its content and its end."""

    name: bytes
    at: int
    start: int
    end: int


def walk(file: BinaryIO, start: int, end: int) -> Iterator[Atom]:
    """Returns the atoms between two offsets. Raises Malformed if they do not fill that range."""
    at = start
    while at + 8 <= end:
        file.seek(at)
        head = file.read(16)
        size, body = int.from_bytes(head[:4]), 8
        if size == 1:
            size, body = int.from_bytes(head[8:16]), 16
        elif size == 0:
            size = end - at
        if size < body or at + size > end:
            raise Malformed(f"atom {head[4:8]!r} at {at} does not fit: the file is truncated or damaged")
        yield Atom(head[4:8], at, at + body, at + size)
        at += size


def top(file: BinaryIO) -> list[Atom]:
    """Returns the top-level atoms."""
    return list(walk(file, 0, os.fstat(file.fileno()).st_size))


def tags(file: BinaryIO) -> list[Atom]:
    """Returns the atoms of the tag list that players read."""
    for moov in (atom for atom in top(file) if atom.name == b"moov"):
        for udta in (atom for atom in walk(file, moov.start, moov.end) if atom.name == b"udta"):
            for meta in (atom for atom in walk(file, udta.start, udta.end) if atom.name == b"meta"):
                for ilst in (atom for atom in walk(file, meta.start + 4, meta.end) if atom.name == b"ilst"):
                    return list(walk(file, ilst.start, ilst.end))
    return []


def audio(file: BinaryIO) -> bytes:
    """Returns a digest of every atom except tags and padding; offsets are relative to the atom they point into."""
    outermost = top(file)
    solid = [atom for atom in outermost if atom.name != b"moov" and atom.name not in EMPTY]
    digest = hashlib.blake2b()
    absolute: list[bytes] = []
    for atom in outermost:
        if atom.name not in EMPTY:
            _digest(file, atom, digest, solid, absolute, 0)
    if absolute:
        digest.update(b"".join(atom.at.to_bytes(8) for atom in solid))
    return digest.digest()


def _digest(
    file: BinaryIO, atom: Atom, digest: "hashlib.blake2b", solid: list[Atom], absolute: list[bytes], depth: int
) -> None:
    if depth > DEEPEST:
        raise Malformed("atoms are nested too deeply")
    digest.update(atom.name + depth.to_bytes())
    if atom.name in CONTAINERS:
        for child in walk(file, atom.start, atom.end):
            is_tags = atom.name == b"udta" and child.name == b"meta" and depth == 1
            emptied = child.name == b"udta" and _only_tags(file, child)
            if child.name not in EMPTY and not is_tags and not emptied:
                _digest(file, child, digest, solid, absolute, depth + 1)
        return
    if atom.name in ABSOLUTE:
        absolute.append(atom.name)
    file.seek(atom.start)
    if atom.name in (b"stco", b"co64"):
        _places(file.read(atom.end - atom.start), 4 if atom.name == b"stco" else 8, digest, solid)
        return
    digest.update((atom.end - atom.start).to_bytes(8))
    left = atom.end - atom.start
    if atom.name == b"tfhd" and left >= 16:
        data = file.read(left)
        if data[3] & 1:
            digest.update(data[:8] + _place(int.from_bytes(data[8:16]), solid) + data[16:])
            return
        digest.update(data)
        return
    while piece := file.read(min(left, 1 << 20)):
        digest.update(piece)
        left -= len(piece)


def _only_tags(file: BinaryIO, udta: Atom) -> bool:
    """Returns whether a user data atom contains only tags and padding: a file without tags has no such atom."""
    names = {atom.name for atom in walk(file, udta.start, udta.end)} if udta.end - udta.start >= 8 else set[bytes]()
    return names <= {b"meta", *EMPTY}


def _places(data: bytes, wide: int, digest: "hashlib.blake2b", solid: list[Atom]) -> None:
    digest.update(data[:8])
    for at in range(8, len(data) - wide + 1, wide):
        digest.update(_place(int.from_bytes(data[at : at + wide]), solid))


def _place(offset: int, solid: list[Atom]) -> bytes:
    for number, atom in enumerate(solid):
        if atom.start <= offset < atom.end:
            return number.to_bytes(4) + (offset - atom.start).to_bytes(8)
    return b"out of all atoms" + offset.to_bytes(8)
