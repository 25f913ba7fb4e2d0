"""Compares the flows of a store with a model in memory, for any graph of jobs and any order of operations."""

import itertools
from collections.abc import Callable

import msgspec
import pytest
from builders import fan_out, flow_of, predecessors, retry_flow
from flow_model import BAD, Member, Model
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from chargehand.errors import Conflict
from chargehand.model.batch import Want
from chargehand.model.flows import FlowEnd, NewFlow
from chargehand.model.job import Claim, Done, GaveUp, Interrupted, NewJob, Outcome, Returned, State, settle
from chargehand.model.records import Holder, JobFilter
from chargehand.store import Store

machines = itertools.count()
picks = st.integers(0, 10_000)
shapes = st.tuples(
    st.lists(picks, max_size=3), st.booleans(), st.sampled_from([None, None, "x", "y"]), st.sampled_from([None, 0, 1])
)
"""A job: its predecessors, whether it fails with them, its sequence, and its flow."""
Shape = tuple[list[int], bool, str | None, int | None]


class FlowMachine(RuleBasedStateMachine):
    """Each machine has its own queue and ids in one store, so that it never sees another machine's jobs."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store, self.number = store, next(machines)
        self.queue = f"queue-{self.number}"
        self.holder = Holder("node", f"{self.number}")
        self.model = Model()
        self.claims: list[Claim] = []
        self.names = itertools.count()

    def name(self, kind: str) -> str:
        return f"{kind}-{self.number}-{next(self.names)}"

    def pick(self, number: int) -> Member:
        return list(self.model.jobs.values())[number % len(self.model.jobs)]

    def build(
        self, shape: Shape, flow: str | None, *, among: list[str], sequence: bool = True
    ) -> tuple[NewJob, Member]:
        """Returns a job after some of these, and what is expected of it."""
        after, strict, key, _ = shape
        named = tuple(dict.fromkeys(among[number % len(among)] for number in after)) if among else ()
        one = Member(self.name("j"), named, strict, flow, sequence=key if sequence else None)
        new = NewJob(
            id=one.id, queue=self.queue, after=named, if_failed="fail" if strict else "run", flow=flow,
            sequence=one.sequence,
        )  # fmt: skip
        return new, one

    def open_flow(self, number: int | None) -> str | None:
        going_on = [flow.id for flow in self.model.flows.values() if not flow.ended and not flow.cancelled]
        return going_on[number % len(going_on)] if going_on and number is not None else None

    # operations

    @rule(wanted=st.lists(shapes, min_size=1, max_size=4))
    def enqueue(self, wanted: list[Shape]) -> None:
        new: list[NewJob] = []
        for shape in wanted:
            job, one = self.build(shape, self.open_flow(shape[3]), among=list(self.model.jobs))
            new.append(job)
            self.model.add(one)
        with self.store.transaction() as tx:
            assert all(each.created for each in tx.jobs.enqueue(new))
        self.model.end_flows()

    @rule(wanted=st.lists(shapes, max_size=5))
    def begin(self, wanted: list[Shape]) -> None:
        flow = self.name("flow")
        new: list[NewJob] = []
        members: list[Member] = []
        for shape in wanted:
            job, one = self.build(shape, flow, among=[*self.model.jobs, *(each.id for each in members)])
            new.append(job)
            members.append(one)
        on_end = NewJob(id="x", queue=f"{self.queue}-hooks")
        with self.store.transaction() as tx:
            tx.flows.begin(NewFlow(id=flow, name=flow, on_end=on_end))
            tx.jobs.enqueue(new)
        self.model.begin(flow, members)

    @rule(limit=st.integers(1, 6))
    def claim(self, limit: int) -> None:
        can = {one.id for one in self.model.claimable()}
        free = {each for each in can if self.model.jobs[each].sequence is None}
        with self.store.transaction() as tx:
            (grant,) = tx.jobs.claim([Want("crew", self.queue, limit)], self.holder)
        taken = {claim.id for claim in grant.claims}
        assert taken <= can, "a follower starts after its last predecessor has ended"
        assert len(taken) == limit or free <= taken, "what waits for nothing can be claimed"
        for claim in grant.claims:
            one = self.model.jobs[claim.id]
            assert not self.model.held(one), "jobs of a sequence run one after the other"
            one.state = State.RUNNING
            self.claims.append(claim)

    @precondition(lambda self: self.claims)
    @rule(
        pick=picks,
        how=st.sampled_from(["done", "done", "spawn", "gave up", "back"]),
        wanted=st.lists(shapes, max_size=3),
    )
    def settle(self, pick: int, how: str, wanted: list[Shape]) -> None:
        claim = self.claims.pop(pick % len(self.claims))
        one = self.model.jobs[claim.id]
        children: list[NewJob] = []
        members: list[Member] = []
        for shape in wanted if how == "spawn" else ():
            job, child = self.build(shape, one.flow, among=[each.id for each in members], sequence=False)
            children.append(job)
            child.parent = one.id
            members.append(child)
        made: dict[str, Outcome] = {
            "done": Done("1"),
            "spawn": fan_out(*children),
            "gave up": GaveUp("x"),
            "back": Returned() if pick % 2 else Interrupted("x"),
        }
        settlement = settle(claim, made[how])
        assert settlement is not None
        with self.store.transaction() as tx:
            assert tx.jobs.settle([settlement], self.holder) == []
        if how != "back":
            self.model.end(one, settlement.state, settlement.reason, members)
        elif one.to_cancel:
            self.model.end(one, State.CANCELLED, "cancelled")
        else:
            one.state = State.QUEUED

    @precondition(lambda self: self.model.jobs)
    @rule(numbers=st.lists(picks, min_size=1, max_size=3))
    def cancel(self, numbers: list[int]) -> None:
        named = list(dict.fromkeys(self.pick(number).id for number in numbers))
        with self.store.transaction() as tx:
            tx.jobs.cancel(named)
        self.model.cancel(named)

    @precondition(lambda self: any(one.state in BAD for one in self.model.jobs.values()))
    @rule(numbers=st.lists(picks, min_size=1, max_size=3))
    def retry(self, numbers: list[int]) -> None:
        bad = [one for one in self.model.jobs.values() if one.state in BAD]
        named = list({one.id: one for one in (bad[number % len(bad)] for number in numbers)}.values())
        if any(flow is not None and flow.cancelled for flow in map(self.model.flow_of, self.model.plan(named))):
            return  # a flow that was cancelled is retried as one
        ids = [one.id for one in named]
        if self.model.refused(named) and not self.model.refused(self.model.plan(named)):
            return  # the order in which they are named would decide
        if self.model.refused(named):
            with pytest.raises(Conflict), self.store.transaction() as tx:
                tx.jobs.retry(ids)
            return
        with self.store.transaction() as tx:
            assert sorted(tx.jobs.retry(ids)) == sorted(ids)
        self.model.retry(named)

    @precondition(lambda self: self.model.flows)
    @rule(number=picks)
    def cancel_flow(self, number: int) -> None:
        flow = list(self.model.flows)[number % len(self.model.flows)]
        queued = sum(one.state is State.QUEUED for one in self.model.members(flow))
        with self.store.transaction() as tx:
            assert tx.flows.cancel(flow).at_once == queued
        self.model.cancel_flow(flow)

    @precondition(lambda self: self.model.flows)
    @rule(number=picks)
    def retry_flow(self, number: int) -> None:
        flow = list(self.model.flows)[number % len(self.model.flows)]
        chosen = self.model.retriable(flow)
        again = self.model.plan(chosen)
        others = [one for one in again if one.flow not in (None, flow)]
        if any(self.model.flows[str(one.flow)].cancelled for one in others):
            return
        assert sorted(retry_flow(self.store, flow)) == sorted(one.id for one in chosen)
        self.model.retry_flow(flow)

    # what holds at any time

    @invariant()
    def the_store_tells_the_same(self) -> None:
        found = {one.id: one for one in self.store.jobs.find(JobFilter(queue=self.queue, limit=10_000))}
        assert found.keys() == self.model.jobs.keys()
        for one in self.model.jobs.values():
            job = found[one.id]
            assert (job.id, job.state, job.reason) == (one.id, one.state, one.reason)
            if one.sequence is None:
                assert (job.id, job.waits_for) == (one.id, len(one.waits))
            assert (job.flow, job.parent) == (one.flow, one.parent)

    @invariant()
    def a_job_that_failed_for_another_names_one_that_ended_badly(self) -> None:
        for one in self.model.jobs.values():
            if one.reason == "predecessor":
                named = {each.id for each in self.model.needed(one)}
                error = self.store.jobs.get(one.id)
                assert error is not None
                assert any(f"predecessor {each} " in (error.error or "") for each in named)

    @invariant()
    def flows_have_the_counts_of_their_jobs_and_end(self) -> None:
        for flow in self.model.flows.values():
            found = flow_of(self.store, flow.id)
            if not any(one.sequence for one in self.model.members(flow.id)):
                assert found.counts == self.model.counts(flow.id)
            assert found.counts.live == self.model.counts(flow.id).live
            assert (found.id, found.ended_ms is not None, found.ends) == (flow.id, flow.ended, flow.ends)
            assert (found.state == "running") == (not flow.ended)

    def teardown(self) -> None:
        """Everything that is queued can be performed to its end: nothing hangs."""
        for claim in self.claims:
            self.finish(claim)
        while True:
            with self.store.transaction() as tx:
                (grant,) = tx.jobs.claim([Want("crew", self.queue, 100)], self.holder)
            if not grant.claims:
                break
            for claim in grant.claims:
                assert not self.model.jobs[claim.id].waits
                self.model.jobs[claim.id].state = State.RUNNING
            for claim in grant.claims:
                self.finish(claim)
        assert not any(one.live for one in self.model.jobs.values())
        self.the_store_tells_the_same()
        self.flows_have_the_counts_of_their_jobs_and_end()
        self.every_end_has_its_job()
        for one in self.model.jobs.values():
            shown = [each.id for each in predecessors(self.store, one.id, limit=10_000)]
            assert set(one.after) <= set(shown)

    def finish(self, claim: Claim) -> None:
        settlement = settle(claim, Done("1"))
        assert settlement is not None
        with self.store.transaction() as tx:
            assert tx.jobs.settle([settlement], self.holder) == []
        self.model.end(self.model.jobs[claim.id], State.DONE, None)

    def every_end_has_its_job(self) -> None:
        hooks = self.store.jobs.find(JobFilter(queue=f"{self.queue}-hooks", limit=10_000))
        ends = [msgspec.json.decode(hook.payload, type=FlowEnd) for hook in hooks]
        wanted = [(flow.id, nr + 1) for flow in self.model.flows.values() for nr in range(flow.ends)]
        assert sorted((end.flow, end.end) for end in ends) == sorted(wanted)


# spec: FL-1, FL-2, FL-3, FL-4, FL-6
@pytest.mark.parametrize("histories", [8, pytest.param(80, marks=pytest.mark.full)])
def test_the_flows_of_a_store_and_their_model_tell_the_same_story(
    store_factory: Callable[[], Store], histories: int
) -> None:
    store = store_factory()

    class Machine(FlowMachine):
        def __init__(self) -> None:
            super().__init__(store)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
