"""Tests every operation of the contract in every state: an allowed one takes effect, any other changes nothing."""

from collections.abc import Callable
from contextlib import suppress

import msgspec
import pytest
from builders import ME, bring, cancel, job, put, recover, release, retry, take

from chargehand.model.batch import Note
from chargehand.model.job import TRANSITIONS, Claim, Settlement, State
from chargehand.model.records import Holder, Retention
from chargehand.store import Store

LATER_ME = Holder("node-a", "life-3")


def settling(to: State, *, off: int = 0) -> Callable[[Store, Claim], None]:
    def operate(store: Store, claim: Claim) -> None:
        settlement = Settlement(
            id=claim.id, seq=claim.seq, claim=claim.number + off, queue=claim.queue, state=to, outcome="x", error="e"
        )
        with store.transaction() as tx:
            tx.jobs.settle([settlement], ME)

    return operate


def impossible(store: Store, claim: Claim) -> None:
    with suppress(Exception):  # a store may refuse with an error or with an answer
        settling(State.RUNNING)(store, claim)


def note(store: Store, claim: Claim) -> None:
    with store.transaction() as tx:
        tx.jobs.note([Note(seq=claim.seq, claim=claim.number - 1, worker="worker:c:0", age_ms=5)])


def prune(store: Store, claim: Claim) -> None:
    store.prune(Retention(count=0), 100)


OPERATIONS: dict[str, tuple[Callable[[Store, Claim], object], dict[State, State | None]]] = {
    "claim": (lambda store, _: take(store, 10), {State.QUEUED: State.RUNNING}),
    "settle as done": (settling(State.DONE), {State.RUNNING: State.DONE}),
    "settle as failed": (settling(State.FAILED), {State.RUNNING: State.FAILED}),
    "settle as cancelled": (settling(State.CANCELLED), {State.RUNNING: State.CANCELLED}),
    "settle as queued": (settling(State.QUEUED), {State.RUNNING: State.QUEUED}),
    "settle as running": (impossible, {}),
    "settle with an older number": (settling(State.DONE, off=-1), {}),
    "settle with a number that never was": (settling(State.DONE, off=1), {}),
    "note with an older number": (note, {}),
    "cancel": (lambda store, claim: cancel(store, claim.id), {State.QUEUED: State.CANCELLED}),
    "release": (release, {State.RUNNING: State.QUEUED}),
    "release an older claim": (
        lambda store, claim: release(store, msgspec.structs.replace(claim, number=claim.number - 1)),
        {},
    ),
    "retry": (
        lambda store, claim: retry(store, claim.id),
        {State.FAILED: State.QUEUED, State.CANCELLED: State.QUEUED},
    ),
    "recover for the life that holds": (lambda store, _: recover(store), {}),
    "recover for a later life": (lambda store, _: recover(store, LATER_ME), {State.RUNNING: State.QUEUED}),
    "enqueue the same id": (lambda store, claim: put(store, job(claim.id)), {}),
    "prune": (prune, dict.fromkeys((State.DONE, State.FAILED, State.CANCELLED))),
}


# spec: WK-1
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("before", list(State))
def test_only_the_transitions_in_the_table_happen(store: Store, before: State, operation: str) -> None:
    operate, allowed = OPERATIONS[operation]
    claim = bring(store, before)
    was = store.jobs.get(claim.id)
    assert was is not None
    operate(store, claim)
    now = store.jobs.get(claim.id)
    if before not in allowed:
        if operation == "cancel" and before is State.RUNNING:
            assert now is not None
            now = msgspec.structs.replace(now, cancel_ms=None)  # the cancel request is the only change
        assert now == was
    elif allowed[before] is None:
        assert now is None
    else:
        assert now is not None
        assert now.state is allowed[before]
        assert now.state in TRANSITIONS[before]


# spec: WK-1
def test_every_transition_of_the_model_can_be_made_by_some_operation() -> None:
    made = {(a, b) for _, allowed in OPERATIONS.values() for a, b in allowed.items() if b is not None}
    made.add((State.QUEUED, State.FAILED))  # by the end of another job, see below
    assert made == {(a, b) for a, following in TRANSITIONS.items() for b in following}


# spec: WK-1, FL-2
@pytest.mark.parametrize("ends", [State.FAILED, State.CANCELLED])
def test_only_a_waiting_follower_fails_with_its_predecessor(store: Store, ends: State) -> None:
    put(store, job("p", queue="before"), *(job(f"{each}", after=("p",)) for each in (State.QUEUED, State.CANCELLED)))
    beside = bring(store, State.QUEUED, queue="beside")
    cancel(store, State.CANCELLED)
    was = [store.jobs.get(each) for each in (State.CANCELLED, beside.id)]
    if ends is State.FAILED:
        settling(State.FAILED)(store, take(store, 1, queue="before")[0])
    else:
        cancel(store, "p")
    failed = store.jobs.get(State.QUEUED)
    assert failed is not None
    assert (failed.state, failed.reason) == (State.FAILED, "predecessor")
    assert [store.jobs.get(each) for each in (State.CANCELLED, beside.id)] == was


# spec: WK-1
@pytest.mark.parametrize("operation", [name for name in OPERATIONS if not name.startswith("enqueue")])
def test_an_operation_on_a_job_that_is_not_there_makes_none(store: Store, operation: str) -> None:
    claim = bring(store, State.DONE)
    assert store.prune(Retention(count=0), 100) == 1
    OPERATIONS[operation][0](store, claim)
    assert store.jobs.get(claim.id) is None
    assert store.jobs.counts() == []


# spec: WK-1
@pytest.mark.parametrize(
    "operation", [name for name in OPERATIONS if name not in ("recover for a later life", "prune")]
)
@pytest.mark.parametrize("before", list(State))
def test_a_job_beside_it_is_left_as_it_is(store: Store, before: State, operation: str) -> None:
    """An operation on one job by its id or claim does not change a job of another queue."""
    beside = bring(store, before, queue="other")
    was = store.jobs.get(beside.id)
    claim = bring(store, before)
    OPERATIONS[operation][0](store, claim)
    assert store.jobs.get(beside.id) == was
