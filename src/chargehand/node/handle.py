"""One life of a worker as the supervisor holds it: its process, its sockets, what it prints, and where it stood.

It carries things; what they mean is decided elsewhere.
"""

import os
import socket
from collections.abc import Callable, Mapping

from chargehand.node.loop import Channel, Loop
from chargehand.node.output import Output, OutputLine
from chargehand.processes import proc
from chargehand.processes.child import Child, launch
from chargehand.protocol.frame import WORK_FRAME_LIMIT, BadFrame, Frame
from chargehand.protocol.worker import FatalFrame, HealthFrame

PULSE_FRAME_LIMIT = 64 << 10
FIRST_LOOK = 0.001
"""Seconds until it is looked again whether what a dead worker left is gone."""
MOST_STACKS = 256 << 10
KEPT_FRAMES = 5


class Handle:
    """See the module."""

    def __init__(self, component: str, crew: str, child: Child, stacks: int) -> None:
        self.component, self.crew, self.child = component, crew, child
        self._stacks = stacks
        self._kernel = ""
        self.work: Channel | None = None
        self.pulse: Channel | None = None
        self.output: Output | None = None
        self.said: FatalFrame | None = None
        self.health: HealthFrame | None = None
        self.heard_at = 0.0
        self.bad_frames = 0
        self.bad: list[str] = []
        self.welcomed = False
        self.killed = False
        """We sent the SIGKILL."""
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
        rest: Callable[[Callable[[], None]], None],
    ) -> None:
        """Hear from now on what the worker says. `rest` calls what it is given in a moment."""
        work, pulse, output = ends
        self.work = Channel(loop, work, WORK_FRAME_LIMIT, lambda _, frame: on_work(self, frame), _unheeded)
        self.pulse = Channel(loop, pulse, PULSE_FRAME_LIMIT, lambda _, frame: on_pulse(self, frame), _unheeded)
        self.output = Output(loop, output, lambda line: on_line(self, line), rest)

    def keep_bad(self, frame: Frame | BadFrame, why: str) -> None:
        """Keep what was no frame, cut, for the report."""
        self.bad_frames += 1
        line = frame.line if isinstance(frame, BadFrame) else f"{frame.kind}|".encode() + frame.body[:200]
        if len(self.bad) < KEPT_FRAMES:
            self.bad.append(f"{why}: {line[:200]!r}")

    def ask_where_it_stands(self, number: int) -> None:
        """Have its threads' stacks written, and see what the kernel says of them."""
        self.child.signal(number)
        self._kernel = proc.thread_states(self.child.pid)

    def stacks(self) -> str:
        """What it wrote of its threads' stacks, of itself or because it was asked; and the kernel's view of them."""
        told = os.pread(self._stacks, MOST_STACKS, 0).decode(errors="replace").strip()
        kernel = f"As the kernel saw it:\n{self._kernel}" if self._kernel else ""
        return "\n\n".join(part for part in (told, kernel) if part)

    def hear_out(self) -> None:
        """Hear what it still said before it died, and let go of its sockets."""
        for channel in (self.work, self.pulse):
            if channel is not None:
                channel.drain()
                self.bad += [f"{half.why}: {half.line!r}" for half in channel.rest]
                channel.close()

    def close(self) -> None:
        """Let go of everything."""
        if self.output is not None:
            self.output.close()
        os.close(self._stacks)
        self.child.close()


Ends = tuple[socket.socket, socket.socket, int]
"""Our ends of a worker's work socket, of its pulse and of its output."""


def take_on(component: str, crew: str, mark: str, environment: Mapping[str, str]) -> tuple[Handle, Ends]:
    """Start a worker process. OSError if that cannot be."""
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
    return Handle(component, crew, child, ours[1]), (pairs[0][0], pairs[1][0], ours[0])


def _unheeded(channel: Channel) -> None:
    """A closed socket is no death: a grandchild may hold it open, or a handler close it. The pidfd tells."""
