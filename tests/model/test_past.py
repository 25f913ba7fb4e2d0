"""The past of queues: a point when something changed, never too many, never too often."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chargehand.live.bodies import QueueBody
from chargehand.model.past import MOST_QUEUES, NEVER, SHARE, SPAN, STEP, TIMES, Past

MS = int(STEP * 1000)


def queue(name: str | None = "tag", queued: int = 0, **more: Any) -> QueueBody:
    return QueueBody(name=name, queued=queued, **more)


def test_it_looks_only_while_figures_move() -> None:  # spec: DB-2 EV-7
    past = Past()
    assert past.due() == NEVER
    past.stir(100.0)
    assert past.due() <= 100.0
    past.keep([queue(queued=1)], 0, 100.0)
    now, points = past.due(), 0
    while now != NEVER:
        assert now >= 110.0
        past.keep([queue(queued=1)], int(now * 1000), now)
        now, points = past.due(), points + 1
    assert 6 <= points <= 8  # until what happened has left the window of the rates
    past.stir(1000.0)
    assert past.due() <= 1000.0


def test_a_look_that_takes_long_is_taken_less_often() -> None:  # spec: EV-7
    past = Past()
    past.stir(0.0)
    past.keep([], 0, 0.0, took=0.5)
    past.stir(20.0)
    assert past.due() == 0.5 * SHARE


def test_only_changes_are_kept_and_none_of_them_as_a_slope() -> None:  # spec: DB-2
    past = Past()
    past.keep([queue(queued=5, future=2), queue(None, queued=5)], 0, 0.0)
    for at in range(1, 9):
        past.keep([queue(queued=5, future=2)], at * MS, at * STEP)
    past.keep([queue(queued=1, running=1, rate=0.5)], 9 * MS, 9 * STEP)
    (seen,) = past.view(9 * MS)
    assert {seen.pop(name)[0] for name in TIMES} == {None}
    assert [seen] == [
        {"name": "tag", "at_ms": [0, 8 * MS, 9 * MS], "waiting": [3, 3, 1], "running": [0, 0, 1],
         "failed": [0, 0, 0], "rate": [0.0, 0.0, 0.5]}
    ]  # fmt: skip


def test_a_queue_that_is_no_more_is_forgotten_and_there_are_not_too_many() -> None:
    past = Past()
    past.keep([queue(str(n)) for n in range(MOST_QUEUES + 5)], 0, 0.0)
    assert len(past.view(0)) == MOST_QUEUES
    past.keep([queue("new"), queue("7")], MS, STEP)
    assert [each["name"] for each in past.view(MS)] == ["7", "new"]


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(0, 3)), max_size=200))
def test_it_is_bounded_and_in_order(changes: list[tuple[int, int]]) -> None:
    past, at = Past(), 0
    for steps, waiting in changes * 5:
        at += steps * MS
        past.keep([queue(queued=waiting)], at, at / 1000)
    for told in past.view(at):
        assert told["at_ms"] == sorted(told["at_ms"])
        assert len(told["at_ms"]) <= SPAN / STEP
        assert sum(moment < at - SPAN * 1000 for moment in told["at_ms"]) <= 1
        assert {len(column) for name, column in told.items() if name != "name"} == {len(told["at_ms"])}
