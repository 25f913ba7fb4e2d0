"""How a worker is brought to its end: asked, then pressed, then killed; or condemned, and first asked where it stands.

Pure. The stages: 1 asked through its sockets, 2 its children terminated (or its stacks asked for), 3 and on killed.
"""

from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.lifecycle import Action, Ask, Dismiss, DumpStacks, Kill, Status, Terminate
from chargehand.model.fleet.place import Place
from chargehand.model.fleet.policy import LivenessPolicy


class Ending:
    """The stages of an end, for one place at a time."""

    def __init__(self, policy: LivenessPolicy) -> None:
        self._policy = policy

    def ask(self, place: Place, now: float) -> list[Action]:
        """Ask it to stop; it has the grace to finish what it does."""
        place.move(Status.STOPPING)
        self._stage(place, 1, now + self._policy.grace)
        return [Ask(place.component)]

    def condemn(self, place: Place, reason: Reason, now: float) -> list[Action]:
        """It is to be killed, but first asked where it stands."""
        if place.verdict is not None:
            return []
        place.verdict = reason
        self._stage(place, 2, now + self._policy.stacks)
        return [Dismiss(place.component), DumpStacks(place.component, reason)]

    def kill(self, place: Place, reason: Reason, now: float) -> list[Action]:
        """It is killed at once."""
        place.verdict = reason
        self._stage(place, 3, now + self._policy.terminate)
        return [Dismiss(place.component), Kill(place.component, reason)]

    def press(self, place: Place, now: float) -> list[Action]:
        """It is not gone yet: the next stage."""
        self._stage(place, place.stage + 1, now + self._policy.terminate)
        if place.stage == 2:
            return [Terminate(place.component)]
        reason = place.verdict or place.why_leave or Reason.STOPPED
        if place.stage > 3:
            place.text = f"unkillable: pid {place.pid} did not die of a SIGKILL ({reason})"
        return [Kill(place.component, reason)]

    def _stage(self, place: Place, stage: int, press_at: float) -> None:
        place.stage, place.press_at = stage, press_at
        place.look_at = place.job_until = place.cancel_at = place.sleep_at = None
