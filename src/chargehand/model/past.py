"""How queues fared over the last two hours: a point every ten seconds in which something changed. Pure.

It costs nothing while nothing happens, and a bounded part of the time and of the memory otherwise.
"""

from array import array
from collections.abc import Iterable, Mapping
from typing import Any

from chargehand.model.figures import WINDOW

STEP = 10.0
"""Seconds between two points, at least; longer where looking takes long: see SHARE."""
SHARE = 100
"""Of the time, looking may take this part."""
SPAN = 7200.0
"""Seconds that are kept."""
MOST_QUEUES = 50
COLUMNS = ("at_ms", "waiting", "running", "failed", "rate")
_WIDTH = len(COLUMNS)
_KEPT = int(SPAN / STEP) * _WIDTH
NEVER = float("inf")


class Past:
    """Of all queues. Moments without a unit are monotonic seconds."""

    def __init__(self) -> None:
        self._rows: dict[str, array[float]] = {}
        self._until = -NEVER
        """Until when figures move, because something happened before."""
        self._at = 0.0

    def stir(self, now: float) -> None:
        """Something has happened to jobs: rates go on changing until it has left their window."""
        self._until = now + WINDOW + STEP

    def due(self) -> float:
        """When the next point is to be kept."""
        return self._at if self._at <= self._until else NEVER

    def keep(self, queues: Iterable[Mapping[str, Any]], at_ms: int, now: float, took: float = 0.0) -> None:
        """These are the figures now; to know them took so many seconds."""
        self._at = now + max(STEP, SHARE * took)
        named = {str(queue["name"]): queue for queue in queues if queue["name"] is not None}
        for gone in self._rows.keys() - named.keys():
            del self._rows[gone]
        for name, queue in named.items():
            waiting = queue["queued"] - queue["future"]
            self._add(name, (float(at_ms), waiting, queue["running"], queue["failed"], queue["rate"] or 0.0))

    def _add(self, name: str, point: tuple[float, ...]) -> None:
        row = self._rows.get(name)
        if row is None:
            if len(self._rows) >= MOST_QUEUES:
                return
            row = self._rows[name] = array("d")
        before, step_ms = tuple(row[-_WIDTH:]), STEP * 1000
        if before[1:] == point[1:]:
            return
        if before and point[0] - before[0] > 1.5 * step_ms:  # it was so until just now: no slope from then to here
            row.extend((point[0] - step_ms, *before[1:]))
        row.extend(point)
        del row[: max(0, len(row) - _KEPT)]

    def told(self, now_ms: int) -> list[dict[str, Any]]:
        """Every queue's points, a list for each column; the first may be older: it is how things were since then."""
        since, found = now_ms - SPAN * 1000, list[dict[str, Any]]()
        for name, row in sorted(self._rows.items()):
            old = sum(at < since for at in row[::_WIDTH])
            kept = row[max(0, old - 1) * _WIDTH :]
            columns = {
                title: list(kept[at::_WIDTH]) if title == "rate" else [int(value) for value in kept[at::_WIDTH]]
                for at, title in enumerate(COLUMNS)
            }
            found.append({"name": name, **columns})
        return found
