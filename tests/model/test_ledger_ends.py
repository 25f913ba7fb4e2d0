"""The ledger when things end: notes of what is held, failures of the store, closing, dismissing."""

import pytest
from ledger_builders import T, fast, grant, ledger, request, serve, working
from msgspec.structs import replace

from chargehand.model.batch import Batch, Result, Want
from chargehand.model.chores import LookAtPauses, LookAtQueues
from chargehand.model.held import SECONDS_AHEAD
from chargehand.model.job import (
    Crashed,
    Done,
    Interrupted,
    NewJob,
    State,
)
from chargehand.model.ledger import NOTE_AFTER, POLL, POSTPONE

# notes


# spec: HP-5, WK-1
def test_who_has_a_job_is_noted_once_it_has_had_it_for_a_moment() -> None:
    made = working()
    assert made.next_batch(T + 0.001).notes == ()
    made.confirm(Result(), T)
    assert made.batch_due(T + 0.01) == pytest.approx(T + NOTE_AFTER)
    (note,) = made.next_batch(T + NOTE_AFTER).notes
    assert (note.seq, note.claim, note.worker) == (0, 1, "w0")
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


# what waits for transactions of others


# spec: WK-2, MN-2
def test_an_outcome_that_was_postponed_is_part_of_a_later_batch_and_delays_no_other() -> None:
    made = working(2)
    made.finished("w0", Done("0", (NewJob(id="child", queue="queue-a", key="k"),)), T, None)
    batch = made.next_batch(T)
    left = Batch(settlements=batch.settlements, chores=(LookAtPauses(),))
    made.confirm(Result(postponed=left), T)
    assert not made.settled
    made.finished("w1", Done("1"), T, None)
    assert [s.result for s in made.next_batch(T).settlements] == ["1"]
    grant(made)
    assert made.batch_due(T + 0.01) == T + POSTPONE
    assert made.next_batch(T + 0.01).settlements == ()
    grant(made)
    again = made.next_batch(T + POSTPONE)
    assert (again.settlements, again.chores) == (left.settlements, left.chores)
    assert again.hinted, "its follow-up is looked for"
    made.confirm(Result(), T + POSTPONE)
    assert made.settled


# spec: WK-2, SV-3
def test_what_was_postponed_survives_a_failure_of_the_store_and_requests_are_not_repeated() -> None:
    made = working()
    made.finished("w0", Done("0"), T, None)
    made.enqueue(request("new"), T)
    batch = made.next_batch(T)
    made.confirm(Result(postponed=Batch(settlements=batch.settlements, requests=batch.requests)), T)
    again = made.next_batch(T + POSTPONE)
    assert (again.settlements, again.requests) == (batch.settlements, ())
    made.failed(T + POSTPONE, 0.0)
    assert made.next_batch(T + POSTPONE).settlements == batch.settlements


# spec: WK-2
def test_a_batch_without_a_part_has_the_rest() -> None:
    made = working(2)
    for number in range(2):
        made.finished(f"w{number}", Done(str(number)), T, None)
        made.enqueue(request(f"new-{number}", token=number), T)
    batch = replace(made.next_batch(T), chores=(LookAtPauses(), LookAtQueues()))
    part = Batch(settlements=batch.settlements[:1], requests=batch.requests[1:], chores=batch.chores[1:])
    rest = batch.without(part)
    assert ([s.result for s in rest.settlements], [r.token for r in rest.requests]) == (["1"], [0])
    assert (rest.chores, rest.wants) == ((LookAtPauses(),), batch.wants)


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


# spec: SV-3, WK-8, PD-1
def test_what_others_wrote_before_a_look_that_failed_is_looked_at_again() -> None:
    made = ledger()
    assert (made.next_batch(T).poll, made.in_flight and made.in_flight.unsure) == (True, False)
    made.failed(T, 0.1)
    hurried = made.next_batch(T + 0.1)
    made.confirm(Result(), T + 0.1)
    again = made.next_batch(T + POLL)
    made.confirm(Result(), T + POLL)
    later = made.next_batch(T + 2 * POLL)
    assert [(batch.poll, batch.unsure) for batch in (hurried, again, later)] == [
        (False, False),
        (True, True),
        (True, False),
    ]


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
    assert made.batch_due(T) == T
    ends = {s.id: s.outcome for s in made.next_batch(T).settlements}
    assert ends == {"job-0": "done", "job-1": None, "job-2": None}, "what nobody can be handed goes back"
    assert "w0" not in made.pools["a"].idle


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
    assert (settlement.state, settlement.interruptions, settlement.failures) == (State.QUEUED, 1, 0)


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
    assert "w1" not in made.pools["a"].idle


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
    assert made.batch_due(T) == T
    assert {s.id for s in made.next_batch(T).settlements} == {"job-0", "job-1", "job-2"}
