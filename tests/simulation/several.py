"""A simulated worker that performs several jobs at the same time, on one event loop.

A job that blocks the loop keeps all others from going on: what they would say, and what the worker was handed
meanwhile, waits until the loop runs again.
"""

from collections.abc import Callable
from typing import Any

from actors import AWAKE, Worker

from chargehand.model.job import Claim, Done, Found, Outcome, Stopped, TimedOut
from chargehand.model.ledger import Todo
from chargehand.model.search import Look

LOOK = "?"


class Several(Worker):
    """See the module."""

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self._blocker: str | None = None
        """The job, or the look, that keeps the loop from running."""
        self._unbegun: list[Claim | Look] = []
        self._unsaid: list[Callable[[], None]] = []
        self.late: set[tuple[str, int]] = set()

    @property
    def goes_on(self) -> bool:
        return not self.stuck

    def beat(self) -> None:
        """The pulse thread's rhythm: a loop that runs advances its counter, whatever it has in hand."""
        if not self.alive:
            return
        if self.runs and not self.mute:
            if self.status != "starting" and not self.stuck and not self.leaving:
                self.turn()
            self.report()
        live = self.world.profile.liveness
        self.world.after(min(live.beat, live.lag / 2), self.beat)

    # jobs

    def receive(self, todo: Todo) -> None:
        """Jobs came, or the wish that it looks for some: each is begun at once, unless the loop is blocked."""
        if isinstance(todo, Look):
            self.look = todo
            self._start(todo)
            return
        assert isinstance(todo, list)
        claims = todo
        self.hand.update({claim.id: claim for claim in claims})
        for claim in claims:
            self._start(claim)

    def _start(self, each: Claim | Look) -> None:
        if self.stuck or not self.runs:
            self._unbegun.append(each)
            return
        self.turn()
        self.report()
        self.use(0.8)
        self.world.fates.begin(self, each)
        if self.stuck:
            self._blocker = LOOK if isinstance(each, Look) else each.id

    def outcome(self, claim: Claim, outcome: Outcome | None = None) -> None:
        """The attempt ends, and the node is told; unless the loop is blocked by another."""
        if not self.runs or self.hand.get(claim.id) is not claim:
            return
        if self.stuck and self._blocker != claim.id:
            self._unsaid.append(lambda: self.outcome(claim, outcome))
            return
        del self.hand[claim.id]
        self.cancelled.discard((claim.id, claim.number))
        self.late.discard((claim.id, claim.number))
        self.swallowing.discard(claim.id)
        ended = Done() if outcome is None else outcome
        self.world.application.ended(self, claim, ended)
        self._unblock(claim.id)
        self.tell("outcome", claim.id, claim.number, ended)
        self._after_one()

    def found(self, items: list[Found] | None, more: bool = False) -> None:
        """It has looked; unless the loop is blocked by another."""
        if not self.runs or self.look is None:
            return
        if self.stuck and self._blocker != LOOK:
            self._unsaid.append(lambda: self.found(items, more))
            return
        self.look = None
        self._unblock(LOOK)
        self.tell("found", items, more)
        self._after_one()

    def _unblock(self, ended: str) -> None:
        """One has ended: the loop runs, and may have been blocked by it."""
        self.stuck, self._blocker = False, None if self._blocker == ended else self._blocker
        self.use(0.8 if self.busy else AWAKE)
        self.speak_again()
        self.turn()

    def _after_one(self) -> None:
        self.report()
        unsaid, self._unsaid = self._unsaid, []
        for say in unsaid:
            say()
        unbegun, self._unbegun = self._unbegun, []
        for each in unbegun:
            self._start(each)
        for job, number in sorted(self.cancelled | self.late):
            self._interrupt(job, number)
        self.rest()

    # ends

    def told_cancelled(self, job_id: str, number: int) -> None:
        """CANCEL came on the pulse: the task of the job is cancelled when the loop next runs."""
        self.cancelled.add((job_id, number))
        self.world.after(0.001, lambda: self._interrupt(job_id, number))

    def told_late(self, job_id: str, number: int) -> None:
        self.late.add((job_id, number))
        self.world.after(0.001, lambda: self._interrupt(job_id, number))

    def _interrupt(self, job_id: str, number: int) -> None:
        claim = self.hand.get(job_id)
        if not self.runs or self.stuck or job_id in self.swallowing:
            return
        if claim is not None and claim.number == number:
            told = (job_id, number) in self.cancelled
            self.outcome(claim, Stopped("its task was cancelled") if told else TimedOut("its task was cancelled"))
        elif self.look is not None and not number:
            self.late.discard((job_id, number))
            self.found(None)
