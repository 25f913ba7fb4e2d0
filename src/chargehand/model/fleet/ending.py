"""Stops a worker: asks it, terminates its children, kills it; or, if it is hung, requests stack traces and kills it.

Pure. The stages: 1 asked through its sockets; 2 children terminated, or stack traces requested; 3 and more killed.
"""

from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.lifecycle import Action, Ask, Dismiss, DumpStacks, Kill, Status, Terminate
from chargehand.model.fleet.place import Place
from chargehand.model.fleet.policy import LivenessPolicy


class Ending:
    """Takes one place at a time through the stages."""

    def __init__(self, policy: LivenessPolicy) -> None:
        self._policy = policy

    def ask(self, place: Place, now: float) -> list[Action]:
        """Asks the worker to exit; it has the grace period to finish its job."""
        if not place.resting:
            place.move(Status.STOPPING)
        self._stage(place, 1, now + self._policy.grace)
        return [Ask(place.component)]

    def condemn(self, place: Place, reason: Reason, now: float) -> list[Action]:
        """Requests stack traces from a worker that is then killed for this reason."""
        if place.verdict is not None:
            return []
        place.verdict = reason
        self._stage(place, 2, now + self._policy.stacks)
        return [Dismiss(place.component), DumpStacks(place.component, reason)]

    def expect_exit(self, place: Place, reason: Reason, now: float) -> list[Action]:
        """Waits for a worker that exits by itself for this reason; it is killed if it does not."""
        place.verdict = reason
        self._stage(place, 2, now + self._policy.terminate)
        return [Dismiss(place.component)]

    def kill(self, place: Place, reason: Reason, now: float) -> list[Action]:
        """Kills the worker at once."""
        place.verdict = reason
        self._stage(place, 3, now + self._policy.terminate)
        return [Dismiss(place.component), Kill(place.component, reason)]

    def press(self, place: Place, now: float) -> list[Action]:
        """Takes a worker that has not exited yet to the next stage."""
        self._stage(place, place.stage + 1, now + self._policy.terminate)
        if place.stage == 2:
            return [Terminate(place.component)]
        reason = place.verdict or place.why_leave or Reason.STOPPED
        if place.stage > 3:
            place.text = f"unkillable: pid {place.pid} did not exit after SIGKILL ({reason})"
        return [Kill(place.component, reason)]

    def _stage(self, place: Place, stage: int, press_at: float) -> None:
        place.stage, place.press_at = stage, press_at
        place.look_at = place.job_until = place.cancel_at = place.sleep_at = None
