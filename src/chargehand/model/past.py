"""The figures of queues over the last two hours: one point every ten seconds in which something changed. Pure.

It costs nothing while nothing changes, and otherwise a bounded share of time and memory.
"""

from array import array
from collections.abc import Iterable
from typing import Any, Protocol

from chargehand.model.figures import WINDOW

STEP = 10.0
"""The minimum interval between two points in seconds; longer if reading the figures takes long: see SHARE."""
SHARE = 100
"""Reading the figures may take at most 1/SHARE of the time."""
SPAN = 7200.0
"""How many seconds of history are kept."""
MOST_QUEUES = 50
WHOLE = ("at_ms", "waiting", "running", "failed")
"""The columns of whole numbers."""
TIMES = ("wait_p50_s", "wait_p95_s", "run_p50_s", "run_p95_s", "oldest_wait_s")
"""The columns of seconds, which may be unknown."""
COLUMNS = (*WHOLE, "rate", *TIMES)
_UNKNOWN = -1.0
_WIDTH = len(COLUMNS)
_KEPT = int(SPAN / STEP) * _WIDTH
NEVER = float("inf")


class QueueFigures(Protocol):
    """The figures of a queue that are kept."""

    @property
    def name(self) -> str | None: ...
    @property
    def queued(self) -> int: ...
    @property
    def future(self) -> int: ...
    @property
    def following(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def rate(self) -> float: ...
    @property
    def wait_p50_s(self) -> float | None: ...
    @property
    def wait_p95_s(self) -> float | None: ...
    @property
    def run_p50_s(self) -> float | None: ...
    @property
    def run_p95_s(self) -> float | None: ...
    @property
    def oldest_wait_s(self) -> float | None: ...


class Past:
    """The history of all queues. Times without a unit are monotonic seconds."""

    def __init__(self) -> None:
        self._rows: dict[str, array[float]] = {}
        self._until = -NEVER
        """Until when the figures change because of earlier events."""
        self._at = 0.0

    def stir(self, now: float) -> None:
        """Records that jobs have changed: rates keep changing until this has left their window."""
        self._until = now + WINDOW + STEP

    def due(self) -> float:
        """Returns when the next point is to be recorded."""
        return self._at if self._at <= self._until else NEVER

    def keep(self, queues: Iterable[QueueFigures], at_ms: int, now: float, took: float = 0.0) -> None:
        """Records the current figures; `took` is how many seconds it took to read them."""
        self._at = now + max(STEP, SHARE * took)
        named = {queue.name: queue for queue in queues if queue.name is not None}
        for gone in self._rows.keys() - named.keys():
            del self._rows[gone]
        for name, queue in named.items():
            due = queue.queued - queue.future - queue.following
            times = (_time(getattr(queue, title)) for title in TIMES)
            self._add(name, (float(at_ms), due, queue.running, queue.failed, queue.rate, *times))

    def _add(self, name: str, point: tuple[float, ...]) -> None:
        row = self._rows.get(name)
        if row is None:
            if len(self._rows) >= MOST_QUEUES:
                return
            row = self._rows[name] = array("d")
        before, step_ms = tuple(row[-_WIDTH:]), STEP * 1000
        if before[1:] == point[1:]:
            return
        if before and point[0] - before[0] > 1.5 * step_ms:  # repeat the old value: it was valid until now
            row.extend((point[0] - step_ms, *before[1:]))
        row.extend(point)
        del row[: max(0, len(row) - _KEPT)]

    def view(self, now_ms: int) -> list[dict[str, Any]]:
        """Returns every queue's points as one list per column; the first point may be older than SPAN."""
        since, found = now_ms - SPAN * 1000, list[dict[str, Any]]()
        for name, row in sorted(self._rows.items()):
            old = sum(at < since for at in row[::_WIDTH])
            kept = row[max(0, old - 1) * _WIDTH :]
            columns = {title: _shown(title, kept[at::_WIDTH]) for at, title in enumerate(COLUMNS)}
            found.append({"name": name, **columns})
        return found


def _time(seconds: float | None) -> float:
    return _UNKNOWN if seconds is None else float(f"{seconds:.2g}")


def _shown(title: str, values: "array[float]") -> list[Any]:
    if title in WHOLE:
        return [int(value) for value in values]
    return [None if value == _UNKNOWN else value for value in values] if title in TIMES else list(values)
