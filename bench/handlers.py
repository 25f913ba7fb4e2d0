"""The handlers of the measured workers. Must not import anything heavy: the workers count as bare ones."""

import os
import signal
import socket
from time import monotonic_ns
from typing import Any

from chargehand import Handler, Job, clock


class Nothing(Handler[Any, None]):
    """Does nothing."""

    def perform(self, job: Job[Any]) -> None:
        return None


class Fan(Handler[int | None, None]):
    """Spawns the given number of jobs, which do nothing."""

    def perform(self, job: Job[int | None]) -> None:
        if job.payload:
            job.spawn(job.queue, [None] * job.payload)


class Wait(Handler[float, None]):
    """Waits for the given seconds, and lets other jobs of the worker go on."""

    async def perform(self, job: Job[float]) -> None:
        import asyncio  # only here: it would count as memory of the other workers

        await asyncio.sleep(job.payload)


class Who(Handler[Any, int]):
    """Returns which worker ran the job."""

    def perform(self, job: Job[Any]) -> int:
        return os.getpid()


class Stamp(Handler[Any, int]):
    """Returns when the job started; all processes of the machine share the clock."""

    def perform(self, job: Job[Any]) -> int:
        return monotonic_ns()


class Busy(Handler[Any, None]):
    """Reports the start of the job, then sleeps for the given seconds."""

    def perform(self, job: Job[Any]) -> None:
        _say(job.payload["ear"], monotonic_ns())
        clock.sleep(job.payload["seconds"])


class Hold(Handler[Any, None]):
    """Reports the start of the job; finishes immediately if the `free` file exists at that time, otherwise never."""

    def perform(self, job: Job[Any]) -> None:
        began = monotonic_ns()
        free = os.path.exists(job.payload["free"])
        _say(job.payload["ear"], began)
        while not free:
            signal.pause()


class Laden(Hold):
    """A handler with 300 MB of memory."""

    def set_up(self) -> None:
        self.load = b"x" * 300_000_000


class Sick(Handler[Any, None]):
    """After the payload `sick` every job of this process fails at once; other jobs take a moment."""

    sick = False

    def perform(self, job: Job[Any]) -> None:
        self.sick |= job.payload == "sick"
        if self.sick:
            raise RuntimeError("this process can do nothing any more")
        clock.sleep(0.001)


def _say(ear: str, began: int) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(f"{os.getpid()} {began}".encode(), f"\0{ear}")
