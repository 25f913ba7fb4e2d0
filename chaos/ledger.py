"""Ledgers: files of whole lines that survive the death of whoever writes them. They owe nothing to the store."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def append(path: Path, lines: Iterable[Sequence[object]], *, sync: bool = False) -> None:
    """Write lines of words, whole, even if this process is killed right after; `sync`: durably."""
    text = "".join(" ".join(str(word) for word in words) + "\n" for words in lines)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, text.encode())
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def last(path: Path) -> str:
    """The last line; nothing if there is none yet."""
    if not path.exists():
        return ""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 200))
        return file.read().decode().rstrip("\n").rpartition("\n")[2]


def read(path: Path) -> list[list[str]]:
    """The words of every whole line; a torn one was never told to anybody."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    return [line.split() for line in text[: text.rfind("\n") + 1].splitlines() if line]
