"""Open stores of this process, one for each thread that uses one at the same time."""

from collections.abc import Generator
from contextlib import contextmanager

from chargehand import clock
from chargehand.host import nodelock
from chargehand.store import Store
from chargehand.stores import open_store
from chargehand.stores.location import Location
from chargehand.stores.refusal import refusals
from chargehand.system import forks

KEPT = 60.0
"""Seconds after which a store that is not used is closed, when another one is returned; servers have few sessions."""


class StorePool:
    """Opens stores on demand and keeps them for the next use. A forked process opens its own."""

    def __init__(self, location: Location, synchronous: str) -> None:
        self._location, self._synchronous = location, synchronous
        self.may_create = True
        """Whether a store that does not exist is created; False for commands that are given only its address."""
        self._idle: list[tuple[Store, float]] = []
        """Each with the time since which it is not used. The last one is used first, so the first one is the oldest."""
        forks.in_child(self._after_fork)

    @contextmanager
    def use(self, *, create: bool = True) -> Generator[Store]:
        """Lends a store to the block. With `create=False` a store that does not exist is an error."""
        idle = self._idle  # in a process forked inside the block, the store does not come back to `self._idle`
        try:
            store, _ = idle.pop()
        except IndexError:
            with refusals(self._location.node):
                nodelock.check_namespace(self._location)
            store = open_store(self._location, create=create and self.may_create, synchronous=self._synchronous)
        try:
            yield store
        finally:
            now = clock.monotonic()
            idle.append((store, now))
            if idle is self._idle and len(idle) > 1:  # a forked process must not close what its parent uses
                _close_oldest(idle, now)

    def close(self) -> None:
        """Closes the stores that are not in use."""
        while self._idle:
            self._idle.pop()[0].close()

    def _after_fork(self) -> None:
        self._idle = []


def _close_oldest(idle: list[tuple[Store, float]], now: float) -> None:
    """Closes the store that was not used for the longest time, if that is long."""
    try:
        store, since = idle.pop(0)  # taken away first: other threads use the list
    except IndexError:
        return
    if now - since < KEPT:
        idle.insert(0, (store, since))
    else:
        store.close()
