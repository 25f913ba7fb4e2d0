"""The node's account of its claims: handing out, taking back, and what each transaction is to do."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest

from chargehand.dispatch import execute
from chargehand.ids import new_id
from chargehand.model.job import (
    Claim,
    Crashed,
    Done,
    Enqueued,
    GaveUp,
    Interrupted,
    NewJob,
    Outcome,
    Raised,
    RetryLater,
    Settled,
    State,
)
from chargehand.model.ledger import (
    ENOUGH_OUTCOMES,
    LONGEST_WAIT,
    MOST_AHEAD,
    NOTE_AFTER,
    POLL,
    SECONDS_AHEAD,
    Batch,
    Grant,
    Ledger,
    Request,
    Result,
    Want,
)
from chargehand.store import Holder, JobFilter
from chargehand.stores.sqlite import SqliteStore

T = 1000.0


def ledger(*crews: str) -> Ledger:
    return Ledger([(crew, f"queue-{crew}") for crew in crews or ("a",)], lambda: 0.0, T)


def claims(*numbers: int, crew: str = "a") -> tuple[Claim, ...]:
    return tuple(
        Claim(
            id=f"job-{n}", seq=n, fence=1, queue=f"queue-{crew}", payload="null", label=None, priority=0, attempts=0,
            max_attempts=3, crashes=0, timeout_ms=None,
        )
        for n in numbers
    )  # fmt: skip


def request(*ids: str, queue: str = "queue-a", token: Any = "token", **options: Any) -> Request:
    return Request(token, tuple(NewJob(id=one, queue=queue, **options) for one in ids))


def grant(of: Ledger, *numbers: int, crew: str = "a", next_in_ms: int | None = None, now: float = T) -> list[str]:
    """The batch in flight is answered with these claims: who was handed which, as words."""
    assert of.in_flight is not None
    asked = any(want.crew == crew for want in of.in_flight.wants)
    assert asked or not numbers, "nobody asked for these"
    grants = (Grant(crew, claims(*numbers, crew=crew), next_in_ms),) if asked else ()
    handed = of.confirm(Result(grants=grants), now)
    return [f"{worker} {claim.id}" for worker, claim in handed]


def serve(of: Ledger, *workers: str, crew: str = "a", now: float = T) -> None:
    for worker in workers:
        of.welcome(worker, crew, now)


def working(workers: int = 1, now: float = T) -> Ledger:
    """A ledger whose workers each have a job: w0 has job-0, and so on."""
    made = ledger()
    serve(made, *(f"w{n}" for n in range(workers)), now=now)
    made.next_batch(now)
    assert len(grant(made, *range(workers), now=now)) == workers
    return made


def fast(of: Ledger, mean: float) -> Ledger:
    """As if jobs had been taking so long on average."""
    of.benches["a"].mean = mean
    return of


# wanting


# spec: WK-3, WP-5
def test_nothing_is_wanted_while_nobody_is_ready() -> None:
    made = ledger()
    assert made.next_batch(T).wants == ()


# spec: WK-3
def test_as_many_are_wanted_as_workers_are_idle() -> None:
    made = ledger()
    serve(made, "w0", "w1", "w2")
    assert made.batch_due(T) == T
    assert made.next_batch(T).wants == (Want("a", "queue-a", 3),)


# spec: WK-3
def test_each_crew_wants_for_its_own_workers() -> None:
    made = ledger("a", "b", "c")
    serve(made, "w0", crew="a")
    serve(made, "w1", "w2", crew="b")
    assert made.next_batch(T).wants == (Want("a", "queue-a", 1), Want("b", "queue-b", 2))


# spec: WK-3
@pytest.mark.parametrize(
    ("mean", "ahead"),
    [
        (None, 0),
        (10.0, 0),
        (SECONDS_AHEAD * 2.1, 0),
        (SECONDS_AHEAD * 2, 1),
        (SECONDS_AHEAD, 2),
        (SECONDS_AHEAD / 10, 20),
        (SECONDS_AHEAD / 1000, MOST_AHEAD),
        (0.0, MOST_AHEAD),
    ],
)
def test_the_look_ahead_bridges_a_commit_and_no_more(mean: float | None, ahead: int) -> None:
    made = ledger()
    serve(made, "w0", "w1")
    made.benches["a"].mean = mean
    assert made.benches["a"].room() == 2 + ahead
    assert made.next_batch(T).wants == (Want("a", "queue-a", 2 + ahead),)


# spec: WK-3
def test_what_is_in_memory_already_is_not_wanted_again() -> None:
    made = fast(working(2), SECONDS_AHEAD / 10)
    made.next_batch(T)
    grant(made, *range(10, 25))
    assert made.benches["a"].room() == 5


# spec: WK-3
def test_busy_workers_with_slow_jobs_want_nothing() -> None:
    made = fast(working(2), 60.0)
    assert made.next_batch(T + 5).wants == ()


# spec: WK-3
def test_the_mean_follows_the_jobs() -> None:
    made = working()
    made.finished("w0", Done(), T + 8, None)
    assert made.benches["a"].mean == 8
    made.next_batch(T + 8)
    grant(made, 1, now=T + 8)
    made.finished("w0", Done(), T + 8, None)
    assert made.benches["a"].mean == 7
    assert made.benches["a"].done == 2


# handing out


# spec: WK-3, WP-5
def test_claims_go_to_idle_workers_in_order() -> None:
    made = ledger()
    serve(made, "w0", "w1", "w2")
    made.next_batch(T)
    assert grant(made, 1, 2) == ["w0 job-1", "w1 job-2"]
    assert {worker: held.claim.id for worker, held in made.held.items()} == {"w0": "job-1", "w1": "job-2"}


# spec: WK-3
def test_what_is_over_is_handed_to_whoever_is_next() -> None:
    made = fast(ledger(), SECONDS_AHEAD / 10)
    serve(made, "w0")
    made.next_batch(T)
    assert grant(made, 1, 2, 3) == ["w0 job-1"]
    following = made.finished("w0", Done(), T, 7)
    assert following is not None
    assert following.id == "job-2"
    third = made.welcome("w1", "a", T)
    assert third is not None
    assert third.id == "job-3"
    assert made.welcome("w2", "a", T) is None


# spec: WK-3
def test_a_worker_has_one_job_in_hand() -> None:
    made = fast(ledger(), SECONDS_AHEAD / 10)
    serve(made, "w0")
    made.next_batch(T)
    grant(made, 1, 2, 3)
    assert list(made.held) == ["w0"]
    assert len(made.benches["a"].ahead) == 2


# spec: WK-3
def test_a_crew_is_handed_only_its_own_jobs() -> None:
    made = ledger("a", "b")
    serve(made, "wa", crew="a")
    serve(made, "wb", crew="b")
    made.next_batch(T)
    assert grant(made, 1, crew="b") == ["wb job-1"]
    assert list(made.held) == ["wb"]


# spec: WK-6
def test_a_worker_that_dies_while_its_claim_is_in_flight_is_handed_nothing() -> None:
    made = ledger()
    serve(made, "w0", "w1")
    made.next_batch(T)
    made.gone("w0", Crashed("x"), T, None)
    assert grant(made, 1, 2) == ["w1 job-1"]
    serve(made, "w0")
    assert made.held["w0"].claim.id == "job-2"


# outcomes


# spec: WK-4, WK-5
def test_an_outcome_is_settled_with_the_next_batch() -> None:
    made = working()
    assert made.finished("w0", Done("[1]"), T + 2, 77) is None
    (settlement,) = made.next_batch(T + 2).settlements
    assert (settlement.id, settlement.seq, settlement.fence) == ("job-0", 0, 1)
    assert (settlement.state, settlement.result) == (State.DONE, "[1]")
    assert (settlement.worker, settlement.pid, settlement.duration_ms) == ("w0", 77, 2000)


# spec: WK-4
def test_an_outcome_is_settled_once() -> None:
    made = working()
    made.finished("w0", Done(), T, None)
    assert len(made.next_batch(T).settlements) == 1
    made.confirm(Result(), T)
    assert made.next_batch(T).settlements == ()


# spec: WK-10
def test_a_job_that_its_handler_settled_is_only_let_go() -> None:
    made = working()
    made.finished("w0", Settled(), T, None)
    assert made.held == {}
    assert made.next_batch(T).settlements == ()


# spec: WK-6
def test_the_job_of_a_dead_worker_is_settled_as_it_died() -> None:
    made = working(2)
    held = made.gone("w0", Crashed("signal 11"), T + 1, 77)
    assert held is not None
    assert held.id == "job-0"
    (settlement,) = made.next_batch(T + 1).settlements
    assert (settlement.id, settlement.outcome, settlement.crashes, settlement.pid) == ("job-0", "crashed", 1, 77)
    assert list(made.held) == ["w1"]


# spec: WK-6
def test_a_worker_that_dies_idle_settles_nothing() -> None:
    made = ledger()
    serve(made, "w0", "w1")
    assert made.gone("w0", Crashed("x"), T, None) is None
    batch = made.next_batch(T)
    assert (batch.settlements, batch.wants) == ((), (Want("a", "queue-a", 1),))


# spec: WK-6
def test_a_worker_that_was_never_ready_can_die() -> None:
    made = ledger()
    assert made.gone("w0", Crashed("x"), T, None) is None
    assert made.settled
    assert made.benches["a"].workers == 0


# spec: WK-6
def test_dying_twice_is_dying_once() -> None:
    made = working()
    made.gone("w0", Crashed("x"), T, None)
    assert made.gone("w0", Crashed("x"), T, None) is None
    assert len(made.next_batch(T).settlements) == 1


# spec: WK-6
def test_a_job_that_goes_back_to_the_queue_makes_its_crew_hungry() -> None:
    made = working(2)
    made.next_batch(T)
    grant(made)
    made.gone("w0", Crashed("x"), T, None)
    serve(made, "w0")
    assert made.batch_due(T) == T
    batch = made.next_batch(T)
    assert batch.wants == (Want("a", "queue-a", 1),)
    assert batch.poll is False


# spec: WK-5
def test_a_retry_is_asked_for_when_its_time_has_come() -> None:
    made = working()
    now = T + 10
    made.finished("w0", RetryLater(500, "x"), now, None)
    made.next_batch(now)
    grant(made, now=now)
    assert made.batch_due(now) == now + 0.5
    batch = made.next_batch(now + 0.5)
    assert (batch.wants, batch.poll) == ((Want("a", "queue-a", 1),), False)


# spec: WK-2
def test_a_follow_up_makes_the_crew_of_its_queue_hungry() -> None:
    made = ledger("a", "b")
    serve(made, "wa", crew="a")
    serve(made, "wb", crew="b")
    made.next_batch(T)
    grant(made, 1, crew="a")
    made.finished("wa", Done("1", (NewJob(id="f", queue="queue-b"),)), T, None)
    batch = made.next_batch(T)
    assert Want("b", "queue-b", 1) in batch.wants
    assert batch.poll is False


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
    made.benches["a"].hungry = False
    made.finished("w0", Done(), T + 0.01, None)
    made.benches["a"].idle.clear()
    assert made.batch_due(T + 0.01) == pytest.approx(T + 0.01 + LONGEST_WAIT)


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
    made.benches["a"].idle.clear()
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
    assert (batch.wants, batch.poll) == ((Want("a", "queue-a", 1),), False)


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
    assert (batch.wants, batch.poll) == ((Want("a", "queue-a", 1),), False)


# spec: WK-3
@pytest.mark.parametrize("queue", [None, "queue-a"])
def test_a_hint_is_asked_about_at_once(queue: str | None) -> None:
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    grant(made)
    assert made.batch_due(T) == T + POLL
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
    assert made.batch_due(T) == T + POLL


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
    made.benches["a"].hungry = False
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
    assert (batch.wants, batch.poll) == ((Want("a", "queue-a", 1),), False)


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
def test_without_a_hint_the_store_is_asked_every_second() -> None:
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    grant(made)
    for second in range(1, 5):
        assert made.batch_due(T + second - 0.5) == T + second
        batch = made.next_batch(T + second)
        assert (batch.wants, batch.poll) == ((Want("a", "queue-a", 1),), True)
        grant(made, now=T + second)


# spec: WK-3
def test_a_hint_turns_a_poll_into_a_question() -> None:
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    grant(made)
    made.hint()
    assert made.next_batch(T + POLL).poll is False


# spec: WK-3
def test_a_batch_that_wants_nothing_is_no_poll() -> None:
    assert ledger().next_batch(T + POLL).poll is False


# notes


# spec: HP-5, WK-1
def test_who_has_a_job_is_noted_once_it_has_had_it_for_a_moment() -> None:
    made = working()
    assert made.next_batch(T + 0.001).notes == ()
    made.confirm(Result(), T)
    assert made.batch_due(T + 0.01) == pytest.approx(T + NOTE_AFTER)
    (note,) = made.next_batch(T + NOTE_AFTER).notes
    assert (note.seq, note.fence, note.worker) == (0, 1, "w0")
    assert 49 <= note.age_ms <= 50
    made.confirm(Result(), T)
    assert made.next_batch(T + 60).notes == ()


# spec: HP-5
def test_a_note_that_was_not_written_is_written_again() -> None:
    made = working()
    assert len(made.next_batch(T + 1).notes) == 1
    made.failed(T + 1, 0.1)
    (note,) = made.next_batch(T + 2).notes
    assert note.age_ms == 2000


# spec: HP-5
def test_a_note_of_a_job_that_is_over_is_not_written_again() -> None:
    made = working()
    made.next_batch(T + 1)
    made.finished("w0", Done(), T + 1, None)
    made.failed(T + 1, 0.1)
    assert made.next_batch(T + 2).notes == ()


# failures of the store


# spec: SV-3, WK-4
def test_outcomes_of_a_batch_that_failed_are_kept_in_order() -> None:
    made = working(3)
    made.finished("w0", Done("0"), T, None)
    made.finished("w1", Done("1"), T, None)
    made.next_batch(T)
    made.finished("w2", Done("2"), T, None)
    made.failed(T, 0.5)
    assert [s.result for s in made.next_batch(T + 0.5).settlements] == ["0", "1", "2"]


# spec: SV-3
def test_after_a_failure_there_is_a_pause_whatever_happens() -> None:
    made = working()
    made.finished("w0", Done(), T, None)
    made.next_batch(T)
    made.failed(T, 0.5)
    made.hint()
    made.enqueue(request("x"), T)
    assert made.batch_due(T) == T + 0.5
    assert made.batch_due(T + 0.5) == T + 0.5


# spec: WK-2, SV-3
def test_the_requests_of_a_batch_that_failed_are_handed_back() -> None:
    made = ledger()
    made.enqueue(request("x"), T)
    made.next_batch(T)
    made.enqueue(request("y"), T)
    assert made.failed(T, 0.1) == (request("x"),)
    assert made.next_batch(T).requests == (request("y"),)


# spec: SV-3, WK-3
def test_after_a_failure_the_claims_are_tried_again() -> None:
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    made.failed(T, 0.1)
    batch = made.next_batch(T + 0.1)
    assert (batch.wants, batch.poll) == ((Want("a", "queue-a", 1),), False)


# closing and dismissing


# spec: PD-2, PD-3, WK-6
def test_closing_gives_back_what_was_never_handed_out() -> None:
    made = fast(ledger(), SECONDS_AHEAD / 10)
    serve(made, "w0")
    made.next_batch(T)
    grant(made, 1, 2, 3)
    made.close(T)
    batch = made.next_batch(T)
    assert [(s.id, s.state, s.outcome) for s in batch.settlements] == [
        ("job-2", State.QUEUED, None),
        ("job-3", State.QUEUED, None),
    ]
    assert batch.wants == ()
    assert list(made.held) == ["w0"]


# spec: PD-3, WK-6
def test_claims_that_arrive_after_closing_go_back_at_once() -> None:
    made = ledger()
    serve(made, "w0")
    made.next_batch(T)
    made.close(T)
    assert grant(made, 1) == []
    assert [s.id for s in made.next_batch(T).settlements] == ["job-1"]
    assert made.held == {}


# spec: PD-3
def test_a_closed_ledger_hands_out_nothing_more() -> None:
    made = fast(working(), SECONDS_AHEAD / 10)
    made.next_batch(T)
    grant(made, 1, 2)
    made.close(T)
    assert made.finished("w0", Done(), T, None) is None
    assert made.welcome("w1", "a", T) is None
    assert made.next_batch(T).wants == ()


# spec: PD-3
def test_a_closed_ledger_is_settled_when_everything_is_written() -> None:
    made = working()
    made.close(T)
    assert not made.settled
    made.finished("w0", Done(), T, None)
    assert not made.settled
    made.next_batch(T)
    assert not made.settled
    made.confirm(Result(), T)
    assert made.settled


# spec: WK-2, PD-3
def test_a_closed_ledger_still_enqueues() -> None:
    made = ledger()
    made.close(T)
    made.enqueue(request("x"), T)
    assert made.batch_due(T) == T
    assert made.next_batch(T).requests == (request("x"),)


# spec: WP-6
def test_a_dismissed_worker_may_finish_and_gets_nothing_more() -> None:
    made = fast(working(), SECONDS_AHEAD / 10)
    made.next_batch(T)
    grant(made, 1, 2)
    made.dismiss("w0")
    assert made.finished("w0", Done(), T, None) is None
    assert [s.id for s in made.next_batch(T).settlements] == ["job-0"]
    assert "w0" not in made.benches["a"].idle


# spec: WP-6
def test_a_dismissed_idle_worker_is_handed_nothing_that_is_in_flight() -> None:
    made = ledger()
    serve(made, "w0", "w1")
    made.next_batch(T)
    made.dismiss("w0")
    assert grant(made, 1, 2) == ["w1 job-1"]


# spec: WP-6
def test_a_dismissed_workers_successor_is_handed_jobs() -> None:
    made = ledger()
    serve(made, "w0")
    made.dismiss("w0")
    made.gone("w0", Interrupted("x"), T, None)
    serve(made, "w0")
    made.next_batch(T)
    assert grant(made, 1) == ["w0 job-1"]


# spec: WP-6
def test_what_a_dismissed_worker_did_not_finish_is_released_unharmed() -> None:
    made = working()
    made.dismiss("w0")
    made.gone("w0", Interrupted("stopped"), T, 7)
    (settlement,) = made.next_batch(T).settlements
    assert (settlement.state, settlement.interruptions, settlement.attempts) == (State.QUEUED, 1, 0)


# spec: WP-6
def test_dismissing_somebody_unknown_is_nothing() -> None:
    ledger().dismiss("nobody")


# spec: WP-5, WP-6
def test_a_worker_dismissed_before_it_was_ready_is_handed_nothing() -> None:
    """Its READY may be on the way when somebody stops it."""
    made = fast(working(), SECONDS_AHEAD / 10)
    made.next_batch(T)
    grant(made, 1, 2)
    made.dismiss("w1")
    assert made.welcome("w1", "a", T) is None
    assert "w1" not in made.benches["a"].idle


# spec: WK-6
@pytest.mark.parametrize("when", ["waiting in memory", "in flight"])
def test_when_the_last_worker_of_a_crew_is_gone_nothing_is_kept_from_other_nodes_and_people(when: str) -> None:
    """Its place may be filled in a minute, or never: a job in memory would be `running` with nobody to run it."""
    made = fast(working(), SECONDS_AHEAD / 10)
    made.next_batch(T)
    if when == "in flight":
        made.gone("w0", Crashed("x"), T, None)
        grant(made, 1, 2)
    else:
        grant(made, 1, 2)
        made.gone("w0", Crashed("x"), T, None)
    assert not made.benches["a"].ahead
    assert {s.id for s in made.next_batch(T).settlements} == {"job-0", "job-1", "job-2"}


# with a real store


class Node:
    """A ledger and a store, with workers that a random number generator plays."""

    def __init__(self, store: SqliteStore, chance: random.Random, workers: dict[str, str]) -> None:
        self.store, self.chance, self.workers = store, chance, workers
        self.now = T
        self.lives = 0
        self.accepted: list[str] = []
        self.begin()

    def begin(self) -> None:
        """A new life: what the old one held is taken back, what it had not written is lost."""
        self.lives += 1
        self.holder = Holder("node", f"life-{self.lives}")
        self.ledger = Ledger(
            [(crew, f"queue-{crew}") for crew in sorted(set(self.workers.values()))], self.chance.random, self.now
        )
        self.up: set[str] = set()
        with self.store.transaction() as tx:
            tx.recover(self.holder, "the node died")

    def write(self, *, fail: bool = False) -> None:
        """One batch; backoffs are made to nothing, because the store's clock is the real one."""
        due = self.ledger.batch_due(self.now)
        if due is None:
            return
        self.now = max(self.now, due)
        batch = self.ledger.next_batch(self.now)
        if fail:
            for request in self.ledger.failed(self.now, 0.05):
                self.ledger.enqueue(request, self.now)
            return
        at_once = tuple(msgspec.structs.replace(s, delay_ms=0) for s in batch.settlements)
        result = execute(self.store, msgspec.structs.replace(batch, settlements=at_once), self.holder)
        lost = set(result.lost)
        assert not lost, "this node's own claims always hold"
        self.accepted += [s.id for s in batch.settlements if s.state is State.DONE]
        self.ledger.confirm(result, self.now)

    def outcome(self) -> Outcome:
        kinds: list[Outcome] = [Done(), Done(), Done(), Raised("x"), RetryLater(20, "x"), GaveUp("x")]
        return self.chance.choice(kinds)

    def step(self) -> None:
        self.now += self.chance.choice([0.0, 0.001, 0.03])
        worker = self.chance.choice(sorted(self.workers))
        match self.chance.randrange(12):
            case 0 if worker in self.up:
                self.up.discard(worker)
                self.ledger.gone(worker, Crashed("signal 11"), self.now, 1)
            case 1 if worker in self.up:
                self.ledger.dismiss(worker)
                self.up.discard(worker)
                self.ledger.gone(worker, Interrupted("stopped"), self.now, 1)
            case 2 | 3 | 4:
                self.write()
            case 5:
                self.write(fail=True)
            case 6 if self.chance.random() < 0.15:
                self.begin()
            case _ if worker not in self.up:
                self.up.add(worker)
                self.ledger.welcome(worker, self.workers[worker], self.now)
            case _ if worker in self.ledger.held:
                self.ledger.finished(worker, self.outcome(), self.now, 1)
            case _:
                self.write()

    def finish(self) -> None:
        """No more accidents: everybody works until there is nothing left."""
        for worker in set(self.workers) - self.up:
            self.ledger.welcome(worker, self.workers[worker], self.now)
        for _ in range(10_000):
            for worker in list(self.ledger.held):
                self.ledger.finished(worker, Done(), self.now, 1)
            self.write()
            if not self.ledger.held and not any(c.queued or c.running for c in self.store.counts()):
                break
        self.ledger.close(self.now)
        while not self.ledger.settled:
            self.write()


# spec: WK-3, WK-4, WK-5, WK-6
@pytest.mark.parametrize("seed", range(25))
def test_every_job_ends_exactly_once_whatever_dies(seed: int) -> None:
    chance = random.Random(seed)
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        store = SqliteStore(Path(folder) / "store.db")
        node = Node(store, chance, {"a0": "a", "a1": "a", "b0": "b"})
        wanted: list[str] = []
        for _ in range(120):
            if chance.random() < 0.25:
                new = tuple(NewJob(id=new_id(), queue=f"queue-{chance.choice('ab')}") for _ in range(4))
                with store.transaction() as tx:
                    tx.enqueue(new)
                node.ledger.hint()
                wanted += [job.id for job in new]
            node.step()
        node.finish()
        found = {job.id: job for job in store.jobs(JobFilter(limit=10_000))}
        assert found.keys() == set(wanted), "none is lost and none invented"
        assert {job.state for job in found.values()} <= {State.DONE, State.FAILED}
        done = sorted(job.id for job in found.values() if job.state is State.DONE)
        assert sorted(node.accepted) == done, "every completion was accepted exactly once"
        for job in found.values():
            history = [attempt.outcome for attempt in store.attempts(job.id)]
            assert history.count("done") == (job.state is State.DONE)
            assert history.count("crashed") == job.crashes
            assert history.count("interrupted") == job.interruptions
            assert job.reason != "poison" or job.crashes == 3
            assert job.node is None
        store.close()


# spec: WK-3
def test_a_job_that_came_while_a_crew_had_nobody_is_found_by_a_later_poll(tmp_path: Path) -> None:
    """Nobody hints. Another crew's poll notices the write, and must not use up the notice for all."""
    store, other = SqliteStore(tmp_path / "store.db"), SqliteStore(tmp_path / "store.db")
    made, holder, now = ledger("a", "b"), Holder("node", "life"), T

    def turn(batch: Batch) -> list[str]:
        return [claim.id for _, claim in made.confirm(execute(store, batch, holder), now)]

    serve(made, "a0", crew="a")
    serve(made, "b0", crew="b")
    assert turn(made.next_batch(now)) == []
    made.gone("a0", Crashed("x"), now, None)
    with other.transaction() as tx:
        tx.enqueue([NewJob(id="one", queue="queue-a")])
    now += POLL
    assert turn(made.next_batch(now)) == []
    serve(made, "a0", crew="a", now=now)
    handed: list[str] = []
    for _ in range(5):
        now += POLL
        handed += turn(made.next_batch(now))
    assert handed == ["one"]
    store.close()
    other.close()


# spec: WK-3
def test_a_poll_without_a_stir_asks_the_store_for_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    store.stirred()
    poll = Batch(wants=(Want("a", "queue-a", 1),), poll=True)
    with store.transaction() as tx:
        tx.enqueue([NewJob(id="own", queue="queue-a")])
    assert execute(store, poll, Holder("n", "l")) == Result()
    asked = execute(store, msgspec.structs.replace(poll, poll=False), Holder("n", "l"))
    assert [claim.id for claim in asked.grants[0].claims] == ["own"]
    store.close()


# spec: WK-2, WK-3, WK-4
def test_a_batch_settles_enqueues_and_claims_in_one_transaction(tmp_path: Path) -> None:
    store, holder = SqliteStore(tmp_path / "store.db"), Holder("n", "l")
    want = (Want("a", "queue-a", 5),)
    first = execute(store, Batch(requests=(request("x", "y", token=1), request("z", token=2)), wants=want), holder)
    assert first.enqueued == ((1, (Enqueued("x", True), Enqueued("y", True))), (2, (Enqueued("z", True),)))
    assert [claim.id for claim in first.grants[0].claims] == ["x", "y", "z"]
    store.close()
