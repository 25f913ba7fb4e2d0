"""The node's account of its claims: what is wanted, handed out, and taken back."""

import pytest
from ledger_builders import T, fast, grant, ledger, serve, working

from chargehand.model.batch import Result, Want
from chargehand.model.held import MOST_AHEAD, SECONDS_AHEAD
from chargehand.model.job import (
    Claim,
    Crashed,
    Done,
    NewJob,
    RetryLater,
    Settled,
    State,
)

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
        (SECONDS_AHEAD * 1.01, 0),
        (SECONDS_AHEAD, 2),
        (SECONDS_AHEAD / 10, 20),
        (SECONDS_AHEAD / 1000, MOST_AHEAD),
        (0.0, MOST_AHEAD),
    ],
)
def test_the_look_ahead_bridges_a_commit_and_no_more(mean: float | None, ahead: int) -> None:
    made = ledger()
    serve(made, "w0", "w1")
    made.pools["a"].mean = mean
    assert made.pools["a"].room(T) == 2 + ahead
    assert made.next_batch(T).wants == (Want("a", "queue-a", 2 + ahead, early=ahead),)


# spec: WK-14
@pytest.mark.parametrize(
    ("mean", "age", "ahead"),
    [
        (10.0, 10.0 - SECONDS_AHEAD * 1.1, 0),
        (10.0, 10.0 - SECONDS_AHEAD * 0.9, 2),
        (10.0, 10.0 + SECONDS_AHEAD * 0.9, 2),
        (10.0, 10.0 + SECONDS_AHEAD * 1.1, 0),  # how long they will still take is unknown
        (SECONDS_AHEAD / 2, SECONDS_AHEAD * 1.4, 4),
        (SECONDS_AHEAD / 2, SECONDS_AHEAD * 1.6, 0),
    ],
)
def test_claims_are_prefetched_for_busy_workers_that_are_about_to_be_free(mean: float, age: float, ahead: int) -> None:
    made = fast(working(2), mean)
    assert made.pools["a"].room(T + age) == ahead


# spec: WK-14
def test_nothing_is_prefetched_for_a_busy_worker_that_takes_no_further_job() -> None:
    made = fast(working(2), SECONDS_AHEAD)
    made.dismiss("w0")
    assert made.pools["a"].room(T) == 1


# spec: WK-3
def test_what_is_in_memory_already_is_not_wanted_again() -> None:
    made = fast(working(2), SECONDS_AHEAD / 10)
    made.next_batch(T)
    grant(made, *range(10, 25))
    assert made.pools["a"].room(T) == 5


# spec: WK-3
def test_busy_workers_with_slow_jobs_want_nothing() -> None:
    made = fast(working(2), 60.0)
    assert made.next_batch(T + 5).wants == ()


# spec: WK-3
def test_the_mean_follows_the_jobs() -> None:
    made = working()
    made.finished("w0", Done(), T + 8, None)
    assert made.pools["a"].mean == 8
    made.next_batch(T + 8)
    grant(made, 1, now=T + 8)
    made.finished("w0", Done(), T + 8, None)
    assert made.pools["a"].mean == 7
    assert made.pools["a"].done == 2


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
    assert isinstance(following, Claim)
    assert following.id == "job-2"
    third = made.welcome("w1", "a", T)
    assert isinstance(third, Claim)
    assert third.id == "job-3"
    assert made.welcome("w2", "a", T) is None


# spec: WK-3
def test_a_worker_has_one_job_in_hand() -> None:
    made = fast(ledger(), SECONDS_AHEAD / 10)
    serve(made, "w0")
    made.next_batch(T)
    grant(made, 1, 2, 3)
    assert list(made.held) == ["w0"]
    assert len(made.pools["a"].prefetched) == 2


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
    assert (settlement.id, settlement.seq, settlement.claim) == ("job-0", 0, 1)
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
    assert [claim.id for claim in held] == ["job-0"]
    (settlement,) = made.next_batch(T + 1).settlements
    assert (settlement.id, settlement.outcome, settlement.crashes, settlement.pid) == ("job-0", "crashed", 1, 77)
    assert list(made.held) == ["w1"]


# spec: WK-6
def test_a_worker_that_dies_idle_settles_nothing() -> None:
    made = ledger()
    serve(made, "w0", "w1")
    assert made.gone("w0", Crashed("x"), T, None) == []
    batch = made.next_batch(T)
    assert (batch.settlements, batch.wants) == ((), (Want("a", "queue-a", 1),))


# spec: WK-6
def test_a_worker_that_was_never_ready_can_die() -> None:
    made = ledger()
    assert made.gone("w0", Crashed("x"), T, None) == []
    assert made.settled
    assert made.pools["a"].available == set()


# spec: WK-6
def test_dying_twice_is_dying_once() -> None:
    made = working()
    made.gone("w0", Crashed("x"), T, None)
    assert made.gone("w0", Crashed("x"), T, None) == []
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
    made.finished("w0", RetryLater(300, "x"), now, None)
    made.next_batch(now)
    grant(made, now=now)
    assert made.batch_due(now) == now + 0.3
    batch = made.next_batch(now + 0.3)
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
