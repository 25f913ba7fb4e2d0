"""A name for a crew's code and settings: it changes when a fix is deployed. It reads files and imports none of them."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from chargehand.settings.plan import CrewPlan

MOST_FILES = 2000


def fingerprint(crew: CrewPlan, python_path: Sequence[str]) -> str:
    """A digest over the crew's settings, its handler's package (or the folder of its module), and what is installed."""
    digest = hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(crew, workers=0)))
    for name in _sources(crew.handler.partition(":")[0], python_path):
        digest.update(str(name).encode())
        try:
            digest.update(name.read_bytes())
        except OSError as error:  # vanished, or not for us: that, too, is a state that can change
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
    """The files that a fix would most likely change: all of the package, or all modules beside a lone one."""
    first = module.partition(".")[0]
    for folder in map(Path, python_path):
        package, lone = folder / first, folder / f"{first}.py"
        if package.is_dir() and any(package.rglob("*.py")):
            yield from sorted(package.rglob("*.py"))[:MOST_FILES]
            return
        if lone.is_file():
            yield from sorted(folder.glob("*.py"))[:MOST_FILES] if not folder.name.endswith("-packages") else [lone]
            return
