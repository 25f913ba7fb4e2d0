"""Decides whether a worker is alive, busy or hung, from its frames, its main thread's counter and its CPU time.

Pure. A busy worker is never considered hung: silence counts only if no CPU time is used.
"""

from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.lifecycle import Action, Examine, Examined, Status
from chargehand.model.fleet.place import Place
from chargehand.model.fleet.policy import LivenessPolicy
from chargehand.model.fleet.usage import shows_work

LONGEST_LOAD = 86_400.0
"""The maximum number of seconds that a worker may request at once."""
ROUNDING = 1e-6
"""The tolerance, in seconds, for rounding errors of sums of times."""
IDLE_SHARE, IDLE_CPU = 0.002, 0.05
"""The CPU time that counts as none in a job that makes no progress: a share of a core, plus seconds."""


class Watch:
    """Judges one place at a time; the caller acts on a verdict (a Reason) if one is returned."""

    def __init__(self, policy: LivenessPolicy) -> None:
        self._policy = policy

    def begin(self, place: Place) -> None:
        """Starts to watch a new process: its first frame is awaited."""
        place.look_at = self._deadline(place)

    def framed(self, place: Place, turns: int, now: float) -> Reason | list[Action]:
        """Records a frame. Returns a verdict if the main thread has made no progress for too long."""
        place.framed, place.framed_at, place.cpu, place.unresponsive = True, now, None, False
        place.look_at = self._deadline(place)
        if turns != place.turns:
            place.turns = turns
            self.turned(place, now)
            return []
        if place.status not in (Status.HEALTHY, Status.PAUSED):
            return []
        if place.job is None:
            return Reason.HUNG if now - place.turned_at >= self._policy.idle else []
        if place.slots and now - place.turned_at >= self._policy.lag:
            place.stalled = True  # a job blocks the event loop, which would have advanced the counter
        if not place.endless:
            return []  # the job's timeout applies
        if place.still_cpu is None or now - place.still_since >= self._policy.still:
            return [Examine(place.component)]
        return []

    def turned(self, place: Place, now: float) -> None:
        """Records that the main thread has made progress."""
        place.turned_at, place.still_cpu, place.stalled = now, None, False

    def more_time(self, place: Place, seconds: float, now: float) -> None:
        """Extends the time limit of a starting worker."""
        place.load_until = max(place.load_until, now + min(seconds, LONGEST_LOAD))
        if place.status is Status.STARTING:
            place.look_at = self._deadline(place)

    def _deadline(self, place: Place) -> float:
        """Returns when silence is examined: half-way, to read the CPU time first, and at the limit."""
        if place.status is Status.STARTING and not place.framed:
            return place.started_at + self._policy.first_frame
        silence = place.framed_at + self._policy.silent / (2 if place.cpu is None else 1)
        return min(silence, place.load_until) if place.status is Status.STARTING else silence

    def look(self, place: Place, now: float) -> Reason | list[Action]:
        """Examines a worker whose deadline has passed."""
        if place.status is Status.STARTING and (now >= place.load_until or not place.framed):
            return Reason.START_TIMEOUT
        # The requested reading arrives before this time.
        place.look_at = now + self._policy.silent
        return [Examine(place.component)]

    def examined(self, place: Place, reading: Examined, now: float) -> Reason | None:
        """Judges a reading of the CPU time, taken because of silence or because the main thread makes no progress.

        A worker that waits until the node reads its output is not judged: such a reading begins a new period.
        """
        cpu, silent_for = reading.cpu, now - place.framed_at
        if silent_for < self._policy.silent / 2:
            place.look_at = self._deadline(place)
            return self._still(place, reading, now)
        if cpu is None:  # the worker is dead, but its descendants are not yet
            place.look_at = now + self._policy.silent / 2
            return None
        if place.cpu is not None and silent_for >= self._policy.silent - ROUNDING:
            if not reading.behind and not shows_work(place.cpu, cpu, now - place.cpu_at):
                return Reason.HEARTBEAT_TIMEOUT
            place.unresponsive = True
        first = place.cpu is None
        place.cpu, place.cpu_at = cpu, now
        # Silent but busy: C code holds the GIL. It is examined again, and never killed for being busy.
        place.look_at = place.framed_at + self._policy.silent if first else now + self._policy.silent / 2
        return None

    def _still(self, place: Place, reading: Examined, now: float) -> Reason | None:
        """Judges a worker whose main thread makes no progress in a job without a timeout."""
        if reading.cpu is None or not place.endless:
            return None
        cpu = reading.cpu.total
        if place.still_cpu is None or reading.behind:
            place.still_cpu, place.still_since = cpu, now
            return None
        passed = now - place.still_since
        if passed < self._policy.still:
            return None
        if abs(cpu - place.still_cpu) <= IDLE_CPU + IDLE_SHARE * passed:
            return Reason.HUNG
        place.still_cpu, place.still_since = cpu, now
        place.stalled |= now - place.turned_at >= self._policy.stalled
        return None
