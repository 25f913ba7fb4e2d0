"""The throughput of a queue: jobs per second and mean duration over the last minute. Pure.

Counting is cheap, because it is done for every job, even if nothing reads the figures.
"""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from chargehand.model import spread
from chargehand.model.spread import Counts, Recent

WINDOW = 60.0
STEP = 5.0
"""The length of one slot in seconds; the figures change at its end."""


class Slot(msgspec.Struct):
    """The jobs that ended within one slot."""

    until: float
    ended: int = 0
    seconds: float = 0.0


class Share(msgspec.Struct, array_like=True, frozen=True):
    """The throughput of a queue in one node."""

    rate: float = 0.0
    """Jobs per second."""
    mean: float | None = None
    """The mean duration of a job in seconds; None if none has ended."""
    waits: Counts = ()
    """How many jobs waited how long, within the last minutes."""
    runs: Counts = ()
    """How many jobs ran how long, within the last minutes."""


class Figures:
    """The figures of one queue. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        self._since: float | None = None
        self._waits, self._runs = Recent(), Recent()

    def began(self, now: float) -> None:
        """Records that jobs were claimed; starts a new run if none ended within the window."""
        self._expire(now)
        if not self._slots and (self._since is None or self._since <= now - WINDOW):
            self._since = now

    def ended(self, count: int, seconds: float, now: float) -> None:
        """Records that `count` jobs have ended, which took `seconds` altogether."""
        if not self._slots or self._slots[-1].until <= now:
            self._slots.append(Slot(now + STEP))
        slot = self._slots[-1]
        slot.ended += count
        slot.seconds += seconds

    def _expire(self, now: float) -> None:
        while self._slots and self._slots[0].until <= now - WINDOW:
            self._slots.popleft()

    def moved(self, now: float) -> bool:
        """Whether a slot has left the window since the last call of any method."""
        before = len(self._slots)
        self._expire(now)
        return len(self._slots) < before

    def rate(self, now: float) -> float:
        """Returns jobs per second, over the last minute or the current run, whichever is shorter."""
        self._expire(now)
        if not self._slots:
            return 0.0
        begin = max(now - WINDOW, self._slots[0].until - STEP if self._since is None else self._since)
        return sum(slot.ended for slot in self._slots) / max(now - begin, 1.0)

    def mean(self, now: float) -> float | None:
        """Returns the mean duration of a job in seconds; None if none has ended."""
        self._expire(now)
        count = sum(slot.ended for slot in self._slots)
        return sum(slot.seconds for slot in self._slots) / count if count else None

    def share(self, now: float, durations: tuple[Sequence[int], Sequence[int]] | None = None) -> Share:
        """Returns all figures. `durations`: how many jobs waited and ran how long since the node started."""
        if durations is None:
            return Share(self.rate(now), self.mean(now))
        waits, runs = durations
        return Share(self.rate(now), self.mean(now), self._waits.look(waits, now), self._runs.look(runs, now))


def together(shares: Iterable[Share]) -> Share:
    """Returns the throughput in all nodes: the sum of the rates, and the mean weighted by them."""
    every = list(shares)
    found = [share for share in every if share.rate]
    timed = [(share.rate, share.mean) for share in found if share.mean is not None]
    weight = sum(rate for rate, _ in timed)
    return Share(
        sum(share.rate for share in found),
        sum(rate * mean for rate, mean in timed) / weight if weight else None,
        spread.together(share.waits for share in every),
        spread.together(share.runs for share in every),
    )


def eta(due: int, rate: float) -> float | None:
    """Returns the seconds until all due jobs are done; None if unknown."""
    if not due:
        return 0.0
    return due / rate if rate else None


def rounded(value: float | None) -> float | None:
    """Rounds to three significant digits, so that insignificant changes are not sent to subscribers."""
    return None if value is None else float(f"{value:.3g}")
