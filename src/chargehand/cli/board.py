"""The tables that `top` draws, built from events alone."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from chargehand import clock
from chargehand.cli import show
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


def drawn(board: Board, height: int | None = None) -> RenderableType:
    """Returns the tables; workers beyond `height` lines are only counted."""
    errors = [Text(f"  {show.safe(summary(error))}") for error in board.health["errors"][:5]]
    verdict = Text(f"{show.safe(board.store)}  verdict ")
    verdict.append(board.health["status"], COLOURS.get(board.health["status"], ""))
    several = len(board.nodes) > 1
    workers = board.sorted_workers()
    queues = [queue for queue in board.sorted_queues() if queue["name"] is not None]
    taken = len(errors) + len(queues) + len(board.failures) + (len(board.nodes) + 2 if several else 0)
    room = len(workers) if height is None else max(3, height - taken - 9)
    parts: list[RenderableType] = [verdict, *errors, Text("")]
    if several:
        parts += [_table(NODES, [_node(board.nodes[name]) for name in sorted(board.nodes)], status_at=1), Text("")]
    gpus = any(worker.get("gpus") for worker in workers)
    columns = [column for column in WORKERS if column != "GPU" or gpus]
    rows = [_worker(worker, gpus=gpus) for worker in workers[:room]]
    if several:
        columns, rows = ["NODE", *columns], [[each["node"], *row] for each, row in zip(workers, rows, strict=False)]
    parts.append(_table(columns, rows, status_at=1 + several))
    if len(workers) > room:
        parts.append(Text(f"… and {len(workers) - room} more workers", "dim"))
    parts += [Text(""), _table(QUEUES, [_queue(queue) for queue in queues])]
    for queue in queues:
        if queue.get("rate_next_ms") is not None:
            parts.append(Text(show.safe(f"queue {queue['name']}: {show.rate_wait(queue['rate_next_ms'])}"), "dim"))
    if board.failures:
        parts += [Text(""), _table(FAILED, [_failure(job) for job in board.failures])]
    return Group(*parts)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]], status_at: int | None = None) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        cells = [Text(show.safe(cell)) for cell in row]
        if status_at is not None:
            cells[status_at].stylize(COLOURS.get(str(row[status_at]).partition(" ")[0], ""))
        table.add_row(*cells)
    return table


def _worker(worker: dict[str, Any], *, gpus: bool) -> list[Any]:
    status = worker["status"] + (f" ({', '.join(worker['flags'])})" if worker["flags"] else "")
    memory = f"{worker['memory'] / 2**20:.0f} MiB" if worker["memory"] else None
    budget = worker["budget"]
    left = None if budget is None else f"{budget['rapid_left']}/{budget['lifetime_left']}"
    since = worker["job_since_ms"]
    busy_for = None if since is None else show.span(max(0, clock.now_ms() - since) / 1000)
    reason = summary(worker["text"], 80) or None
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
    return [node["name"], status, node["machine"], node["pid"], node["version"], *times, crews, node["reason"]]


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
        summary(job["error"], 80),
    ]
