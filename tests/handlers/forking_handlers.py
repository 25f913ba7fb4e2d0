"""A handler that forks processes, which fork others, as its payload says."""

import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from chargehand import ChargehandError, Handler, Job, clock

current: Job[Any] | None = None
"""The job, for functions that a pool calls: a job cannot be pickled."""


def in_fork(action: Callable[[], Any]) -> str:
    """Returns what an action returns in a forked process, or its error, as text."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            text = str(action())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text


def pool(size: int = 2) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(size, mp_context=multiprocessing.get_context("fork"))


def square(number: int) -> int:
    return number * number


def squares(number: int) -> list[int]:
    with pool() as inner:
        return list(inner.map(square, range(number)))


def advance(number: int) -> int:
    assert current is not None
    current.progress(number, 10, stage="in a pool")
    return number


def advance_until_cancelled(number: int) -> None:
    assert current is not None
    while True:
        current.progress(number)
        clock.sleep(0.01)


def grandchild() -> str:
    """Returns how many files of its own a grandchild keeps, and its signals, in a child that filled all numbers."""
    files = [os.open("/tmp", os.O_TMPFILE | os.O_RDWR) for _ in range(40)]

    def look() -> str:
        for file in files:
            os.fstat(file)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        return f"{len(files)} files, blocked: {sorted(blocked)}, SIGTERM: {signal.getsignal(signal.SIGTERM)!r}"

    return in_fork(look)


def progress_into_files() -> int:
    """Returns how many bytes progress has written into the files of a process that has closed all others."""
    assert current is not None
    os.closerange(3, 200)
    files = [os.open("/tmp", os.O_TMPFILE | os.O_RDWR) for _ in range(40)]
    for number in range(100):
        current.progress(number)
    return sum(os.fstat(file).st_size for file in files)


class Forking(Handler[dict[str, Any], Any]):
    def perform(self, job: Job[dict[str, Any]]) -> Any:
        global current
        current = job
        return getattr(self, job.payload["do"])(job)

    def nest(self, job: Job[Any]) -> Any:
        with pool() as outer:
            return list(outer.map(squares, [3, 4]))

    def look(self, job: Job[Any]) -> str:
        return in_fork(grandchild)

    def close(self, job: Job[Any]) -> int:
        pid = os.fork()
        if not pid:
            os._exit(8 if progress_into_files() else 7)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def progress(self, job: Job[Any]) -> Any:
        with pool() as outer:
            done = list(outer.map(advance, range(10)))
        while not os.path.exists(job.payload["gate"]):
            clock.sleep(0.01)
        return sum(done)

    def cancel(self, job: Job[Any]) -> None:
        with pool(1) as outer:
            list(outer.map(advance_until_cancelled, range(1)))

    def refuse(self, job: Job[Any]) -> list[str]:
        def settle() -> None:
            with job.settle():
                raise AssertionError("the block is never entered")

        return [in_fork(lambda: job.enqueue("do", None)), in_fork(settle), in_fork(lambda: self.more_time(1))]

    def leave(self, job: Job[Any]) -> list[int]:
        """Returns the exit codes of processes that return, exit and raise."""
        codes: list[int] = []
        for how in range(3):
            pid = os.fork()
            if not pid:
                logging.getLogger("child").info("logged by child %d", how)
                if how == 1:
                    sys.exit(7)
                if how == 2:
                    raise ChargehandError("raised by a child")
                return []
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        return codes
