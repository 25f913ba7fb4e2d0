"""The ledger replaces processes that are not trusted, and gives a job's extra attempt to another process."""

import msgspec
from ledger_builders import T, claims, grant, ledger

from chargehand.model.batch import Grant, Result
from chargehand.model.job import Claim, Done, Outcome, Raised, State
from chargehand.model.ledger import Ledger


def working(*workers: str) -> Ledger:
    made = ledger()
    for worker in workers:
        made.welcome(worker, "a", T, f"process of {worker}")
    return made


def hand_out(made: Ledger, *found: Claim) -> dict[str, str]:
    """The store grants these: which worker gets which."""
    made.hint()
    made.next_batch(T)
    assert made.in_flight is not None
    handed = made.confirm(Result(grants=(Grant("a", found, None),)), T)
    return {worker: todo.id for worker, todo in handed if isinstance(todo, Claim)}


def ends(made: Ledger, worker: str, outcome: Outcome) -> str | None:
    """The job of this worker ends: where it failed so far."""
    made.finished(worker, outcome, T, 1)
    return made._settlements[-1].failed_in


def test_a_worker_that_fails_three_jobs_gets_no_fourth() -> None:  # spec: WP-13
    made = working("w0", "w1")
    for number in range(3):
        handed = hand_out(made, *claims(number * 2, number * 2 + 1))
        assert set(handed) == {"w0", "w1"}
        ends(made, "w1", Done())
        ends(made, "w0", Raised("lost"))
    (distrust,) = made.take_distrusted()
    assert distrust.worker == "w0"
    assert made.take_distrusted() == []
    assert set(hand_out(made, *claims(10))) == {"w1"}


def test_a_job_is_tried_again_in_another_process_if_one_is_idle() -> None:  # spec: WP-13
    made = working("w0", "w1")
    assert hand_out(made, *claims(1)) == {"w0": "job-1"}
    failed_in = ends(made, "w0", Raised("lost"))
    hand_out(made, *claims(2))  # now w0 is the first in line
    ends(made, "w1", Done())
    (again,) = claims(1, failures=1, failed_in=failed_in)
    assert hand_out(made, again) == {"w1": "job-1"}


def test_an_extra_attempt_waits_for_another_process() -> None:  # spec: WP-13
    made = working("w0", "w1")
    assert hand_out(made, *claims(1, failures=2), *claims(2)) == {"w0": "job-1", "w1": "job-2"}
    failed_in = ends(made, "w0", Raised("lost"))
    assert made._settlements[-1].state is State.QUEUED
    (extra,) = claims(1, failures=3, failed_in=failed_in)
    assert hand_out(made, extra) == {}
    returned = made._settlements[-1]
    assert (returned.outcome, returned.delay_ms > 0) == (None, True)
    assert made.take_distrusted() == []
    ends(made, "w1", Done())
    assert hand_out(made, extra) == {"w1": "job-1"}


def test_the_only_worker_is_replaced_before_an_extra_attempt() -> None:  # spec: WP-13
    made = working("w0")
    assert hand_out(made, *claims(1, failures=2)) == {"w0": "job-1"}
    failed_in = ends(made, "w0", Raised("lost"))
    assert made._settlements[-1].state is State.QUEUED
    assert [each.worker for each in made.take_distrusted()] == ["w0"]
    made.gone("w0", Done(), T, 1)
    made.welcome("w0", "a", T, "another process")
    (extra,) = claims(1, failures=3, failed_in=failed_in)
    assert hand_out(made, extra) == {"w0": "job-1"}
    ends(made, "w0", Raised("again"))
    assert made._settlements[-1].state is State.FAILED


def test_a_batch_that_fails_counts_as_one_job() -> None:  # spec: WP-13
    made = ledger(batching={"a": (4, 0.0)})
    for worker in ("w0", "w1"):
        made.welcome(worker, "a", T, worker)
    made.next_batch(T)
    grant(made, *range(8))
    for number in (4, 5, 6, 7):
        made.finished("w1", Done(), T, 1, f"job-{number}")
    for number in (0, 1, 2, 3):
        made.finished("w0", Raised("lost"), T, 1, f"job-{number}")
    assert made.take_distrusted() == []


def test_what_a_broken_process_failed_is_not_believed() -> None:  # spec: WP-12
    made = working("w0", "w1")
    hand_out(made, *claims(1))
    failed_in = ends(made, "w0", Raised("lost"))
    made.broke("w0")
    hand_out(made, msgspec.structs.replace(claims(1)[0], failures=2, failed_in=failed_in))
    ends(made, "w1", Raised("lost"))
    assert made._settlements[-1].state is State.QUEUED
