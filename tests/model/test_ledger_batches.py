"""When the ledger writes and asks: outcomes, requests, hints, polls."""

import pytest
from ledger_builders import T, fast, grant, ledger, request, serve, working

from chargehand.model.batch import Result, Want
from chargehand.model.job import (
    Done,
    Enqueued,
)
from chargehand.model.ledger import AWAITED_WAIT, ENOUGH_OUTCOMES, LONGEST_WAIT, NOTE_AFTER, POLL, UNTOLD

# when to write


# spec: SV-3
def test_one_batch_is_in_flight_at_a_time() -> None:
    made = working()
    made.next_batch(T)
    made.finished("w0", Done(), T, None)
    made.enqueue(request("x"), T)
    assert made.batch_due(T + 100) is None
    grant(made)
    assert made.batch_due(T + 100) == T + 100


# spec: SV-3
def test_what_happens_while_a_batch_is_in_flight_goes_into_the_next() -> None:
    made = working(2)
    made.finished("w0", Done(), T, None)
    first = made.next_batch(T)
    made.finished("w1", Done(), T, None)
    made.enqueue(request("x"), T)
    made.confirm(Result(), T)
    second = made.next_batch(T)
    assert [s.id for s in (*first.settlements, *second.settlements)] == ["job-0", "job-1"]
    assert second.requests == (request("x"),)


# spec: WK-4
def test_an_outcome_waits_a_moment_for_others_that_work() -> None:
    made = fast(working(3), 60.0)
    made.pools["a"].check_store = False
    made.finished("w0", Done(), T + 0.01, None)
    made.pools["a"].idle.clear()
    assert made.batch_due(T + 0.01) == pytest.approx(T + 0.01 + LONGEST_WAIT)


# spec: WK-4
def test_an_outcome_that_somebody_awaits_waits_a_shorter_moment_and_takes_the_others_with_it() -> None:
    awaited: set[str] = set()
    made = fast(working(4, awaited=awaited), 60.0)
    made.pools["a"].check_store = False
    awaited.add("job-1")  # whoever waits comes while it runs
    made.finished("w0", Done(), T, None)
    made.finished("w1", Done(), T + 0.001, None)
    made.finished("w2", Done(), T + 0.002, None)
    made.pools["a"].idle.clear()
    assert made.batch_due(T + 0.002) == pytest.approx(T + 0.001 + AWAITED_WAIT)
    assert len(made.next_batch(T + 0.003).settlements) == 3


# spec: WK-4
def test_whoever_comes_to_wait_just_after_the_end_hurries_what_is_not_written_yet() -> None:
    made = fast(working(3), 60.0)
    made.pools["a"].check_store = False
    made.hurry(T)  # nothing has ended: nothing hurries
    made.finished("w0", Done(), T, None)
    made.pools["a"].idle.clear()
    assert made.batch_due(T) == pytest.approx(T + LONGEST_WAIT)
    made.hurry(T + 0.001)
    assert made.batch_due(T + 0.001) == pytest.approx(T + 0.001 + AWAITED_WAIT)


# spec: WK-4
def test_an_awaited_outcome_does_not_make_an_older_one_wait_longer() -> None:
    made = fast(working(3, awaited={"job-1"}), 60.0)
    made.pools["a"].check_store = False
    made.finished("w0", Done(), T, None)
    made.finished("w1", Done(), T + LONGEST_WAIT - AWAITED_WAIT / 2, None)
    made.pools["a"].idle.clear()
    assert made.batch_due(T + LONGEST_WAIT) == pytest.approx(T + LONGEST_WAIT)


# spec: WK-4
def test_the_last_outcome_waits_for_nobody() -> None:
    made = working()
    made.finished("w0", Done(), T, None)
    assert made.batch_due(T) == T


# spec: WK-4
def test_enough_outcomes_are_written_at_once() -> None:
    made = working(ENOUGH_OUTCOMES + 1)
    for n in range(ENOUGH_OUTCOMES):
        made.finished(f"w{n}", Done(), T, None)
    made.pools["a"].idle.clear()
    assert made.batch_due(T) == T


# spec: WK-2
def test_a_request_is_written_at_once_and_answered_under_its_token() -> None:
    made = ledger()
    made.enqueue(request("x", "y", token="one"), T)
    made.enqueue(request("z", token="two"), T)
    assert made.batch_due(T) == T
    assert [(r.token, len(r.jobs)) for r in made.next_batch(T).requests] == [("one", 2), ("two", 1)]
    made.confirm(Result(enqueued=(("one", (Enqueued("x", True),)),)), T)
    assert made.next_batch(T).requests == ()


# spec: WK-2
def test_a_request_is_claimed_in_the_same_transaction_if_somebody_is_idle() -> None:
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    grant(made)
    made.enqueue(request("x"), T)
    batch = made.next_batch(T)
    assert (batch.wants, batch.hinted) == ((Want("a", "queue-a", 1),), True)


# spec: WK-2
def test_a_delayed_request_is_asked_for_when_it_is_due() -> None:
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    grant(made)
    made.enqueue(request("x", delay_ms=300), T)
    assert made.next_batch(T).wants == ()
    made.confirm(Result(), T)
    assert made.batch_due(T) == pytest.approx(T + 0.3)
    assert made.next_batch(T + 0.3).wants == (Want("a", "queue-a", 1),)


# hints


# spec: WK-3
def test_a_grant_that_was_not_full_ends_the_hunger() -> None:
    made = ledger()
    serve(made, "w0", "w1")
    made.next_batch(T)
    grant(made, 1)
    assert made.batch_due(T) == T + NOTE_AFTER
    assert made.next_batch(T).wants == ()


# spec: WK-3
def test_a_grant_that_was_full_leaves_the_crew_hungry() -> None:
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    grant(made, 1)
    made.finished("w0", Done(), T + 10, None)
    batch = made.next_batch(T + 10)
    assert (batch.wants, batch.hinted) == ((Want("a", "queue-a", 1),), True)


# spec: WK-3
@pytest.mark.parametrize("queue", [None, "queue-a"])
def test_a_hint_is_asked_about_at_once(queue: str | None) -> None:
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    grant(made)
    assert made.batch_due(T) == T + POLL + UNTOLD
    made.hint(queue)
    assert made.batch_due(T) == T
    assert made.next_batch(T).poll is False


# spec: WK-3
def test_a_hint_for_another_queue_is_not_ours() -> None:
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    grant(made)
    made.hint("queue-b")
    assert made.batch_due(T) == T + POLL + UNTOLD


# spec: WK-3
def test_a_hint_that_comes_while_a_claim_is_in_flight_is_not_lost() -> None:
    """The claim may have looked a moment before the job was written."""
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    made.hint("queue-a")
    grant(made)
    assert made.batch_due(T) == T
    assert made.next_batch(T).wants == (Want("a", "queue-a", 1),)


# spec: WK-3
def test_a_hint_that_comes_while_everybody_is_busy_is_not_lost() -> None:
    made = fast(working(), 60.0)
    made.next_batch(T)
    made.confirm(Result(), T)
    made.pools["a"].check_store = False
    made.hint("queue-a")
    assert made.next_batch(T).wants == ()
    made.confirm(Result(), T)
    made.finished("w0", Done(), T, None)
    assert made.next_batch(T).poll is False


# spec: WK-3
def test_a_request_that_comes_while_a_claim_is_in_flight_is_asked_about() -> None:
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    made.enqueue(request("x"), T)
    grant(made)
    assert made.next_batch(T).wants == (Want("a", "queue-a", 1),)


# spec: WK-3
def test_the_next_due_job_is_asked_for_at_its_time() -> None:
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    grant(made, next_in_ms=250)
    assert made.batch_due(T) == T + 0.25
    early = made.next_batch(T + 0.2)
    assert early.wants == ()
    made.confirm(Result(), T + 0.2)
    batch = made.next_batch(T + 0.25)
    assert (batch.wants, batch.hinted) == ((Want("a", "queue-a", 1),), True)


# spec: WK-3
def test_of_two_due_times_the_nearer_counts() -> None:
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    made.enqueue(request("x", delay_ms=100), T)
    grant(made, next_in_ms=900)
    made.next_batch(T)
    grant(made, next_in_ms=100)
    assert made.batch_due(T) == pytest.approx(T + 0.1)


# spec: WK-3
def test_jobs_that_are_due_now_are_asked_for_now() -> None:
    """One claim promotes only so many of those whose time has come."""
    made = ledger()
    serve(made, "w0", "w1")
    made.next_batch(T)
    grant(made, 1, next_in_ms=0)
    assert made.batch_due(T) == T
    assert made.next_batch(T).wants == (Want("a", "queue-a", 1),)


# polling


# spec: WK-3
def test_without_a_hint_the_store_is_asked_when_others_wrote_and_now_and_then() -> None:
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    grant(made)
    now = T
    for _ in range(4):
        assert made.batch_due(now) == now + POLL + UNTOLD
        now += 1.1
        made.others_wrote(now)
        assert made.batch_due(now) == now
        batch = made.next_batch(now)
        assert (batch.wants, batch.poll, batch.hinted) == ((Want("a", "queue-a", 1),), True, False)
        grant(made, now=now)


# spec: WK-3
def test_writes_of_others_while_a_batch_is_in_flight_are_asked_about_after_it() -> None:
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    made.others_wrote(T)
    assert made.batch_due(T) is None
    grant(made)
    assert made.batch_due(T) == T
    assert made.next_batch(T).poll


# spec: WK-3
def test_a_batch_that_is_sent_anyway_polls_every_second() -> None:
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    grant(made)
    made.hint()
    assert not made.next_batch(T + 0.4 * POLL).poll
    grant(made)
    made.hint()
    assert made.next_batch(T + POLL).poll


# spec: WK-3 WK-8
def test_a_hint_does_not_take_the_place_of_a_poll() -> None:
    # What people wrote only into the store, a cancel for one, is heard however busy the queues are.
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    grant(made)
    made.hint()
    batch = made.next_batch(T + POLL)
    assert (batch.poll, batch.hinted) == (True, True)


# spec: WK-3
def test_the_store_is_asked_also_while_nobody_is_free() -> None:
    # A cancel, or a pause, that was written only there must be heard.
    made = ledger()
    assert made.batch_due(T) == T
    assert made.next_batch(T).poll is True
    made.confirm(Result(), T)
    assert made.batch_due(T) == T + POLL + UNTOLD
