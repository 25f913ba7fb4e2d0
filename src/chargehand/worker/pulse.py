"""The worker's lines to its node: the work socket's frames, the pulse that beats beside the work, and its signals.

Loaded in every worker: it imports nothing heavy, and knows nothing of handlers.
"""

import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol

from chargehand import clock, errors
from chargehand.protocol.frame import WORK_FRAME_LIMIT, BadFrame, Decoder, Frame

PAGE = os.sysconf("SC_PAGE_SIZE")
PULSE_FRAME_LIMIT = 4096
REST = 0.02
"""Seconds between two reports of health, however often the state changes: of health only the newest matters."""


class Reporter(Protocol):
    """Whoever has a state to report: the worker."""

    status: str
    paused: bool
    memory: int
    unreported: bool
    reported_at: float

    def report(self) -> None: ...
    def cancel(self, job_id: str, fence: int) -> None: ...


class FrameWriter:
    """The pulse socket's sending side, shared by both threads: a frame goes whole or not at all, and never waits."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._rest = b""
        self._lock = threading.Lock()

    def send(self, frame: bytes) -> None:
        """Send, or drop if the node is not reading. What was begun is finished first, so that lines stay lines."""
        with self._lock:
            self._rest = self._push(self._rest)
            if not self._rest:
                rest = self._push(frame)
                self._rest = rest if len(rest) < len(frame) else b""

    def _push(self, data: bytes) -> bytes:
        """What of the data could not be sent."""
        try:
            return data[self._sock.send(data, socket.MSG_DONTWAIT) :] if data else b""
        except BlockingIOError:
            return data
        except (BrokenPipeError, ConnectionResetError):
            return kill_own_session()  # the node is gone: so are we


class Inbox:
    """The frames on the work socket, one at a time. Its turns show that the main thread is not stuck while idle."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._poller = select.poll()
        self._poller.register(sock, select.POLLIN)
        self._turn: float | None = None
        self.turns = 0

    def turn_every(self, seconds: float) -> None:
        """How often an idle main thread shows that it still turns."""
        self._turn = seconds * 1000

    def __iter__(self) -> Iterator[Frame]:
        decoder = Decoder(WORK_FRAME_LIMIT)
        while True:
            self.turns += 1
            # Not a recv that waits: the kernel wakes it up also when the node has read what we sent, for nothing.
            if not self._poller.poll(self._turn):
                continue
            for frame in decoder.feed(receive(self._sock)):
                if isinstance(frame, BadFrame):
                    raise RuntimeError(f"the node sent a bad frame: {frame.why}")
                yield frame


class Pulse(threading.Thread):
    """Beats, and listens for what cannot wait for the main thread: requests of the node, and SIGTERM."""

    def __init__(self, worker: Reporter, sock: socket.socket, wakeup: int, beat: float, grace: float) -> None:
        super().__init__(name="pulse", daemon=True)
        self._worker, self._sock, self._wakeup = worker, sock, wakeup
        self._beat, self._grace = beat, grace
        self._kill_at: float | None = None
        self._decoder = Decoder(PULSE_FRAME_LIMIT)

    def run(self) -> None:
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        poller.register(self._wakeup, select.POLLIN)
        next_beat = clock.monotonic()
        while True:
            now = clock.monotonic()
            moment_over = self._worker.unreported and now >= self._worker.reported_at + REST
            if now >= next_beat or moment_over:
                self._worker.memory = resident()
                self._worker.report()
                next_beat = now + self._beat
            if self._kill_at is not None and now >= self._kill_at:
                kill_own_session()
            due = next_beat if self._kill_at is None else min(next_beat, self._kill_at)
            if self._worker.unreported:
                due = min(due, self._worker.reported_at + REST)
            for descriptor, _ in poller.poll(max(0.0, due - now) * 1000 + 1):
                if descriptor == self._wakeup:
                    self._signalled(os.read(self._wakeup, 64))
                else:
                    self._told(receive(self._sock))

    def _told(self, data: bytes) -> None:
        """What cannot wait for the main thread. To stop is said on the work socket as well, and heard there."""
        for frame in self._decoder.feed(data):
            if isinstance(frame, Frame) and frame.kind in ("PAUSE", "RESUME"):
                self._worker.paused = frame.kind == "PAUSE"
                self._worker.report()
            elif isinstance(frame, Frame) and frame.kind == "CANCEL":
                body = frame.read()
                self._worker.cancel(body["id"], body["fence"])

    def _signalled(self, numbers: bytes) -> None:
        for number in numbers:
            if number != signal.SIGTERM:
                continue
            if self._kill_at is not None:
                kill_own_session()
            # The node answers this with a STOP after whatever it has already sent; the main thread obeys that.
            self._kill_at = clock.monotonic() + self._grace
            self._worker.status = "stopping"
            self._worker.report()


def receive(sock: socket.socket) -> bytes:
    """What the node sent. If it is gone, or has let go of us, this process ends here."""
    try:
        return sock.recv(1 << 16) or kill_own_session()
    except ConnectionResetError:
        kill_own_session()


def resident() -> int:
    """The memory that this process has in use, in bytes."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except OSError:
        return 0  # the handler has used up all descriptors; the beat matters more


def kill_own_session() -> NoReturn:
    """End this worker and its process group, now."""
    os.killpg(0, signal.SIGKILL)
    raise SystemExit(errors.EXIT_ERROR)  # never reached: the signal is there before the call returns


def catch_signals() -> tuple[int, int]:
    """SIGTERM wakes the pulse, even while C code holds the main thread; SIGINT is the supervisor's business."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    ignore: Callable[[int, Any], None] = lambda number, frame: None  # noqa: E731 (not SIG_IGN: children inherit that)
    signal.signal(signal.SIGTERM, ignore)
    signal.signal(signal.SIGINT, ignore)
    return reading, writing


class Forking:
    """A process that a handler forks is no worker: it neither speaks for one nor hears its signals.

    Signals wait while the fork is under way, so that one which is meant for the child never finds it half a worker.
    """

    def __init__(self, work: socket.socket, pulse: socket.socket, *pipe: int) -> None:
        self._sockets, self._pipe = (work, pulse), pipe
        self._before = threading.local()
        os.register_at_fork(before=self._hold, after_in_parent=self._go_on, after_in_child=self._be_nobody)

    def _hold(self) -> None:
        self._before.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})

    def _go_on(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before.mask)

    def _be_nobody(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for sock in self._sockets:
            sock.close()
        for descriptor in self._pipe:
            os.close(descriptor)
        self._go_on()
