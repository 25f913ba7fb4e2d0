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

from chargehand.processes.proc import MARK, mark_of, session_members, stat


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
                signal_process(pid, number)

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


def signal_process(pid: int, number: int) -> None:
    """Sends a signal to a process, if it exists and may be signalled."""
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
        signal_process(pid, signal.SIGKILL)
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


def spawn_error(error: OSError) -> str:
    """Describes why a process could not be started."""
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return f"the system cannot create another process ({error.strerror})"
    return f"{error.strerror or error}"
