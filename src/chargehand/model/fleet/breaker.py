"""The circuit breaker of a crew: if all its workers crash of the same cause, only one of them is restarted.

Pure. Only crashes without a job count: a crash with a job is attributed to the job first, which quarantine handles.
"""

from collections.abc import Mapping, Sequence

import msgspec

from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.lifecycle import Status
from chargehand.model.fleet.place import After, Place
from chargehand.model.fleet.policy import RestartPolicy


class Breaker(msgspec.Struct, frozen=True):
    """An open breaker: the probe, which is the only worker that is restarted, and the cause of the crashes."""

    probe: str
    cause: str


class Breakers:
    """The open breakers, by crew."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self.open: dict[str, Breaker] = {}

    def crashed(self, crew: str, places: Sequence[Place], now: float) -> Breaker | None:
        """Returns the breaker that this crash opens, if any. All crashed workers but the probe then wait."""
        opened = None
        if crew not in self.open:
            opened = self._opens(places, now)
            if opened is None:
                return None
            self.open[crew] = opened
        for place in places:
            if opened is None and place.in_line:
                continue  # an operator started it, regardless of the breaker
            if place.status is Status.CRASHED and place.component != self.open[crew].probe:
                place.start_at, place.behind_breaker, place.reason = None, True, Reason.BREAKER
        return opened

    def _opens(self, places: Sequence[Place], now: float) -> Breaker | None:
        """Returns a breaker if all workers of the crew (two or more) crashed of one cause within the window."""
        here = [place for place in places if place.status is not Status.FAILED or place.in_line]
        concerned = [place for place in here if place.after in (None, After.START)]
        since = now - self._policy.breaker_window
        causes = {
            place.idle_crash_cause.key
            if place.idle_crash_cause and place.idle_crash_at is not None and place.idle_crash_at >= since
            else None
            for place in concerned
        }
        if len(concerned) < 2 or len(causes) != 1 or None in causes:
            return None
        living = [place for place in concerned if place.alive or place.in_line]
        # The probe is a worker that is already running again, or else the one that would restart first.
        first = min(concerned, key=lambda place: now if place.start_at is None else place.start_at)
        probe = living[0] if living else first
        assert probe.idle_crash_cause is not None
        return Breaker(probe.component, probe.idle_crash_cause.text)

    def due(self, crew: str, places: Mapping[str, Place]) -> float | None:
        """Returns when the breaker closes: once the probe has run long enough, or at once if the probe was removed."""
        probe = places.get(self.open[crew].probe)
        if probe is None or probe.after not in (None, After.START):
            return 0.0
        return None if probe.ready_at is None else probe.ready_at + self._policy.healthy_after

    def next_due(self, places: Mapping[str, Place]) -> list[float | None]:
        """Returns when each open breaker closes."""
        return [self.due(crew, places) for crew in self.open]
