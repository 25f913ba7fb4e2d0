"""Tests for the lease of a node, and for what a node does that is cut off from its store."""

import pytest
from ledger_builders import T, claims, fast, grant, ledger, serve, working

from chargehand.model.batch import Grant, Result
from chargehand.model.fleet.policy import LivenessPolicy
from chargehand.model.held import SECONDS_AHEAD
from chargehand.model.job import Done, Raised, State, Stopped
from chargehand.model.lease import LONGEST_CANCEL, CutOff, longest_end, patience
from chargehand.model.ledger import Ledger
from chargehand.model.records import NodeAbout

# spec: MN-2


def test_the_lease_is_shorter_if_the_session_has_ended_unless_a_crew_needs_all_of_it() -> None:
    assert patience(NodeAbout(), session_ended=False) == 30
    assert patience(NodeAbout(), session_ended=True) == 10
    assert patience(NodeAbout(stops=True), session_ended=True) == 30
    assert patience(NodeAbout(lease=3), session_ended=True) == 1


@pytest.mark.parametrize(("lease", "cancel"), [(30.0, 10.0), (30.0, 0.0), (30.0, 30 * LONGEST_CANCEL), (2.0, 0.5)])
def test_jobs_that_must_stop_have_ended_before_the_lease_does(lease: float, cancel: float) -> None:
    found = CutOff(lease, cancel, now=T)
    due = found.due()
    assert due is not None
    assert due > T
    assert due + cancel < T + lease, "a job that does not yield is killed in time"
    assert not found.is_over(due - 0.001)
    assert found.is_over(due)
    assert not found.is_over(due + 1), "it is cut off already"
    assert found.due() is None


def test_a_beat_counts_from_when_it_was_sent_and_ends_the_state() -> None:
    found = CutOff(30, 10, now=T)
    assert not found.beaten(T + 5, T + 6)
    due = found.due()
    assert due is not None
    assert due == T + 5 + 30 * 0.8 - 10
    assert found.is_over(due)
    assert found.beaten(T + 60, T + 61)
    assert not found.beaten(T + 61, T + 62)
    assert not found.is_over(due)


def test_an_answer_that_came_too_late_does_not_end_the_state() -> None:
    found = CutOff(30, 10, now=T)
    assert found.is_over(T + 14)
    assert not found.beaten(T + 5, T + 19), "no job could be cancelled in time that begins now"
    assert found.cut_off
    assert found.beaten(T + 5, T + 18.9)


def test_the_stack_traces_of_a_worker_count() -> None:
    assert longest_end(LivenessPolicy(cancel=3.0, stacks=2.0)) == 5


# what the ledger does


def states(of: Ledger, now: float = T) -> list[tuple[str, State, str | None]]:
    return [(each.id, each.state, each.outcome) for each in of.next_batch(now).settlements]


def test_a_job_that_ends_because_its_node_was_cut_off_is_interrupted_and_not_cancelled() -> None:
    made = working(3)
    assert made.cut_off({"a"}, T) == [("w0", "job-0"), ("w1", "job-1"), ("w2", "job-2")]
    made.finished("w0", Stopped(), T, None)
    made.finished("w1", Done(), T, None)
    made.gone("w2", Stopped("it was killed"), T, None)
    assert states(made) == [
        ("job-0", State.QUEUED, "interrupted"), ("job-1", State.DONE, "done"), ("job-2", State.QUEUED, "interrupted"),
    ]  # fmt: skip


def test_a_job_that_is_cancelled_later_is_cancelled() -> None:
    made = working()
    made.cut_off({"a"}, T)
    made.finished("w0", Raised("x"), T, None)
    made.next_batch(T)
    made.confirm(Result(), T)
    made.reconnected(T)
    made.next_batch(T + 60)
    made.confirm(Result(grants=(Grant("a", claims(0, number=2), None),)), T + 60)
    made.finished("w0", Stopped(), T + 60, None)
    assert states(made, T + 61)[0][1:] == (State.CANCELLED, "cancelled")


def test_a_crew_that_is_cut_off_gets_no_job_until_the_store_answers_and_others_go_on() -> None:
    made = ledger("a", "b")
    serve(made, "wa")
    serve(made, "wb", crew="b")
    assert made.cut_off({"a"}, T) == []
    made.hint()
    assert [want.crew for want in made.next_batch(T).wants] == ["b"]
    made.confirm(Result(), T)
    made.pause(["b"], T)
    made.hint()
    assert made.next_batch(T).wants == (), "pauses change nothing about it"
    made.confirm(Result(), T)
    made.reconnected(T)
    made.hint()
    assert [want.crew for want in made.next_batch(T).wants] == ["a"], "the pause is still in force"


def test_what_a_crew_that_is_cut_off_has_prefetched_is_given_back() -> None:
    made = fast(working(), SECONDS_AHEAD / 10)
    made.next_batch(T)
    grant(made, 1, 2)
    assert made.cut_off({"a"}, T) == [("w0", "job-0")]
    assert states(made) == [("job-1", State.QUEUED, None), ("job-2", State.QUEUED, None)]


def test_a_node_that_others_took_for_dead_forgets_what_it_no_longer_holds() -> None:
    made = fast(working(2), SECONDS_AHEAD / 10)
    made.next_batch(T)
    grant(made, 2, 3)
    assert made.keep_only({(0, 1), (2, 1), (1, 99)}) == [("w1", "job-1")]
    todo = made.finished("w0", Done(), T, None)
    assert getattr(todo, "id", None) == "job-2"
    assert made.finished("w0", Done(), T, None) is None, "job-3 is not its own any more"
    made.finished("w1", Stopped(), T, None)
    assert states(made) == [
        ("job-0", State.DONE, "done"), ("job-2", State.DONE, "done"), ("job-1", State.QUEUED, "interrupted"),
    ]  # fmt: skip
