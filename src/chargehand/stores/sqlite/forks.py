"""Keeps SQLite usable in forked processes.

SQLite has a table of the locks of its process. A fork copies the table but not the locks, so a connection that the
child opens relies on locks that it does not hold, or waits forever for a lock that nobody holds. The child therefore
closes the inherited connections, which empties the table. That is safe only if no thread was using one of them: a fork
waits for the threads that do. If one still does, the child never opens the file.
"""

import os
import threading
import weakref
from pathlib import Path
from typing import Any, Protocol

from chargehand.errors import StoreError
from chargehand.system.forks import around

LONGEST_DELAY = 5.0
"""Seconds for which a fork waits until no other thread uses a store; meanwhile no thread begins to.

A commit on a busy disk takes more than a second now and then, and the child could then not use the store.
"""


class Inheritable(Protocol):
    """A store that a forked process inherits."""

    path: Path
    use: "Use"

    def forked(self, usable: bool) -> None: ...


class Use:
    """The use of one store: a context in which a fork would copy SQLite in an undefined state. Reentrant."""

    def __init__(self) -> None:
        self.depth, self.thread = 0, 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        with _changed:
            while _forking and not any(store.use.depth and store.use.thread == me for store in _stores):
                _changed.wait()
            self.depth, self.thread = self.depth + 1, me

    def __exit__(self, *_: object) -> None:
        with _changed:
            self.depth -= 1
            if _forking:
                _changed.notify_all()


_changed = threading.Condition()
_forking = 0
_stores: weakref.WeakSet[Inheritable] = weakref.WeakSet()
_inherited: set[Path] = set()
_unusable: dict[Path, int] = {}
"""The files that this process must not open, with the process that was using each at the fork."""


def watch(store: Inheritable) -> None:
    """Registers a store, before it opens its connection."""
    with _changed:
        _stores.add(store)


def unwatch(store: Inheritable) -> None:
    """Forgets a store that has closed its connection."""
    with _changed:
        _stores.discard(store)


def is_inherited(path: Path) -> bool:
    """Returns whether an ancestor of this process had the file open when it forked."""
    return path in _inherited


def check(path: Path) -> None:
    """Raises StoreError if this process must not open the file."""
    if path in _unusable:
        raise StoreError(
            f"{path} cannot be used in this process: it was forked while process {_unusable[path]} was in a "
            "transaction on it. A running node is still reached for up to 32 jobs at once. Fork outside "
            "hand.transaction() and away from long transactions, or start the process with the method 'spawn' or "
            "'forkserver'"
        )


def _before() -> None:
    global _forking
    me = threading.get_ident()
    with _changed:
        _forking += 1
        _changed.wait_for(lambda: not any(s.use.depth and s.use.thread != me for s in _stores), LONGEST_DELAY)


def _in_parent() -> None:
    global _forking
    with _changed:
        _forking -= 1
        _changed.notify_all()


def _in_child() -> None:
    global _changed, _forking
    _changed, _forking = threading.Condition(), 0
    stores = list(_stores)
    in_use = {store.path for store in stores if store.use.depth}
    _stores.clear()
    _inherited.update(store.path for store in stores)
    _unusable.update(dict.fromkeys(in_use, os.getppid()))
    for store in stores:
        store.forked(usable=store.path not in _unusable)


class Inherited:
    """Stands for a connection in a process that must not use it."""

    in_transaction = False

    def __init__(self, path: Path, parent: int) -> None:
        self._path, self._parent = path, parent

    def __getattr__(self, name: str) -> Any:
        raise StoreError(
            f"this transaction or store on {self._path} belongs to process {self._parent}, from which this process "
            "was forked: nothing was written here"
        )

    def close(self) -> None:
        """Does nothing: the connection is closed already, or must not be."""


def leak(connection: Any) -> None:
    """Keeps the connection from being closed, even at the exit of the process: that would roll back for the parent."""
    import ctypes  # only here: costs time at every start otherwise

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


around(_before, _in_parent, _in_child)
