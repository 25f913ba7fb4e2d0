"""Compares a store with a model in memory, for any order of operations."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest
from builders import HOUR, crew, plain, register
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from chargehand.errors import Conflict
from chargehand.model.batch import Want
from chargehand.model.job import (
    Claim,
    Crashed,
    Done,
    Enqueued,
    Found,
    GaveUp,
    Interrupted,
    NewJob,
    Outcome,
    Raised,
    RetryLater,
    Returned,
    State,
    settle,
)
from chargehand.model.records import CancelResult, Discovered, Discovery, Holder, JobFilter
from chargehand.store import Store

machines = itertools.count()
lives = st.sampled_from(["life-1", "life-2", "life-3"])
picks = st.integers(0, 10_000)
outcomes = st.sampled_from(["done", "raised", "retry", "gave up", "crashed", "interrupted", "returned"])


@dataclass
class Expected:
    """The expected state of one job."""

    id: str
    order: int
    priority: int
    key: str | None
    limit_key: str | None = None
    item: str | None = None
    state: State = State.QUEUED
    future: bool = False
    life: str | None = None
    number: int = 0
    numbers: set[int] = field(default_factory=set[int])
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    result: str | None = None
    to_cancel: bool = False
    retried: bool = False
    history: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])


class StoreMachine(RuleBasedStateMachine):
    """Each machine has its own queue and lives in one store, so that it never sees another machine's jobs."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store, self.number = store, next(machines)
        self.queue = f"queue-{self.number}"
        self.jobs: dict[str, Expected] = {}
        self.claims: list[tuple[Claim, str]] = []
        self.completions: list[str] = []
        self.names = itertools.count()
        self.allowed: int | None = None
        self.allowed_per_key: int | None = 1
        self.limit(None, 1)

    def holder(self, life: str) -> Holder:
        return Holder("node", f"{self.number}-{life}")

    def any_job(self, pick: int) -> Expected:
        return list(self.jobs.values())[pick % len(self.jobs)]

    def key_holder(self, key: str | None) -> Expected | None:
        alive = (one for one in self.jobs.values() if one.state in (State.QUEUED, State.RUNNING))
        return next((one for one in alive if key is not None and one.key == key), None)

    @rule(allowed=st.sampled_from([None, 0, 2, 5]), allowed_per_key=st.sampled_from([None, 0, 1, 1, 2]))
    def limit(self, allowed: int | None, allowed_per_key: int | None) -> None:
        limited = crew("crew", self.queue, limit=allowed, limit_per_key=allowed_per_key)
        register(self.store, limited, holder=self.holder("node"))
        self.allowed, self.allowed_per_key = allowed, allowed_per_key

    @rule(
        shapes=st.lists(
            st.tuples(
                st.integers(-2, 2),
                st.sampled_from([None, "a", "b"]),
                st.booleans(),
                st.sampled_from([None, "x", "x", "y"]),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def enqueue(self, shapes: list[tuple[int, str | None, bool, str | None]]) -> None:
        new: list[NewJob] = []
        answers: list[Enqueued] = []
        for priority, key, future, limit_key in shapes:
            one = NewJob(
                id=f"{self.queue}-{next(self.names)}", queue=self.queue, priority=priority, key=key,
                delay_ms=HOUR if future else 0, limit_key=limit_key,
            )  # fmt: skip
            new.append(one)
            taken = self.key_holder(key)
            answers.append(Enqueued(taken.id, False) if taken else Enqueued(one.id, True))
            if taken is None:
                self.jobs[one.id] = Expected(one.id, len(self.jobs), priority, key, limit_key, future=future)
        with self.store.transaction() as tx:
            assert tx.jobs.enqueue(new) == answers

    @rule(items=st.lists(st.sampled_from(["i", "j", "k"]), max_size=4))
    def discover(self, items: list[str]) -> None:
        expected = {"queued": 0, "held": 0, "set aside": 0}
        stuck: list[str] = []
        for item in items:
            verdict = self.verdict(item)
            if verdict == "no progress":
                stuck.append(item)
            else:
                expected[verdict] += 1
            if verdict in ("queued", "no progress"):
                now = State.QUEUED if verdict == "queued" else State.FAILED
                name = f"unknown {len(self.jobs)}"
                self.jobs[name] = Expected(name, len(self.jobs), 1, f"item:{item}", item=item, state=now)
        found = tuple(Found(item=item) for item in items)
        page = Discovery(queue=self.queue, found=found, priority=1, max_attempts=3, timeout_ms=1, most_done=2)
        with self.store.transaction() as tx:
            assert tx.jobs.discover([page]) == [
                Discovered(
                    queued=expected["queued"],
                    held=expected["held"],
                    set_aside=expected["set aside"],
                    no_progress=tuple(stuck),
                )
            ]
        self.learn_names()

    def verdict(self, item: str) -> str:
        jobs = [one for one in self.jobs.values() if one.item == item]
        if jobs and jobs[-1].state is not State.DONE:
            return "held" if jobs[-1].state in (State.QUEUED, State.RUNNING) else "set aside"
        counted = jobs[max((at for at, one in enumerate(jobs) if one.retried), default=0) :]
        return "no progress" if len(counted) >= 2 else "queued"

    def learn_names(self) -> None:
        """The store makes the ids of jobs for items."""
        listed = reversed(self.store.jobs.find(JobFilter(queue=self.queue, limit=10_000)))
        fresh = (found for found in listed if found.id not in self.jobs)
        renamed: dict[str, Expected] = {}
        for name, one in self.jobs.items():
            if name.startswith("unknown"):
                found = next(fresh)
                assert found.item == one.item
                one.id = found.id
            renamed[one.id] = one
        self.jobs = renamed

    def claimable(self) -> list[Expected]:
        """Returns the jobs that can be claimed, in order: due, and within the limits."""
        running = [one for one in self.jobs.values() if one.state is State.RUNNING]
        used = {key: sum(one.limit_key == key for one in running) for key in ("x", "y")}
        fit: list[Expected] = []
        for one in sorted(self.jobs.values(), key=lambda one: (-one.priority, one.order)):
            if one.state is not State.QUEUED or one.future:
                continue
            if one.limit_key is not None and self.allowed_per_key is not None:
                if used[one.limit_key] >= self.allowed_per_key:
                    continue
                used[one.limit_key] += 1
            fit.append(one)
        return fit if self.allowed is None else fit[: max(0, self.allowed - len(running))]

    @rule(limit=st.integers(1, 4), life=lives)
    def claim(self, limit: int, life: str) -> None:
        due = self.claimable()
        with self.store.transaction() as tx:
            (grant,) = tx.jobs.claim([Want("crew", self.queue, limit)], self.holder(life))
        assert [claim.id for claim in grant.claims] == [one.id for one in due[:limit]]
        for claim in grant.claims:
            one = self.jobs[claim.id]
            assert claim.number not in one.numbers, "no two claims of a job have the same number"
            one.numbers.add(claim.number)
            assert (claim.failures, claim.crashes) == (one.failures, one.crashes)
            one.state, one.number, one.life = State.RUNNING, claim.number, life
            self.claims.append((claim, life))

    @precondition(lambda self: self.claims)
    @rule(pick=picks, how=outcomes)
    def settle_any_claim_ever_made(self, pick: int, how: str) -> None:
        claim, life = self.claims[pick % len(self.claims)]
        one = self.jobs[claim.id]
        holds = one.state is State.RUNNING and one.number == claim.number
        follow = NewJob(id=f"follow-{claim.id}-{claim.number}", queue=f"{self.queue}-follow")
        made: dict[str, Outcome] = {
            "done": Done(f'"{claim.number}"', (follow,)),
            "raised": Raised("x"),
            "retry": RetryLater(HOUR, "x"),
            "gave up": GaveUp("x"),
            "crashed": Crashed("x"),
            "interrupted": Interrupted("x"),
            "returned": Returned(),
        }
        settlement = settle(claim, made[how])
        assert settlement is not None
        if how != "retry":
            settlement = msgspec.structs.replace(settlement, delay_ms=0)  # as if the time had passed already
        with self.store.transaction() as tx:
            assert tx.jobs.settle([settlement], self.holder(life)) == ([] if holds else [(claim.id, claim.number)])
        if not holds:
            return
        one.state, one.life = settlement.state, None
        if settlement.state is State.QUEUED:
            self.come_back(one)
        one.future = one.state is State.QUEUED and settlement.delay_ms > 0
        one.failures += settlement.failures
        one.crashes += settlement.crashes
        one.interruptions += settlement.interruptions
        one.result = settlement.result
        if settlement.outcome:
            one.history.append((claim.number, settlement.outcome))
        if how == "done":
            self.completions.append(claim.id)

    def come_back(self, one: Expected) -> None:
        one.state, one.life = State.CANCELLED if one.to_cancel else State.QUEUED, None

    @precondition(lambda self: self.claims)
    @rule(pick=picks)
    def release_any_claim_ever_made(self, pick: int) -> None:
        claim, _ = self.claims[pick % len(self.claims)]
        one = self.jobs[claim.id]
        holds = one.state is State.RUNNING and one.number == claim.number
        with self.store.transaction() as tx:
            assert tx.jobs.release(claim.id, str(claim.number), "by hand") is holds
        if holds:
            self.come_back(one)
            one.interruptions += 1
            one.history.append((claim.number, "interrupted"))

    @rule(life=lives)
    def recover(self, life: str) -> None:
        dead = [one for one in self.jobs.values() if one.state is State.RUNNING and one.life != life]
        with self.store.transaction() as tx:
            recovered = [ended.id for ended in tx.jobs.recover(self.holder(life), "gone")]
        assert sorted(self.jobs.keys() & set(recovered)) == sorted(one.id for one in dead)
        for one in dead:
            self.come_back(one)
            one.interruptions += 1
            one.history.append((one.number, "interrupted"))

    @precondition(lambda self: self.jobs)
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        one = self.any_job(pick)
        with self.store.transaction() as tx:
            answer = tx.jobs.cancel([one.id])
        alive = one.state in (State.QUEUED, State.RUNNING)
        assert [(each.id, each.at_once) for each in answer] == ([(one.id, one.state is State.QUEUED)] if alive else [])
        assert one.state is not State.RUNNING or answer == [CancelResult(one.id, False, one.number)]
        if one.state is State.RUNNING:
            one.to_cancel = True
        if one.state is State.QUEUED:
            one.state, one.future = State.CANCELLED, False

    @precondition(lambda self: self.jobs)
    @rule(pick=picks)
    def retry(self, pick: int) -> None:
        one = self.any_job(pick)
        retriable = one.state in (State.FAILED, State.CANCELLED)
        taken = self.key_holder(one.key)
        if retriable and taken is not None:
            with pytest.raises(Conflict, match=taken.id), self.store.transaction() as tx:
                tx.jobs.retry([one.id])
            return
        with self.store.transaction() as tx:
            assert tx.jobs.retry([one.id]) == ([one.id] if retriable else [])
        if retriable:
            one.state, one.result = State.QUEUED, None
            one.to_cancel, one.retried = False, True
            one.failures = one.crashes = one.interruptions = 0

    @invariant()
    def the_store_tells_the_same(self) -> None:
        found = {one.id: one for one in self.store.jobs.find(JobFilter(queue=self.queue, limit=10_000))}
        assert found.keys() == self.jobs.keys(), "nothing is lost and nothing invented"
        for one in self.jobs.values():
            job = found[one.id]
            assert (job.state, job.node is not None) == (one.state, one.state is State.RUNNING)
            assert one.state is not State.RUNNING or job.claim == str(one.number)
            assert (job.failures, job.crashes, job.interruptions) == (one.failures, one.crashes, one.interruptions)
            assert (job.cancel_ms is not None, job.item, job.limit_key) == (one.to_cancel, one.item, one.limit_key)
            assert plain(job.result) == (None if one.result is None else one.result.strip('"'))

    @invariant()
    def those_to_be_cancelled_are_known(self) -> None:
        known = {job_id: number for job_id, number in self.store.jobs.cancelling() if job_id in self.jobs}
        running = [one for one in self.jobs.values() if one.state is State.RUNNING]
        assert known == {one.id: one.number for one in running if one.to_cancel}
        assert {row.id for row in self.store.jobs.claims()} & self.jobs.keys() == {one.id for one in running}

    @invariant()
    def nothing_is_completed_twice(self) -> None:
        assert len(self.completions) == len(set(self.completions))

    def teardown(self) -> None:
        for one in self.jobs.values():
            assert [(int(a.claim), a.outcome) for a in self.store.jobs.attempts(one.id)] == one.history
        follows = self.store.jobs.find(JobFilter(queue=f"{self.queue}-follow", limit=10_000))
        assert len(follows) == len(self.completions), "a follow-up for every accepted completion, and no other"


# spec: WK-1, WK-2, WK-3, WK-4, WK-6, WK-8, WK-10, WK-13
@pytest.mark.parametrize("histories", [8, pytest.param(60, marks=pytest.mark.full)])
def test_a_store_and_its_model_tell_the_same_story(store_factory: Callable[[], Store], histories: int) -> None:
    store = store_factory()

    class Machine(StoreMachine):
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
