"""What people, and accidents, do to a running system: orders, pauses, signals, sleeping machines, ghosts."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from chargehand.model import orders
from chargehand.model.batch import Note
from chargehand.model.job import NewJob, State
from chargehand.store import Holder

if TYPE_CHECKING:
    from stage import World

VERBS = (orders.Verb.START, orders.Verb.STOP, orders.Verb.DRAIN, orders.Verb.RESTART, orders.Verb.RESET)


class People:
    """See the module. Every deed is drawn by the seed."""

    def __init__(self, world: "World") -> None:
        self._world, self._chance = world, world.chance
        self._deeds: dict[str, Callable[[], object]] = {
            "enqueue": self.enqueue, "poison": self._poison, "pause": self._pause, "resume": self._resume,
            "order": self._order, "scale": self._scale, "kill a worker": self._kill_a_worker,
            "sigterm": self._sigterm, "hang while idle": self._hang, "kill the node": world.kill_node,
            "stop the node": self._stop_the_node, "node stands still": self._stand_still,
            "machine sleeps": self._sleep, "store trouble": self._store_trouble, "ghost": self._ghost,
            "retry a job": self._retry, "cancel a job": self._cancel, "epidemic": self._epidemic,
            "nothing": lambda: None,
        }  # fmt: skip

    def disturb(self) -> None:
        """One deed."""
        weights = self._world.profile.deeds
        deed = self._chance.choices(list(weights), list(weights.values()))[0]
        self._world.tally[f"deed: {deed}"] += 1
        self._deeds[deed]()

    def _crew(self) -> str:
        return self._chance.choice(list(self._world.profile.crews))

    def _scope(self) -> str:
        """All, a crew, or one worker."""
        world = self._world
        crew = self._crew()
        components = [c for c in (world.places() if world.node else ()) if c.split(":")[1] == crew]
        return self._chance.choice(["*", crew, crew, *components])

    # jobs

    def enqueue(self, count: int | None = None, crew: str | None = None, **options: object) -> list[str]:
        world, profile = self._world, self._world.profile
        queue = crew or self._crew()
        jobs = [
            NewJob(
                id=f"j{len(world.oracle.jobs.jobs) + n}",
                queue=queue,
                priority=self._chance.choice([0, 0, 5]),
                delay_ms=self._chance.choice([0, 0, 0, 700, 40_000]),
                timeout_ms=self._chance.choice(profile.timeouts),
                max_attempts=self._chance.choice([1, 3, 3]),
            )
            for n in range(count or self._chance.choice(profile.batches))
        ]
        jobs = [msgspec.structs.replace(job, **options) for job in jobs]
        with world.stage.people.transaction() as tx:
            tx.enqueue(jobs)
        for job in jobs:
            world.oracle.jobs.enqueued(job)
        world.tally["jobs"] += len(jobs)
        world.note(f"{len(jobs)} jobs for {queue}: {jobs[0].id}…")
        if world.node is not None and (profile.poll > 1 or self._chance.random() < 0.5):
            node = world.node
            node.order(lambda: node.ledger.hint(queue))
        return [job.id for job in jobs]

    def _poison(self) -> None:
        self._world.fates.poison.update(self.enqueue(1, timeout_ms=None))

    def _retry(self) -> None:
        ended = [
            job.id for job in self._world.oracle.jobs.jobs.values() if job.state in ("failed", "cancelled", "done")
        ]
        if ended:
            job_id = self._chance.choice(ended)
            with self._world.stage.people.transaction() as tx:
                done = tx.retry([job_id])
            self._world.oracle.jobs.retried(job_id, bool(done))

    def _cancel(self) -> None:
        # Of running ones only real processes tell: there the worker is told, and may be replaced.
        waiting = [job.id for job in self._world.oracle.jobs.jobs.values() if job.state != "running"]
        if waiting:
            job_id = self._chance.choice(waiting)
            with self._world.stage.people.transaction() as tx:
                done = tx.cancel([job_id])
            self._world.oracle.jobs.cancelled(job_id, bool(done) and done[0].at_once)

    def _ghost(self) -> None:
        """Somebody who was declared dead long ago wakes up and settles, notes and releases: nothing may come of it."""
        world, jobs = self._world, self._world.oracle.jobs
        if not jobs.past:
            return
        running = [old for old in jobs.past[-40:] if jobs.jobs[old.id].state == "running"]
        old = self._chance.choice(running or jobs.past[-40:])
        if self._chance.random() < 0.7:
            old = msgspec.structs.replace(old, state=State.DONE, outcome="done", result="1", error=None, reason=None)
        note = Note(seq=old.seq, fence=old.fence, worker="worker:ghost:0", age_ms=0)
        with world.stage.people.transaction() as tx:
            before = tx.execute("SELECT * FROM chargehand_job WHERE id = ?", (old.id,))
            lost = tx.settle([old], Holder("sim", "an earlier life"))
            tx.note([note])
            after = tx.execute("SELECT * FROM chargehand_job WHERE id = ?", (old.id,))
        world.oracle.check(lost == [old.id] and before == after, f"a ghost settles job {old.id}, fence {old.fence}")
        world.tally["ghost: while running" if jobs.jobs[old.id].state == "running" else "ghost: other"] += 1

    # workers

    def _living(self, idle: bool = False) -> list[object]:
        living = [w for w in self._world.processes if w.runs and w.node is self._world.node]
        return [w for w in living if not idle or (w.status == "healthy" and w.claim is None)]

    def _kill_a_worker(self) -> None:
        living = [w for w in self._world.processes if w.runs]
        if living:
            worker = self._chance.choice(living)
            worker.die(signal=self._chance.choice([9, 11]))

    def _sigterm(self) -> None:
        living = [w for w in self._world.processes if w.runs]
        if living:
            worker = self._chance.choice(living)
            self._world.note(f"somebody sends {worker} a SIGTERM")
            worker.signalled()

    def _hang(self) -> None:
        living = [w for w in self._world.processes if w.runs and w.status == "healthy" and w.claim is None]
        if living:
            worker = self._chance.choice(living)
            worker.stuck = True
            if self._chance.random() < 0.4:
                worker.mute = True
                worker.use(0.0)
            self._world.note(f"{worker} hangs though it is idle{' and is silent' if worker.mute else ''}")

    def _epidemic(self) -> None:
        """From now on the workers of a crew cannot load; or they can again."""
        world, crew = self._world, self._crew()
        world.fates.epidemics ^= {crew}
        if crew in world.fates.epidemics:
            world.note(f"all of {crew} crash")
            for worker in [w for w in world.processes if w.crew == crew and w.runs and w.claim is None]:
                worker.die(code=1)

    # orders

    def pause(self, scope: str, for_ms: int | None = None) -> None:
        world = self._world
        with world.stage.people.transaction() as tx:
            tx.pause(scope, "somebody", None, for_ms)
        world.note(f"pause {scope} for {for_ms}")
        world.oracle.jobs.paused[scope] = float("inf") if for_ms is None else world.now + for_ms / 1000
        self._tell_pauses()
        if for_ms is not None:
            world.after(for_ms / 1000 + 0.001, lambda: self._apply())

    def resume(self, scope: str) -> None:
        world = self._world
        with world.stage.people.transaction() as tx:
            tx.resume(scope)
        world.note(f"resume {scope}")
        world.oracle.jobs.paused.pop(scope, None)
        self._tell_pauses()

    def _pause(self) -> None:
        self.pause(self._scope(), self._chance.choice([None, None, 1500, 30_000]))

    def _resume(self) -> None:
        paused = list(self._world.oracle.jobs.paused)
        if paused:
            self.resume(self._chance.choice(paused))

    def _tell_pauses(self) -> None:
        """The node learns of it at once, if it was asked to write it, or when it next looks."""
        delay = self._chance.choice([0.0, 0.0, self._chance.uniform(0, 1.0)])
        self._world.after(delay, self._apply)

    def _apply(self) -> None:
        node = self._world.node
        if node is not None:
            node.order(node.apply_pauses)

    def order(self, verb: orders.Verb, scope: str) -> None:
        """An order about present workers."""
        world, node = self._world, self._world.node
        if node is None:
            return

        def carry_out() -> None:
            known = scope == "*" or scope in node.fleet.crews or scope in node.fleet.places
            if node.fleet.stopping or not known:
                return
            world.note(f"order: {verb} {scope}")
            world.tally[f"order: {verb.value}"] += 1
            places = orders.places_of(node.fleet, scope)
            world.oracle.ordered(verb.value, [place.component for place in places])
            actions, answers = orders.carry_out(node.fleet, verb, scope, world.now)
            world.oracle.check(len(answers) == len(places), f"{len(answers)} answers for {len(places)} workers")
            node.act(actions)

        node.order(carry_out)

    def _order(self) -> None:
        self.order(self._chance.choice(VERBS), self._scope())

    def scale(self, crew: str, count: int) -> None:
        world, node = self._world, self._world.node
        if node is None:
            return

        def carry_out() -> None:
            if node.fleet.stopping or any(record.occupied for record in world.oracle.crew(crew)):
                return  # the shipped node does not keep account of the unkillable in places that are no more
            world.note(f"order: scale {crew} to {count}")
            world.counts[crew] = count
            world.oracle.scaled(crew, count)
            actions, _ = orders.scale(node.fleet, crew, count, world.now)
            node.act(actions)

        node.order(carry_out)

    def _scale(self) -> None:
        self.scale(self._crew(), self._chance.choice([0, 1, 1, 2, 2, 3, 4]))

    # accidents

    def _stop_the_node(self) -> None:
        node = self._world.node
        if node is not None:
            node.order(node.stop)

    def _stand_still(self) -> None:
        node = self._world.node
        if node is not None:
            seconds = self._chance.choice([3, 20, 31, 60, 130])
            self._world.note(f"the node is stopped for {seconds} s")
            node.stand_still(seconds)

    def _sleep(self) -> None:
        self._world.sleep(self._chance.choice([5, 40, 400]))

    def _store_trouble(self) -> None:
        self._world.store_fails_until = self._world.now + self._chance.choice([0.5, 5, 30])
        self._world.note(f"the store fails until {self._world.store_fails_until:.3f}")
