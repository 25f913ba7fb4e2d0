"""The link between a worker and the processes that its handler forks."""

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from chargehand.protocol.frame import Decoder, Frame
from chargehand.worker.forked import CANCELLED_LIMIT, ForkLink
from chargehand.worker.main import Worker
from chargehand.worker.pulse import Inbox

HOW_FAR = {"done": 1, "total": 2, "stage": None, "detail": None}


@pytest.fixture
def link() -> Iterator[ForkLink]:
    link = ForkLink()
    link.cancel("early", 1)
    assert not link.is_cancelled("early", 1), "no process was forked yet"
    assert link.open()
    assert not link.open(), "once"
    yield link
    for descriptor in (link.fileno(), link._sending):  # pyright: ignore[reportPrivateUsage]
        os.close(descriptor)


# spec: WK-9
def test_reports_arrive_whole_and_are_dropped_if_nobody_reads(link: ForkLink) -> None:
    for n in range(10_000):
        link.send("job", n, HOW_FAR)
    assert link.receive() == [{"id": "job", "claim": 0, "progress": HOW_FAR}]
    assert link.receive() == [{"id": "job", "claim": 1, "progress": HOW_FAR}]
    while link.receive():
        pass
    assert link.receive() == []


# spec: WK-8
def test_a_cancellation_is_that_of_one_claim_until_it_ends(link: ForkLink) -> None:
    assert link.is_cancelled("early", 1), "since before the first fork"
    link.cancel("job", 12)
    assert link.is_cancelled("job", 12)
    assert not any(link.is_cancelled(*other) for other in (("job", 1), ("job", 2), ("job", 123), ("b", 12)))
    link.clear()
    assert not link.is_cancelled("job", 12)
    for n in range(CANCELLED_LIMIT):
        link.cancel("job", n)  # more than there is room for
    assert link.is_cancelled("job", 1)
    link.clear()
    assert not link.is_cancelled("job", 1)


# spec: WK-9
def test_progress_of_a_process_that_outlives_its_job_is_ignored(link: ForkLink) -> None:
    node, sock = socket.socketpair()
    plan: dict[str, Any] = {"paused": False, "component": "worker:a:0", "life": "1"}
    with node, sock:
        worker = Worker(sock.fileno(), sock.fileno(), Inbox(sock.fileno()), iter(()), plan, -1, link)
        worker._begin("new", {}, {("new", 2)})  # pyright: ignore[reportPrivateUsage]
        for claim in (("old", 1), ("new", 1)):
            worker.relay(*claim, HOW_FAR)
        assert not worker.unreported
        worker.relay("new", 2, HOW_FAR)
        assert worker.unreported
        worker.report()
        frames = Decoder(1 << 16).feed(node.recv(1 << 16))
    told = [frame.read() for frame in frames if isinstance(frame, Frame)]
    assert [(body["current_job"], body.get("progress")) for body in told] == [("new", None), ("new", HOW_FAR)]
