"""Tests for several processes that end predecessors, members and parents at the same time."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest
from builders import (
    ME,
    begin,
    cancel,
    end,
    everything,
    fan_out,
    finish,
    flow_of,
    job,
    perform_all,
    put,
    record,
    retry,
    state,
    take,
    take_named,
    take_one,
)

from chargehand.errors import FlowEnded, StoreBusy
from chargehand.model.flows import FlowCounts, NewFlow
from chargehand.model.job import Claim, Done, GaveUp, NewJob, State, settle
from chargehand.model.records import Holder
from chargehand.store import Store, Transaction

Factory = Callable[[], Store]


def settled(tx: Transaction, claim: Claim, outcome: Done | GaveUp | None = None) -> None:
    made = settle(claim, outcome or Done("1"))
    assert made is not None
    assert tx.jobs.settle([made], ME) == []


def overlapping(
    store: Store, other: Store, first: Callable[[Transaction], object], second: Callable[[Store], object]
) -> None:
    """Commits `first` after `second` has begun, and has ended if it does not have to wait for the first."""
    with ThreadPoolExecutor(1) as pool:
        with store.transaction() as tx:
            first(tx)
            begun = threading.Event()

            def run() -> None:
                begun.set()
                second(other)

            future: Future[None] = pool.submit(run)
            begun.wait(10)
            with suppress(TimeoutError):
                future.result(0.3)
        future.result(30)


# spec: FL-1
def test_the_last_two_predecessors_end_at_the_same_time(store: Store, store_factory: Factory) -> None:
    put(store, job("a", queue="r"), job("b", queue="s"), job("f", after=("a", "b")))
    a, b = take_named(store, "a"), take_named(store, "b")
    overlapping(store, store_factory(), lambda tx: settled(tx, a), lambda other: end(other, b, Done("1")))
    assert (state(store, "a"), state(store, "b")) == (State.DONE, State.DONE)
    assert take_one(store).id == "f"


# spec: FL-1
@pytest.mark.parametrize("ends", ["well", "badly"])
def test_a_follower_is_enqueued_while_its_predecessor_ends(store: Store, store_factory: Factory, ends: str) -> None:
    put(store, job("a", queue="r"))
    a = take_named(store, "a")
    outcome = Done("1") if ends == "well" else GaveUp("x")
    overlapping(
        store, store_factory(), lambda tx: tx.jobs.enqueue([job("f", after=("a",))]),
        lambda other: end(other, a, outcome),
    )  # fmt: skip
    assert state(store, "a") is (State.DONE if ends == "well" else State.FAILED)
    assert [claim.id for claim in take(store, 10)] == (["f"] if ends == "well" else [])
    assert state(store, "f") is (State.RUNNING if ends == "well" else State.FAILED)


# spec: FL-1
@pytest.mark.parametrize("ends", ["well", "badly"])
def test_a_predecessor_ends_while_its_follower_is_enqueued(store: Store, store_factory: Factory, ends: str) -> None:
    put(store, job("a", queue="r"))
    a = take_named(store, "a")
    outcome = Done("1") if ends == "well" else GaveUp("x")
    overlapping(
        store, store_factory(), lambda tx: settled(tx, a, outcome),
        lambda other: put(other, job("f", after=("a",))),
    )  # fmt: skip
    assert [claim.id for claim in take(store, 10)] == (["f"] if ends == "well" else [])
    assert state(store, "f") is (State.RUNNING if ends == "well" else State.FAILED)


# spec: FL-3
def test_a_follower_is_enqueued_while_its_predecessor_spawns(store: Store, store_factory: Factory) -> None:
    put(store, job("p", queue="r"))
    p = take_named(store, "p")
    overlapping(
        store, store_factory(), lambda tx: tx.jobs.enqueue([job("f", after=("p",))]),
        lambda other: end(other, p, fan_out(job("c", queue="s"))),
    )  # fmt: skip
    assert take(store, 10) == []
    assert record(store, "f").waits_for == 1
    finish(store, "c")
    assert take_one(store).id == "f"


# spec: FL-3
def test_a_predecessor_spawns_while_its_follower_is_enqueued(store: Store, store_factory: Factory) -> None:
    put(store, job("p", queue="r"))
    p = take_named(store, "p")
    overlapping(
        store, store_factory(), lambda tx: settled(tx, p, fan_out(job("c", queue="s"))),
        lambda other: put(other, job("f", after=("p",))),
    )  # fmt: skip
    assert take(store, 10) == []
    finish(store, "c")
    assert take_one(store).id == "f"


# spec: FL-4
def test_the_last_two_members_of_a_flow_end_at_the_same_time(store: Store, store_factory: Factory) -> None:
    begin(store, NewFlow(id="w", name="w", on_end=NewJob(id="x", queue="hooks")), job("a"), job("b"))
    a, b = take_named(store, "a"), take_named(store, "b")
    overlapping(store, store_factory(), lambda tx: settled(tx, a), lambda other: end(other, b, Done("1")))
    found = flow_of(store, "w")
    assert (found.state, found.ends, found.counts) == ("done", 1, FlowCounts(done=2))
    assert len(take(store, 10, queue="hooks")) == 1


# spec: FL-4
def test_a_job_is_added_while_the_last_member_of_its_flow_ends(store: Store, store_factory: Factory) -> None:
    begin(store, NewFlow(id="w", name="w", on_end=NewJob(id="x", queue="hooks")), job("a"))
    a = take_named(store, "a")
    overlapping(
        store, store_factory(), lambda tx: tx.jobs.enqueue([job("b", flow="w")]),
        lambda other: end(other, a, Done("1")),
    )  # fmt: skip
    assert (flow_of(store, "w").state, flow_of(store, "w").ends) == ("running", 0)
    finish(store, "b")
    assert (flow_of(store, "w").state, flow_of(store, "w").ends) == ("done", 1)
    assert len(take(store, 10, queue="hooks")) == 1


# spec: FL-4
def test_a_flow_is_over_or_goes_on_but_never_has_a_job_after_its_end(store: Store, store_factory: Factory) -> None:
    begin(store, NewFlow(id="w", name="w", on_end=NewJob(id="x", queue="hooks")), job("a"))
    a = take_named(store, "a")
    refused: list[bool] = []

    def add(other: Store) -> None:
        try:
            put(other, job("b", flow="w"))
        except FlowEnded:
            refused.append(True)

    overlapping(store, store_factory(), lambda tx: settled(tx, a), add)
    assert (flow_of(store, "w").state == "done") == bool(refused)
    perform_all(store)
    assert flow_of(store, "w").state == "done"
    assert len(take(store, 10, queue="hooks")) == flow_of(store, "w").ends == 1


# spec: FL-6
def test_jobs_of_a_sequence_are_enqueued_at_the_same_time(store: Store, store_factory: Factory) -> None:
    overlapping(
        store, store_factory(), lambda tx: tx.jobs.enqueue([job("s0", sequence="a")]),
        lambda other: put(other, job("s1", sequence="a")),
    )  # fmt: skip
    claims = take(store, 10)
    assert len(claims) == 1
    assert end(store, claims[0], Done("1")) == []
    assert len(take(store, 10)) == 1


# spec: FL-2
def test_a_predecessor_is_retried_while_another_one_fails(store: Store, store_factory: Factory) -> None:
    put(store, job("a", queue="r"), job("b", queue="s"), job("f", after=("a", "b")))
    b = take_named(store, "b")
    finish(store, "a", GaveUp("x"))
    overlapping(store, store_factory(), lambda tx: tx.jobs.retry(["a"]), lambda other: end(other, b, GaveUp("x")))
    assert state(store, "f") is State.FAILED, "nothing waits for a job that has failed"
    finish(store, "a")
    retry(store, "b")
    assert record(store, "f").waits_for == 1


def work(store: Store, holder: Holder, queue: str) -> int:
    """Claims and ends jobs of a queue, until there are none. Returns how many."""
    ended = 0
    while claims := take(store, 3, queue=queue, holder=holder):
        for claim in claims:
            for _ in range(100):
                with suppress(StoreBusy):
                    assert end(store, claim, Done("1"), holder=holder) == []
                    ended += 1
                    break
    return ended


# spec: FL-3
def test_many_processes_end_children_of_one_parent(store: Store, store_factory: Factory) -> None:
    begin(store, NewFlow(id="w", name="w", on_end=NewJob(id="x", queue="hooks")), job("p", queue="p"))
    put(store, *(job(f"f{n}", flow="w", after=("p",)) for n in range(3)))
    finish(store, "p", fan_out(*(job(f"c{n}", queue="s", flow="w") for n in range(200))))
    stores = [store_factory() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(work, one, Holder(f"n{n}", f"l{n}"), "s") for n, one in enumerate(stores)]
        assert sum(future.result(60) for future in futures) == 200
    assert sorted(perform_all(store)) == ["f0", "f1", "f2"]
    assert (flow_of(store, "w").state, flow_of(store, "w").ends) == ("done", 1)
    assert len(take(store, 10, queue="hooks")) == 1


# spec: FL-2, FL-4
def test_a_flow_is_cancelled_while_its_jobs_end(store: Store, store_factory: Factory) -> None:
    """Whichever comes first, nothing waits afterwards, and the flow has ended once."""
    for turn in range(5):
        name = f"w{turn}"
        begin(store, NewFlow(id=name, name=name, on_end=NewJob(id="x", queue="hooks")), job(f"p{turn}", queue="p"))
        put(store, *(job(f"f{turn}-{n}", flow=name, after=(f"p{turn}",)) for n in range(3)))
        finish(store, f"p{turn}", fan_out(*(job(f"c{turn}-{n}", queue="s", flow=name) for n in range(20))))
        stores = [store_factory() for _ in range(3)]

        def cancel_it(other: Store, name: str = name) -> int:
            with other.transaction() as tx:
                return tx.flows.cancel(name).at_once

        with ThreadPoolExecutor(3) as pool:
            futures = [pool.submit(work, one, Holder(f"n{n}", f"l{n}"), "s") for n, one in enumerate(stores[:2])]
            futures.append(pool.submit(cancel_it, stores[2]))
            for future in futures:
                future.result(60)
        perform_all(store)
        found = flow_of(store, name)
        assert (found.counts.live, found.ends) == (0, 1)
    assert len(take(store, 10, queue="hooks")) == 5
    assert all(one.waits_for == 0 for one in everything(store))
    assert cancel(store, "nobody") == []
