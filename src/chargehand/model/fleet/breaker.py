"""When all of a crew crash of the same cause, one is tried further instead of all budgets being burnt.

Pure. Only deaths without a job in hand count: a crash with one is the job's affair first, and quarantine sees to that.
"""

from collections.abc import Mapping, Sequence

import msgspec

from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.lifecycle import Status
from chargehand.model.fleet.place import After, Place
from chargehand.model.fleet.policy import RestartPolicy


class Breaker(msgspec.Struct, frozen=True):
    """An open breaker: the worker that is tried for all, and what they crashed of."""

    probe: str
    cause: str


class Breakers:
    """The open breakers, by crew."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self.open: dict[str, Breaker] = {}

    def crashed(self, crew: str, places: Sequence[Place], now: float) -> Breaker | None:
        """Somebody of the crew crashed and would come back: a breaker, if that opens one. All but the probe wait."""
        opened = None
        if crew not in self.open:
            opened = self._opens(places, now)
            if opened is None:
                return None
            self.open[crew] = opened
        for place in places:
            if opened is None and place.in_line:
                continue  # a person wants it back, breaker or not
            if place.status is Status.CRASHED and place.component != self.open[crew].probe:
                place.start_at, place.behind_breaker, place.reason = None, True, Reason.BREAKER
        return opened

    def _opens(self, places: Sequence[Place], now: float) -> Breaker | None:
        """Of two or more that are to be at work, all crashed within the window, of one cause."""
        here = [place for place in places if place.status is not Status.FAILED or place.in_line]
        concerned = [place for place in here if place.after in (None, After.START)]
        since = now - self._policy.breaker_window
        causes = {
            place.idle_crash_cause if place.idle_crash_at is not None and place.idle_crash_at >= since else None
            for place in concerned
        }
        if len(concerned) < 2 or len(causes) != 1 or None in causes:
            return None
        living = [place for place in concerned if place.alive or place.in_line]
        # Whoever is back already is the one that is tried; else the one that would come back first.
        first = min(concerned, key=lambda place: now if place.start_at is None else place.start_at)
        probe = living[0] if living else first
        return Breaker(probe.component, str(probe.idle_crash_cause))

    def due(self, crew: str, places: Mapping[str, Place]) -> float | None:
        """When the probe will have run well for long enough, as far as is known now; at once if it is no more."""
        probe = places.get(self.open[crew].probe)
        if probe is None or probe.after not in (None, After.START):
            return 0.0
        return None if probe.ready_at is None else probe.ready_at + self._policy.healthy_after

    def next_due(self, places: Mapping[str, Place]) -> list[float | None]:
        """When a breaker closes."""
        return [self.due(crew, places) for crew in self.open]
