"""What a worker says before it exits because its set-up failed."""

import sys
from typing import Any

import pytest

from chargehand import Handler, Job
from chargehand.errors import EXIT_SET_UP
from chargehand.worker.main import Worker


class Leaves(Handler[Any, Any]):
    code: str | int = "no licence: set ACME_KEY"

    def set_up(self) -> None:
        sys.exit(self.code)

    def perform(self, job: Job[Any]) -> None: ...


class LeavesWithACode(Leaves):
    code = 4


class Unconnected(Worker):
    """A worker without a node."""

    def __init__(self, kind: type[Handler[Any, Any]]) -> None:
        self.plan = {"handler": f"{__name__}:{kind.__name__}", "batch": 1, "threads": 1}
        self.detached = False
        self.sent: list[bytes] = []

    def forward_logging(self) -> None: ...

    def _send(self, frame: bytes) -> None:
        self.sent.append(frame)


def test_a_set_up_that_exits_with_a_text_says_why() -> None:
    worker = Unconnected(Leaves)
    assert worker.serve() == EXIT_SET_UP
    assert b"SystemExit: no licence: set ACME_KEY" in b"".join(worker.sent)


def test_a_set_up_that_exits_with_a_code_exits_with_that_code() -> None:
    worker = Unconnected(LeavesWithACode)
    with pytest.raises(SystemExit, match="4"):
        worker.serve()
    assert worker.sent == []
