"""Workers that perform several jobs at the same time: each job has its own claim, end, progress, cancel and timeout."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from world import World

from chargehand import (
    Chargehand,
    ConfigurationError,
    JobCancelled,
    JobFailed,
    JobPolicy,
    LivenessPolicy,
    clock,
)
from chargehand.crew import Crew, Ref
from chargehand.host.check import examine
from chargehand.model.job import State
from chargehand.testing import eventually

MakeHand = Callable[..., Chargehand]
WAITER = "concurrent_handlers:Waiter"
PATIENT = LivenessPolicy(beat=0.2, silent=60, grace=2.0, terminate=0.5, cancel=0.3, lag=0.4)
"""A job that does not end when it is cancelled is given 0.3 s; a blocked loop is found after 0.4 s."""


def crew_of(hand: Chargehand, **options: Any) -> Crew[dict[str, Any], Any]:
    options = {"workers": 1, "concurrency": 100, "handler": WAITER, **options}
    return hand.crew("do", options.pop("handler"), takes=dict, **options)


def worker_of(hand: Chargehand) -> dict[str, Any]:
    workers: Any = eventually(lambda: (hand.status() or {}).get("workers"), what="a node answers")
    return workers[0]


def pids(world: World, refs: list[Ref[Any]]) -> set[int]:
    return {int(words[1]) for words in world.lines("end") if words[0] in {ref.id for ref in refs}}


def starts(world: World, refs: list[Ref[Any]]) -> list[int]:
    """How many jobs its process had in hand when each was started."""
    ids = {ref.id for ref in refs}
    return [int(count) for job, count in world.lines("beside") if job in ids]


def test_many_wait_at_the_same_time(hand: Chargehand) -> None:  # spec: WP-15
    """200 jobs that wait 0.2 s each take 40 s one after the other."""
    crew = crew_of(hand, workers=2)
    with hand.running():
        eventually(lambda: worker_of(hand)["status"] == "healthy", what="ready")
        began = clock.monotonic()
        refs = crew.enqueue_many([{"waits": 0.2}] * 200)
        most = [ref.wait(30) for ref in refs]
        took = clock.monotonic() - began
    assert took < 8, "as long as a few of them"
    assert 50 < max(most) <= 100
    assert {(ref.job().crashes, ref.job().interruptions) for ref in refs} == {(0, 0)}


def test_status_and_claims_name_all_that_a_worker_has(hand: Chargehand, world: World) -> None:  # spec: WP-15 WK-9
    crew, gate = crew_of(hand), world.gate()
    refs = [world.put(crew, gate, steps=n) for n in range(12)]
    with hand.running():
        eventually(lambda: worker_of(hand)["in_hand"] == 12, what="all are in its hand")
        worker = worker_of(hand)
        assert (worker["concurrency"], sorted(worker["batch_jobs"])) == (100, sorted(ref.id for ref in refs))
        eventually(
            lambda: [c.worker for c in hand.claims()] == ["worker:do:0"] * 12, what="each claim names its worker"
        )
        eventually(
            lambda: (
                [f'"done":{n}.0' in (bytes(ref.job().progress or b"")).decode() for n, ref in enumerate(refs)]
                == [True] * 12
            ),
            what="each has its own progress",
        )
        (answer,) = hand.drain("do")
        assert answer.text.endswith("and 11 more, then stops")
        gate.touch()
        assert [ref.wait(20) for ref in refs] == [12] * 12
        eventually(lambda: worker_of(hand)["status"] == "stopped", what="it has stopped, with nothing in hand")


def test_each_has_its_own_end(hand: Chargehand, world: World) -> None:  # spec: WK-5 WK-2
    crew = crew_of(hand, max_attempts=2)
    after = [("do", {"result": "after"})]
    ends: list[dict[str, Any]] = [
        {"result": "good"}, {"end": "raise", "follow": after}, {"end": "retry"}, {"end": "give up"}, {"follow": after}
    ]  # fmt: skip
    good, raising, retried, hopeless, last = [world.put(crew, **end) for end in ends]
    with hand.running():
        assert good.wait(20) == "good"
        last.wait(20)
        retried.wait(20)
        for ref, how in ((raising, "as told"), (hopeless, "gave up")):
            with pytest.raises(JobFailed, match=how):
                ref.wait(20)
        eventually(lambda: hand.counts()[0].done == 4, what="the job that the last one enqueued")
    assert [ref.job().attempts for ref in (good, raising, retried, hopeless)] == [0, 2, 1, 1]
    with pytest.raises(JobFailed):
        raising.wait(0)
    assert "RuntimeError: as told" in (raising.job().error or "")


def test_one_is_cancelled_one_times_out_and_the_others_go_on(  # spec: WP-15 WK-7 WK-8
    make_hand: MakeHand, world: World
) -> None:
    hand = make_hand(liveness=PATIENT)
    crew, gate, never = crew_of(hand, max_attempts=1), world.gate(), world.gate()
    others = [world.put(crew, gate) for _ in range(97)]
    cancelled, late = world.put(crew, never), world.put(crew, never, options={"timeout": 0.3})
    with hand.running():
        pid = world.started(cancelled)
        cancelled.cancel()
        with pytest.raises(JobCancelled):
            cancelled.wait(20)
        with pytest.raises(JobFailed, match="timed out"):
            late.wait(20)
        assert "await asyncio.sleep(0.01)" in (late.job().error or ""), "the line at which it waited"
        gate.touch()
        assert {ref.wait(20) for ref in others} == {99}
        assert (worker_of(hand)["pid"], worker_of(hand)["restarts_total"]) == (pid, 0)
    assert pids(world, others) == {pid}
    assert [len(ref.attempts()) for ref in others] == [1] * 97


def test_a_late_job_is_timed_out_also_if_it_fails_when_it_is_cancelled(  # spec: WP-15 WK-7 WP-13
    make_hand: MakeHand, world: World
) -> None:
    hand = make_hand(liveness=PATIENT)
    crew = crew_of(hand, max_attempts=1)
    late = [world.put(crew, end="fail when cancelled", options={"timeout": 0.3}) for _ in range(4)]
    with hand.running():
        for ref in late:
            with pytest.raises(JobFailed, match="timed out"):
                ref.wait(20)
            assert "RuntimeError: as told" in (ref.job().error or "")
        assert worker_of(hand)["restarts_total"] == 0, "no doubt about the process: timeouts say nothing about it"
    assert [attempt.outcome for ref in late for attempt in ref.attempts()] == ["timed out"] * 4


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
def test_one_that_does_not_end_is_replaced_at_no_cost_to_the_others(  # spec: WP-15 WK-7 WK-8
    make_hand: MakeHand, world: World, how: str
) -> None:
    hand = make_hand(liveness=PATIENT)
    crew, gate = crew_of(hand, max_attempts=1), world.gate()
    others = [world.put(crew, gate) for _ in range(20)]
    deaf = world.put(crew, world.gate(), deaf=True, options={"timeout": 0.3} if how == "timed out" else {})
    with hand.running():
        first = world.started(deaf)
        if how == "cancelled":
            deaf.cancel()
        with pytest.raises(JobCancelled if how == "cancelled" else JobFailed):
            deaf.wait(20)
        gate.touch()
        for ref in others:
            ref.wait(20)
    assert [attempt.outcome for attempt in deaf.attempts()] == [how]
    jobs = [ref.job() for ref in others]
    assert {(job.interruptions, job.failures, job.crashes) for job in jobs} == {(1, 0, 0)}
    assert first not in pids(world, others)


@pytest.mark.parametrize("how", ["block", "burn"])
def test_a_blocked_loop_is_stalled_until_it_runs_again(make_hand: MakeHand, world: World, how: str) -> None:
    """Spec: WP-15 SV-6. Its stack can be read, it is not killed, and it gets nothing more; its other jobs go on."""
    hand = make_hand(liveness=PATIENT)
    crew, gate, until = crew_of(hand, workers=2), world.gate(), world.gate()
    others = [world.put(crew, gate) for _ in range(20)]
    with hand.running():
        eventually(lambda: len(world.lines("start")) == 20, what="all are in hand")
        blocking = world.put(crew, end=how, until=str(until))
        pid = world.started(blocking)

        def stalled() -> list[dict[str, Any]]:
            return [w for w in (hand.status() or {})["workers"] if "stalled" in w["flags"]]

        (worker,) = eventually(stalled, what="it is flagged")
        assert worker["pid"] == pid
        more = [world.put(crew) for _ in range(20)]
        for ref in more:
            ref.wait(20)
        assert pid not in pids(world, more), "no job is given to a worker that could not begin it"
        found = hand.stack(worker["component"])
        assert f"in {'block' if how == 'block' else 'do'}" in found.stacks
        until.touch()
        gate.touch()
        for ref in (blocking, *others):
            ref.wait(20)
        eventually(lambda: not stalled(), what="it runs again")
    assert {(ref.job().crashes, ref.job().interruptions) for ref in (blocking, *others)} == {(0, 0)}


def test_timeouts_hold_while_the_loop_is_blocked(make_hand: MakeHand, world: World) -> None:  # spec: WP-15 WK-7
    hand = make_hand(liveness=PATIENT)
    crew, gate = crew_of(hand, max_attempts=1), world.gate()
    others = [world.put(crew, gate) for _ in range(20)]
    with hand.running():
        eventually(lambda: len(world.lines("start")) == 20, what="all are in hand")
        blocking = world.put(crew, end="burn", until=str(world.gate()), options={"timeout": 0.3})
        with pytest.raises(JobFailed, match="timed out"):
            blocking.wait(20)
        gate.touch()
        for ref in others:
            ref.wait(20)
    assert "in do" in (blocking.job().error or ""), "its stack is in its report"
    assert {(ref.job().crashes, ref.job().interruptions) for ref in others} == {(0, 1)}


def test_what_a_blocked_loop_makes_late_is_performed_alone_until_the_guilty_job_is_known(  # spec: WP-15 WK-7
    make_hand: MakeHand, world: World
) -> None:
    hand = make_hand(liveness=PATIENT, jobs=JobPolicy(first_retry=0.01, longest_retry=0.01))
    crew = crew_of(hand, timeout=0.5, max_attempts=2)
    refs = [world.put(crew, waits=0.01) for _ in range(10)]
    refs.insert(5, world.put(crew, end="burn", until=str(world.gate())))
    blocking = refs[5]
    with hand.running():
        with pytest.raises(JobFailed, match="timed out"):
            blocking.wait(30)
        for ref in refs:
            if ref is not blocking:
                ref.wait(20)
    others = [ref.job() for ref in refs if ref is not blocking]
    assert {job.failures for job in others} == {0}
    assert max(job.crashes for job in others) == 1, "nobody is charged twice"


def test_one_poison_job_among_99_is_quarantined_alone(hand: Chargehand, world: World) -> None:  # spec: WP-15 WK-6 RP-7
    crew = crew_of(hand, workers=2)
    refs = [world.put(crew, waits=0.01, end="exit" if n == 42 else "good") for n in range(100)]
    poison = refs.pop(42)
    with hand.running():
        with pytest.raises(JobFailed, match="poison"):
            poison.wait(60)
        for ref in refs:
            ref.wait(60)
        assert [worker["status"] for worker in (hand.status() or {})["workers"]].count("failed") == 0
    assert (poison.job().crashes, poison.job().reason) == (3, "poison")
    assert {ref.job().state for ref in refs} == {State.DONE}
    assert max(ref.job().crashes for ref in refs) == 1, "nobody is charged twice"
    charged = [ref for ref in refs if ref.job().crashes]
    again = [starts(world, [ref])[1] for ref in charged]
    assert set(again) == {0}, "each is alone the second time"


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("leave", "SystemExit: 4"),
        ("interrupt", "KeyboardInterrupt"),
        ("generator exit", "GeneratorExit"),
        ("leave later", None),
        ("stop the loop", None),
        ("cancel itself", None),
    ],
)
def test_what_would_end_the_loop_concerns_its_own_job_at_most(  # spec: WP-15 WK-5
    hand: Chargehand, world: World, how: str, error: str | None
) -> None:
    """asyncio raises SystemExit and KeyboardInterrupt out of the loop if a task or a callback of a job raises them."""
    crew, gate = crew_of(hand, max_attempts=1), world.gate()
    others = [world.put(crew, gate) for _ in range(20)]
    with hand.running():
        eventually(lambda: len(world.lines("start")) == 20, what="all are in hand")
        odd = world.put(crew, end=how)
        if error is None:
            odd.wait(20)
        else:
            with pytest.raises(JobFailed, match=error):
                odd.wait(20)
        gate.touch()
        for ref in others:
            ref.wait(20)
    assert {(ref.job().crashes, ref.job().interruptions) for ref in (odd, *others)} == {(0, 0)}
    assert len(pids(world, others)) == 1


def test_a_kill_brings_all_back(hand: Chargehand, world: World) -> None:  # spec: WK-6 SV-2
    crew, gate = crew_of(hand), world.gate()
    refs = [world.put(crew, gate) for _ in range(8)]
    with hand.running():
        eventually(lambda: len(world.lines("start")) == 8, what="all are in hand")
        os.kill(world.started(refs[0]), signal.SIGKILL)
        gate.touch()
        for ref in refs:
            ref.wait(20)
    assert {(ref.job().crashes, ref.job().attempts, len(ref.attempts())) for ref in refs} == {(1, 0, 2)}
    assert starts(world, refs)[8:] == [0] * 8


def test_a_broken_process_is_replaced_before_it_takes_more(hand: Chargehand, world: World) -> None:  # spec: WP-12
    crew = crew_of(hand)
    refs = [world.put(crew, waits=0.2), world.put(crew, end="broken")]
    with hand.running():
        refs[0].wait(20)
        with pytest.raises(JobFailed, match="poison"):
            refs[1].wait(30)
    assert (refs[0].job().crashes, refs[1].job().crashes) == (1, 3)


def test_a_worker_is_recycled_with_an_empty_hand(hand: Chargehand, world: World) -> None:  # spec: WP-9
    crew = crew_of(hand, recycle_jobs=20, concurrency=8)
    refs = [world.put(crew, waits=0.01) for _ in range(100)]
    with hand.running():
        for ref in refs:
            ref.wait(30)
    assert {(ref.job().interruptions, ref.job().crashes) for ref in refs} == {(0, 0)}
    assert 3 <= len(pids(world, refs)) <= 5
    assert max(starts(world, refs)) == 7


def test_a_stop_lets_what_is_in_hand_end_and_interrupts_the_rest(  # spec: WP-6 PD-3
    make_hand: MakeHand, world: World
) -> None:
    hand = make_hand(liveness=LivenessPolicy(beat=0.2, silent=60, grace=0.7, terminate=0.2))
    crew = crew_of(hand)
    short, long = [world.put(crew, waits=0.3) for _ in range(5)], world.put(crew, world.gate())
    with hand.running():
        world.started(long)
    assert {ref.job().state for ref in short} == {State.DONE}
    assert (long.job().state, long.job().interruptions) == (State.QUEUED, 1)


def test_what_a_crew_finds_is_performed_at_the_same_time(hand: Chargehand, world: World) -> None:  # spec: WK-10
    hand.crew(
        "find", "concurrent_handlers:Finder", discovers=True, workers=1, concurrency=50,
        environment={"FOLDER": str(world.folder)},
    )  # fmt: skip
    with hand.running():
        eventually(lambda: len(list(world.folder.glob("found-*"))) == 20, what="all that it finds is done")
        eventually(lambda: sum(counts.running for counts in hand.counts()) == 0, what="and settled")
    assert hand.counts()[0].failed == 0


def test_records_carry_the_id_of_the_job_whose_task_made_them(  # spec: WP-10 WP-15
    hand: Chargehand, world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    crew, gate = crew_of(hand), world.gate()
    refs = [world.put(crew, gate, says=f"word-{n}") for n in range(3)]
    seen: list[str] = []
    with hand.running():
        eventually(lambda: len(world.lines("start")) == 3, what="all are in hand")
        gate.touch()
        for ref in refs:
            ref.wait(20)

        def lines() -> bool:
            seen.extend(capfd.readouterr().err.splitlines())
            return all(sum(f"says word-{n}" in line for line in seen) >= 2 for n in range(3))

        eventually(lines, what="all records")
    for n, ref in enumerate(refs):
        assert all(ref.id in line for line in seen if f"says word-{n}" in line)


def test_a_job_ends_in_a_transaction_of_its_own(hand: Chargehand, world: World) -> None:  # spec: WK-10 WK-4
    with hand.transaction() as tx:
        tx.execute("CREATE TABLE song (title TEXT, worker INTEGER)")
    crew = crew_of(hand, handler="concurrent_handlers:Settler", transactional=True, max_attempts=1)
    refs = crew.enqueue_many([{"title": f"song-{n}"} for n in range(20)])
    awaiting = crew.enqueue({"title": "odd", "awaits": True})
    with hand.running():
        for ref in refs:
            ref.wait(20)
        with pytest.raises(JobFailed, match=r"awaited inside the block of job\.settle"):
            awaiting.wait(20)
    with hand.transaction() as tx:
        rows = list(tx.execute("SELECT title FROM song"))
    assert sorted(row[0] for row in rows) == sorted(f"song-{n}" for n in range(20))


# settings


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"concurrency": 0}, "concurrency is 0; must be 1 to 1000"),
        ({"concurrency": 1001}, "concurrency is 1001; must be 1 to 1000"),
        ({"concurrency": "16"}, "concurrency"),
        ({"concurrency": 2, "batch": 2}, "batch is 2 and concurrency is 2; the two cannot be combined"),
    ],
)
def test_a_wrong_setting_is_named(hand: Chargehand, options: dict[str, Any], error: str) -> None:  # spec: CF-1
    with pytest.raises(ConfigurationError, match=error):
        hand.crew("do", WAITER, **options)


def test_check_names_a_plain_perform() -> None:  # spec: CF-1 WP-15
    about = {
        "handler": "concurrent_handlers:Plain", "discovers": False, "threads": 1, "python_path": list(sys.path),
        "set_up": False, "batch": 1, "concurrency": 2, "takes": None, "gives": None,
    }  # fmt: skip
    (wrong,) = examine(about, {}, 60)["wrong"]
    assert "has a plain perform(job), but its crew has concurrency=2: declare `async def perform`" in wrong
    assert examine({**about, "handler": WAITER}, {}, 60)["wrong"] == []


def test_a_plain_perform_is_refused_in_words(hand: Chargehand) -> None:  # spec: WP-8 RP-5 WP-15
    hand.crew("do", "concurrent_handlers:Plain", workers=1, concurrency=2)
    with hand.running():
        (worker,) = eventually(
            lambda: [w for w in (hand.status() or {}).get("workers", ()) if w["status"] == "failed"], what="given up"
        )
    assert "'concurrent_handlers:Plain' has a plain perform(job), but its crew has concurrency=2" in worker["text"]
    assert "async def perform" in worker["text"]
