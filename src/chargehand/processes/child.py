"""Starts, watches and signals processes. No other module does; this one takes no decisions about them.

A process is identified by its pid and its start time, so that a reused pid is never mistaken for it. Node and workers
are subreapers: a process that a worker started becomes the node's child when the worker dies, even if it has left the
worker's session. Processes left by the workers of a dead node are found by their session, and by a mark in their
environment.
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
from chargehand.processes.proc import MARK, Stat, boot_id, mark_of, owner_of, pids, session_members, stat


class Life(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process that was started, as recorded for a process that did not start it."""

    boot: str
    pid: int
    start: int
    component: str
    over: bool = False
    """Whether the process and all its descendants have ended."""


class Child:
    """A child process, with a file descriptor that becomes readable when it exits."""

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
        """Returns exit code and signal of a child that has exited (one of them is None); None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        return (None, -code) if code < 0 else (code, None)

    def wait(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds and returns whether the child has exited."""
        poller = select.poll()
        poller.register(self.pidfd, select.POLLIN)
        return bool(poller.poll(max(0, timeout * 1000)))

    def signal(self, number: int) -> None:
        """Sends a signal to the process alone."""
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except (ProcessLookupError, PermissionError):
            return  # it has exited, or has changed its user

    def signal_session(self, number: int) -> None:
        """Sends a signal to every process in its session."""
        self.signal(number)
        self.signal_descendants(number)

    def signal_descendants(self, number: int) -> None:
        """Sends a signal to every other process in its session."""
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
    """Starts an interpreter that runs `code` in a new session and inherits only the given file descriptors.

    `output` is a file descriptor for standard output and standard error.
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
        return  # it has exited; or it may not be signalled, and the caller sees that it still exists


def kill_orphans(known: Sequence[int], others: Sequence[Child]) -> list[int]:
    """Kills and reaps children that this process did not start, and returns the pids of those that have not ended yet.

    Such children were left by dead workers; a living worker adopts its own. Processes left by one of the `others` are
    killed but not returned. Cheap if there are none.
    """
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            children = [int(pid) for pid in file.read().split()]
        strangers = [pid for pid in children if pid not in known]
        reaped = [pid for pid in strangers if _reap(pid)]
        if not reaped:  # children of reaped processes become children of this process only now
            break
    for pid in strangers:
        _signal(pid, signal.SIGKILL)
    return [pid for pid in strangers if not any(_left_by(pid, other) for other in others)]


def _reap(pid: int) -> bool:
    """Reaps a child; returns whether it had ended."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False


def _left_by(pid: int, worker: Child) -> bool:
    """Whether the process descends from this worker."""
    seen = stat(pid)
    return seen is not None and (seen.session == worker.pid or mark_of(pid) == worker.mark)


def kill_group(child: Child) -> None:
    """Kills the worker's process group with one system call, which suffices in the usual case."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # the group is empty, or a member has changed its user; `kill_orphans` finds the rest


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
                _signal(pid, signal.SIGKILL)
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


def spawn_error(error: OSError) -> str:
    """Describes why a process could not be started."""
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return f"the system cannot create another process ({error.strerror})"
    return f"{error.strerror or error}"
