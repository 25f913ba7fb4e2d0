"""The handlers that the measured workers run. Light: a worker that loads them counts as a bare one."""

import os
import signal
import socket
from time import monotonic_ns
from typing import Any

from chargehand import Handler, Job, clock


class Nothing(Handler[Any, None]):
    """The job that costs nothing."""

    def perform(self, job: Job[Any]) -> None:
        return None


class Who(Handler[Any, int]):
    """Says which worker had the job."""

    def perform(self, job: Job[Any]) -> int:
        return os.getpid()


class Stamp(Handler[Any, int]):
    """Says when the job began; the clock is the same for every process of the machine."""

    def perform(self, job: Job[Any]) -> int:
        return monotonic_ns()


class Busy(Handler[Any, None]):
    """Says that it has begun, then takes as many seconds as it is told."""

    def perform(self, job: Job[Any]) -> None:
        _say(job.payload["ear"], monotonic_ns())
        clock.sleep(job.payload["seconds"])


class Hold(Handler[Any, None]):
    """Says that it has begun; ends at once if the `free` file was there by then, and never otherwise."""

    def perform(self, job: Job[Any]) -> None:
        began = monotonic_ns()
        free = os.path.exists(job.payload["free"])
        _say(job.payload["ear"], began)
        while not free:
            signal.pause()


class Laden(Hold):
    """The same with 300 MB in memory."""

    def set_up(self) -> None:
        self.load = b"x" * 300_000_000


def _say(ear: str, began: int) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(f"{os.getpid()} {began}".encode(), f"\0{ear}")
