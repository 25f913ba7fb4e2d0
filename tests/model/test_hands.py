"""Several short jobs in a worker's hand: how many, in which order, and when what is not begun is called back."""

from typing import Any

import msgspec
import pytest
from ledger_builders import T, claims, fast, grant, ledger, named, request, serve

from chargehand.model import hands
from chargehand.model.batch import Grant, Result
from chargehand.model.job import Crashed, Done, Raised, State
from chargehand.model.ledger import ENOUGH_OUTCOMES, Hand, Ledger

TINY = 0.0001


def tiny(workers: int = 1, mean: float = TINY, **about: Any) -> Ledger:
    """A ledger whose workers are idle, and whose jobs have been short."""
    made = fast(ledger(most_in_hand=about.pop("most_in_hand", 8), **about), mean)
    serve(made, *(f"w{n}" for n in range(workers)))
    made.next_batch(T)
    return made


def ahead(of: Ledger, worker: str = "w0") -> list[str]:
    return [claim.id for claim in of.held[worker].ahead]


def prefetched(of: Ledger) -> list[str]:
    return [claim.id for claim in of.pools["a"].prefetched]


# how many


# spec: WK-18
@pytest.mark.parametrize(
    ("mean", "count"), [(None, 1), (0.01, 1), (0.003, 1), (0.0025, 2), (0.001, 5), (0.0006, 8), (0.0, 8)]
)
def test_a_worker_is_handed_as_many_jobs_as_fit_into_five_milliseconds(mean: float | None, count: int) -> None:
    made = tiny()
    made.pools["a"].mean = mean
    grant(made, *range(20))
    assert 1 + len(ahead(made)) == count


# spec: WK-18
def test_idle_workers_are_served_before_hands_are_filled_and_all_get_the_same_share() -> None:
    made = tiny(4)
    assert grant(made, *range(4)) == ["w0 job-0", "w1 job-1", "w2 job-2", "w3 job-3"]
    made = tiny(3)
    assert grant(made, *range(9)) == ["w0 job-0 +job-3 +job-4", "w1 job-1 +job-5 +job-6", "w2 job-2 +job-7 +job-8"]


# spec: WK-18
def test_a_hand_is_filled_again_when_it_is_half_empty() -> None:
    made = tiny()
    assert grant(made, *range(20)) == ["w0 job-0 +job-1 +job-2 +job-3 +job-4 +job-5 +job-6 +job-7"]
    for number in range(3):
        assert made.finished("w0", Done(), T, 1, seconds=TINY) is None, number
    assert named(made.finished("w0", Done(), T, 1, seconds=TINY)) == "+job-8 +job-9 +job-10 +job-11"
    assert made.held["w0"].claim.id == "job-4"


# spec: WK-18
def test_jobs_that_ended_together_count_as_if_one_after_the_other() -> None:
    apart, together = tiny(), tiny()
    for made in (apart, together):
        grant(made, *range(20))
    ends = [(Done(f"{n}"), TINY * (n + 1)) for n in range(5)]
    for outcome, seconds in ends:
        apart.finished("w0", outcome, T + 0.002, 7, seconds=seconds)
    together.finished_all("w0", ends, T + 0.002, 7)
    assert apart._settlements == together._settlements
    assert [(s.id, s.result, s.pid, s.outcome) for s in together._settlements[:2]] == [
        ("job-0", "0", 7, "done"),
        ("job-1", "1", 7, "done"),
    ]
    assert apart.pools["a"].mean == together.pools["a"].mean
    assert apart.pools["a"].done == together.pools["a"].done == 5
    assert apart.held["w0"].claim == together.held["w0"].claim


def test_a_worker_that_ends_all_it_has_receives_the_next_jobs_or_is_idle() -> None:
    made = tiny()
    grant(made, *range(10))
    following = made.finished_all("w0", [(Done(), TINY)] * 8, T, 1)
    assert named(following) == "job-8 +job-9"
    assert made.finished_all("w0", [(Done(), TINY)] * 2, T, 1) is None
    assert made.held == {}
    assert list(made.pools["a"].idle) == ["w0"]


def test_a_measured_duration_is_believed_only_within_reason() -> None:
    made = tiny()
    grant(made, 0)
    made.finished("w0", Done(), T + 0.5, 1, seconds=1e9)
    assert made._settlements[0].duration_ms == 500
    made = tiny()
    grant(made, 0)
    made.finished("w0", Done(), T + 0.5, 1, seconds=-3.0)
    assert made._settlements[0].duration_ms == 0


# spec: WK-18
def test_a_worker_is_not_handed_more_jobs_than_it_may_do_before_it_is_replaced() -> None:
    made = fast(ledger(most_in_hand=8), TINY)
    made.welcome("w0", "a", T, jobs=5)
    made.next_batch(T)
    assert grant(made, *range(20)) == ["w0 job-0 +job-1 +job-2 +job-3 +job-4"]
    assert made.finished_all("w0", [(Done(), TINY)] * 3, T, 1) is None
    assert ahead(made) == ["job-4"]


# spec: WK-18, WK-13
def test_in_a_queue_with_a_limit_a_claim_is_a_start() -> None:
    made = tiny(limited={"queue-a"})
    assert grant(made, *range(5)) == ["w0 job-0"]


@pytest.mark.parametrize("past", [{"failures": 1}, {"crashes": 1}, {"suspect": True}, {"failed_in": "{}"}])
def test_a_job_with_a_past_is_performed_alone(past: dict[str, Any]) -> None:
    made = tiny()
    suspicious = msgspec.structs.replace(claims(2)[0], **past)
    made.confirm(Result(grants=(Grant("a", (*claims(0, 1), suspicious, *claims(3, 4)), None),)), T)
    assert ahead(made) == ["job-1"], "what follows waits for it"
    made.finished_all("w0", [(Done(), TINY)], T, 1)
    following = made.finished("w0", Done(), T, 1)
    assert named(following) == "job-2", "nothing is sent with it"


def test_large_payloads_are_not_sent_ahead() -> None:
    made = tiny()
    large = [msgspec.structs.replace(claim, payload='"' + "x" * 30_000 + '"') for claim in claims(*range(6))]
    made.confirm(Result(grants=(Grant("a", tuple(large), None),)), T)
    assert ahead(made) == ["job-1", "job-2"]


# calling back


# spec: WK-18
def test_what_is_called_back_is_prefetched_again_in_order() -> None:
    made = tiny()
    grant(made, *range(12))
    made.finished_all("w0", [(Done(), TINY)] * 2, T, 1)
    assert not made.recalled("w0", 4, T)
    assert (made.held["w0"].claim.id, ahead(made)) == ("job-2", ["job-3"])
    assert prefetched(made) == [f"job-{n}" for n in range(4, 12)]


# spec: WK-18
def test_the_next_job_too_is_called_back_if_the_worker_has_not_begun_it() -> None:
    made = tiny()
    grant(made, *range(4))
    made.finished("w0", Done(), T, 1, seconds=TINY)
    assert made.recalled("w0", 3, T)
    assert made.held == {}
    assert list(made.pools["a"].idle) == ["w0"]
    assert [named(todo) for _, todo in made.spread(T)] == ["job-1 +job-2 +job-3"]


# spec: WK-18
def test_a_worker_that_does_not_read_is_not_handed_the_same_jobs_again_and_again() -> None:
    made = tiny()
    grant(made, *range(4))
    made.finished("w0", Done(), T, 1, seconds=TINY)
    assert made.recalled("w0", 3, T, behind=True)
    assert made.spread(T) == []
    assert named(made.has_read("w0", T)) == "job-1 +job-2 +job-3"
    assert made.has_read("w0", T) is None, "nothing is handed out twice"
    assert made.recalled("w0", 3, T, behind=True)
    made.next_batch(T)
    assert prefetched(made) == [], "other nodes can have them meanwhile"
    made.gone("w0", Crashed("signal 9"), T, 1)
    assert made.has_read("w0", T) is None


def test_a_job_that_was_handed_out_to_begin_at_once_is_never_called_back() -> None:
    made = tiny()
    grant(made, *range(4))
    assert not made.recalled("w0", 4, T), "the count cannot exceed the permits, but if it did"
    assert made.held["w0"].claim.id == "job-0"


# spec: WK-18
@pytest.mark.parametrize("how", ["closed", "paused"])
def test_what_is_called_back_while_nothing_may_start_goes_back_to_the_queue(how: str) -> None:
    made = tiny()
    grant(made, *range(4))
    if how == "closed":
        made.close(T)
    else:
        made.pools["a"].paused = True
    made.recalled("w0", 3, T)
    assert [(s.id, s.state, s.outcome) for s in made._settlements] == [
        (f"job-{n}", State.QUEUED, None) for n in (1, 2, 3)
    ]


# spec: WK-18
def test_only_the_begun_job_pays_for_a_death_and_the_others_run_elsewhere_at_once() -> None:
    made = tiny(2)
    grant(made, *range(8))
    have = [made.held["w0"].claim.id, *ahead(made)]
    made.dismiss("w0")
    made.pools["a"].prefetched.clear()
    made.finished_all("w1", [(Done(), TINY)] * (1 + len(ahead(made, "w1"))), T, 2)
    made.recalled("w0", len(have) - 1, T)
    handed = dict(made.spread(T))
    assert isinstance(handed["w1"], Hand)
    assert [claim.id for claim in (handed["w1"].first, *handed["w1"].ahead) if claim] == have[1:]
    (dead,) = made.gone("w0", Crashed("signal 9"), T, 1)
    assert dead.id == have[0]
    assert [(s.id, s.outcome) for s in made._settlements if s.outcome != "done"] == [(have[0], "crashed")]


# spec: WK-18
def test_what_follows_the_job_of_a_dead_worker_was_not_begun_whoever_took_the_permits() -> None:
    made = tiny()
    grant(made, *range(3))
    made.gone("w0", Crashed("signal 9"), T, 1)
    assert [(s.id, s.outcome) for s in made._settlements] == [("job-1", None), ("job-2", None), ("job-0", "crashed")]


# spec: WK-18
def test_after_a_call_back_the_next_job_has_a_permit_until_the_worker_has_ended_it() -> None:
    """The worker may still have what was called back: it would take the permit of a later job for that."""
    made = tiny()
    grant(made, *range(6))
    made.recalled("w0", 5, T)
    todo = made.finished("w0", Done(), T, 1, seconds=TINY)
    assert isinstance(todo, Hand)
    assert (todo.permit, todo.first and todo.first.id, len(todo.ahead)) == (True, "job-1", 4)
    made.finished("w0", Done(), T, 1, seconds=TINY)
    made.recalled("w0", 0, T)
    made.finished_all("w0", [(Done(), TINY)] * 4, T, 1)
    made.next_batch(T)
    made.confirm(Result(), T)
    made.hint()
    made.next_batch(T)
    assert grant(made, 7) == ["w0 job-7"], "from then on it has none of them"


# spec: WK-18
def test_a_further_call_back_makes_a_further_permit_necessary() -> None:
    made = tiny()
    grant(made, *range(6))
    made.recalled("w0", 5, T)
    made.finished("w0", Done(), T, 1, seconds=TINY)
    made.recalled("w0", 4, T)  # while it performs the first job that it was handed since
    todo = made.finished("w0", Done(), T, 1, seconds=TINY)
    assert isinstance(todo, Hand)
    assert todo.permit


# spec: WK-18
def test_what_waits_behind_a_long_job_is_called_back_and_not_sent_again() -> None:
    made = tiny(2)
    grant(made, *range(40))
    due = made.recalls_due()
    assert due == pytest.approx(T + hands.LONG)
    assert due is not None
    assert made.recalls(due - 0.001) == []
    made.finished_all("w1", [(Done(), TINY)] * 3, due, 2)
    assert made.recalls(due) == ["w0"]
    made.recalled("w0", 7, due)
    made.finished_all("w1", [(Done(), TINY)] * 2, due, 2)
    assert ahead(made, "w0") == []
    assert made.recalls(due) == []


# spec: WK-18
def test_what_waits_while_another_worker_is_idle_is_called_back() -> None:
    made = tiny(2)
    grant(made, *range(16))
    made.pools["a"].prefetched.clear()
    made.finished_all("w1", [(Done(), TINY)] * (1 + len(ahead(made, "w1"))), T + 0.001, 2)
    assert list(made.pools["a"].idle) == ["w1"]
    assert made.recalls_due() == pytest.approx(T + 0.001 + hands.SPARED)
    waited = ahead(made)
    made.recalled("w0", len(waited), T + 0.003)
    (worker, todo), *_ = made.spread(T + 0.003)
    assert (worker, named(todo).split()[0]) == ("w1", waited[0])
    assert len(ahead(made, "w1")) == len(waited) // 2, "the other half is for the worker that is busy"


def test_a_worker_about_which_nothing_is_unsure_is_not_asked() -> None:
    made = tiny()
    grant(made, 0)
    assert made.recalls_due() is None
    assert made.hands() == []


# spec: WK-18
def test_a_running_job_is_known_to_be_begun_once_its_permit_is_gone() -> None:
    made = tiny()
    grant(made, 0, 1)
    made.finished("w0", Done(), T, 1, seconds=TINY)
    assert made.hands() == ["w0"]
    assert not made.recalled("w0", 0, T)
    assert made.hands() == []


# urgency


# spec: WK-18
def test_jobs_of_different_priority_are_handed_out_one_at_a_time() -> None:
    made = tiny()
    urgent = [msgspec.structs.replace(claim, priority=5) for claim in claims(0, 1)]
    made.confirm(Result(grants=(Grant("a", (*urgent, *claims(2, 3)), None),)), T)
    assert ahead(made) == []
    assert named(made.finished("w0", Done(), T, 1)) == "job-1 +job-2 +job-3", "all that is left is as urgent"


# spec: WK-18
def test_an_urgent_arrival_has_what_is_not_begun_called_back() -> None:
    made = tiny()
    grant(made, *range(4))
    made.enqueue(request("urgent", priority=5), T)
    assert made.batch_due(T) == T
    (want,) = made.next_batch(T).wants
    assert want.limit > 0
    urgent = msgspec.structs.replace(claims(9)[0], priority=5)
    found = Result(enqueued=(("token", ()),), grants=(Grant("a", (urgent,), None),))
    assert made.overtaken(found) == ["w0"]
    made.recalled("w0", 3, T)
    made.confirm(found, T)
    assert prefetched(made) == ["job-9", "job-1", "job-2", "job-3"]
    assert named(made.finished("w0", Done(), T, 1)).startswith("job-9")


# spec: WK-18
def test_the_store_is_asked_soon_if_jobs_that_are_not_begun_may_have_to_wait_for_others() -> None:
    made = tiny()
    grant(made, *range(4))
    made.finished("w0", Done(), T, 1, seconds=TINY)
    made.next_batch(T + 1)
    made.confirm(Result(), T + 1)
    made.hint()
    assert made.batch_due(T + 1) == T + 1


def test_a_less_urgent_arrival_calls_nothing_back() -> None:
    made = tiny()
    grant(made, *range(4))
    made.hint()
    made.next_batch(T)
    lower = msgspec.structs.replace(claims(9)[0], priority=-5)
    assert made.overtaken(Result(grants=(Grant("a", (lower,), None),))) == []


# what people do


# spec: WK-18, WK-8
def test_who_has_a_job_that_is_cancelled_is_known() -> None:
    made = tiny(2)
    grant(made, *range(8))
    waiting = ahead(made, "w1")[-1]
    assert made.hands_with([waiting]) == ["w1"]
    made.recalled("w1", len(ahead(made, "w1")), T)
    assert made.cancelled([waiting], T) == []
    assert [(s.id, s.state, s.outcome) for s in made._settlements] == [(waiting, State.CANCELLED, None)]


# spec: WP-10
def test_a_crew_that_prints_is_handed_one_job_at_a_time_for_a_while() -> None:
    made = tiny()
    grant(made, *range(4))
    made.speaks("w0", T + 0.001)
    assert made.recalls(T + 0.001) == ["w0"]
    made.recalled("w0", 3, T + 0.001)
    assert named(made.finished("w0", Done(), T + 0.001, 1)) == "job-1"
    later = T + 1 + hands.ALONE
    assert named(made.finished("w0", Done(), later, 1, seconds=TINY)) == "job-2 +job-3"


# spec: WP-13
def test_a_failure_is_judged_with_nothing_else_in_hand() -> None:
    made = tiny(2)
    grant(made, *range(16))
    made.recalled("w0", 7, T)
    made.finished("w0", Raised("x"), T, 1)
    assert [s.outcome for s in made._settlements] == ["raised"]
    assert made.held["w0"].claim.id != "job-0"


def test_nothing_is_sent_ahead_while_hands_are_called_back() -> None:
    made = tiny()
    grant(made, *range(20))
    made.filling = False
    assert made.finished_all("w0", [(Done(), TINY)] * 7, T, 1) is None
    made.filling = True
    assert named(made.finished("w0", Done(), T, 1)) == "job-8 +job-9 +job-10 +job-11 +job-12 +job-13 +job-14 +job-15"


def test_progress_of_a_job_that_the_node_does_not_know_to_be_begun_is_kept() -> None:
    made = tiny()
    grant(made, *range(3))
    made.progress("w0", '{"done":1}', T, "job-1")
    made.finished("w0", Done(), T, 1, seconds=TINY)
    assert made.held["w0"].progress == {"job-1": '{"done":1}'}
    made.finished("w0", Done(), T, 1, seconds=TINY)
    assert made.held["w0"].progress is None


def test_a_server_that_lost_commits_is_compared_with_all_that_workers_have() -> None:
    made = tiny()
    grant(made, *range(3))
    assert {seq for seq, _ in made._claims()} == {0, 1, 2}
    assert ENOUGH_OUTCOMES > 64
