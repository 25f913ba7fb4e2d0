"""Reads CPU time (in nanoseconds) and proportional memory of processes from /proc."""

import socket
import time
from collections.abc import Iterable
from pathlib import Path


def cpu(pid: int) -> tuple[float, float]:
    """Returns the CPU seconds of a process's main thread, and of all its other threads together, ended ones included.

    The ticks in /proc/<pid>/stat are sampled and miss threads that run only briefly.
    """
    main = int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9
    return main, time.clock_gettime(~pid << 3 | 2) - main  # the CPU clock of another process, as clock_getcpuclockid


def pss(pids: Iterable[int]) -> float:
    """Returns the MiB (PSS) of these processes; shared pages are divided among them."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def free_port() -> int:
    """Returns a TCP port that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def peak(pid: int) -> float:
    """Returns the MiB of memory that a process has had at most (VmHWM)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
