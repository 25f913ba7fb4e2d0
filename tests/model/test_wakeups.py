"""Tests for wake-ups: when a process notifies the nodes, and when a notified node looks for jobs."""

from itertools import pairwise

import pytest
from ledger_builders import T, fast, grant, ledger, request, serve, working

from chargehand.model import chores
from chargehand.model.batch import Batch, Grant, Result
from chargehand.model.job import Done, Found, Interrupted, NewJob
from chargehand.model.ledger import Ledger
from chargehand.model.records import Discovery
from chargehand.model.wakeups import (
    AFTER_FAILURE,
    COST,
    LAST_LOOK,
    LONGEST_PACE,
    LONGEST_SILENCE,
    LOOK_AGAIN,
    LOOK_EVERY,
    NOTIFY_EVERY,
    OPEN_EVERY,
    OPEN_FOR,
    Debounce,
    Looks,
    Wakeup,
)

# spec: ST-3 (all tests of this file)


def test_jobs_are_reported_at_once_and_then_only_now_and_then() -> None:
    debounce = Debounce()
    assert debounce.begin(T)
    assert not debounce.begin(T + NOTIFY_EVERY * 0.99)
    assert debounce.begin(T + NOTIFY_EVERY)
    debounce.undo()
    assert debounce.begin(T + NOTIFY_EVERY), "its transaction has failed"
    now = T + 0.5
    silences: list[float] = []
    for _ in range(5):
        assert debounce.begin(now)
        silences.append(round(debounce.next_at - now, 6))
        now = debounce.next_at + NOTIFY_EVERY / 2
    assert silences == [0.005, 0.01, 0.02, 0.02, LONGEST_SILENCE], "while it goes on"
    assert debounce.begin(now + LONGEST_SILENCE)
    assert debounce.next_at == pytest.approx(now + LONGEST_SILENCE + NOTIFY_EVERY)
    debounce.failed(T + 1)
    assert not debounce.begin(T + 1 + AFTER_FAILURE / 2)
    assert debounce.begin(T + 1 + AFTER_FAILURE)


def looked(looks: Looks, until: float, took: float = 0.0) -> list[float]:
    """Lets looks happen when they are due. Returns when each began, in milliseconds after T."""
    found: list[float] = []
    while (due := looks.due()) is not None and due <= until:
        looks.begin(due)
        looks.ended(found=False, took=took)
        found.append(round((due - T) * 1000, 3))
    return found


def test_a_notified_node_looks_at_once_and_again_after_the_sender_may_have_been_silent() -> None:
    looks = Looks()
    assert looks.due() is None
    looks.notified(Wakeup.JOBS, T)
    assert (looks.due() or 0) <= T
    looks.begin(T)
    assert looks.due() is None, "one is under way"
    looks.ended(found=True)
    assert looks.due() == T + LOOK_AGAIN > T + NOTIFY_EVERY
    assert looked(looks, T + 10) == [6.0, 21.0]
    assert LAST_LOOK > LONGEST_SILENCE
    assert looks.due() is None


def test_whatever_a_process_commits_is_seen_by_a_look_after_it() -> None:
    """A sender and a receiver whose clocks are the same, and a line without a delay: the worst case."""
    debounce, looks = Debounce(), Looks()
    seen: list[float] = []
    commits = [T + ms / 1000 for ms in (0, 1, 4.9, 5, 9, 14.9, 16, 30, 34.99, 36, 55, 70, 200, 204)]
    for now, following in pairwise((*commits, T + 1)):
        if debounce.begin(now):
            looks.notified(Wakeup.JOBS, now)
        while (due := looks.due()) is not None and due < following:
            seen.append(max(due, now))
            looks.begin(seen[-1])
            looks.ended(found=False)
    for now in commits:
        assert min(look - now for look in seen if look >= now) <= LAST_LOOK + 1e-9


def test_an_open_transaction_is_looked_for_at_growing_intervals_for_a_while() -> None:
    looks = Looks()
    looks.notified(Wakeup.OPEN, T)
    found = looked(looks, T + 2 * OPEN_FOR)
    assert found[:3] == [6.0, 12.0, 24.0]
    gaps = [later - earlier for earlier, later in pairwise(found)]
    assert max(gaps) == pytest.approx(OPEN_EVERY * 1000)
    assert OPEN_FOR * 1000 <= found[-1] <= (OPEN_FOR + OPEN_EVERY) * 1000
    assert len(found) < 260
    looks.notified(Wakeup.OPEN, T + 1000)
    looks.notified(Wakeup.JOBS, T + 1000.001)
    assert looked(looks, T + 1000.1)[1:3] == [pytest.approx(1000007), pytest.approx(1000022)]
    assert looks.due() is not None, "the transaction may still be open"


def test_looks_are_rarer_while_they_cost_much_or_lead_to_nothing() -> None:
    looks = Looks()
    looks.notified(Wakeup.JOBS, T)
    looks.begin(T)
    looks.ended(found=False, took=0.01)
    looks.notified(Wakeup.JOBS, T + 0.001)
    assert looks.due() == T + COST * 0.01
    now = T + 1
    for _ in range(10):
        looks.notified(Wakeup.JOBS, now)
        looks.begin(now)
        looks.ended(found=True)
        looks.claimed(any_job=False)
        now += 1
    looks.notified(Wakeup.JOBS, now)
    looks.begin(now)
    looks.ended(found=True)
    looks.notified(Wakeup.JOBS, now)
    assert looks.due() == now + LONGEST_PACE
    looks.claimed(any_job=True)
    looks.begin(now + 1)
    looks.ended(found=True)
    looks.notified(Wakeup.JOBS, now + 1)
    assert looks.due() == now + 1 + LOOK_EVERY


# the ledger of a node


def shared(of: Ledger) -> Ledger:
    of.elsewhere = frozenset({"queue-a", "queue-z"})
    return of


def committed(of: Ledger, now: float = T) -> Batch:
    """The next batch, which gets no jobs."""
    batch = of.next_batch(now)
    of.confirm(Result(grants=tuple(Grant(want.crew, (), None) for want in batch.wants)), now)
    return batch


def test_a_node_looks_only_for_workers_that_are_free() -> None:
    made = ledger("a", "b", "c")
    serve(made, "w0", crew="a")
    serve(made, "w1", crew="b")
    committed(made)
    assert made.notified(T) == ["queue-a", "queue-b"]
    assert made.pools["c"].check_store, "its first worker asks"
    made.pause(["b", "c"], T)
    made.pools["c"].asleep = 1
    assert made.notified(T) == ["queue-a"]
    made.hint("queue-a")
    assert made.notified(T) == [], "it is about to claim"
    made = ledger()
    serve(made, "w0")
    committed(made)
    made.close(T)
    assert made.notified(T) == []


def test_a_busy_node_asks_for_what_it_was_notified_of_when_a_worker_is_free() -> None:
    made = working()
    made.pools["a"].check_store = False
    assert made.notified(T) == []
    assert (made.batch_due(T + 0.001) or 0) > T + 0.01, "nobody is free"
    made.finished("w0", Done("1"), T + 0.1, pid=1)
    batch = committed(made, T + 0.1)
    assert batch.wants
    assert not batch.poll


def test_a_node_with_prefetched_claims_looks_for_more_urgent_jobs() -> None:
    made = fast(working(), 0.001)
    made.next_batch(T)
    grant(made, *range(10, 20))
    assert made.pools["a"].prefetched
    assert made.notified(T) == ["queue-a"]


@pytest.mark.parametrize(
    ("idle", "queue", "count", "expected"),
    [
        (1, "queue-a", 1, False),
        (1, "queue-a", 2, True),
        (0, "queue-a", 1, True),
        (1, "queue-z", 1, True),
        (1, "queue-nobody", 1, False),
    ],
)
def test_a_node_notifies_others_of_jobs_that_it_has_no_worker_for(
    idle: int, queue: str, count: int, expected: bool
) -> None:
    made = shared(ledger())
    serve(made, *(f"w{n}" for n in range(idle)))
    made.enqueue(request(*(f"j{n}" for n in range(count)), queue=queue), T)
    assert made.next_batch(T).wakeups == ({Wakeup.JOBS} if expected else set())


def test_a_node_alone_notifies_nobody() -> None:
    made = ledger()
    made.enqueue(request("j"), T)
    made.chore(chores.CancelJobs(token=1, ids=("x",)), T, urgent=True)
    assert not made.next_batch(T).wakeups


def test_jobs_scheduled_for_later_are_not_reported() -> None:
    made = shared(ledger())
    made.enqueue(request("j", delay_ms=5000), T)
    assert not made.next_batch(T).wakeups


def test_jobs_that_a_node_gives_back_or_that_follow_from_others_are_reported() -> None:
    made = shared(working(2))
    made.gone("w0", Interrupted("stopped"), T, pid=1)
    assert committed(made).wakeups == {Wakeup.JOBS}
    made.finished("w1", Done("1", (NewJob(id="child", queue="queue-z"),)), T + 1, pid=1)
    assert committed(made, T + 1).wakeups == {Wakeup.JOBS}


def test_found_items_and_cancel_requests_are_reported() -> None:
    made = shared(ledger())
    page = Discovery(
        queue="queue-a", found=(Found(item="x", payload="1"),), priority=0, max_attempts=1, timeout_ms=None
    )
    made.chore(chores.QueueFound("a", page, T), T, urgent=True)
    assert committed(made).wakeups == {Wakeup.JOBS}
    made.chore(chores.CancelJobs(token=1, ids=("x",)), T + 1, urgent=True)
    assert committed(made, T + 1).wakeups == {Wakeup.ORDERS}


def test_what_a_node_may_not_report_yet_it_reports_a_moment_later() -> None:
    made = shared(ledger())
    made.enqueue(request("j1"), T)
    assert committed(made).wakeups == {Wakeup.JOBS}
    made.enqueue(request("j2"), T + 0.001)
    assert not committed(made, T + 0.001).wakeups
    assert made.batch_due(T + 0.002) == pytest.approx(T + NOTIFY_EVERY)
    assert committed(made, T + NOTIFY_EVERY).wakeups == {Wakeup.JOBS}
    assert (made.batch_due(T + 0.1) or 0) > T + 0.5
