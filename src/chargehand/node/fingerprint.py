"""A digest of a crew's code and settings, which changes when a fix is deployed. Application code is not imported."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from chargehand.settings.plan import CrewPlan

MOST_FILES = 2000


def fingerprint(crew: CrewPlan, python_path: Sequence[str]) -> str:
    """Returns a digest of the crew's settings, its handler's package (or module folder), and the installed packages."""
    digest = hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(crew, workers=0)))
    for name in _sources(crew.handler.partition(":")[0], python_path):
        digest.update(str(name).encode())
        try:
            digest.update(name.read_bytes())
        except OSError as error:  # deleted or unreadable: that is a state that can change, too
            digest.update(str(error.errno).encode())
    for folder in python_path:
        if folder.endswith("-packages"):
            digest.update("\n".join(sorted(_installed(folder))).encode())
    return digest.hexdigest()


def _installed(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-link", ".pth"))]
    except OSError:
        return []


def _sources(module: str, python_path: Sequence[str]) -> Iterator[Path]:
    """Returns the files that a fix most likely changes: all of the package, or all modules beside a single one."""
    first = module.partition(".")[0]
    for folder in map(Path, python_path):
        package, lone = folder / first, folder / f"{first}.py"
        if not os.access(folder, os.R_OK | os.X_OK):
            continue  # an import passes over it, too
        if package.is_dir() and any(package.rglob("*.py")):
            yield from sorted(package.rglob("*.py"))[:MOST_FILES]
            return
        if lone.is_file():
            yield from sorted(folder.glob("*.py"))[:MOST_FILES] if not folder.name.endswith("-packages") else [lone]
            return
