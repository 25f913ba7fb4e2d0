"""Tests for jobs that are enqueued once in a period, replaced, too late, or given a checkpoint."""

from typing import Any

import msgspec
import pytest
from builders import (
    HOUR,
    ME,
    NOON,
    Wall,
    bring,
    cancel,
    end,
    finish,
    job,
    plain,
    put,
    record,
    recover,
    release,
    retry,
    roll_back,
    state,
    states,
    take,
    take_named,
    take_one,
)

from chargehand.errors import PayloadError
from chargehand.model.batch import Note, Want
from chargehand.model.job import (
    Claim,
    Crashed,
    Done,
    Enqueued,
    GaveUp,
    Interrupted,
    Raised,
    Returned,
    State,
    check,
    settle,
)
from chargehand.model.records import Holder, JobFilter, Retention
from chargehand.store import Store

LATER_ME = Holder("node-a", "life-3")


# once in a period


def once(name: str, **options: Any) -> list[Any]:
    return [job(name, key="k", unique_for_ms=HOUR, **options)]


# spec: FL-6
def test_a_key_is_taken_for_its_period_though_its_job_has_ended(store: Store, wall: Wall) -> None:
    wall.at = NOON
    assert put(store, *once("one")) == [Enqueued("one", True)]
    assert put(store, *once("two")) == [Enqueued("one", False)]
    finish(store, "one")
    wall.at += HOUR - 1
    assert put(store, *once("three")) == [Enqueued("one", False)]
    assert store.jobs.get("three") is None
    wall.at += 2
    assert put(store, *once("four")) == [Enqueued("four", True)]
    wall.at += HOUR - 10
    finish(store, "four")
    assert put(store, *once("five")) == [Enqueued("four", False)], "a new period has begun"


# spec: FL-6
@pytest.mark.parametrize("ended", [State.FAILED, State.CANCELLED])
def test_a_key_is_taken_for_its_period_however_its_job_ended(store: Store, wall: Wall, ended: State) -> None:
    wall.at = NOON
    claim = bring(store, ended, key="k", unique_for_ms=HOUR)
    assert put(store, *once("two")) == [Enqueued(claim.id, False)]


# spec: FL-6
def test_a_key_is_taken_for_its_period_though_its_job_was_pruned(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, *once("one"))
    finish(store, "one")
    wall.at += 5
    assert store.prune(Retention(count=0), 10) == 1
    assert store.jobs.get("one") is None
    assert put(store, *once("two")) == [Enqueued("one", False)]
    wall.at += HOUR
    store.prune(Retention(count=0), 10)
    assert put(store, *once("two")) == [Enqueued("two", True)]


# spec: FL-6
def test_a_key_stays_taken_beyond_its_period_while_its_job_lives(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, *once("one"))
    wall.at += 2 * HOUR
    assert put(store, *once("two")) == [Enqueued("one", False)]
    assert put(store, job("three", key="k")) == [Enqueued("one", False)]
    finish(store, "one")
    assert put(store, *once("two")) == [Enqueued("two", True)]


# spec: FL-6
def test_within_the_period_a_job_that_names_no_period_is_not_added_either(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, *once("one"))
    finish(store, "one")
    assert put(store, job("two", key="k")) == [Enqueued("one", False)]


# spec: FL-6
def test_a_period_is_one_of_its_queue_and_key(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, *once("one"))
    assert put(store, *once("two", queue="r")) == [Enqueued("two", True)]
    assert put(store, job("three", key="other", unique_for_ms=HOUR)) == [Enqueued("three", True)]


# spec: FL-6
def test_a_period_that_is_rolled_back_has_not_begun(store: Store, wall: Wall) -> None:
    wall.at = NOON
    roll_back(store, lambda tx: tx.jobs.enqueue(once("one")))
    assert put(store, *once("two")) == [Enqueued("two", True)]


# spec: FL-6
def test_two_of_one_call_are_one(store: Store, wall: Wall) -> None:
    wall.at = NOON
    assert put(store, *once("one"), *once("two")) == [Enqueued("one", True), Enqueued("one", False)]


# spec: FL-6, WK-4
def test_a_job_that_an_outcome_enqueues_in_the_period_is_the_first_one(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, *once("one"))
    finish(store, "one")
    put(store, job("p", queue="r"))
    finish(store, "p", Done("1", (job("promised", key="k", unique_for_ms=HOUR),)))
    assert record(store, "promised").id == "one"
    assert take(store, 10) == []


# spec: FL-6
def test_a_period_and_replacement_need_a_key() -> None:
    with pytest.raises(PayloadError, match="unique_for needs a key"):
        check(job("x", unique_for_ms=5))
    with pytest.raises(PayloadError, match="replace needs a key"):
        check(job("x", replace=True))


# replacement


# spec: FL-6
def test_a_newer_payload_replaces_that_of_a_waiting_job(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("one", key="k", payload="1", label="old", tags=("a",), delay_ms=10, priority=3))
    wall.at += 5
    newer = job("two", key="k", payload="2", label="new", tags=("b",), delay_ms=HOUR, expires_ms=9 * HOUR, replace=True)
    assert put(store, newer) == [Enqueued("one", False, True)]
    found = record(store, "one")
    assert (plain(found.payload), found.label, found.tags) == (2, "new", ("b",))
    assert (found.run_at_ms, found.expires_at_ms, found.created_ms) == (NOON + 5 + HOUR, NOON + 5 + 9 * HOUR, NOON)
    assert found.priority == 3
    assert store.jobs.get("two") is None
    assert store.jobs.find(JobFilter(tag="a")) == []
    assert [one.id for one in store.jobs.find(JobFilter(tag="b"))] == ["one"]
    assert take(store, 10) == [], "the time of the newer one counts"
    wall.at += HOUR
    assert take_one(store).payload == "2"


# spec: FL-6
def test_a_replacement_without_a_time_makes_a_scheduled_job_due(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("one", key="k", delay_ms=HOUR))
    assert put(store, job("two", key="k", payload="2", replace=True)) == [Enqueued("one", False, True)]
    assert take_one(store).payload == "2"


# spec: FL-6
def test_without_a_job_to_replace_one_is_added(store: Store) -> None:
    assert put(store, job("one", key="k", replace=True)) == [Enqueued("one", True)]
    finish(store, "one")
    assert put(store, job("two", key="k", replace=True)) == [Enqueued("two", True)]


# spec: FL-6, WK-4
def test_a_request_that_is_repeated_after_its_job_has_ended_is_answered_as_at_first(store: Store) -> None:
    put(store, job("one", key="k", replace=True))
    finish(store, "one")
    assert put(store, job("one", key="k", replace=True)) == [Enqueued("one", False)]
    assert take(store, 10) == []


# spec: FL-1, FL-6
@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("options", [{}, {"unique_for_ms": HOUR}, {"replace": True}])
def test_a_job_of_a_call_may_follow_one_that_exists_already(store: Store, ended: bool, options: dict[str, Any]) -> None:
    put(store, *once("one"))
    if ended:
        finish(store, "one")
    added = put(store, job("two", key="k", **options), job("s", key="s", unique_for_ms=HOUR), job("f", after=("two",)))
    assert [each.id for each in added] == ["one", "s", "f"]
    assert (state(store, "f"), record(store, "f").waits_for) == (State.QUEUED, 0 if ended else 1)


# spec: FL-6
@pytest.mark.parametrize("early", [0, 1])
def test_a_claimed_job_is_never_replaced(store: Store, early: int) -> None:
    put(store, job("one", key="k", payload="1"))
    with store.transaction() as tx:
        (grant,) = tx.jobs.claim([Want("q", "q", 1, early=early)], ME)
    assert put(store, job("two", key="k", payload="2", replace=True)) == [Enqueued("one", False)]
    assert plain(record(store, "one").payload) == 1
    assert end(store, grant.claims[0], Done("1")) == []
    assert (state(store, "one"), plain(record(store, "one").payload)) == (State.DONE, 1)


# spec: FL-6
def test_a_running_job_is_never_replaced(store: Store) -> None:
    put(store, job("one", key="k", payload="1"))
    claim = take_one(store)
    with store.transaction() as tx:
        tx.jobs.note([Note(seq=claim.seq, claim=claim.number, worker="worker:q:0", age_ms=0)])
    assert put(store, job("two", key="k", payload="2", replace=True)) == [Enqueued("one", False)]
    assert release(store, claim)
    assert put(store, job("two", key="k", payload="2", replace=True)) == [Enqueued("one", False, True)]
    assert take_one(store).payload == "2"


# spec: FL-1, FL-6
def test_a_waiting_follower_that_is_replaced_still_waits(store: Store) -> None:
    put(store, job("a", queue="r"), job("one", key="k", after=("a",)))
    assert put(store, job("two", key="k", payload="2", replace=True)) == [Enqueued("one", False, True)]
    assert record(store, "one").waits_for == 1
    assert take(store, 10) == []
    finish(store, "a")
    assert take_one(store).payload == "2"


# spec: FL-6
def test_a_job_without_replace_leaves_the_waiting_one(store: Store) -> None:
    put(store, job("one", key="k", payload="1", replace=True))
    assert put(store, job("two", key="k", payload="2")) == [Enqueued("one", False)]
    assert take_one(store).payload == "1"


# too late


# spec: WK-16
def test_a_job_that_is_too_late_is_cancelled(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("one", expires_ms=10, key="k"), job("two", expires_ms=HOUR), job("three"))
    assert record(store, "one").expires_at_ms == NOON + 10
    assert record(store, "three").expires_at_ms is None
    with store.transaction() as tx:
        assert tx.jobs.expire(10) == 0
    wall.at += 11
    with store.transaction() as tx:
        assert tx.jobs.expire(10) == 1
    found = record(store, "one")
    assert (found.state, found.reason, found.finished_ms) == (State.CANCELLED, "expired", NOON + 11)
    assert store.jobs.attempts("one") == []
    assert [claim.id for claim in take(store, 10)] == ["two", "three"]
    assert put(store, job("again", key="k")) == [Enqueued("again", True)]


# spec: WK-16
def test_jobs_that_are_too_late_are_cancelled_in_pages(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, *(job(expires_ms=10 + n) for n in range(5)))
    wall.at += HOUR
    counts: list[int] = []
    while not counts or counts[-1]:
        with store.transaction() as tx:
            counts.append(tx.jobs.expire(2))
    assert counts == [2, 2, 1, 0]


# spec: WK-16
@pytest.mark.parametrize("how", ["future", "waiting"])
def test_a_job_expires_while_it_waits_for_its_time_or_for_others(store: Store, wall: Wall, how: str) -> None:
    wall.at = NOON
    put(store, job("a", queue="r"))
    options: dict[str, Any] = {"delay_ms": HOUR} if how == "future" else {"after": ("a",)}
    put(store, job("one", expires_ms=10, **options))
    wall.at += 11
    with store.transaction() as tx:
        assert tx.jobs.expire(10) == 1
    assert (state(store, "one"), record(store, "one").waits_for) == (State.CANCELLED, 0)
    finish(store, "a")
    wall.at += HOUR
    assert take(store, 10) == []


# spec: FL-2, WK-16
def test_followers_of_a_job_that_expired_fail(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("one", queue="r", expires_ms=10), job("f", after=("one",)), job("g", after=("f",)))
    put(store, job("h", after=("one",), if_failed="run"))
    wall.at += 11
    with store.transaction() as tx:
        assert tx.jobs.expire(10) == 1
        assert tx.woken == frozenset({"q"})
    assert [(state(store, each), record(store, each).reason) for each in "fg"] == [(State.FAILED, "predecessor")] * 2
    assert take_one(store).id == "h"


# spec: WK-16
def test_a_claim_says_that_its_job_is_too_late(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("one", expires_ms=10), job("two", expires_ms=HOUR), job("three"))
    wall.at += 11
    assert [(claim.id, claim.expired) for claim in take(store, 10)] == [("one", True), ("two", False), ("three", False)]


# spec: WK-16
def test_a_running_job_does_not_expire(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("one", expires_ms=10))
    claim = take_one(store)
    wall.at += 11
    with store.transaction() as tx:
        assert tx.jobs.expire(10) == 0
    assert end(store, claim, Done("1")) == []


# spec: WK-16
def test_a_job_that_was_started_in_time_does_not_expire_between_its_attempts(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("one", expires_ms=10))
    end(store, take_one(store), Raised("x"), duration_ms=1)
    wall.at += HOUR
    with store.transaction() as tx:
        assert tx.jobs.expire(10) == 0
    assert take_one(store).expired is False


# spec: WK-16
def test_a_job_that_was_claimed_and_given_back_without_having_been_started_expires(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("one", expires_ms=10), job("two", expires_ms=10))
    for claim in take(store, 2):
        assert end(store, claim, Returned()) == []
    wall.at = NOON + 11
    assert take_one(store).expired is True
    with store.transaction() as tx:
        assert tx.jobs.expire(10) == 1
    assert states(store, "one", "two") == [State.RUNNING, State.CANCELLED]


# spec: WK-16
def test_a_job_that_expired_and_is_retried_by_a_person_runs(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("one", expires_ms=10))
    wall.at += 11
    with store.transaction() as tx:
        assert tx.jobs.expire(10) == 1
    assert retry(store, "one") == ["one"]
    with store.transaction() as tx:
        assert tx.jobs.expire(10) == 0
    claim = take_one(store)
    assert (claim.id, claim.expired) == ("one", False)


# checkpoints


def keep(store: Store, claim: Claim, kept: str) -> None:
    with store.transaction() as tx:
        tx.jobs.note([Note(seq=claim.seq, claim=claim.number, worker="worker:q:0", age_ms=0, kept=kept)])


# spec: FL-5
def test_the_next_attempt_is_given_the_checkpoint(store: Store) -> None:
    put(store, job("one"))
    claim = take_one(store)
    assert claim.kept is None
    keep(store, claim, '{"at":5}')
    keep(store, claim, '{"at":6}')
    assert release(store, claim)
    again = take_one(store)
    assert again.kept == '{"at":6}'
    with store.transaction() as tx:
        tx.jobs.note([Note(seq=again.seq, claim=again.number, worker="worker:q:0", age_ms=0, progress="1")])
    assert release(store, again)
    assert take_one(store).kept == '{"at":6}', "a note without one leaves it"


# spec: FL-5
@pytest.mark.parametrize("outcome", [Raised("x"), Crashed("x"), Interrupted("x")])
def test_a_checkpoint_is_written_with_what_ends_the_attempt(store: Store, wall: Wall, outcome: Any) -> None:
    wall.at = NOON
    put(store, job("one"))
    made = settle(take_one(store), outcome)
    assert made is not None
    with store.transaction() as tx:
        assert tx.jobs.settle([msgspec.structs.replace(made, kept='"here"')], ME) == []
    wall.at += HOUR
    assert take_one(store).kept == '"here"'


# spec: FL-5
def test_a_settlement_without_a_checkpoint_leaves_the_one_before(store: Store) -> None:
    put(store, job("one"))
    claim = take_one(store)
    keep(store, claim, '"here"')
    assert end(store, claim, Interrupted("stop")) == []
    assert take_one(store).kept == '"here"'


# spec: FL-5
def test_a_checkpoint_survives_the_death_of_the_node(store: Store) -> None:
    put(store, job("one"))
    keep(store, take_one(store), '"here"')
    assert recover(store, LATER_ME) == ["one"]
    assert take_one(store, holder=LATER_ME).kept == '"here"'


# spec: FL-5
def test_a_persons_retry_keeps_the_checkpoint(store: Store) -> None:
    put(store, job("one"))
    claim = take_one(store)
    keep(store, claim, '"here"')
    assert end(store, claim, GaveUp("x")) == []
    assert retry(store, "one") == ["one"]
    claim = take_one(store)
    assert claim.kept == '"here"'
    cancel(store, "one")
    assert end(store, claim, Interrupted("x")) == []
    assert state(store, "one") is State.CANCELLED
    assert retry(store, "one") == ["one"]
    assert take_one(store).kept == '"here"'


# spec: FL-5, WK-4
def test_a_checkpoint_of_an_older_claim_is_not_written(store: Store) -> None:
    put(store, job("one"))
    late = take_one(store)
    assert release(store, late)
    keep(store, late, '"late"')
    claim = take_named(store, "one")
    assert claim.kept is None
    keep(store, late, '"late"')
    made = settle(late, Raised("x"))
    assert made is not None
    with store.transaction() as tx:
        assert tx.jobs.settle([msgspec.structs.replace(made, kept='"late"')], ME) == [("one", late.number)]
    assert release(store, claim)
    assert take_one(store).kept is None


# spec: FL-5
def test_a_job_that_is_done_leaves_no_checkpoint(store: Store) -> None:
    put(store, job("one"))
    claim = take_one(store)
    keep(store, claim, '"here"')
    assert end(store, claim, Done("1")) == []
    with store.transaction() as tx:
        assert tx.execute("SELECT count(*) FROM chargehand_kept") == [(0,)]


# spec: FL-5
@pytest.mark.parametrize("how", ["delete", "prune"])
def test_a_job_that_is_deleted_leaves_no_checkpoint(store: Store, wall: Wall, how: str) -> None:
    wall.at = NOON
    put(store, job("one"))
    claim = take_one(store)
    keep(store, claim, '"here"')
    assert end(store, claim, GaveUp("x")) == []
    wall.at += 5
    if how == "prune":
        assert store.prune(Retention(count=0), 10) == 1
    else:
        with store.transaction() as tx:
            assert tx.jobs.delete(["one"]) == ["one"]
    with store.transaction() as tx:
        assert tx.execute("SELECT count(*) FROM chargehand_kept") == [(0,)]
