"""What callers do with flows: they begin them, add followers, cancel and retry the whole; and what handlers spawn."""

import msgspec
from callers import Callers

from chargehand.model.flows import NewFlow
from chargehand.model.job import Claim, Done, NewJob

MOST_JOBS = 150
"""A history with so many jobs gets no more children."""


class FlowCallers(Callers):
    """See the module."""

    def _new(self, among: list[str], flow: str | None) -> NewJob:
        """A job after some of these."""
        world, chance = self._world, self._chance
        after = chance.sample(among, min(len(among), chance.choice([0, 1, 1, 2, 3])))
        return NewJob(
            id=world.new_item_id(), queue=self._crew(), after=tuple(after), flow=flow,
            if_failed=chance.choice(["fail", "fail", "fail", "run"]),
            priority=chance.choice([0, 0, 0, 5]), delay_ms=chance.choice([0, 0, 0, 0, 700]),
            timeout_ms=chance.choice(world.profile.timeouts), max_attempts=chance.choice([1, 1, 2]),
            sequence=chance.choice([None, None, None, "x", "y"]),
        )  # fmt: skip

    def _begin_flow(self) -> None:
        """A flow: a graph of jobs, some of them after jobs outside of it."""
        world, chance = self._world, self._chance
        on_end = NewJob(id="x", queue=self._crew(), priority=chance.choice([0, 9]), timeout_ms=None)
        flow = NewFlow(
            id=f"w{len(world.oracle.jobs.begun)}", name="a flow", arrival=chance.random() < 0.2,
            on_end=on_end if chance.random() < 0.7 else None,
        )  # fmt: skip
        jobs: list[NewJob] = []
        outside = list(world.oracle.jobs.jobs)[-12:]
        for _ in range(chance.choice([0, 1, 3, 5, 8])):
            among = [job.id for job in jobs] or outside if chance.random() < 0.2 else [job.id for job in jobs]
            jobs.append(self._new(among, flow.id))
        with world.stage.people.transaction() as tx:
            tx.flows.begin(flow)
            tx.jobs.enqueue(jobs)
        world.oracle.jobs.flow_begun(flow, jobs)
        world.tally["flows"] += 1
        world.tally["jobs"] += len(jobs)

    def _follow(self) -> None:
        """Jobs after others, whatever became of those; in a flow that goes on, or in none."""
        world, chance = self._world, self._chance
        known = world.oracle.jobs
        if not known.jobs:
            return
        going_on = [flow.id for flow in known.flows.flows.values() if not flow.ended and not flow.cancelled]
        flow = chance.choice([None, *going_on])
        for _ in range(chance.choice([1, 2])):
            job = self._new(list(known.jobs)[-20:], flow)
            with world.stage.people.transaction() as tx:
                tx.jobs.enqueue([job])
            world.note(f"job {job.id} after {job.after} in {flow}")
            known.enqueued(job)
            world.tally["jobs"] += 1

    def _cancel_flow(self) -> None:
        world = self._world
        flows = list(world.oracle.jobs.begun)
        if flows:
            flow = self._chance.choice(flows[-4:])
            with world.stage.people.transaction() as tx:
                done = tx.flows.cancel(flow)
            world.oracle.jobs.flow_cancelled(flow, done)

    def _retry_flow(self) -> None:
        world = self._world
        flows = list(world.oracle.jobs.begun)
        if flows:
            flow = self._chance.choice(flows[-4:])
            with world.stage.people.transaction() as tx:
                ids = tx.flows.retry(flow)
            world.oracle.jobs.flow_retried(flow, ids)

    # handlers

    def leaves(self, claim: Claim) -> Done:
        """The good end of a job, with what its handler enqueued and spawned."""
        world, chance = self._world, self._chance
        one = world.oracle.jobs.flows.jobs.get(claim.id)
        deep = one is None or (one.parent is not None and world.oracle.jobs.flows.jobs[one.parent].parent is not None)
        if deep or len(world.oracle.jobs.jobs) > MOST_JOBS or chance.random() > world.profile.flows:
            return Done()
        made: list[NewJob] = []
        for _ in range(chance.choice([1, 2, 4])):
            job = self._new([job.id for job in made], claim.flow if chance.random() < 0.9 else None)
            made.append(msgspec.structs.replace(job, child=chance.random() < 0.8, sequence=None))
        return Done(follow=tuple(made))
