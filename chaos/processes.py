"""Finds the processes of a run by a marker that all of them inherit. No other process is ever signalled."""

import os
import signal
from contextlib import suppress

from chaos.app import RUN
from chargehand import clock
from chargehand.processes import proc


def environment_of(pid: int) -> list[bytes]:
    """Returns the environment of a process; empty if it has exited or belongs to another user."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def command_of(pid: int) -> str:
    """Returns the command line of a process."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return " ".join(file.read().decode(errors="replace").split("\0"))[:200]
    except OSError:
        return "exited in the meantime"


def ours(pid: int, run: str) -> bool:
    """Returns whether this live process belongs to the run."""
    seen = proc.stat(pid)
    return seen is not None and not seen.dead and f"{RUN}={run}".encode() in environment_of(pid)


def all_of(run: str) -> list[int]:
    """Returns every live process of the run except this one."""
    return [pid for pid in proc.pids() if pid != os.getpid() and ours(pid, run)]


def grab(pid: int, run: str) -> int | None:
    """Returns a pidfd of a process of the run, or None if it has exited."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if ours(pid, run):
        return descriptor
    os.close(descriptor)
    return None


def send(pid: int, number: int, run: str) -> bool:
    """Sends a signal to a process of the run; returns whether it was running."""
    descriptor = grab(pid, run)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def end_all(run: str, children: list[tuple[int, int]], limit: float = 10.0) -> list[int]:
    """Kills the remaining processes of the run and returns those that did not exit; children are found by pid and
    start.
    """
    until = clock.monotonic() + limit
    while True:
        left = sorted({*all_of(run), *(pid for pid, start in children if proc.alive(pid, start))})
        if not left or clock.monotonic() >= until:
            return left
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        clock.sleep(0.02)
