"""A job goes in, a worker process does it, its result comes out."""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from ending_handlers import STEPS
from world import World

from chargehand import Chargehand, JobFailed, LivenessPolicy, PayloadError
from chargehand.model.job import State
from chargehand.testing import eventually


def test_a_job_is_done_by_a_worker_process(hand: Chargehand, world: World) -> None:  # spec: WP-1 WK-5
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    with hand.running() as host:
        ref = world.put(do, result={"a": [1, None, "ü"]})
        assert ref.wait(20) == {"a": [1, None, "ü"]}
        (pid,) = world.starts(ref)
        assert pid != host.node_pid
    job = ref.job()
    assert (job.state, job.attempts, job.crashes, job.interruptions, job.node) == (State.DONE, 0, 0, 0, None)
    (attempt,) = ref.attempts()
    assert (attempt.outcome, attempt.pid, attempt.node) == ("done", pid, hand.node_name)
    assert attempt.worker in ("worker:do:0", "worker:do:1")


def test_waiting_works_from_an_event_loop(hand: Chargehand, world: World) -> None:  # spec: WK-5
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)

    async def many() -> list[Any]:
        refs = [await do.enqueue_async({"ledger": world.ledger, "result": n}) for n in range(20)]
        return await asyncio.gather(*(ref.result(timeout=20) for ref in refs))

    with hand.running():
        assert asyncio.run(many()) == list(range(20))


def test_a_wait_ends_in_time_though_the_job_does_not(hand: Chargehand, world: World) -> None:
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    gate = world.gate()
    with hand.running():
        ref = world.put(do, gate)
        world.started(ref)
        with pytest.raises(TimeoutError, match="did not end"):
            ref.wait(0.05)
        with pytest.raises(TimeoutError, match="did not end"):
            asyncio.run(ref.result(timeout=0.05))
        gate.touch()
        ref.wait(20)


def test_a_wait_says_why_nobody_will_do_the_job(hand: Chargehand) -> None:  # spec: SV-12
    """A crew that is given up, one that is paused, and no node at all."""
    wrong = {"CHARGEHAND_FAULT_SET_UP": "configuration"}
    crew = hand.crew("wrong", "chargehand.testing.faults:Faulty", workers=1, environment=wrong)
    with hand.running():
        ref = crew.enqueue({})
        eventually(lambda: hand.health("failed"))
        with pytest.raises(TimeoutError, match=r"all workers of wrong are given up .*: chargehand reset wrong"):
            ref.wait(0.05)
        hand.pause("wrong")
        with pytest.raises(
            TimeoutError, match="it is queued, and no worker takes it: it is paused: chargehand resume wrong"
        ):
            asyncio.run(ref.result(timeout=0.05))
        hand.resume("wrong")
    with pytest.raises(TimeoutError, match="no worker takes it: no node runs: chargehand work APP"):
        ref.wait(0.05)


@dataclass
class Song:
    path: str
    seconds: float = 0


def test_many_jobs_of_a_type(hand: Chargehand, world: World) -> None:  # spec: WK-2
    do = hand.crew("typed", "typed_handlers:Length", takes=Song, gives=float, workers=2)
    with hand.running():
        refs = do.enqueue_many(Song(f"{n}.flac", n) for n in range(500))
        assert [ref.wait(20) for ref in refs] == [n * 2.0 for n in range(500)]
    with pytest.raises(PayloadError, match="not a Song"):
        do.enqueue({"title": 1})  # type: ignore[arg-type]


def test_a_job_that_raises_is_tried_again_and_then_fails(hand: Chargehand, world: World) -> None:  # spec: WK-5
    do = hand.crew("do", "scripted_handlers:Doer", workers=1, max_attempts=1)
    with hand.running():
        failing = world.put(do, end="raise", text="no such file: a.flac")
        with pytest.raises(JobFailed, match=r"no such file: a\.flac"):
            failing.wait(20)
        again = world.put(do, end="retry", options={"max_attempts": 3})
        with pytest.raises(JobFailed, match="retries used up"):
            again.wait(20)
        never = world.put(do, end="give up", options={"max_attempts": 9})
        with pytest.raises(JobFailed, match="gave up"):
            never.wait(20)
    assert "Traceback" in (failing.job().error or "")
    assert len(world.starts(again)) == 3
    assert len(world.starts(never)) == 1
    assert [a.outcome for a in again.attempts()] == ["retry"] * 3


def test_jobs_that_a_job_enqueues_come_with_its_end(hand: Chargehand, world: World) -> None:  # spec: WK-2
    do = hand.crew("do", "scripted_handlers:Doer", workers=1, max_attempts=1)
    following = [("do", {"ledger": world.ledger, "result": "after"}, {})]
    with hand.running():
        good = world.put(do, follow=following)
        good.wait(20)
        bad = world.put(do, follow=following, end="raise")
        with pytest.raises(JobFailed):
            bad.wait(20)
        eventually(lambda: hand.counts()[0].done == 2, what="the job that the good one enqueued is done")
    (counts,) = hand.counts()
    assert (counts.done, counts.failed, counts.queued) == (2, 1, 0)


def test_the_id_of_a_job_whose_key_is_held_is_another_name_of_its_holder(  # spec: WK-2
    hand: Chargehand, world: World
) -> None:
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    later = hand.crew("later", "scripted_handlers:Doer", workers=1)
    with hand.running():
        holder = world.put(later, result="once", options={"key": "k", "delay": 3600})
        told = [("later", {"ledger": world.ledger}, {"key": "k"})]
        (alias,) = world.put(do, follow=told).wait(20)
        assert alias != holder.id
        assert hand.job(alias) == holder.job()
        assert [answer.text for answer in hand.cancel(alias)] == ["is cancelled"]
        assert hand.job(alias).state is holder.job().state is State.CANCELLED
        assert [answer.text for answer in hand.retry(alias)] == ["is queued again"]
        assert later.ref(alias).wait(20) == holder.wait(20) == "once"


def test_a_job_and_the_callers_own_rows_commit_together(hand: Chargehand, world: World) -> None:  # spec: WK-2 ST-2
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    with hand.transaction() as tx:
        tx.execute("CREATE TABLE song (title TEXT)")

    def fail_half_way() -> None:
        with hand.transaction() as tx:
            tx.execute("INSERT INTO song VALUES ('lost')")
            do.enqueue({"ledger": world.ledger}, within=tx)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    with hand.transaction() as tx:
        tx.execute("INSERT INTO song VALUES ('kept')")
        ref = do.enqueue({"ledger": world.ledger}, within=tx)
    with hand.running():
        ref.wait(20)
    with hand.transaction() as tx:
        assert tx.execute("SELECT title FROM song") == [("kept",)]
    assert [count.done for count in hand.counts()] == [1]


def test_enqueuing_past_the_transaction_that_one_is_in_is_refused(hand: Chargehand, world: World) -> None:
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    with hand.transaction() as tx:
        with pytest.raises(Exception, match="within=tx"):
            do.enqueue({})
        with pytest.raises(Exception, match="within=tx"), hand.transaction():
            pass
        do.enqueue({}, within=tx)


def jobs_told(hand: Chargehand) -> list[tuple[str, str]]:
    """How which jobs ended, as it is told of both workers' past."""
    pasts = [hand.worker_history(f"worker:settle:{index}") or {"moments": []} for index in range(2)]
    return [(m["what"], m["job"]) for past in pasts for m in past["moments"] if m["kind"] == "job"]


def test_a_handler_settles_in_its_own_transaction(hand: Chargehand, world: World) -> None:  # spec: WK-4 WK-10
    settle = hand.crew("settle", "scripted_handlers:Settler", workers=2, transactional=True, max_attempts=1)
    with hand.transaction() as tx:
        tx.execute("CREATE TABLE song (title TEXT, worker INTEGER)")
    with hand.running():
        good = world.put(settle, title="good")
        bad = world.put(settle, title="bad", spoil=True)
        assert good.wait(20) == {"by": world.starts(good)[0]}
        with pytest.raises(JobFailed, match="spoilt"):
            bad.wait(20)
        eventually(lambda: sorted(jobs_told(hand)) == [("done", good.id), ("raised", bad.id)])
    with hand.transaction() as tx:
        assert tx.execute("SELECT title, worker FROM song") == [("good", world.starts(good)[0])]
    assert [a.outcome for a in good.attempts()] == ["done"]


def test_only_transactional_crews_may_settle(hand: Chargehand, world: World) -> None:
    settle = hand.crew("settle", "scripted_handlers:Settler", workers=1)
    with hand.running():
        world.put(settle, title="x")
        eventually(lambda: (hand.status() or {"workers": [{}]})["workers"][0].get("status") == "failed")
        (worker,) = (hand.status() or {})["workers"]
    assert "transactional=True" in worker["text"]


def test_a_unique_key_is_one_job_while_it_is_not_done(hand: Chargehand, world: World) -> None:  # spec: WK-2
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    gate = world.gate()
    with hand.running():
        first = world.put(do, gate, options={"key": "a.flac"})
        world.started(first)
        second = world.put(do, gate, options={"key": "a.flac"})
        assert (second.id, second.created) == (first.id, False)
        gate.touch()
        first.wait(20)
        third = world.put(do, options={"key": "a.flac"})
        assert third.created
        third.wait(20)


def test_an_urgent_job_goes_first(hand: Chargehand, world: World) -> None:  # spec: WK-3
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    refs = [world.put(do, options={"priority": priority}) for priority in (0, 0, 5, -3)]
    with hand.running():
        for ref in refs:
            ref.wait(20)
    first, second, urgent, idle = (ref.id for ref in refs)
    assert [job_id for job_id, _ in world.lines("start")] == [urgent, first, second, idle]


def test_a_delayed_job_waits_for_its_time(hand: Chargehand, world: World) -> None:  # spec: WK-2
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    with hand.running():
        later = world.put(do, options={"delay": 0.6})
        later.wait(20)
    job = later.job()
    assert job.run_at_ms == job.created_ms + 600
    assert later.attempts()[0].started_ms >= job.run_at_ms


def test_a_slow_load_asks_for_more_time(make_hand: Callable[..., Chargehand], world: World) -> None:  # spec: WP-5 SV-5
    # The limit includes the start of the interpreter, so that it is several times as long as that.
    hand = make_hand(liveness=LivenessPolicy(beat=0.1, set_up=1.5, first_frame=5))
    patient = hand.crew("patient", "slow_handlers:Patient", workers=1)
    hasty = hand.crew("hasty", "slow_handlers:Hasty", workers=1)
    with hand.running():
        ref, never = patient.enqueue(None), hasty.enqueue(None)
        assert ref.wait(20) == "loaded"
        eventually(lambda: (hand.status() or {})["workers"][1]["restart_count"] >= 1)
        patient_view, hasty_view = (hand.status() or {})["workers"]
        assert (patient_view["status"], patient_view["restart_count"]) == ("healthy", 0)
        assert hasty_view["reason"] == "start timeout"
        assert patient_view["memory"] > 1_000_000
    assert never.job().state is State.QUEUED


def test_a_worker_that_stops_in_order_tears_down_and_one_that_is_killed_does_not(  # spec: WP-3 WP-6
    hand: Chargehand, world: World
) -> None:
    steps = world.folder / "steps"
    names = {"plain": "Plain", "async": "Async"}
    crews = [
        hand.crew(name, f"ending_handlers:{kind}", workers=1, environment={STEPS: str(steps)})
        for name, kind in names.items()
    ]

    def lives(name: str) -> dict[int, list[str]]:
        """The steps of each process, in order."""
        found: dict[int, list[str]] = {}
        for line in steps.read_text().splitlines() if steps.exists() else ():
            who, step, pid = line.split()
            if who == name:
                found.setdefault(int(pid), []).append(step)
        return found

    with hand.running():
        for crew in crews:
            crew.enqueue({}).wait(20)
        (killed,) = lives("plain")
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: len(lives("plain")) == 2)
        crews[0].enqueue({}).wait(20)
    first, second = lives("plain").items()
    assert first == (killed, ["set_up", "perform"])
    assert second[1] == ["set_up", "perform", "tear_down"]
    assert list(lives("async").values()) == [["set_up", "perform", "tear_down"]]
