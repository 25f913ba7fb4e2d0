"""What callers do: jobs are enqueued, retried and cancelled; the application's own items come, change and go."""

from typing import TYPE_CHECKING

import msgspec
from asking import Asking

from chargehand.errors import Conflict
from chargehand.model.batch import Note
from chargehand.model.chores import CancelJobs
from chargehand.model.job import NewJob, State
from chargehand.model.records import Holder

if TYPE_CHECKING:
    from stage import World

PATIENCE = 5.0
"""Seconds that a caller waits for the node."""


class Callers:
    """See the module."""

    def __init__(self, world: "World") -> None:
        self._world, self._chance = world, world.chance

    def _crew(self) -> str:
        return self._chance.choice(list(self._world.profile.crews))

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
        if profile.most_in_hand > 1:  # jobs of different priority or time are not handed out together
            options = {"priority": jobs[0].priority, "delay_ms": jobs[0].delay_ms, **options}
        jobs = [msgspec.structs.replace(job, **options) for job in jobs]
        with world.stage.people.transaction() as tx:
            tx.jobs.enqueue(jobs)
        for job in jobs:
            world.oracle.jobs.enqueued(job)
        world.tally["jobs"] += len(jobs)
        world.note(f"{len(jobs)} jobs for {queue}: {jobs[0].id}…")
        if world.node is not None and (profile.poll > 1 or self._chance.random() < 0.5):
            node = world.node

            def hint() -> None:
                node.ledger.hint(queue)
                world.oracle.jobs.ahead.told([job.id for job in jobs])

            node.order(hint)
        return [job.id for job in jobs]

    def _urgent(self) -> None:
        self.enqueue(self._chance.choice([1, 3]), priority=9, delay_ms=0)

    def _poison(self) -> None:
        self._world.fates.poison.update(self.enqueue(1, timeout_ms=None))

    def _killer(self) -> None:
        self._world.fates.killers.update(self.enqueue(1, timeout_ms=None))

    def _retry(self) -> None:
        ended = [
            job.id for job in self._world.oracle.jobs.jobs.values() if job.state in ("failed", "cancelled", "done")
        ]
        if ended:
            self.retry(self._chance.choice(ended))

    def retry(self, job_id: str) -> None:
        """A person wants it tried again."""
        try:
            with self._world.stage.people.transaction() as tx:
                done = tx.jobs.retry([job_id])
        except Conflict:
            self._world.oracle.jobs.conflict(job_id)
            return
        self._world.oracle.jobs.retried(job_id, bool(done))

    def cancel(self, job_id: str, *, through_node: bool = False) -> None:
        """A person cancels a job: straight in the store, or by asking the node."""
        world, node = self._world, self._world.node
        if through_node and node is not None:
            asking = Asking()
            chore = CancelJobs(token=asking, ids=(job_id,))
            node.order(lambda: node.ledger.chore(chore, world.now))
            world.after(PATIENCE, lambda: self._give_up(asking, job_id))
            return
        with world.stage.people.transaction() as tx:
            done = tx.jobs.cancel([job_id])
        world.oracle.jobs.cancelled(job_id, done)

    def _give_up(self, asking: Asking, job_id: str) -> None:
        """A caller that got no answer from the node stops waiting, and then writes into the store itself."""
        if asking.waits and not asking.done:
            asking.waits = False
            self._world.tally["gave up on the node"] += 1
            self.cancel(job_id)

    def _cancel(self) -> None:
        jobs = self._world.oracle.jobs.jobs
        running = [job.id for job in jobs.values() if job.state == "running"]
        chosen = running if running and self._chance.random() < 0.6 else list(jobs)
        if chosen:
            self.cancel(self._chance.choice(chosen), through_node=self._chance.random() < 0.5)

    def _ghost(self) -> None:
        """Somebody who was declared dead long ago wakes up and settles, notes and releases: nothing may come of it."""
        world, jobs = self._world, self._world.oracle.jobs
        if not jobs.past:
            return
        running = [old for old in jobs.past[-40:] if jobs.jobs[old.id].state == "running"]
        old = self._chance.choice(running or jobs.past[-40:])
        if self._chance.random() < 0.7:
            child = NewJob(id=f"child of a ghost of {old.id}", queue=old.queue, child=True)
            old = msgspec.structs.replace(
                old,
                state=State.DONE,
                outcome="done",
                result="1",
                error=None,
                reason=None,
                follow=(child,) if old.claim % 3 == 0 else (),  # an end with and without others is settled differently
            )
        note = Note(seq=old.seq, claim=old.claim, worker="worker:ghost:0", age_ms=0)
        with world.stage.people.transaction() as tx:
            before = tx.execute("SELECT * FROM chargehand_job WHERE id = ?", (old.id,))
            lost = tx.jobs.settle([old], Holder("sim", "an earlier life"))
            tx.jobs.note([note])
            after = tx.execute("SELECT * FROM chargehand_job WHERE id = ?", (old.id,))
        world.oracle.check(
            lost == [old.claim_name] and before == after, f"a ghost settles job {old.id}, claim {old.claim}"
        )
        world.tally["ghost: while running" if jobs.jobs[old.id].state == "running" else "ghost: other"] += 1

    # items

    def add_items(self, kinds: list[str], crew: str | None = None) -> list[str]:
        """The application has something new that needs work; of these kinds."""
        world = self._world
        crew = crew or self._chance.choice(list(self._world.profile.discovers))
        first = len(world.application.rows)
        # Keys are not in the order in which they come: a walk by key finds some of them before, and some behind it.
        keys = [f"{self._chance.randrange(1000):03}-{first + n}" for n in range(len(kinds))]
        for key, kind in zip(keys, kinds, strict=True):
            world.application.add(key, crew, kind)
        world.note(f"items for {crew}: {', '.join(f'{key} ({kind})' for key, kind in zip(keys, kinds, strict=True))}")
        world.tally["items"] += len(keys)
        return keys

    def _items(self) -> None:
        kinds = [*["good"] * 8, "bad", "endless"]
        self.add_items([self._chance.choice(kinds) for _ in range(self._chance.choice([1, 3, 9]))])
        if self._chance.random() < 0.3:
            self._wake()

    def _row(self) -> str | None:
        rows = list(self._world.application.rows)
        return self._chance.choice(rows) if rows else None

    def _touch(self) -> None:
        key = self._row()
        if key is not None:
            self._world.note(f"item {key} needs work again")
            self._world.application.touch(key)

    def _withdraw(self) -> None:
        key = self._row()
        if key is not None:
            self._world.note(f"item {key} is withdrawn")
            self._world.application.withdraw(key)

    def wake(self, crew: str) -> None:
        """The application says that there is something to be found."""
        node = self._world.node
        if node is not None:
            self._world.note(f"wake {crew}")
            node.order(lambda: node.wake(crew))

    def _wake(self) -> None:
        self.wake(self._chance.choice(list(self._world.profile.discovers)))

    def _table_trouble(self) -> None:
        application = self._world.application
        application.broken_until = self._world.now + self._chance.choice([1.0, 10.0, 60.0])
        self._world.note(f"the application's table cannot be read until {application.broken_until:.3f}")
