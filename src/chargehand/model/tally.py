"""The node's counters for metrics: how long jobs wait and run, and how long the store takes. Pure and cheap."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from chargehand.model.job import Claim, Done, Outcome, Settled
from chargehand.model.spread import COARSE, FINE, coarser
from chargehand.model.status import HistogramStatus, TallyStatus

STORE_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)


MANY = 500
"""How many observations are collected before they are counted, which is cheaper than one by one."""


class Histogram:
    """A histogram of seconds: one count per upper bound, and a last one for everything beyond."""

    __slots__ = ("bounds", "counts", "new", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.new: list[float] = []
        """Observations that are not counted yet."""

    def observe(self, seconds: float) -> None:
        self.new.append(seconds)
        if len(self.new) >= MANY:
            self._count()

    def _count(self) -> None:
        bounds, counts = self.bounds, self.counts
        for seconds in self.new:
            counts[bisect_left(bounds, seconds)] += 1
        self.total += sum(self.new)
        self.new.clear()

    def view(self) -> HistogramStatus:
        """Returns the bounds, the counts and the sum."""
        return HistogramStatus(bounds=tuple(self.bounds), counts=tuple(self.now()), total=round(self.total, 6))

    def now(self) -> list[int]:
        """Returns the counts."""
        self._count()
        return self.counts


class Tally:
    """The counters since the node started."""

    def __init__(self, queues: Collection[str]) -> None:
        self._waits = {queue: Histogram(FINE) for queue in queues}
        self._runs = {queue: Histogram(FINE) for queue in queues}
        self._ended: Counter[tuple[str, type[Outcome]]] = Counter()
        self._crashes: Counter[tuple[str, str]] = Counter()
        self._claim, self._settle = Histogram(STORE_BOUNDS), Histogram(STORE_BOUNDS)
        self._pending: float | None = None
        self._sent: float | None = None
        self._sent_at = 0.0

    # jobs

    def started(self, queue: str, claim: Claim) -> None:
        """Records how long a job that a worker is handed had been due. A claim that is given back is not counted."""
        self._waits[queue].observe(claim.waited_ms / 1000)

    def ended(self, queue: str, outcome: Outcome, seconds: float) -> None:
        """Records how long a worker held a job."""
        self._runs[queue].observe(seconds)
        self._ended[queue, type(outcome)] += 1

    def crashed(self, crew: str, reason: str) -> None:
        """Records a crash report."""
        self._crashes[crew, reason] += 1

    def durations(self, queue: str) -> tuple[list[int], list[int]] | None:
        """Returns how many jobs waited and ran how long, by the bounds of FINE; None if no crew serves the queue."""
        if queue not in self._waits:
            return None
        return self._waits[queue].now(), self._runs[queue].now()

    # the store

    def pending(self, now: float) -> None:
        """Records that an outcome waits to be written, if none did."""
        if self._pending is None:
            self._pending = now

    def sent(self, now: float) -> None:
        """Records that a batch with all outcomes so far was sent to the store."""
        self._sent_at, self._sent, self._pending = now, self._pending, None

    def committed(self, now: float, *, settled: bool, claimed: bool) -> None:
        """Records that the batch was committed, and whether it settled and claimed jobs."""
        if claimed:
            self._claim.observe(now - self._sent_at)
        if settled and self._sent is not None:
            self._settle.observe(now - self._sent)

    def failed(self) -> None:
        """Records that the batch failed: its outcomes still wait."""
        self._pending, self._sent = self._sent if self._sent is not None else self._pending, None

    def view(self, events_dropped: int, restarts: Mapping[str, int] = MappingProxyType({})) -> TallyStatus:
        """Returns the counters for the status of the node; `restarts` has those of each crew."""
        return TallyStatus(
            wait={queue: _coarse(found) for queue, found in self._waits.items()},
            run={queue: _coarse(found) for queue, found in self._runs.items()},
            ended=tuple((*names, count) for names, count in self._how_ended().items()),
            crashes=tuple((*names, count) for names, count in self._crashes.items()),
            claim=self._claim.view(),
            settle=self._settle.view(),
            restarts=dict(restarts),
            events_dropped=events_dropped,
        )

    def _how_ended(self) -> Counter[tuple[str, str]]:
        ended: Counter[tuple[str, str]] = Counter()
        for (queue, kind), count in self._ended.items():
            ended[queue, "done" if kind is Done or kind is Settled else kind.__name__.lower()] += count
        return ended


def _coarse(found: Histogram) -> HistogramStatus:
    return HistogramStatus(bounds=COARSE, counts=coarser(found.now()), total=round(found.total, 6))
