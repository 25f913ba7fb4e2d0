"""Crews that take several jobs at once: what goes together, how long it waits, and that each job has its own end."""

from typing import Any

import pytest
from ledger_builders import T, claims, ledger, named, serve

from chargehand.model.batch import Grant, Note, Result, Want
from chargehand.model.held import MOST_TOGETHER, longest
from chargehand.model.job import Claim, Crashed, Done, Interrupted, Raised, Settlement, State, Stopped, TimedOut
from chargehand.model.ledger import NOTE_AFTER, Ledger

WAIT = 0.02


def crew(batch: int = 4, workers: int = 1, wait: float = WAIT) -> Ledger:
    made = ledger(batching={"a": (batch, wait)})
    serve(made, *(f"w{n}" for n in range(workers)))
    return made


def give(of: Ledger, *granted: Claim, now: float = T) -> list[str]:
    """The store grants these claims: who is handed what at once."""
    of.hint()
    of.next_batch(now)
    return words(of.confirm(Result(grants=(Grant("a", granted, None),)), now))


def words(handed: list[tuple[str, Any]]) -> list[str]:
    return [f"{worker} {named(todo)}" for worker, todo in handed]


def busy(count: int = 4, **about: Any) -> Ledger:
    """One worker with so many jobs in hand, job-0 and on."""
    made = crew(count)
    assert len(give(made, *claims(*range(count), **about))) == 1
    return made


def settled(of: Ledger, now: float = T) -> dict[str, Settlement]:
    return {settlement.id: settlement for settlement in of.next_batch(now).settlements}


# what is wanted


@pytest.mark.parametrize(("workers", "batch"), [(1, 4), (3, 16), (2, 1)])
def test_as_many_are_wanted_as_all_idle_workers_can_take(workers: int, batch: int) -> None:  # spec: WK-3
    early = workers * batch if batch > 1 else 0  # they wait in memory until a batch is complete
    assert crew(batch, workers).next_batch(T).wants == (Want("a", "queue-a", workers * batch, early=early),)


def test_what_waits_to_be_joined_is_not_wanted_again() -> None:  # spec: WK-3
    made = crew(16)
    give(made, *claims(1, 2, 3))
    made.hint()
    assert made.next_batch(T).wants == (Want("a", "queue-a", 13, ahead=3, early=13),)


def test_quick_batches_are_claimed_ahead() -> None:  # spec: WK-3
    made = crew(4)
    made.pools["a"].mean = 0.01
    assert made.pools["a"].room(T) == 4 + 2 * 4


# going together


def test_a_full_batch_goes_at_once() -> None:  # spec: WK-3
    made = crew(3, workers=2)
    assert give(made, *claims(1, 2, 3, 4)) == ["w0 job-1 job-2 job-3"]
    assert list(made.held["w0"].claims) == ["job-1", "job-2", "job-3"]
    assert made.gathered_due(T) == T + WAIT


def test_many_idle_workers_get_full_batches_and_the_rest_waits() -> None:  # spec: WK-3
    made = crew(2, workers=4)
    assert give(made, *claims(1, 2, 3, 4, 5)) == ["w0 job-1 job-2", "w1 job-3 job-4"]
    assert words(made.gathered(T + WAIT)) == ["w2 job-5"]


def test_a_few_wait_and_go_when_the_time_is_over() -> None:  # spec: WK-3
    made = crew()
    assert give(made, *claims(1, 2)) == []
    assert made.gathered_due(T) == T + WAIT
    assert made.gathered(T + WAIT / 2) == []
    assert words(made.gathered(T + WAIT)) == ["w0 job-1 job-2"]
    assert made.gathered_due(T) is None


def test_those_that_come_meanwhile_join_and_do_not_prolong_the_wait() -> None:  # spec: WK-3
    made = crew()
    assert give(made, *claims(1)) == []
    assert give(made, *claims(2), now=T + WAIT / 2) == []
    assert made.gathered_due(T) == T + WAIT
    assert words(made.gathered(T + WAIT)) == ["w0 job-1 job-2"]


def test_whoever_completes_the_batch_sends_it_off() -> None:  # spec: WK-3
    made = crew()
    give(made, *claims(1, 2, 3))
    assert give(made, *claims(4, 5), now=T + 0.001) == ["w0 job-1 job-2 job-3 job-4"]
    assert made.gathered_due(T) is None  # nobody is idle


def test_without_a_wait_whatever_is_there_goes_at_once() -> None:  # spec: WK-3
    assert give(crew(wait=0.0), *claims(1)) == ["w0 job-1"]


def test_the_wait_begins_when_somebody_is_idle() -> None:  # spec: WK-3
    made = busy(2)
    made.pools["a"].mean = 0.001
    assert give(made, *claims(7)) == []
    assert made.gathered_due(T) is None
    now = T + 5
    assert made.finished("w0", Done(), now, 1, "job-0") is None
    assert made.finished("w0", Done(), now, 1, "job-1") is None
    assert made.gathered_due(T) == now + WAIT
    assert words(made.gathered(now + WAIT)) == ["w0 job-7"]


def test_a_worker_that_is_through_gets_a_full_batch_at_once() -> None:  # spec: WK-3
    made = busy(2)
    made.pools["a"].mean = 0.001
    give(made, *claims(7, 8, 9))
    made.finished("w0", Done(), T, 1, "job-1")
    assert named(made.finished("w0", Done(), T, 1, "job-0")) == "job-7 job-8"


def test_after_what_waited_is_gone_the_next_waits_anew() -> None:  # spec: WK-8
    made = crew()
    give(made, *claims(1))
    made.cancelled(["job-1"], T)
    assert made.gathered_due(T) is None
    assert give(made, *claims(2), now=T + 1) == []
    assert made.gathered_due(T) == T + 1 + WAIT


@pytest.mark.parametrize("how", ["pause", "close", "gone"])
def test_what_waits_goes_back_when_nobody_takes_it(how: str) -> None:  # spec: PD-1 PD-3 WK-6
    made = crew()
    give(made, *claims(1, 2))
    match how:
        case "pause":
            made.pause(["a"], T)
        case "close":
            made.close(T)
        case _:
            made.gone("w0", Crashed("x"), T, 1)
    assert made.gathered(T + 1) == []
    assert {job: s.outcome for job, s in settled(made).items()} == {"job-1": None, "job-2": None}


def test_other_crews_have_one_job_in_hand() -> None:  # spec: WK-3
    made = ledger("a", "b", batching={"b": (8, WAIT)})
    serve(made, "w0", crew="a")
    made.next_batch(T)
    (handed,) = made.confirm(Result(grants=(Grant("a", claims(1), None),)), T)
    assert handed == ("w0", claims(1)[0])


# going alone


@pytest.mark.parametrize("past", [{"crashes": 1}, {"failures": 1}])
def test_one_with_a_past_goes_alone_and_at_once(past: dict[str, Any]) -> None:  # spec: WK-6
    made = crew(4, workers=4)
    (suspect,) = claims(2, **past)
    assert give(made, *claims(1), suspect, *claims(3, 4)) == ["w0 job-1", "w1 job-2"]
    assert words(made.gathered(T + WAIT)) == ["w2 job-3 job-4"]


def test_those_with_a_past_go_one_by_one() -> None:  # spec: WK-6
    made = crew(4, workers=2)
    assert give(made, *claims(1, 2, 3, crashes=1)) == ["w0 job-1", "w1 job-2"]
    assert named(made.finished("w0", Done(), T, 1)) == "job-3"


@pytest.mark.parametrize("large", ["payload", "kept"])
def test_no_more_go_together_than_fit_into_a_frame(large: str) -> None:  # spec: SE-3 FL-5
    made = crew(4, workers=4)
    text = '"' + "x" * (MOST_TOGETHER // 2) + '"'
    assert give(made, *claims(1, 2, 3, **{large: text})) == ["w0 job-1", "w1 job-2"]
    assert words(made.gathered(T + WAIT)) == ["w2 job-3"]


# ends


def test_each_is_settled_by_itself() -> None:  # spec: WK-5
    made = busy(3)
    assert made.finished("w0", Done("1"), T + 1, 7, "job-1") is None
    assert made.finished("w0", Raised("x"), T + 2, 7, "job-0") is None
    assert list(made.held["w0"].claims) == ["job-2"]
    found = settled(made, T + 2)
    assert {job: (s.state, s.duration_ms, s.pid) for job, s in found.items()} == {
        "job-1": (State.DONE, 1000, 7),
        "job-0": (State.QUEUED, 2000, 7),
    }
    made.confirm(Result(), T + 2)
    made.finished("w0", Done(), T + 3, 7)
    assert made.held == {}
    assert list(settled(made, T + 3)) == ["job-2"]
    assert made.pools["a"].done == 3


@pytest.mark.parametrize(
    ("outcome", "counter"),
    [(Crashed("signal 9"), "crashes"), (TimedOut("x"), "failures"), (Interrupted("stop"), "interruptions")],
)
def test_all_that_are_still_in_hand_share_their_workers_end(outcome: Any, counter: str) -> None:  # spec: WK-6 WK-7
    made = busy(3)
    made.finished("w0", Done(), T, 1, "job-1")
    assert [claim.id for claim in made.gone("w0", outcome, T, 1)] == ["job-0", "job-2"]
    found = settled(made)
    assert found.pop("job-1").state is State.DONE
    assert {(s.state, getattr(s, counter)) for s in found.values()} == {(State.QUEUED, 1)}


def test_one_poison_among_many_is_the_only_one_that_is_quarantined() -> None:  # spec: WK-6
    made = busy(4)
    crashes = dict.fromkeys((f"job-{n}" for n in range(4)), 0)
    done: set[str] = set()
    for _ in range(20):
        if "w0" in made.held:
            job = made.held["w0"].claim.id
            if "job-2" in made.held["w0"].claims:
                made.gone("w0", Crashed("signal 11"), T, 1)
                serve(made, "w0")
            else:
                made.finished("w0", Done(), T, 1, job)
                done.add(job)
        again = [s for s in settled(made).values() if s.state is State.QUEUED]
        for settlement in again:
            crashes[settlement.id] += settlement.crashes
        made.confirm(Result(), T)
        waiting = [claims(int(s.id[-1]), crashes=crashes[s.id])[0] for s in again]
        if waiting:
            made.pools["a"].prefetched.extend(waiting)
            made.gathered(T)
    assert done == {"job-0", "job-1", "job-3"}
    assert crashes == {"job-0": 1, "job-1": 1, "job-2": 2, "job-3": 1}  # and its third was its last
    assert made.pools["a"].done == 4


# cancelling


def test_who_has_a_cancelled_job_is_found_in_a_batch() -> None:  # spec: WK-8
    made = busy(3)
    assert made.cancelled(["job-1", "job-2", "nobody"], T) == [("w0", "job-1"), ("w0", "job-2")]


def test_one_that_is_replaced_for_a_cancelled_job_costs_the_others_nothing() -> None:  # spec: WK-8
    made = busy(3)
    made.gone("w0", Stopped("x"), T, 1, {"job-1"})
    found = settled(made)
    assert {job: s.outcome for job, s in found.items()} == {
        "job-0": "interrupted", "job-1": "cancelled", "job-2": "interrupted",
    }  # fmt: skip
    assert (found["job-0"].failures, found["job-0"].crashes) == (0, 0)


# notes and progress


def notes(of: Ledger, now: float) -> dict[int, str | None]:
    found: tuple[Note, ...] = of.next_batch(now).notes
    assert {note.worker for note in found} <= {"w0"}
    return {note.seq: note.progress for note in found}


def test_all_of_a_batch_are_noted_and_then_only_who_makes_progress() -> None:  # spec: WK-9
    made = busy(3)
    now = T + NOTE_AFTER
    made.progress("w0", "[1]", now, "job-1")
    made.progress("w0", "[9]", now, "nobody")
    assert notes(made, now) == {0: None, 1: "[1]", 2: None}
    made.confirm(Result(), now)
    made.progress("w0", "[2]", now, "job-2")
    made.progress("w0", "[0]", now, "job-0")
    assert notes(made, now) == {}  # not twice a second
    made.confirm(Result(), now)
    assert notes(made, now + 1) == {0: "[0]", 2: "[2]"}


def test_notes_that_were_not_written_are_said_again() -> None:  # spec: WK-9 SV-3
    made = busy(3)
    now = T + NOTE_AFTER
    made.progress("w0", "[1]", now, "job-1")
    made.progress("w0", "[2]", now, "job-2")
    notes(made, now)
    made.progress("w0", "[22]", now, "job-2")
    made.finished("w0", Done(), now, 1, "job-0")
    made.failed(now, 0.1)
    assert notes(made, now + 1) == {1: "[1]", 2: "[22]"}


# timeouts


@pytest.mark.parametrize(
    ("timeouts", "together"), [((1000,), 1.0), ((1000, 5000, 2000), 5.0), ((1000, None), None), ((None,), None)]
)
def test_together_they_may_take_as_long_as_the_longest(timeouts: Any, together: float | None) -> None:  # spec: WK-7
    assert longest([claims(n, timeout_ms=timeout)[0] for n, timeout in enumerate(timeouts)]) == together
