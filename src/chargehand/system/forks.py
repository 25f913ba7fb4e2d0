"""Makes what a process inherits by a fork safe to use: locks are made anew, and connections are not shared.

A fork copies locks in the state that another thread left them in, and both processes would read from the same sockets.
"""

import os
import socket
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import MethodType

LONGEST_IMPORT = 5.0
"""Seconds for which a fork waits for an import in another thread."""

_actions: set[Callable[[], Callable[[], None] | None]] = set()
_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
_around: list[tuple[Callable[[], None], Callable[[], None], Callable[[], None]]] = []
_importing = threading.RLock()
_fork = threading.local()


def in_child(action: Callable[[], None]) -> None:
    """Calls the action first in every process forked from this one; a method only while its object exists."""
    _actions.add(weakref.WeakMethod(action, _actions.discard) if isinstance(action, MethodType) else lambda: action)


def close_in_child(sock: socket.socket) -> None:
    """Closes the socket in every process forked from this one; the connection of this process stays open."""
    _sockets.add(sock)


@contextmanager
def importing() -> Generator[None]:
    """Delays forks during an import in the block: the child would wait forever for the lock of the module."""
    with _importing:
        yield


def around(before: Callable[[], None], in_parent: Callable[[], None], in_child: Callable[[], None]) -> None:
    """Calls the functions before each fork, after it in the parent, and in the child before all other actions."""
    _around.append((before, in_parent, in_child))


def _before() -> None:
    _fork.waited = _importing.acquire(timeout=LONGEST_IMPORT)
    _fork.around = list(_around)  # with those that the import has added
    for before, _, _ in _fork.around:
        before()


def _in_parent() -> None:
    for _, in_parent, _ in _fork.around:
        in_parent()
    if _fork.waited:
        _importing.release()


def _in_child() -> None:
    global _importing
    _importing = threading.RLock()
    for _, _, in_child in _around:
        in_child()
    for sock in list(_sockets):
        sock.close()
    for found in list(_actions):
        action = found()
        if action is not None:
            action()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
