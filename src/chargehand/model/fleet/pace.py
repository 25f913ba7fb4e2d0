"""Whether the supervisor itself was held up: stopped, asleep with the machine, or slow."""

LATE = 1.0
"""Seconds; whatever came later than planned by more than this is forgiven to the workers."""


class Pace:
    """Looks at the clock between any two things that a supervisor does, so that it misses no moment of its own."""

    def __init__(self, now: float) -> None:
        self._seen = now

    def late(self, now: float, waited: float = 0.0) -> float:
        """Seconds since the last look, beyond those that it meant to wait; 0 if they are too few to matter."""
        over = now - self._seen - waited
        self._seen = now
        return over if over > LATE else 0.0
