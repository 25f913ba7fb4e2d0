"""Makes what a process inherits by a fork safe to use: locks are made anew, and connections are not shared.

A fork copies locks in the state that another thread left them in, and both processes would read from the same sockets.
"""

import os
import socket
import weakref
from collections.abc import Callable
from inspect import ismethod

_actions: set[Callable[[], Callable[[], None] | None]] = set()
_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def in_child(action: Callable[[], None]) -> None:
    """Calls the action first in every process forked from this one; a method only while its object exists."""
    _actions.add(weakref.WeakMethod(action, _actions.discard) if ismethod(action) else lambda: action)


def close_in_child(sock: socket.socket) -> None:
    """Closes the socket in every process forked from this one; the connection of this process stays open."""
    _sockets.add(sock)


def _after_fork() -> None:
    for sock in list(_sockets):
        sock.close()
    for found in list(_actions):
        action = found()
        if action is not None:
            action()


os.register_at_fork(after_in_child=_after_fork)
