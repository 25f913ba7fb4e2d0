"""The worker's connections to the node: the work socket's frames, the pulse thread with its heartbeat, and signals.

Every worker loads this module: it imports nothing heavy and does not know handlers.
"""

import faulthandler
import os
import select
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn, Protocol

from chargehand import clock, errors
from chargehand.protocol.frame import STACKS_MARK, WORK_FRAME_LIMIT, BadFrame, Decoder, Frame
from chargehand.worker.forked import ForkLink, identity

PAGE = os.sysconf("SC_PAGE_SIZE")
PULSE_FRAME_LIMIT = 4096
REPORT_INTERVAL = 0.02
"""The minimum number of seconds between two health reports: only the latest state matters."""


class Reporter(Protocol):
    """An object whose state the pulse thread reports: the worker."""

    status: str
    paused: bool
    memory: int
    pulse: int
    unreported: bool
    reported_at: float

    def report(self) -> None: ...
    def cancel(self, job_id: str, claim: int) -> None: ...
    def expire(self, job_id: str, claim: int) -> None: ...
    def relay(self, job_id: str, claim: int, how_far: dict[str, Any]) -> None: ...


class FrameWriter:
    """The sending side of the pulse socket, shared by both threads: sends a frame whole or not, and never blocks."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)
        self._rest = b""
        self._lock = threading.Lock()

    def send(self, frame: bytes) -> bool:
        """Sends a frame, or drops it if the node is not reading. Completes a partially sent frame first. Returns
        whether the frame was sent."""
        with self._lock:
            self._rest = self._push(self._rest)
            if self._rest:
                return False
            rest = self._push(frame)
            self._rest = rest if len(rest) < len(frame) else b""
            return len(rest) < len(frame)

    def _push(self, data: bytes) -> bytes:
        """Sends what the socket accepts, and returns the rest."""
        try:
            return data[os.write(self._descriptor, data) :] if data else b""
        except BlockingIOError:
            return data
        except (BrokenPipeError, ConnectionResetError):
            return kill_own_session()  # the node has exited


class Inbox:
    """Iterates over the frames on the work socket; its counter shows that an idle main thread is not stuck."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poller = select.poll()
        self._poller.register(descriptor, select.POLLIN)
        self._turn: float | None = None
        self._decoder = Decoder(WORK_FRAME_LIMIT)
        self._received: deque[Frame] = deque()
        self.reading = threading.Lock()
        """Held while the socket is read: a job that asks the node reads it, from any of its threads."""
        self.expected: set[int] = set()
        """The numbers of questions whose answers are awaited."""
        self.answers: dict[int, Any] = {}
        """The answers that have arrived and were not taken."""
        self.turns = 0

    def turn_every(self, seconds: float) -> None:
        """Sets how often an idle main thread increments `turns`."""
        self._turn = seconds * 1000

    def __iter__(self) -> Iterator[Frame]:
        while True:
            self.turns += 1
            with self.reading:
                # Not a blocking recv: the kernel would wake it whenever the node has read what this process sent.
                if not self._received and self._poller.poll(self._turn):
                    self.receive()
            yield from self.received()

    def receive(self) -> None:
        """Reads what the node has sent; waits if there is nothing."""
        for frame in self._decoder.feed(receive(self._descriptor)):
            if isinstance(frame, BadFrame):
                raise RuntimeError(f"the node sent a bad frame: {frame.why}")
            if frame.kind == "PAGE":
                body = frame.read_restored()
                if body["number"] in self.expected:
                    self.answers[body["number"]] = body
            else:
                self._received.append(frame)

    def look(self, seconds: float) -> None:
        """Reads what the node has sent; waits for so long if there is nothing."""
        if self._poller.poll(seconds * 1000):
            self.receive()

    def can_send(self) -> bool:
        """Returns whether the socket accepts a frame of moderate size at once."""
        poller = select.poll()
        poller.register(self._descriptor, select.POLLOUT)
        return bool(poller.poll(0))

    def received(self) -> Iterator[Frame]:
        """Iterates over the frames that were read; those that the caller leaves come first next time."""
        while self._received:
            yield self._received.popleft()


class StackFile:
    """The file into which the stacks of all threads are written when the node asks for them."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self._identity = descriptor, identity(descriptor)

    def write(self) -> None:
        """Writes the stacks; does nothing if a handler has closed the file. No other thread changes its stack."""
        with suppress(OSError):
            if identity(self.descriptor) == self._identity:  # otherwise the number is another file by now
                os.write(self.descriptor, STACKS_MARK)
                faulthandler.dump_traceback(self.descriptor, all_threads=True)
                os.write(self.descriptor, STACKS_MARK)


class Pulse(threading.Thread):
    """The thread that sends heartbeats and handles what cannot wait for the main thread: requests and SIGTERM."""

    def __init__(
        self,
        worker: Reporter,
        descriptor: int,
        wakeup: int,
        link: ForkLink,
        stacks: StackFile,
        beat: float,
        grace: float,
    ) -> None:
        super().__init__(name="pulse", daemon=True)
        self._worker, self._descriptor, self._wakeup, self._link = worker, descriptor, wakeup, link
        self._stacks, self._beat, self._grace = stacks, beat, grace
        self._next_beat = clock.monotonic()
        self._kill_at: float | None = None
        self._decoder = Decoder(PULSE_FRAME_LIMIT)

    def run(self) -> None:
        self._worker.pulse = threading.get_native_id()
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        poller.register(self._wakeup, select.POLLIN)
        while True:
            try:
                self._turn(poller)
            except MemoryError:
                continue  # the handler has used up the memory; without this thread the worker would seem to hang

    def _turn(self, poller: select.poll) -> None:
        """Sends a heartbeat if it is due, and waits for the next one or for a request."""
        now = clock.monotonic()
        report_due = self._worker.unreported and now >= self._worker.reported_at + REPORT_INTERVAL
        if now >= self._next_beat or report_due:
            self._next_beat = now + self._beat
            self._worker.memory = resident()
            self._worker.report()
        if self._kill_at is not None and now >= self._kill_at:
            kill_own_session()
        due = self._next_beat if self._kill_at is None else min(self._next_beat, self._kill_at)
        if self._worker.unreported:
            due = min(due, self._worker.reported_at + REPORT_INTERVAL)
        for descriptor, _ in poller.poll(max(0.0, due - now) * 1000 + 1):
            if descriptor == self._wakeup:
                self._signalled(os.read(self._wakeup, 64))
                if self._link.fileno() >= 0:  # the first fork has opened the link
                    poller.register(self._link, select.POLLIN)
            elif descriptor == self._link.fileno():
                for report in self._link.receive():
                    self._worker.relay(report["id"], report["claim"], report["progress"])
            else:
                self._requested(receive(self._descriptor))

    def _requested(self, data: bytes) -> None:
        """Handles pause, resume, cancel and stack requests. STOP is sent on the work socket, too, and handled there."""
        stacks = False
        for frame in self._decoder.feed(data):
            if isinstance(frame, Frame) and frame.kind in ("PAUSE", "RESUME"):
                self._worker.paused = frame.kind == "PAUSE"
                self._worker.report()
            elif isinstance(frame, Frame) and frame.kind == "CANCEL":
                body = frame.read()
                end = self._worker.expire if body.get("late") else self._worker.cancel
                end(body["id"], body["fence"])
            elif isinstance(frame, Frame) and frame.kind == "STACKS":
                stacks = True  # one dump answers every request that waited while C code held the interpreter
        if stacks:
            self._stacks.write()

    def _signalled(self, numbers: bytes) -> None:
        """Handles SIGTERM: starts the grace period; a second SIGTERM kills the worker."""
        for number in numbers:
            if number != signal.SIGTERM:
                continue
            if self._kill_at is not None:
                kill_own_session()
            # The node answers the report with STOP, after the jobs it has already sent; the main thread then stops.
            self._kill_at = clock.monotonic() + self._grace
            self._worker.status = "stopping"
            self._worker.report()


def receive(descriptor: int) -> bytes:
    """Receives data from the node. If the node has exited or closed the connection, this process ends here."""
    try:
        return os.read(descriptor, 1 << 16) or kill_own_session()
    except ConnectionResetError:
        kill_own_session()


def resident() -> int:
    """Returns the resident memory of this process in bytes."""
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)  # a file object costs twice the CPU time
    except OSError:
        return 0  # the handler has used up all file descriptors; the heartbeat must go on
    try:
        return int(os.read(file, 256).split()[1]) * PAGE
    finally:
        os.close(file)


def kill_own_session() -> NoReturn:
    """Kills this worker and its process group at once."""
    os.killpg(0, signal.SIGKILL)
    raise SystemExit(errors.EXIT_ERROR)  # never reached: the signal is delivered before killpg returns


def catch_signals() -> tuple[int, int]:
    """Makes SIGTERM wake the pulse thread, even while C code holds the main thread; ignores SIGINT."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    ignore: Callable[[int, Any], None] = lambda number, frame: None  # noqa: E731 (not SIG_IGN: children inherit that)
    signal.signal(signal.SIGTERM, ignore)
    signal.signal(signal.SIGINT, ignore)
    return reading, writing
