"""Which worker receives which job if workers perform several at the same time, and what is written of each."""

import pytest

from chargehand.model.batch import Grant, Result
from chargehand.model.concurrent import PATIENCE, SlotPool
from chargehand.model.job import Claim, Crashed, Done, Outcome, State, TimedOut
from chargehand.model.ledger import Ledger, Todo

ONE, TWO = "worker:do:0", "worker:do:1"
T = 100.0


def ledger(workers: int = 1, concurrency: int = 3) -> Ledger:
    made = Ledger([("do", "do")], lambda: 0.0, T, concurrency={"do": concurrency})
    for worker in (ONE, TWO)[:workers]:
        made.welcome(worker, "do", T)
    return made


def claim(job: str, *, seq: int = 0, crashes: int = 0) -> Claim:
    return Claim(
        id=job, seq=seq, number=1, first=True, queue="do", payload="null", label=None, priority=0, failures=0,
        max_attempts=3, crashes=crashes, timeout_ms=None,
    )  # fmt: skip


def pool_of(made: Ledger) -> SlotPool:
    pool = made.pools["do"]
    assert isinstance(pool, SlotPool)
    return pool


def grant(made: Ledger, *claims: Claim, now: float = T) -> dict[str, list[str]]:
    """The store grants these; who gets which."""
    made.hint()
    made.next_batch(now)
    return ids(made.confirm(Result(grants=(Grant("do", claims, None),)), now))


def ids(handed: list[tuple[str, Todo]]) -> dict[str, list[str]]:
    return {worker: [each.id for each in todo] for worker, todo in handed if isinstance(todo, list)}


def end(made: Ledger, worker: str, job: str, outcome: Outcome | None = None, now: float = T) -> None:
    made.finished(worker, outcome or Done("null"), now, 1, job)


def wanted(made: Ledger, now: float = T) -> int:
    made.hint()
    batch = made.next_batch(now)
    made.failed(now, 0.0)
    return sum(want.limit for want in batch.wants)


# spec: WP-15
def test_jobs_are_spread_and_never_more_than_the_slots() -> None:
    made = ledger(2)
    assert wanted(made) == 6
    assert grant(made, *(claim(f"j{n}") for n in range(4))) == {ONE: ["j0", "j2"], TWO: ["j1", "j3"]}
    assert wanted(made) == 2
    end(made, ONE, "j0")
    end(made, ONE, "j2")
    assert ONE not in made.held
    assert wanted(made) == 4


# spec: WP-15 WK-5
def test_each_is_settled_with_its_own_duration_and_outcome() -> None:
    made = ledger()
    grant(made, claim("a"), now=T)
    grant(made, claim("b"), now=T + 1)
    end(made, ONE, "b", now=T + 3)
    end(made, ONE, "a", TimedOut("late"), now=T + 5)
    found = {each.id: (each.outcome, each.duration_ms) for each in made.next_batch(T + 5).settlements}
    assert found == {"b": ("done", 2000), "a": ("timed out", 5000)}


# spec: WP-15 WK-9
def test_each_worker_and_progress_is_noted() -> None:
    made = ledger()
    grant(made, claim("a", seq=1))
    made.progress(ONE, '{"done":1}', T, "a")
    notes = made.next_batch(T + 1).notes
    assert [(note.seq, note.worker, note.progress) for note in notes] == [(1, ONE, '{"done":1}')]
    made.confirm(Result(), T + 1)
    grant(made, claim("b", seq=2), now=T + 1.1)
    made.progress(ONE, '{"done":2}', T + 1.2, "a")
    notes = made.next_batch(T + 1.3).notes
    assert [(note.seq, note.progress) for note in notes] == [(2, None)], "progress at most once a second"
    made.failed(T + 1.3, 0.0)
    notes = made.next_batch(T + 2.5).notes
    assert {(note.seq, note.progress) for note in notes} == {(1, '{"done":2}'), (2, None)}


# spec: WP-15 WK-6
def test_a_job_that_crashed_a_worker_is_alone() -> None:
    made = ledger()
    bad = claim("bad", crashes=1)
    assert grant(made, bad, claim("good")) == {ONE: ["bad"]}
    assert pool_of(made).room(T) == 0, "nothing beside it"
    end(made, ONE, "bad")
    assert ids(made.gathered(T)) == {ONE: ["good"]}


# spec: WP-15 WK-6 WK-14
def test_a_worker_is_reserved_for_a_job_that_must_be_alone() -> None:
    made = ledger(2)
    grant(made, claim("a"), claim("b"))
    assert grant(made, claim("bad", crashes=1), claim("worse", crashes=1)) == {}
    pool = pool_of(made)
    returned = [each for each in made.next_batch(T).settlements if each.state is State.QUEUED]
    assert [each.id for each in returned] == ["bad", "worse"]
    assert 0 < returned[0].delay_ms < returned[1].delay_ms, "one after the other"
    made.confirm(Result(), T)
    assert pool.reserved == ONE
    assert wanted(made) == 2, "only the other worker takes jobs"
    end(made, ONE, "a", now=T + 0.01)
    assert pool.room(T + 0.01) == 2
    due = T + returned[0].delay_ms / 1000
    assert pool.room(due + 0.01) == 3, "it takes the job when that is due"
    assert grant(made, claim("bad", crashes=1), now=due + 0.01) == {ONE: ["bad"]}


# spec: WP-15
def test_a_reserved_worker_that_waits_in_vain_is_released() -> None:
    made = ledger()
    grant(made, claim("a"))
    grant(made, claim("bad", crashes=1))
    made.next_batch(T)
    made.confirm(Result(), T)
    end(made, ONE, "a", now=T + 5)
    assert pool_of(made).reserved == ONE, "however long it took"
    later = T + 5 + PATIENCE
    assert made.gathered_due(T + 5) == pytest.approx(later)
    made.gathered(later)
    assert pool_of(made).reserved is None
    assert pool_of(made).room(later) == 3


# spec: WP-15 WK-6
def test_all_are_charged_for_a_death_and_only_the_guilty_for_a_replacement() -> None:
    for blamed, expected in ((None, ["crashed"] * 2), ({"a"}, ["crashed", "interrupted"])):
        made = ledger()
        grant(made, claim("a"), claim("b"))
        made.gone(ONE, Crashed("it died"), T + 1, 1, blamed)
        assert [each.outcome for each in made.next_batch(T + 1).settlements] == expected


# spec: WP-15
def test_a_blocked_worker_gets_nothing() -> None:
    made = ledger(2)
    made.block(ONE, True)
    assert grant(made, claim("a"), claim("b")) == {TWO: ["a", "b"]}
    made.block(ONE, False)
    assert wanted(made) == 4


# spec: PD-1 WP-15
def test_a_paused_worker_goes_on_with_what_it_has_and_is_given_more_when_it_is_resumed() -> None:
    made = ledger()
    grant(made, claim("a"))
    made.pause([ONE], T)
    assert wanted(made) == 0
    made.pause([], T)
    assert wanted(made) == 2


# spec: WP-3
def test_as_many_sleeping_workers_are_woken_as_the_jobs_need() -> None:
    made = ledger()
    pool_of(made).asleep = 2
    made.hint()
    (want,) = made.next_batch(T).wants
    assert (want.limit, want.asleep) == (3, 6)
    made.confirm(Result(grants=(Grant("do", (), None, 4),)), T)
    assert made.waiting() == {"do": 2}
