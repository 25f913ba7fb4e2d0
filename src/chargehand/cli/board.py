"""The tables that `top` draws, built from events alone."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from chargehand import clock
from chargehand.cli import show
from chargehand.cli.fit import GAP, fit, shorten, wrapped
from chargehand.cli.nodes import COLUMNS as NODES
from chargehand.errors import summary

COLOURS = {
    "healthy": "green",
    "paused": "blue",
    "asleep": "dim",
    "starting": "cyan",
    "stopping": "cyan",
    "degraded": "yellow",
    "crashed": "red",
    "failed": "bold red",
    "error": "bold red",
    "unknown": "yellow",
    "gone": "bold red",
}
WORKERS = ("WORKER", "STATUS", "PID", "MEMORY", "GPU", "JOBS", "RESTARTS", "LEFT", "FOR", "JOB", "PROGRESS", "REASON")
QUEUES = ("QUEUE", "QUEUED", "RUNNING", "DONE", "FAILED", "PER S", "MEAN", "ETA", "OLDEST")
FAILED = ("FAILED JOB", "QUEUE", "WHEN", "REASON", "ERROR")
WELL = ("healthy", "asleep", "paused")
DOWN = ("failed", "crashed", "error", "gone")
ERRORS = 5
"""Reasons of the verdict where the height does not matter."""


def is_well(status: str, flags: Sequence[str]) -> bool:
    """Returns whether nothing is wrong with a worker of this status."""
    return status in WELL and not flags


class Board:
    """The latest state of everything that events described."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.failures: list[dict[str, Any]] = []
        self.clear()

    def clear(self) -> None:
        """Clears the state before the full state arrives again."""
        self.health: dict[str, Any] = {"status": "unknown", "errors": []}
        self.workers: dict[str, dict[str, Any]] = {}
        self.queues: dict[str | None, dict[str, Any]] = {}
        self.nodes: dict[str, dict[str, Any]] = {}

    def add(self, event: dict[str, Any]) -> None:
        """Applies one event."""
        match event["type"]:
            case "health_update":
                self.health = event["health"]
            case "worker_update":
                worker = event["worker"]
                _put(self.workers, f"{worker['node']} {worker['component']}", worker, event)
            case "node_update":
                _put(self.nodes, event["node"]["name"], event["node"], event)
            case "queue_update":
                _put(self.queues, event["queue"]["name"], event["queue"], event)
            case _:
                return

    @property
    def failed(self) -> int:
        """The number of failed jobs in all queues."""
        return self.queues.get(None, {}).get("failed", 0)

    def as_json(self) -> dict[str, Any]:
        """Returns the state as plain data."""
        return {
            "store": self.store,
            "health": self.health,
            "nodes": [self.nodes[name] for name in sorted(self.nodes)],
            "workers": self.sorted_workers(),
            "queues": self.sorted_queues(),
            "failures": self.failures,
        }

    def sorted_workers(self) -> list[dict[str, Any]]:
        """Returns the workers by node, crew and index."""
        return sorted(self.workers.values(), key=lambda each: (each["node"], each["crew"] or "", each["index"] or 0))

    def sorted_queues(self) -> list[dict[str, Any]]:
        """Returns the total of all queues first, then each queue by name."""
        return sorted(self.queues.values(), key=lambda queue: queue["name"] or "")


def _put(things: dict[Any, dict[str, Any]], key: Any, body: dict[str, Any], event: dict[str, Any]) -> None:
    if event.get("removed"):
        things.pop(key, None)
    else:
        things[key] = body


def drawn(board: Board, height: int | None = None, width: int | None = None) -> RenderableType:
    """Returns the tables for a terminal of this size (None: any): the unwell workers first. If there is no room for the
    well ones, they are counted by crew. Workers take half of the screen before other tables give up lines."""
    several = len(board.nodes) > 1
    above: list[Text] = [*_verdict(board, height, width), Text("")]
    if several:
        above += [*_table(NODES, [_node(board.nodes[name]) for name in sorted(board.nodes)], width), Text("")]
    below = _below(board, height, width)
    if height is None:
        return Group(*above, *_workers(board, several, None, width), *below)
    workers = _workers(board, several, max(height // 2, height - len(above) - len(below)), width)
    room = height - len(above) - len(workers)
    if len(below) > room:
        below = _cut(_below(board, height, width, waiting_first=True), room, "queues")
    return Group(*above, *workers, *below)


def _verdict(board: Board, height: int | None, width: int | None) -> list[Text]:
    """Returns the lines of the verdict and its first reasons."""
    found = dict.fromkeys(show.safe(summary(error)) for error in board.health["errors"])
    texts = list(found)[: ERRORS if height is None else max(1, height // 12)]
    if width is not None:
        texts = [line for text in texts for line in wrapped(text, width - 2, 2)]
    status, store = board.health["status"], show.safe(board.store)
    if width is not None:
        store = shorten(store, width - len("  verdict ") - len(status))
    verdict = Text(f"{store}  verdict ").append(status, COLOURS.get(status, ""))
    return [verdict, *(Text(f"  {text}") for text in texts)]


def _below(board: Board, height: int | None, width: int | None, *, waiting_first: bool = False) -> list[Text]:
    """Returns the tables of the queues and the newest failures; `waiting_first`: queues in which jobs wait first."""
    queues = [queue for queue in board.sorted_queues() if queue["name"] is not None]
    if waiting_first:
        queues.sort(key=lambda queue: queue["oldest_wait_s"] is None)
    lines = [Text(""), *_table(QUEUES, [_queue(queue) for queue in queues], width)]
    for queue in queues:
        if queue.get("rate_next_ms") is not None:
            lines.append(Text(show.safe(f"queue {queue['name']}: {show.rate_wait(queue['rate_next_ms'])}"), "dim"))
    if board.failures:
        failures = board.failures if height is None else board.failures[: max(1, height // 12)]
        lines += [Text(""), *_table(FAILED, [_failure(job) for job in failures], width, 1)]
    return lines


def _workers(board: Board, several: bool, room: int | None, width: int | None) -> list[Text]:
    """Returns the table of workers in at most `room` lines."""
    workers = board.sorted_workers()
    gpus = any(worker.get("gpus") for worker in workers)
    columns = [*(["NODE"] if several else []), *(column for column in WORKERS if column != "GPU" or gpus)]

    def table(chosen: Sequence[dict[str, Any]]) -> list[Text]:
        rows = [[*([each["node"]] if several else []), *_worker(each, gpus=gpus)] for each in chosen]
        return _table(columns, rows, width, 1)

    lines = table(workers)
    if room is None or len(lines) <= room:
        return lines
    unwell = [worker for worker in workers if not is_well(worker["status"], worker["flags"])]
    unwell.sort(key=lambda worker: worker["status"] not in DOWN)
    counted = _counted([worker for worker in workers if worker not in unwell], width)
    lines = table(unwell) if unwell else []
    lines = _cut(lines, max(room // 2, room - len(counted)))
    return [*lines, *_cut(counted, room - len(lines))]


def _cut(lines: list[Text], most: int, about: str = "workers") -> list[Text]:
    """Returns at most so many lines; the last one says how many are missing."""
    if len(lines) <= most:
        return lines
    kept = max(0, most - 1)
    return [*lines[:kept], Text(f"… {len(lines) - kept} more lines about {about}: chargehand status", "dim")]


def _counted(workers: Sequence[dict[str, Any]], width: int | None) -> list[Text]:
    """Returns how many workers of each crew are in which state, and how many have a job: as many crews in a line as
    fit."""
    crews: dict[str, list[dict[str, Any]]] = {}
    for worker in workers:
        crews.setdefault(worker["crew"] or "", []).append(worker)
    lines: list[Text] = []
    for crew, its in sorted(crews.items()):
        states = Counter(worker["status"] for worker in its)
        busy = sum(worker["current_job"] is not None for worker in its)
        words = Text(show.safe(f"{crew}: "))
        words.append(", ".join(f"{count} {status}" for status, count in sorted(states.items())), "green")
        words.append(f"; {busy} busy" if busy else "")
        if lines and width is not None and lines[-1].cell_len + GAP + words.cell_len <= width:
            lines[-1].append(" " * GAP).append_text(words)
        else:
            lines.append(words)
    return lines


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]], width: int | None, most_lines: int = 2) -> list[Text]:
    """Returns the lines of a table, with the status of each row in colour."""
    fitted = fit(columns, [[show.safe(cell) for cell in row] for row in rows], width, most_lines)
    lines = [Text(show.joined(fitted.columns, fitted.widths), "bold")]
    at = fitted.columns.index("STATUS") if "STATUS" in fitted.columns else None
    before = 0 if at is None else sum(fitted.widths[:at]) + GAP * at
    for row in fitted.rows:
        for number, cells in enumerate(row.lines):
            line = Text(show.joined(cells, fitted.widths))
            if at is not None and number == 0:
                line.stylize(COLOURS.get(cells[at].partition(" ")[0], ""), before, before + fitted.widths[at])
            lines.append(line)
        lines += [Text(f"  {text}") for text in row.below]
    return lines


def _worker(worker: dict[str, Any], *, gpus: bool) -> list[Any]:
    status = worker["status"] + (f" ({', '.join(worker['flags'])})" if worker["flags"] else "")
    memory = f"{worker['memory'] / 2**20:.0f} MiB" if worker["memory"] else None
    budget = worker["budget"]
    left = None if budget is None else f"{budget['rapid_left']}/{budget['lifetime_left']}"
    since = worker["job_since_ms"]
    busy_for = None if since is None else show.span(max(0, clock.now_ms() - since) / 1000)
    reason = worker["cause"] or summary(worker["text"]) or None
    if worker["restart_at_ms"] is not None:
        reason = f"{reason}; back in {show.span(max(0, worker['restart_at_ms'] - clock.now_ms()) / 1000)}"
    progress = show.progress({**(worker["progress"] or {}), "detail": None})
    first = [worker["component"], status, worker["pid"], memory]
    first += [show.gpus(worker.get("gpus") or ())] if gpus else []
    return [*first, worker["jobs"], worker["restart_count"], left, busy_for, show.in_hand(worker), progress, reason]


def _node(node: dict[str, Any]) -> list[Any]:
    crews = show.staff((crew["crew"], crew["live"], crew["configured"]) for crew in node["crews"])
    status = f"{node['status']} ({node['drain']})" if node["drain"] else node["status"]
    times = [show.ago(node[name]) for name in ("started_ms", "last_beat_ms")]
    about = "; ".join(filter(None, (node["reason"], crews))) or None
    return [node["name"], status, node["machine"], node["pid"], node["version"], *times, about]


def _queue(queue: dict[str, Any]) -> list[Any]:
    def span(seconds: float | None) -> str | None:
        return None if seconds is None else show.span(seconds)

    counts = [queue[name] for name in ("name", "queued", "running", "done", "failed")]
    times = [span(queue[name]) for name in ("mean_duration_s", "eta_s", "oldest_wait_s")]
    return [*counts, f"{queue['rate']:g}", *times]


def _failure(job: dict[str, Any]) -> list[Any]:
    return [
        job["label"] or job["id"],
        job["queue"],
        show.ago(job["finished_ms"]),
        job["reason"],
        job["cause"],
    ]
