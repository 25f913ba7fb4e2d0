"""The ledger and flows: checkpoints, expired claims, and jobs that others made ready."""

import pytest
from ledger_builders import T, claims, grant, ledger

from chargehand.model.batch import Grant, Result
from chargehand.model.job import (
    Crashed,
    Done,
    GaveUp,
    Interrupted,
    Outcome,
    Raised,
    State,
    Stopped,
    TimedOut,
    expired,
    retry_delay_ms,
    settle,
)
from chargehand.model.ledger import Ledger


def working(now: float = T) -> Ledger:
    """A ledger whose worker holds job-1."""
    of = ledger()
    of.welcome("worker:a:0", "a", now)
    of.next_batch(now)
    assert grant(of, 1) == ["worker:a:0 job-1"]
    return of


# spec: FL-5
def test_a_checkpoint_is_written_at_most_once_a_second_and_the_newest_wins() -> None:
    of = working()
    of.next_batch(T + 0.06)
    of.confirm(Result(), T + 0.06)
    written: list[str | None] = []
    for step in range(30):
        now = T + 0.1 + step / 10
        of.keep("worker:a:0", "job-1", 1, f"[{step}]", now)
        if (due := of.batch_due(now)) is not None and due <= now:
            written += [note.kept for note in of.next_batch(now).notes]
            of.confirm(Result(), now)
    assert 2 <= len(written) <= 4
    assert written == sorted(written, key=lambda text: int(str(text)[1:-1]))
    assert all(text is not None for text in written)


# spec: FL-5
def test_a_checkpoint_of_a_batch_that_failed_is_written_again() -> None:
    of = working()
    of.keep("worker:a:0", "job-1", 1, "[1]", T)
    assert [note.kept for note in of.next_batch(T + 1).notes] == ["[1]"]
    of.failed(T + 1, 0.1)
    assert [note.kept for note in of.next_batch(T + 3).notes] == ["[1]"]


# spec: FL-5
@pytest.mark.parametrize(
    "outcome", [Raised("x"), GaveUp("x"), TimedOut("x"), Stopped(), Interrupted("x"), Crashed("x")]
)
def test_whatever_ends_an_attempt_leaves_its_checkpoint(outcome: Outcome) -> None:
    of = working()
    of.keep("worker:a:0", "job-1", 1, '{"row":7}', T)
    if isinstance(outcome, Crashed | Interrupted):
        of.gone("worker:a:0", outcome, T + 0.01, 1)
    else:
        of.finished("worker:a:0", outcome, T + 0.01, 1)
    (settlement,) = of.next_batch(T + 1).settlements
    assert settlement.kept == '{"row":7}'


# spec: FL-5
def test_a_checkpoint_of_another_claim_is_ignored_and_one_of_a_done_job_dropped() -> None:
    of = working()
    of.keep("worker:a:0", "job-1", 2, "[1]", T)
    of.keep("worker:a:0", "job-2", 1, "[1]", T)
    assert of.held["worker:a:0"].kept is None
    of.keep("worker:a:0", "job-1", 1, "[1]", T)
    of.finished("worker:a:0", Done(), T, 1)
    (settlement,) = of.next_batch(T + 1).settlements
    assert settlement.kept is None


# spec: WK-16
def test_an_expired_claim_is_cancelled_and_not_handed_out() -> None:
    of = ledger()
    of.welcome("worker:a:0", "a", T)
    of.next_batch(T)
    late, fine = claims(1, expired=True)[0], claims(2)[0]
    handed = of.confirm(Result(grants=(Grant("a", (late, fine), None),)), T)
    assert [todo for _, todo in handed] == [fine]
    (settlement,) = of.next_batch(T).settlements
    assert settlement == expired(late)
    assert (settlement.state, settlement.reason, settlement.outcome) == (State.CANCELLED, "expired", None)


# spec: FL-1
def test_a_queue_in_which_jobs_became_ready_is_looked_at_at_once() -> None:
    of = ledger("a", "b")
    of.welcome("worker:b:0", "b", T)
    of.next_batch(T)
    of.confirm(Result(grants=(Grant("b", (), None),)), T)
    assert (of.batch_due(T) or T) > T
    of.hint("queue-a")
    of.next_batch(T)
    of.confirm(Result(woken=frozenset({"queue-b"})), T)
    assert of.batch_due(T) == T
    assert [want.queue for want in of.next_batch(T).wants] == ["queue-b"]


# spec: WK-16
def test_the_backoff_of_a_crew_is_doubled_or_listed() -> None:
    assert [retry_delay_ms(n, 0.0, backoff=0.5) for n in (1, 2, 3)] == [500, 1000, 2000]
    assert [retry_delay_ms(n, 0.0, backoff=(1.0, 10.0)) for n in (1, 2, 3, 9)] == [1000, 10_000, 10_000, 10_000]
    assert retry_delay_ms(50, 0.0, backoff=5.0) == 600_000
    assert retry_delay_ms(3, 0.0, backoff=3600.0) == 3_600_000
    (claim,) = claims(1)
    settlement = settle(claim, Raised("x"), backoff=(0.0,))
    assert settlement is not None
    assert (settlement.state, settlement.delay_ms) == (State.QUEUED, 0)
