"""`top` on a small terminal: the unwell workers are seen, and no line is lost or too long."""

import io
from typing import Any

import pytest
from rich.console import Console

from chargehand.cli import board
from chargehand.cli.board import Board

REASON = "FileNotFoundError: [Errno 2] No such file or directory: '/srv/models/music/weights.onnx'"


def worker(index: int, status: str = "healthy", text: str | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "node": "host", "component": f"worker:tag:{index}", "crew": "tag", "index": index, "status": status,
        "flags": (), "pid": 4000 + index, "memory": 1 << 28, "gpus": (), "jobs": 17, "restart_count": 3,
        "budget": {"rapid_left": 2, "lifetime_left": 17}, "job_since_ms": None, "current_job": "019a" * 8,
        "progress": None, "restart_at_ms": None, "text": text, "cause": None, "concurrency": 1, **fields,
    }  # fmt: skip


def queue(name: str) -> dict[str, Any]:
    times = dict.fromkeys(("mean_duration_s", "eta_s", "oldest_wait_s"), 1.5)
    return {"name": name, "queued": 3, "running": 1, "done": 10, "failed": 2, "rate": 0.5, **times}


def filled(healthy: int, unwell: int) -> Board:
    made = Board("/srv/music/chargehand.db")
    made.add({"type": "health_update", "health": {"status": "degraded", "errors": [f"crew tag: {REASON}"] * 3}})
    for index in range(healthy + unwell):
        bad = {"status": "crashed", "text": REASON} if index < unwell else {}
        made.add({"type": "worker_update", "worker": worker(index, **bad)})
    for name in ("tag", "library"):
        made.add({"type": "queue_update", "queue": queue(name)})
    failure = {
        "id": "019b" * 8,
        "queue": "tag",
        "label": "a.flac",
        "reason": "raised",
        "error": REASON,
        "cause": REASON,
        "finished_ms": 0,
    }
    made.failures = [failure] * 5
    return made


def lines_of(made: Board, width: int, height: int | None) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(board.drawn(made, height, width))
    return console.export_text().rstrip("\n").split("\n")


# spec: CL-3
@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_unwell_are_seen_and_the_well_are_counted(width: int) -> None:
    lines = lines_of(filled(12, 2), width, 24)
    assert len(lines) <= 24
    text = " ".join(" ".join(lines).split())
    for words in (
        "worker:tag:0",
        "worker:tag:1",
        "crashed",
        "tag: 12 healthy; 12 busy",
        "library",
        "weights.onnx",
        "raised",
    ):
        assert words in text, "\n".join(lines)
    assert max(map(len, lines)) <= width


def test_all_are_shown_where_there_is_room() -> None:
    text = "\n".join(lines_of(filled(12, 2), 160, 60))
    assert all(f"worker:tag:{index} " in text for index in range(14))


def test_too_many_unwell_are_counted() -> None:
    lines = lines_of(filled(0, 40), 80, 24)
    assert len(lines) <= 24
    assert any("more lines about workers" in line for line in lines)
