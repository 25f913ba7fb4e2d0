"""Tests for discovery: each item found in the application's tables gets one job, unless it makes no progress."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from builders import (
    EARLIER_ME,
    HOUR,
    NOON,
    Wall,
    cancel,
    end,
    everything,
    job,
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

from chargehand.codec import escape, readable
from chargehand.errors import Conflict
from chargehand.model.job import Crashed, Done, Found, GaveUp, Interrupted, Raised, State
from chargehand.model.records import Discovered, Discovery, JobFilter, Retention
from chargehand.store import Store


def page(*items: str | Found, queue: str = "q", **options: Any) -> Discovery:
    found = tuple(item if isinstance(item, Found) else Found(item=item) for item in items)
    given: dict[str, Any] = {"priority": 0, "max_attempts": 3, "timeout_ms": 5, **options}
    return Discovery(queue=queue, found=found, **given)


def discover(store: Store, *items: str | Found, **options: Any) -> Discovered:
    with store.transaction() as tx:
        (came,) = tx.jobs.discover([page(*items, **options)])
    return came


def work_off(store: Store, item: str, times: int, **options: Any) -> None:
    """Finds and completes an item several times."""
    for _ in range(times):
        assert discover(store, item, **options) == Discovered(queued=1)
        end(store, take_one(store), Done())


QUEUED, HELD, SET_ASIDE = Discovered(queued=1), Discovered(held=1), Discovered(set_aside=1)


# new items


# spec: WK-10
def test_every_item_found_gets_a_job_in_the_order_of_finding(store: Store) -> None:
    found = (Found(item="b", payload="[1]", label="L"), Found(item="a"), Found(item="c"))
    assert discover(store, *found, priority=4, max_attempts=7, timeout_ms=99) == Discovered(queued=3)
    claims = take(store, 5)
    assert [record(store, claim.id).item for claim in claims] == ["b", "a", "c"]
    first = record(store, claims[0].id)
    assert (plain(first.payload), first.label) == ([1], "L")
    assert (first.priority, first.max_attempts, first.timeout_ms, first.limit_key) == (4, 7, 99, None)
    assert len({claim.id for claim in claims}) == 3


# spec: WK-10
def test_a_page_may_be_empty_and_may_have_a_thousand(store: Store) -> None:
    assert discover(store) == Discovered()
    items = [f"/music/{number}" for number in range(1000)]
    assert discover(store, *items) == Discovered(queued=1000)
    assert discover(store, *items, "new") == Discovered(queued=1, held=1000)
    assert len(take(store, 2000)) == 1001


# spec: WK-10
def test_several_pages_are_answered_each(store: Store) -> None:
    with store.transaction() as tx:
        assert tx.jobs.discover([]) == []
        assert tx.jobs.discover([page("a", "b"), page("b", "c"), page("a", queue="other")]) == [
            Discovered(queued=2),
            Discovered(queued=1, held=1),
            Discovered(queued=1),
        ]


# spec: WK-10
def test_the_same_item_twice_in_a_page_is_one_job(store: Store) -> None:
    assert discover(store, "a", "a", "b", "a") == Discovered(queued=2, held=2)
    assert len(everything(store)) == 2
    a, b = take(store, 2)
    end(store, a, GaveUp("x"))
    end(store, b, Done())
    assert discover(store, "a", "b", "a", "b", most_done=1) == Discovered(set_aside=3, no_progress=("b",))


SIGNS = [
    "/müsik/日本/💥.mp3",
    "it's; DROP TABLE --",
    'a"b',
    "%",
    "a\nb\tc",
    "a\0b",
    "caf\udce9.mp3",
    "\udcff\ud83d\ude00",
    "\U0010fadexe9",
    " ",
    "x" * 1000,
    "\\x00",
    "[1]",
    "1",
]


# spec: WK-10
@pytest.mark.parametrize("item", SIGNS)
def test_an_item_may_have_any_name(store: Store, item: str) -> None:
    kept = escape(item)
    assert discover(store, kept, f"{kept}.") == Discovered(queued=2)
    assert [record(store, claim.id).item for claim in take(store, 5)] == [kept, f"{kept}."]
    assert discover(store, kept) == HELD
    for asked in (item, kept, readable(item)):
        assert [found.item for found in store.jobs.find(JobFilter(text=asked))] == [f"{kept}.", kept], asked


# spec: WK-10
def test_items_whose_names_are_no_unicode_are_different_items(store: Store) -> None:
    names = [escape(name) for name in ("a\udc80", "a\udc81", "a?", "a\\xdc80", "e\u0301", "\u00e9")]
    assert discover(store, *names) == Discovered(queued=6)
    assert discover(store, *names) == Discovered(held=6)
    for claim in take(store, 6):
        end(store, claim, Done())
    assert discover(store, *names[:2], most_done=1).no_progress == tuple(names[:2])


# spec: WK-10
def test_an_item_is_another_in_another_queue(store: Store) -> None:
    assert (discover(store, "a"), discover(store, "a", queue="other")) == (QUEUED, QUEUED)


# spec: WK-10, WK-2
def test_what_was_found_rolls_back(store: Store) -> None:
    roll_back(store, lambda tx: tx.jobs.discover([page("a")]))
    assert everything(store) == []
    assert discover(store, "a") == QUEUED


# items that have a job


# spec: WK-10
def test_an_item_is_held_while_its_job_waits_or_runs(store: Store) -> None:
    discover(store, "a")
    assert discover(store, "a") == HELD
    claim = take_one(store)
    assert discover(store, "a") == HELD
    end(store, claim, Raised("later"))
    assert discover(store, "a") == HELD
    assert len(everything(store)) == 1


# spec: WK-10, WK-6
def test_a_crash_leaves_the_item_where_it_is_claimed_again(store: Store) -> None:
    discover(store, "a")
    end(store, take_one(store), Crashed("x"))
    assert discover(store, "a") == HELD
    again = take_one(store, holder=EARLIER_ME)
    assert again.crashes == 1
    recover(store)
    assert discover(store, "a") == HELD
    assert take_one(store).id == again.id


# spec: WK-10
def test_an_item_that_was_done_may_be_found_again(store: Store) -> None:
    work_off(store, "a", 2)
    assert discover(store, "a") == QUEUED
    assert len(everything(store)) == 3


# spec: WK-10
@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_an_item_whose_last_job_did_not_succeed_is_set_aside_until_a_person_acts(store: Store, how: str) -> None:
    work_off(store, "a", 1)
    discover(store, "a", "b")
    claim, other = take(store, 2)
    end(store, other, Done())
    if how == "failed":
        end(store, claim, GaveUp("x"))
    else:
        cancel(store, claim.id)
        end(store, claim, Interrupted("x"))
    assert discover(store, "a", "b") == Discovered(queued=1, set_aside=1)
    assert retry(store, claim.id) == [claim.id]
    assert discover(store, "a") == HELD
    end(store, take_one(store), Done())
    assert discover(store, "a") == QUEUED


# spec: WK-10, WK-8
def test_an_item_cancelled_while_it_waits_is_set_aside(store: Store) -> None:
    discover(store, "a")
    (found,) = everything(store)
    cancel(store, found.id)
    assert discover(store, "a") == SET_ASIDE


# spec: WK-10, WK-12
def test_a_set_aside_item_is_found_again_once_its_job_is_pruned(store: Store) -> None:
    discover(store, "a")
    end(store, take_one(store), GaveUp("x"))
    assert discover(store, "a") == SET_ASIDE
    assert store.prune(Retention(count=0), 10) == 1
    assert discover(store, "a") == QUEUED


# spec: WK-10, WK-2
def test_a_job_that_somebody_enqueued_under_the_key_of_an_item_holds_it(store: Store) -> None:
    discover(store, "a")
    key = everything(store)[0].key
    end(store, take_one(store), GaveUp("x"))
    put(store, mine := job(key=key))
    failed = everything(store)[1]
    with pytest.raises(Conflict, match=mine.id):
        retry(store, failed.id)
    end(store, take_one(store), Done())
    retry(store, failed.id)
    end(store, take_one(store), Done())
    put(store, job(key=key))
    assert discover(store, "a", "b") == Discovered(queued=1, held=1)


# items that make no progress


# spec: WK-10
def test_an_item_that_is_done_and_found_again_and_again_is_set_aside(store: Store, wall: Wall) -> None:
    wall.at = NOON
    work_off(store, "a", 3)
    came = discover(store, Found(item="a", payload="[1]", label="L"), "b")
    assert came == Discovered(queued=1, no_progress=("a",))
    b, failed, *_ = everything(store)
    assert (failed.state, failed.reason, failed.item, failed.label) == (State.FAILED, "no progress", "a", "L")
    assert (failed.finished_ms, plain(failed.payload)) == (NOON, [1])
    assert failed.error
    assert (b.item, b.state) == ("b", State.QUEUED)
    assert discover(store, "a") == SET_ASIDE
    assert [claim.id for claim in take(store, 5)] == [b.id]


# spec: WK-10
@pytest.mark.parametrize("most", [1, 2, 5])
def test_how_often_an_item_may_be_done_is_the_crews_to_say(store: Store, most: int) -> None:
    work_off(store, "a", most, most_done=most)
    assert discover(store, "a", most_done=most).no_progress == ("a",)


# spec: WK-10
def test_only_what_was_done_within_the_window_counts(store: Store, wall: Wall) -> None:
    wall.at = NOON
    work_off(store, "a", 1)
    wall.at = NOON + HOUR
    work_off(store, "a", 2)
    wall.at = NOON + HOUR + 1
    assert discover(store, "a", "x") == Discovered(queued=2)
    for claim in take(store, 2):
        end(store, claim, Done())
    assert discover(store, "a").no_progress == ("a",)


# spec: WK-10
def test_a_retry_by_a_person_begins_the_count_anew(store: Store, wall: Wall) -> None:
    wall.at = NOON
    work_off(store, "a", 3)
    discover(store, "a")
    stuck = everything(store)[0]
    assert retry(store, stuck.id) == [stuck.id]
    assert discover(store, "a") == HELD
    claim = take_one(store)
    assert (claim.id, claim.failures) == (stuck.id, 0)
    end(store, claim, Done())
    work_off(store, "a", 2)
    assert discover(store, "a").no_progress == ("a",)
    assert [found.reason for found in everything(store)].count("no progress") == 1


# spec: WK-10
def test_attempts_that_failed_do_not_count_as_done(store: Store) -> None:
    for _ in range(2):
        discover(store, "a")
        end(store, take_one(store), Interrupted("x"))
        end(store, take_one(store), Done())
    assert discover(store, "a") == QUEUED


# spec: WK-10
def test_other_items_that_were_done_do_not_count(store: Store) -> None:
    for number in range(5):
        work_off(store, f"a{number}", 2)
        work_off(store, "a%", 1, most_done=9)
    assert discover(store, *(f"a{number}" for number in range(5))) == Discovered(queued=5)


# many


# spec: WK-10
def test_however_many_look_at_once_an_item_has_one_job(store_factory: Callable[[], Store]) -> None:
    stores = [store_factory() for _ in range(4)]
    barrier = threading.Barrier(len(stores))

    def look(number: int) -> int:
        barrier.wait()
        return sum(discover(stores[number], *(f"i{at}" for at in range(50))).queued for _ in range(5))

    with ThreadPoolExecutor(len(stores)) as pool:
        assert sum(pool.map(look, range(len(stores)))) == 50
    assert sorted(found.item or "" for found in everything(stores[0])) == sorted(f"i{at}" for at in range(50))
    assert state(stores[0], take_one(stores[0]).id) is State.RUNNING
