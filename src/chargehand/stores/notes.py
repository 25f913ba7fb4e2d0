"""Short texts in files beside the store, for its user alone: the token, and where a server is reached.

A file that other users could open is not believed: it is deleted.
"""

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from chargehand.stores.refusal import refusals
from chargehand.system import private

LONGEST = 1 << 16
"""Bytes that are read of a file."""


def read(path: Path) -> str | None:
    """Returns the text; None if there is none. Raises StoreError for a link and for a file of another user."""
    with suppress(FileNotFoundError), _opened(path, os.O_RDONLY) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return _text(descriptor)
    return None


def keep(path: Path, is_valid: Callable[[str], bool], make: Callable[[], str]) -> str:
    """Returns the text. If there is none, or an invalid one, `make` makes it, once for all processes."""
    return change(path, lambda found: found if is_valid(found) else make())


def change(path: Path, make: Callable[[str], str]) -> str:
    """Replaces the text by what `make` returns for it, and returns that. An empty text deletes the file."""
    with _locked(path) as descriptor:
        found = _text(descriptor)
        made = make(found)
        if not made:
            remove(path)
        elif made != found:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, made.encode(), 0)
            os.fsync(descriptor)
        return made


def remove(path: Path) -> None:
    """Deletes the file, if there is one."""
    with refusals(path), suppress(FileNotFoundError):
        os.unlink(path)


def _text(descriptor: int) -> str:
    return os.pread(descriptor, LONGEST, 0).decode("utf-8", "replace")


@contextmanager
def _locked(path: Path) -> Generator[int]:
    """Opens the file for the block, alone; creates it if there is none."""
    while True:
        with _opened(path, os.O_RDWR | os.O_CREAT) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # otherwise it was deleted while this process waited for the lock
                yield descriptor
                return


@contextmanager
def _opened(path: Path, flags: int) -> Generator[int]:
    """Opens the file for the block. Raises FileNotFoundError if there is none."""
    with refusals(path):
        if private.secure([path]):
            os.unlink(path)
        try:
            descriptor = private.open_file(path, flags)
        except FileNotFoundError:
            descriptor = None
    if descriptor is None:
        raise FileNotFoundError(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
