"""The time of a store whose clock is not that of this machine. Pure: times are parameters.

Schedules are times of the store's clock, which nodes share; their own clocks may differ by minutes. Between two
readings the time passes by the monotonic clock, so a change of the node's own clock has no effect.
"""

JITTER_MS = 1000
"""By how much a reading may lie behind because its answer was late. The clock of the store is further behind only if it
was set back."""


class StoreClock:
    """Estimates the time of the store from readings. Without any, the store has the clock of this machine."""

    def __init__(self) -> None:
        self._read: tuple[int, float] | None = None

    def read(self, store_ms: int, now: float) -> None:
        """Records the time of the store, read at this monotonic time or before."""
        estimate = self._estimate(now)
        late = estimate is not None and estimate - JITTER_MS <= store_ms <= estimate
        if not late:
            self._read = store_ms, now

    def now_ms(self, own_ms: int, now: float) -> int:
        """Returns the time of the store at this monotonic time, when it is `own_ms` by the clock of this machine."""
        estimate = self._estimate(now)
        return own_ms if estimate is None else estimate

    def _estimate(self, now: float) -> int | None:
        if self._read is None:
            return None
        store_ms, at = self._read
        return store_ms + int((now - at) * 1000)
