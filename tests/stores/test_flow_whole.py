"""Tests for flows: counts and ends, what is enqueued at an end, and cancelling, retrying and deleting the whole."""

from typing import Any

import msgspec
import pytest
from builders import (
    HOUR,
    ME,
    NOON,
    Wall,
    begin,
    cancel,
    cancel_flow,
    end,
    everything,
    fan_out,
    finish,
    flow_of,
    job,
    perform_all,
    plain,
    put,
    record,
    release,
    retry,
    retry_flow,
    roll_back,
    state,
    states,
    take,
    take_named,
    take_one,
)

from chargehand.errors import Conflict, FlowEnded, FlowNotFound
from chargehand.model.batch import NOTHING_LEFT, Batch, Want
from chargehand.model.flows import FlowCounts, FlowEnd, FlowFilter, NewFlow
from chargehand.model.job import Done, Enqueued, GaveUp, Interrupted, NewJob, State, Stopped, settle
from chargehand.model.records import CancelResult, JobFilter
from chargehand.store import Store

QUEUED, FAILED, CANCELLED = State.QUEUED, State.FAILED, State.CANCELLED


def flow(flow_id: str = "w", on_end: NewJob | None = None, **options: bool) -> NewFlow:
    return NewFlow(id=flow_id, name="summer.mp4", on_end=on_end, **options)


def hook(**options: Any) -> NewJob:
    return NewJob(id="ignored", queue="hooks", payload='"ignored"', **options)


def members(store: Store, flow_id: str) -> FlowCounts:
    """Counts the jobs of a flow, one by one."""
    jobs = store.jobs.find(JobFilter(flow=flow_id, limit=10_000))
    counts = dict.fromkeys(State, 0)
    for each in jobs:
        counts[each.state] += 1
    following = sum(each.waits_for > 0 for each in jobs)
    return FlowCounts(following=following, **{str(one): number for one, number in counts.items()})


def delete(store: Store, flow_id: str, limit: int = 100) -> bool:
    with store.transaction() as tx:
        return tx.flows.delete(flow_id, limit)


# beginning and counts


# spec: FL-4
def test_a_flow_begins_with_its_first_jobs(store: Store, wall: Wall) -> None:
    wall.at = NOON
    begin(store, flow(), job("a"), job("f", after=("a",)))
    found = flow_of(store, "w")
    assert (found.id, found.name, found.state, found.created_ms) == ("w", "summer.mp4", "running", NOON)
    assert (found.ended_ms, found.ends, found.cancel_ms, found.on_end) == (None, 0, None, None)
    assert found.counts == FlowCounts(queued=2, following=1)
    assert [record(store, each).flow for each in ("a", "f")] == ["w", "w"]
    assert take_one(store).flow == "w"


# spec: FL-4
def test_a_job_of_no_flow_names_none(store: Store) -> None:
    put(store, job("a"))
    assert record(store, "a").flow is None
    assert take_one(store).flow is None


# spec: FL-4
def test_counts_are_the_rows(store: Store) -> None:
    begin(store, flow(), *(job(f"j{n}") for n in range(6)), job("f", after=("j5",)), job("g", after=("f", "j4")))
    begin(store, flow("other"), job("x", queue="x"))
    seen = [flow_of(store, "w").counts]
    first, second, third, fourth = take(store, 4)
    seen.append(flow_of(store, "w").counts)
    assert seen[-1] == FlowCounts(queued=4, following=2, running=4)
    end(store, first, Done("1"))
    end(store, second, GaveUp("x"))
    end(store, third, Stopped())
    end(store, fourth, Interrupted("x"))
    assert flow_of(store, "w").counts == FlowCounts(queued=5, following=2, done=1, failed=1, cancelled=1)
    assert members(store, "w") == flow_of(store, "w").counts
    cancel(store, "j5")
    assert flow_of(store, "w").counts == FlowCounts(queued=2, done=1, failed=3, cancelled=2)
    assert members(store, "w") == flow_of(store, "w").counts
    assert flow_of(store, "other").counts == FlowCounts(queued=1)


# spec: FL-4
def test_jobs_of_a_flow_are_found(store: Store) -> None:
    begin(store, flow(), job("a"), job("b", queue="r"))
    begin(store, flow("v"), job("c"))
    put(store, job("d"))
    assert [found.id for found in store.jobs.find(JobFilter(flow="w"))] == ["b", "a"]
    assert [found.id for found in store.jobs.find(JobFilter(flow="w", queue="r"))] == ["b"]
    assert store.jobs.find(JobFilter(flow="nowhere")) == []


# spec: FL-4
def test_a_flow_that_is_rolled_back_is_not_there(store: Store) -> None:
    roll_back(store, lambda tx: (tx.flows.begin(flow()), tx.jobs.enqueue([job("a", flow="w")])))
    assert store.flows.get("w") is None
    assert everything(store) == []


# spec: FL-4
def test_a_flow_is_begun_once(store: Store) -> None:
    begin(store, flow(), job("a"))
    begin(store, NewFlow(id="w", name="another"), job("a"), job("b"))
    assert (flow_of(store, "w").name, flow_of(store, "w").counts.queued) == ("summer.mp4", 2)


# spec: FL-4
def test_jobs_are_added_while_the_flow_goes_on(store: Store) -> None:
    begin(store, flow(), job("a"))
    put(store, job("b", flow="w"))
    take_named(store, "a")
    put(store, job("c", flow="w"))
    assert flow_of(store, "w").counts == FlowCounts(queued=2, running=1)


# spec: FL-4
def test_an_unknown_flow_is_refused_and_nothing_is_added(store: Store) -> None:
    with pytest.raises(FlowNotFound, match="nowhere"):
        put(store, job("a"), job("b", flow="nowhere"))
    assert everything(store) == []
    for refused in (cancel_flow, retry_flow, delete):
        with pytest.raises(FlowNotFound, match="nowhere"):
            refused(store, "nowhere")
    assert store.flows.get("nowhere") is None


# ends


# spec: FL-4
def test_a_flow_ends_with_its_last_job(store: Store, wall: Wall) -> None:
    wall.at = NOON
    begin(store, flow(), job("a"), job("b"))
    finish(store, "a")
    assert flow_of(store, "w").ended_ms is None
    wall.at += 5
    claim = take_named(store, "b")
    made = settle(claim, Done("1"))
    assert made is not None
    with store.transaction() as tx:
        tx.jobs.settle([made], ME)
        assert tx.ended_flows == ("w",)
    found = flow_of(store, "w")
    assert (found.state, found.ended_ms, found.ends) == ("done", NOON + 5, 1)
    assert found.counts == FlowCounts(done=2)


# spec: FL-4
def test_a_turn_names_the_flows_that_ended(store: Store) -> None:
    for name in "uvw":
        begin(store, flow(name, on_end=hook()), job(f"{name}1"))
    put(store, job("more", flow="v"))
    ends = tuple(made for claim in take(store, 3) if (made := settle(claim, Done("1"))) is not None)
    wants = (Want("hooks", "hooks", 5),)
    result = store.turn(Batch(settlements=ends, wants=wants), ME)
    assert sorted(result.ended_flows) == ["u", "w"]
    assert result.woken == frozenset({"hooks"})
    again = store.turn(Batch(hinted=True, wants=wants), ME)  # PostgreSQL ends flows after it has claimed
    assert sum(len(grant.claims) for grant in (*result.grants, *again.grants)) == 2


# spec: FL-4
def test_a_turn_may_leave_the_end_of_flows_until_after_its_result(store: Store) -> None:
    begin(store, flow("w", on_end=hook()), job("w1"))
    (claim,) = take(store, 1)
    made = settle(claim, Done("1"))
    assert made is not None
    result = store.turn(Batch(settlements=(made,)), ME, finish=False)
    left = store.finish()
    assert sorted(result.ended_flows + left.ended_flows) == ["w"]
    assert result.woken | left.woken == frozenset({"hooks"})
    assert flow_of(store, "w").state == "done"
    assert store.finish() == NOTHING_LEFT


# spec: FL-4
def test_a_flow_without_a_job_ends_with_its_transaction(store: Store) -> None:
    begin(store, flow(on_end=hook()))
    found = flow_of(store, "w")
    assert (found.state, found.ends, found.counts) == ("done", 1, FlowCounts())
    assert found.ended_ms is not None
    assert take_one(store, queue="hooks").id == found.on_end


# spec: FL-4
@pytest.mark.parametrize(
    ("outcomes", "wanted"),
    [
        ((Done("1"), Done("1")), "done"),
        ((GaveUp("x"), Done("1")), "failed"),
        ((Done("1"), Stopped()), "cancelled"),
        ((GaveUp("x"), Stopped()), "failed"),
    ],
)
def test_a_flow_has_the_state_of_its_worst_job(store: Store, outcomes: tuple[Done | GaveUp], wanted: str) -> None:
    begin(store, flow(), job("j0"), job("j1"))
    for nr, outcome in enumerate(outcomes):
        assert flow_of(store, "w").state == "running"
        finish(store, f"j{nr}", outcome)
    assert flow_of(store, "w").state == wanted


# spec: FL-4
@pytest.mark.parametrize("how", ["cancel", "release", "predecessor", "outer predecessor", "expire"])
def test_a_flow_ends_however_its_last_job_does(store: Store, wall: Wall, how: str) -> None:
    wall.at = NOON
    if how == "outer predecessor":
        put(store, job("o", queue="o"))
        begin(store, flow(on_end=hook()), job("a", after=("o",)))
        cancel(store, "o")
    elif how == "predecessor":
        begin(store, flow(on_end=hook()), job("a"), job("f", after=("a",)))
        finish(store, "a", GaveUp("x"))
    elif how == "expire":
        begin(store, flow(on_end=hook()), job("a", expires_ms=10))
        wall.at += 11
        with store.transaction() as tx:
            assert tx.jobs.expire(10) == 1
    else:
        begin(store, flow(on_end=hook()), job("a"), job("b", queue="b"))
        if how == "release":
            claims = [take_named(store, "a"), take_named(store, "b")]
            cancel(store, "a", "b")
            assert all(release(store, claim) for claim in claims)
        elif how == "cancel":
            cancel(store, "a", "b")
    found = flow_of(store, "w")
    assert (found.state, found.ends) == ("failed" if "predecessor" in how else "cancelled", 1)
    assert len(take(store, 10, queue="hooks")) == 1


# spec: FL-4
def test_what_the_last_job_enqueues_into_the_flow_keeps_it_going(store: Store) -> None:
    begin(store, flow(on_end=hook()), job("a"))
    finish(store, "a", Done("1", (job("b", flow="w"),)))
    assert (flow_of(store, "w").state, flow_of(store, "w").ends) == ("running", 0)
    finish(store, "b", fan_out(job("c", flow="w")))
    assert flow_of(store, "w").ends == 0
    finish(store, "c", Done("1", (job("outside"),)))
    assert (flow_of(store, "w").state, flow_of(store, "w").ends) == ("done", 1)
    assert record(store, "outside").flow is None
    assert len(take(store, 10, queue="hooks")) == 1


# spec: FL-4
def test_nothing_is_added_to_a_flow_that_has_ended(store: Store) -> None:
    begin(store, flow(), job("a"))
    finish(store, "a")
    with pytest.raises(FlowEnded, match="w"):
        put(store, job("x"), job("b", flow="w"))
    assert [found.id for found in everything(store)] == ["a"]
    assert put(store, job("a", flow="w")) == [Enqueued("a", False)], "a repeated request is answered as at first"


# spec: FL-4, WK-4
def test_what_an_outcome_adds_to_a_flow_that_has_ended_fails(store: Store) -> None:
    begin(store, flow(on_end=hook()), job("a"))
    finish(store, "a")
    put(store, job("stranger"))
    finish(store, "stranger", Done("1", (job("b", flow="w"), job("c", flow="nowhere"), job("d"))))
    assert states(store, "stranger", "b", "c", "d") == [State.DONE, FAILED, FAILED, QUEUED]
    assert flow_of(store, "w").ends == 1
    assert len(take(store, 10, queue="hooks")) == 1


# on_end


# spec: FL-4
def test_the_job_of_an_end_says_how_the_flow_ended(store: Store, wall: Wall) -> None:
    wall.at = NOON
    begin(store, flow(on_end=hook()), job("a"), job("b"), job("f", after=("a",)), job("g", after=("f",)))
    wall.at += 7
    finish(store, "a", GaveUp("x"))
    assert take(store, 10, queue="hooks") == []
    finish(store, "b")
    claim = take_one(store, queue="hooks")
    assert claim.id == flow_of(store, "w").on_end
    assert (claim.label, claim.flow) == ("summer.mp4 ended", None), "it is no member"
    assert msgspec.json.decode(claim.payload, type=FlowEnd) == FlowEnd(
        flow="w", name="summer.mp4", state="failed", counts=FlowCounts(done=1, failed=3),
        reasons={"gave up": 1, "predecessor": 2}, end=1, created_ms=NOON, ended_ms=NOON + 7,
    )  # fmt: skip
    assert end(store, claim, Done("1")) == []
    assert (flow_of(store, "w").ends, flow_of(store, "w").counts.live) == (1, 0)


# spec: FL-4
def test_the_job_of_an_end_has_the_options_that_the_flow_gave_it(store: Store) -> None:
    named = NewJob(id="x", queue="hooks", label="tell anna", priority=5, max_attempts=7, tags=("t",), timeout_ms=3)
    begin(store, flow(on_end=named), job("a"))
    finish(store, "a")
    found = record(store, flow_of(store, "w").on_end or "")
    assert (found.label, found.priority, found.max_attempts, found.timeout_ms) == ("tell anna", 5, 7, 3)
    assert (found.tags, found.id != "x") == (("t",), True)


# spec: FL-4
def test_a_delay_of_the_job_of_an_end_counts_from_the_end(store: Store, wall: Wall) -> None:
    wall.at = NOON
    begin(store, flow(on_end=NewJob(id="x", queue="hooks", delay_ms=HOUR)), job("a"))
    wall.at += 2 * HOUR
    finish(store, "a")
    assert take(store, 10, queue="hooks") == []
    wall.at += HOUR
    assert take_one(store, queue="hooks").id == flow_of(store, "w").on_end


# spec: FL-4
def test_the_job_of_an_end_is_enqueued_once_for_each_end(store: Store) -> None:
    begin(store, flow(on_end=hook()), job("a"), job("b"))
    finish(store, "a", GaveUp("x"))
    finish(store, "b")
    first = take_one(store, queue="hooks")
    assert retry(store, "a") == ["a"]
    found = flow_of(store, "w")
    assert (found.state, found.ended_ms, found.ends) == ("running", None, 1)
    finish(store, "a")
    second = take_one(store, queue="hooks")
    assert second.id != first.id
    ends = [msgspec.json.decode(claim.payload, type=FlowEnd) for claim in (first, second)]
    assert [(one.end, one.state, one.reasons) for one in ends] == [(1, "failed", {"gave up": 1}), (2, "done", {})]
    found = flow_of(store, "w")
    assert (found.ends, found.on_end, found.state) == (2, second.id, "done")
    assert take(store, 10, queue="hooks") == []


# spec: FL-4
def test_flows_that_end_in_one_turn_have_ends_of_their_own(store: Store) -> None:
    outcomes = [Done("1"), GaveUp("x"), Done("1"), Stopped(), Done("1")]
    for number in range(len(outcomes)):
        hooked = None if number == 2 else hook(label=f"end {number}")
        begin(store, flow(f"w{number}", hooked), job(f"a{number}"), *([job("more")] if number == 4 else []))
    claims = take(store, len(outcomes))
    ends = [settle(claim, outcome) for claim, outcome in zip(claims, outcomes, strict=True)]
    result = store.turn(Batch(settlements=tuple(filter(None, ends))), ME)
    assert sorted(result.ended_flows) == ["w0", "w1", "w2", "w3"], "one of the last flow is still to come"
    assert [flow_of(store, f"w{n}").state for n in range(5)] == ["done", "failed", "done", "cancelled", "running"]
    told = {claim.label: msgspec.json.decode(claim.payload, type=FlowEnd) for claim in take(store, 9, queue="hooks")}
    assert {label: (end.flow, end.reasons) for label, end in told.items()} == {
        "end 0": ("w0", {}), "end 1": ("w1", {"gave up": 1}), "end 3": ("w3", {"cancelled": 1}),
    }  # fmt: skip


# spec: FL-4
def test_a_flow_without_on_end_enqueues_nothing(store: Store) -> None:
    begin(store, flow(), job("a"))
    finish(store, "a")
    assert [found.id for found in everything(store)] == ["a"]
    assert flow_of(store, "w").on_end is None


# spec: FL-2, FL-4
def test_a_member_that_is_revived_from_outside_opens_its_flow_again(store: Store) -> None:
    put(store, job("o", queue="o"))
    begin(store, flow(on_end=hook()), job("a", after=("o",)))
    finish(store, "o", GaveUp("x"))
    assert flow_of(store, "w").state == "failed"
    retry(store, "o")
    assert (flow_of(store, "w").state, flow_of(store, "w").ended_ms) == ("running", None)
    finish(store, "o")
    finish(store, "a")
    assert (flow_of(store, "w").state, flow_of(store, "w").ends) == ("done", 2)
    assert len(take(store, 10, queue="hooks")) == 2


# cancelling the whole


# spec: FL-4
def test_cancelling_a_flow_leaves_nothing_waiting(store: Store) -> None:
    begin(
        store, flow(on_end=hook()), job("a"), job("b", queue="b"), job("f", after=("a",)), job("g", after=("f", "b")),
        job("later", delay_ms=HOUR), job("any", after=("a",), if_failed="run"),
    )  # fmt: skip
    put(store, job("outside", after=("a",)), job("beside", queue="c"))
    assert cancel_flow(store, "w").at_once == 6
    assert states(store, "a", "b", "f", "g", "later", "any") == [CANCELLED] * 6
    found = flow_of(store, "w")
    assert (found.state, found.ends, found.counts) == ("cancelled", 1, FlowCounts(cancelled=6))
    assert found.cancel_ms is not None
    assert (state(store, "outside"), record(store, "outside").reason) == (FAILED, "predecessor")
    assert state(store, "beside") is QUEUED
    ended = msgspec.json.decode(take_one(store, queue="hooks").payload, type=FlowEnd)
    assert (ended.state, ended.reasons) == ("cancelled", {"cancelled": 6})


# spec: FL-4, WK-8
def test_running_jobs_of_a_cancelled_flow_are_marked(store: Store) -> None:
    begin(store, flow(), job("a"), job("b"), job("f", after=("a",)))
    claim = take_named(store, "a")
    cancelled = cancel_flow(store, "w")
    assert (cancelled.at_once, cancelled.running) == (2, (CancelResult("a", False, claim.number),))
    assert record(store, "a").cancel_ms is not None
    assert states(store, "b", "f") == [CANCELLED, CANCELLED]
    assert flow_of(store, "w").state == "running"
    assert end(store, claim, Stopped()) == []
    assert (flow_of(store, "w").state, flow_of(store, "w").ends) == ("cancelled", 1)


# spec: FL-4
def test_what_a_running_job_of_a_cancelled_flow_adds_is_cancelled(store: Store) -> None:
    begin(store, flow(on_end=hook()), job("a"), job("f", after=("a",)))
    claim = take_named(store, "a")
    cancel_flow(store, "w")
    added = (job("c", flow="w", child=True), job("d", flow="w"), job("e", flow="w", after=("c",)), job("out"))
    assert end(store, claim, Done("1", added)) == []
    assert states(store, "a", "c", "d", "out") == [State.DONE, CANCELLED, CANCELLED, QUEUED]
    assert state(store, "e") in (CANCELLED, FAILED)
    found = flow_of(store, "w")
    assert (found.state, found.ends, found.counts.live) == ("cancelled", 1, 0)
    assert len(take(store, 10, queue="hooks")) == 1
    assert perform_all(store) == ["out"]


# spec: FL-4
def test_a_job_that_one_call_adds_twice_to_a_cancelled_flow_is_cancelled_once(store: Store) -> None:
    begin(store, flow(), job("a"))
    take_named(store, "a")
    cancel_flow(store, "w")
    assert [each.created for each in put(store, *[job("b", flow="w")] * 2)] == [True, False]
    assert state(store, "b") is CANCELLED


# spec: FL-4
def test_a_flow_that_was_cancelled_is_cancelled_though_its_last_job_was_done(store: Store) -> None:
    begin(store, flow(), job("a"))
    claim = take_named(store, "a")
    cancel_flow(store, "w")
    assert end(store, claim, Done("1")) == []
    assert flow_of(store, "w").state == "cancelled"


# spec: FL-4
def test_cancelling_a_flow_that_has_ended_changes_nothing(store: Store) -> None:
    begin(store, flow(on_end=hook()), job("a"))
    finish(store, "a")
    cancelled = cancel_flow(store, "w")
    assert (cancelled.at_once, cancelled.running) == (0, ())
    assert (flow_of(store, "w").state, flow_of(store, "w").ends) == ("done", 1)
    assert len(take(store, 10, queue="hooks")) == 1


# retrying the whole


# spec: FL-4
def test_retrying_a_flow_queues_what_failed_or_was_cancelled(store: Store) -> None:
    begin(store, flow(on_end=hook()), job("a"), job("b"), job("c"), job("f", after=("b",)), job("g", after=("f", "a")))
    finish(store, "a")
    finish(store, "b", GaveUp("x"))
    cancel(store, "c")
    assert states(store, "f", "g") == [FAILED, FAILED]
    assert flow_of(store, "w").ends == 1
    assert sorted(retry_flow(store, "w")) == ["b", "c", "f", "g"]
    found = flow_of(store, "w")
    assert (found.state, found.ended_ms, found.ends) == ("running", None, 1)
    assert found.counts == FlowCounts(queued=4, following=2, done=1)
    assert record(store, "g").waits_for == 1
    assert sorted(perform_all(store)) == ["b", "c", "f", "g"]
    assert (flow_of(store, "w").state, flow_of(store, "w").ends) == ("done", 2)
    assert len(take(store, 10, queue="hooks")) == 2


# spec: FL-4
def test_a_cancelled_flow_that_is_retried_goes_on_as_if_it_had_not_been_cancelled(store: Store) -> None:
    begin(store, flow(), job("a"), job("f", after=("a",)))
    cancel_flow(store, "w")
    assert sorted(retry_flow(store, "w")) == ["a", "f"]
    assert (flow_of(store, "w").cancel_ms, record(store, "f").waits_for) == (None, 1)
    finish(store, "a", fan_out(job("c", flow="w")))
    assert state(store, "c") is QUEUED
    assert perform_all(store) == ["c", "f"]
    assert (flow_of(store, "w").state, flow_of(store, "w").ends) == ("done", 2)


# spec: FL-4
def test_retrying_a_flow_leaves_jobs_whose_key_is_taken(store: Store) -> None:
    begin(store, flow(), job("a", key="k"), job("b"), job("f", after=("a",)))
    finish(store, "a", GaveUp("x"))
    finish(store, "b", GaveUp("x"))
    put(store, job("x", key="k", delay_ms=HOUR))
    assert retry_flow(store, "w") == ["b"]
    assert states(store, "a", "b", "f") == [FAILED, QUEUED, FAILED]
    finish(store, "b")
    assert (flow_of(store, "w").state, flow_of(store, "w").ends) == ("failed", 2)


# spec: FL-2, FL-4
def test_retrying_a_flow_never_lets_a_job_wait_for_one_that_has_failed(store: Store) -> None:
    put(store, job("o", queue="o"))
    begin(store, flow(), job("a", after=("o",)), job("b", after=("a",)), job("c"))
    finish(store, "o", GaveUp("x"))
    finish(store, "c", GaveUp("x"))
    assert retry_flow(store, "w") == ["c"]
    assert states(store, "a", "b", "c") == [FAILED, FAILED, QUEUED]
    finish(store, "c")
    assert (flow_of(store, "w").state, flow_of(store, "w").ends) == ("failed", 2)


# spec: FL-4
def test_a_job_that_is_added_to_a_cancelled_flow_after_a_bad_one_is_cancelled(store: Store) -> None:
    begin(store, flow(), job("a"), job("b"))
    held = take(store, 1)
    cancel_flow(store, "w")
    put(store, job("c", flow="w", after=("b",)))
    assert end(store, held[0], Done("1", (job("d", flow="w", after=("c",)),))) == []
    assert [(record(store, each).state, record(store, each).reason) for each in "bcd"] == [(CANCELLED, "cancelled")] * 3
    assert sorted(retry_flow(store, "w")) == ["b", "c", "d"]


# spec: FL-2, FL-4
@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_a_flow_is_retried_as_a_whole_with_a_job_of_others_between_its_own(store: Store, how: str) -> None:
    begin(store, flow(), job("a"))
    put(store, job("other", after=("a",)), job("b", flow="w", after=("other",)), job("c", flow="w", after=("b",)))
    if how == "failed":
        finish(store, "a", GaveUp("x"))
    else:
        cancel_flow(store, "w")
    assert sorted(retry_flow(store, "w")) == ["a", "b", "c"]
    assert [record(store, each).waits_for for each in ("a", "other", "b", "c")] == [0, 1, 1, 1]
    assert perform_all(store) == ["a", "other", "b", "c"]
    assert flow_of(store, "w").state == "done"


# spec: FL-4
def test_the_retry_of_a_cancelled_flow_that_can_queue_nothing_leaves_it_cancelled(store: Store) -> None:
    begin(store, flow(), job("a", key="k"))
    cancel_flow(store, "w")
    was = flow_of(store, "w")
    put(store, job("x", key="k"))
    assert retry_flow(store, "w") == []
    assert flow_of(store, "w") == was


# spec: FL-4
def test_retrying_a_flow_with_nothing_to_retry_changes_nothing(store: Store) -> None:
    begin(store, flow(on_end=hook()), job("a"))
    finish(store, "a")
    assert retry_flow(store, "w") == []
    assert (flow_of(store, "w").state, flow_of(store, "w").ends) == ("done", 1)
    assert len(take(store, 10, queue="hooks")) == 1


# spec: FL-4
def test_a_flow_that_goes_on_can_be_retried(store: Store) -> None:
    begin(store, flow(), job("a"), job("b"))
    finish(store, "a", GaveUp("x"))
    assert retry_flow(store, "w") == ["a"]
    assert (flow_of(store, "w").ends, flow_of(store, "w").counts) == (0, FlowCounts(queued=2))


# spec: FL-2, FL-4
def test_retrying_a_flow_revives_followers_outside_of_it(store: Store) -> None:
    begin(store, flow(), job("a"))
    put(store, job("out", queue="o", after=("a",)))
    finish(store, "a", GaveUp("x"))
    assert retry_flow(store, "w") == ["a"]
    assert record(store, "out").waits_for == 1


# deleting and listing


# spec: FL-4
def test_a_flow_is_deleted_in_pages(store: Store) -> None:
    begin(store, flow(), *(job(f"j{n}") for n in range(5)), job("f", after=("j0",)))
    begin(store, flow("v"), job("x", queue="x"))
    perform_all(store)
    answers = [delete(store, "w", 2) for _ in range(3)]
    assert answers in ([False, False, True], [False, False, False])
    while store.flows.get("w") is not None:
        delete(store, "w", 2)
    assert [found.id for found in everything(store)] == ["x"]
    with pytest.raises(FlowNotFound):
        delete(store, "w")
    assert flow_of(store, "v").counts == FlowCounts(queued=1)


# spec: FL-4
def test_a_flow_that_goes_on_is_not_deleted(store: Store) -> None:
    begin(store, flow(), job("a"), job("b"))
    finish(store, "a")
    with pytest.raises(Conflict, match="or wait for its end"):
        delete(store, "w")
    assert flow_of(store, "w").counts == FlowCounts(queued=1, done=1)


# spec: FL-4
def test_an_empty_flow_is_deleted(store: Store) -> None:
    begin(store, flow())
    assert delete(store, "w", 1)
    assert store.flows.get("w") is None


# spec: FL-4
def test_flows_are_listed_newest_first_in_pages(store: Store) -> None:
    for n in range(7):
        begin(store, NewFlow(id=f"w{n}", name=f"film {n}"), job(f"a{n}"))
    first = store.flows.find(FlowFilter(limit=3))
    assert [found.id for found in first] == ["w6", "w5", "w4"]
    assert [found.id for found in store.flows.find(FlowFilter(limit=3, before="w4"))] == ["w3", "w2", "w1"]
    assert store.flows.find(FlowFilter(before="w0")) == []
    assert first[0] == flow_of(store, "w6")


# spec: FL-4
def test_flows_are_filtered_by_state_and_text(store: Store) -> None:
    begin(store, NewFlow(id="w1", name="Sommer 100%"), job("a1"))
    begin(store, NewFlow(id="w2", name="winter_x"), job("a2"))
    begin(store, NewFlow(id="w3", name="sommer"), job("a3"))
    finish(store, "a1")
    finish(store, "a2", GaveUp("x"))

    def found(**which: str) -> list[str]:
        return [one.id for one in store.flows.find(msgspec.convert(which, FlowFilter))]

    assert found(state="running") == ["w3"]
    assert found(state="done") == ["w1"]
    assert found(state="failed") == ["w2"]
    assert found(state="cancelled") == []
    assert found(text="SOMMER") == ["w3", "w1"]
    assert found(text="0%") == ["w1"]
    assert found(text="r_x") == ["w2"]
    assert found(text="_") == ["w2"], "no pattern"
    assert found(text="W3") == ["w3"]
    assert found(text="sommer", state="done") == ["w1"]


# spec: FL-5
def test_a_store_says_which_flows_and_jobs_exist(store: Store) -> None:
    begin(store, flow(), job("a"))
    put(store, job("b"))
    assert store.flows.exist(["w", "v"], ["a", "b", "c"]) == ({"w"}, {"a", "b"})
    assert store.flows.exist([], []) == (set(), set())


# spec: FL-4
def test_a_sweep_of_a_store_where_nothing_is_left_undone_finds_nothing(store: Store) -> None:
    begin(store, flow(), job("a"), job("f", after=("a",)))
    begin(store, flow("v"), job("x", queue="x"))
    finish(store, "a")
    finish(store, "x")
    before = [flow_of(store, each) for each in ("v", "w")]
    with store.transaction() as tx:
        assert tx.flows.sweep(100) == 0
    assert [flow_of(store, each) for each in ("v", "w")] == before


# spec: FL-4
def test_texts_of_a_flow_come_back_as_they_were(store: Store) -> None:
    begin(store, NewFlow(id="größe 日本", name="a'b\"c;-- %s ? $1"), job("a"))
    finish(store, "a")
    assert flow_of(store, "größe 日本").name == "a'b\"c;-- %s ? $1"
    assert plain(record(store, "a").result) == 1
