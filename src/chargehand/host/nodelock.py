"""The node lock, one for each store: a host takes it and passes it to its node; the kernel releases it."""

import fcntl
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chargehand.errors import StoreError
from chargehand.processes import proc
from chargehand.stores.beside import Beside
from chargehand.system import forks, private

if TYPE_CHECKING:
    from chargehand.stores.location import Location

_taken: set[int] = set()
pid_namespace = proc.pid_namespace


def take(store: Beside) -> int | None:
    """Takes the lock and returns the descriptor that holds it while it or a copy is open; None if a node holds it.

    The lock file is empty until `sign`: its content was about an earlier holder.
    """
    store.check()
    descriptor = private.open_file(store.node, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        check_namespace(store)
        return None
    _taken.add(descriptor)
    os.ftruncate(descriptor, 0)
    return descriptor


def release(descriptor: int) -> None:
    """Closes this process's copy of the descriptor; a node that has a copy keeps the lock. May be called twice."""
    if descriptor in _taken:
        _taken.discard(descriptor)
        os.close(descriptor)


def _release_in_child() -> None:
    """Closes the descriptors in a forked process, which must not keep the lock of a node."""
    for descriptor in list(_taken):
        release(descriptor)


forks.in_child(_release_in_child)


def sign(descriptor: int, pid: int, node: str, crews: Sequence[str], store: str) -> None:
    """Writes the holder, its crews and the address of its store into the lock file, for others that find it taken."""
    found = {"pid": pid, "node": node, "pid_namespace": pid_namespace(), "crews": crews, "store": store}
    text = json.dumps(found).encode()
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text, 0)


def announce(store: Beside, plan: bytes) -> None:
    """Writes into the free lock file that a host will start a node, as `restart_plan` has it, or that it no longer
    will."""
    lock = take(store)
    if lock is None:
        return  # another host was faster
    try:
        os.pwrite(lock, plan, 0)
    finally:
        release(lock)


def holder(store: Beside) -> dict[str, Any] | None:
    """Returns the content of the lock file if the lock is held; None if it is free."""
    try:
        descriptor = private.open_file(store.node, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
    finally:
        os.close(descriptor)
    return None


def nearest(store: "Location") -> "Location":
    """Returns the location of the node of this machine that a process uses: that of its own name, if it runs, otherwise
    another one of the store that does, and its own location if there is none."""
    others = store.of_other_nodes
    return store if not others or _is_held(store) else next(filter(_is_held, others), store)


def _is_held(store: "Location") -> bool:
    """Returns whether the lock is held; False if it cannot be read."""
    try:
        return holder(store) is not None
    except (OSError, StoreError):
        return False


def _read(text: bytes) -> dict[str, Any]:
    """Returns the decoded content of the lock file; an empty dict if it is incomplete."""
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        return {}


def check_namespace(store: Beside) -> None:
    """Raises StoreError if the node is in another pid namespace: neither side could see the other's processes."""
    try:
        text, _ = private.read_file(store.node)
    except FileNotFoundError:
        return
    found = _read(text)
    elsewhere = found.get("pid_namespace", pid_namespace()) != pid_namespace()
    if elsewhere and holder(store) is not None:
        raise StoreError(
            f"{store} is in use by a node in another pid namespace (another container?): one file serves one machine; "
            "run both in the same container, or use a store for many nodes"
        )
