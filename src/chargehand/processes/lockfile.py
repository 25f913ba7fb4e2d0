"""Keeps a lock file under its name: whoever deletes or replaces the file must not make room for a second holder."""

import fcntl
import os
from pathlib import Path

from chargehand.system import private


def is_named(descriptor: int, path: Path) -> bool:
    """Returns whether the open file is still the file of this name."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    own = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)


def take_again(descriptor: int, path: Path) -> int | None:
    """Takes the lock of the file that now has this name, made anew if there is none, with the content of the old one.

    Returns the descriptor that holds it; None if another process was faster.
    """
    taken = private.open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(taken, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(taken)
        return None
    os.ftruncate(taken, 0)
    os.pwrite(taken, os.pread(descriptor, os.fstat(descriptor).st_size, 0), 0)
    os.close(descriptor)
    return taken
