"""How fast a queue gets done: jobs a second and their mean length over the last minute. Pure.

Counting is cheap, because it is done for every job, whether somebody looks or not.
"""

from collections import deque
from typing import Any

import msgspec

WINDOW = 60.0
STEP = 5.0
"""Seconds in one slot: the figures move on at its end, not all the time."""


class Slot(msgspec.Struct):
    """What ended within a few seconds."""

    until: float
    ended: int = 0
    seconds: float = 0.0


class Figures:
    """Of one queue. Moments are monotonic seconds."""

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        self._since: float | None = None

    def began(self, now: float) -> None:
        """Jobs were taken: if nothing ended for a whole window, this is a new run."""
        self._expire(now)
        if not self._slots and (self._since is None or self._since <= now - WINDOW):
            self._since = now

    def ended(self, count: int, seconds: float, now: float) -> None:
        """So many jobs have ended, which took so many seconds together."""
        if not self._slots or self._slots[-1].until <= now:
            self._slots.append(Slot(now + STEP))
        slot = self._slots[-1]
        slot.ended += count
        slot.seconds += seconds

    def _expire(self, now: float) -> None:
        while self._slots and self._slots[0].until <= now - WINDOW:
            self._slots.popleft()

    def moved(self, now: float) -> bool:
        """Whether something has fallen out of the window since this was last asked, or was counted."""
        before = len(self._slots)
        self._expire(now)
        return len(self._slots) < before

    def rate(self, now: float) -> float:
        """Jobs a second, over the last minute or the present run, whichever is shorter."""
        self._expire(now)
        if not self._slots:
            return 0.0
        begin = max(now - WINDOW, self._slots[0].until - STEP if self._since is None else self._since)
        return sum(slot.ended for slot in self._slots) / max(now - begin, 1.0)

    def mean(self, now: float) -> float | None:
        """Seconds that a job took."""
        self._expire(now)
        count = sum(slot.ended for slot in self._slots)
        return sum(slot.seconds for slot in self._slots) / count if count else None


def eta(due: int, rate: float) -> float | None:
    """Seconds until what is due is done; None if nobody can tell."""
    if not due:
        return 0.0
    return due / rate if rate else None


def rounded(value: float | None) -> float | None:
    """Three figures: more would be news every moment."""
    return None if value is None else float(f"{value:.3g}")


def together(queues: list[dict[str, Any]]) -> dict[str, Any]:
    """All queues as one: sums; the mean by what ended; done when the last one is."""
    total: dict[str, Any] = {"name": None}
    for name in ("queued", "future", "limited", "running", "done", "failed", "cancelled"):
        total[name] = sum(queue[name] for queue in queues)
    total["rate"] = rounded(sum(queue["rate"] for queue in queues)) or 0.0
    moving = [queue for queue in queues if queue["rate"] and queue["mean_duration_s"] is not None]
    share = sum(queue["rate"] for queue in moving)
    total["mean_duration_s"] = (
        rounded(sum(queue["mean_duration_s"] * queue["rate"] for queue in moving) / share) if share else None
    )
    etas = [queue["eta_s"] for queue in queues]
    total["eta_s"] = None if None in etas else max(etas, default=0.0)
    waits = [queue["oldest_wait_s"] for queue in queues if queue["oldest_wait_s"] is not None]
    total["oldest_wait_s"] = max(waits, default=None)
    total["last_done_ms"] = max((q["last_done_ms"] for q in queues if q["last_done_ms"] is not None), default=None)
    return total
