"""A digest of a crew's code, settings and installed packages, which changes when a fix is deployed.

Application code is not imported. Running the application must not change the digest: it contains no data, no caches,
and no times of folders in which those are created.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from chargehand.settings.plan import CrewPlan
from chargehand.system.sha256 import sha256

MOST_FILES = 2000
_METADATA = (".dist-info", ".egg-info")
_MODULES = (".py", ".so", ".pth", ".egg-link")


def fingerprint(crew: CrewPlan, python_path: Sequence[str]) -> str:
    """Returns a digest of the crew's settings, its handler's package (or module folder), and what can be imported."""
    digest = sha256(msgspec.json.encode(msgspec.structs.replace(crew, workers=0)))
    for name in _sources(crew.handler.partition(":")[0], python_path):
        digest.update(os.fsencode(name))
        try:
            digest.update(name.read_bytes())
        except OSError as error:  # deleted or unreadable: that is a state that can change, too
            digest.update(str(error.errno).encode())
    installed = {name for folder in python_path for name in _installed(folder)}
    digest.update("\n".join(sorted(installed)).encode(errors="surrogateescape"))
    return digest.hexdigest()


def _installed(folder: str) -> list[str]:
    """Returns the names of modules and packages in the folder, and of distributions with the time of installation."""
    found: list[str] = []
    with suppress(OSError), os.scandir(folder or ".") as entries:  # a zip file, or a folder that an import passes over
        for entry in entries:
            if entry.name.endswith(_METADATA):
                found.append(f"{entry.name} {entry.stat().st_mtime_ns}")
            elif entry.name.endswith(_MODULES) or os.path.exists(f"{entry.path}/__init__.py"):
                found.append(entry.name)
    return found


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
