"""The faults that need more than a few lines: C code, locks, memory, processes. Loaded when one is requested."""

import ctypes
import hashlib
import mmap
import os
import resource
import subprocess
import threading
from collections import deque
from itertools import takewhile
from pathlib import Path

from chargehand import clock
from chargehand.errors import GiveUp

PIECE = 4 << 20
SAMPLE = 50_000
"""Rounds of hashing that show how fast this machine is."""

_kept: list[object] = []


def segfault() -> None:
    """Reads address 0: the kernel ends the process with SIGSEGV."""
    ctypes.string_at(0)


def sleep_in_c(seconds: float) -> None:
    """Waits in C, holding the GIL, for a mutex that this thread already holds: no CPU, not interrupted by signals."""
    library = ctypes.PyDLL(None)
    mutex = (ctypes.c_long * 8)()  # zeros are an unlocked mutex; no platform's is larger
    until = clock.now_ms() + int(seconds * 1000)
    when = (ctypes.c_long * 2)(until // 1000, until % 1000 * 1_000_000)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_timedlock(mutex, when)


def burn_in_c(seconds: float) -> None:
    """Uses CPU in one call of C code that holds the GIL for `seconds`.

    Every part of the expression is implemented in C, so the interpreter cannot switch threads before its end.
    """
    until = clock.monotonic() + seconds
    deque(takewhile(until.__gt__, iter(clock.monotonic, None)), maxlen=0)


def wait_for_native_thread(seconds: float) -> None:
    """Sleeps in C for `seconds`, holding the GIL, while another thread uses CPU in C without the GIL."""
    began = resource.getrusage(resource.RUSAGE_THREAD).ru_utime
    _hash(SAMPLE)
    rounds = int(1.5 * seconds * SAMPLE / (resource.getrusage(resource.RUSAGE_THREAD).ru_utime - began))
    thread = threading.Thread(target=_hash, args=(rounds,), name="native")
    thread.start()
    clock.sleep(0.05)  # until it has released the GIL
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    thread.join()


def _hash(rounds: int) -> None:
    hashlib.pbkdf2_hmac("sha256", b"", b"", rounds)  # releases the GIL


def deadlock() -> None:
    """Makes two threads wait for each other's lock: this one and a new one."""
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
    """Waits for the lock; its name is easy to find in a stack trace."""
    lock.acquire()


def exhaust_memory(size: int) -> None:
    """Limits the address space to `size` bytes more than used, allocates until MemoryError, and removes the limit."""
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


def exhaust_descriptors() -> None:
    """Limits the process to 256 open files, and opens files until that fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened: list[object] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
    while True:
        opened.append(open(os.devnull))  # noqa: SIM115


def hog_memory(size: int, seconds: float) -> None:
    """Uses `size` bytes of memory for `seconds`."""
    with _memory_in_use(size):
        clock.sleep(seconds)


def leak_memory(size: int) -> None:
    """Uses `size` bytes of memory and never releases them."""
    _kept.append(_memory_in_use(size))


def _memory_in_use(size: int) -> mmap.mmap:
    """Maps `size` bytes directly: the allocator might keep memory that is freed."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(0, size, mmap.PAGESIZE):
        memory[page] = 1  # pages are allocated when they are first written
    return memory


def start_child(kind: str, lifetime: int) -> int:
    """Starts a process that runs for `lifetime` seconds, and returns its pid."""
    if kind == "daemon":  # in a new session, and orphaned at once
        text = f"sleep {lifetime} >/dev/null 2>&1 & echo $!"
        return int(subprocess.check_output(["sh", "-c", text], start_new_session=True))
    if kind not in ("plain", "session"):
        raise GiveUp(f"kind is {kind!r}; must be one of: plain, session, daemon")
    child = subprocess.Popen(["sleep", str(lifetime)], start_new_session=kind == "session")
    _kept.append(child)
    return child.pid
