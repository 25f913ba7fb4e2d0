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


def many(crews: int, failed: int) -> Board:
    """A board of crews with two workers each, of which the last ones are given up."""
    made = Board("/srv/music/chargehand.db")
    about = [f"crew crew-{number:02}: 2 of 2 given up: {REASON}" for number in range(crews - failed, crews)]
    made.add({"type": "health_update", "health": {"status": "error", "errors": about}})
    for number in range(crews):
        name = f"crew-{number:02}"
        bad: dict[str, Any] = {"status": "failed", "text": REASON} if number >= crews - failed else {}
        for index in range(2):
            fields = {"component": f"worker:{name}:{index}", "crew": name, **bad}
            made.add({"type": "worker_update", "worker": worker(index, **fields)})
        made.add({"type": "queue_update", "queue": queue(name)})
    return made


def test_workers_take_half_of_a_small_screen() -> None:  # spec: CL-3
    """Of six crews, two are given up: all of their workers are seen with the cause, above the first queues."""
    lines = lines_of(many(6, 2), 80, 24)
    text = "\n".join(lines)
    assert len(lines) <= 24
    for number in (4, 5):
        for index in (0, 1):
            at = next(at for at, line in enumerate(lines) if line.startswith(f"worker:crew-{number:02}:{index} "))
            assert "failed" in lines[at]
            assert "FileNotFoundError" in lines[at + 1]
    assert "crew-00: 2 healthy; 2 busy  crew-01: 2 healthy; 2 busy" in text
    assert any(line.startswith("QUEUE ") for line in lines)
    assert "more lines about queues" in text


@pytest.mark.parametrize("failed", [0, 1, 20, 30])
def test_many_crews_never_take_more_than_the_screen(failed: int) -> None:
    lines = lines_of(many(30, failed), 80, 24)
    assert len(lines) <= 24
    text = "\n".join(lines)
    assert ("FileNotFoundError" in text) == (failed > 0)
    assert ("crew-00: 2 healthy" in text) == (failed < 30)
    assert any(line.startswith("QUEUE ") for line in lines), text


def test_queues_in_which_jobs_wait_are_seen_where_there_is_no_room_for_all() -> None:
    made = many(30, 1)
    for name in [f"crew-{number:02}" for number in range(29)]:
        made.add({"type": "queue_update", "queue": {**queue(name), "oldest_wait_s": None}})
    listed = [line.split()[0] for line in lines_of(made, 80, 24) if line.startswith("crew-") and ":" not in line]
    assert listed[:2] == ["crew-29", "crew-00"]


def test_a_long_address_does_not_take_a_second_line() -> None:
    made = filled(12, 2)
    made.store = "postgresql://chargehand@database-1.internal.example:5432/music?schema=production&sslmode=verify-full"
    lines = lines_of(made, 80, 24)
    assert len(lines) <= 24
    assert lines[0].startswith("postgresql://chargehand@database-1")
    assert lines[0].endswith("…  verdict degraded")


def test_those_that_are_down_stand_above_those_that_start() -> None:
    made = filled(0, 1)
    for index in range(1, 30):
        made.add({"type": "worker_update", "worker": worker(index, status="starting")})
    made.add({"type": "worker_update", "worker": worker(30, status="failed", text=REASON)})
    lines = [line for line in lines_of(made, 80, 24) if line.startswith("worker:")]
    assert [line.split()[1] for line in lines[:3]] == ["crashed", "failed", "starting"]
