"""Ledgers: files of complete lines that survive the exit of their writer, independent of the store."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def append(path: Path, lines: Iterable[Sequence[object]], *, sync: bool = False) -> None:
    """Appends lines of words that survive an immediate kill of this process; `sync` also makes them durable."""
    text = "".join(" ".join(str(word) for word in words) + "\n" for words in lines)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, text.encode())
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def last(path: Path) -> str:
    """Returns the last line, or None."""
    if not path.exists():
        return ""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 200))
        return file.read().decode().rstrip("\n").rpartition("\n")[2]


def read(path: Path) -> list[list[str]]:
    """Returns the words of every complete line; a partial line was never acknowledged."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    return [line.split() for line in text[: text.rfind("\n") + 1].splitlines() if line]
