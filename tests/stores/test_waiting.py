"""Tests for due jobs: those that sleeping workers could take, and queues that no crew may serve."""

import pytest
from builders import HOUR, ME, NOON, Wall, ask, bring, cancel, end, job, jobs, pause, put, record, take, take_one

from chargehand.model.batch import Grant, Want
from chargehand.model.job import Interrupted, RetryLater, State
from chargehand.store import Store

# workers that sleep


# spec: WK-3
@pytest.mark.parametrize(
    ("there", "limit", "asleep", "taken", "waiting"),
    [
        (5, 2, 10, 2, 3),
        (5, 2, 1, 2, 1),
        (5, 2, 0, 2, 0),
        (5, 0, 3, 0, 3),
        (5, 0, 9, 0, 5),
        (2, 2, 4, 2, 0),
        (0, 1, 4, 0, 0),
    ],
)
def test_a_claim_says_how_many_more_could_be_taken(
    store: Store, there: int, limit: int, asleep: int, taken: int, waiting: int
) -> None:
    put(store, *jobs(there), *jobs(20, queue="other"), *jobs(20, delay_ms=HOUR))
    bring(store, State.DONE, queue="third")
    grant = ask(store, limit, asleep=asleep)
    assert (len(grant.claims), grant.waiting) == (taken, waiting)
    assert store.jobs.counts()[1].queued == there - taken + 20


# spec: WK-3
def test_with_nothing_wanted_nothing_is_taken(store: Store) -> None:
    put(store, *jobs(3))
    assert ask(store, 0) == Grant("q", (), None)
    assert ask(store, 0, asleep=2) == Grant("q", (), None, 2)
    assert len(take(store, 5)) == 3


# spec: WK-3, PD-1
@pytest.mark.parametrize("scope", ["*", "q"])
def test_nothing_waits_for_a_paused_crew(store: Store, scope: str) -> None:
    put(store, *jobs(3))
    assert ask(store, 0, asleep=5).waiting == 3
    pause(store, scope)
    assert ask(store, 0, asleep=5).waiting == 0


# spec: WK-3
def test_what_has_just_fallen_due_waits(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, *jobs(3, delay_ms=HOUR))
    assert ask(store, 0, asleep=5).waiting == 0
    wall.at += HOUR
    assert ask(store, 0, asleep=5).waiting == 3


# spec: WK-3
def test_whoever_has_only_sleepers_learns_when_to_ask_again(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job(delay_ms=HOUR))
    assert ask(store, 0, asleep=1).next_in_ms == HOUR
    put(store, job())
    assert ask(store, 0, asleep=1) == Grant("q", (), None, 1)
    assert ask(store, 0, asleep=2) == Grant("q", (), HOUR, 1)


# spec: WK-3
def test_what_one_crew_takes_does_not_wait_for_the_next(store: Store) -> None:
    put(store, *jobs(5))
    with store.transaction() as tx:
        a, b = tx.jobs.claim([Want("a", "q", 2, 9), Want("b", "q", 2, 9)], ME)
    assert (a.waiting, b.waiting) == (3, 1)


# queues


# spec: SV-12
def test_every_queue_with_due_work_is_named_with_its_age(store: Store, wall: Wall) -> None:
    for number, queue in enumerate(("c", "a", "", "B", "a/b", "ü")):
        wall.at = NOON + number
        put(store, *jobs(3, queue=queue))
    wall.at = NOON + 1000
    expected = {"c": 1000, "a": 999, "": 998, "B": 997, "a/b": 996, "ü": 995}
    assert store.jobs.waiting() == sorted(expected.items())


# spec: SV-12
@pytest.mark.parametrize("other", [one for one in State if one is not State.QUEUED])
def test_a_queue_without_waiting_work_is_not_named(store: Store, other: State) -> None:
    bring(store, other, queue="a")
    bring(store, other, queue="c")
    put(store, job("waits", "b"))
    assert [queue for queue, _ in store.jobs.waiting()] == ["b"]
    cancel(store, "waits")
    assert store.jobs.waiting() == []


# spec: SV-12
def test_the_age_is_of_the_one_that_is_taken_next(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("old"))
    wall.at = NOON + 500
    put(store, job("urgent", priority=1), job("usual"))
    wall.at = NOON + 1000
    assert store.jobs.waiting() == [("q", 500)]
    assert take_one(store).id == "urgent"
    assert store.jobs.waiting() == [("q", 1000)]
    assert take_one(store).id == "old"
    assert store.jobs.waiting() == [("q", 500)]
    take(store, 1)
    assert store.jobs.waiting() == []


# spec: SV-12
def test_work_that_fell_due_and_that_nobody_ever_asked_for_is_waiting(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("a", "a", delay_ms=HOUR), job("b", "b", delay_ms=2 * HOUR), job("c", "c", delay_ms=3 * HOUR))
    assert store.jobs.waiting() == []
    wall.at = NOON + HOUR
    assert store.jobs.waiting() == [("a", 0)]
    wall.at = NOON + 2 * HOUR + 5
    assert store.jobs.waiting() == [("a", HOUR + 5), ("b", 5)]
    assert record(store, "a").state is State.QUEUED


# spec: SV-12
def test_a_queue_with_both_kinds_is_named_once_with_the_longer_age(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("later", delay_ms=100), job("far", delay_ms=HOUR))
    wall.at = NOON + 300
    put(store, job("now"))
    wall.at = NOON + 1000
    assert store.jobs.waiting() == [("q", 900)]
    assert [claim.id for claim in take(store, 1)] == ["later"]
    assert store.jobs.waiting() == [("q", 700)]


# spec: SV-12
def test_a_job_that_comes_back_waits_from_when_it_is_due(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("one"))
    claim = take_one(store)
    wall.at = NOON + 1000
    end(store, claim, RetryLater(HOUR, "x"))
    assert store.jobs.waiting() == []
    wall.at += HOUR + 7
    assert store.jobs.waiting() == [("q", 7)]
    end(store, take_one(store), Interrupted("x"))
    assert store.jobs.waiting() == [("q", 7)]


# spec: SV-12
def test_a_clock_that_is_set_back_makes_no_age_below_zero(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("one"))
    wall.at = NOON - HOUR
    assert store.jobs.waiting() == [("q", 0)]
