"""One worker process as the supervisor holds it: the process, its sockets, its output and its stack dump.

The module makes no decisions.
"""

import fcntl
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence

from chargehand.model.fleet.stacks import LONGEST, Written, written
from chargehand.node.loop import Channel, Loop, one_by_one
from chargehand.node.output import Output, OutputLine
from chargehand.node.strays import Strays
from chargehand.processes import proc
from chargehand.processes.child import Child, launch
from chargehand.processes.record import ProcessRecord
from chargehand.protocol.frame import PERMIT_BYTES, STACKS_MARK, WORK_FRAME_LIMIT, BadFrame, Frame, encode
from chargehand.protocol.worker import FatalFrame, HealthFrame

PULSE_FRAME_LIMIT = 64 << 10
FIRST_LOOK = 0.001
"""Seconds until the first check whether what a dead worker started is gone."""
KEPT_FRAMES = 5
MOST_PERMITS = 4096
"""More permits than a worker ever has, and less than a pipe holds."""


class Handle:
    """Holds the process and the descriptors of one worker; `close` releases them."""

    def __init__(
        self,
        component: str,
        crew: str,
        child: Child,
        crash_stacks: int,
        asked_stacks: int,
        strays: Strays,
        permits: "Permits",
    ) -> None:
        """Takes over the files into which the worker writes its stacks: on a crash, and when it is asked."""
        self.permits = permits
        self.component, self.crew, self.child, self.strays = component, crew, child, strays
        self._crash_stacks, self._asked_stacks = crash_stacks, asked_stacks
        self._last_stacks = False
        """Whether the stacks were requested because the worker will be killed."""
        self._kernel = ""
        self.work: Channel | None = None
        self.pulse: Channel | None = None
        self.output: Output | None = None
        self.log_secret = os.urandom(8).hex()
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
        on_work: Callable[["Handle", Sequence[Frame | BadFrame]], None],
        on_pulse: Callable[["Handle", Frame | BadFrame], None],
        on_line: Callable[["Handle", OutputLine], None],
        current_job: Callable[["Handle"], str | None],
        rest: Callable[[Callable[[], None]], None],
        on_read: Callable[["Handle"], None],
        on_print: Callable[["Handle"], None],
    ) -> None:
        """Read the worker's sockets and output from now on. `rest` calls what it is given after a short rest; `on_read`
        is called when the worker has read what the work socket could not take, `on_print` when it has printed text."""
        work, pulse, output = ends
        self.work = Channel(loop, work, WORK_FRAME_LIMIT, lambda _, frames: on_work(self, frames), _ignore_close)
        self.work.on_sent = lambda: on_read(self)
        self.pulse = Channel(
            loop, pulse, PULSE_FRAME_LIMIT, one_by_one(lambda _, frame: on_pulse(self, frame)), _ignore_close
        )
        self.output = Output(
            loop,
            output,
            self.log_secret,
            lambda line: on_line(self, line),
            lambda: current_job(self),
            rest,
            lambda: on_print(self),
        )

    def keep_bad_frame(self, frame: Frame | BadFrame, why: str) -> None:
        """Keep a line that is not a frame, cut, for the crash report."""
        self.bad_frames += 1
        line = frame.line if isinstance(frame, BadFrame) else f"{frame.kind}|".encode() + frame.body[:200]
        if len(self.bad) < KEPT_FRAMES:
            self.bad.append(f"{why}: {line[:200]!r}")

    def dump_last_stacks(self) -> None:
        """Make a worker that will be killed dump its stacks, and read what the kernel says of each thread."""
        os.ftruncate(self._asked_stacks, 0)
        self.signal_stacks()
        self._last_stacks = True
        self._kernel = proc.thread_states(self.child.pid)

    def ask_stacks(self) -> None:
        """Ask the worker's pulse thread for the stacks."""
        os.ftruncate(self._asked_stacks, 0)
        if self.pulse is not None:
            self.pulse.send(encode("STACKS", {}))

    def has_stack_file(self) -> bool:
        """Whether the worker still has the file for its stacks: code that closes all files may have opened another."""
        return proc.shares(self.child.pid, self._asked_stacks)

    def signal_stacks(self) -> None:
        """Make the worker dump its stacks without the interpreter. One that will be killed does it only once."""
        if not self._last_stacks and self.has_stack_file():
            self.child.signal(signal.SIGUSR1)

    def asked_stacks(self) -> Written:
        """Returns what the worker has written since it was asked."""
        size = os.fstat(self._asked_stacks).st_size
        return written(os.pread(self._asked_stacks, size, 0).split(STACKS_MARK))

    def stacks(self) -> str:
        """Returns the stacks of the worker's end, and the kernel's view of its threads."""
        crash = os.pread(self._crash_stacks, LONGEST, 0).decode(errors="replace").strip()
        asked = self.asked_stacks() if self._last_stacks else Written()
        kernel = f"Threads, from /proc:\n{self._kernel}" if self._kernel else ""
        return "\n\n".join(part for part in (crash, asked.on_signal or asked.on_request, kernel) if part)

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
        os.close(self._crash_stacks)
        os.close(self._asked_stacks)
        self.permits.close()
        self.child.close()


class Permits:
    """The pipe with the permits to begin the jobs that a worker was sent ahead; both sides can read it.

    A read takes whole permits, in order, and each is taken once.
    """

    def __init__(self) -> None:
        self.reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._next = 1

    def give(self, count: int) -> int:
        """Writes so many permits, and returns the number of the first. Call this before the jobs are sent."""
        first, self._next = self._next, self._next + count
        numbers = range(first, self._next)
        os.write(self._writing, b"".join(number.to_bytes(PERMIT_BYTES, "little") for number in numbers))
        return first

    def take_back(self) -> int:
        """Takes the permits that the worker has not taken, and returns their number: the last jobs that were sent."""
        try:
            return len(os.read(self.reading, MOST_PERMITS * PERMIT_BYTES)) // PERMIT_BYTES
        except BlockingIOError:
            return 0

    def close(self) -> None:
        os.close(self.reading)
        os.close(self._writing)


Ends = tuple[socket.socket, socket.socket, int]
"""The node's ends of a worker's work socket, health socket and output pipe."""


def start_worker(
    component: str, crew: str, mark: str, environment: Mapping[str, str], lives: ProcessRecord
) -> tuple[Handle, Ends]:
    """Start a worker process. Raises OSError if the system refuses."""
    pairs: list[tuple[socket.socket, socket.socket]] = []
    ours: list[int] = []
    theirs: list[int] = []
    permits: Permits | None = None
    try:
        pairs += [socket.socketpair(), socket.socketpair()]
        reading, writing = os.pipe2(os.O_CLOEXEC)
        ours.append(reading)
        theirs.append(writing)
        permits = Permits()
        crash, asked = (os.memfd_create(f"{kind} stacks of {component}") for kind in ("crash", "asked"))
        ours += [crash, asked]
        fcntl.fcntl(asked, fcntl.F_SETFL, os.O_APPEND)  # the worker writes at the end, also after the node empties it
        work, pulse = (pair[1].fileno() for pair in pairs)
        child = launch(
            "from chargehand.worker.main import main; "
            f"main({work}, {pulse}, {crash}, {os.getpid()}, {asked}, {permits.reading})",
            component,
            mark=mark,
            pass_fds=[work, pulse, crash, asked, permits.reading],
            env={**os.environ, **environment},
            name=component,
            output=writing,
        )
    except OSError:
        for descriptor in ours:
            os.close(descriptor)
        for pair in pairs:
            pair[0].close()
        if permits is not None:
            permits.close()
        raise
    finally:
        for descriptor in theirs:
            os.close(descriptor)
        for pair in pairs:
            pair[1].close()
    handle = Handle(component, crew, child, crash, asked, Strays(lives, child), permits)
    return handle, (pairs[0][0], pairs[1][0], reading)


def _ignore_close(channel: Channel) -> None:
    """Ignore a closed socket: a grandchild may hold it open, a handler may close it. Only the pidfd tells a death."""
