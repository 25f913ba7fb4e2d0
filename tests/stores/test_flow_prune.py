"""Tests for pruning with flows: what is still needed stays, and everything else goes."""

import pytest
from builders import (
    HOUR,
    NOON,
    Wall,
    begin,
    bring,
    cancel,
    everything,
    fan_out,
    finish,
    flow_of,
    job,
    jobs,
    perform_all,
    predecessors,
    put,
    record,
    state,
    take_named,
    take_one,
)

from chargehand.model.flows import NewFlow
from chargehand.model.job import Done, GaveUp, State
from chargehand.model.records import Retention
from chargehand.store import Store

AT_ONCE = Retention(count=0)


def prune_all(store: Store, limit: int = 100, retention: Retention = AT_ONCE) -> int:
    """Prunes until nothing more is deleted. Returns how many jobs were."""
    total = 0
    while (number := store.prune(retention, limit)) or store.pruning:
        total += number
    return total


def left(store: Store) -> list[str]:
    return sorted(found.id for found in everything(store))


# spec: FL-3, WK-12
@pytest.mark.parametrize("running", [False, True])
def test_a_finished_job_stays_while_a_follower_needs_its_result(store: Store, running: bool) -> None:
    put(store, job("a", queue="r"), job("b", queue="s"), job("f", after=("a", "b")))
    finish(store, "a", Done('"kept"'))
    assert prune_all(store) == 0
    if running:
        finish(store, "b")
        take_named(store, "f")
    assert prune_all(store) == 0
    assert [found.id for found in predecessors(store, "f")] == ["a", "b"]


# spec: FL-3, WK-12
def test_children_stay_while_a_follower_of_their_parent_needs_them(store: Store) -> None:
    put(store, job("p", queue="r"), job("o", queue="o"), job("f", after=("p", "o")))
    finish(store, "p", fan_out(job("c1", queue="s"), job("c2", queue="s")))
    perform_all(store, "s")
    assert prune_all(store) == 0
    finish(store, "o")
    finish(store, "f")
    assert prune_all(store) == 5


# spec: FL-2, WK-12
def test_a_job_goes_when_its_followers_have_ended(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)), job("g", after=("a",), if_failed="run"))
    finish(store, "a", GaveUp("x"))
    assert prune_all(store) == 1, "only the follower that failed"
    assert left(store) == ["a", "g"]
    finish(store, "g")
    assert prune_all(store) == 2
    assert left(store) == []


# spec: WK-12
@pytest.mark.parametrize("limit", [1, 7, 100])
def test_jobs_that_stay_do_not_stop_the_pruning_of_others(store: Store, limit: int) -> None:
    put(store, *(job(f"needed{n:02}", queue="q") for n in range(20)))
    put(store, job("f", queue="t", after=(*(f"needed{n:02}" for n in range(20)), "needed00")), job("x", queue="x"))
    put(store, job("g", queue="t", after=(*(f"needed{n:02}" for n in range(20)), "x")))
    perform_all(store, "q")
    put(store, *jobs(30, queue="q"))
    perform_all(store, "q")
    assert prune_all(store, limit) == 30
    assert len(left(store)) == 23


# spec: FL-4, WK-12
def test_jobs_of_a_flow_stay_until_it_has_ended(store: Store) -> None:
    begin(store, "w", job("a"), job("b", queue="r"))
    finish(store, "a")
    bring(store, State.DONE, queue="s")
    assert prune_all(store) == 1
    assert left(store) == ["a", "b"]
    finish(store, "b")
    assert prune_all(store) == 2
    assert store.flows.get("w") is None, "the flow goes after its last job"


# spec: FL-4, WK-12
def test_a_flow_stays_while_it_has_a_job(store: Store, wall: Wall) -> None:
    wall.at = NOON
    begin(store, "w", job("a"), job("b"))
    finish(store, "a")
    finish(store, "b")
    assert store.prune(AT_ONCE, 1) == 1
    assert flow_of(store, "w").state == "done"
    prune_all(store)
    assert store.flows.get("w") is None


# spec: FL-4, WK-12
def test_a_flow_within_its_retention_stays(store: Store, wall: Wall) -> None:
    wall.at = NOON
    begin(store, "w", job("a"))
    finish(store, "a")
    assert prune_all(store, retention=Retention(age_ms=HOUR)) == 0
    assert flow_of(store, "w").counts.done == 1
    wall.at += 2 * HOUR
    assert prune_all(store, retention=Retention(age_ms=HOUR)) == 1
    assert store.flows.get("w") is None


# spec: FL-4, WK-12
def test_an_empty_flow_goes_too(store: Store, wall: Wall) -> None:
    wall.at = NOON
    begin(store, "w")
    wall.at += 2 * HOUR
    prune_all(store, retention=Retention(age_ms=HOUR))
    assert store.flows.get("w") is None


# spec: FL-4, WK-12
def test_a_flow_that_goes_on_is_never_pruned(store: Store, wall: Wall) -> None:
    wall.at = NOON
    begin(store, NewFlow(id="w", name="w"), job("a"), job("f", after=("a",)))
    finish(store, "a")
    claim = take_one(store)
    wall.at += 1000 * HOUR
    assert prune_all(store, retention=Retention(age_ms=HOUR)) == 0
    assert claim.id == "f"
    assert flow_of(store, "w").counts.done == 1


# spec: FL-6, WK-12
def test_the_one_before_in_a_sequence_is_not_needed(store: Store) -> None:
    put(store, job("s0", sequence="a"), job("s1", sequence="a"))
    finish(store, "s0")
    assert prune_all(store) == 1
    assert take_one(store).id == "s1"


# spec: WK-12
def test_a_cancelled_follower_needs_nothing(store: Store) -> None:
    put(store, job("a", queue="r"), job("b", queue="s"), job("f", after=("a", "b")))
    finish(store, "a")
    cancel(store, "f")
    assert prune_all(store) == 2
    assert left(store) == ["b"]


# spec: FL-2, WK-12
def test_a_follower_outlives_its_predecessors(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)), job("g", after=("f",)))
    finish(store, "a")
    finish(store, "f")
    assert prune_all(store) == 1
    assert left(store) == ["f", "g"]
    assert state(store, "g") is State.QUEUED
    assert (predecessors(store, "f"), record(store, "g").waits_for) == ([], 0)
    assert take_one(store).id == "g"
