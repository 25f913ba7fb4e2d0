"""Tests for the list of claims, for release, for finding jobs by reason and text, and for the store's clock."""

import itertools

import msgspec
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
    everything,
    job,
    jobs,
    note,
    put,
    record,
    recover,
    release,
    roll_back,
    state,
    take,
    take_one,
)

from chargehand.codec import readable
from chargehand.model.job import Done, Found, GaveUp, Raised, State
from chargehand.model.records import ClaimRow, Discovery, JobFilter
from chargehand.store import Store

# what is held


# spec: WK-4
def test_what_is_held_is_listed_oldest_first_with_who_holds_it(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("b", label="L"), job("a", "other"), job("waits"), job("later", delay_ms=HOUR))
    bring(store, State.DONE, queue="third")
    earlier = take_one(store, queue="other", holder=EARLIER_ME)
    wall.at = NOON + 7
    claim = take_one(store)
    note(store, claim, worker="worker:q:3")
    cancel(store, "b")
    assert store.jobs.claims() == [
        ClaimRow(
            id="a", queue="other", label=None, claim=str(earlier.number), node="node-a", worker=None, started_ms=NOON,
            cancel_ms=None,
        ),
        ClaimRow(
            id="b", queue="q", label="L", claim=str(claim.number), node="node-a", worker="worker:q:3",
            started_ms=NOON + 7, cancel_ms=NOON + 7,
        ),
    ]  # fmt: skip


# spec: HT-3
def test_a_claim_names_its_item(store: Store) -> None:
    item = "caf\ufffcxe9.flac"
    page = Discovery(queue="q", found=(Found(item=item),), priority=0, max_attempts=3, timeout_ms=None)
    with store.transaction() as tx:
        tx.jobs.discover([page])
    put(store, job("plain"))
    take(store, 2)
    assert {row.id == "plain": row.item for row in store.jobs.claims()} == {True: None, False: item}


# spec: WK-4
def test_of_many_held_the_oldest_are_listed(store: Store) -> None:
    put(store, *jobs(20))
    claims = take(store, 20)
    assert [row.id for row in store.jobs.claims(3)] == [claim.id for claim in claims[:3]]
    assert len(store.jobs.claims()) == 20
    assert store.jobs.claims(0) == []


# taking back


# spec: WK-4, WK-6
def test_a_claim_taken_back_by_hand_is_an_interruption(store: Store, wall: Wall) -> None:
    wall.at = NOON
    claim = bring(store, State.RUNNING)
    note(store, claim, worker="worker:q:1")
    wall.at = NOON + 250
    assert release(store, claim, "a person said so")
    found = record(store, claim.id)
    assert (found.state, found.node, found.worker, found.finished_ms) == (State.QUEUED, None, None, None)
    assert (found.attempts, found.crashes, found.interruptions) == (0, 0, 1)
    (attempt,) = store.jobs.attempts(claim.id)
    assert (attempt.outcome, attempt.error, attempt.node) == ("interrupted", "a person said so", "node-a")
    assert (attempt.worker, attempt.duration_ms, attempt.started_ms) == ("worker:q:1", 250, NOON)
    assert take_one(store).number != claim.number


# spec: WK-4
def test_whoever_had_the_claim_that_was_taken_back_settles_nothing(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    release(store, claim)
    assert end(store, claim, Done("1")) == [claim.id]
    current = take_one(store)
    assert end(store, claim, Done("1")) == [claim.id]
    assert end(store, current, Done("2")) == []


# spec: WK-4
@pytest.mark.parametrize("now", [one for one in State if one is not State.RUNNING])
def test_what_is_not_held_is_not_taken_back(store: Store, now: State) -> None:
    claim = bring(store, now)
    was, history = record(store, claim.id), store.jobs.attempts(claim.id)
    assert not release(store, claim)
    assert (record(store, claim.id), store.jobs.attempts(claim.id)) == (was, history)


# spec: WK-4
def test_a_later_claim_is_not_taken_back_in_the_place_of_the_one_that_was_meant(store: Store) -> None:
    stale = bring(store, State.QUEUED)
    current = take_one(store)
    assert not release(store, stale)
    assert not release(store, msgspec.structs.replace(current, id="nobody"))
    assert (state(store, stale.id), record(store, stale.id).claim) == (State.RUNNING, str(current.number))


# spec: WK-4
@pytest.mark.parametrize("text", ["it's; --", "a\0b", "naïve 🎵", "", "\ud800"])
def test_whatever_a_person_gives_as_the_reason_is_kept(store: Store, text: str) -> None:
    claim = bring(store, State.RUNNING)
    assert release(store, claim, text)
    assert store.jobs.attempts(claim.id)[0].error == readable(text)


# finding


# spec: DB-3
def test_jobs_are_found_by_their_reason(store: Store) -> None:
    gave_up = bring(store, State.FAILED)
    bring(store, State.DONE)
    put(store, job("one"), job("two", "other"))
    cancel(store, "one", "two")
    assert [found.id for found in store.jobs.find(JobFilter(reason="gave up"))] == [gave_up.id]
    assert [found.id for found in store.jobs.find(JobFilter(reason="cancelled"))] == ["two", "one"]
    assert [found.id for found in store.jobs.find(JobFilter(reason="cancelled", queue="q"))] == ["one"]
    assert store.jobs.find(JobFilter(reason="nothing of the kind")) == []


# spec: DB-3
def test_jobs_are_found_by_a_part_of_what_they_say_in_any_case_of_letters(store: Store) -> None:
    put(store, job("an-ID-1"), job("x2", label="Nice Label"), job("x3", key="some/Key"), job("x4", payload='"label"'))
    put(store, job("x5", "other"))
    end(store, take_one(store, queue="other"), GaveUp("Traceback: OSError"))
    for text, found in {
        "id-": "an-ID-1", "AN-id-1": "an-ID-1", "LABEL": "x2", "e l": "x2", "KEY": "x3", "oserr": "x5",
    }.items():  # fmt: skip
        assert [one.id for one in store.jobs.find(JobFilter(text=text))] == [found], text
    assert store.jobs.find(JobFilter(text="nobody says this")) == []
    assert store.jobs.find(JobFilter(text="")) == everything(store)


# spec: DB-3
@pytest.mark.parametrize("text", ["%", "_", "\\", "'", "100%_\\'", "*", "?", "[a]", '"', "\n", "ä", "💥", "\ud800"])
def test_every_sign_stands_for_itself(store: Store, text: str) -> None:
    put(store, job("plain"), job("other", label="no signs"))
    if text != "\ud800":
        put(store, job("meant", label=f"before{text}after"))
    expected = [] if text == "\ud800" else ["meant"]
    assert [found.id for found in store.jobs.find(JobFilter(text=text))] == expected


# spec: DB-3
def test_a_very_long_text_is_looked_for(store: Store) -> None:
    claim = bring(store, State.RUNNING, max_attempts=1)
    long = "x" * 60_000
    end(store, claim, Raised(f"Error: {long}"))
    assert [found.id for found in store.jobs.find(JobFilter(text=long.upper()))] == [claim.id]
    assert store.jobs.find(JobFilter(text=f"{long}x")) == []


# spec: DB-3
def test_what_is_found_comes_in_pages(store: Store) -> None:
    put(store, *(job(f"{number}", label="even" if number % 2 == 0 else "odd") for number in range(10)))
    seen: list[str] = []
    before = None
    while page := store.jobs.find(JobFilter(text="ODD", state=State.QUEUED, limit=2, before=before)):
        assert len(page) <= 2
        seen += [found.id for found in page]
        before = seen[-1]
    assert seen == ["9", "7", "5", "3", "1"]


# spec: DB-3
def test_all_conditions_hold_together(store: Store) -> None:
    for queue, label in itertools.product(("a", "b"), ("x", "y")):
        one = bring(store, State.RUNNING, queue=queue, label=label)
        end(store, one, GaveUp("no"))
        put(store, job(f"waits-{queue}-{label}", queue, label=label))
        cancel(store, f"waits-{queue}-{label}")
    for queue, wanted, reason, text in itertools.product(
        ("a", None), (State.FAILED, None), ("gave up", "cancelled", None), ("X", None)
    ):
        expected = [
            one
            for one in everything(store)
            if queue in (None, one.queue)
            and wanted in (None, one.state)
            and reason in (None, one.reason)
            and (text is None or "x" in f"{one.id}{one.label}")
        ]
        assert store.jobs.find(JobFilter(queue=queue, state=wanted, reason=reason, text=text)) == expected


# the clock


# spec: ST-1
def test_the_stores_clock_can_be_read(store: Store, wall: Wall) -> None:
    for wall.at in (NOON, NOON + 5, NOON - HOUR):
        assert store.now_ms() == wall.at
        put(store, one := job())
        assert record(store, one.id).created_ms == store.now_ms()


# spec: WK-6
def test_recovering_and_releasing_do_not_meet(store: Store) -> None:
    put(store, job("one"))
    claim = take_one(store, holder=EARLIER_ME)
    roll_back(store, lambda tx: (tx.jobs.release("one", str(claim.number), "x"), tx.jobs.recover(ME, "gone")))
    assert recover(store) == ["one"]
    assert not release(store, claim)
    assert record(store, "one").interruptions == 1
