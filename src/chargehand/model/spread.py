"""How long jobs waited and ran lately: p50 and p95 from histograms, of one node or of several together. Pure.

Every job is counted in a histogram anyway. The spread of the last minutes is the difference between its counts now and
its counts then, so it costs nothing for each job, and its memory is bounded.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence

WINDOW = 300.0
"""The seconds that p50 and p95 are about, at most; less if the node has just started."""
MARK = 20.0
"""Seconds between two remembered counts, at least."""
COARSE = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
"""The upper bounds in seconds of the histograms for metrics."""
_PARTS = 4
"""Parts into which each power of two is divided: a quantile is exact to about a fifth."""
_LEAST, _DOUBLINGS = 0.001, 24
FINE = tuple(sorted({*COARSE, *(_LEAST * 2 ** (step / _PARTS) for step in range(_DOUBLINGS * _PARTS + 1))}))
"""The upper bounds in seconds, from 1 ms to 4.6 hours, with those of COARSE; the last count is of everything beyond."""

Counts = tuple[int, ...]
"""Numbers of jobs: the number of the first bound that has any, then the counts from there on. Empty: no jobs."""


class Recent:
    """Remembers the counts of one histogram for as long as WINDOW. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, tuple[int, ...]]] = deque()

    def look(self, counts: Sequence[int], now: float) -> Counts:
        """Returns what was counted within WINDOW."""
        while len(self._marks) > 1 and self._marks[1][0] <= now - WINDOW:
            self._marks.popleft()
        before = self._marks[0][1] if self._marks else (0,) * len(counts)
        if not self._marks or now >= self._marks[-1][0] + MARK:
            if not self._marks:
                self._marks.append((now - WINDOW, before))
            self._marks.append((now, tuple(counts)))
        return packed([max(0, count - then) for count, then in zip(counts, before, strict=True)])


def packed(counts: Sequence[int]) -> Counts:
    """Returns counts without the zeros before and after them."""
    filled = [at for at, count in enumerate(counts) if count]
    return (filled[0], *counts[filled[0] : filled[-1] + 1]) if filled else ()


def together(spreads: Iterable[Counts]) -> Counts:
    """Returns the counts of several nodes as one."""
    total = [0] * (len(FINE) + 1)
    for spread in spreads:
        for at, count in enumerate(spread[1:], spread[0] if spread else 0):
            if 0 <= at < len(total):
                total[at] += count
    return packed(total)


def quantile(spread: Counts, part: float) -> float | None:
    """Returns the seconds within which this part of the jobs was; None if there were none."""
    count = sum(spread[1:])
    if not count:
        return None
    rank, before = part * count, 0
    for at, here in enumerate(spread[1:], spread[0]):
        if here and before + here >= rank:
            if at >= len(FINE):
                return FINE[-1]
            low = FINE[at - 1] if at else 0.0
            return low + (FINE[at] - low) * (rank - before) / here
        before += here
    return FINE[-1]


def coarser(counts: Sequence[int]) -> tuple[int, ...]:
    """Returns the counts by FINE as counts by COARSE."""
    found = [0] * (len(COARSE) + 1)
    for bound, count in zip((*FINE, float("inf")), counts, strict=True):
        found[bisect_left(COARSE, bound)] += count
    return tuple(found)
