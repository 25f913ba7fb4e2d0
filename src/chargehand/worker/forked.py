"""Processes that a handler forks. They are no workers: they do not use the worker's sockets or receive its signals.

They can report the job's progress and see whether it was cancelled. Every worker loads this module: it imports nothing
heavy and does not know handlers. What only a worker that forks needs is made before the first fork.
"""

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from chargehand import errors
from chargehand.protocol.frame import Decoder, Frame, encode
from chargehand.worker.failures import describe

if TYPE_CHECKING:
    import mmap

MESSAGE_LIMIT = 16384
CANCELLED_LIMIT = 4096
"""Bytes for the cancelled jobs of a batch; the worker is replaced if a job does not notice its cancellation."""


class Forkable(Protocol):
    """An object that must not act as the worker in a forked process: the worker."""

    detached: bool


def identity(descriptor: int) -> tuple[int, int]:
    """Returns what tells the file of a descriptor from other files. Raises OSError if the descriptor is closed."""
    seen = os.fstat(descriptor)
    return seen.st_dev, seen.st_ino


class ForkLink:
    """Carries progress from forked processes to the worker, and cancellations from the worker to them.

    `open` makes it, before the first fork.
    """

    def __init__(self) -> None:
        self._receiving = self._sending = -1
        """A pair of datagram sockets: the reports of several processes do not mix."""
        self._identity = (0, 0)
        self._opening = threading.Lock()
        self._cancelled: list[bytes] = []
        self._shared: mmap.mmap | None = None
        """The cancelled jobs, in memory that forked processes share."""

    def fileno(self) -> int:
        """Returns the descriptor that becomes readable when there is a report; -1 if the link is not open."""
        return self._receiving

    # in the worker

    def open(self) -> bool:
        """Makes the link; returns whether it did. Without a free descriptor, forked processes have no link."""
        with self._opening:
            if self._receiving >= 0:
                return False
            try:
                import mmap
                import socket

                self._shared = mmap.mmap(-1, CANCELLED_LIMIT)
                receiving, sending = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            except (OSError, ImportError):
                return False
            self._receiving, self._sending = receiving.detach(), sending.detach()
            for descriptor in (self._receiving, self._sending):
                os.set_blocking(descriptor, False)
            self._identity = identity(self._sending)
            for line in list(self._cancelled):
                self._show(line)
            return True

    def receive(self) -> list[Any]:
        """Returns the next report of a forked process, in a list; an empty list if there is none."""
        with suppress(BlockingIOError):
            found = Decoder(MESSAGE_LIMIT).feed(os.read(self._receiving, MESSAGE_LIMIT))
            return [frame.read() for frame in found if isinstance(frame, Frame)]
        return []

    def cancel(self, job_id: str, claim: int) -> None:
        """Shows forked processes that the job was cancelled; called by the pulse thread."""
        line = _line(job_id, claim)
        self._cancelled.append(line)  # first: `open` copies it, if it makes the memory now
        self._show(line)

    def clear(self) -> None:
        """Removes all cancellations, after a job or a batch."""
        if self._cancelled:
            self._cancelled.clear()
            if self._shared is not None:
                self._shared[:] = bytes(CANCELLED_LIMIT)
                self._shared.seek(0)

    def _show(self, line: bytes) -> None:
        if self._shared is not None:
            with suppress(ValueError):  # no room for another
                self._shared.write(line)

    # in a forked process

    def send(self, job_id: str, claim: int, how_far: dict[str, Any]) -> None:
        """Reports the progress of a job; drops the report if the worker does not read, or the link was closed."""
        with suppress(OSError):
            if identity(self._sending) == self._identity:  # otherwise the number is a file of this process
                os.write(self._sending, encode("PROGRESS", {"id": job_id, "claim": claim, "progress": how_far}))

    def is_cancelled(self, job_id: str, claim: int) -> bool:
        """Returns whether the worker was asked to cancel the job."""
        return self._shared is not None and self._shared.find(_line(job_id, claim), 0) >= 0


def _line(job_id: str, claim: int) -> bytes:
    return f"\n{job_id} {claim}\n".encode()


class ForkGuard:
    """Detaches the processes that a handler forks from the worker; the processes that those fork are left alone.

    Signals are blocked during the fork, so that one sent to the child never reaches it before it is detached.
    """

    def __init__(self, worker: Forkable, link: ForkLink, descriptors: Sequence[int]) -> None:
        """The `descriptors` are those of the worker alone; the last one wakes its pulse thread."""
        self._worker, self._link, self._wake = worker, link, descriptors[-1]
        self._identities = {number: identity(number) for number in descriptors}
        self._saved = threading.local()
        os.register_at_fork(
            before=self._prepare, after_in_parent=self._unblock_signals, after_in_child=self._detach_child
        )

    def _prepare(self) -> None:
        if self._worker.detached:
            return
        self._saved.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        if self._link.open():
            self._identities[self._link.fileno()] = identity(self._link.fileno())
            with suppress(OSError):  # the pipe is full: the pulse thread wakes anyway
                if self._is_ours(self._wake):
                    os.write(self._wake, b"\0")

    def _unblock_signals(self) -> None:
        if not self._worker.detached:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._saved.mask)

    def _detach_child(self) -> None:
        if self._worker.detached:
            return
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            faulthandler.unregister(signal.SIGUSR1)
            faulthandler.enable(2, all_threads=True)  # the worker's file is for the worker's own crashes
            self._close()
        finally:
            self._unblock_signals()
            self._worker.detached = True

    def _close(self) -> None:
        """Closes the worker's descriptors, unless a handler has closed one and the number is another file by now."""
        for number in self._identities:
            with suppress(OSError):
                if self._is_ours(number):
                    os.close(number)

    def _is_ours(self, number: int) -> bool:
        return identity(number) == self._identities[number]


def leave(error: BaseException | None) -> NoReturn:
    """Ends a forked process that has left the handler. It runs no exit functions: those are the worker's."""
    code = 0
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        code = error.code or 0
    elif error is not None:
        sys.stderr.write(f"{error.code}\n" if isinstance(error, SystemExit) else describe(error))
        code = errors.EXIT_ERROR
    flush_output()
    os._exit(code & 0xFF)


def flush_output() -> None:
    """Writes what standard output and standard error have buffered, as far as possible."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
