"""The files into which a worker writes its stacks."""

import fcntl
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from chargehand import clock
from chargehand.model.fleet import stacks
from chargehand.model.fleet.stacks import SignalState, StackCode
from chargehand.node.handle import Handle
from chargehand.node.stacks import Dump
from chargehand.processes import proc

CHILD = """
import os, sys
print(flush=True)
sys.stdin.readline()
os.dup2(1, int(sys.argv[1]))
print(flush=True)
sys.stdin.readline()
"""


class Child:
    """A process that keeps the signals that it is sent."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.signals: list[int] = []

    def signal(self, number: int) -> None:
        self.signals.append(number)


# spec: CL-6 SV-6
def test_a_worker_that_has_another_file_in_place_of_its_stacks_is_not_signalled() -> None:
    crash, asked = os.memfd_create("crash"), os.memfd_create("asked")
    command = [sys.executable, "-S", "-c", CHILD, str(asked)]
    pipe: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, pass_fds=[asked], **pipe) as process:
        child: Any = Child(process.pid)
        handle = Handle("worker:do:0", "do", child, crash, asked, None, None)  # pyright: ignore[reportArgumentType]
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        handle.signal_stacks()
        assert child.signals.pop() == signal.SIGUSR1
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        handle.dump_last_stacks()
        assert not child.signals, "its code has another file under that number now"
        process.stdin.close()
    for descriptor in (crash, asked):
        os.close(descriptor)


# spec: CL-6 SV-6
def test_a_request_does_not_repeat_the_last_dump_of_a_worker() -> None:
    crash, asked = os.memfd_create("crash"), os.memfd_create("asked")
    fcntl.fcntl(asked, fcntl.F_SETFL, os.O_APPEND)
    child: Any = Child(os.getpid())
    handle = Handle("worker:do:0", "do", child, crash, asked, None, None)  # pyright: ignore[reportArgumentType]
    os.write(asked, b"requested")
    assert handle.stacks() == "", "a requested dump is no part of a crash"
    os.write(crash, b"Fatal")
    handle.dump_last_stacks()
    os.write(asked, b"last")
    handle.signal_stacks()  # for a request that has waited since before
    assert child.signals == [signal.SIGUSR1]
    assert handle.stacks().startswith("Fatal\n\nlast\n\nThreads, from /proc:\n")
    for descriptor in (crash, asked):
        os.close(descriptor)


# spec: CL-6
def test_a_dump_that_ends_while_the_node_looks_is_returned_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    crash, asked = os.memfd_create("crash"), os.memfd_create("asked")
    fcntl.fcntl(asked, fcntl.F_SETFL, os.O_APPEND)
    child: Any = Child(os.getpid())
    handle = Handle("worker:do:0", "do", child, crash, asked, None, None)  # pyright: ignore[reportArgumentType]
    rest: list[bytes] = []

    def signal_state(pid: int, number: int) -> SignalState:
        """The handler of the signal writes the rest of the dump and returns after the node has read the file."""
        while rest:
            os.write(asked, rest.pop())
        return SignalState(state="R", caught=True, pending=False)

    monkeypatch.setattr(proc, "signal_state", signal_state)
    now = clock.monotonic()
    dump = Dump(handle, None, now)
    later = now + stacks.PATIENCE
    assert dump.look(later) is None
    assert child.signals == [signal.SIGUSR1]
    os.write(asked, b"pulse thread\n")
    rest.append(b"main thread\n")
    answer = dump.look(later)
    assert answer is not None
    assert (answer.code, answer.stacks) == (StackCode.DUMPED, "pulse thread\nmain thread")
    for descriptor in (crash, asked):
        os.close(descriptor)
