"""Helpers of the store tests. They use the contract only, nothing of one store."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import pgserver
from chargehand import clock
from chargehand.ids import new_id
from chargehand.model.batch import Grant, Note, Want
from chargehand.model.flows import FlowCancelled, FlowRecord, NewFlow, Predecessor, PredecessorFilter
from chargehand.model.job import (
    Claim,
    Done,
    Enqueued,
    GaveUp,
    JobRecord,
    NewJob,
    Outcome,
    Returned,
    State,
    settle,
)
from chargehand.model.records import Counts, CrewRow, Holder, JobFilter
from chargehand.store import Store, Transaction

DIRECT = pytest.mark.skipif(
    pgserver.POOLER is not None, reason="needs sessions, logins or settings that a pooler hides"
)
ME = Holder("node-a", "life-2")
EARLIER_ME = Holder("node-a", "life-1")
HOUR = 3_600_000
NOON = 1_800_000_000_000
"""A fixed time, for tests that stop the clock."""


class Wall:
    """A store's clock: the system clock, until a test sets it."""

    at: int | None = None

    def __call__(self) -> int:
        return clock.now_ms() if self.at is None else self.at


def job(id: str | None = None, queue: str = "q", **options: Any) -> NewJob:
    return NewJob(id=id or new_id(), queue=queue, **options)


def jobs(count: int, **options: Any) -> list[NewJob]:
    return [job(**options) for _ in range(count)]


def put(store: Store, *new: NewJob) -> list[Enqueued]:
    with store.transaction() as tx:
        return tx.jobs.enqueue(new)


def ask(
    store: Store, limit: int = 1, *, asleep: int = 0, queue: str = "q", crew: str | None = None, holder: Holder = ME
) -> Grant:
    with store.transaction() as tx:
        (grant,) = tx.jobs.claim([Want(crew or queue, queue, limit, asleep)], holder)
    return grant


def take(store: Store, limit: int = 1, *, queue: str = "q", holder: Holder = ME) -> list[Claim]:
    return list(ask(store, limit, queue=queue, holder=holder).claims)


def take_one(store: Store, *, queue: str = "q", holder: Holder = ME) -> Claim:
    (claim,) = take(store, 1, queue=queue, holder=holder)
    return claim


def end(store: Store, claim: Claim, outcome: Outcome, *, holder: Holder = ME, **where: Any) -> list[str]:
    """Settles one claim. Returns the ids of jobs whose claims no longer held."""
    settlement = settle(claim, outcome, **where)
    assert settlement is not None
    with store.transaction() as tx:
        return [job_id for job_id, _ in tx.jobs.settle([settlement], holder)]


def cancel(store: Store, *ids: str) -> list[str]:
    """Cancels jobs. Returns the ids of those that were cancelled at once."""
    with store.transaction() as tx:
        return [one.id for one in tx.jobs.cancel(ids) if one.at_once]


def release(store: Store, claim: Claim, why: str = "by hand") -> bool:
    with store.transaction() as tx:
        return tx.jobs.release(claim.id, str(claim.number), why)


def note(store: Store, claim: Claim, worker: str = "worker:q:0", progress: str | None = None) -> None:
    with store.transaction() as tx:
        tx.jobs.note([Note(seq=claim.seq, claim=claim.number, worker=worker, age_ms=0, progress=progress)])


def retry(store: Store, *ids: str) -> list[str]:
    with store.transaction() as tx:
        return tx.jobs.retry(ids)


def recover(store: Store, holder: Holder = ME, why: str = "the node ended") -> list[str]:
    with store.transaction() as tx:
        return [ended.id for ended in tx.jobs.recover(holder, why)]


def record(store: Store, job_id: str) -> JobRecord:
    found = store.jobs.get(job_id)
    assert found is not None, f"job {job_id} is not in the store"
    return found


def state(store: Store, job_id: str) -> State:
    return record(store, job_id).state


def everything(store: Store) -> list[JobRecord]:
    return store.jobs.find(JobFilter(limit=1_000_000))


def plain(raw: msgspec.Raw | None) -> Any:
    return None if raw is None else msgspec.json.decode(raw)


def pause(store: Store, scope: str, for_ms: int | None = None) -> None:
    with store.transaction() as tx:
        tx.fleet.pause(scope, "me", None, for_ms)


def resume(store: Store, scope: str) -> bool:
    with store.transaction() as tx:
        return tx.fleet.resume(scope)


def crew(name: str, queue: str = "q", workers: int = 1, timeout_ms: int | None = 5, **limits: Any) -> CrewRow:
    """Returns a crew; `limits` may have `limit`, `rate`, and both per key."""
    return CrewRow(
        name=name, queue=queue, handler="m:H", workers=workers, max_attempts=3, timeout_ms=timeout_ms, priority=2,
        **limits,
    )  # fmt: skip


def register(store: Store, *crews: CrewRow, holder: Holder = ME, **about: Any) -> None:
    """Registers a node; an earlier life of the same name is dead."""
    last = store.fleet.last_life(holder.node)
    with store.transaction() as tx:
        tx.fleet.register(holder, crews, about, after=None if last is None else last.life)


class Boom(Exception):
    """Raised to make a transaction fail."""


def roll_back(store: Store, work: Callable[[Transaction], object]) -> None:
    """Does the work in a transaction that fails at its end."""

    def doomed() -> None:
        with store.transaction() as tx:
            work(tx)
            raise Boom

    with pytest.raises(Boom):
        doomed()


def bring(store: Store, wanted: State, **options: Any) -> Claim:
    """Creates a job in this state that was claimed at least once. Returns its newest claim."""
    new = job(**options)
    put(store, new)
    claim = take_one(store, queue=new.queue)
    assert claim.id == new.id
    match wanted:
        case State.RUNNING:
            pass
        case State.QUEUED:
            assert end(store, claim, Returned()) == []
        case State.DONE:
            assert end(store, claim, Done("1")) == []
        case State.FAILED:
            assert end(store, claim, GaveUp("no use")) == []
        case State.CANCELLED:
            assert end(store, claim, Returned()) == []
            assert cancel(store, new.id) == [new.id]
    assert state(store, new.id) is wanted
    return claim


def fan_out(*children: NewJob, result: str = "1") -> Done:
    """Returns the outcome of a handler that spawned these jobs."""
    return Done(result, tuple(msgspec.structs.replace(child, child=True) for child in children))


def take_named(store: Store, job_id: str, *, holder: Holder = ME) -> Claim:
    """Claims the next job of its queue, which must be this one."""
    claim = take_one(store, queue=record(store, job_id).queue, holder=holder)
    assert claim.id == job_id
    return claim


def finish(store: Store, job_id: str, outcome: Outcome | None = None) -> None:
    """Claims and settles the next job of its queue, which must be this one."""
    assert end(store, take_named(store, job_id), Done("1") if outcome is None else outcome) == []


def perform_all(store: Store, queue: str = "q") -> list[str]:
    """Performs the jobs of a queue, one after the other, until none can be claimed. Returns their ids in order."""
    performed: list[str] = []
    while claims := take(store, queue=queue):
        performed.append(claims[0].id)
        assert end(store, claims[0], Done(msgspec.json.encode(claims[0].id).decode())) == []
    return performed


def states(store: Store, *ids: str) -> list[State]:
    return [state(store, job_id) for job_id in ids]


def begin(store: Store, flow: NewFlow | str, *new: NewJob) -> None:
    """Makes a flow with its first jobs, in one transaction."""
    flow = NewFlow(id=flow, name=f"flow {flow}") if isinstance(flow, str) else flow
    with store.transaction() as tx:
        tx.flows.begin(flow)
        tx.jobs.enqueue([msgspec.structs.replace(one, flow=flow.id) for one in new])


def flow_of(store: Store, flow_id: str) -> FlowRecord:
    found = store.flows.get(flow_id)
    assert found is not None, f"flow {flow_id} is not in the store"
    return found


def cancel_flow(store: Store, flow_id: str) -> FlowCancelled:
    with store.transaction() as tx:
        return tx.flows.cancel(flow_id)


def retry_flow(store: Store, flow_id: str) -> list[str]:
    with store.transaction() as tx:
        return tx.flows.retry(flow_id)


def predecessors(store: Store, job_id: str, **which: Any) -> list[Predecessor]:
    return store.jobs.predecessors(PredecessorFilter(job=job_id, **which))


def counted(store: Store) -> list[Counts]:
    """Returns the counts of every queue, without the time of the last job that is done."""
    return [msgspec.structs.replace(counts, last_done_ms=None) for counts in store.jobs.counts()]
