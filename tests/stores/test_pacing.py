"""Tests for the rates of queues and of keys: no period ever has more starts, and no job waits longer than it must."""

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from builders import (
    EARLIER_ME,
    HOUR,
    ME,
    NOON,
    Wall,
    ask,
    cancel,
    crew,
    end,
    job,
    jobs,
    pause,
    put,
    record,
    recover,
    register,
    release,
    take,
    take_one,
)

from chargehand import clock
from chargehand.model.batch import Grant, Want
from chargehand.model.job import Claim, Done, Interrupted, NewJob, Returned, State, Stopped, settle
from chargehand.model.records import Holder
from chargehand.store import Store

MINUTE = 60_000


@pytest.fixture(autouse=True)
def noon(wall: Wall) -> None:
    wall.at = NOON


def rate(store: Store, holder: Holder = ME, **limits: Any) -> None:
    """Sets `rate`, `rate_per_key` and limits of the queue `q`."""
    register(store, crew("q", **limits), holder=holder)


def names(claims: Sequence[Claim]) -> list[str]:
    return [claim.id for claim in claims]


def keyed(*ids: str, **options: Any) -> list[NewJob]:
    """Returns jobs whose limit key is the first letter of their id."""
    return [job(one, limit_key=one[0], **options) for one in ids]


def most_within(period_ms: int, times: Sequence[int]) -> int:
    """Returns the highest number of these times in any period of that length."""
    ordered = sorted(times)
    return max((at + 1 - bisect_left(ordered, last - period_ms + 1) for at, last in enumerate(ordered)), default=0)


def started(store: Store, claims: Sequence[Claim]) -> list[int]:
    found = [record(store, claim.id).started_ms for claim in claims]
    return [at for at in found if at is not None]


def nexts(store: Store) -> dict[str, int]:
    """When the next job of each queue may start that has to wait for a rate."""
    return {each.queue: each.rate_next_ms for each in store.jobs.counts() if each.rate_next_ms is not None}


# of a queue


# spec: WK-19
def test_no_more_jobs_are_started_within_a_period(store: Store, wall: Wall) -> None:
    rate(store, rate="3/min")
    put(store, *(job(one) for one in "abcdefgh"))
    assert names(take(store, 2)) == ["a", "b"]
    wall.at = NOON + 20_000
    grant = ask(store, 5)
    assert (names(grant.claims), grant.next_in_ms, grant.limited) == (["c"], 40_000, True)
    assert ask(store, 5) == Grant("q", (), 40_000, limited=True)
    wall.at = NOON + MINUTE - 1
    assert ask(store, 5) == Grant("q", (), 1, limited=True)
    wall.at = NOON + MINUTE
    grant = ask(store, 5)
    assert (names(grant.claims), grant.next_in_ms) == (["d", "e"], 20_000)


# spec: WK-19
def test_it_counts_what_was_started_and_not_what_runs(store: Store) -> None:
    rate(store, rate="2/min")
    put(store, *jobs(5))
    for claim in take(store, 2):
        end(store, claim, Done())
    assert ask(store, 1) == Grant("q", (), MINUTE, limited=True)


# spec: WK-19
def test_a_second_attempt_is_a_start(store: Store, wall: Wall) -> None:
    rate(store, rate="2/min")
    put(store, job("a"))
    end(store, take_one(store), Interrupted("the node was stopped"))
    end(store, take_one(store), Interrupted("the node was stopped"))
    assert ask(store, 1) == Grant("q", (), MINUTE, limited=True)
    wall.at = NOON + MINUTE
    assert names(take(store)) == ["a"]


# spec: WK-19
def test_a_rate_is_of_its_queue_alone(store: Store) -> None:
    rate(store, rate="1/day")
    put(store, *jobs(5), *jobs(5, queue="other"))
    assert (len(take(store, 5)), len(take(store, 5, queue="other"))) == (1, 5)


# spec: WK-19
def test_workers_are_started_only_for_jobs_that_may_start(store: Store) -> None:
    rate(store, rate="3/min")
    put(store, *jobs(10))
    grant = ask(store, 1, asleep=9)
    assert (len(grant.claims), grant.waiting, grant.next_in_ms) == (1, 2, MINUTE)
    grant = ask(store, 0, asleep=9)
    assert (len(grant.claims), grant.waiting) == (0, 2)
    take(store, 2)
    assert ask(store, 0, asleep=9) == Grant("q", (), MINUTE, limited=True)


# spec: WK-19
def test_with_room_left_the_next_time_is_that_of_the_next_job(store: Store) -> None:
    rate(store, rate="3/min")
    put(store, job("a"), job("later", delay_ms=HOUR))
    grant = ask(store, 5)
    assert (names(grant.claims), grant.next_in_ms) == (["a"], HOUR)


# spec: WK-19
def test_a_rate_and_a_limit_hold_together(store: Store, wall: Wall) -> None:
    rate(store, rate="4/min", limit=2)
    put(store, *jobs(9))
    first, second = take(store, 5)
    assert ask(store, 5) == Grant("q", (), None, limited=True)
    end(store, first, Done())
    end(store, second, Done())
    assert len(take(store, 5)) == 2
    wall.at = NOON + MINUTE
    assert take(store, 5) == []


# spec: WK-19
def test_a_pause_comes_before_the_rate(store: Store) -> None:
    rate(store, rate="1/min")
    put(store, *jobs(2))
    take(store)
    pause(store, "q", 5000)
    assert ask(store, 1) == Grant("q", (), 5000, limited=True)


# spec: WK-19
def test_a_claim_that_no_worker_had_gives_its_start_back(store: Store, wall: Wall) -> None:
    rate(store, rate="3/min")
    put(store, *(job(one) for one in "abcde"))
    (first,) = take(store, 1)
    wall.at = NOON + 10
    second, third = take(store, 2)
    wall.at = NOON + 20
    assert take(store) == []
    end(store, second, Returned())
    assert names(take(store, 5)) == ["b"]
    end(store, first, Done())
    end(store, third, Returned())
    wall.at = NOON + MINUTE - 1
    grant = ask(store, 5)
    assert (names(grant.claims), grant.next_in_ms) == (["c"], 1)
    wall.at = NOON + MINUTE
    grant = ask(store, 5)
    assert (names(grant.claims), grant.next_in_ms) == (["d"], 20)


# spec: WK-19
def test_a_claim_that_is_given_back_twice_gives_one_start_back(store: Store) -> None:
    rate(store, rate="2/min", rate_per_key="2/min")
    put(store, *keyed("a1", "a2", "a3", "b1", "b2"))
    first, _ = take(store, 2)
    end(store, first, Returned())
    assert end(store, first, Returned()) == ["a1"]
    assert names(take(store, 5)) == ["a1"]


# spec: WK-19
def test_a_claim_that_is_cancelled_before_a_worker_has_it_gives_its_start_back(store: Store) -> None:
    rate(store, rate="1/min", rate_per_key="1/min")
    put(store, *keyed("a1", "a2"))
    (claim,) = take(store)
    assert take(store) == []
    ended = settle(claim, Stopped())
    assert ended is not None
    with store.transaction() as tx:
        tx.jobs.settle([msgspec.structs.replace(ended, outcome=None)], ME)
    assert record(store, "a1").state is State.CANCELLED
    assert names(take(store)) == ["a2"]


# spec: WK-19
@pytest.mark.parametrize("how", ["recovered", "released"])
def test_what_a_node_that_is_gone_had_counts_as_started(store: Store, how: str) -> None:
    """A worker may have begun it just before."""
    rate(store, rate="2/min")
    put(store, *jobs(4))
    claim, _ = take(store, 2, holder=EARLIER_ME)
    if how == "recovered":
        assert len(recover(store)) == 2
    else:
        assert release(store, claim)
    assert ask(store, 1) == Grant("q", (), MINUTE, limited=True)


# spec: WK-19
def test_starts_survive_a_restart(store_factory: Callable[[], Store], wall: Wall) -> None:
    store = store_factory()
    rate(store, rate="2/h", rate_per_key="1/h")
    put(store, *keyed("a1", "a2", "b1", "c1"))
    assert names(take(store, 1)) == ["a1"]
    store.close()
    wall.at = NOON + MINUTE
    store = store_factory()
    rate(store, holder=Holder("node-a", "life-3"), rate="2/h", rate_per_key="1/h")
    assert names(take(store, 5)) == ["b1"]
    assert ask(store, 5) == Grant("q", (), HOUR - MINUTE, limited=True)
    store.close()


# several rates


# spec: WK-19
def test_of_several_crews_all_rates_hold(store: Store, wall: Wall) -> None:
    register(store, crew("a", rate="2/s"), crew("b", rate="3/min"), crew("c", rate="200/min"), crew("d"))
    put(store, *jobs(9))
    assert (len(take(store, 9)), ask(store, 9).next_in_ms) == (2, 1000)
    wall.at = NOON + 1000
    assert (len(take(store, 9)), ask(store, 9).next_in_ms) == (1, 59_000)
    wall.at = NOON + MINUTE
    assert len(take(store, 9)) == 2


# spec: WK-19
def test_a_rate_that_is_lowered_counts_what_was_started_before(store: Store, wall: Wall) -> None:
    rate(store, rate="5/min")
    put(store, *jobs(20))
    for second in range(5):
        wall.at = NOON + 1000 * second
        take(store, 1)
    rate(store, rate="2/min")
    assert ask(store, 1) == Grant("q", (), MINUTE - 1000, limited=True)
    wall.at = NOON + 3000 + MINUTE
    assert len(take(store, 9)) == 1


# spec: WK-19
def test_a_rate_that_is_removed_holds_no_longer(store: Store) -> None:
    rate(store, rate="1/day", rate_per_key="1/day")
    put(store, *keyed("a1", "a2", "a3", "b1"))
    assert (len(take(store, 9)), len(take(store, 9))) == (1, 0)
    rate(store, rate_per_key="1/day")
    assert (names(take(store, 9)), names(take(store, 9))) == (["b1"], [])
    rate(store)
    assert names(take(store, 9)) == ["a2", "a3"]
    assert nexts(store) == {}


# spec: WK-19, CL-4
def test_the_rates_and_hidden_fields_of_crews_are_known_from_the_store(store: Store) -> None:
    rows = [
        crew("a", rate="3/s"), crew("b", rate_per_key="1/day", hide=("token", "a\"b")),
        crew("c", rate="600/min", rate_per_key="2/h"),
    ]  # fmt: skip
    register(store, *rows)
    assert store.fleet.crews() == rows


# of a key


# spec: WK-19
def test_no_more_jobs_of_a_key_are_started_within_a_period(store: Store, wall: Wall) -> None:
    rate(store, rate_per_key="2/min")
    put(store, *keyed("a1", "a2", "a3", "a4", "b1"), job("free"))
    grant = ask(store, 9)
    assert (names(grant.claims), grant.next_in_ms, grant.limited) == (["a1", "a2", "b1", "free"], MINUTE, True)
    wall.at = NOON + 1
    put(store, *keyed("b2", "b3"))
    grant = ask(store, 9)
    assert (names(grant.claims), grant.next_in_ms) == (["b2"], MINUTE - 1)
    wall.at = NOON + MINUTE - 1
    assert take(store, 9) == []
    wall.at = NOON + MINUTE
    grant = ask(store, 9)
    assert (names(grant.claims), grant.next_in_ms) == (["a3", "a4", "b3"], None)


# spec: WK-19
def test_jobs_of_a_key_come_back_a_few_at_a_time_and_by_priority(store: Store, wall: Wall) -> None:
    rate(store, rate_per_key="2/min")
    put(store, *keyed(*(f"a{number}" for number in range(9))))
    assert names(take(store, 9)) == ["a0", "a1"]
    put(store, *keyed("aurgent", priority=9))
    assert take(store, 9) == []
    wall.at = NOON + MINUTE
    assert names(take(store, 9)) == ["aurgent", "a2"]
    wall.at = NOON + 2 * MINUTE
    grant = ask(store, 1)
    assert names(grant.claims) == ["a3"]
    wall.at = NOON + 2 * MINUTE + 500
    grant = ask(store, 9)
    assert (names(grant.claims), grant.next_in_ms) == (["a4"], MINUTE - 500)


# spec: WK-19
def test_jobs_that_are_only_counted_take_no_room_and_are_not_asked_for_again_and_again(store: Store) -> None:
    rate(store, rate_per_key="2/min")
    put(store, *keyed("a1", "a2", "a3", "a4"))
    for _ in range(3):
        grant = ask(store, 0, asleep=5)
        assert (len(grant.claims), grant.waiting, grant.next_in_ms) == (0, 2, MINUTE)
    assert names(take(store, 9)) == ["a1", "a2"]


# spec: WK-19
def test_a_waiting_job_that_is_cancelled_makes_room_for_the_next_of_its_key(store: Store, wall: Wall) -> None:
    rate(store, rate_per_key="2/min")
    put(store, *keyed("a1", "a2", "a3", "a4"))
    assert (names(take(store, 1)), ask(store, 0, asleep=9).waiting) == (["a1"], 1)
    assert cancel(store, "a2") == ["a2"]
    assert names(take(store, 9)) == ["a3"]
    assert cancel(store, "a4") == ["a4"]
    wall.at = NOON + MINUTE
    assert ask(store, 9).next_in_ms is None
    assert nexts(store) == {}


# spec: WK-19
def test_the_start_of_a_key_is_given_back(store: Store, wall: Wall) -> None:
    rate(store, rate_per_key="2/min")
    put(store, *keyed("a1", "a2", "a3"))
    _, second = take(store, 9)
    assert take(store, 9) == []
    wall.at = NOON + 5
    end(store, second, Returned())
    grant = ask(store, 9)
    assert (names(grant.claims), grant.next_in_ms) == (["a2"], MINUTE - 5)
    wall.at = NOON + MINUTE
    assert names(take(store, 9)) == ["a3"]


# spec: WK-19
def test_the_limit_and_the_rate_of_a_key_hold_together(store: Store, wall: Wall) -> None:
    rate(store, rate_per_key="3/min", limit_per_key=2)
    put(store, *keyed(*(f"a{number}" for number in range(8))))
    first, second = take(store, 9)
    end(store, first, Done())
    (third,) = take(store, 9)
    end(store, second, Done())
    assert ask(store, 9).next_in_ms == MINUTE
    wall.at = NOON + MINUTE
    assert names(take(store, 9)) == ["a3"]
    assert take(store, 9) == []
    end(store, third, Done())
    (fifth,) = take(store, 9)
    end(store, fifth, Done())
    assert names(take(store, 9)) == ["a5"]


# spec: WK-19
def test_the_rate_of_the_queue_and_that_of_keys_hold_together(store: Store, wall: Wall) -> None:
    rate(store, rate="3/min", rate_per_key="1/s")
    put(store, *keyed("a1", "a2", "a3", "b1", "b2"))
    grant = ask(store, 9)
    assert (names(grant.claims), grant.next_in_ms) == (["a1", "b1"], 1000)
    wall.at = NOON + 1000
    grant = ask(store, 9)
    assert (names(grant.claims), grant.next_in_ms) == (["a2"], 59_000)
    assert nexts(store) == {"q": NOON + MINUTE}


# spec: WK-19
def test_many_jobs_of_a_key_over_its_rate_do_not_hide_those_of_others(store: Store, wall: Wall) -> None:
    rate(store, rate_per_key="1/min")
    put(store, *jobs(900, limit_key="a"), *keyed("b1"))
    taken = names(take(store, 2))
    while len(taken) < 2:
        grant = ask(store, 1)
        assert grant.claims or grant.next_in_ms == 0
        taken += names(list(grant.claims))
    assert taken[1] == "b1"
    wall.at = NOON + MINUTE
    assert len(take(store, 5)) == 1


# spec: WK-19
def test_long_keys_are_told_apart(store: Store, wall: Wall) -> None:
    rate(store, rate_per_key="1/min")
    one, other = "x" * 190 + "1", "x" * 190 + "2"
    put(store, job("a", limit_key=one), job("b", limit_key=one), job("c", limit_key=other))
    assert names(take(store, 9)) == ["a", "c"]
    wall.at = NOON + MINUTE
    assert names(take(store, 9)) == ["b"]


# the clock


# spec: WK-19
@pytest.mark.parametrize("back_ms", [1, 5000, HOUR, 400 * 24 * HOUR])
def test_a_clock_that_is_set_back_blocks_for_one_period_at_most(store: Store, wall: Wall, back_ms: int) -> None:
    rate(store, rate="2/min", rate_per_key="1/min")
    put(store, *keyed("a1", "a2", "b1", "c1"))
    assert names(take(store, 1)) == ["a1"]
    wall.at = NOON + 3
    assert names(take(store, 9)) == ["b1"]
    wall.at = now = NOON - back_ms
    assert ask(store, 9) == Grant("q", (), MINUTE, limited=True)
    wall.at = now + MINUTE - 1
    assert take(store, 9) == []
    wall.at = now + MINUTE
    assert names(take(store, 9)) == ["a2", "c1"]


# spec: WK-19
def test_a_clock_that_was_ahead_for_a_moment_loses_no_start(store: Store, wall: Wall) -> None:
    rate(store, rate="2/h")
    put(store, *jobs(9))
    take(store, 1)
    wall.at = NOON + HOUR // 2
    take(store, 1)
    wall.at = NOON + 1000
    assert ask(store, 9) == Grant("q", (), HOUR - 1000, limited=True)
    wall.at = NOON + HOUR
    assert len(take(store, 9)) == 1
    assert ask(store, 9) == Grant("q", (), 1000, limited=True)


# what readers see


# spec: WK-19
def test_readers_see_what_waits_for_a_rate(store: Store, wall: Wall) -> None:
    register(store, crew("q", rate="2/min"), crew("k", queue="k", rate_per_key="1/min"), crew("z", queue="z"))
    assert nexts(store) == {}
    put(store, *jobs(3), *(job(limit_key=key, queue="k") for key in "aabb"), *jobs(1, queue="z"))
    take(store, 2)
    take(store, 9, queue="k")
    wall.at = NOON + 1000
    assert nexts(store) == {"k": NOON + MINUTE, "q": NOON + MINUTE}
    assert {each.queue: (each.queued, each.limited) for each in store.jobs.counts()} == {
        "k": (2, 2),
        "q": (1, 0),
        "z": (1, 0),
    }
    wall.at = NOON + MINUTE
    assert nexts(store) == {"k": NOON + MINUTE}
    take(store, 1)
    assert nexts(store) == {"k": NOON + MINUTE}, "no job of q waits"


# many


def requests(seed: int) -> Iterator[tuple[str, int]]:
    chance = random.Random(seed)
    for _ in range(120):
        yield chance.choice(("take", "take", "wait", "return", "end", "cancel")), chance.randrange(1, 6)


# spec: WK-19
@pytest.mark.parametrize("seed", range(4))
def test_no_period_has_more_starts_whatever_happens(store: Store, wall: Wall, seed: int) -> None:
    chance = random.Random(seed)
    rate(store, rate="5/s", rate_per_key="2/s", limit_per_key=2 if seed % 2 else None)
    held: list[Claim] = []
    key_of: dict[str, str | None] = {}
    starts: dict[str | None, list[tuple[int, str]]] = {}
    for what, number in requests(seed):
        assert wall.at is not None
        if what == "take":
            new = [job(limit_key=chance.choice("abc")) for _ in range(number)]
            put(store, *new)
            key_of |= {each.id: each.limit_key for each in new}
            grant = ask(store, number)
            for claim in grant.claims:
                held.append(claim)
                starts.setdefault(None, []).append((wall.at, claim.id))
                starts.setdefault(key_of[claim.id], []).append((wall.at, claim.id))
        elif what == "wait":
            wall.at += chance.choice((1, 50, 200, 999, 1000))
        elif held and what in ("return", "end"):
            claim = held.pop(chance.randrange(len(held)))
            end(store, claim, Returned() if what == "return" else Done())
            if what == "return":
                for each in (starts[None], starts[key_of[claim.id]]):
                    each.remove(max(start for start in each if start[1] == claim.id))
        elif what == "cancel":
            cancel(store, chance.choice(list(key_of) or ["none"]))
    assert most_within(1000, [at for at, _ in starts[None]]) <= 5
    of_keys = [most_within(1000, [at for at, _ in starts[key]]) for key in "abc"]
    assert max(of_keys) == 2
    # Nothing is stuck: with time and workers, everything that waits is started.
    for claim in held:
        end(store, claim, Done())
    while (grant := ask(store, 9)).claims or grant.next_in_ms is not None:
        assert wall.at is not None
        wall.at += grant.next_in_ms or 1
        for claim in grant.claims:
            end(store, claim, Done())
    assert all(counts.queued == 0 for counts in store.jobs.counts())


# spec: WK-19
def test_claimers_at_once_never_exceed_a_rate(store_factory: Callable[[], Store], wall: Wall) -> None:
    wall.at = None
    first = store_factory()
    rate(first, rate="20/s", rate_per_key="6/s")
    put(first, *(job(limit_key="abcde"[number % 5]) for number in range(400)))
    until = clock.monotonic() + 2.5

    def claim(number: int) -> list[Claim]:
        store, chance, mine = store_factory(), random.Random(number), list[Claim]()
        while clock.monotonic() < until:
            with store.transaction() as tx:
                (grant,) = tx.jobs.claim([Want("q", "q", chance.randrange(1, 5))], ME)
            for each in grant.claims:
                back = chance.random() < 0.2
                end(store, each, Returned() if back else Done())
                mine += [] if back else [each]
        store.close()
        return mine

    with ThreadPoolExecutor(4) as pool:
        claims = [each for found in pool.map(claim, range(4)) for each in found]
    assert most_within(1000, started(first, claims)) <= 20
    for key in "abcde":
        its = [each for each in claims if record(first, each.id).limit_key == key]
        assert most_within(1000, started(first, its)) <= 6
    assert len(claims) > 20
    first.close()
