"""The reports of a worker with many jobs fit into a frame of the node, whatever the jobs report."""

import socket
from typing import Any

import pytest

from chargehand.node.handle import PULSE_FRAME_LIMIT
from chargehand.protocol.frame import Decoder, Frame
from chargehand.worker.concurrent import ConcurrentWorker
from chargehand.worker.forked import ForkLink
from chargehand.worker.main import TEXT_LIMIT
from chargehand.worker.pulse import Inbox

PLAN: dict[str, Any] = {"paused": False, "component": "worker:a:0", "life": "1"}


# spec: WP-15 SV-8
@pytest.mark.parametrize("character", ["x", "\x01", "\U0001f600", "\ud800"])
def test_the_progress_of_many_jobs_fits_into_frames(character: str) -> None:
    node, own = socket.socketpair()
    with node, own:
        number = own.fileno()
        worker = ConcurrentWorker(number, number, Inbox(number), iter(()), PLAN, -1, ForkLink())
        text = character * TEXT_LIMIT
        jobs = {f"{n:032}" for n in range(100)}
        for job in jobs:
            worker.keep_progress(job, {"done": 1.0, "total": 2.0, "stage": text, "detail": text})
        told: set[str] = set()
        decoder = Decoder(PULSE_FRAME_LIMIT)
        worker.unreported = True
        while worker.unreported:
            worker.report()
            for frame in decoder.feed(node.recv(1 << 20)):
                assert isinstance(frame, Frame)
                body = frame.read_restored()
                told |= {body["current_job"], *(each["job"] for each in body.get("others", ()))}
                assert body["progress"]["stage"] == text
    assert told == jobs
