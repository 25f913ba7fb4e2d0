"""Tests for concurrency limits of a queue and of its keys, for every outcome and with several claimers."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from builders import (
    EARLIER_ME,
    HOUR,
    ME,
    NOON,
    Wall,
    ask,
    bring,
    cancel,
    counted,
    crew,
    end,
    job,
    jobs,
    put,
    record,
    recover,
    register,
    release,
    retry,
    roll_back,
    state,
    take,
    take_one,
)

from chargehand import codec
from chargehand.model.batch import Grant, Want
from chargehand.model.job import (
    Claim,
    Crashed,
    Done,
    GaveUp,
    Interrupted,
    NewJob,
    Outcome,
    RetryLater,
    Returned,
    State,
    settle,
)
from chargehand.model.records import Counts
from chargehand.store import Store


def limit(store: Store, **limits: Any) -> None:
    """Sets `limit` and `limit_per_key` of the queue `q`."""
    register(store, crew("q", **limits))


def names(claims: list[Claim]) -> list[str]:
    return [claim.id for claim in claims]


def keyed(*ids: str, **options: Any) -> list[NewJob]:
    """Returns jobs whose limit key is the first letter of their id."""
    return [job(one, limit_key=one[0], **options) for one in ids]


def aside(store: Store, queue: str = "q") -> int:
    return sum(counts.limited for counts in store.jobs.counts() if counts.queue == queue)


# of a queue


# spec: WK-13
def test_no_more_of_a_queue_run_than_its_limit(store: Store) -> None:
    limit(store, limit=2)
    put(store, *(job(one) for one in "abcd"))
    first, second = take(store, 10)
    assert names([first, second]) == ["a", "b"]
    assert take(store, 10) == []
    end(store, second, Done())
    assert names(take(store, 10)) == ["c"]
    end(store, first, Crashed("x"))
    assert names(take(store, 10)) == ["a"]
    assert counted(store) == [Counts(queue="q", queued=1, running=2, done=1)]


# spec: WK-13
def test_a_limit_is_of_its_queue_alone(store: Store) -> None:
    limit(store, limit=1)
    put(store, *jobs(5), *jobs(5, queue="other"))
    assert (len(take(store, 5)), len(take(store, 5, queue="other"))) == (1, 5)


# spec: WK-13
def test_a_queue_with_a_limit_of_none_at_all_rests(store: Store) -> None:
    limit(store, limit=0)
    put(store, *jobs(3))
    assert ask(store, 2, asleep=2) == Grant("q", (), None, limited=True)


# spec: WK-13
def test_what_another_life_holds_counts(store: Store) -> None:
    limit(store, limit=3)
    put(store, *jobs(9))
    take(store, 2, holder=EARLIER_ME)
    assert len(take(store, 5)) == 1
    recover(store)
    assert len(take(store, 5)) == 2


# spec: WK-13
def test_a_full_queue_does_not_ask_for_more_workers_nor_to_be_asked_again(store: Store) -> None:
    """Jobs that become due meanwhile cannot be claimed before a slot is free."""
    limit(store, limit=3)
    put(store, *jobs(10), job(delay_ms=HOUR))
    grant = ask(store, 1, asleep=9)
    assert (len(grant.claims), grant.waiting) == (1, 2)
    grant = ask(store, 5, asleep=9)
    assert (len(grant.claims), grant.waiting, grant.next_in_ms) == (2, 0, None)
    assert ask(store, 5, asleep=9) == Grant("q", (), None, limited=True)


# spec: WK-13
def test_with_room_left_the_next_time_is_told_as_ever(store: Store, wall: Wall) -> None:
    wall.at = NOON
    limit(store, limit=3, limit_per_key=2)
    put(store, job("a"), job("later", delay_ms=HOUR))
    grant = ask(store, 2)
    assert (len(grant.claims), grant.next_in_ms) == (1, HOUR)


# spec: WK-13
def test_crews_that_share_a_queue_share_the_smallest_limit(store: Store) -> None:
    register(store, crew("a", limit=3), crew("b", limit=2, limit_per_key=5), crew("c", limit_per_key=1), crew("d"))
    put(store, *keyed("a1", "a2", "b1", "c1"))
    with store.transaction() as tx:
        one, other = tx.jobs.claim([Want("a", "q", 1), Want("b", "q", 5)], ME)
    assert names([*one.claims, *other.claims]) == ["a1", "b1"]


# spec: WK-13, CL-4
def test_the_limits_of_crews_are_known_from_the_store(store: Store) -> None:
    rows = [crew("a", limit=3), crew("b", limit_per_key=0), crew("c", limit=1, limit_per_key=2)]
    register(store, *rows)
    assert store.fleet.crews() == rows


# of a key


# spec: WK-13
def test_no_more_of_a_key_run_than_its_limit(store: Store) -> None:
    limit(store, limit_per_key=1)
    put(store, *keyed("a1", "a2", "b1", "a3", "b2"), job("free1"), job("free2"))
    a1, b1, *free = take(store, 10)
    assert names([a1, b1, *free]) == ["a1", "b1", "free1", "free2"]
    assert take(store, 10) == []
    end(store, b1, Done())
    assert names(take(store, 10)) == ["b2"]
    end(store, a1, Done())
    assert names(take(store, 10)) == ["a2"]


# spec: WK-13
def test_a_key_is_another_in_another_queue(store: Store) -> None:
    register(store, crew("a", "q", limit_per_key=1), crew("b", "other", limit_per_key=1))
    put(store, *keyed("a1", "a2"), *keyed("a3", "a4", queue="other"))
    assert names([*take(store, 5), *take(store, 5, queue="other")]) == ["a1", "a3"]
    assert (aside(store), aside(store, "other")) == (1, 1)


# spec: WK-13
def test_without_a_limit_keys_mean_nothing(store: Store) -> None:
    limit(store, limit=10)
    put(store, *keyed("a1", "a2", "a3"))
    assert len(take(store, 5)) == 3
    assert record(store, "a1").limit_key == "a"


# spec: WK-13, WK-1
def test_those_set_aside_are_queued_and_can_be_told_from_the_others(store: Store) -> None:
    limit(store, limit_per_key=1)
    put(store, *keyed("a1", "a2", "a3"), *keyed("b1", delay_ms=HOUR))
    take(store, 5)
    assert store.jobs.counts() == [Counts(queue="q", queued=3, future=1, limited=2, running=1)]
    assert state(store, "a2") is State.QUEUED


# spec: WK-13, WK-3
def test_of_a_key_too_the_highest_priority_comes_first_and_then_the_oldest(store: Store) -> None:
    limit(store, limit_per_key=1)
    put(store, *keyed("a1", "a2", "a3"), *keyed("a4", "a5", priority=3), *keyed("a6", priority=9))
    seen: list[str] = []
    while claims := take(store, 10):
        (claim,) = claims
        seen.append(claim.id)
        end(store, claim, Done())
    assert seen == ["a6", "a4", "a5", "a1", "a2", "a3"]


# spec: WK-13, WK-3
def test_a_more_urgent_newcomer_goes_before_those_that_were_set_aside(store: Store) -> None:
    limit(store, limit_per_key=1)
    put(store, *keyed("a1", "a2", "a3"))
    (first,) = take(store, 5)
    put(store, *keyed("a4", priority=1), *keyed("a5"))
    end(store, first, Done())
    second = take_one(store)
    end(store, second, Done())
    assert [second.id, take_one(store).id] == ["a4", "a2"]


OUTCOMES: dict[str, Outcome] = {
    "done": Done(),
    "done, with a follow-up": Done("1", (job("follow", "other"),)),
    "failed": GaveUp("x"),
    "later": RetryLater(HOUR, "x"),
}


# spec: WK-13
@pytest.mark.parametrize("how", OUTCOMES)
def test_every_end_frees_the_slot_for_the_next_of_the_key(store: Store, how: str) -> None:
    limit(store, limit_per_key=2)
    put(store, *keyed("a1", "a2", "a3", "a4", "b1"))
    a1, a2, _ = take(store, 5)
    end(store, a2, OUTCOMES[how])
    assert names(take(store, 5)) == ["a3"]
    end(store, a1, OUTCOMES[how])
    assert names(take(store, 5)) == ["a4"]


# spec: WK-13
@pytest.mark.parametrize("how", ["crashed", "interrupted", "returned", "released", "recovered"])
def test_one_that_comes_back_goes_before_those_behind_it(store: Store, how: str) -> None:
    limit(store, limit_per_key=1)
    put(store, *keyed("a1", "a2", "a3"))
    (claim,) = take(store, 5, holder=EARLIER_ME)
    outcomes: dict[str, Outcome] = {"crashed": Crashed("x"), "interrupted": Interrupted("x"), "returned": Returned()}
    if how in outcomes:
        end(store, claim, outcomes[how])
    elif how == "released":
        release(store, claim)
    else:
        recover(store)
    assert names(take(store, 5)) == ["a1"]
    assert aside(store) == 2
    end(store, take_back(store, "a1"), Done())
    assert names(take(store, 5)) == ["a2"]


def take_back(store: Store, job_id: str) -> Claim:
    """Returns the claim of a running job, with its number from the store."""
    found = record(store, job_id)
    with store.transaction() as tx:
        tx.jobs.release(job_id, found.claim or "", "x")
    return take_one(store)


# spec: WK-13, WK-8
def test_cancelling_a_running_one_frees_its_slot_once_it_has_ended(store: Store) -> None:
    limit(store, limit_per_key=1)
    put(store, *keyed("a1", "a2"))
    (claim,) = take(store, 5)
    cancel(store, "a1")
    assert take(store, 5) == []
    end(store, claim, Interrupted("x"))
    assert (state(store, "a1"), names(take(store, 5))) == (State.CANCELLED, ["a2"])


# spec: WK-13, WK-8
def test_cancelling_the_one_that_is_next_lets_the_one_behind_it_through(store: Store) -> None:
    limit(store, limit_per_key=1)
    put(store, *keyed("a1", "a2", "a3", "a4"))
    (claim,) = take(store, 5)
    end(store, claim, Done())
    cancel(store, "a2", "a3")
    assert names(take(store, 5)) == ["a4"]
    assert aside(store) == 0


# spec: WK-13, WK-8
def test_one_that_was_set_aside_can_be_cancelled_and_retried(store: Store) -> None:
    limit(store, limit_per_key=1)
    put(store, *keyed("a1", "a2", "a3"))
    (claim,) = take(store, 5)
    assert cancel(store, "a2") == ["a2"]
    end(store, claim, Done())
    assert names(take(store, 5)) == ["a3"]
    assert retry(store, "a2") == ["a2"]
    assert take(store, 5) == []
    assert counted(store) == [Counts(queue="q", queued=1, limited=1, running=1, done=1)]


# spec: WK-13, WK-4
def test_a_claim_that_no_longer_holds_frees_nothing(store: Store) -> None:
    limit(store, limit_per_key=1)
    put(store, *keyed("a1", "a2", "a3"))
    (stale,) = take(store, 5)
    release(store, stale)
    take(store, 5)
    assert end(store, stale, Done()) == ["a1"]
    assert take(store, 5) == []


# spec: WK-13, WK-2
def test_limits_roll_back_with_their_transaction(store: Store) -> None:
    limit(store, limit_per_key=1)
    put(store, *keyed("a1", "a2"))

    def work(tx: Any) -> None:
        (grant,) = tx.jobs.claim([Want("q", "q", 5)], ME)
        assert names(list(grant.claims)) == ["a1"]
        tx.jobs.settle([settle(grant.claims[0], Done())], ME)
        tx.fleet.register(ME, [], {})

    roll_back(store, work)
    assert names(take(store, 5)) == ["a1"]
    assert aside(store) == 1


# spec: WK-13
def test_settling_and_claiming_in_one_transaction_use_the_slot_at_once(store: Store) -> None:
    limit(store, limit=1, limit_per_key=1)
    put(store, *keyed("a1", "a2", "b1"))
    (claim,) = take(store, 5)
    made = settle(claim, Done())
    assert made is not None
    with store.transaction() as tx:
        tx.jobs.settle([made], ME)
        (grant,) = tx.jobs.claim([Want("q", "q", 5)], ME)
    assert names(list(grant.claims)) == ["a2"]


# spec: WK-13
def test_many_that_end_at_once_free_as_many_slots(store: Store) -> None:
    limit(store, limit_per_key=3)
    put(store, *keyed(*(f"a{number}" for number in range(9)), *(f"b{number}" for number in range(9))))
    claims = take(store, 50)
    assert len(claims) == 6
    made = [settle(claim, Done() if claim.id[0] == "a" else Interrupted("x")) for claim in claims]
    with store.transaction() as tx:
        tx.jobs.settle([one for one in made if one], ME)
    assert names(take(store, 50)) == ["a3", "a4", "a5", "b0", "b1", "b2"]


# spec: WK-13
def test_a_claim_counts_only_what_could_run_as_waiting(store: Store) -> None:
    limit(store, limit_per_key=2)
    put(store, *keyed("a1", "a2", "a3", "a4", "b1"))
    grant = ask(store, 1, asleep=9)
    assert (names(list(grant.claims)), grant.waiting) == (["a1"], 2)
    grant = ask(store, 0, asleep=1)
    assert (grant.claims, grant.waiting) == ((), 1)
    assert names(take(store, 9)) == ["a2", "b1"]


# spec: WK-13
def test_both_limits_hold_together(store: Store) -> None:
    limit(store, limit=3, limit_per_key=2)
    put(store, *keyed("a1", "a2", "a3", "b1", "b2", "b3"))
    claims = take(store, 9)
    assert names(claims) == ["a1", "a2", "b1"]
    end(store, claims[2], Done())
    assert names(take(store, 9)) == ["b2"]
    end(store, claims[0], Done())
    assert names(take(store, 9)) == ["a3"]


# spec: WK-13, WK-2
def test_a_limited_job_that_falls_due_is_limited_then(store: Store, wall: Wall) -> None:
    wall.at = NOON
    limit(store, limit_per_key=1)
    put(store, *keyed("a1"), *keyed("a2", delay_ms=HOUR))
    (claim,) = take(store, 5)
    wall.at += HOUR
    assert take(store, 5) == []
    assert aside(store) == 1
    end(store, claim, Done())
    assert names(take(store, 5)) == ["a2"]


# spec: WK-13
@pytest.mark.parametrize("key", ["a'b\"c;--", "💥", "%", codec.escape("a\0b"), codec.escape("\ud800"), " ", "l" * 700])
def test_a_key_may_have_any_signs(store: Store, key: str) -> None:
    limit(store, limit_per_key=1)
    put(store, job("one", limit_key=key), job("two", limit_key=key), job("three", limit_key=f"{key}x"))
    one, _ = take(store, 5)
    assert aside(store) == 1
    end(store, one, Done())
    assert names(take(store, 5)) == ["two"]


# spec: WK-13, WK-3
def test_thousands_of_one_key_at_the_head_do_not_hold_up_the_rest_for_ever(store: Store) -> None:
    limit(store, limit_per_key=1)
    put(store, *jobs(1500, limit_key="k", priority=1), job("behind"))
    taken: list[str] = []
    for _ in range(20):
        grant = ask(store, 2)
        taken += [claim.id for claim in grant.claims]
        if "behind" in taken:
            break
        assert grant.next_in_ms == 0, "there is more to look at: ask again at once"
    assert "behind" in taken
    assert aside(store) == 1499
    assert ask(store, 2) == Grant("q", (), None, limited=True)


# limits that change


# spec: WK-13
@pytest.mark.parametrize(("now", "more"), [(3, 2), (None, 4), (1, 0), (0, 0)])
def test_those_set_aside_follow_another_limit(store: Store, now: int | None, more: int) -> None:
    limit(store, limit_per_key=1)
    put(store, *keyed("a1", "a2", "a3", "a4", "a5"))
    take(store, 9)
    assert aside(store) == 4
    limit(store, limit_per_key=now)
    assert names(take(store, 9)) == [f"a{number}" for number in range(2, 2 + more)]


# spec: WK-13
def test_those_set_aside_come_back_if_nobody_limits_the_queue_any_more(store: Store) -> None:
    limit(store, limit_per_key=1)
    put(store, *keyed("a1", "a2", "a3"))
    take(store, 9)
    register(store, crew("other", "other"))
    assert aside(store) == 0
    assert len(take(store, 9)) == 2


# spec: WK-13
def test_a_lower_limit_holds_from_the_next_claim_on(store: Store) -> None:
    limit(store, limit_per_key=3)
    put(store, *keyed("a1", "a2", "a3", "a4", "a5"))
    claims = take(store, 9)
    limit(store, limit_per_key=1)
    for claim in claims[:2]:
        end(store, claim, Done())
        assert take(store, 9) == []
    end(store, claims[2], Done())
    assert names(take(store, 9)) == ["a4"]


# spec: WK-13
def test_a_limit_that_changes_inside_a_transaction_holds_for_the_rest_of_it(store: Store) -> None:
    limit(store, limit_per_key=1)
    put(store, *keyed("a1", "a2", "a3"))
    with store.transaction() as tx:
        (first,) = tx.jobs.claim([Want("q", "q", 5)], ME)
        tx.fleet.register(ME, [crew("q", limit_per_key=2)], {})
        (second,) = tx.jobs.claim([Want("q", "q", 5)], ME)
    assert names([*first.claims, *second.claims]) == ["a1", "a2"]


# spec: WK-13
def test_the_same_limit_again_changes_nothing(store: Store) -> None:
    limit(store, limit_per_key=1, limit=5)
    put(store, *keyed("a1", "a2"))
    take(store, 9)
    for _ in range(2):
        limit(store, limit_per_key=1, limit=5)
        assert aside(store) == 1


# spec: WK-13
def test_a_queue_limit_that_is_raised_lets_more_through(store: Store) -> None:
    limit(store, limit=1)
    put(store, *jobs(9))
    take(store, 9)
    limit(store, limit=3)
    assert len(take(store, 9)) == 2
    limit(store)
    assert len(take(store, 9)) == 6


# many


# spec: WK-13, WK-3
def test_however_many_claim_at_once_no_limit_is_passed_and_nothing_is_forgotten(
    store_factory: Callable[[], Store],
) -> None:
    stores = [store_factory() for _ in range(4)]
    limit(stores[0], limit=5, limit_per_key=2)
    put(stores[0], *(job(limit_key="abc"[number % 3]) for number in range(120)))
    guard = threading.Lock()
    running: dict[str | None, int] = {}
    worst: list[tuple[int, int]] = []
    done: list[str] = []

    def work(number: int) -> None:
        store = stores[number]
        while len(done) < 120:
            claims = take(store, 2)
            keys = [record(store, claim.id).limit_key for claim in claims]
            with guard:
                for key in keys:
                    running[key] = running.get(key, 0) + 1
                    worst.append((sum(running.values()), running[key]))
            for claim, key in zip(claims, keys, strict=True):
                with guard:
                    running[key] -= 1
                end(store, claim, Done())
                done.append(claim.id)

    with ThreadPoolExecutor(len(stores)) as pool:
        for future in [pool.submit(work, number) for number in range(len(stores))]:
            future.result(timeout=60)
    assert sorted(done) == sorted(set(done))
    assert (max(of_queue for of_queue, _ in worst), max(of_key for _, of_key in worst)) <= (5, 2)
    assert max(of_key for _, of_key in worst) <= 2
    assert counted(stores[0]) == [Counts(queue="q", done=120)]


# spec: WK-13
def test_a_queue_without_limits_beside_a_limited_one_is_not_touched(store: Store) -> None:
    limit(store, limit=1, limit_per_key=1)
    beside = bring(store, State.RUNNING, queue="other", limit_key="a")
    put(store, *keyed("a1", "a2"), *keyed("a3", queue="other"))
    (claim,) = take(store, 5)
    end(store, beside, Done())
    assert take(store, 5) == []
    end(store, claim, Done())
    assert names([*take(store, 5), *take(store, 5, queue="other")]) == ["a2", "a3"]
