"""The ledger with pauses, sleepers, and what else is to be written."""

import pytest
from ledger_builders import T, claims, fast, grant, ledger, named, request, serve, working

from chargehand.model.batch import Grant, Result, Want
from chargehand.model.chores import Forgive
from chargehand.model.held import SECONDS_AHEAD
from chargehand.model.job import Done, State
from chargehand.model.ledger import CHORE_WAIT, POLL, UNTOLD, Ledger

ME, OTHER = "worker:a:0", "worker:a:1"


def handed(of: Ledger, *scopes: str) -> list[str]:
    return [f"{worker} {named(todo)}" for worker, todo in of.pause(scopes, T)]


# pauses


# spec: PD-1, WK-3
@pytest.mark.parametrize("scope", ["*", "a"])
def test_a_paused_crew_wants_nothing(scope: str) -> None:
    made = ledger("a", "b")
    serve(made, ME)
    serve(made, "worker:b:0", crew="b")
    assert handed(made, scope) == []
    wants = made.next_batch(T).wants
    assert wants == (() if scope == "*" else (Want("b", "queue-b", 1),))


# spec: PD-1
def test_nothing_is_asked_for_a_paused_crew_however_long() -> None:
    made = ledger()
    serve(made, ME)
    made.pause(["a"], T)
    made.hint()
    assert made.next_batch(T).wants == ()
    made.confirm(Result(), T)
    assert made.batch_due(T) == T + POLL + UNTOLD
    assert made.next_batch(T + 5 * POLL).wants == ()


# spec: PD-1
def test_a_pause_gives_back_what_was_never_handed_out_and_lets_the_rest_finish() -> None:
    made = fast(working(), SECONDS_AHEAD / 10)
    made.next_batch(T)
    grant(made, 1, 2)
    assert handed(made, "a") == []
    assert [(s.id, s.state, s.outcome) for s in made.next_batch(T).settlements] == [
        ("job-1", State.QUEUED, None),
        ("job-2", State.QUEUED, None),
    ]
    made.confirm(Result(), T)
    assert list(made.held) == ["w0"]
    assert made.finished("w0", Done(), T, None) is None
    assert [s.state for s in made.next_batch(T).settlements] == [State.DONE]


# spec: PD-1, WK-3
def test_what_is_claimed_while_the_pause_comes_goes_back() -> None:
    made = ledger()
    serve(made, ME)
    made.next_batch(T)
    made.pause(["*"], T)
    assert grant(made, 1) == []
    assert [s.id for s in made.next_batch(T).settlements] == ["job-1"]


# spec: PD-1
def test_a_resume_is_asked_about_at_once() -> None:
    made = ledger()
    serve(made, ME)
    made.pause(["a"], T)
    made.next_batch(T)
    made.confirm(Result(), T)
    assert handed(made) == []
    assert made.batch_due(T) == T
    batch = made.next_batch(T)
    assert (batch.wants, batch.poll) == ((Want("a", "queue-a", 1),), False)


# spec: PD-1, SV-10
def test_a_paused_worker_is_handed_nothing_and_its_crew_works_on() -> None:
    made = ledger()
    serve(made, ME, OTHER)
    assert handed(made, ME) == []
    assert made.next_batch(T).wants == (Want("a", "queue-a", 1),)
    assert grant(made, 1) == [f"{OTHER} job-1"]
    made.finished(OTHER, Done(), T, None)
    assert list(made.pools["a"].idle) == [OTHER]


# spec: PD-1, SV-10
def test_a_paused_worker_finishes_what_it_has() -> None:
    made = ledger()
    serve(made, ME)
    made.next_batch(T)
    grant(made, 1)
    made.pause([ME], T)
    assert made.held[ME].claim.id == "job-1"
    assert made.finished(ME, Done(), T, None) is None
    assert ME not in made.pools["a"].idle
    assert [s.state for s in made.next_batch(T).settlements] == [State.DONE]


# spec: PD-1, WP-5
def test_a_worker_that_comes_up_paused_is_handed_nothing() -> None:
    made = ledger()
    made.pause([ME], T)
    serve(made, ME)
    assert made.next_batch(T).wants == ()
    made.confirm(Result(), T)
    made.pause([], T)
    assert made.next_batch(T).wants == (Want("a", "queue-a", 1),)


# spec: PD-1
def test_a_resumed_worker_is_handed_what_waits_in_memory() -> None:
    made = fast(ledger(), SECONDS_AHEAD / 10)
    serve(made, ME, OTHER)
    made.pause([ME], T)
    made.next_batch(T)
    assert grant(made, 1, 2, 3) == [f"{OTHER} job-1"]
    assert handed(made) == [f"{ME} job-2"]
    assert made.held[ME].claim.id == "job-2"


# spec: PD-1, SV-10
@pytest.mark.parametrize("scopes", [["*"], ["a"], [ME]])
def test_pausing_and_resuming_twice_is_as_once(scopes: list[str]) -> None:
    made = ledger()
    serve(made, ME)
    for _ in range(2):
        assert made.pause(scopes, T) == []
    for _ in range(2):
        assert made.pause([], T) == []
    assert list(made.pools["a"].idle) == [ME]
    made.next_batch(T)
    assert grant(made, 1) == [f"{ME} job-1"]


# spec: PD-1, WP-6
@pytest.mark.parametrize("how", ["busy", "dismissed", "gone"])
def test_a_resume_hands_nothing_to_who_cannot_take_it(how: str) -> None:
    made = fast(ledger(), SECONDS_AHEAD / 10)
    serve(made, ME, OTHER)
    made.next_batch(T)
    grant(made, 1, 2, 3, 4)
    made.pause([ME], T)
    if how != "busy":
        made.finished(ME, Done(), T, None)
    if how == "dismissed":
        made.dismiss(ME)
    elif how == "gone":
        made.gone(ME, Done(), T, None)
    assert made.pause([], T) == []
    assert ME not in made.pools["a"].idle


# spec: PD-1
def test_a_pause_of_the_crew_and_of_the_worker_are_two() -> None:
    made = ledger()
    serve(made, ME)
    made.pause(["a", ME], T)
    made.pause([ME], T)
    assert made.next_batch(T).wants == ()
    made.confirm(Result(), T)
    made.pause(["a"], T)
    assert made.next_batch(T).wants == ()
    made.confirm(Result(), T)
    made.pause([], T)
    assert made.next_batch(T).wants == (Want("a", "queue-a", 1),)


# sleepers


def sleeping(asleep: int = 2) -> Ledger:
    made = ledger()
    made.pools["a"].asleep = asleep
    return made


# spec: WP-3
def test_a_crew_that_sleeps_asks_whether_there_is_work() -> None:
    made = sleeping()
    assert made.batch_due(T) == T
    assert made.next_batch(T).wants == (Want("a", "queue-a", 0, 2),)
    made.confirm(Result(grants=(Grant("a", (), None, 0),)), T)
    assert made.waiting() == {}
    assert made.batch_due(T) == T + POLL + UNTOLD
    batch = made.next_batch(T + POLL)
    assert (batch.wants, batch.poll) == ((Want("a", "queue-a", 0, 2),), True)


# spec: WP-3
def test_work_for_sleepers_is_told_once() -> None:
    made = sleeping()
    made.next_batch(T)
    assert made.confirm(Result(grants=(Grant("a", (), None, 2),)), T) == []
    assert made.waiting() == {"a": 2}
    assert made.waiting() == {}


# spec: WP-3
def test_who_is_awake_is_served_and_the_rest_is_for_the_sleepers() -> None:
    made = sleeping()
    serve(made, "w0")
    assert made.next_batch(T).wants == (Want("a", "queue-a", 1, 2),)
    made.confirm(Result(grants=(Grant("a", claims(1), None, 1),)), T)
    assert list(made.held) == ["w0"]
    assert made.waiting() == {"a": 1}


# spec: WP-3, WK-3
def test_a_sleeping_crew_asks_again_when_the_next_job_falls_due() -> None:
    made = sleeping()
    made.next_batch(T)
    made.confirm(Result(grants=(Grant("a", (), 300, 0),)), T)
    assert made.batch_due(T) == pytest.approx(T + 0.3)
    batch = made.next_batch(T + 0.3)
    assert (batch.wants, batch.poll) == ((Want("a", "queue-a", 0, 2),), False)


# spec: WP-3, PD-1
def test_a_paused_crew_does_not_ask_for_its_sleepers() -> None:
    made = sleeping()
    made.pause(["a"], T)
    made.hint()
    assert made.next_batch(T).wants == ()
    made.confirm(Result(), T)
    assert made.batch_due(T) == T + POLL + UNTOLD
    assert made.next_batch(T + POLL).wants == ()


# spec: WP-3, PD-3
def test_a_closed_ledger_does_not_ask_for_its_sleepers() -> None:
    made = sleeping()
    made.close(T)
    assert made.next_batch(T).wants == ()


# chores

ONE, TWO = Forgive("one"), Forgive("two")


# spec: SV-3, HP-1
def test_a_chore_is_written_at_once_if_nobody_waits_for_the_work() -> None:
    made = ledger()
    made.chore(ONE, T)
    made.chore(TWO, T)
    assert made.batch_due(T) == T
    assert made.next_batch(T).chores == (ONE, TWO)
    made.confirm(Result(), T)
    assert made.next_batch(T).chores == ()


# spec: SV-3
@pytest.mark.parametrize("work", ["outcome", "request"])
def test_a_chore_gives_way_to_the_work_but_not_for_long(work: str) -> None:
    made = working(2)
    made.chore(ONE, T)
    if work == "outcome":
        made.finished("w0", Done(), T, None)
    else:
        made.enqueue(request("x"), T)
    assert made.next_batch(T).chores == ()
    made.confirm(Result(), T)
    made.enqueue(request("y"), T + CHORE_WAIT)
    assert made.next_batch(T + CHORE_WAIT).chores == (ONE,)


# spec: SV-3
def test_chores_of_a_batch_that_failed_are_kept_in_order() -> None:
    made = ledger()
    made.chore(ONE, T)
    made.next_batch(T)
    made.chore(TWO, T)
    made.failed(T, 0.5)
    assert made.batch_due(T) == T + 0.5
    assert made.next_batch(T + 0.5).chores == (ONE, TWO)


# spec: PD-3
def test_a_ledger_is_not_settled_while_a_chore_waits() -> None:
    made = ledger()
    made.close(T)
    made.chore(ONE, T)
    assert not made.settled
    made.next_batch(T)
    assert not made.settled
    made.confirm(Result(), T)
    assert made.settled
