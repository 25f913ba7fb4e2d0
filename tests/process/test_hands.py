"""Short jobs that workers are handed several at a time: who pays for a death, and what is called back."""

from collections.abc import Callable
from typing import Any

import pytest
from fault_checks import BRISK, LIMITED
from world import World

from chargehand import Chargehand, Crew, JobFailed, Ref
from chargehand.model.job import State
from chargehand.testing import eventually

MakeHand = Callable[..., Chargehand]
SHORT = "short_handlers:Short"


def warm(crew: Crew[Any, Any]) -> None:
    """Lets the node learn that the jobs of the crew are short."""
    for ref in crew.enqueue_many([{}] * 100):
        ref.wait(20)


def among(world: World, crew: Crew[Any, Any], count: int, **odd: Any) -> tuple[Ref[Any], list[Ref[Any]]]:
    """Enqueues short jobs in one transaction, and one in their midst that is different."""
    payloads: list[dict[str, Any]] = [{"ledger": str(world.ledger)} for _ in range(count)]
    payloads[count // 3] |= odd
    refs = crew.enqueue_many(payloads)
    return refs.pop(count // 3), refs


# spec: WK-18, WK-6
def test_only_the_job_that_was_begun_pays_for_a_death(make_hand: MakeHand, world: World) -> None:
    hand = make_hand(restart=LIMITED)
    crew = hand.crew("do", SHORT, workers=2)
    with hand.running():
        warm(crew)
        killer, others = among(world, crew, 300, do="die")
        for ref in others:
            ref.wait(30)
        with pytest.raises(JobFailed, match="poison"):
            killer.wait(30)
        jobs = [ref.job() for ref in others]
    assert {(job.crashes, job.interruptions, job.failures) for job in jobs} == {(0, 0, 0)}
    assert sorted(job for job, _ in world.lines("start") if job != killer.id) == sorted(ref.id for ref in others)
    assert killer.job().crashes == 3


# spec: WK-18
@pytest.mark.parametrize("how", [{"do": "hold", "seconds": 1.5}, {"do": "stop"}])
def test_what_waits_behind_a_job_that_takes_long_runs_elsewhere(
    make_hand: MakeHand, world: World, how: dict[str, Any]
) -> None:
    hand = make_hand(liveness=BRISK, restart=LIMITED)
    crew = hand.crew("do", SHORT, workers=2)
    with hand.running():
        warm(crew)
        odd, others = among(world, crew, 200, **how)
        for ref in others:
            ref.wait(30)
        assert odd.job().finished_ms is None, "the others did not wait for it"
        assert {(job.crashes, job.interruptions, job.failures) for job in (ref.job() for ref in others)} == {(0, 0, 0)}
        if how["do"] == "hold":
            eventually(lambda: odd.job().state is State.RUNNING, what="it is shown as running while it runs")
            assert isinstance(odd.wait(20), int)
        else:
            eventually(lambda: odd.job().crashes or odd.job().state is State.FAILED, 40)


# spec: WK-18
def test_each_outcome_counts_for_its_own_job(make_hand: MakeHand, world: World) -> None:
    hand = make_hand()
    crew = hand.crew("do", SHORT, workers=2, max_attempts=1)
    with hand.running():
        warm(crew)
        odd, others = among(world, crew, 200, do="raise")
        with pytest.raises(JobFailed, match="as told"):
            odd.wait(30)
        assert len({ref.wait(30) for ref in others}) == 2
        assert all(ref.job().started_ms is not None and len(hand.attempts(ref.id)) == 1 for ref in others[:20])


# spec: WK-18, WK-8, PD-1
def test_a_pause_leaves_the_rest_in_the_queue_and_a_cancelled_job_is_not_run(make_hand: MakeHand, world: World) -> None:
    hand = make_hand()
    crew = hand.crew("do", SHORT, workers=2)
    with hand.running():
        warm(crew)
        hand.pause("do")
        odd, others = among(world, crew, 2000, do="hold", seconds=0.2)
        cancelled = others.pop()
        hand.resume("do")
        hand.cancel(cancelled.id)
        hand.pause("do")
        eventually(lambda: all(count.running == 0 for count in hand.counts()), 20)
        hand.resume("do")
        for ref in (odd, *others):
            ref.wait(30)
        started = [job for job, _ in world.lines("start")]
        assert len(started) == len(set(started)), "nothing was begun twice"
        if cancelled.job().state is State.CANCELLED:
            assert cancelled.id not in started


# spec: WP-10
def test_what_a_short_job_prints_is_not_attributed_to_another(make_hand: MakeHand, world: World) -> None:
    hand = make_hand()
    crew = hand.crew("do", SHORT, workers=1)
    with hand.running():
        warm(crew)
        refs = crew.enqueue_many([{"do": "print"}] * 30)
        for ref in refs:
            ref.wait(20)
        more = crew.enqueue_many([{"do": "print"}] * 5)
        for ref in more:
            ref.wait(20)

        def said() -> list[tuple[str | None, str]]:
            """Which job each line is attributed to, and which job has printed it."""
            lines = (line for line in hand.logs(count=1000) if line["text"].startswith("hello from "))
            return [(line["job"], line["text"].rpartition(" ")[2]) for line in lines]

        eventually(lambda: len(said()) == 35, what="all lines are logged")
        lines = said()
    assert all(shown in (None, printed) for shown, printed in lines)
    assert [shown for shown, _ in lines[-5:]] == [ref.id for ref in more], "from then on it is known"
