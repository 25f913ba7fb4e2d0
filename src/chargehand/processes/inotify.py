"""inotify of Linux: the kernel reports that a file was deleted, renamed, replaced or written to."""

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

IN_MODIFY, IN_ATTRIB, IN_DELETE_SELF, IN_MOVE_SELF, IN_DONT_FOLLOW = 0x2, 0x4, 0x400, 0x800, 0x2000000
IN_CLOEXEC, IN_NONBLOCK = os.O_CLOEXEC, os.O_NONBLOCK
GONE = IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_DONT_FOLLOW
"""An open file that loses its name has another link count, which is an attribute."""


def watch(paths: Iterable[Path], what: int = GONE) -> int:
    """Returns a descriptor that becomes readable when `what` happens to one of these files: by default, when it may no
    longer have its name.

    Raises OSError if a file does not exist, or if the user has no more watches.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(IN_CLOEXEC | IN_NONBLOCK)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1 failed")
    for path in paths:
        if libc.inotify_add_watch(descriptor, os.fsencode(path), what) < 0:
            error = ctypes.get_errno()
            os.close(descriptor)
            raise OSError(error, os.strerror(error), str(path))
    return descriptor
