"""The lock that makes a node single: taken by a host, handed to the node that it starts, released by the kernel."""

import fcntl
import json
import os
from typing import Any

from chargehand.errors import StoreError
from chargehand.stores.location import Location

_taken: set[int] = set()


def pid_namespace() -> str:
    """The name of the world in which our pids mean something."""
    return os.readlink("/proc/self/ns/pid")


def take(store: Location) -> int | None:
    """A descriptor that holds the lock for as long as it, or a copy of it, is open; None if a node has it."""
    descriptor = os.open(store.node, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        check_namespace(store)
        return None
    _taken.add(descriptor)
    return descriptor


def release(descriptor: int) -> None:
    """Let go of our copy of the lock; the node that was given one keeps it. Once is enough, twice does no harm."""
    if descriptor in _taken:
        _taken.discard(descriptor)
        os.close(descriptor)


def _forget() -> None:
    """In a process that this one forked: it must not keep the lock of a node that it knows nothing of."""
    for descriptor in list(_taken):
        release(descriptor)


os.register_at_fork(after_in_child=_forget)


def sign(descriptor: int, pid: int, node: str) -> None:
    """Write down who has the lock, for those who find it taken."""
    text = json.dumps({"pid": pid, "node": node, "pid_namespace": pid_namespace()}).encode()
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text, 0)


def holder(store: Location) -> dict[str, Any] | None:
    """Who has the lock, as far as is written down; None if nobody has."""
    try:
        descriptor = os.open(store.node, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(os.pread(descriptor, 4096, 0))
    finally:
        os.close(descriptor)
    return None


def _read(text: bytes) -> dict[str, Any]:
    """What is written in the file; nothing, if that was torn."""
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        return {}


def check_namespace(store: Location) -> None:
    """Refuse a store whose node lives in another pid namespace: neither could see if the other's processes live."""
    try:
        text = store.node.read_bytes()
    except FileNotFoundError:
        return
    found = _read(text)
    elsewhere = found.get("pid_namespace", pid_namespace()) != pid_namespace()
    if elsewhere and holder(store) is not None:
        raise StoreError(
            f"{store} is in use by a node in another pid namespace (another container?): one file serves one machine; "
            "run both in the same container, or use a store for many nodes"
        )
