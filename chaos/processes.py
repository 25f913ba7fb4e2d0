"""The processes of a run, found by the name that all of them inherit. Nobody else is ever signalled."""

import os
import signal
from contextlib import suppress

from chaos.app import RUN
from chargehand import clock
from chargehand.processes import proc


def environment_of(pid: int) -> list[bytes]:
    """What the process was started with; nothing if it is gone, or another user's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def command_of(pid: int) -> str:
    """What a process is, for people."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return " ".join(file.read().decode(errors="replace").split("\0"))[:200]
    except OSError:
        return "gone meanwhile"


def ours(pid: int, run: str) -> bool:
    """Whether this living process is one of the run."""
    seen = proc.stat(pid)
    return seen is not None and not seen.dead and f"{RUN}={run}".encode() in environment_of(pid)


def all_of(run: str) -> list[int]:
    """Every living process of the run, but not this one."""
    return [pid for pid in proc.pids() if pid != os.getpid() and ours(pid, run)]


def grab(pid: int, run: str) -> int | None:
    """A descriptor that means this very process of the run and never another; None if it is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if ours(pid, run):
        return descriptor
    os.close(descriptor)
    return None


def send(pid: int, number: int, run: str) -> bool:
    """Signal a process of the run; whether it was still there."""
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
    """Kill whatever is left of the run, and name what did not die. Children of jobs are known by pid and start."""
    until = clock.monotonic() + limit
    while True:
        left = sorted({*all_of(run), *(pid for pid, start in children if proc.alive(pid, start))})
        if not left or clock.monotonic() >= until:
            return left
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        clock.sleep(0.02)
