"""The simulated main thread of one of several nodes: the shipped ledger, fleet and `CutOff`, with simulated workers.

It follows `node/node.py` and `node/supervisor.py`, step by step; whatever it decides by itself is wrong.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from cluster_client import Client
from cluster_line import Line

from chargehand.errors import StoreError
from chargehand.model.batch import NOTHING, Batch, Result
from chargehand.model.chores import LookAtPauses
from chargehand.model.failover import Comparison
from chargehand.model.fleet.death import Death, Reason, last_outcome
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.lifecycle import (
    Action,
    Ask,
    CancelJob,
    Dismiss,
    Event,
    Exited,
    Framed,
    Kill,
    Spawn,
    Started,
    Tick,
)
from chargehand.model.fleet.policy import LivenessPolicy, RestartPolicy, StartPolicy, Terms
from chargehand.model.job import Claim, Done, JobPolicy, NewJob, Outcome, RetryLater, Stopped
from chargehand.model.lease import CutOff, longest_end
from chargehand.model.ledger import Ledger, Todo
from chargehand.model.records import CrewRow, Holder, NodeAbout
from chargehand.model.wakeups import Looks, Wakeup

if TYPE_CHECKING:
    from cluster import World

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
BEATS_A_LEASE = 3
LIFTED = RestartPolicy(rapid_limit=10**6, lifetime_limit=10**6, longest_pause=5.0)
STEP = 0.0005


class Crew(msgspec.Struct, frozen=True, kw_only=True):
    """A crew, the same on every node that has it. Its queue has its name."""

    name: str
    workers: int = 1
    stops: bool = False
    """Whether it is one with `when_cut_off="stop"`."""
    limit: int | None = None
    limit_per_key: int | None = None
    rate: str | None = None
    rate_per_key: str | None = None

    def row(self) -> CrewRow:
        return CrewRow(
            name=self.name, queue=self.name, handler="", workers=self.workers, max_attempts=3, timeout_ms=None,
            limit=self.limit, limit_per_key=self.limit_per_key, rate=self.rate, rate_per_key=self.rate_per_key,
        )  # fmt: skip


class Worker:
    """One worker process: it performs one job at a time."""

    def __init__(self, node: "Node", component: str, pid: int) -> None:
        self.node, self.component, self.pid = node, component, pid
        self.crew = component.split(":")[1]
        self.alive = True
        self.claim: Claim | None = None

    def receive(self, claim: Claim) -> None:
        self.claim = claim
        world = self.node.world
        fate = world.fate(claim)
        world.after(fate.seconds, lambda: self.end(claim, fate.how))

    def end(self, claim: Claim, how: str) -> None:
        """The attempt ends in this way, if it still runs."""
        if not self.alive or self.claim is not claim:
            return
        if how == "crash":
            self.die()
        elif how == "end the node":
            world = self.node.world
            world.tally["node ended by a job"] += 1
            world.kill(self.node.name, again=self.node.world.liveness.lease * 2, elsewhere=True)
        elif how == "retry":
            self._report(claim, RetryLater(500, "later"))
        else:
            child = NewJob(id=f"{claim.id}+", queue=claim.queue, limit_key=None, timeout_ms=None)
            self._report(claim, Done("1", (child,) if how == "child" else ()))

    def told_cancelled(self, job: str) -> None:
        claim, world = self.claim, self.node.world
        if claim is None or claim.id != job:
            return
        after = world.fate(claim).yields
        if after is not None:
            world.after(after, lambda: self.alive and self.claim is claim and self._report(claim, Stopped()))

    def _report(self, claim: Claim, outcome: Outcome) -> None:
        self.claim = None
        self.node.world.oracle.ended(self, claim, outcome)
        self.node.outcome(self, outcome)

    def die(self) -> None:
        """The process ends, by itself or by a SIGKILL."""
        if self.alive:
            self.alive = False
            if self.claim is not None:
                self.node.world.oracle.ended(self, self.claim, None)
            self.node.died(self)


class Node:
    """One life of a node process."""

    def __init__(
        self, world: "World", name: str, machine: str, crews: Sequence[Crew], liveness: LivenessPolicy
    ) -> None:
        self.world, self.name, self.crews = world, name, {crew.name: crew for crew in crews}
        self.pid = world.new_pid()
        self.alive, self.open = True, False
        stops = any(crew.stops for crew in crews)
        self.about = NodeAbout(
            pid=self.pid, start=self.pid, boot=machine, pid_namespace="1", machine=machine, lease=liveness.lease,
            stops=stops,
        )  # fmt: skip
        terms = {crew.name: Terms(workers=crew.workers) for crew in crews}
        self.fleet = Fleet(terms, LIFTED, liveness, StartPolicy(), world.jitter.random)
        limited = {crew.name for crew in crews if crew.limit is not None or crew.limit_per_key is not None}
        rated = {crew.name for crew in crews if crew.rate is not None or crew.rate_per_key is not None}
        self.ledger = Ledger(
            [(crew.name, crew.name) for crew in crews], world.jitter.random, world.now, limited=limited, rated=rated,
            policy=JobPolicy(most_in_hand=1),
        )  # fmt: skip
        self.looks, self._looking = Looks(), False
        self.cut_off = CutOff(liveness.lease, longest_end(liveness), world.now) if stops else None
        self._stopping_crews = frozenset(crew.name for crew in crews if crew.stops)
        self._beat = min(liveness.node_beat, liveness.lease / BEATS_A_LEASE)
        if self.cut_off is not None:
            self._beat = min(self._beat, self.cut_off.beat_every)
        self._tend_at = self._submitted_at = world.now
        self.line = Line(world, name, lambda: self.alive)
        self.client = Client(
            world, self.line, Holder(name, f"{name} {self.pid}"), [crew.row() for crew in crews], self.about
        )
        self.workers: dict[str, Worker] = {}
        self._pause = FIRST_PAUSE
        self._planned = 0
        self._fleet_due: float | None = None
        self._fleet_changed = True
        self.line.run(self.client.open(world.is_alive), self._opened)

    @property
    def holder(self) -> Holder:
        return self.client.holder

    # the loop

    def _opened(self, _: Any, error: StoreError | None) -> None:
        now = self.world.now
        if error is not None:
            self.world.note(f"{self.name} cannot start: {error}")
            self.world.kill(self.name, again=2.0)
            return
        self.world.note(f"{self.name} is open")
        self.open, self._tend_at = True, now
        if self.cut_off is not None:
            self.cut_off.beaten(now, now)
        self.act(self.fleet.begin(now))
        self.world.after(self.world.watch_every, self._watch)
        self.step()

    def _watch(self) -> None:
        """Tells the main thread between two batches that others have written, as the store thread does."""
        if not self.alive:
            return
        away = self.line.deaf or not self.world.server.up
        if self.ledger.in_flight is None and (away or self.client.changed()):
            self.ledger.others_wrote(self.world.now)
            self.step()
        self.world.after(self.world.watch_every, self._watch)

    def notified(self, what: Wakeup) -> None:
        """A notification arrives."""
        if self.alive and self.open:
            self.looks.notified(what, self.world.now)
            self.step()

    def _look(self, now: float) -> None:
        queues = self.ledger.notified(now)
        self.looks.begin(now)
        if not queues:
            self.looks.ended(found=False)
            return
        self._looking = True
        self.line.run(self.client.look(queues), self._looked)

    def _looked(self, queues: Sequence[str], _: StoreError | None) -> None:
        self._looking = False
        self.looks.ended(found=bool(queues))
        for queue in queues:
            self.ledger.hint(queue)
        self.step()

    def step(self) -> None:
        """Does what is due, and plans the next step."""
        if not self.alive or not self.open:
            return
        now = self.world.now
        due = self._next_due()
        if due is not None and due <= now:
            self.tell(Tick())
        if now >= self._tend_at:
            self._tend_at = now + self._beat
            self.ledger.chore(LookAtPauses(), now)
        if self.cut_off is not None and self.cut_off.is_over(now):
            self._stop_work(now)
        self.ledger.elsewhere = self.world.served_elsewhere(self.name)
        submit_at = None if self._looking else self._submit(now)
        look_at = None if self._looking or self.ledger.in_flight is not None else self.looks.due()
        if look_at is not None and look_at <= now:
            self._look(now)
            look_at = self.looks.due()
        moments = [self._next_due(), self.cut_off and self.cut_off.due(), submit_at, self._tend_at, look_at]
        self._plan(max(now + STEP, min(moment for moment in moments if moment is not None)))

    def _next_due(self) -> float | None:
        """Returns when the fleet is to be told the time; it is asked only after it may have changed."""
        if self._fleet_changed:
            self._fleet_due, self._fleet_changed = self.fleet.next_due(), False
        return self._fleet_due

    def _plan(self, at: float) -> None:
        self._planned += 1
        number = self._planned
        self.world.after(at - self.world.now, lambda: number == self._planned and self.step())

    def _submit(self, now: float) -> float | None:
        due = self.ledger.batch_due(now)
        if due is None or due > now + STEP:
            return due
        batch = self.ledger.next_batch(now)
        if batch == NOTHING:
            self.ledger.confirm(Result(), now)
            return self.ledger.batch_due(now)
        self._submitted_at = now
        self.line.run(self.client.turn(batch), lambda result, error: self._hear(batch, result, error))
        return None

    # news of the store thread

    def _hear(self, batch: Batch, result: Result | None, error: StoreError | None) -> None:
        now = self.world.now
        comparison, self.client.comparison = self.client.comparison, None
        if comparison is not None:
            self._compare(comparison, now)
        life, self.client.new_life = self.client.new_life, None
        if life is not None:
            self.client.holder = life.holder
            self._disown(life.held, now)
        if result is None:
            self.world.note(f"{self.name}: {error}")
            self.world.tally["turn failed"] += 1
            self.ledger.failed(now, self._pause)
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        else:
            self._committed(batch, result, now)
        self.step()

    def _committed(self, batch: Batch, result: Result, now: float) -> None:
        self._pause = FIRST_PAUSE
        if self.cut_off is not None:
            if self.cut_off.beaten(self._submitted_at, now):
                self.world.note(f"{self.name} is connected again")
                self.ledger.reconnected(now)
            elif self.cut_off.is_over(now):
                self._stop_work(now)
        if result.grants:
            self.looks.claimed(any_job=any(grant.claims for grant in result.grants))
        for component, todo in self.ledger.confirm(result, now):
            self.hand_out(component, todo)
        self.world.tally["outcome refused"] += len(result.lost)
        self.world.oracle.refused(self, [each for each in batch.settlements if each.claim_name in result.lost])

    def _stop_work(self, now: float) -> None:
        running = self.ledger.cut_off(self._stopping_crews, now)
        self.world.note(f"{self.name} is cut off, and stops {[job for _, job in running]}")
        self.world.tally["cut off"] += 1
        for component, job in running:
            self.act(self.fleet.cancel(component, job, now))

    def _disown(self, held: frozenset[tuple[int, int]], now: float) -> None:
        running = self.ledger.keep_only(held)
        self.world.note(f"{self.name} cancels {[job for _, job in running]}, which others have taken")
        for component, job in running:
            self.act(self.fleet.cancel(component, job, now))

    def _compare(self, found: Comparison, now: float) -> None:
        running, repeated, released = self.ledger.compare(found, now)
        self.world.tally["outcome repeated"] += repeated
        if found.replaced or repeated or released:
            self.world.note(f"{self.name} repeats {repeated} outcomes, queues {released} jobs, cancels {running}")
        for component, job in running:
            self.act(self.fleet.cancel(component, job, now))

    # the fleet and its workers

    def tell(self, event: Event) -> None:
        self._fleet_changed = True
        self.act(self.fleet.handle(event, self.world.now))

    def act(self, actions: Sequence[Action]) -> None:
        self._fleet_changed = True
        for action in actions:
            match action:
                case Spawn(component):
                    worker = self.workers[component] = Worker(self, component, self.world.new_pid())
                    self.tell(Started(component, worker.pid))
                    self.world.after(0.1, lambda worker=worker: self._ready(worker))
                case Ask(component) | Dismiss(component):
                    self.ledger.dismiss(component)
                case CancelJob(component, job):
                    self.world.oracle.cancelled(self, self.workers[component], job)
                    self.workers[component].told_cancelled(job)
                case Kill(component):
                    worker = self.workers[component]
                    self.world.oracle.killed(self, worker)
                    self.world.tally["worker killed"] += 1
                    self.world.after(0.001, worker.die)
                case _:
                    pass

    def _ready(self, worker: Worker) -> None:
        if not self.alive or not worker.alive:
            return
        self.tell(Framed(worker.component, "healthy"))
        todo = self.ledger.welcome(worker.component, worker.crew, self.world.now, str(worker.pid))
        if todo is not None:
            self.hand_out(worker.component, todo)
        self.step()

    def hand_out(self, component: str, todo: Todo) -> None:
        assert isinstance(todo, Claim)
        worker = self.workers[component]
        self._fleet_changed = True
        self.fleet.began(component, todo.id, None, self.world.now)
        self.world.oracle.handed(self, worker, todo)
        worker.receive(todo)

    def outcome(self, worker: Worker, outcome: Outcome) -> None:
        """A worker reports the outcome of its job."""
        if not self.alive:
            return
        now, component = self.world.now, worker.component
        self._fleet_changed = True
        if not self.fleet.ended(component, now):
            self.ledger.dismiss(component)
        following = self.ledger.finished(component, outcome, now, worker.pid)
        if following is not None:
            self.hand_out(component, following)
        else:
            self.act(self.fleet.let_go(component, now))
        self.step()

    def died(self, worker: Worker) -> None:
        """A worker process has ended."""
        if not self.alive:
            return
        component, place = worker.component, self.fleet.places[worker.component]
        self.ledger.dismiss(component)
        del self.workers[component]
        death = Death(signal=9, had_job=component in self.ledger.held)
        outcome = last_outcome(death, place.verdict, component, asked=place.asked)
        cancelled = place.recalled if place.verdict is Reason.CANCELLED else None
        self.ledger.gone(component, outcome, self.world.now, worker.pid, cancelled)
        self.tell(Exited(component=component, death=death, crew_done=self.ledger.pools[worker.crew].done))
        self.step()

    def kill(self) -> None:
        """SIGKILL: the kernel ends its workers with it."""
        self.alive = False
        for worker in self.workers.values():
            worker.die()
        self.line.died()
