"""Is a worker alive, busy, or hung? Judged from three witnesses: its frames, its working thread's counter, and the CPU
time that the kernel says it used.

Pure. A worker is never found hung for being busy: silence counts only without CPU time.
"""

from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.lifecycle import Action, Examine, Status
from chargehand.model.fleet.place import Place
from chargehand.model.fleet.policy import LivenessPolicy

LONGEST_LOAD = 86_400.0
"""Seconds that a worker may ask for at once."""
ROUNDING = 1e-6
"""Seconds by which a sum of moments may miss the limit that it was planned for."""
OWN_SHARE, OWN_CPU = 0.002, 0.05
"""What the pulse itself may use while the working thread stands still: a share of the time, and seconds."""


class Watch:
    """The judgement on one place at a time; the caller acts on a verdict (a Reason) when one comes back."""

    def __init__(self, policy: LivenessPolicy) -> None:
        self._policy = policy

    def begin(self, place: Place) -> None:
        """A process was started: its first frame is awaited."""
        place.look_at = self._deadline(place)

    def framed(self, place: Place, turns: int, now: float) -> Reason | list[Action]:
        """The worker spoke. A verdict, if its working thread has stood still for too long."""
        place.heard, place.framed_at, place.cpu, place.unresponsive = True, now, None, False
        place.look_at = self._deadline(place)
        if turns != place.turns:
            place.turns = turns
            self.turned(place, now)
            return []
        if place.status not in (Status.HEALTHY, Status.PAUSED):
            return []
        if place.job is None:
            return Reason.HUNG if now - place.turned_at >= self._policy.idle else []
        if not place.endless:
            return []  # the job's timeout rules
        if place.still_cpu is None or now - place.still_since >= self._policy.still:
            return [Examine(place.component)]
        return []

    def turned(self, place: Place, now: float) -> None:
        """The working thread did something."""
        place.turned_at, place.still_cpu, place.stalled = now, None, False

    def more_time(self, place: Place, seconds: float, now: float) -> None:
        """A worker that is loading asks for time."""
        place.load_until = max(place.load_until, now + min(seconds, LONGEST_LOAD))
        if place.status is Status.STARTING:
            place.look_at = self._deadline(place)

    def _deadline(self, place: Place) -> float:
        """When silence is to be looked at: half-way, for a first reading of the CPU time, and at the limit."""
        if place.status is Status.STARTING and not place.heard:
            return place.started_at + self._policy.first_frame
        silence = place.framed_at + self._policy.silent / (2 if place.cpu is None else 1)
        return min(silence, place.load_until) if place.status is Status.STARTING else silence

    def look(self, place: Place, now: float) -> Reason | list[Action]:
        """The moment to look has come."""
        if place.status is Status.STARTING and (now >= place.load_until or not place.heard):
            return Reason.START_TIMEOUT
        # Not before the reading that this asks for has come: a second look is planned far away.
        place.look_at = now + self._policy.silent
        return [Examine(place.component)]

    def examined(self, place: Place, cpu: float | None, now: float) -> Reason | None:
        """The CPU time has been read, because of silence or because the counter stands still."""
        silent_for = now - place.framed_at
        if silent_for < self._policy.silent / 2:
            place.look_at = self._deadline(place)
            return self._still(place, cpu, now)
        if cpu is None:  # it is dead, but something that it left is not yet
            place.look_at = now + self._policy.silent / 2
            return None
        if place.cpu is not None and silent_for >= self._policy.silent - ROUNDING:
            if cpu == place.cpu:
                return Reason.HEARTBEAT_TIMEOUT
            place.unresponsive = True
        first = place.cpu is None
        place.cpu = cpu
        # Silent but working: C code holds the interpreter. It is looked at again, and never killed for being busy.
        place.look_at = place.framed_at + self._policy.silent if first else now + self._policy.silent / 2
        return None

    def _still(self, place: Place, cpu: float | None, now: float) -> Reason | None:
        if cpu is None or not place.endless:
            return None
        if place.still_cpu is None:
            place.still_cpu, place.still_since = cpu, now
            return None
        passed = now - place.still_since
        if passed < self._policy.still:
            return None
        if cpu - place.still_cpu <= OWN_CPU + OWN_SHARE * passed:
            return Reason.HUNG
        place.still_cpu, place.still_since = cpu, now
        place.stalled = now - place.turned_at >= self._policy.stalled
        return None
