"""Tests for claims: order, limits, time, pauses, and several claimers at once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

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
    end,
    everything,
    job,
    jobs,
    note,
    pause,
    put,
    record,
    resume,
    retry,
    roll_back,
    state,
    take,
    take_one,
)

from chargehand.model.batch import Grant, Note, Want
from chargehand.model.job import Claim, Done, Interrupted, RetryLater, Returned, State
from chargehand.model.records import Holder, JobFilter
from chargehand.store import Store
from chargehand.testing import eventually


# spec: WK-3, WK-4
def test_a_claim_says_what_the_job_is(store: Store) -> None:
    put(store, job("one", payload='{"a":1}', label="L", priority=3, max_attempts=5, timeout_ms=10))
    claim = take_one(store)
    assert (claim.id, claim.queue, claim.payload, claim.label) == ("one", "q", '{"a":1}', "L")
    assert (claim.priority, claim.max_attempts, claim.timeout_ms) == (3, 5, 10)
    assert (claim.number != 0, claim.failures, claim.crashes) == (True, 0, 0)


# spec: WK-1, WK-3
def test_a_claimed_job_says_who_holds_it_and_since_when(store: Store) -> None:
    put(store, job("one"))
    claim = take_one(store)
    found = record(store, "one")
    assert (found.state, found.node, found.worker, found.claim) == (State.RUNNING, "node-a", None, str(claim.number))
    assert found.started_ms is not None
    assert found.started_ms >= found.created_ms
    assert found.finished_ms is None


# spec: WK-3
def test_nothing_waiting_is_an_empty_grant(store: Store) -> None:
    assert ask(store) == Grant("q", (), None)


# spec: WK-3
def test_the_oldest_comes_first(store: Store) -> None:
    new = jobs(20)
    put(store, *new[:10])
    put(store, *new[10:])
    assert [claim.id for claim in take(store, 20)] == [one.id for one in new]


# spec: WK-3
def test_the_oldest_by_arrival_comes_first_whatever_its_id(store: Store) -> None:
    put(store, job("zzz"), job("aaa"), job("mmm"))
    assert [claim.id for claim in take(store, 3)] == ["zzz", "aaa", "mmm"]


# spec: WK-3
def test_the_highest_priority_comes_first_then_the_oldest(store: Store) -> None:
    put(store, *(job(f"{n}", priority=p) for n, p in enumerate([0, 5, -5, 5, 0, 1_000_000, -1_000_000])))
    assert [claim.id for claim in take(store, 7)] == ["5", "1", "3", "0", "4", "2", "6"]


# spec: WK-3
def test_the_order_is_the_same_one_claim_at_a_time(store: Store) -> None:
    put(store, *(job(f"{n}", priority=p) for n, p in enumerate([0, 5, -5, 5, 0])))
    assert [take_one(store).id for _ in range(5)] == ["1", "3", "0", "4", "2"]


# spec: WK-3
def test_a_job_that_comes_later_with_a_higher_priority_overtakes(store: Store) -> None:
    put(store, job("early"), job("early too"))
    assert take_one(store).id == "early"
    put(store, job("late", priority=1))
    assert take_one(store).id == "late"


# spec: WK-3
def test_a_job_given_back_keeps_its_turn(store: Store) -> None:
    put(store, job("first"), job("second"))
    end(store, take_one(store), Returned())
    assert take_one(store).id == "first"


# spec: WK-3
@pytest.mark.parametrize("limit", [1, 2, 5, 9, 10, 11, 1000])
def test_no_more_than_the_limit_are_claimed(store: Store, limit: int) -> None:
    put(store, *jobs(10))
    assert len(take(store, limit)) == min(limit, 10)
    (counts,) = store.jobs.counts()
    assert (counts.running, counts.queued) == (min(limit, 10), 10 - min(limit, 10))


# spec: WK-3
def test_only_the_queue_that_was_asked_for_is_claimed_from(store: Store) -> None:
    put(store, job("a", "q"), job("b", "other"), job("c", "q-other"))
    assert [claim.id for claim in take(store, 10)] == ["a"]
    assert state(store, "b") is State.QUEUED
    assert state(store, "c") is State.QUEUED


# spec: WK-3
def test_several_wants_are_answered_in_order(store: Store) -> None:
    put(store, *jobs(3, queue="a"), *jobs(3, queue="b"))
    with store.transaction() as tx:
        grants = tx.jobs.claim([Want("crew-b", "b", 2), Want("crew-a", "a", 5), Want("crew-c", "c", 1)], ME)
    assert [(grant.crew, len(grant.claims)) for grant in grants] == [("crew-b", 2), ("crew-a", 3), ("crew-c", 0)]


# spec: WK-3
def test_two_wants_of_one_queue_in_one_batch_do_not_share(store: Store) -> None:
    put(store, *jobs(5))
    with store.transaction() as tx:
        first, second = tx.jobs.claim([Want("a", "q", 3), Want("b", "q", 3)], ME)
    ids = [claim.id for claim in (*first.claims, *second.claims)]
    assert len(ids) == len(set(ids)) == 5


# spec: WK-3
def test_a_job_enqueued_in_a_transaction_can_be_claimed_in_it(store: Store) -> None:
    with store.transaction() as tx:
        tx.jobs.enqueue([job("one")])
        (grant,) = tx.jobs.claim([Want("q", "q", 1)], ME)
    assert [claim.id for claim in grant.claims] == ["one"]


# spec: WK-3
def test_a_claim_that_is_rolled_back_was_never_made(store: Store) -> None:
    put(store, job("one"))
    roll_back(store, lambda tx: tx.jobs.claim([Want("q", "q", 1)], ME))
    found = record(store, "one")
    assert (found.state, found.claim, found.started_ms, found.node) == (State.QUEUED, None, None, None)


# spec: WK-3
@pytest.mark.parametrize("finished", [State.DONE, State.FAILED, State.CANCELLED, State.RUNNING])
def test_only_queued_jobs_are_claimed(store: Store, finished: State) -> None:
    bring(store, finished)
    assert ask(store, 10) == Grant("q", (), None)


# many at once


def claim_until_empty(store: Store, holder: Holder, limit: int) -> list[Claim]:
    mine: list[Claim] = []
    while claims := take(store, limit, holder=holder):
        mine += claims
    return mine


# spec: WK-3
@pytest.mark.parametrize("claimers", [2, 6])
def test_claimers_at_the_same_time_never_share_a_job(store_factory: Callable[[], Store], claimers: int) -> None:
    stores = [store_factory() for _ in range(claimers)]
    new = jobs(300)
    put(stores[0], *new)
    with ThreadPoolExecutor(claimers) as pool:
        futures = [
            pool.submit(claim_until_empty, store, Holder(f"node-{n}", f"life-{n}"), n % 3 + 3)
            for n, store in enumerate(stores)
        ]
        taken = [claim for future in futures for claim in future.result(60)]
    assert sorted(claim.id for claim in taken) == sorted(one.id for one in new)
    assert all(claim.number for claim in taken)


# spec: WK-3
def test_what_is_enqueued_while_others_claim_is_claimed_once(store_factory: Callable[[], Store]) -> None:
    writer, *claimers = (store_factory() for _ in range(3))
    new = jobs(120)

    def write() -> None:
        for n in range(0, 120, 6):
            put(writer, *new[n : n + 6])

    def claim(store: Store, holder: Holder) -> list[Claim]:
        mine: list[Claim] = []
        eventually(lambda: mine.extend(take(store, 4, holder=holder)) or written.done())
        return mine + claim_until_empty(store, holder, 4)

    with ThreadPoolExecutor(3) as pool:
        written = pool.submit(write)
        futures = [pool.submit(claim, store, Holder(f"n{n}", f"l{n}")) for n, store in enumerate(claimers)]
        taken = [claim.id for future in futures for claim in future.result(60)]
    assert sorted(taken) == sorted(one.id for one in new)


# spec: WK-3, WK-4
def test_claiming_settling_and_recovering_at_once_completes_every_job_once(
    store_factory: Callable[[], Store],
) -> None:
    """Half of the claims are dropped, as by a dead node, and are recovered."""
    put(store_factory(), *jobs(60))
    stores = [store_factory() for _ in range(4)]

    def work(number: int) -> int:
        store, accepted = stores[number], 0
        for turn in range(1000):
            holder = Holder("node", f"life-{number}-{turn}")
            claims = take(store, 3, holder=holder)
            for claim in claims[::2]:
                accepted += end(store, claim, Done(), holder=holder) == []
            with store.transaction() as tx:
                tx.jobs.recover(Holder("node", "nobody"), "gone")
            if not store.jobs.counts()[0].queued and not store.jobs.counts()[0].running:
                return accepted
        raise AssertionError("it never ends")

    with ThreadPoolExecutor(4) as pool:
        accepted = sum(pool.map(work, range(4)))
    assert accepted == 60
    assert all(found.state is State.DONE for found in everything(store_factory()))


# pauses


# spec: WK-3, PD-1
@pytest.mark.parametrize("scope", ["*", "crew"])
def test_a_paused_crew_is_granted_nothing(store: Store, scope: str) -> None:
    put(store, job("one"))
    pause(store, scope)
    assert ask(store, crew="crew") == Grant("crew", (), None, limited=True)
    assert state(store, "one") is State.QUEUED


# spec: WK-3, PD-1
def test_a_pause_is_of_a_crew_not_of_its_queue(store: Store) -> None:
    put(store, job("one"))
    pause(store, "q")
    assert len(ask(store, queue="q", crew="crew").claims) == 1


# spec: WK-3, PD-1
def test_a_pause_is_of_one_crew_alone(store: Store) -> None:
    put(store, *jobs(4))
    pause(store, "a")
    with store.transaction() as tx:
        a, b = tx.jobs.claim([Want("a", "q", 2), Want("b", "q", 2)], ME)
    assert (len(a.claims), len(b.claims)) == (0, 2)


# spec: WK-3, PD-1
def test_a_pause_in_the_very_transaction_of_the_claim_holds(store: Store) -> None:
    put(store, job("one"))
    with store.transaction() as tx:
        tx.fleet.pause("*", "me", None)
        (grant,) = tx.jobs.claim([Want("q", "q", 1)], ME)
    assert grant.claims == ()


# spec: WK-3, PD-1
def test_a_pause_by_somebody_else_holds_from_its_commit(store_factory: Callable[[], Store]) -> None:
    node, person = store_factory(), store_factory()
    put(node, *jobs(3))
    assert len(take(node, 1)) == 1
    pause(person, "*")
    assert take(node, 1) == []
    resume(person, "*")
    assert len(take(node, 1)) == 1


# spec: PD-1
def test_resuming_one_scope_leaves_the_other(store: Store) -> None:
    put(store, job("one"))
    pause(store, "*")
    pause(store, "q")
    assert resume(store, "q") is True
    assert take(store) == []
    assert resume(store, "*") is True
    assert len(take(store)) == 1


# spec: PD-1
def test_resuming_what_is_not_paused_says_so(store: Store) -> None:
    assert resume(store, "*") is False
    pause(store, "*")
    assert resume(store, "*") is True
    assert resume(store, "*") is False


# spec: PD-1
def test_a_pause_leaves_current_jobs_alone(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    pause(store, "*")
    assert end(store, claim, Done("1")) == []
    assert state(store, claim.id) is State.DONE


# spec: WK-3, PD-1
@pytest.mark.parametrize("scope", ["*", "crew"])
def test_a_pause_for_a_time_holds_until_that_time(store: Store, wall: Wall, scope: str) -> None:
    wall.at = NOON
    put(store, job("one"))
    pause(store, scope, HOUR)
    for wall.at in (NOON, NOON + HOUR - 1):
        assert ask(store, crew="crew").claims == ()
    wall.at = NOON + HOUR
    assert [claim.id for claim in ask(store, crew="crew").claims] == ["one"]


# spec: PD-1
def test_whoever_asks_during_a_pause_learns_when_it_is_over(store: Store, wall: Wall) -> None:
    """Nothing is written when a pause expires, so nothing wakes a node."""
    wall.at = NOON
    put(store, job("one"))
    pause(store, "q", HOUR)
    wall.at += 1000
    assert ask(store) == Grant("q", (), HOUR - 1000, limited=True)
    pause(store, "*", 2 * HOUR)
    assert ask(store) == Grant("q", (), 2 * HOUR, limited=True)
    pause(store, "q")
    assert ask(store) == Grant("q", (), None, limited=True)


# spec: PD-1
@pytest.mark.parametrize(("first", "second", "later"), [(HOUR, None, 0), (None, HOUR, 1), (HOUR, 2 * HOUR, 0)])
def test_a_new_pause_takes_the_place_of_the_old_one(
    store: Store, wall: Wall, first: int | None, second: int | None, later: int
) -> None:
    wall.at = NOON
    put(store, job("one"))
    pause(store, "q", first)
    pause(store, "q", second)
    wall.at += HOUR
    assert len(take(store)) == later


# spec: PD-1
def test_a_pause_that_ran_out_can_be_set_again(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, *jobs(2))
    pause(store, "q", HOUR)
    wall.at += 2 * HOUR
    assert len(take(store, 1)) == 1
    pause(store, "q", HOUR)
    assert take(store, 1) == []


# spec: PD-1
def test_resuming_what_ran_out_says_that_there_was_nothing(store: Store, wall: Wall) -> None:
    wall.at = NOON
    pause(store, "q", HOUR)
    pause(store, "*", HOUR)
    assert resume(store, "*") is True
    wall.at += HOUR
    assert resume(store, "q") is False


# spec: PD-1, SV-10
def test_a_pause_of_one_worker_is_not_the_claims_business(store: Store) -> None:
    put(store, job("one"))
    pause(store, "worker:q:0")
    assert [claim.id for claim in take(store)] == ["one"]
    assert [found.scope for found in store.fleet.pauses()] == ["worker:q:0"]


# time


# spec: WK-3
def test_a_future_job_is_not_claimed_and_its_time_is_told(store: Store) -> None:
    put(store, job("far", delay_ms=2 * HOUR), job("near", delay_ms=HOUR))
    grant = ask(store, 5)
    assert grant.claims == ()
    assert grant.next_in_ms is not None
    assert HOUR - 600_000 < grant.next_in_ms <= HOUR


# spec: WK-3
def test_the_next_time_is_that_of_the_queue_that_was_asked_for(store: Store) -> None:
    put(store, job("other", "other", delay_ms=HOUR), job("mine", delay_ms=24 * HOUR))
    next_in_ms = ask(store).next_in_ms
    assert next_in_ms is not None
    assert 23 * HOUR < next_in_ms <= 24 * HOUR


# spec: WK-3
def test_with_due_jobs_but_fewer_than_wanted_the_next_time_is_told_too(store: Store) -> None:
    put(store, job("due"), job("later", delay_ms=HOUR))
    grant = ask(store, 2)
    assert [claim.id for claim in grant.claims] == ["due"]
    assert grant.next_in_ms is not None


# spec: WK-3
@pytest.mark.parametrize("ended", ["cancelled", "retried now"])
def test_a_future_job_that_no_longer_waits_is_no_next_time(store: Store, ended: str) -> None:
    put(store, job("later", delay_ms=HOUR))
    cancel(store, "later")
    if ended == "retried now":
        assert retry(store, "later") == ["later"]
        assert take_one(store).id == "later"
    assert ask(store) == Grant("q", (), None)


# spec: WK-3
def test_a_future_job_is_claimed_when_its_time_has_come(store: Store) -> None:
    put(store, job("soon", delay_ms=40))
    (claim,) = eventually(lambda: take(store))
    assert claim.id == "soon"
    found = record(store, "soon")
    assert found.started_ms is not None
    assert found.started_ms >= found.run_at_ms


# spec: WK-3
def test_of_jobs_whose_time_has_come_the_highest_priority_is_first(store: Store) -> None:
    put(store, job("low", delay_ms=1), job("high", delay_ms=30, priority=5), job("now", priority=1))
    eventually(lambda: ask(store, 0).claims == () and store.jobs.counts()[0].future == 0)
    assert [claim.id for claim in take(store, 3)] == ["high", "now", "low"]


# spec: WK-3
def test_very_many_that_fall_due_together_are_all_claimed(store: Store) -> None:
    """A claim makes only so many scheduled jobs due; then it reports that the next are due now."""
    new = jobs(1000, delay_ms=30)
    put(store, *new)
    taken: list[str] = []

    def claim() -> bool:
        grant = ask(store, 1000)
        taken.extend(claim.id for claim in grant.claims)
        assert len(taken) == 1000 or grant.next_in_ms is not None
        return len(taken) >= 1000

    eventually(claim)
    assert sorted(taken) == sorted(one.id for one in new)


# spec: WK-3, WK-5
def test_a_job_that_asked_for_later_waits_that_long(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    end(store, claim, RetryLater(HOUR, "not yet"))
    grant = ask(store)
    assert grant.claims == ()
    assert grant.next_in_ms is not None
    assert HOUR - 600_000 < grant.next_in_ms <= HOUR
    assert store.jobs.counts()[0].future == 1


# who has it


# spec: WK-1
def test_a_note_says_which_worker_has_the_job_and_for_how_long(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    before = record(store, claim.id).started_ms
    with store.transaction() as tx:
        tx.jobs.note([Note(seq=claim.seq, claim=claim.number, worker="worker:q:1", age_ms=HOUR)])
    found = record(store, claim.id)
    assert found.worker == "worker:q:1"
    assert found.started_ms is not None
    assert before is not None
    assert before - HOUR <= found.started_ms < before


# spec: WK-4
def test_a_note_of_an_older_claim_is_not_taken_down(store: Store) -> None:
    old = bring(store, State.QUEUED)
    new = take_one(store)
    was = record(store, new.id)
    with store.transaction() as tx:
        tx.jobs.note([Note(seq=old.seq, claim=old.number, worker="worker:q:1", age_ms=HOUR)])
    assert record(store, new.id) == was


# spec: WK-1
def test_whoever_had_the_job_is_forgotten_with_the_claim(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    with store.transaction() as tx:
        tx.jobs.note([Note(seq=claim.seq, claim=claim.number, worker="worker:q:1", age_ms=0)])
    end(store, claim, Interrupted("stop"))
    assert (record(store, claim.id).node, record(store, claim.id).worker) == (None, None)
    take_one(store, holder=EARLIER_ME)
    assert (record(store, claim.id).node, record(store, claim.id).worker) == ("node-a", None)


# claims ahead


# spec: WK-14
@pytest.mark.parametrize(
    ("above", "ahead", "urgent"), [(0, 9, 3), (4, 9, 2), (5, 9, 0), (-1, 9, 4), (0, 2, 2), (0, 0, 0)]
)
def test_a_claim_says_how_many_jobs_are_more_urgent_than_what_is_held(
    store: Store, above: int, ahead: int, urgent: int
) -> None:
    put(store, *(job(f"{n}", priority=p) for n, p in enumerate([0, 5, 4, 5, -1])))
    put(store, job("later", priority=9, delay_ms=60_000), job("other", queue="r", priority=9))
    with store.transaction() as tx:
        (grant,) = tx.jobs.claim([Want("q", "q", 0, ahead=ahead, above=above)], Holder("n", "l"))
    assert (grant.claims, grant.urgent) == ((), urgent)


# spec: WK-14
def test_what_a_claim_takes_is_not_counted_as_waiting(store: Store) -> None:
    put(store, *(job(f"{n}", priority=5) for n in range(5)))
    with store.transaction() as tx:
        (grant,) = tx.jobs.claim([Want("q", "q", 2, ahead=9, above=0)], Holder("n", "l"))
    assert (len(grant.claims), grant.urgent) == (2, 3)


# spec: WK-14
def test_a_job_that_is_held_ahead_is_shown_as_queued_until_a_worker_has_it(store: Store) -> None:
    put(store, *(job(name) for name in ("at once", "early", "waits")))
    with store.transaction() as tx:
        (grant,) = tx.jobs.claim([Want("q", "q", 2, early=1)], ME)
    assert [claim.id for claim in grant.claims] == ["at once", "early"]

    def shown() -> dict[str, list[str]]:
        (counts,) = store.jobs.counts()
        listed = {each: [found.id for found in store.jobs.find(JobFilter(state=each))] for each in State}
        assert (counts.queued, counts.running) == (len(listed[State.QUEUED]), len(listed[State.RUNNING]))
        assert {found.id: found.state for found in store.jobs.find(JobFilter())} == {
            each: state for state, ids in listed.items() for each in ids
        }
        return {each.value: ids for each, ids in listed.items() if ids}

    assert shown() == {"queued": ["waits", "early"], "running": ["at once"]}
    assert state(store, "early") is State.QUEUED
    note(store, grant.claims[1])
    assert shown() == {"queued": ["waits"], "running": ["early", "at once"]}
    end(store, grant.claims[1], Returned())
    assert shown() == {"queued": ["waits", "early"], "running": ["at once"]}
    with store.transaction() as tx:
        tx.jobs.claim([Want("q", "q", 1)], ME)
    assert shown() == {"queued": ["waits"], "running": ["early", "at once"]}


# spec: WK-14
def test_a_job_that_is_held_ahead_can_be_cancelled(store: Store) -> None:
    put(store, job("early"))
    with store.transaction() as tx:
        (grant,) = tx.jobs.claim([Want("q", "q", 1, early=1)], ME)
    assert cancel(store, "early") == []
    end(store, grant.claims[0], Returned())
    assert state(store, "early") is State.CANCELLED
