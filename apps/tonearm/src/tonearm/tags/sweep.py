"""Removes temporary files of killed writers: only files with Tonearm's naming, and only if no process writes them."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tonearm.tags import place


@dataclass(frozen=True, slots=True)
class Swept:
    """The removed files, and the remaining ones with the reason."""

    removed: tuple[Path, ...]
    kept: tuple[tuple[Path, str], ...]


def sweep(root: str | Path) -> Swept:
    """Cleans the whole library; does not follow links, and reports unreadable folders."""
    unread: list[tuple[Path, str]] = []

    def trouble(error: OSError) -> None:
        unread.append((Path(error.filename), error.strerror or str(error)))

    removed: list[Path] = []
    for folder, _, names in os.walk(root, onerror=trouble):
        if any(place.TEMPORARY.fullmatch(name) for name in names):
            swept = sweep_folder(folder)
            removed += swept.removed
            unread += swept.kept
    return Swept(tuple(removed), tuple(unread))


def sweep_folder(folder: str | Path) -> Swept:
    """Cleans one folder without its subfolders, for a scan that walks them anyway."""
    removed: list[Path] = []
    kept: list[tuple[Path, str]] = []
    for name in sorted(_leftovers(folder)):
        try:
            reason = _remove(os.path.join(folder, name))
        except FileNotFoundError:  # its writer finished, or another sweep removed it
            continue
        except OSError as error:
            reason = error.strerror or str(error)
        if reason is None:
            removed.append(Path(folder, name))
        else:
            kept.append((Path(folder, name), reason))
    return Swept(tuple(removed), tuple(kept))


def _leftovers(folder: str | Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if place.TEMPORARY.fullmatch(entry.name):
                yield entry.name


def _remove(path: str) -> str | None:
    """Removes the file unless a process writes it; returns the reason if it was not removed."""
    descriptor = os.open(path, place.FILE)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return "not a regular file"
        match place.lock(descriptor):
            case "held":
                os.unlink(path)
                return None
            case "busy":
                return "another process is writing the file"
            case "unknown":
                return "this file system does not support locks, so the file may still be in use; remove it manually"
    finally:
        os.close(descriptor)
