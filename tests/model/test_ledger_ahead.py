"""Claims ahead of their hand-over: for whom they are held, when they go back, and what takes their place."""

import pytest
from ledger_builders import T, claims, fast, grant, ledger, named, request, serve, working

from chargehand.model.batch import Grant, Result, Want
from chargehand.model.held import SECONDS_AHEAD
from chargehand.model.job import Claim, Crashed, Done, State
from chargehand.model.ledger import LONGEST_WAIT, NOTE_AFTER, Ledger

# what was claimed too early


# spec: WK-3, WK-6
def test_what_waits_behind_a_long_job_goes_back_to_the_queue() -> None:
    made = fast(ledger(), SECONDS_AHEAD / 100)
    serve(made, "w0")
    made.next_batch(T)
    grant(made, *range(40))
    later = T + NOTE_AFTER
    assert made.batch_due(later) is not None
    batch = made.next_batch(later)
    assert [s.id for s in batch.settlements] == [f"job-{n}" for n in range(1, 40)]  # the first is in hand
    assert {(s.state, s.outcome, s.interruptions) for s in batch.settlements} == {(State.QUEUED, None, 0)}
    assert batch.wants == ()  # nor is it claimed again
    made.confirm(Result(), later)
    assert named(made.finished("w0", Done("null"), later + 1, 1)) == "nothing"
    assert made.next_batch(later + 1).wants == (Want("a", "queue-a", 1),)


# spec: WK-14
def test_what_will_be_taken_soon_stays_in_memory() -> None:
    made = fast(ledger(), SECONDS_AHEAD / 5)
    serve(made, *(f"w{n}" for n in range(10)))
    made.next_batch(T)
    grant(made, *range(160))
    for worker in range(5):
        made.finished(f"w{worker}", Done("null"), T + SECONDS_AHEAD, 1)
    made.pools["a"].mean = SECONDS_AHEAD / 5
    batch = made.next_batch(T + SECONDS_AHEAD * 1.3)
    back = [s for s in batch.settlements if s.outcome is None]
    assert len(back) == 45  # fifteen were handed out; the five workers that are not late take 100 within SECONDS_KEPT
    assert named(made.finished("w0", Done("null"), T + NOTE_AFTER, 1)) == "job-15"


# spec: WK-14
@pytest.mark.parametrize(("times", "back"), [(1.0, 0), (3.9, 0), (4.3, 3), (8.0, 20)])
def test_claims_stay_while_jobs_take_only_a_little_longer_than_before(times: float, back: int) -> None:
    made = fast(working(2), SECONDS_AHEAD / 20)
    made.next_batch(T)
    grant(made, *range(2, 42))
    made.pools["a"].mean = SECONDS_AHEAD / 20 * times
    returned = [s for s in made.next_batch(T).settlements if s.outcome is None]
    assert len(returned) == back


# spec: WK-14
def test_claims_go_back_as_soon_as_their_worker_takes_longer_than_expected() -> None:
    made = fast(working(2), 10.0)
    made.hint()
    soon = T + 10 - SECONDS_AHEAD / 2
    made.next_batch(soon)
    grant(made, 2, 3, now=soon)
    assert len(made.pools["a"].prefetched) == 2
    made.finished("w0", Done("null"), soon, 1)
    made.next_batch(soon)
    made.confirm(Result(), soon)
    late = made.batch_due(soon)
    assert late == pytest.approx(T + 10 + SECONDS_AHEAD, abs=0.01)
    assert late is not None
    assert [s.id for s in made.next_batch(late).settlements] == ["job-3"]


# spec: WK-14
@pytest.mark.parametrize("how", ["exit", "dismiss", "pause"])
def test_the_claim_of_an_idle_worker_that_disappears_goes_back_at_once(how: str) -> None:
    made = working(1)
    serve(made, "worker:a:1")
    made.next_batch(T)
    if how == "exit":
        made.gone("worker:a:1", Crashed("x"), T, None)
    elif how == "dismiss":
        made.dismiss("worker:a:1")
    else:
        made.pause(["worker:a:1"], T)
    assert grant(made, 1) == []
    assert made.batch_due(T) == T
    assert [s.id for s in made.next_batch(T).settlements] == ["job-1"]


# a more urgent job


def prefetching(*priorities: int) -> Ledger:
    """A ledger with a busy worker and claims of these priorities ahead: job-0 is running, job-1 is the next."""
    made = fast(working(1), SECONDS_AHEAD / 10)
    made.next_batch(T)
    made.confirm(Result(grants=(Grant("a", _of(*priorities), None),)), T)
    return made


def _of(*priorities: int, first: int = 1) -> tuple[Claim, ...]:
    return tuple(claims(n, priority=priority)[0] for n, priority in enumerate(priorities, first))


# spec: WK-14
@pytest.mark.parametrize("news", ["hint", "request", "due", "another process"])
def test_a_more_urgent_job_takes_the_place_of_a_prefetched_claim(news: str) -> None:
    made = prefetching(5, 0, 0)
    now = T
    if news == "hint":
        made.hint("queue-a")
        assert made.batch_due(T) == T
    elif news == "request":
        made.enqueue(request("job-9", priority=9), T)
    elif news == "due":
        made.enqueue(request("job-9", priority=9, delay_ms=20), T - 0.015)
        made.next_batch(T)
        made.confirm(Result(), T)
        now = T + 0.006
        assert made.batch_due(T) == pytest.approx(T + 0.005, abs=1e-4)
    else:
        made.next_batch(T)
        made.confirm(Result(changed=True), T)
    (want,) = made.next_batch(now).wants
    assert (want.ahead, want.above) == (3, 0)
    made.confirm(Result(grants=(Grant("a", (), None, urgent=1),)), now)
    assert [claim.id for claim in made.pools["a"].prefetched] == ["job-1", "job-2"]
    batch = made.next_batch(now)
    assert [s.id for s in batch.settlements] == ["job-3"]
    assert batch.wants[0].limit >= 1
    made.confirm(Result(grants=(Grant("a", _of(9, first=9), None),)), now)
    assert [claim.id for claim in made.pools["a"].prefetched] == ["job-9", "job-1", "job-2"]
    assert named(made.finished("w0", Done("null"), now, 1)) == "job-9"


# spec: WK-14
def test_a_returned_claim_is_no_news() -> None:
    made = prefetching(0, 0, 0)
    made.hint()
    made.next_batch(T)
    made.confirm(Result(grants=(Grant("a", (), None, urgent=2),)), T)
    batch = made.next_batch(T)
    assert len(batch.settlements) == 2
    assert {want.ahead for want in batch.wants} == {0}


# spec: WK-14
def test_news_goes_with_the_outcomes_that_are_about_to_be_written() -> None:
    made = fast(working(2), SECONDS_AHEAD / 10)
    made.next_batch(T)
    grant(made, *range(2, 22))
    made.finished("w0", Done("null"), T, 1)
    made.hint()
    assert made.batch_due(T + 0.001) == T + LONGEST_WAIT


# spec: WK-14
def test_the_worker_of_a_job_that_was_held_ahead_is_noted_with_the_next_batch() -> None:
    made = fast(working(1), SECONDS_AHEAD / 10)
    assert made.next_batch(T).wants == (Want("a", "queue-a", 10, early=10),)
    grant(made, 1, 2)
    made.finished("w0", Done("null"), T, 1)
    (noted,) = made.next_batch(T).notes
    assert (noted.seq, noted.worker, noted.age_ms) == (1, "w0", 0)
