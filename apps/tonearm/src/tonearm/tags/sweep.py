"""Clearing away what killed writers left: only files of our own naming, and only those that nobody is writing."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tonearm.tags import place


@dataclass(frozen=True, slots=True)
class Swept:
    """What was cleared away, and what was left with its reason."""

    removed: tuple[Path, ...]
    kept: tuple[tuple[Path, str], ...]


def sweep(root: str | Path) -> Swept:
    """Clear the whole library; links are not followed, folders that cannot be read are listed."""
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
    """Clear one folder, not those in it: for a scan that walks them anyway."""
    removed: list[Path] = []
    kept: list[tuple[Path, str]] = []
    for name in sorted(_leftovers(folder)):
        try:
            reason = _remove(os.path.join(folder, name))
        except FileNotFoundError:  # its writer finished, or another sweeper was here
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
    """Remove the file unless its writer lives; the reason why not."""
    descriptor = os.open(path, place.FILE)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return "not a regular file"
        match place.lock(descriptor):
            case "held":
                os.unlink(path)
                return None
            case "busy":
                return "somebody is writing it"
            case "unknown":
                return "this file system cannot tell whether somebody is writing it; remove it by hand"
    finally:
        os.close(descriptor)
