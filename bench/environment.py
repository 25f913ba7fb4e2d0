"""Environments with other packages, for measurements beside other systems: `.venvs/NAME`, made on first use."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.scene import ROOT


class Unavailable(Exception):
    """An environment could not be made; the text says why."""


def python_of(name: str, packages: Sequence[str], least: tuple[int, int] = (3, 11)) -> Path:
    """Returns the interpreter of an environment with these packages. Raises Unavailable."""
    home = ROOT / ".venvs" / name
    python, stamp = home / "bin" / "python", home / "packages"
    wanted = "\n".join(packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"installing {' '.join(packages)} into {home.relative_to(ROOT)}", flush=True)
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    for words in ((_interpreter(least), "-m", "venv", "--clear", home), install):
        made = subprocess.run(list(map(str, words)), stderr=subprocess.PIPE, text=True)
        if made.returncode != 0:
            lines = made.stderr.strip().splitlines() or ["no message"]
            raise Unavailable(f"cannot install {packages[0]}: {lines[-1]}")
    stamp.write_text(wanted)
    return python


def _interpreter(least: tuple[int, int]) -> str:
    """Returns an interpreter of at least this version: this one, or one on the PATH or of pyenv."""
    if sys.version_info >= least:
        return sys.executable
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for minor in range(least[1], least[1] + 4):
        version = f"{least[0]}.{minor}"
        of_pyenv = sorted(versions.glob(f"{version}.*/bin/python"))  # what is on the PATH may be a stand-in that fails
        for found in filter(None, (shutil.which(f"python{version}"), *map(str, of_pyenv))):
            if subprocess.run([found, "-c", ""], check=False, stderr=subprocess.DEVNULL).returncode == 0:
                return found
    raise Unavailable(f"needs Python {least[0]}.{least[1]} or newer, and there is none")
