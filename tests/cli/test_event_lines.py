"""Events as lines for people."""

from typing import Any

from chargehand.cli.events import news


def worker(at: int, **fields: Any) -> dict[str, Any]:
    known = {
        "component": "worker:tag:0", "node": "n", "status": "healthy", "flags": [], "current_job": None,
        "progress": None,
    }  # fmt: skip
    body = {**known, "text": None, "memory": 1, **fields}
    return {"topic": "worker:tag:0:status", "type": "worker_update", "timestamp_ms": at, "worker": body}


def said(*events: dict[str, Any]) -> list[str]:
    return [line.split(" ", 2)[2] for line in news(events)]


def test_what_looks_the_same_is_said_once() -> None:  # spec: CL-3
    again = {"topic": "*", "type": "resync", "timestamp_ms": 4000, "reason": "the full state follows"}
    busy = {"current_job": "j", "progress": {"done": 12.0, "total": 20.0, "stage": "nap", "detail": None}}
    assert said(worker(0), worker(9000, memory=2), worker(9500, **busy), worker(9900), again, worker(9950)) == [
        "worker:tag:0 is healthy",
        "worker:tag:0 is healthy, runs j, 12/20 nap",
        "worker:tag:0 is healthy",
        "full state again: the full state follows",
        "worker:tag:0 is healthy",
    ]
