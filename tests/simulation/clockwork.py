"""The virtual clock: what is planned on it happens in order, and nothing else moves time."""

import heapq
from collections.abc import Callable


class Broken(AssertionError):
    """A promise was broken."""


class Clockwork:
    """A clock in seconds, and what is planned on it."""

    def __init__(self) -> None:
        self.now = 0.0
        self._planned: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0

    def after(self, delay: float, act: Callable[[], object]) -> None:
        """Plan something. Of two things at the same moment the one planned first happens first."""
        self._count += 1
        heapq.heappush(self._planned, (self.now + delay, self._count, act))

    def next_at(self) -> float:
        """When the next planned thing happens."""
        return self._planned[0][0] if self._planned else float("inf")

    def happen(self) -> None:
        """Let the next planned thing happen."""
        self.now, _, act = heapq.heappop(self._planned)
        act()

    def postpone(self, seconds: float) -> None:
        """Everything that is planned happens so much later: the whole machine stood still."""
        self._planned = [(when + seconds, count, act) for when, count, act in self._planned]
        self.now += seconds
