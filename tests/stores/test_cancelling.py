"""Tests for cancelling queued and running jobs, and for the progress of running ones."""

from typing import Any

import pytest
from builders import (
    EARLIER_ME,
    HOUR,
    ME,
    NOON,
    Wall,
    bring,
    cancel,
    end,
    job,
    jobs,
    note,
    plain,
    put,
    record,
    recover,
    release,
    retry,
    roll_back,
    state,
    take,
    take_one,
)

from chargehand.model.job import (
    Crashed,
    Done,
    Enqueued,
    GaveUp,
    Interrupted,
    Outcome,
    Raised,
    RetryLater,
    Returned,
    State,
    settle,
)
from chargehand.model.records import CancelResult, Counts
from chargehand.store import Store

QUEUING: dict[str, Outcome] = {
    "raised": Raised("Traceback"),
    "retry": RetryLater(HOUR, "later"),
    "crashed": Crashed("signal 11"),
    "interrupted": Interrupted("stop"),
    "returned": Returned(),
}
"""Outcomes after which a job is queued again."""


def ask_to_cancel(store: Store, *ids: str) -> list[CancelResult]:
    with store.transaction() as tx:
        return tx.jobs.cancel(ids)


# what is asked for


# spec: WK-8
def test_a_running_job_is_marked_and_runs_on(store: Store, wall: Wall) -> None:
    wall.at = NOON
    claim = bring(store, State.RUNNING)
    was = record(store, claim.id)
    assert ask_to_cancel(store, claim.id) == [CancelResult(claim.id, False, claim.number)]
    found = record(store, claim.id)
    assert (found.state, found.cancel_ms, found.finished_ms, found.reason) == (State.RUNNING, NOON, None, None)
    assert (found.node, found.started_ms, found.claim) == (was.node, was.started_ms, was.claim)


# spec: WK-8
def test_the_first_time_that_somebody_asked_stays(store: Store, wall: Wall) -> None:
    wall.at = NOON
    claim = bring(store, State.RUNNING)
    for later in range(3):
        wall.at = NOON + later
        assert ask_to_cancel(store, claim.id) == [CancelResult(claim.id, False, claim.number)]
    assert record(store, claim.id).cancel_ms == NOON


# spec: WK-8
def test_each_is_answered_in_the_order_of_asking_but_for_the_finished_and_the_unknown(store: Store) -> None:
    ended = [bring(store, one).id for one in (State.DONE, State.FAILED, State.CANCELLED)]
    running = bring(store, State.RUNNING)
    put(store, job("a"), job("b", delay_ms=HOUR))
    asked = ["b", ended[0], running.id, "nobody", *ended[1:], "a", "a"]
    assert ask_to_cancel(store, *asked) == [
        CancelResult("b", True, 0),
        CancelResult(running.id, False, running.number),
        CancelResult("a", True, 0),
    ]
    assert record(store, "a").cancel_ms is None


# spec: WK-8
def test_asking_rolls_back_with_its_transaction(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    roll_back(store, lambda tx: tx.jobs.cancel([claim.id]))
    assert (record(store, claim.id).cancel_ms, store.jobs.cancelling()) == (None, [])


# spec: WK-8
def test_those_to_be_cancelled_are_listed_while_they_run(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, *jobs(6))
    first, second, third, *_ = take(store, 5)
    assert store.jobs.cancelling() == []
    for claim in (second, first, third):
        ask_to_cancel(store, claim.id)
        wall.at += 1
    assert store.jobs.cancelling() == [(each.id, each.number) for each in (second, first, third)]
    end(store, second, Done())
    end(store, first, Interrupted("cancelled"))
    assert store.jobs.cancelling() == [(third.id, third.number)]


# what comes of it


# spec: WK-8
@pytest.mark.parametrize("how", QUEUING)
def test_where_it_would_be_queued_again_it_is_cancelled(store: Store, how: str, wall: Wall) -> None:
    wall.at = NOON
    claim = bring(store, State.RUNNING, key="k")
    ask_to_cancel(store, claim.id)
    wall.at = NOON + 5
    outcome = QUEUING[how]
    assert end(store, claim, outcome, worker="w", pid=7, duration_ms=3) == []
    found = record(store, claim.id)
    assert (found.state, found.reason, found.finished_ms) == (State.CANCELLED, "cancelled", NOON + 5)
    assert (found.cancel_ms, found.node, found.error) == (NOON, None, getattr(outcome, "error", None))
    assert found.run_at_ms == NOON, "it waits for no further attempt"
    assert [(a.outcome, a.error, a.worker) for a in store.jobs.attempts(claim.id)] == (
        [] if how == "returned" else [(how, getattr(outcome, "error", None), "w")]
    )
    assert store.jobs.counts() == [Counts(queue="q", cancelled=1)]
    wall.at += HOUR
    assert take(store, 5) == []
    assert put(store, job("next", key="k")) == [Enqueued("next", True)]


# spec: WK-8, WK-4
@pytest.mark.parametrize(
    ("outcome", "wanted", "reason"),
    [
        (Done("1"), State.DONE, None),
        (Done("1", (job("follow", "other"),)), State.DONE, None),
        (GaveUp("no use"), State.FAILED, "gave up"),
        (Raised("x"), State.FAILED, "raised"),
    ],
)
def test_an_end_that_came_first_stands(store: Store, outcome: Outcome, wanted: State, reason: str | None) -> None:
    claim = bring(store, State.RUNNING, max_attempts=1)
    ask_to_cancel(store, claim.id)
    assert end(store, claim, outcome) == []
    assert (state(store, claim.id), record(store, claim.id).reason) == (wanted, reason)
    assert store.jobs.cancelling() == []


# spec: WK-8, WK-4
def test_a_batch_of_all_kinds_is_told_apart(store: Store) -> None:
    put(store, *jobs(4))
    claims = take(store, 4)
    ask_to_cancel(store, claims[0].id, claims[2].id)
    outcomes: list[Outcome] = [Done(), Done(), Interrupted("x"), Interrupted("x")]
    made = [settle(claim, outcome) for claim, outcome in zip(claims, outcomes, strict=True)]
    with store.transaction() as tx:
        assert tx.jobs.settle([one for one in made if one is not None], ME) == []
    assert [state(store, claim.id) for claim in claims] == [State.DONE, State.DONE, State.CANCELLED, State.QUEUED]


# spec: WK-8, WK-6
def test_what_a_dead_life_held_is_cancelled_if_that_was_asked_for(store: Store) -> None:
    put(store, job("one"), job("two"))
    take(store, 2, holder=EARLIER_ME)
    ask_to_cancel(store, "one")
    assert sorted(recover(store)) == ["one", "two"]
    assert (state(store, "one"), state(store, "two")) == (State.CANCELLED, State.QUEUED)
    assert [a.outcome for a in store.jobs.attempts("one")] == ["interrupted"]


# spec: WK-8
def test_a_claim_taken_back_by_hand_is_cancelled_if_that_was_asked_for(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    ask_to_cancel(store, claim.id)
    assert release(store, claim)
    assert state(store, claim.id) is State.CANCELLED


# spec: WK-8, WK-1
def test_a_retry_forgets_that_it_was_to_be_cancelled(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    ask_to_cancel(store, claim.id)
    end(store, claim, Interrupted("x"))
    assert retry(store, claim.id) == [claim.id]
    assert record(store, claim.id).cancel_ms is None
    again = take_one(store)
    assert store.jobs.cancelling() == []
    end(store, again, Interrupted("x"))
    assert state(store, claim.id) is State.QUEUED


# spec: WK-8, WK-4
def test_a_stale_claim_cancels_nothing(store: Store) -> None:
    stale = bring(store, State.QUEUED)
    current = take_one(store)
    ask_to_cancel(store, stale.id)
    assert end(store, stale, Interrupted("x")) == [stale.id]
    assert store.jobs.cancelling() == [(current.id, current.number)]


# progress


# spec: WK-9
def test_progress_is_written_and_stays_until_there_is_more(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    assert record(store, claim.id).progress is None
    for said, shown in (('{"done":1}', {"done": 1}), (None, {"done": 1}), ('{"done":2}', {"done": 2})):
        note(store, claim, progress=said)
        assert plain(record(store, claim.id).progress) == shown
        assert record(store, claim.id).worker == "worker:q:0"


# spec: WK-9, WK-4
def test_a_stale_claim_reports_no_progress(store: Store) -> None:
    stale = bring(store, State.QUEUED)
    note(store, take_one(store), progress="1")
    note(store, stale, progress="2")
    assert plain(record(store, stale.id).progress) == 1


# spec: WK-9
@pytest.mark.parametrize("how", QUEUING)
def test_a_job_that_is_queued_again_has_no_progress(store: Store, how: str) -> None:
    claim = bring(store, State.RUNNING)
    note(store, claim, progress="1")
    end(store, claim, QUEUING[how])
    assert record(store, claim.id).progress is None


# spec: WK-9
@pytest.mark.parametrize("how", ["done", "failed", "cancelled"])
def test_a_finished_job_keeps_its_last_progress_until_it_is_retried(store: Store, how: str) -> None:
    claim = bring(store, State.RUNNING)
    note(store, claim, progress='"half"')
    ends: dict[str, Any] = {"done": Done(), "failed": GaveUp("x"), "cancelled": Interrupted("x")}
    if how == "cancelled":
        ask_to_cancel(store, claim.id)
    end(store, claim, ends[how])
    assert state(store, claim.id).value == how
    assert plain(record(store, claim.id).progress) == "half"
    if retry(store, claim.id):
        assert record(store, claim.id).progress is None


# spec: WK-8
def test_only_those_cancelled_at_once_are_gone_at_once(store: Store) -> None:
    running = bring(store, State.RUNNING)
    put(store, job("waits"))
    assert cancel(store, running.id, "waits") == ["waits"]
    assert store.jobs.counts() == [Counts(queue="q", running=1, cancelled=1)]
