"""The simulated hands of a node: it is woken, hears everybody, lets time pass, writes; one step after the other.

It follows the protocol of the shipped node, step by step; whatever it decides by itself is wrong.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from actors import Worker
from gpus import Readings
from storekeeper import NEVER, Storekeeper
from supervision import Supervision

from chargehand.model.batch import Batch, Result
from chargehand.model.chores import CancelJobs, QueueFound
from chargehand.model.fleet.lifecycle import Occupied, PausesChanged, StopAsked, Tick, WorkWaits

if TYPE_CHECKING:
    from stage import World

LATE = 1.0
"""As in the shipped node: a step that comes so much later than planned is forgiven to the workers."""
LAST_WORDS = 5.0
MOST_WASTED = 20
STEP = 0.0005
"""A real step takes its time, too."""


class Node(Supervision):
    """One life of a node."""

    def __init__(self, world: "World", life: str, counts: dict[str, int]) -> None:
        super().__init__(world, counts)
        self.store = Storekeeper(self, life)
        self._readable: list[tuple[Worker, str]] = []
        self._orders: list[Callable[[], object]] = []
        self._planned = self.wake_at = self._supervise_at = world.now
        self._sleeping = [crew for crew, terms in world.profile.crews.items() if terms.idle_exit is not None]
        self._looks_or_gathers = bool(world.profile.discovers or world.profile.batching)
        self._readings = Readings(self)
        self._still_until = 0.0
        self._gone_at: float | None = None
        self._steps, self._steps_since, self._wasted = 0, world.now, 0

    # being woken

    def readable(self, worker: Worker, channel: str) -> None:
        """Something came on a socket, or a process ended."""
        if self.alive and worker.node is self:
            self._readable.append((worker, channel))
            self.poke()

    def order(self, act: Callable[[], object]) -> None:
        """A caller, or the store thread, has news for the main thread."""
        if self.alive:
            self._orders.append(act)
            self.poke()

    def poke(self) -> None:
        """Wake up, unless the step that was planned before is just late."""
        now = self.world.now
        if now < self._planned or self.wake_at > self._planned + 1:
            self._still_until = max(self._still_until, now + self._hiccup())
            self.wake_at = min(self.wake_at, self._still_until)

    def _hiccup(self) -> float:
        """Now and then the machine has something better to do; for less time than is forgiven."""
        world = self.world
        if world.fates.calm or world.chance.random() >= world.profile.hiccups:
            return 0.0
        world.tally["hiccup"] += 1
        return world.chance.uniform(0, 0.9)

    def stand_still(self, seconds: float) -> None:
        """Somebody stops the node's process for a while."""
        now = self.world.now
        self._still_until = max(self._still_until, now + seconds)
        self.wake_at = max(self.wake_at, self._still_until)

    def woken_late(self) -> float:
        """The machine slept: how much later than planned the next step comes."""
        self.wake_at = max(self.wake_at, self.world.now)
        late = self.world.now - self._planned
        return late if late > LATE else 0.0

    def attentive(self) -> bool:
        """Whether it does not stand still just now."""
        return self.world.now >= self._still_until

    # one turn

    def step(self) -> None:
        """Hear everybody, then let time pass, then write."""
        world = self.world
        now = world.now
        late = now - self._planned
        self._count_steps(now)
        if late > LATE:
            self._forgive(late)
        if self._readable or self._orders:
            self._hear()
        if self._dying:
            self._look_at_the_dying()
        if late > LATE or self._supervise_at <= now:
            self.tell(Tick())
        if self._looks_or_gathers:
            for component, todo in (*self.ledger.looks(now), *self.ledger.gathered(now)):
                self.hand_out(component, todo)
        self.call_back_due()
        self._readings.step()
        for crew in self._sleeping:
            self.ledger.pools[crew].asleep = self.fleet.could_wake(crew)
        self._plan(self.store.submit())
        waits = self.ledger.in_flight is not None or self.ledger._again_at > now  # for the store, or to try it again
        self.oracle.jobs.ahead.stepped(in_flight=waits, late=late)
        self.oracle.hands_checked()
        if self.fleet.stopping:
            self._perhaps_end()

    def _forgive(self, late: float) -> None:
        """Nothing of what the node did not see is held against anybody; nor is what it is going to hear now."""
        self.oracle.lateness(late)
        self.fleet.late(late)

    def _count_steps(self, now: float) -> None:
        self._steps += 1
        if now - self._steps_since > 1.0:
            self._steps, self._steps_since = 0, now
        self.oracle.check(self._steps < 1900, "the node spins: it is woken again and again for nothing")

    def _hear(self) -> None:
        readable, self._readable = self._readable, []
        orders, self._orders = self._orders, []
        if len(readable) > 1:
            self.world.chance.shuffle(readable)
        for worker, channel in readable:
            if channel == "pidfd":
                self._died(worker)
            else:
                self._read(worker, channel)
        for act in orders:
            act()

    def _plan(self, submit_at: float) -> None:
        now = self.world.now
        due = self.fleet.next_due()
        self._supervise_at = now + 60.0 if due is None else due
        due_at, others = min(self._supervise_at, submit_at), (None, None)
        if self._looks_or_gathers:
            others = (self.ledger.looks_due(), self.ledger.gathered_due())
            due_at = min(due_at, *(NEVER if moment is None else moment for moment in others))
        recall_at = self.ledger.recalls_due()
        due_at = due_at if recall_at is None else min(due_at, recall_at)
        # Once, twice: something was due while something else was done. Again and again: it is never done.
        self._wasted = self._wasted + 1 if due_at <= now else 0
        if self._wasted >= MOST_WASTED:
            self.oracle.check(False, f"the node spins: {others} or {submit_at} is due, and stays so")
        self._planned = max(min(due_at, self._readings.due()), now + STEP)
        for when, _ in self._dying:
            self._planned = min(self._planned, max(when, now + STEP))
        if self._gone_at is not None:
            self._planned = min(self._planned, self._gone_at + LAST_WORDS)
        self.wake_at = max(self._planned + self._hiccup(), self._still_until)
        if self._readable or self._orders:
            self.wake_at = max(now + STEP, self._still_until)

    # the store has spoken

    def committed(self, batch: Batch, result: Result) -> None:
        """A batch is committed: who is handed what; what it means for pauses, sleepers, cancelled jobs and searches."""
        now = self.world.now
        self.call_back(self.ledger.overtaken(result))
        self.oracle.jobs.ahead.confirmed(batch, result)
        for component, todo in self.ledger.confirm(result, now):
            self.hand_out(component, todo)
        self.replace_distrusted()
        if result.pauses is not None:
            self.apply_pauses()
        self.wake_sleepers()
        if result.cancelling:
            self._cancelled(result.cancelling)
        for chore, done in zip(batch.chores, result.done, strict=True):
            if isinstance(chore, CancelJobs):
                self._cancelled([job.id for job in done if not job.at_once])
            elif isinstance(chore, QueueFound):
                self.ledger.searches[chore.crew].stored(done.queued, now)
                if done.queued:
                    self.ledger.hint(chore.crew)

    def _cancelled(self, ids: Sequence[str]) -> None:
        """These are running, here or in memory, and are to end."""
        self.call_back(self.ledger.hands_with(ids))
        for component, job in self.ledger.cancelled(ids, self.world.now):
            self.act(self.fleet.cancel(component, job, self.world.now))
        self.oracle.cancel_heard(ids)
        self.spread()

    def wake(self, crew: str) -> None:
        """The application says that this crew would find something."""
        self.ledger.searches[crew].wake(self.world.now)
        self.oracle.work_waits(crew, 1)
        self.tell(WorkWaits(crew, 1))

    # pauses, sleepers, the end

    def apply_pauses(self) -> None:
        """What is paused, as the store says now."""
        scopes = frozenset(pause.scope for pause in self.world.stage.people.fleet.pauses())
        self.call_back()
        self.oracle.paused(scopes)
        for component, claim in (*self.ledger.pause(scopes, self.world.now), *self.ledger.spread(self.world.now)):
            self.hand_out(component, claim)
        self.tell(PausesChanged(scopes))

    def occupy(self, component: str, pid: int | None) -> None:
        """An earlier life of this place cannot be killed; or can, at last."""
        self.tell(Occupied(component, pid))

    def wake_sleepers(self) -> None:
        for crew, count in self.ledger.waiting().items():
            self.oracle.work_waits(crew, count)
            self.tell(WorkWaits(crew, count))

    def stop(self) -> None:
        """In order."""
        if not self.fleet.stopping:
            self.world.note("the node is asked to stop")
            self.call_back()
            self.ledger.close(self.world.now)
            self.oracle.node_stops()
            self.tell(StopAsked())

    def _perhaps_end(self) -> None:
        if self.workers or self._dying or not self.fleet.all_gone():
            return
        now = self.world.now
        self._gone_at = self._gone_at or now
        if self.ledger.settled or now >= self._gone_at + LAST_WORDS:
            self.world.node_ends(self)
