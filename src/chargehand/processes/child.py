"""Start, watch and signal processes: the only place that does. It decides nothing about them.

A process is named by its pid and its start time together, so that nobody is ever mistaken for one who had the same
pid before. What a worker started becomes the node's child when the worker dies, however far it has drifted (workers and
node are subreapers). What a dead node's workers started is found by its session, and by the mark in its environment.
"""

import errno
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

import msgspec

from chargehand import clock
from chargehand.processes.proc import MARK, Stat, boot_id, mark_of, pids, session_members, stat


class Life(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process that was started, as it can be found again by somebody who did not start it."""

    boot: str
    pid: int
    start: int
    component: str
    over: bool = False
    """Nothing is left of it."""


class Child:
    """A process that we started, with a descriptor that becomes readable when it dies."""

    def __init__(self, process: "subprocess.Popen[bytes]", component: str, mark: str) -> None:
        self._process = process
        self.pid = process.pid
        self.component, self.mark = component, mark
        self.pidfd = os.pidfd_open(process.pid)
        found = stat(process.pid)
        self.start = found.start if found else 0

    def fileno(self) -> int:
        return self.pidfd

    def exit(self) -> tuple[int | None, int | None] | None:
        """Exit code and signal of a dead child (one of them is None); None while it lives."""
        code = self._process.poll()
        if code is None:
            return None
        return (None, -code) if code < 0 else (code, None)

    def wait(self, timeout: float) -> bool:
        """Whether it is dead, within so many seconds."""
        poller = select.poll()
        poller.register(self.pidfd, select.POLLIN)
        return bool(poller.poll(max(0, timeout * 1000)))

    def signal(self, number: int) -> None:
        """Signal the process alone."""
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except (ProcessLookupError, PermissionError):
            return  # it was quicker, or has become somebody whom we may not signal

    def signal_session(self, number: int) -> None:
        """Signal everything in its session: its own group, and the groups that its children made."""
        self.signal(number)
        self.signal_descendants(number)

    def signal_descendants(self, number: int) -> None:
        """Signal everything in its session but itself."""
        for pid in session_members(self.pid):
            if pid != self.pid:
                _signal(pid, number)

    def close(self) -> None:
        os.close(self.pidfd)


def launch(
    code: str,
    component: str,
    *,
    mark: str,
    pass_fds: Sequence[int],
    env: Mapping[str, str],
    name: str,
    output: int | None = None,
) -> Child:
    """A fresh interpreter in a session of its own that runs `code`, inheriting nothing but the descriptors named.

    `output`: a descriptor for all that it prints.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", code, name],
        pass_fds=pass_fds,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env={**env, MARK: mark},
    )
    return Child(process, component, mark)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # gone meanwhile; or it may not be signalled, and then it is seen that it is still there


def end_strangers(known: Sequence[int], others: Sequence[Child]) -> list[int]:
    """Kill and reap those of our children that we did not start, and name those that are not gone yet.

    They are what dead workers left: a living one adopts its own orphans. What was certainly left by one of the `others`
    is killed, too, but not named. Cheap when there are none.
    """
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            children = [int(pid) for pid in file.read().split()]
        strangers = [pid for pid in children if pid not in known]
        reaped = [pid for pid in strangers if _reap(pid)]
        if not reaped:  # what was reaped may have had children, which are ours only now
            break
    for pid in strangers:
        _signal(pid, signal.SIGKILL)
    return [pid for pid in strangers if not any(_left_by(pid, other) for other in others)]


def _reap(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False


def _left_by(pid: int, worker: Child) -> bool:
    seen = stat(pid)
    return seen is not None and (seen.session == worker.pid or mark_of(pid) == worker.mark)


def kill_group(child: Child) -> None:
    """SIGKILL to the worker's process group: one call, for the ordinary case."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # nobody is left in it, or somebody who changed user; `end_strangers` finds whoever is ours


def end_earlier_lives(lives: Sequence[Life], mark_prefix: str, limit: float) -> list[Life]:
    """End whatever earlier nodes left, with all that descends from it. Returns those that cannot be killed.

    Found by boot, pid and start time, by session, and by the mark that descendants inherit.
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
            component = _whose(pid, seen, ours, mark_prefix)
            if component is not None:
                _signal(pid, signal.SIGKILL)
                left.append(Life(boot=boot, pid=pid, start=seen.start, component=component))
        if not left or clock.monotonic() >= until:
            return left
        clock.sleep(pause)
        pause = min(pause * 2, 0.1)


def _whose(pid: int, seen: Stat, ours: Mapping[int, Life], mark_prefix: str) -> str | None:
    """The worker that this process is, or descends from; None if it is nobody of ours."""
    life = ours.get(pid)
    if life is not None and life.start == seen.start:
        return life.component
    leader = ours.get(seen.session)
    if leader is not None and seen.start >= leader.start and seen.session != os.getsid(0):
        now = stat(leader.pid)
        if now is None or now.start == leader.start:  # otherwise somebody else has its number by now
            return leader.component
    mark = mark_of(pid)
    if mark is None or not mark.startswith(mark_prefix):
        return None
    return [*mark.split("/"), "?", "?"][2]


def spawn_error(error: OSError) -> str:
    """Why a process could not be made, in words."""
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return f"the system has no room for another process ({error.strerror})"
    return f"{error.strerror or error}"
