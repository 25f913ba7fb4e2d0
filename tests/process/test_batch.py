"""Crews that take several jobs at once: real processes, real deaths; each job has its own end."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from world import World

from chargehand import Chargehand, ConfigurationError, JobCancelled, JobFailed, LivenessPolicy
from chargehand.crew import Crew, Ref
from chargehand.model.job import State
from chargehand.testing import eventually

MakeHand = Callable[..., Chargehand]
LONG = 60_000
"""A wait for others that does not end in a test: only full batches go."""


def batches(world: World) -> list[list[str]]:
    """The ids that were performed together, in order."""
    return [words[1:] for words in world.lines("batch")]


def put(world: World, crew: Crew[Any, Any], *payloads: dict[str, Any], **options: Any) -> list[Ref[Any]]:
    """Enqueue these in one transaction: they can be claimed together."""
    return crew.enqueue_many([{"ledger": world.ledger, **payload} for payload in payloads], **options)


def ids(refs: list[Ref[Any]]) -> list[str]:
    return [ref.id for ref in refs]


# together


@pytest.mark.parametrize("handler", ["Batcher", "AsyncBatcher"])
def test_jobs_are_performed_together(hand: Chargehand, world: World, handler: str) -> None:  # spec: WK-3 WK-5 WP-3
    crew = hand.crew("do", f"batch_handlers:{handler}", workers=1, batch=16, batch_wait_ms=LONG)
    refs = put(world, crew, *({"result": n} for n in range(48)))
    with hand.running():
        assert [ref.wait(20) for ref in refs] == list(range(48))
    assert batches(world) == [ids(refs[n : n + 16]) for n in (0, 16, 32)]
    assert [(len(ref.attempts()), ref.job().attempts) for ref in refs] == [(1, 0)] * 48


def test_a_few_go_after_the_wait(hand: Chargehand, world: World) -> None:  # spec: WK-3
    crew = hand.crew("do", "batch_handlers:Batcher", workers=1, batch=16, batch_wait_ms=20)
    refs = put(world, crew, *[{}] * 19)
    with hand.running():
        assert [ref.wait(20) for ref in refs] == [16] * 16 + [3] * 3
    assert batches(world) == [ids(refs[:16]), ids(refs[16:])]


def test_those_that_come_meanwhile_join(hand: Chargehand, world: World) -> None:  # spec: WK-3 WK-14
    crew = hand.crew("do", "batch_handlers:Batcher", workers=1, batch=4, batch_wait_ms=LONG)
    with hand.running():
        refs = [world.put(crew) for _ in range(3)]
        eventually(lambda: len(hand.claims()) == 3, what="all are claimed and wait")
        assert {ref.job().state for ref in refs} == {State.QUEUED}  # no worker has them
        assert batches(world) == []
        refs.append(world.put(crew))
        assert [ref.wait(20) for ref in refs] == [4] * 4
    assert batches(world) == [ids(refs)]


def test_the_highest_priority_goes_first(hand: Chargehand, world: World) -> None:  # spec: WK-3
    crew = hand.crew("do", "batch_handlers:Batcher", workers=1, batch=4, batch_wait_ms=LONG)
    low, high = put(world, crew, *[{}] * 4, priority=1), put(world, crew, *[{}] * 4, priority=5)
    with hand.running():
        for ref in low + high:
            ref.wait(20)
    assert batches(world) == [ids(high), ids(low)]


def test_two_workers_share_the_batches(hand: Chargehand, world: World) -> None:  # spec: WK-3 WP-9
    crew = hand.crew("do", "batch_handlers:Batcher", workers=2, batch=8, batch_wait_ms=5, recycle_jobs=40)
    refs = put(world, crew, *[{}] * 400)
    with hand.running():
        for ref in refs:
            ref.wait(60)
    together = batches(world)
    assert sorted(job for batch in together for job in batch) == sorted(ids(refs))
    assert max(map(len, together)) == 8
    assert {ref.job().interruptions for ref in refs} == {0}
    assert len({pid for pid, *_ in world.lines("batch")}) >= 4, "recycled by the jobs that they did"


def test_a_batch_of_one_uses_perform(hand: Chargehand) -> None:  # spec: WK-5
    crew = hand.crew("do", "batch_handlers:OneByOne", workers=1, batch=1)
    with hand.running():
        assert crew.enqueue({}).wait(20) == "alone"


def test_what_a_crew_finds_is_performed_together(hand: Chargehand, world: World) -> None:  # spec: WK-10
    crew = hand.crew(
        "find",
        "batch_handlers:Finder",
        discovers=True,
        workers=1,
        batch=4,
        batch_wait_ms=20,
        environment={"FOLDER": str(world.folder)},
    )
    with hand.running():
        eventually(lambda: len(list(world.folder.glob("found-*"))) == 10, what="all that it finds is done")
        eventually(lambda: sum(counts.running for counts in hand.counts()) == 0, what="and settled")
    assert sorted(len(batch) for batch in batches(world)) == [2, 4, 4]
    assert crew.plan.batch == 4


# each by itself


def test_each_has_its_own_end(hand: Chargehand, world: World) -> None:  # spec: WK-2 WK-5
    crew = hand.crew("do", "batch_handlers:Batcher", workers=1, batch=6, batch_wait_ms=20, max_attempts=2)
    after = [("do", {"ledger": world.ledger, "result": "after"})]
    ends = (
        {},
        {"end": "raise"},
        {"end": "retry"},
        {"end": "give up", "follow": after},
        {"end": "object"},
        {"follow": after},
    )
    refs = put(world, crew, *ends)
    good, raising, retried, hopeless, odd, last = refs
    with hand.running():
        assert [good.wait(20), last.wait(20)] == [6, 6]
        assert retried.wait(20) == 1, "alone, the second time"
        for ref, how in ((raising, "as told"), (hopeless, "gave up"), (odd, "cannot be written as JSON")):
            with pytest.raises(JobFailed, match=how):
                ref.wait(20)
        eventually(lambda: hand.counts()[0].done == 4, what="the one that the last one enqueued")
    assert batches(world)[0] == ids(refs)
    assert [ref.job().attempts for ref in refs] == [0, 2, 1, 1, 1, 0]
    assert "RuntimeError: as told" in (raising.job().error or "")
    assert hand.counts()[0].failed == 3


def test_a_payload_of_the_wrong_type_fails_alone(hand: Chargehand, world: World) -> None:  # spec: WK-5 SE-3
    crew = hand.crew("do", "batch_handlers:Batcher", workers=1, batch=3, batch_wait_ms=LONG)
    refs = crew.enqueue_many([{"ledger": world.ledger}, ["no", "dict"], {"ledger": world.ledger}])
    with hand.running():
        assert [refs[0].wait(20), refs[2].wait(20)] == [2, 2]
        with pytest.raises(JobFailed, match="gave up"):
            refs[1].wait(20)


@pytest.mark.parametrize(
    ("how", "error"), [("short", "2 results for 3 jobs"), ("text", "returned a str"), ("raise", "all of them")]
)
def test_what_is_wrong_with_all_fails_all(hand: Chargehand, world: World, how: str, error: str) -> None:  # spec: WK-5
    crew = hand.crew("do", "batch_handlers:Batcher", workers=1, batch=3, batch_wait_ms=LONG, max_attempts=1)
    refs = put(world, crew, {}, {"all": how}, {})
    with hand.running():
        for ref in refs:
            with pytest.raises(JobFailed, match=error):
                ref.wait(20)


# deaths


def test_one_poison_among_many_is_quarantined_alone(hand: Chargehand, world: World) -> None:  # spec: WK-6 RP-7
    crew = hand.crew("do", "batch_handlers:Batcher", workers=2, batch=16, batch_wait_ms=LONG)
    refs = put(world, crew, *({"end": "exit"} if n == 7 else {} for n in range(16)))
    bad = refs.pop(7)
    with hand.running():
        with pytest.raises(JobFailed, match="poison"):
            bad.wait(60)
        assert [ref.wait(20) for ref in refs] == [1] * 15
        assert [worker["status"] for worker in (hand.status() or {})["workers"]].count("failed") == 0
    assert [(ref.job().state, ref.job().crashes, ref.job().attempts) for ref in refs] == [(State.DONE, 1, 0)] * 15
    assert (bad.job().crashes, bad.job().reason) == (3, "poison")
    assert "and 15 more, ended" in (bad.attempts()[0].error or "")
    first, *others = batches(world)
    assert (len(first), {len(batch) for batch in others}) == (16, {1})


def test_a_kill_in_the_middle_brings_all_back(hand: Chargehand, world: World) -> None:  # spec: WK-6 SV-2
    crew = hand.crew("do", "batch_handlers:Batcher", workers=1, batch=8, batch_wait_ms=LONG)
    gate = world.gate()
    refs = put(world, crew, *[{}] * 7, {"gate": str(gate)})
    with hand.running():
        os.kill(world.started(refs[-1]), signal.SIGKILL)
        gate.touch()
        assert [ref.wait(20) for ref in refs] == [1] * 8
    assert {(ref.job().crashes, ref.job().attempts, len(ref.attempts())) for ref in refs} == {(1, 0, 2)}


def test_a_stop_interrupts_all_of_a_batch(make_hand: MakeHand, world: World) -> None:  # spec: WP-6 PD-3 WK-6
    short = LivenessPolicy(beat=0.2, silent=60, grace=0.2, terminate=0.2)
    first = make_hand(liveness=short)
    crew = first.crew("do", "batch_handlers:Batcher", workers=1, batch=3, batch_wait_ms=LONG)
    gate = world.gate()
    refs = put(world, crew, {}, {}, {"gate": str(gate)})
    with first.running():
        world.started(refs[-1])
    assert {(ref.job().state, ref.job().interruptions, ref.job().crashes) for ref in refs} == {(State.QUEUED, 1, 0)}
    gate.touch()
    with first.running():
        assert [ref.wait(20) for ref in refs] == [3] * 3, "they may go together again"


def test_a_drain_lets_the_batch_finish(hand: Chargehand, world: World) -> None:  # spec: PD-2
    crew = hand.crew("do", "batch_handlers:Batcher", workers=1, batch=3, batch_wait_ms=LONG)
    gate = world.gate()
    refs = put(world, crew, {}, {}, {"gate": str(gate)})
    with hand.running():
        world.started(refs[-1])
        (worker,) = (hand.status() or {})["workers"]
        assert (worker["current_job"], worker["batch_jobs"]) == (refs[0].id, ids(refs))
        (answer,) = hand.drain("do")
        assert answer.text == f"finishes {refs[0].id} and 2 more, then stops"
        gate.touch()
        assert [ref.wait(20) for ref in refs] == [3] * 3
        eventually(lambda: (hand.status() or {})["workers"][0]["status"] == "stopped", what="it has stopped")


# time


def test_over_time_all_that_are_in_hand_are_timed_out(hand: Chargehand, world: World) -> None:  # spec: WK-7
    crew = hand.crew("do", "batch_handlers:Batcher", workers=1, batch=2, batch_wait_ms=LONG, max_attempts=1)
    gate = str(world.gate())
    refs = [world.put(crew, options={"timeout": 0.2}), world.put(crew, Path(gate), options={"timeout": 0.4})]
    with hand.running():
        for ref in refs:
            with pytest.raises(JobFailed, match="timed out"):
                ref.wait(20)
    assert [attempt.outcome for ref in refs for attempt in ref.attempts()] == ["timed out"] * 2
    assert all(attempt.duration_ms >= 400 for ref in refs for attempt in ref.attempts())


# cancelling


def cancelled(ref: Ref[Any]) -> None:
    with pytest.raises(JobCancelled):
        ref.wait(20)
    assert ref.job().state is State.CANCELLED


def test_one_that_heeds_its_cancel_ends_and_the_others_go_on(hand: Chargehand, world: World) -> None:  # spec: WK-8
    crew = hand.crew("do", "batch_handlers:Batcher", workers=1, batch=3, batch_wait_ms=LONG)
    refs = put(world, crew, {}, {"gate": str(world.gate()), "heeds": True}, {})
    with hand.running():
        pid = world.started(refs[1])
        refs[1].cancel()
        cancelled(refs[1])
        assert [refs[0].wait(20), refs[2].wait(20)] == [3, 3]
        assert (hand.status() or {})["workers"][0]["pid"] == pid
    assert len(batches(world)) == 1


def test_a_cancel_that_stops_the_handler_has_the_others_performed_again(  # spec: WK-8 WK-9
    hand: Chargehand, world: World
) -> None:
    crew = hand.crew("do", "batch_handlers:Batcher", workers=1, batch=3, batch_wait_ms=LONG)
    slow = world.gate()
    refs = put(world, crew, {}, {"gate": f"{slow}-never", "steps": 4}, {"gate": str(slow)})
    with hand.running():
        pid = world.started(refs[1])
        how_far = eventually(lambda: refs[1].job().progress, what="its progress is in the store")
        assert b'"done":4' in bytes(how_far or b"")
        refs[1].cancel()
        cancelled(refs[1])  # before the others are through
        eventually(lambda: len(batches(world)) == 2, what="the others are performed again")
        slow.touch()
        assert [refs[0].wait(20), refs[2].wait(20)] == [2, 2]
    assert batches(world) == [ids(refs), ids([refs[0], refs[2]])]
    assert {int(words[0]) for words in world.lines("batch")} == {pid}
    assert [(ref.job().attempts, ref.job().progress) for ref in (refs[0], refs[2])] == [(0, None)] * 2


def test_one_that_does_not_heed_its_cancel_costs_the_others_nothing(make_hand: MakeHand, world: World) -> None:
    """Spec: WK-8. The worker is replaced; the cancelled job ends, the others are interrupted and done."""
    hand = make_hand(liveness=LivenessPolicy(beat=0.2, silent=60, grace=2.0, terminate=0.2, cancel=0.2))
    crew = hand.crew("do", "batch_handlers:Batcher", workers=1, batch=3, batch_wait_ms=20)
    refs = put(world, crew, {}, {"gate": str(world.gate())}, {})
    with hand.running():
        pid = world.started(refs[1])
        refs[1].cancel()
        cancelled(refs[1])
        assert [refs[0].wait(20), refs[2].wait(20)] == [2, 2], "together again: nothing is held against them"
        assert world.starts(refs[0])[-1] != pid
    jobs = [ref.job() for ref in (refs[0], refs[2])]
    assert {(job.interruptions, job.attempts, job.crashes) for job in jobs} == {(1, 0, 0)}


def test_one_that_waits_to_be_joined_is_cancelled_at_once(hand: Chargehand, world: World) -> None:  # spec: WK-8
    crew = hand.crew("do", "batch_handlers:Batcher", workers=1, batch=3, batch_wait_ms=LONG)
    with hand.running():
        refs = [world.put(crew), world.put(crew)]
        eventually(lambda: len(hand.claims()) == 2, what="both are claimed and wait")
        refs[0].cancel()
        cancelled(refs[0])
        refs += [world.put(crew), world.put(crew)]
        assert [ref.wait(20) for ref in refs[1:]] == [3] * 3
    assert refs[0].attempts() == []


# settings


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"batch": 0}, "batch is 0; must be 1 to 1000"),
        ({"batch": 1001}, "batch is 1001; must be 1 to 1000"),
        ({"batch": "16"}, "batch"),
        ({"batch_wait_ms": -1}, "batch_wait_ms is -1; must be 0 to 60000"),
        ({"batch_wait_ms": 60_001}, "batch_wait_ms is 60001"),
        ({"batch": 2, "transactional": True}, "transactional"),
    ],
)
def test_a_wrong_setting_is_named(hand: Chargehand, options: dict[str, Any], error: str) -> None:  # spec: CF-1
    with pytest.raises(ConfigurationError, match=error):
        hand.crew("do", "batch_handlers:Batcher", **options)


def test_a_crew_whose_handler_takes_no_batches_is_given_up_in_words(hand: Chargehand) -> None:  # spec: WP-8 RP-5
    hand.crew("do", "batch_handlers:OneByOne", workers=1, batch=2)
    with hand.running():
        (worker,) = eventually(
            lambda: [w for w in (hand.status() or {}).get("workers", ()) if w["status"] == "failed"], what="given up"
        )
    assert "has no perform_batch(jobs), but its crew has batch=2" in worker["text"]
