"""Open stores of this process, one for each thread that uses one at the same time."""

import os
from collections.abc import Generator
from contextlib import contextmanager

from chargehand.host import nodelock
from chargehand.store import Store
from chargehand.stores import open_store
from chargehand.stores.location import Location


class StorePool:
    """Opens stores on demand and keeps them for the next use. A forked process opens its own."""

    def __init__(self, location: Location, synchronous: str) -> None:
        self._location, self._synchronous = location, synchronous
        self._idle: list[Store] = []
        self._inherited: list[Store] = []
        self._pid = os.getpid()

    @contextmanager
    def use(self, *, create: bool = True) -> Generator[Store]:
        """Lends a store to the block. With `create=False` a store that does not exist is an error."""
        self._check_fork()
        try:
            store = self._idle.pop()
        except IndexError:
            nodelock.check_namespace(self._location)
            store = open_store(self._location, create=create, synchronous=self._synchronous)
        try:
            yield store
        finally:
            self._idle.append(store)

    def close(self) -> None:
        """Closes the stores that are not in use."""
        self._check_fork()
        while self._idle:
            self._idle.pop().close()

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            self._inherited = self._idle  # never closed here: that would release the locks of the parent
            self._idle, self._pid = [], os.getpid()
