"""Lets the store thread of an idle node sleep until another process writes to the store, instead of looking often.

inotify reports a write before its commit, and the thread's own ones, too. So what was reported is a reason to look a
little later, never an answer.
"""

import os
import select
import struct
from pathlib import Path

from chargehand.processes import inotify

_EVENT = struct.Struct("iIII")
"""An event of a file that is watched by its own name: it is followed by no name."""


class Doze:
    """The sleep of one thread. Other threads call `rouse`."""

    def __init__(self, file: Path) -> None:
        """`file` is one that every writer of the store writes to."""
        self._file = file
        self._watch: int | None = None
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.asleep = False
        """Whether the thread sleeps, or is about to: whoever gives it something to do must call `rouse`."""

    def begin(self) -> bool:
        """Forgets earlier writes. Returns False if writes cannot be watched: the thread must look by itself."""
        try:
            if self._watch is not None and self._is_gone():
                os.close(self._watch)
                self._watch = None
            if self._watch is None:
                self._watch = inotify.watch([self._file], inotify.IN_MODIFY | inotify.GONE)
        except OSError:  # there is no such file, or the user has no more watches
            return False
        return True

    def _is_gone(self) -> bool:
        """Reads what was reported. Returns whether the file was deleted or replaced."""
        assert self._watch is not None
        try:
            found = os.read(self._watch, 1 << 12)
        except BlockingIOError:
            return False
        return any(mask & ~inotify.IN_MODIFY for _, mask, _, _ in _EVENT.iter_unpack(found))

    def sleep(self, seconds: float) -> None:
        """Sleeps until the file is written to, `rouse` was called, or this time is over. `asleep` must be True."""
        assert self._watch is not None
        poller = select.poll()
        poller.register(self._watch, select.POLLIN)
        poller.register(self._bell, select.POLLIN)
        for descriptor, _ in poller.poll(max(0.0, seconds) * 1000 + 1):
            if descriptor == self._bell:
                os.eventfd_read(self._bell)

    def rouse(self) -> None:
        """Ends the sleep, or the next one. Any thread may call it."""
        os.eventfd_write(self._bell, 1)
