"""One worker process as the supervisor holds it: the process, its sockets, its output and its stack dump.

The module makes no decisions.
"""

import os
import secrets
import socket
from collections.abc import Callable, Mapping

from chargehand.node.loop import Channel, Loop
from chargehand.node.output import Output, OutputLine
from chargehand.node.strays import Strays
from chargehand.processes import proc
from chargehand.processes.child import Child, launch
from chargehand.processes.record import ProcessRecord
from chargehand.protocol.frame import WORK_FRAME_LIMIT, BadFrame, Frame
from chargehand.protocol.worker import FatalFrame, HealthFrame

PULSE_FRAME_LIMIT = 64 << 10
FIRST_LOOK = 0.001
"""Seconds until the first check whether what a dead worker started is gone."""
MOST_STACKS = 256 << 10
KEPT_FRAMES = 5


class Handle:
    """Holds the process and the descriptors of one worker; `close` releases them."""

    def __init__(self, component: str, crew: str, child: Child, stacks: int, strays: Strays) -> None:
        self.component, self.crew, self.child, self.strays = component, crew, child, strays
        self._stacks = stacks
        self._kernel = ""
        self.work: Channel | None = None
        self.pulse: Channel | None = None
        self.output: Output | None = None
        self.log_secret = secrets.token_hex(8)
        """Known to this worker alone: marks its log records among the lines that it prints."""
        self.said: FatalFrame | None = None
        self.broken: str | None = None
        """Why the worker reported its process as broken."""
        self.health: HealthFrame | None = None
        self.heard_at = 0.0
        self.bad_frames = 0
        self.bad: list[str] = []
        self.welcomed = False
        self.killed = False
        """Whether this node sent the SIGKILL."""
        self.exit: tuple[int | None, int | None] | None = None
        self.look_at, self.patience = 0.0, FIRST_LOOK

    @property
    def who(self) -> str:
        return f"{self.component} (pid {self.child.pid})"

    def listen(
        self,
        loop: Loop,
        ends: "Ends",
        on_work: Callable[["Handle", Frame | BadFrame], None],
        on_pulse: Callable[["Handle", Frame | BadFrame], None],
        on_line: Callable[["Handle", OutputLine], None],
        current_job: Callable[["Handle"], str | None],
        rest: Callable[[Callable[[], None]], None],
    ) -> None:
        """Read the worker's sockets and output from now on. `rest` calls what it is given after a short rest."""
        work, pulse, output = ends
        self.work = Channel(loop, work, WORK_FRAME_LIMIT, lambda _, frame: on_work(self, frame), _ignore_close)
        self.pulse = Channel(loop, pulse, PULSE_FRAME_LIMIT, lambda _, frame: on_pulse(self, frame), _ignore_close)
        self.output = Output(
            loop, output, self.log_secret, lambda line: on_line(self, line), lambda: current_job(self), rest
        )

    def keep_bad_frame(self, frame: Frame | BadFrame, why: str) -> None:
        """Keep a line that is not a frame, cut, for the crash report."""
        self.bad_frames += 1
        line = frame.line if isinstance(frame, BadFrame) else f"{frame.kind}|".encode() + frame.body[:200]
        if len(self.bad) < KEPT_FRAMES:
            self.bad.append(f"{why}: {line[:200]!r}")

    def dump_stacks(self, number: int) -> None:
        """Ask the worker to dump the stacks of its threads, and read what the kernel says of each thread."""
        self.child.signal(number)
        self._kernel = proc.thread_states(self.child.pid)

    def stacks(self) -> str:
        """Returns the stacks that the worker dumped, and the kernel's view of its threads."""
        told = os.pread(self._stacks, MOST_STACKS, 0).decode(errors="replace").strip()
        kernel = f"Threads, from /proc:\n{self._kernel}" if self._kernel else ""
        return "\n\n".join(part for part in (told, kernel) if part)

    def drain(self) -> None:
        """Read everything that the worker sent before it exited, and close its sockets."""
        for channel in (self.work, self.pulse):
            if channel is not None:
                channel.drain()
                self.bad += [f"{half.why}: {half.line!r}" for half in channel.rest]
                channel.close()

    def close(self) -> None:
        """Close everything."""
        if self.output is not None:
            self.output.close()
        os.close(self._stacks)
        self.child.close()


Ends = tuple[socket.socket, socket.socket, int]
"""The node's ends of a worker's work socket, health socket and output pipe."""


def start_worker(
    component: str, crew: str, mark: str, environment: Mapping[str, str], lives: ProcessRecord
) -> tuple[Handle, Ends]:
    """Start a worker process. Raises OSError if the system refuses."""
    pairs: list[tuple[socket.socket, socket.socket]] = []
    ours: list[int] = []
    theirs: list[int] = []
    try:
        pairs += [socket.socketpair(), socket.socketpair()]
        reading, writing = os.pipe2(os.O_CLOEXEC)
        ours.append(reading)
        theirs.append(writing)
        ours.append(os.memfd_create(f"stacks of {component}"))
        work, pulse = (pair[1].fileno() for pair in pairs)
        child = launch(
            f"from chargehand.worker.main import main; main({work}, {pulse}, {ours[1]}, {os.getpid()})",
            component,
            mark=mark,
            pass_fds=[work, pulse, ours[1]],
            env={**os.environ, **environment},
            name=component,
            output=writing,
        )
    except OSError:
        for descriptor in ours:
            os.close(descriptor)
        for pair in pairs:
            pair[0].close()
        raise
    finally:
        for descriptor in theirs:
            os.close(descriptor)
        for pair in pairs:
            pair[1].close()
    return Handle(component, crew, child, ours[1], Strays(lives, child)), (pairs[0][0], pairs[1][0], ours[0])


def _ignore_close(channel: Channel) -> None:
    """Ignore a closed socket: a grandchild may hold it open, a handler may close it. Only the pidfd tells a death."""
