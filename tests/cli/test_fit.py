"""Tables in narrow terminals: what an operator looks for stays, whatever else is long."""

import pytest
from rich.cells import cell_len, set_cell_size

from chargehand.cli.fit import GAP, MOST_LINES, Fitted, fit, shorten

WORKERS = ("WORKER", "STATUS", "PID", "MEMORY", "JOB", "PROGRESS", "RESTARTS", "LEFT", "REASON")
REASON = (
    "FileNotFoundError: [Errno 2] No such file or directory: '/srv/models/music/tagger-v2/weights.onnx'; back in 3.9 s"
)
ROWS = [
    ("worker:tag:0", "crashed (stalled)", "40711", "812 MiB", "019a" * 8, "17/250 decode", "3", "2/17", REASON),
    ("worker:tag:1", "healthy", "40712", "811 MiB", "019b" * 8, "3/250 net", "0", "5/20", "–"),
]
CRASHES = ("ID", "WHEN", "WORKER", "NODE", "REASON", "JOB", "WHAT FOLLOWED", "CAUSE")
CRASHED = [
    ("019a" * 8, "2.3 min ago", "worker:tag:0", "gpu-1", "heartbeat timeout", "019b" * 8, "restarted in 0.05 s", REASON)
]

JOBS = ("ID", "QUEUE", "STATE", "LABEL", "CREATED", "RAISED", "CRASHES", "WORKER", "NODE", "REASON")
LISTED = [
    (
        "019a" * 8,
        "transcode",
        "failed",
        "a.flac",
        "12.3 min ago",
        "3",
        "0",
        "worker:transcode:11",
        "gpu-1",
        REASON,
    )
]
CLAIMS = ("JOB", "CLAIM", "QUEUE", "WORKER", "NODE", "SINCE", "CANCEL ASKED", "ITEM", "LABEL")
HELD = [
    (
        "019a" * 8,
        "7529033633878089514",
        "transcode",
        "worker:transcode:11",
        "gpu-1",
        "2.3 min ago",
        "–",
        "–",
        "FileNotFoundError: weights.onnx",
    )
]
GROUPS = ("FAILED", "CAUSE", "QUEUES", "LAST", "FILTER")
GROUPED = [("1,204", f"{REASON} {REASON}", "transcode", "23.6 s ago", f'state:failed error:"{REASON}"')]


def drawn(fitted: Fitted) -> list[str]:
    lines = [(" " * GAP).join(f"{name:{width}}" for name, width in zip(fitted.columns, fitted.widths, strict=True))]
    for row in fitted.rows:
        for cells in row.lines:
            lines.append((" " * GAP).join(map(set_cell_size, cells, fitted.widths)))
        lines += [f"  {text}" for text in row.below]
    return [line.rstrip() for line in lines]


# spec: CL-3
@pytest.mark.parametrize("width", [80, 100, 140, 200])
@pytest.mark.parametrize(
    ("columns", "rows", "must"),
    [
        (WORKERS, ROWS, ("worker:tag:0", "crashed (stalled)", "healthy")),
        (CRASHES, CRASHED, ("2.3 min ago", "worker:tag:0", "heartbeat timeout")),
        (JOBS, LISTED, ("failed", "12.3 min ago", "worker:transcode:11")),
        (CLAIMS, HELD, ("7529033633878089514", "worker:transcode:11", "2.3 min ago")),
        (GROUPS, GROUPED, ("1,204", "23.6 s ago")),
    ],
)
def test_status_when_worker_and_the_cause_can_be_read(
    width: int, columns: tuple[str, ...], rows: list[tuple[str, ...]], must: tuple[str, ...]
) -> None:
    lines = drawn(fit(columns, rows, width))
    text = " ".join(" ".join(lines).split())
    assert max(map(cell_len, lines)) <= width
    for word in (*must, "FileNotFoundError:", "weights.onnx"):
        assert word in text, "\n".join(lines)
    assert {"STATUS", "WORKER"} & set(columns) <= set(lines[0].split())


def test_a_table_that_fits_is_left_alone() -> None:
    rows = [("worker:tag:0", "healthy", "1")]
    assert drawn(fit(("WORKER", "STATUS", "PID"), rows, 80)) == [
        "WORKER        STATUS   PID",
        "worker:tag:0  healthy  1",
    ]
    assert drawn(fit(WORKERS, ROWS, None))[1].endswith(REASON)


def test_an_id_is_shortened_to_its_end() -> None:
    fitted = fit(("ID", "QUEUE", "ERROR"), [("0123456789abcdef" * 2, "tag", "x" * 60)], 70)
    assert fitted.rows[0].lines[0][0] == "…89abcdef"


def test_a_very_long_sentence_has_a_few_lines() -> None:
    fitted = fit(("WHEN", "ERROR"), [("now", "word " * 1000)], 60)
    lines = fitted.rows[0].lines
    assert len(lines) == MOST_LINES
    assert lines[-1][1].endswith("…")
    assert drawn(fit(("A" * 70, "ERROR"), [("a", "b" * 50)], 60))[1:] == ["a", "  " + "b" * 50]


def test_wide_characters_count_twice() -> None:
    assert shorten("音楽のフォルダ", 7) == "音楽の…"
    fitted = fit(("LABEL", "ERROR"), [("音" * 40, "音 " * 40)], 80)
    assert max(map(cell_len, drawn(fitted))) <= 80


def test_nothing_to_show() -> None:
    assert drawn(fit(WORKERS, [], 40))[0].startswith("WORKER  STATUS")


LONG_WORKER = f"worker:{'transcode-of-very-long-names' * 3}:11"


@pytest.mark.parametrize("width", [80, 100])
def test_a_very_long_worker_does_not_push_the_status_out(width: int) -> None:  # spec: CL-3
    lines = drawn(fit(WORKERS, [(LONG_WORKER, *ROWS[0][1:]), ROWS[1]], width))
    assert max(map(cell_len, lines)) <= width
    assert {"WORKER", "STATUS"} <= set(lines[0].split())
    assert lines[1].startswith("worker:transcode")
    assert "…" in lines[1].split()[0]
    assert lines[1].split()[0].endswith(":11")
    assert lines[-1].split()[:2] == ["worker:tag:1", "healthy"]


def test_a_last_column_of_numbers_stays_in_its_row() -> None:  # spec: CL-3
    columns = ("QUEUE", "QUEUED", "FUTURE", "RUNNING", "DONE", "FAILED", "CANCELLED")
    lines = drawn(fit(columns, [("q" * 90, "1", "2", "3", "4", "5", "6"), ("tag", *"111117")], 80))
    assert max(map(cell_len, lines)) <= 80
    assert lines[0].split() == list(columns)
    assert [line.split()[-1] for line in lines[1:]] == ["6", "7"]
