"""The self-test of a handler after a failure says nothing about the process if a cancellation ends it."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from chargehand import Handler
from chargehand.errors import Cancelled, WorkerBroken
from chargehand.worker.concurrent import Attempt, ConcurrentWorker
from chargehand.worker.forked import ForkLink
from chargehand.worker.main import Worker
from chargehand.worker.perform import is_cancellation
from chargehand.worker.pulse import Inbox

PLAN: dict[str, Any] = {"paused": False, "component": "worker:a:0", "life": "1"}
BODY = {"id": "j", "fence": 7}


class SelfTest(Handler[Any, Any]):
    """Its self-test ends with a CancelledError."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.meanwhile = meanwhile

    async def is_sound(self) -> bool:
        self.meanwhile()
        raise asyncio.CancelledError


def check(kind: type[Worker], *, cancelled: bool) -> None:
    """Runs the self-test after a failure of a job that is cancelled meanwhile, or not."""
    ends = socket.socketpair()
    work, pulse = ends[0].fileno(), ends[1].fileno()
    worker = kind(work, pulse, Inbox(work), iter(()), PLAN, -1, ForkLink())
    worker.handler = SelfTest(lambda: worker.cancelled.update([("j", 7)] if cancelled else []))
    worker._body = BODY  # pyright: ignore[reportPrivateUsage]
    try:
        if isinstance(worker, ConcurrentWorker):
            asyncio.run(worker._check_sound(Attempt(worker, BODY), ValueError()))  # pyright: ignore[reportPrivateUsage]
        else:
            worker.check_sound(ValueError())
    finally:
        if worker._runner is not None:  # pyright: ignore[reportPrivateUsage]
            worker._runner.close()  # pyright: ignore[reportPrivateUsage]
        for end in ends:
            end.close()


# spec: WP-12 WK-8 WP-15
@pytest.mark.parametrize("kind", [Worker, ConcurrentWorker])
def test_a_self_test_that_a_cancellation_ends_says_nothing(kind: type[Worker]) -> None:
    check(kind, cancelled=True)
    with pytest.raises(WorkerBroken, match="is_sound raised CancelledError"):
        check(kind, cancelled=False)


# spec: WK-8
def test_several_tasks_of_a_job_may_see_that_it_was_cancelled() -> None:
    both = BaseExceptionGroup("", [Cancelled("j"), BaseExceptionGroup("", [asyncio.CancelledError()])])
    assert is_cancellation(both)
    assert not is_cancellation(BaseExceptionGroup("", [both, ValueError()]))
