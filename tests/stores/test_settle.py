"""Tests for settling: claim numbers, counters, attempts, follow-up jobs, and the recovery of claims of dead nodes."""

from typing import Any

import msgspec
import pytest
from builders import (
    EARLIER_ME,
    HOUR,
    ME,
    bring,
    cancel,
    end,
    everything,
    job,
    jobs,
    plain,
    put,
    record,
    recover,
    retry,
    roll_back,
    state,
    take,
    take_one,
)

from chargehand.model.batch import Note
from chargehand.model.job import (
    Claim,
    Crashed,
    Done,
    Enqueued,
    GaveUp,
    Interrupted,
    Outcome,
    Raised,
    RetryLater,
    Returned,
    Settlement,
    State,
    settle,
)
from chargehand.model.records import Holder, Retention
from chargehand.store import Store

OUTCOMES: dict[str, Outcome] = {
    "done": Done('{"a":1}'),
    "raised": Raised("Traceback"),
    "retry": RetryLater(5, "later"),
    "gave up": GaveUp("no use"),
    "crashed": Crashed("signal 11"),
    "interrupted": Interrupted("stop"),
    "returned": Returned(),
}


def settlement(claim: Claim, outcome: Outcome, **where: Any) -> Settlement:
    made = settle(claim, outcome, **where)
    assert made is not None
    return made


def settle_all(store: Store, *settlements: Settlement, holder: Holder = ME) -> list[str]:
    with store.transaction() as tx:
        return [job_id for job_id, _ in tx.jobs.settle(settlements, holder)]


# what is written


# spec: WK-4, WK-5
def test_a_done_job_has_its_result_and_its_times(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    assert end(store, claim, Done('{"scores":[1,2]}')) == []
    found = record(store, claim.id)
    assert found.state is State.DONE
    assert plain(found.result) == {"scores": [1, 2]}
    assert (found.error, found.reason, found.node, found.worker) == (None, None, None, None)
    assert found.finished_ms is not None
    assert found.started_ms is not None
    assert found.created_ms <= found.started_ms <= found.finished_ms


# spec: WK-5
@pytest.mark.parametrize(
    ("outcome", "options", "reason"),
    [
        (Raised("Traceback: x"), {"max_attempts": 1}, "raised"),
        (RetryLater(1, "Traceback: x"), {"max_attempts": 1}, "retries used up"),
        (GaveUp("Traceback: x"), {}, "gave up"),
    ],
)
def test_a_failed_job_says_why(store: Store, outcome: Outcome, options: dict[str, Any], reason: str) -> None:
    claim = bring(store, State.RUNNING, **options)
    assert end(store, claim, outcome) == []
    found = record(store, claim.id)
    assert (found.state, found.reason, found.error, found.attempts) == (State.FAILED, reason, "Traceback: x", 1)
    assert found.finished_ms is not None
    assert found.result is None


# spec: WK-6
COUNTERS = {
    "done": (0, 0, 0),
    "raised": (1, 0, 0),
    "retry": (1, 0, 0),
    "gave up": (1, 0, 0),
    "crashed": (0, 1, 0),
    "interrupted": (0, 0, 1),
    "returned": (0, 0, 0),
}


# spec: WK-4, WK-6
@pytest.mark.parametrize("how", OUTCOMES)
def test_each_outcome_moves_its_own_counter(store: Store, how: str) -> None:
    claim = bring(store, State.RUNNING)
    end(store, claim, OUTCOMES[how])
    found = record(store, claim.id)
    assert (found.attempts, found.crashes, found.interruptions) == COUNTERS[how]
    assert found.state is State.QUEUED or found.claim == str(claim.number), (
        "a finished job names the claim that ended it"
    )


# spec: WK-5
@pytest.mark.parametrize("how", [how for how in OUTCOMES if how != "returned"])
def test_every_attempt_is_recorded_with_when_where_how_long_and_why(store: Store, how: str) -> None:
    claim = bring(store, State.RUNNING)
    end(store, claim, OUTCOMES[how], worker="worker:q:3", pid=4711, duration_ms=250)
    (attempt,) = store.jobs.attempts(claim.id)
    assert (attempt.claim, attempt.node, attempt.worker, attempt.pid) == (
        str(claim.number),
        "node-a",
        "worker:q:3",
        4711,
    )
    assert (attempt.outcome, attempt.duration_ms) == (how, 250)
    assert attempt.error == getattr(OUTCOMES[how], "error", None)
    finished = record(store, claim.id).finished_ms
    assert finished is None or attempt.started_ms == finished - 250


# spec: WK-6
def test_a_job_that_was_never_handed_out_has_no_attempt(store: Store) -> None:
    bring(store, State.QUEUED)
    (found,) = everything(store)
    assert store.jobs.attempts(found.id) == []


# spec: WK-4, WK-5
def test_the_history_of_a_job_is_told_oldest_first(store: Store) -> None:
    put(store, job("one"))
    claims: list[Claim] = []
    for how in ("interrupted", "crashed", "interrupted", "gave up"):
        claims.append(take_one(store))
        end(store, claims[-1], OUTCOMES[how])
    history = store.jobs.attempts("one")
    assert [a.outcome for a in history] == ["interrupted", "crashed", "interrupted", "gave up"]
    assert [a.claim for a in history] == [str(claim.number) for claim in claims]


# spec: WK-5
def test_histories_are_not_mixed(store: Store) -> None:
    put(store, job("a"), job("b"))
    a, b = take(store, 2)
    settle_all(store, settlement(a, Crashed("x")), settlement(b, Done()))
    assert [attempt.outcome for attempt in store.jobs.attempts("a")] == ["crashed"]
    assert [attempt.outcome for attempt in store.jobs.attempts("b")] == ["done"]
    assert store.jobs.attempts("nobody") == []


# spec: WK-6
def test_a_crash_counts_up_to_the_quarantine(store: Store) -> None:
    put(store, job("one"))
    first = take_one(store)
    assert (first.crashes, settlement(first, Crashed("x")).delay_ms) == (0, 0)
    end(store, first, Crashed("x"))
    second = take_one(store)
    assert (second.crashes, second.number != first.number) == (1, True)
    assert settlement(second, Crashed("x")).delay_ms > 0
    settle_all(
        store, msgspec.structs.replace(settlement(second, Crashed("x")), delay_ms=0)
    )  # as if the time had passed
    end(store, take_one(store), Crashed("x"))
    found = record(store, "one")
    assert (found.state, found.reason, found.crashes) == (State.FAILED, "poison", 3)
    assert take(store) == []
    assert [a.outcome for a in store.jobs.attempts("one")] == ["crashed"] * 3


# spec: WK-6
def test_interruptions_cost_nothing_however_many(store: Store) -> None:
    put(store, job("one", max_attempts=1))
    for _ in range(10):
        end(store, take_one(store), Interrupted("stop"))
    found = record(store, "one")
    assert (found.state, found.interruptions, found.attempts, found.crashes) == (State.QUEUED, 10, 0, 0)


# spec: WK-1
def test_a_queued_job_has_no_end(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    end(store, claim, Crashed("x"))
    assert record(store, claim.id).finished_ms is None


# spec: WK-5
def test_the_error_of_an_earlier_attempt_is_gone_once_the_job_is_done(store: Store) -> None:
    put(store, job("one"))
    end(store, take_one(store), Crashed("signal 11"))
    assert record(store, "one").error == "signal 11"
    end(store, take_one(store), Done("1"))
    assert record(store, "one").error is None


# spec: WK-3, WK-4
def test_a_batch_settles_many_and_names_only_those_that_no_longer_held(store: Store) -> None:
    put(store, *jobs(6))
    claims = take(store, 6)
    end(store, claims[1], Returned())
    end(store, claims[4], Done())
    lost = settle_all(store, *(settlement(claim, Done()) for claim in claims))
    assert sorted(lost) == sorted([claims[1].id, claims[4].id])
    assert [state(store, claim.id) for claim in claims].count(State.DONE) == 5


# claim numbers


# spec: WK-4
def test_no_two_claims_of_a_job_have_the_same_number(store: Store) -> None:
    put(store, job("one"))
    numbers: list[int] = []
    for _ in range(5):
        claim = take_one(store)
        numbers.append(claim.number)
        end(store, claim, Returned())
    assert len(set(numbers)) == 5


# spec: WK-4
def test_a_retry_by_a_person_clears_the_counters_and_not_the_number(store: Store) -> None:
    put(store, job("one"))
    claims: list[Claim] = []
    for outcome in (Interrupted("x"), Crashed("x"), GaveUp("x")):
        claims.append(take_one(store))
        end(store, claims[-1], outcome)
    assert retry(store, "one") == ["one"]
    found = record(store, "one")
    assert (found.attempts, found.crashes, found.interruptions) == (0, 0, 0)
    assert take_one(store).number not in {claim.number for claim in claims}, (
        "a number of an earlier attempt never holds again"
    )


# spec: WK-4
@pytest.mark.parametrize("how", OUTCOMES)
def test_a_stale_claim_settles_nothing(store: Store, how: str) -> None:
    put(store, job("one"))
    stale = take_one(store, holder=EARLIER_ME)
    recover(store)
    current = take_one(store)
    was, history = record(store, "one"), store.jobs.attempts("one")
    assert end(store, stale, OUTCOMES[how], holder=EARLIER_ME) == ["one"]
    assert record(store, "one") == was
    assert store.jobs.attempts("one") == history
    assert end(store, current, Done("2")) == []
    assert plain(record(store, "one").result) == 2


# spec: WK-4
@pytest.mark.parametrize("now", [State.QUEUED, State.DONE, State.FAILED, State.CANCELLED])
@pytest.mark.parametrize("how", OUTCOMES)
def test_a_claim_that_has_ended_settles_nothing(store: Store, how: str, now: State) -> None:
    claim = bring(store, now)
    was, history = record(store, claim.id), store.jobs.attempts(claim.id)
    assert end(store, claim, OUTCOMES[how]) == [claim.id]
    assert (record(store, claim.id), store.jobs.attempts(claim.id)) == (was, history)


# spec: WK-4
def test_a_stale_claim_enqueues_no_follow_up(store: Store) -> None:
    stale = bring(store, State.QUEUED)
    take_one(store)
    assert end(store, stale, Done("1", (job("follow"),))) == [stale.id]
    assert store.jobs.get("follow") is None


# spec: WK-4
def test_settling_twice_is_accepted_once(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    assert end(store, claim, Done("1")) == []
    assert end(store, claim, Done("2")) == [claim.id]
    assert plain(record(store, claim.id).result) == 1
    assert len(store.jobs.attempts(claim.id)) == 1


# spec: WK-4
def test_the_same_settlement_twice_in_one_batch_is_accepted_once(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    settle_all(store, settlement(claim, Done("1")), settlement(claim, Done("2")))
    assert plain(record(store, claim.id).result) == 1
    assert len(store.jobs.attempts(claim.id)) == 1


# spec: WK-4
def test_a_stale_and_a_current_claim_of_one_job_in_one_batch_are_told_apart(store: Store) -> None:
    stale = bring(store, State.QUEUED)
    current = take_one(store)
    lost = settle_all(
        store,
        settlement(stale, Done("1", (job("stale follow"),))),
        settlement(current, Done("2", (job("current follow"),))),
    )
    assert lost == [stale.id]
    assert plain(record(store, stale.id).result) == 2
    assert [attempt.claim for attempt in store.jobs.attempts(stale.id)] == [str(current.number)]
    assert store.jobs.get("stale follow") is None
    assert state(store, "current follow") is State.QUEUED


# spec: WK-4
def test_the_claim_of_a_pruned_job_settles_no_other_job(store: Store) -> None:
    """The internal number of a deleted job is not given to another job."""
    put(store, job("old"))
    stale = take_one(store, holder=EARLIER_ME)
    recover(store)
    end(store, take_one(store), Done("1"))
    assert store.prune(Retention(count=0), 10) == 1
    put(store, job("new"))
    current = take_one(store)
    assert end(store, stale, Done('"stale"'), holder=EARLIER_ME) == ["old"]
    assert state(store, "new") is State.RUNNING
    assert end(store, current, Done('"own"')) == []
    assert plain(record(store, "new").result) == "own"


# spec: WK-4
def test_settling_a_claim_of_a_job_that_was_pruned_is_lost(store: Store) -> None:
    claim = bring(store, State.DONE)
    store.prune(Retention(count=0), 10)
    assert end(store, claim, Done("1")) == [claim.id]


# follow-up jobs


# spec: WK-2
def test_follow_up_jobs_are_committed_with_the_settling(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    follow = (job("a", "other", payload="1", priority=2), job("b", delay_ms=HOUR))
    assert end(store, claim, Done("1", follow)) == []
    assert (record(store, "a").queue, record(store, "a").priority) == ("other", 2)
    assert take_one(store, queue="other").id == "a"
    assert take(store) == []


# spec: WK-2
def test_follow_up_jobs_roll_back_with_the_settling(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    roll_back(store, lambda tx: tx.jobs.settle([settlement(claim, Done("1", (job("follow"),)))], ME))
    assert store.jobs.get("follow") is None
    assert state(store, claim.id) is State.RUNNING
    assert end(store, claim, Done("1")) == []


# spec: WK-2
def test_a_follow_up_whose_key_is_taken_is_the_one_that_is_there(store: Store) -> None:
    put(store, job("there", "other", key="k"))
    claim = bring(store, State.RUNNING)
    end(store, claim, Done("1", (job("follow", "other", key="k"),)))
    assert record(store, "follow").id == "there"
    assert state(store, "there") is State.QUEUED


# spec: WK-2
def test_a_job_that_enqueues_itself_again_under_its_own_key_gets_a_new_one(store: Store) -> None:
    """The key is free when the job is done, which is when its follow-up jobs are enqueued."""
    claim = bring(store, State.RUNNING, key="k")
    assert end(store, claim, Done("1", (job("again", key="k"),))) == []
    assert state(store, "again") is State.QUEUED
    assert put(store, job("third", key="k")) == [Enqueued("again", False)]


# the dead


# spec: WK-6
def test_recovering_takes_back_what_an_earlier_life_held(store: Store) -> None:
    new = jobs(3)
    put(store, *new)
    take(store, 2, holder=EARLIER_ME)
    assert sorted(recover(store, why="the node ended")) == sorted(one.id for one in new[:2])
    for one in new[:2]:
        found = record(store, one.id)
        assert (found.state, found.interruptions, found.attempts, found.crashes) == (State.QUEUED, 1, 0, 0)
        (attempt,) = store.jobs.attempts(one.id)
        assert (attempt.outcome, attempt.error, attempt.node) == ("interrupted", "the node ended", "node-a")
    assert [claim.id for claim in take(store, 3)] == [one.id for one in new]


# spec: WK-6
def test_recovering_touches_nothing_that_is_ours(store: Store) -> None:
    mine = bring(store, State.RUNNING)
    others = [bring(store, one, queue=f"queue-{one}") for one in State if one is not State.RUNNING]
    before = everything(store)
    assert recover(store) == []
    assert everything(store) == before
    assert all(store.jobs.attempts(claim.id) == [] for claim in (mine, others[0]))


# spec: WK-6
def test_recovering_twice_takes_back_once(store: Store) -> None:
    put(store, job("one"))
    take_one(store, holder=EARLIER_ME)
    assert recover(store) == ["one"]
    assert recover(store) == []
    assert record(store, "one").interruptions == 1


# spec: WK-6
def test_the_attempt_of_a_recovered_job_names_the_worker_that_had_it(store: Store) -> None:
    put(store, job("one"))
    claim = take_one(store, holder=EARLIER_ME)
    with store.transaction() as tx:
        tx.jobs.note([Note(seq=claim.seq, claim=claim.number, worker="worker:q:1", age_ms=60_000)])
    recover(store)
    (attempt,) = store.jobs.attempts("one")
    assert attempt.worker == "worker:q:1"
    assert attempt.duration_ms >= 60_000


# spec: WK-4, WK-6
def test_a_life_that_was_declared_dead_and_wakes_up_settles_nothing(store: Store) -> None:
    put(store, job("one"))
    stale = take_one(store, holder=EARLIER_ME)
    recover(store)
    was, history = record(store, "one"), store.jobs.attempts("one")
    assert end(store, stale, Done("1"), holder=EARLIER_ME) == ["one"]
    assert (record(store, "one"), store.jobs.attempts("one")) == (was, history)


# spec: WK-6
def test_recovering_one_of_thousands_touches_that_one(store: Store) -> None:
    put(store, *jobs(2000))
    take(store, 1000)
    (lost,) = take(store, 1, holder=EARLIER_ME)
    assert recover(store) == [lost.id]
    (counts,) = store.jobs.counts()
    assert (counts.running, counts.queued) == (1000, 1000)


# spec: WP-7
def test_recovering_spares_what_an_unkillable_worker_holds_or_may_hold(store: Store) -> None:
    earlier = Holder("node-a", "life-1")
    put(store, *(job(name) for name in ("its own", "a sibling's", "nobody knows whose")))
    own, sibling, unknown = take(store, 3, holder=earlier)
    with store.transaction() as tx:
        tx.jobs.note([Note(seq=c.seq, claim=c.number, worker=w, age_ms=0) for c, w in ((own, "w:0"), (sibling, "w:1"))])
    with store.transaction() as tx:
        assert [ended.id for ended in tx.jobs.recover(ME, "the node ended", spare=["w:0"])] == [sibling.id]
    assert (state(store, own.id), state(store, unknown.id)) == (State.RUNNING, State.RUNNING)
    assert sorted(recover(store)) == sorted([own.id, unknown.id])


# spec: WK-4
def test_a_late_outcome_of_a_claim_that_was_cancelled_enqueues_nothing(store: Store) -> None:
    put(store, job("parent"))
    claim = take_one(store)
    assert cancel(store, "parent") == []
    assert recover(store, Holder(ME.node, "another life")) == ["parent"]
    assert state(store, "parent") is State.CANCELLED
    assert end(store, claim, Done("1", (job("child"),))) == ["parent"]
    assert store.jobs.get("child") is None
