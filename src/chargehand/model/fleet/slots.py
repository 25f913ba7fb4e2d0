"""The deadlines of jobs that one worker performs at the same time: each has its own timeout and its own cancellation.

Pure. A job whose time is over is asked to end first: its task is cancelled. The worker is replaced only if the job does
not end within the grace period of a cancelled job.
"""

from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.lifecycle import Action, CancelJob, ExpireJob
from chargehand.model.fleet.place import Place, Slot
from chargehand.model.fleet.policy import LivenessPolicy


class Slots:
    """Handles the jobs of one place at a time; the caller acts on a verdict (a Reason) if one is returned."""

    def __init__(self, policy: LivenessPolicy) -> None:
        self._policy = policy

    def began(self, place: Place, job: str, timeout: float | None, now: float) -> bool:
        """Records that the worker received a job, or is to call `discover`. Returns whether it held nothing before."""
        slot = Slot(None if timeout is None else now + timeout)
        place.slots[job] = slot
        place.endless |= timeout is None
        self._expect(place, slot)
        first = place.job is None
        if first:
            place.job = job
        else:
            place.others.add(job)
        return first

    def ended(self, place: Place, job: str) -> None:
        """Records that a job, or a call of `discover`, has ended."""
        slot = place.slots.pop(job)
        place.recalled.discard(job)
        if job != place.job:
            place.others.discard(job)
        else:
            place.job = place.others.pop() if place.others else None
        if slot.until is None:
            place.endless = any(other.until is None for other in place.slots.values())
        if place.job is None:
            place.job_until = None

    def cancel(self, place: Place, job: str, now: float) -> list[Action]:
        """Asks a job to end because it was cancelled."""
        slot = place.slots[job]
        place.recalled.add(job)
        if slot.end_at is None:
            slot.end_at = now + self._policy.cancel
            self._expect(place, slot)
        return [CancelJob(place.component, job)]

    def due(self, place: Place, now: float) -> Reason | list[Action]:
        """Asks jobs to end whose timeout is over. Returns a verdict if a job that was asked has not ended in time."""
        actions: list[Action] = []
        for job, slot in place.slots.items():
            if slot.end_at is not None and slot.end_at <= now:
                if not slot.expired:
                    return Reason.CANCELLED
                place.blocked = self._is_blocked(place, slot.end_at - self._policy.cancel)
                return Reason.JOB_TIMEOUT
            if slot.end_at is None and slot.until is not None and slot.until <= now:
                slot.expired, slot.end_at = True, now + self._policy.cancel
                actions.append(ExpireJob(place.component, job))
        place.job_until = min((slot.due for slot in place.slots.values() if slot.due is not None), default=None)
        return actions

    def _is_blocked(self, place: Place, asked_at: float) -> bool:
        """Returns whether several jobs are late because the event loop has not run since one of them was asked to end:
        any job in hand may be the one that blocks it."""
        stands = place.turned_at < asked_at and (place.stalled or place.framed_at < asked_at)
        return stands and sum(slot.expired for slot in place.slots.values()) > 1

    def _expect(self, place: Place, slot: Slot) -> None:
        """Notes the next deadline. It is not computed again whenever a job ends: it may be too early, never too
        late."""
        if slot.due is not None:
            place.job_until = slot.due if place.job_until is None else min(place.job_until, slot.due)
