"""Detects that the supervisor itself was delayed: stopped, suspended with the machine, or slow."""

LATE = 1.0
"""Delays of more than this many seconds are not charged to the workers."""


class Pace:
    """Measures the time between any two steps of the supervisor."""

    def __init__(self, now: float) -> None:
        self._seen = now

    def late(self, now: float, waited: float = 0.0) -> float:
        """Returns the seconds since the last call beyond the planned wait; 0 if at most LATE."""
        over = now - self._seen - waited
        self._seen = now
        return over if over > LATE else 0.0
