"""The lock file and the control socket of a node: whoever deletes them must not make room for a second node."""

import os

from chargehand import log
from chargehand.errors import StoreError
from chargehand.node.loop import Loop
from chargehand.node.server import Server
from chargehand.processes.inotify import watch
from chargehand.processes.lockfile import is_named, take_again
from chargehand.stores.location import Location

AT_MOST_EVERY = 0.9
"""Seconds between two checks, however often the files are deleted."""
AT_LEAST_EVERY = 4.5
"""Seconds after which the files are checked although nothing was reported: inotify does not report that a folder was
renamed. The node does not wake for it, but writes its heartbeat about that often."""
UNWATCHED_EVERY = 1.0
"""Seconds between two checks without inotify, of which a user has a limited number of instances."""


class OwnFiles:
    """Restores the two files. The node calls `check` when `due` says so."""

    def __init__(self, loop: Loop, server: Server, location: Location, lock: int | None) -> None:
        """`lock`: the open lock file; None if the host did not name it."""
        self._loop, self._server, self._location, self._lock = loop, server, location, lock
        self._watch: int | None = None
        self._touched = True
        self._checked_at = float("-inf")
        self.replaced = False
        """Whether another node has taken the lock."""

    def due(self) -> float:
        """Returns when the node is to wake for a check."""
        if self.replaced:
            return float("inf")
        if self._touched:
            return self._checked_at + AT_MOST_EVERY
        return self._checked_at + UNWATCHED_EVERY if self._watch is None else float("inf")

    def check(self, now: float) -> None:
        """Restore what was deleted, if a check is due. Sets `replaced` if another node was faster."""
        if self.replaced or now < min(self.due(), self._checked_at + AT_LEAST_EVERY):
            return
        self._checked_at, self._touched = now, False
        try:
            lock_restored = self._restore_lock()
            if self.replaced:
                return
            socket_restored = self._server.restore()
            if socket_restored:
                log.warning("the control socket was deleted; it was made again", file=self._location.socket)
            if self._watch is None or lock_restored or socket_restored:
                self._watch_again()
        except (OSError, StoreError) as error:
            log.warning("the node's files cannot be checked", folder=self._location.path.parent, why=error)

    def _restore_lock(self) -> bool:
        """Returns whether the lock file was made again."""
        if self._lock is None or is_named(self._lock, self._location.node):
            return False
        lock = take_again(self._lock, self._location.node)
        if lock is None:
            self.replaced = True
            log.error("the lock file of the node was deleted, and another node took its place")
            return False
        self._lock = lock
        log.warning("the lock file of the node was deleted; it was made again", file=self._location.node)
        return True

    def _watch_again(self) -> None:
        """Watch the present files, and check once more: they may have been deleted just before."""
        if self._watch is not None:
            self._loop.remove(self._watch)
            os.close(self._watch)
            self._watch = None
        try:
            self._watch = watch([self._location.socket, *([] if self._lock is None else [self._location.node])])
        except OSError:
            return  # the files are checked every second instead, and each check tries this again
        self._loop.add(self._watch, self._reported)
        self._touched = True

    def _reported(self, _: int) -> None:
        assert self._watch is not None
        os.read(self._watch, 1 << 16)
        self._touched = True
