"""Tests for the order of jobs within a priority: flows are finished first, shares take turns, sequences are kept."""

from collections import Counter

import pytest
from builders import (
    HOUR,
    ME,
    NOON,
    Wall,
    begin,
    bring,
    cancel,
    end,
    fan_out,
    finish,
    job,
    jobs,
    perform_all,
    predecessors,
    put,
    record,
    release,
    retry,
    retry_flow,
    state,
    take,
    take_named,
    take_one,
)

from chargehand.model.batch import Want
from chargehand.model.flows import NewFlow
from chargehand.model.job import Crashed, Done, GaveUp, Interrupted, Outcome, Raised, RetryLater, State, Stopped, settle
from chargehand.model.records import Retention
from chargehand.store import Store

# the place of a flow


def first_of(store: Store, *flows: NewFlow) -> None:
    """Begins flows with one job each, `<flow>1`."""
    for flow in flows:
        begin(store, flow, job(f"{flow.id}1"))


def flow(flow_id: str, *, arrival: bool = False) -> NewFlow:
    return NewFlow(id=flow_id, name=flow_id, arrival=arrival)


# spec: FL-4
def test_followers_take_the_place_of_their_flow(store: Store) -> None:
    first_of(store, flow("v"), flow("w"))
    put(store, job("other"), job("w2", flow="w", after=("w1",)), job("v2", flow="v", after=("v1",)))
    assert perform_all(store) == ["v1", "v2", "w1", "w2", "other"]


# spec: FL-4
def test_children_take_the_place_of_their_flow(store: Store) -> None:
    first_of(store, flow("v"), flow("w"))
    put(store, job("other"))
    finish(store, "v1", fan_out(job("c1", flow="v"), job("c2", flow="v")))
    assert perform_all(store) == ["c1", "c2", "w1", "other"]


# spec: FL-4
def test_what_a_member_enqueues_takes_the_place_of_its_flow(store: Store) -> None:
    first_of(store, flow("v"), flow("w"))
    finish(store, "v1", Done("1", (job("x", flow="v"), job("out"))))
    assert perform_all(store) == ["x", "w1", "out"]


# spec: FL-4
def test_the_first_jobs_of_a_flow_keep_their_own_place(store: Store) -> None:
    first_of(store, flow("v"))
    put(store, job("other"), job("v2", flow="v"))
    assert perform_all(store) == ["v1", "other", "v2"]


# spec: FL-4
def test_a_flow_by_arrival_does_not_pass_others(store: Store) -> None:
    first_of(store, flow("v", arrival=True), flow("w"))
    finish(store, "v1", fan_out(job("c", flow="v")))
    put(store, job("v2", flow="v", after=("v1",)))
    assert perform_all(store) == ["w1", "c", "v2"]


# spec: FL-4
def test_priority_comes_before_the_place_of_a_flow(store: Store) -> None:
    first_of(store, flow("v"))
    put(store, job("urgent", priority=1), job("v2", flow="v", after=("v1",), priority=-1))
    assert perform_all(store) == ["urgent", "v1", "v2"]


# spec: FL-4
def test_a_member_that_comes_back_keeps_its_place(store: Store) -> None:
    first_of(store, flow("v"), flow("w"))
    put(store, job("v2", flow="v", after=("v1",)))
    finish(store, "v1")
    assert end(store, take_named(store, "v2"), Interrupted("stop")) == []
    assert perform_all(store) == ["v2", "w1"]


# shares


def in_turns(store: Store, count: int) -> list[str | None]:
    """Claims jobs one by one and ends them. Returns their shares in order."""
    order: list[str | None] = []
    for _ in range(count):
        claim = take_one(store)
        order.append(record(store, claim.id).share)
        assert end(store, claim, Done("1")) == []
    return order


def many(store: Store, count: int, share: str | None, **options: int) -> None:
    """Enqueues jobs of a share, in calls of at most 10,000."""
    for begun in range(0, count, 10_000):
        put(store, *jobs(min(10_000, count - begun), share=share, **options))


# spec: WK-17
@pytest.mark.parametrize("count", [1000, pytest.param(100_000, marks=pytest.mark.full)])
def test_one_job_of_another_share_is_next_but_few(store: Store, count: int) -> None:
    many(store, count, "big")
    held = [take_one(store) for _ in range(3)]
    many(store, 1, "small")
    assert "small" in in_turns(store, 3)
    for claim in held:
        end(store, claim, Done("1"))
    many(store, 1, "small")
    assert "small" in in_turns(store, 3), "nor when nothing runs"


# spec: WK-17, FL-2
@pytest.mark.parametrize("named", ["job", "flow"])
def test_a_retried_job_of_another_share_is_next_but_few(store: Store, named: str) -> None:
    many(store, 100, "big")
    begin(store, "w", job("small", share="small", queue="q"))
    cancel(store, "small")
    assert (retry(store, "small") if named == "job" else retry_flow(store, "w")) == ["small"]
    assert "small" in in_turns(store, 3)


# spec: WK-17
def test_a_share_that_comes_again_and_again_is_never_far(store: Store) -> None:
    many(store, 300, "big")
    waited: list[int] = []
    for _ in range(30):
        many(store, 1, "small")
        order: list[str | None] = []
        while "small" not in order:
            order += in_turns(store, 1)
        waited.append(len(order))
    assert max(waited) <= 3


# spec: WK-17
def test_shares_take_equal_turns(store: Store) -> None:
    for share in "abc":
        many(store, 20, share)
    counts: Counter[str | None] = Counter()
    for share in in_turns(store, 60):
        counts[share] += 1
        assert max(counts.values()) - min(counts[each] for each in "abc") <= 1
    assert set(counts.values()) == {20}


# spec: WK-17
def test_shares_take_turns_while_jobs_run(store: Store) -> None:
    many(store, 40, "a")
    held = take(store, 10)
    many(store, 40, "b")
    counts = Counter(record(store, claim.id).share for claim in take(store, 20))
    assert abs(counts["a"] - counts["b"]) <= 2
    assert all(end(store, claim, Done("1")) == [] for claim in held)


# spec: WK-17
def test_a_share_does_not_save_up_turns(store: Store) -> None:
    """A share that had nothing waiting for long takes turns from now on; it does not catch up."""
    many(store, 50, "a")
    many(store, 1, "b")
    in_turns(store, 31)
    many(store, 10, "b")
    counts = Counter(in_turns(store, 10))
    assert abs(counts["a"] - counts["b"]) <= 2


# spec: WK-17
def test_idle_capacity_is_used_by_whoever_has_work(store: Store) -> None:
    many(store, 30, "a")
    many(store, 2, "b")
    assert Counter(in_turns(store, 4)) == {"a": 2, "b": 2}
    assert len(take(store, 100)) == 28, "nothing is kept back"


# spec: WK-17
def test_jobs_of_one_share_keep_their_order(store: Store) -> None:
    put(store, *(job(f"a{n}", share="a") for n in range(5)))
    put(store, *(job(f"b{n}", share="b") for n in range(5)))
    put(store, *(job(f"a{n}", share="a") for n in range(5, 8)))
    order = perform_all(store)
    assert [each for each in order if each[0] == "a"] == [f"a{n}" for n in range(8)]
    assert [each for each in order if each[0] == "b"] == [f"b{n}" for n in range(5)]


# spec: WK-17
def test_shares_of_one_call_take_turns(store: Store) -> None:
    put(store, *jobs(10, share="a"), *jobs(10, share="b"))
    counts = Counter(in_turns(store, 10))
    assert abs(counts["a"] - counts["b"]) <= 1


# spec: WK-17
def test_jobs_without_a_share_take_turns_with_the_others(store: Store) -> None:
    many(store, 100, "a")
    many(store, 50, None)
    counts = Counter(in_turns(store, 20))
    assert abs(counts["a"] - counts[None]) <= 2


# spec: WK-17
def test_a_share_is_not_delayed_by_jobs_without_one(store: Store) -> None:
    many(store, 100, None)
    many(store, 10, "a")
    counts = Counter(in_turns(store, 10))
    assert counts["a"] >= 4


# spec: WK-3, WK-17
def test_jobs_without_shares_stay_in_the_order_of_arrival(store: Store) -> None:
    put(store, *(job(f"j{n}") for n in range(5)))
    take(store, 2)
    put(store, *(job(f"j{n}") for n in range(5, 8)))
    assert [claim.id for claim in take(store, 10)] == [f"j{n}" for n in range(2, 8)]


# spec: WK-17
def test_priority_comes_before_turns(store: Store) -> None:
    many(store, 5, "a")
    many(store, 3, "b", priority=1)
    assert in_turns(store, 4)[:3] == ["b"] * 3


# spec: WK-17
def test_shares_of_another_queue_do_not_count(store: Store) -> None:
    put(store, *jobs(50, share="a", queue="r"))
    put(store, job("a", share="a"), job("b", share="b"))
    assert perform_all(store) == ["a", "b"]


# sequences


# spec: FL-6
def test_jobs_of_a_sequence_run_one_after_the_other(store: Store) -> None:
    put(store, *(job(f"s{n}", sequence="album") for n in range(3)), job("free"), job("other", sequence="b"))
    assert [claim.id for claim in take(store, 10)] == ["s0", "free", "other"]
    assert record(store, "s1").sequence == "album"
    assert state(store, "s1") is State.QUEUED


# spec: FL-6
def test_the_next_of_a_sequence_can_be_claimed_in_the_transaction_in_which_the_one_before_ends(store: Store) -> None:
    put(store, *(job(f"s{n}", sequence="album") for n in range(3)))
    made = settle(take_named(store, "s0"), Done("1"))
    assert made is not None
    with store.transaction() as tx:
        tx.jobs.settle([made], ME)
        assert tx.woken == frozenset({"q"})
        (grant,) = tx.jobs.claim([Want("q", "q", 10)], ME)
    assert [claim.id for claim in grant.claims] == ["s1"]


# spec: FL-6
@pytest.mark.parametrize("outcome", [Done("1"), GaveUp("x"), Stopped()])
def test_a_sequence_goes_on_however_the_one_before_ended(store: Store, outcome: Outcome) -> None:
    put(store, job("s0", sequence="album"), job("s1", sequence="album"))
    finish(store, "s0", outcome)
    assert take_one(store).id == "s1"


# spec: FL-6
@pytest.mark.parametrize("outcome", [Raised("x"), RetryLater(HOUR, "x"), Interrupted("x"), Crashed("x")])
def test_a_job_that_is_queued_again_holds_its_sequence(store: Store, wall: Wall, outcome: Outcome) -> None:
    wall.at = NOON
    put(store, job("s0", sequence="album"), job("s1", sequence="album", priority=9))
    end(store, take_named(store, "s0"), outcome)
    assert [claim.id for claim in take(store, 10)] in ([], ["s0"]), "not the next one"
    wall.at += 2 * HOUR
    assert state(store, "s1") is State.QUEUED
    claims = take(store, 10)
    assert [claim.id for claim in claims] in ([], ["s0"])


# spec: FL-6
def test_priority_is_ignored_within_a_sequence(store: Store) -> None:
    put(store, *(job(f"s{n}", sequence="album", priority=n) for n in range(5)))
    assert perform_all(store) == [f"s{n}" for n in range(5)]


# spec: FL-6, WK-4
def test_a_job_of_a_sequence_that_one_call_adds_twice_does_not_wait_for_itself(store: Store) -> None:
    a, b = job("a", sequence="s"), job("b", sequence="s", after=("a",))
    assert [each.created for each in put(store, a, b, a, b)] == [True, True, False, False]
    assert [each.created for each in put(store, a, b)] == [False, False]
    assert perform_all(store) == ["a", "b"]


# spec: FL-6
def test_a_sequence_is_one_of_its_queue(store: Store) -> None:
    put(store, job("a", sequence="album"), job("b", queue="r", sequence="album"))
    assert (take_one(store).id, take_one(store, queue="r").id) == ("a", "b")


# spec: FL-6
def test_a_sequence_begins_anew_when_all_have_ended(store: Store) -> None:
    put(store, job("s0", sequence="album"))
    finish(store, "s0")
    put(store, job("s1", sequence="album"), job("s2", sequence="album"))
    assert [claim.id for claim in take(store, 10)] == ["s1"]


# spec: FL-6
@pytest.mark.parametrize("how", ["cancel", "expire", "predecessor"])
def test_a_job_in_the_middle_of_a_sequence_that_ends_lets_nobody_pass(store: Store, wall: Wall, how: str) -> None:
    wall.at = NOON
    bad = bring(store, State.RUNNING, queue="r")
    after = (bad.id,) if how == "predecessor" else ()
    put(store, job("s0", sequence="album"))
    put(store, job("s1", sequence="album", after=after, expires_ms=10 if how == "expire" else None))
    put(store, job("s2", sequence="album"), job("s3", sequence="album"))
    held = take_named(store, "s0")
    if how == "cancel":
        cancel(store, "s1")
    elif how == "expire":
        wall.at += 11
        with store.transaction() as tx:
            assert tx.jobs.expire(10) == 1
    else:
        assert end(store, bad, GaveUp("x")) == []
    assert state(store, "s1") in (State.CANCELLED, State.FAILED)
    assert take(store, 10) == [], "s0 still runs"
    assert end(store, held, Done("1")) == []
    assert perform_all(store) == ["s2", "s3"]


# spec: FL-6
def test_a_job_behind_several_that_end_together_waits_for_the_one_before_them(store: Store) -> None:
    put(store, *(job(f"s{n}", sequence="album") for n in range(4)))
    held = take_named(store, "s0")
    assert sorted(cancel(store, "s3", "s2", "s1")) == ["s1", "s2", "s3"]
    put(store, job("s4", sequence="album"))
    assert take(store, 10) == [], "s0 still runs"
    assert end(store, held, Done("1")) == []
    assert perform_all(store) == ["s4"]


# spec: FL-6
def test_a_job_that_a_person_retries_goes_to_the_end_of_its_sequence(store: Store) -> None:
    put(store, *(job(f"s{n}", sequence="album") for n in range(4)))
    finish(store, "s0", GaveUp("x"))
    held = take_named(store, "s1")
    assert retry(store, "s0") == ["s0"]
    assert take(store, 10) == []
    assert end(store, held, Done("1")) == []
    assert perform_all(store) == ["s2", "s3", "s0"]


# spec: FL-6
def test_a_retried_job_of_a_sequence_whose_others_have_ended_runs_at_once(store: Store) -> None:
    put(store, *(job(f"s{n}", sequence="album") for n in range(2)))
    finish(store, "s0", GaveUp("x"))
    finish(store, "s1")
    retry(store, "s0")
    put(store, job("s2", sequence="album"))
    assert perform_all(store) == ["s0", "s2"]


# spec: FL-6
def test_two_jobs_of_a_sequence_that_are_retried_in_one_call_run_one_after_the_other(store: Store) -> None:
    begin(store, "w", *(job(f"s{n}", sequence="album") for n in range(3)))
    for n in range(3):
        finish(store, f"s{n}", GaveUp("x"))
    assert len(retry_flow(store, "w")) == 3
    assert len(take(store, 10)) == 1


# spec: FL-6
def test_jobs_that_are_retried_together_with_the_last_of_a_sequence_wait_for_those_between(store: Store) -> None:
    put(store, job("p", queue="p"), job("s0", sequence="album"), job("s1", sequence="album"))
    put(store, job("s2", sequence="album", after=("p",)))
    finish(store, "s0", GaveUp("x"))
    finish(store, "p", GaveUp("x"))
    assert (state(store, "s1"), state(store, "s2")) == (State.QUEUED, State.FAILED)
    with store.transaction() as tx:
        assert sorted(tx.jobs.retry(["s0", "p"])) == ["p", "s0"]
    finish(store, "p")
    claims = take(store, 10)
    assert [claim.id for claim in claims] == ["s1"]
    assert end(store, claims[0], Done("1")) == []
    assert perform_all(store) == ["s0", "s2"]


# spec: FL-6
def test_a_job_of_a_sequence_waits_for_its_predecessors_too(store: Store) -> None:
    put(store, job("a", queue="r"), job("s0", sequence="album"), job("s1", sequence="album", after=("a",)))
    put(store, job("s2", sequence="album"))
    finish(store, "s0")
    assert take(store, 10) == []
    finish(store, "a")
    assert perform_all(store) == ["s1", "s2"]


# spec: FL-3, FL-6
def test_the_one_before_in_a_sequence_is_no_predecessor(store: Store) -> None:
    put(store, job("a", queue="r"), job("s0", sequence="album"), job("s1", sequence="album", after=("a",)))
    assert [found.id for found in predecessors(store, "s1")] == ["a"]
    assert store.jobs.followers("s0") == []


# spec: FL-6
def test_children_of_a_job_of_a_sequence_do_not_hold_it(store: Store) -> None:
    put(store, job("s0", sequence="album"), job("s1", sequence="album"))
    finish(store, "s0", fan_out(job("c", queue="r")))
    assert take_one(store).id == "s1"


# spec: FL-6
def test_a_claim_that_is_released_holds_its_sequence(store: Store) -> None:
    put(store, job("s0", sequence="album"), job("s1", sequence="album"))
    assert release(store, take_named(store, "s0"))
    assert [claim.id for claim in take(store, 10)] == ["s0"]


# spec: FL-6
def test_a_deleted_job_of_a_sequence_holds_nobody(store: Store) -> None:
    put(store, job("s0", sequence="album"))
    finish(store, "s0")
    with store.transaction() as tx:
        assert tx.jobs.delete(["s0"]) == ["s0"]
    put(store, job("s1", sequence="album"))
    assert take_one(store).id == "s1"


# spec: FL-6
@pytest.mark.parametrize("how", ["deleted", "pruned"])
@pytest.mark.parametrize("gone", [["s2"], ["s2", "s3"]])
def test_after_the_last_of_a_sequence_was_cancelled_and_is_gone_the_next_waits_for_those_before(
    store: Store, wall: Wall, how: str, gone: list[str]
) -> None:
    wall.at = NOON
    put(store, *(job(name, sequence="album") for name in ("s0", "s1", *gone)))
    first = take_named(store, "s0")
    assert sorted(cancel(store, *gone)) == gone
    if how == "deleted":
        with store.transaction() as tx:
            assert sorted(tx.jobs.delete(gone)) == gone
    else:
        wall.at += 5
        assert store.prune(Retention(count=0), 10) == len(gone)
    put(store, job("next", sequence="album"))
    assert take(store, 10) == []
    assert end(store, first, Done("1")) == []
    assert perform_all(store) == ["s1", "next"]


# spec: FL-3, FL-6
def test_behind_a_child_that_fails_in_a_circle_a_sequence_goes_on_with_those_before(store: Store) -> None:
    put(store, job("s0", sequence="album"))
    first = take_named(store, "s0")
    put(store, job("p"), job("s1", sequence="album", after=("p",), if_failed="run"))
    put(store, job("s2", sequence="album", after=("p",)))
    finish(store, "p", fan_out(job("c", sequence="album")))
    assert [state(store, name) for name in ("s2", "c")] == [State.FAILED, State.FAILED]
    put(store, job("next", sequence="album"))
    assert take(store, 10) == []
    assert end(store, first, Done("1")) == []
    assert perform_all(store) == ["s1", "next"]
