"""The misdeeds that need more than a line or two: in C, with locks, memory, processes. Loaded when one is asked for."""

import ctypes
import mmap
import resource
import subprocess
import threading
from collections import deque
from itertools import takewhile
from pathlib import Path

from chargehand import clock
from chargehand.errors import GiveUp

PIECE = 4 << 20

_kept: list[object] = []


def segfault() -> None:
    """Read the memory at address 0: the kernel ends the process with SIGSEGV."""
    ctypes.string_at(0)


def sleep_in_c(seconds: float) -> None:
    """Wait in C, interpreter held, for a lock that this thread has already: no CPU, and no signal ends it early."""
    library = ctypes.PyDLL(None)
    mutex = (ctypes.c_long * 8)()  # all zeros is an unlocked one, and none is larger
    until = clock.now_ms() + int(seconds * 1000)
    when = (ctypes.c_long * 2)(until // 1000, until % 1000 * 1_000_000)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_timedlock(mutex, when)


def burn_in_c(seconds: float) -> None:
    """Use CPU in one call of C code that does not let go of the interpreter before so many seconds have passed.

    Every part of it is written in C, so the loop in which Python changes threads is not reached until its end.
    """
    until = clock.monotonic() + seconds
    deque(takewhile(until.__gt__, iter(clock.monotonic, None)), maxlen=0)


def deadlock() -> None:
    """Have two threads wait for each other's lock: this one, and one that is started for it."""
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def other() -> None:
        with second:
            both.wait()
            wait_for_a_lock_that_never_comes(first)

    threading.Thread(target=other, name="the other one", daemon=True).start()
    with first:
        both.wait()
        wait_for_a_lock_that_never_comes(second)


def wait_for_a_lock_that_never_comes(lock: threading.Lock) -> None:
    """A name that is easily found in a stack."""
    lock.acquire()


def exhaust_memory(size: int) -> None:
    """Allow so many bytes of address space more than there are, allocate until MemoryError, and lift the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE + size
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    taken: list[bytearray] = []
    try:
        while True:
            taken.append(bytearray(PIECE))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        taken.clear()


def hog_memory(size: int, seconds: float) -> None:
    """Use so many bytes for so long."""
    with _memory_in_use(size):
        clock.sleep(seconds)


def leak_memory(size: int) -> None:
    """Use so many bytes for ever."""
    _kept.append(_memory_in_use(size))


def _memory_in_use(size: int) -> mmap.mmap:
    """Not from the allocator, which may keep what it is given back."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(0, size, mmap.PAGESIZE):
        memory[page] = 1  # only what was written to is really there
    return memory


def start_child(kind: str, lifetime: int) -> int:
    """A process that lives on by itself for so many seconds; its pid."""
    if kind == "daemon":  # in a session of its own, and its parent is gone at once
        text = f"sleep {lifetime} >/dev/null 2>&1 & echo $!"
        return int(subprocess.check_output(["sh", "-c", text], start_new_session=True))
    if kind not in ("plain", "session"):
        raise GiveUp(f"there is no kind {kind!r} of children; there are: plain, session, daemon")
    child = subprocess.Popen(["sleep", str(lifetime)], start_new_session=kind == "session")
    _kept.append(child)
    return child.pid
