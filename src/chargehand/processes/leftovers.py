"""Kills the processes that dead nodes have left behind, as they were recorded and as they are found."""

import os
import signal
from collections.abc import Mapping, Sequence

import msgspec

from chargehand import clock
from chargehand.processes.child import signal_process
from chargehand.processes.proc import Stat, boot_id, mark_of, owner_of, pids, stat


class Life(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process that was started, as recorded for a process that did not start it."""

    boot: str
    pid: int
    start: int
    component: str
    over: bool = False
    """Whether the process and all its descendants have ended."""


def kill_leftovers(lives: Sequence[Life], mark_prefix: str, limit: float, of_user: int | None = None) -> list[Life]:
    """Kills the processes that earlier nodes left, and their descendants. Returns those that cannot be killed.

    Processes are found by boot, pid and start time, by session, and by the mark that descendants inherit. With
    `of_user`, `lives` can name only processes of that user.
    """
    boot = boot_id()
    ours = {life.pid: life for life in lives if life.boot == boot}
    until = clock.monotonic() + limit
    pause = 0.001
    while True:
        left: list[Life] = []
        for pid in pids():
            seen = stat(pid)
            if seen is None or seen.dead or pid == os.getpid():
                continue
            theirs = of_user is not None and owner_of(pid) != of_user
            component = _whose(pid, seen, {} if theirs else ours, mark_prefix)
            if component is not None:
                signal_process(pid, signal.SIGKILL)
                left.append(Life(boot=boot, pid=pid, start=seen.start, component=component))
        if not left or clock.monotonic() >= until:
            return left
        clock.sleep(pause)
        pause = min(pause * 2, 0.1)


def _whose(pid: int, seen: Stat, ours: Mapping[int, Life], mark_prefix: str) -> str | None:
    """Returns the worker that this process is or descends from; None if it is unrelated."""
    life = ours.get(pid)
    if life is not None and life.start == seen.start:
        return life.component
    leader = ours.get(seen.session)
    if leader is not None and seen.start >= leader.start and seen.session != os.getsid(0):
        now = stat(leader.pid)
        if now is None or now.start == leader.start:  # otherwise the pid has been reused
            return leader.component
    mark = mark_of(pid)
    if mark is None or not mark.startswith(mark_prefix):
        return None
    return [*mark.split("/"), "?", "?"][2]
