"""Tests for jobs that wait for others: when they can be claimed, when they fail, and what is refused."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from builders import (
    HOUR,
    ME,
    NOON,
    Wall,
    ask,
    bring,
    cancel,
    counted,
    end,
    everything,
    finish,
    job,
    perform_all,
    predecessors,
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

from chargehand.errors import FlowNotFound, JobNotFound, PayloadError
from chargehand.model.batch import Batch, Want
from chargehand.model.job import (
    MOST_PREDECESSORS,
    Claim,
    Crashed,
    Done,
    Enqueued,
    GaveUp,
    Interrupted,
    Outcome,
    Raised,
    Returned,
    Settlement,
    State,
    Stopped,
    check,
    settle,
)
from chargehand.model.records import Holder
from chargehand.store import Store

LATER_ME = Holder("node-a", "life-3")
ENDED_BADLY = (State.FAILED, State.CANCELLED)


def settlement(claim: Claim, outcome: Outcome) -> Settlement:
    made = settle(claim, outcome)
    assert made is not None
    return made


def failed_by(store: Store, job_id: str, predecessor: str) -> bool:
    """Whether the job failed because of this predecessor, and says so."""
    found = record(store, job_id)
    named = found.error is not None and f"predecessor {predecessor}" in found.error
    return (found.state, found.reason) == (State.FAILED, "predecessor") and named


# waiting


# spec: FL-1
def test_a_follower_waits_for_its_predecessor(store: Store) -> None:
    assert put(store, job("a", queue="r"), job("f", after=("a",))) == [Enqueued("a", True), Enqueued("f", True)]
    assert (state(store, "f"), record(store, "f").waits_for) == (State.QUEUED, 1)
    assert take(store, 10) == []
    take_named(store, "a")
    assert take(store, 10) == [], "its predecessor runs"


# spec: FL-1
def test_a_follower_can_be_claimed_when_its_predecessor_is_done(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",), payload='{"x":1}', label="l", priority=3))
    finish(store, "a")
    assert record(store, "f").waits_for == 0
    claim = take_one(store)
    assert (claim.id, claim.payload, claim.label, claim.priority) == ("f", '{"x":1}', "l", 3)


# spec: FL-1
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_follower_waits_for_the_last_of_several(store: Store, order: Sequence[int]) -> None:
    put(store, *(job(f"p{n}", queue=f"r{n}") for n in range(3)), job("f", after=("p0", "p1", "p2")))
    for ended, nr in enumerate(order):
        assert record(store, "f").waits_for == 3 - ended
        assert take(store, 10) == []
        finish(store, f"p{nr}")
    assert [claim.id for claim in take(store, 10)] == ["f"]


# spec: FL-1
def test_a_job_after_none_waits_for_nothing(store: Store) -> None:
    put(store, job("f", after=()))
    assert record(store, "f").waits_for == 0
    assert take_one(store).id == "f"


# spec: FL-1
def test_a_predecessor_that_is_named_twice_counts_once(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a", "a")))
    assert record(store, "f").waits_for == 1
    finish(store, "a")
    assert take_one(store).id == "f"


# spec: FL-1
def test_a_predecessor_has_many_followers_and_all_of_them_are_released(store: Store) -> None:
    put(store, job("a", queue="r"), *(job(f"f{n:03}", after=("a",)) for n in range(300)))
    finish(store, "a")
    assert [claim.id for claim in take(store, 1000)] == [f"f{n:03}" for n in range(300)]


# spec: FL-1
def test_a_chain_runs_in_its_order(store: Store) -> None:
    put(store, job("c0"), *(job(f"c{n}", after=(f"c{n - 1}",), priority=n) for n in range(1, 20)))
    assert perform_all(store) == [f"c{n}" for n in range(20)]


# spec: FL-1
def test_predecessors_may_come_from_an_earlier_call_of_the_same_transaction(store: Store) -> None:
    with store.transaction() as tx:
        tx.jobs.enqueue([job("a", queue="r")])
        tx.jobs.enqueue([job("f", after=("a",))])
    assert take(store, 10) == []
    finish(store, "a")
    assert take_one(store).id == "f"


# spec: FL-1
def test_followers_of_a_transaction_that_fails_are_not_there(store: Store) -> None:
    put(store, job("a", queue="r"))
    roll_back(store, lambda tx: tx.jobs.enqueue([job("f", after=("a",))]))
    finish(store, "a")
    assert [found.id for found in everything(store)] == ["a"]
    assert take(store, 10) == []


# spec: FL-1
def test_a_transaction_that_fails_releases_nobody(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)))
    claim = take_named(store, "a")
    roll_back(store, lambda tx: tx.jobs.settle([settlement(claim, Done("1"))], ME))
    assert record(store, "f").waits_for == 1
    assert take(store, 10) == []
    assert end(store, claim, Done("1")) == []
    assert take_one(store).id == "f"


# spec: FL-1
def test_ten_thousand_predecessors_are_possible(store: Store) -> None:
    many = [job(f"p{n}", queue="r") for n in range(MOST_PREDECESSORS - 1)]
    put(store, job("last", queue="s"))
    put(store, *many)
    put(store, job("f", after=(*(one.id for one in many), "last")))
    assert record(store, "f").waits_for == MOST_PREDECESSORS
    claims = take(store, MOST_PREDECESSORS, queue="r")
    with store.transaction() as tx:
        assert tx.jobs.settle([settlement(claim, Done("1")) for claim in claims], ME) == []
    assert record(store, "f").waits_for == 1
    finish(store, "last")
    assert take_one(store).id == "f"


# spec: FL-1
def test_counts_say_how_many_wait_for_others(store: Store) -> None:
    put(store, job("a"), job("later", delay_ms=HOUR), job("f", after=("a",)), job("g", after=("a", "f")))
    (counts,) = counted(store)
    assert (counts.queued, counts.future, counts.following) == (4, 1, 2)
    finish(store, "a")
    (counts,) = counted(store)
    assert (counts.queued, counts.future, counts.following, counts.done) == (3, 1, 1, 1)


# spec: FL-1
def test_a_waiting_follower_is_no_reason_to_wake_a_worker(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)))
    assert store.look(["q", "r"]) == ["r"]
    assert [queue for queue, _ in store.jobs.waiting()] == ["r"]
    grant = ask(store, 1, asleep=5)
    assert (grant.claims, grant.waiting, grant.next_in_ms) == ((), 0, None)


# predecessors that have ended already


# spec: FL-1
def test_a_predecessor_that_is_done_counts_as_ended(store: Store) -> None:
    done = bring(store, State.DONE)
    put(store, job("f", after=(done.id,)))
    assert record(store, "f").waits_for == 0
    assert take_one(store).id == "f"


# spec: FL-1
def test_of_several_predecessors_only_those_that_have_not_ended_are_waited_for(store: Store) -> None:
    done = bring(store, State.DONE)
    put(store, job("a", queue="r"), job("f", after=(done.id, "a")))
    assert record(store, "f").waits_for == 1
    finish(store, "a")
    assert take_one(store).id == "f"


# spec: FL-2
@pytest.mark.parametrize("ended", ENDED_BADLY)
def test_a_follower_of_a_job_that_has_ended_badly_fails_at_once(store: Store, ended: State) -> None:
    bad = bring(store, ended)
    assert put(store, job("f", after=(bad.id,))) == [Enqueued("f", True)]
    assert failed_by(store, "f", bad.id)
    found = record(store, "f")
    assert (found.finished_ms is not None, found.started_ms, found.waits_for) == (True, None, 0)
    assert store.jobs.attempts("f") == []
    assert take(store, 10) == []


# spec: FL-2
@pytest.mark.parametrize("ended", ENDED_BADLY)
def test_a_follower_that_runs_all_the_same_can_be_claimed_at_once(store: Store, ended: State) -> None:
    bad = bring(store, ended)
    put(store, job("f", after=(bad.id,), if_failed="run"))
    assert take_one(store).id == "f"


# spec: FL-2
def test_followers_of_one_call_fail_with_the_predecessor_of_the_first(store: Store) -> None:
    bad = bring(store, State.FAILED)
    put(
        store, job("f", after=(bad.id,)), job("g", after=("f",)), job("h", after=("g",), if_failed="run"),
        job("i", after=("h",)),
    )  # fmt: skip
    assert failed_by(store, "f", bad.id)
    assert failed_by(store, "g", "f")
    assert states(store, "h", "i") == [State.QUEUED, State.QUEUED]
    assert perform_all(store) == ["h", "i"]


# spec: FL-2
def test_a_follower_that_fails_at_once_frees_its_key(store: Store) -> None:
    bad = bring(store, State.FAILED)
    put(store, job("f", after=(bad.id,), key="k"))
    assert put(store, job("other", key="k")) == [Enqueued("other", True)]


# refusals


# spec: FL-1
def test_an_unknown_predecessor_is_refused_and_nothing_is_added(store: Store) -> None:
    put(store, job("a"))
    with pytest.raises(JobNotFound, match="nobody"):
        put(store, job("b"), job("f", after=("a", "nobody")))
    assert [found.id for found in everything(store)] == ["a"]
    assert store.jobs.followers("a") == []


# spec: FL-1
def test_a_predecessor_must_come_earlier(store: Store) -> None:
    with pytest.raises(JobNotFound, match="later"):
        put(store, job("f", after=("later",)), job("later"))
    assert everything(store) == []


# spec: FL-1
def test_a_job_after_itself_is_refused() -> None:
    with pytest.raises(PayloadError, match="itself"):
        check(job("f", after=("f",)))


# spec: FL-1
def test_too_many_predecessors_are_refused() -> None:
    ids = tuple(str(n) for n in range(MOST_PREDECESSORS + 1))
    with pytest.raises(PayloadError, match="10001"):
        check(job("f", after=ids))
    assert check(job("f", after=ids[1:]))


# spec: FL-1, WK-4
def test_what_an_outcome_enqueues_after_an_unknown_job_is_added_and_fails(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    follow = (job("x", after=("nobody",)), job("y", after=("x",)), job("z"))
    assert end(store, claim, Done("1", follow)) == []
    assert state(store, claim.id) is State.DONE
    found = record(store, "x")
    assert (found.state, found.reason) == (State.FAILED, "predecessor")
    assert "nobody" in (found.error or "")
    assert failed_by(store, "y", "x")
    assert take_one(store).id == "z"


# spec: FL-1, WK-2
def test_a_repeated_request_changes_nothing_of_a_follower(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)))
    assert put(store, job("f", after=("a",))) == [Enqueued("f", False)]
    assert record(store, "f").waits_for == 1
    finish(store, "a")
    assert put(store, job("f", after=("a",))) == [Enqueued("f", False)]
    assert perform_all(store) == ["f"]


# spec: FL-1, WK-2
def test_a_follower_whose_key_is_taken_is_not_added(store: Store) -> None:
    put(store, job("a", queue="r"), job("holder", key="k", queue="q"))
    assert put(store, job("f", key="k", after=("a",))) == [Enqueued("holder", False)]
    assert store.jobs.followers("a") == []
    assert record(store, "holder").waits_for == 0


# spec: FL-1, FL-4, WK-2
@pytest.mark.parametrize(
    "options", [{"after": ("nobody",)}, {"flow": "nobody"}, {"after": ("nobody",), "replace": True}]
)
def test_a_request_whose_key_is_taken_is_answered_whatever_it_follows(store: Store, options: dict[str, Any]) -> None:
    """The first request may have named jobs that were deleted since."""
    put(store, job("holder", key="k"), job("of period", queue="r", key="k", unique_for_ms=HOUR))
    finish(store, "of period")
    assert [each.id for each in put(store, job("f", key="k", **options))] == ["holder"]
    assert [each.id for each in put(store, job("f", queue="r", key="k", **options))] == ["of period"]
    assert [each.id for each in put(store, job("x", key="x"), job("g", key="x", **options))] == ["x", "x"]
    assert [each.id for each in put(store, job("y"), job("y", **options | {"key": "y"}))] == ["y", "y"]
    with pytest.raises((JobNotFound, FlowNotFound), match="nobody"):
        put(store, job("f", key="other", **options), job("g", key="other", **options))
    assert state(store, "holder") is State.QUEUED


# spec: FL-1, WK-2
def test_an_alias_can_be_a_predecessor(store: Store) -> None:
    put(store, job("holder", queue="r", key="k"))
    with store.transaction() as tx:
        answer = tx.jobs.enqueue([job("alias", queue="r", key="k"), job("f", after=("alias",))], promised=True)
    assert answer == [Enqueued("holder", False), Enqueued("f", True)]
    put(store, job("g", after=("alias",)))
    assert [found.id for found in predecessors(store, "g")] == ["holder"]
    assert take(store, 10) == []
    finish(store, "holder")
    assert perform_all(store) == ["f", "g"]


# the end of the last predecessor


# spec: FL-1
def test_a_follower_is_claimed_in_the_transaction_in_which_its_predecessor_ends(store: Store) -> None:
    put(store, job("a"), job("f", after=("a",)))
    claim = take_named(store, "a")
    with store.transaction() as tx:
        assert tx.jobs.settle([settlement(claim, Done("1"))], ME) == []
        assert tx.woken == frozenset({"q"})
        (grant,) = tx.jobs.claim([Want("q", "q", 10)], ME)
    assert [each.id for each in grant.claims] == ["f"]


# spec: FL-1
def test_a_turn_settles_the_predecessor_and_claims_the_follower(store: Store) -> None:
    put(store, job("a", queue="r"), job("b", queue="r"), job("f", after=("a", "b")), job("g", queue="s", after=("a",)))
    ends = tuple(settlement(claim, Done("1")) for claim in take(store, 2, queue="r"))
    result = store.turn(Batch(settlements=ends, wants=(Want("q", "q", 1),)), ME)
    assert [claim.id for claim in result.grants[0].claims] == ["f"]
    assert result.woken == frozenset({"q", "s"}), "the queue without a Want is named, too"
    assert take_one(store, queue="s").id == "g"


# spec: FL-1
def test_a_turn_in_which_nobody_is_released_wakes_nobody(store: Store) -> None:
    put(store, job("a", queue="r"), job("b", queue="r"), job("f", after=("a", "b")))
    ends = (settlement(take_one(store, queue="r"), Done("1")),)
    assert store.turn(Batch(settlements=ends), ME).woken == frozenset()


# spec: FL-1
@pytest.mark.parametrize("outcome", [Raised("x"), Crashed("x"), Interrupted("x"), Returned()])
def test_a_predecessor_that_is_queued_again_has_not_ended(store: Store, outcome: Outcome) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)), job("g", after=("a",), if_failed="run"))
    end(store, take_named(store, "a"), outcome)
    assert [record(store, each).waits_for for each in ("f", "g")] == [1, 1]
    assert take(store, 10) == []


# spec: FL-1
def test_a_follower_with_a_time_waits_for_its_time_after_its_predecessor(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("a", queue="r"), job("f", after=("a",), delay_ms=HOUR), job("g", after=("a",), run_at_ms=NOON + 5))
    wall.at += 10
    finish(store, "a")
    assert [claim.id for claim in take(store, 10)] == ["g"], "the time of the other one has not come"
    found = record(store, "f")
    assert (found.waits_for, found.run_at_ms) == (0, NOON + HOUR)
    assert ask(store).next_in_ms == HOUR - 10
    wall.at = NOON + HOUR
    assert take_one(store).id == "f"


# spec: FL-1
def test_a_follower_whose_time_has_come_still_waits_for_its_predecessor(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("a", queue="r"), job("f", after=("a",), delay_ms=HOUR))
    wall.at += 2 * HOUR
    assert take(store, 10) == []
    finish(store, "a")
    assert take_one(store).id == "f"


# spec: FL-1, WK-13
def test_a_released_follower_respects_the_pause_of_its_crew(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)))
    with store.transaction() as tx:
        tx.fleet.pause("q", "me", None)
    finish(store, "a")
    assert take(store, 10) == []
    with store.transaction() as tx:
        tx.fleet.resume("q")
    assert take_one(store).id == "f"


# spec: FL-1, WK-4
def test_a_claim_that_no_longer_holds_releases_nobody(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)))
    late = take_named(store, "a")
    assert release(store, late)
    assert end(store, late, Done("1")) == ["a"]
    assert take(store, 10) == []


# a predecessor fails or is cancelled


# spec: FL-2
@pytest.mark.parametrize("outcome", [GaveUp("no use"), Stopped()])
def test_a_follower_fails_when_its_predecessor_ends_badly(store: Store, outcome: Outcome) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",), key="k"))
    finish(store, "a", outcome)
    assert failed_by(store, "f", "a")
    found = record(store, "f")
    assert (found.failures, found.crashes, found.interruptions, found.started_ms) == (0, 0, 0, None)
    assert found.finished_ms is not None
    assert store.jobs.attempts("f") == []
    assert take(store, 10) == []
    assert put(store, job("other", key="k")) == [Enqueued("other", True)], "its key is free"


# spec: FL-2
def test_the_error_of_a_follower_has_the_label_and_the_error_of_its_predecessor(store: Store) -> None:
    put(store, job("a", queue="r", label="decode summer.mp4"), job("b", queue="s"))
    put(store, job("f", after=("a",)), job("g", after=("b",)))
    finish(
        store, "a", GaveUp('Traceback (most recent call last):\n  File "x.py", line 1, in y\nValueError: no such codec')
    )
    cancel(store, "b")
    assert record(store, "f").error == "predecessor a (decode summer.mp4) failed: ValueError: no such codec"
    assert record(store, "g").error == "predecessor b (s) was cancelled"


# spec: FL-2
def test_failure_is_passed_on_to_the_followers_of_followers(store: Store) -> None:
    put(store, job("c0", queue="r"), *(job(f"c{n}", after=(f"c{n - 1}",)) for n in range(1, 200)))
    finish(store, "c0", GaveUp("x"))
    assert all(failed_by(store, f"c{n}", f"c{n - 1}") for n in range(1, 200))
    (counts, _) = counted(store)
    assert (counts.queued, counts.following, counts.failed) == (0, 0, 199)


# spec: FL-2
def test_a_follower_fails_at_once_though_others_still_run(store: Store) -> None:
    put(store, job("a", queue="r"), job("b", queue="s"), job("f", after=("a", "b")))
    held = take_named(store, "b")
    finish(store, "a", GaveUp("x"))
    assert failed_by(store, "f", "a")
    assert end(store, held, Done("1")) == []
    assert failed_by(store, "f", "a")
    assert take(store, 10) == []


# spec: FL-2
@pytest.mark.parametrize("outcome", [GaveUp("x"), Stopped(), Done("1")])
def test_a_follower_that_runs_all_the_same_is_released_however_its_predecessor_ends(
    store: Store, outcome: Outcome
) -> None:
    put(store, job("a", queue="r"), job("b", queue="s"), job("f", after=("a", "b"), if_failed="run"))
    finish(store, "a", outcome)
    assert record(store, "f").waits_for == 1
    assert take(store, 10) == []
    finish(store, "b")
    assert take_one(store).id == "f"


# spec: FL-2
def test_a_job_that_runs_all_the_same_stops_the_failure(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)), job("g", after=("f",), if_failed="run"))
    put(store, job("h", after=("g",)))
    finish(store, "a", GaveUp("x"))
    assert failed_by(store, "f", "a")
    assert perform_all(store) == ["g", "h"]


# spec: FL-2, WK-8
def test_cancelling_a_queued_predecessor_fails_its_followers(store: Store) -> None:
    put(store, job("a"), job("f", after=("a",)), job("g", after=("f",)), job("h", after=("a",), if_failed="run"))
    assert cancel(store, "a") == ["a"]
    assert failed_by(store, "f", "a")
    assert failed_by(store, "g", "f")
    assert take_one(store).id == "h"


# spec: FL-2, WK-8
def test_cancelling_a_waiting_follower_leaves_its_predecessor_alone(store: Store) -> None:
    put(store, job("a"), job("f", after=("a",)), job("g", after=("f",)))
    assert cancel(store, "f") == ["f"]
    found = record(store, "f")
    assert (found.state, found.waits_for, found.reason) == (State.CANCELLED, 0, "cancelled")
    assert failed_by(store, "g", "f")
    assert perform_all(store) == ["a"]
    assert states(store, "f", "g") == [State.CANCELLED, State.FAILED]


# spec: FL-2, WK-8
def test_cancelling_a_chain_in_one_call_cancels_every_named_job(store: Store) -> None:
    put(store, job("a"), job("f", after=("a",)), job("g", after=("f",)))
    assert sorted(cancel(store, "a", "f", "g")) == ["a", "f", "g"]
    assert states(store, "a", "f", "g") == [State.CANCELLED] * 3


# spec: FL-2, WK-8
@pytest.mark.parametrize("how", ["settle", "release", "recover"])
def test_a_running_predecessor_with_a_cancel_request_fails_its_followers_where_it_would_be_queued(
    store: Store, how: str
) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)))
    claim = take_named(store, "a")
    assert cancel(store, "a") == []
    assert state(store, "f") is State.QUEUED
    if how == "settle":
        assert end(store, claim, Interrupted("stop")) == []
    elif how == "release":
        assert release(store, claim)
    else:
        assert recover(store, LATER_ME) == ["a"]
    assert state(store, "a") is State.CANCELLED
    assert failed_by(store, "f", "a")


# spec: FL-2, WK-8
def test_a_running_predecessor_with_a_cancel_request_may_still_end_well(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)))
    claim = take_named(store, "a")
    cancel(store, "a")
    assert end(store, claim, Done("1")) == []
    assert take_one(store).id == "f"


# spec: FL-2, WK-6
def test_a_predecessor_that_is_quarantined_fails_its_followers(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)))
    for _ in range(3):
        claim = take_one(store, queue="r")
        made = msgspec.structs.replace(settlement(claim, Crashed("signal 11")), delay_ms=0)
        with store.transaction() as tx:
            assert tx.jobs.settle([made], ME) == []
    assert record(store, "a").reason == "poison"
    assert failed_by(store, "f", "a")


# what is read


# spec: FL-1
def test_a_job_names_its_predecessors_and_followers(store: Store) -> None:
    put(store, job("a", queue="r", label="A"), job("b", queue="r"), job("f", after=("b", "a")), job("g", after=("a",)))
    assert [(found.id, found.nr, found.label) for found in predecessors(store, "f")] == [("b", 0, None), ("a", 1, "A")]
    assert [found.id for found in store.jobs.followers("a")] == ["f", "g"]
    assert [found.id for found in store.jobs.followers("a", 1)] == ["f"]
    assert predecessors(store, "a") == store.jobs.followers("f") == []
    perform_all(store, "r")
    assert [found.id for found in predecessors(store, "f")] == ["b", "a"], "also after they have ended"
    assert [found.id for found in store.jobs.followers("a")] == ["f", "g"]


# spec: FL-1
def test_a_deleted_predecessor_is_not_named_any_more(store: Store) -> None:
    put(store, job("a", queue="r"), job("b", queue="r"), job("f", after=("a", "b")))
    finish(store, "a")
    with store.transaction() as tx:
        assert tx.jobs.delete(["a"]) == ["a"]
    assert [found.id for found in predecessors(store, "f")] == ["b"]
    assert record(store, "f").waits_for == 1
    finish(store, "b")
    assert take_one(store).id == "f"


# spec: FL-2
def test_a_follower_of_a_deleted_failed_job_can_be_retried(store: Store) -> None:
    bad = bring(store, State.FAILED)
    put(store, job("f", after=(bad.id,)))
    with store.transaction() as tx:
        assert tx.jobs.delete([bad.id]) == [bad.id]
    assert retry(store, "f") == ["f"]
    assert take_one(store).id == "f"
