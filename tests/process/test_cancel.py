"""A cancelled job ends, in whatever phase it is, with the outcome that is specified; nobody else notices."""

import os
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fault_checks import FAULTY, counters, reports, sibling
from scripted_app import LIVELY, QUICK
from workworld import workers_of
from world import World, gone

from chargehand import Chargehand, JobCancelled, LivenessPolicy, RestartPolicy, clock
from chargehand.crew import Ref
from chargehand.model.job import State
from chargehand.stores import open_store
from chargehand.testing import eventually

MakeHand = Callable[..., Chargehand]

PATIENT = LivenessPolicy(beat=0.2, silent=60, grace=2.0, terminate=0.5, cancel=60)
"""Whoever does not hear of a cancel is left alone."""
SHORT = LivenessPolicy(beat=0.1, silent=60, grace=2.0, terminate=0.2, cancel=0.3)
CANCELLED, TOLD = "is cancelled", "is running and was asked to stop; its worker is replaced if it does not"
NOTHING = "does not exist, or has ended already"


def ended(ref: Ref[Any], timeout: float = 20) -> None:
    """It ended as cancelled, and whoever waits for it hears so."""
    with pytest.raises(JobCancelled, match=ref.id):
        ref.wait(timeout)
    job = ref.job()
    assert (job.state, job.reason, job.result) == (State.CANCELLED, "cancelled", None)
    assert job.finished_ms is not None
    assert (job.node, job.worker) == (None, None)


def mark(world: World, *ids: str) -> None:
    """Cancel by the store alone, as somebody does who does not reach the node."""
    store = open_store(str(world.store))
    with store.transaction() as tx:
        tx.jobs.cancel(ids)
    store.close()


# waiting


def test_a_waiting_job_is_cancelled_at_once(hand: Chargehand, world: World) -> None:  # spec: WK-8
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    gate = world.gate()
    with hand.running():
        busy = world.put(do, gate)
        world.started(busy)
        waiting, later = world.put(do), world.put(do, options={"delay": 600})
        assert [waiting.cancel(), later.cancel()] == [CANCELLED] * 2
        assert [waiting.job().state, later.job().state] == [State.CANCELLED] * 2
        ended(waiting)
        assert [waiting.cancel(), do.ref("nobody").cancel()] == [NOTHING] * 2
        gate.touch()
        busy.wait(20)
        world.put(do).wait(20)
    assert world.starts(waiting) == world.starts(later) == []
    assert (waiting.attempts(), counters(waiting), waiting.job().cancel_ms) == ([], (0, 0, 0), None)


def test_a_waiting_job_is_cancelled_without_a_node(hand: Chargehand, world: World) -> None:  # spec: WK-8 CL-2
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    first, second = world.put(do), world.put(do)
    assert first.cancel() == CANCELLED
    ended(first, 1)
    with hand.running():
        second.wait(20)
    assert world.starts(first) == []


# in the node's memory


AHEAD = """
import chargehand.model.held, chargehand.model.ledger
chargehand.model.held.SECONDS_AHEAD, chargehand.model.ledger.NOTE_AFTER = 60.0, 3600.0
"""


def claimed_ahead(hand: Chargehand, ref: Ref[Any]) -> bool:
    """Whether the node has the job in memory; readers see it as queued."""
    claims = [claim for claim in hand.claims() if claim.id == ref.id]
    return bool(claims) and claims[0].worker is None and ref.job().state is State.QUEUED


def test_a_job_in_the_nodes_memory_is_cancelled_unattempted(  # spec: WK-8
    hand: Chargehand, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is claimed ahead goes back as soon as the job before it turns out long; in this node it does not.
    (tmp_path / "sitecustomize.py").write_text(AHEAD)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))))
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    gate = world.gate()
    with hand.running():
        world.put(do).wait(20)  # how long jobs take is known now, so that others are claimed ahead
        blocking = world.put(do, gate)
        behind = [world.put(do) for _ in range(3)]
        world.started(blocking)
        eventually(lambda: claimed_ahead(hand, behind[0]), what="claimed ahead")
        assert behind[0].cancel() == TOLD
        ended(behind[0])
        assert not gate.exists()
        gate.touch()
        for ref in (blocking, *behind[1:]):
            ref.wait(20)
    assert world.starts(behind[0]) == []
    assert (behind[0].attempts(), counters(behind[0])) == ([], (0, 0, 0))


# in hand


def test_a_running_job_hears_of_it_at_its_next_word_of_progress(hand: Chargehand, world: World) -> None:  # spec: WK-8
    crew = hand.crew("do", FAULTY, workers=2)
    with hand.running(), sibling(world, crew):
        ref = world.put(crew, world.gate(), fault="wait")
        pid = world.started(ref)
        began = clock.monotonic()
        assert ref.cancel() == TOLD
        ended(ref)
        assert clock.monotonic() - began < 5, "long before its worker would be replaced"
        (attempt,) = ref.attempts()
        assert (attempt.outcome, attempt.pid) == ("cancelled", pid)
        assert (counters(ref), world.ends(ref)) == ((0, 0, 0), [])
        assert ref.job().cancel_ms is not None
        after = world.put(crew)
        after.wait(20)
        assert world.starts(after) == [pid], "it goes on in the same process"
    assert hand.crashes() == []


@pytest.mark.parametrize(
    ("how", "result"), [("asks", "asked, and came to a good end"), ("swallows", "finished all the same")]
)
def test_a_result_stands_though_the_job_was_cancelled(  # spec: WK-8
    hand: Chargehand, world: World, how: str, result: str
) -> None:
    crew = hand.crew("do", "discovery_handlers:Cancellable", workers=1)
    with hand.running():
        ref = world.put(crew, how=how)
        world.started(ref)
        assert ref.cancel() == TOLD
        assert ref.wait(20) == result
    job = ref.job()
    assert (job.state, job.reason, job.cancel_ms is not None) == (State.DONE, None, True)
    assert [attempt.outcome for attempt in ref.attempts()] == ["done"]


def test_a_job_that_raises_when_it_is_cancelled_is_not_tried_again(
    hand: Chargehand, world: World
) -> None:  # spec: WK-8
    crew = hand.crew("do", "discovery_handlers:Cancellable", workers=1)
    with hand.running():
        ref = world.put(crew, how="raises")
        world.started(ref)
        ref.cancel()
        ended(ref)
        assert [attempt.outcome for attempt in ref.attempts()] == ["raised"]
        assert "could not go on" in (ref.job().error or "")
    assert len(world.starts(ref)) == 1


def test_a_coroutine_is_interrupted_where_it_waits(hand: Chargehand, world: World) -> None:  # spec: WK-8 WP-3
    crew = hand.crew("do", "discovery_handlers:AsyncCancellable", workers=1)
    with hand.running():
        for _ in range(5):
            ref = world.put(crew)
            pid = world.started(ref)
            ref.cancel()
            ended(ref)
            assert [ref.id, str(pid)] in world.lines("left"), "its finally has run"
            assert [attempt.outcome for attempt in ref.attempts()] == ["cancelled"]
            assert world.put(crew, end="at once").wait(20) == pid, "in the same process"
    assert hand.crashes() == []


# in C code


@pytest.mark.parametrize("fault", ["sleep in c", "burn in c", "nap"])
def test_a_job_that_does_not_hear_costs_its_worker(make_hand: MakeHand, world: World, fault: str) -> None:  # spec: WK-8
    hand = make_hand(liveness=SHORT, restart=RestartPolicy())
    crew = hand.crew("do", FAULTY, workers=2)
    with hand.running(), sibling(world, crew):
        ref = world.put(crew, fault="children", kinds=["session"], then={"fault": fault})
        pid = world.started(ref)
        (child,) = world.children_of(1)
        before = {w["component"]: w["budget"] for w in workers_of(hand)}
        assert ref.cancel() == TOLD
        ended(ref)
        assert gone(pid)
        assert gone(child), "cancelled work really stops"
        after = world.put(crew)
        after.wait(10)  # the first pause after a crash would be 1 s; this one is none
        (new,) = [w for w in workers_of(hand) if w["pid"] == world.starts(after)[0]]
        assert new["pid"] != pid
        assert {w["component"]: w["budget"] for w in workers_of(hand)} == before, "nothing is charged"
        (report,) = reports(hand, 1)
        assert (report.reason, report.signal, report.pid, report.job) == ("cancelled", 9, pid, ref.id)
        assert (report.charged, report.follows) == (False, "restarted at once")
        (attempt,) = ref.attempts()
        assert (attempt.outcome, attempt.pid, counters(ref)) == ("cancelled", pid, (0, 0, 0))
        assert "did not end after it was cancelled" in (attempt.error or "")
    assert len(world.starts(ref)) == 1


# finishing


def test_an_outcome_that_was_sent_before_the_cancel_stands(
    make_hand: MakeHand, world: World
) -> None:  # spec: WK-8 SV-2
    hand = make_hand(liveness=PATIENT)
    crew = hand.crew("do", "scripted_handlers:Doer", workers=1)
    with hand.running() as host:
        gate = world.gate()
        ref = world.put(crew, gate, result="r")
        world.started(ref)
        assert host.node_pid
        store = open_store(str(world.store))
        with store.transaction() as tx:  # the node is not in one now, and does not hold the lock while it stands still
            os.kill(host.node_pid, signal.SIGSTOP)  # so that it reads the outcome after the cancel
            gate.touch()
            eventually(lambda: world.ends(ref))
            tx.jobs.cancel([ref.id])
        store.close()
        assert ref.job().cancel_ms is not None
        os.kill(host.node_pid, signal.SIGCONT)
        assert ref.wait(20) == "r"
        assert (ref.job().state, [a.outcome for a in ref.attempts()]) == (State.DONE, ["done"])
        assert ref.cancel() == NOTHING
        assert world.put(crew).wait(20) == 1, "the worker has heard of no cancel"


# deaths beside it


def test_a_cancel_outlives_the_node(make_hand: MakeHand, world: World) -> None:  # spec: WK-8 WP-7
    hand = make_hand(liveness=PATIENT)
    crew = hand.crew("do", FAULTY, workers=2)
    with hand.running() as host:
        ref, calm = world.put(crew, fault="nap"), world.put(crew, fault="nap", seconds=1)
        world.started(ref)
        world.started(calm)
        assert ref.cancel() == TOLD
        node = host.node_pid
        assert node
        os.kill(node, signal.SIGKILL)
        ended(ref, 30)
        calm.wait(30)
        assert len(world.starts(ref)) == 1, "it is not run again"
        assert len(world.starts(calm)) == 2
        assert [attempt.outcome for attempt in ref.attempts()] == ["interrupted"]


def test_a_running_job_is_cancelled_while_there_is_no_node(make_hand: MakeHand, world: World) -> None:  # spec: WK-8
    """What a node that was killed left behind: nobody is there to tell, and whoever starts next does not run it."""
    hand = make_hand(liveness=PATIENT)
    crew = hand.crew("do", FAULTY, workers=1)
    with hand.running() as host:
        ref = world.put(crew, fault="nap")
        world.started(ref)
        node = host.node_pid
        assert node
        host.kill()
        assert host.ended.wait(20)
    eventually(lambda: gone(node))
    mark(world, ref.id)
    with hand.running():
        ended(ref, 30)
        world.put(crew).wait(20)
    assert len(world.starts(ref)) == 1


def test_a_worker_that_dies_with_a_cancelled_job(make_hand: MakeHand, world: World) -> None:  # spec: WK-8 WK-6
    hand = make_hand(liveness=PATIENT)
    crew = hand.crew("do", FAULTY, workers=1)
    with hand.running():
        ref = world.put(crew, fault="nap")
        pid = world.started(ref)
        ref.cancel()
        eventually(lambda: ref.job().cancel_ms is not None)
        os.kill(pid, signal.SIGKILL)
        ended(ref)
        world.put(crew).wait(20)
        assert [attempt.outcome for attempt in ref.attempts()] == ["crashed"]
    assert len(world.starts(ref)) == 1


def test_a_cancel_that_only_the_store_heard_of_reaches_a_busy_worker(hand: Chargehand, world: World) -> None:
    """Spec: WK-8 EV-6. Nobody is idle, so nobody asks for work; the flag must be found all the same."""
    crew = hand.crew("do", FAULTY, workers=1)
    with hand.running():
        gate = world.gate()
        ref = world.put(crew, gate, fault="wait")
        world.started(ref)
        mark(world, ref.id)
        try:
            ended(ref, 4)
        finally:
            gate.touch()


# afterwards


def test_a_cancelled_job_can_be_retried_and_the_old_cancel_is_forgotten(  # spec: WK-8
    hand: Chargehand, world: World
) -> None:
    crew = hand.crew("do", FAULTY, workers=1)
    with hand.running():
        gate = world.gate()
        ref = world.put(crew, gate, fault="wait", result="r")
        world.started(ref)
        ref.cancel()
        ended(ref)
        assert ref.retry() == "is queued again"
        world.started(ref, times=2)
        eventually(lambda: ref.job().progress is not None, what="it has said how far it is, and was not cancelled")
        assert ref.job().cancel_ms is None
        gate.touch()
        assert ref.wait(20) == "r"
        assert [attempt.outcome for attempt in ref.attempts()] == ["cancelled", "done"]


# progress


def test_progress_is_seen_and_written_once_a_second_at_most(hand: Chargehand, world: World) -> None:  # spec: WK-9
    crew = hand.crew("do", FAULTY, workers=1)
    gate = world.gate()
    with hand.running():
        ref = world.put(crew, gate, fault="wait")
        world.started(ref)
        seen: list[tuple[float, Any]] = []
        began = clock.monotonic()

        def looked() -> bool:
            now, raw = clock.monotonic(), ref.job().progress
            if raw is not None and (not seen or seen[-1][1] != bytes(raw)):
                seen.append((now, bytes(raw)))
            return now - began >= 3.3

        eventually(looked)
        assert 3 <= len(seen) <= 5, seen
        gaps = [after - before for (before, _), (after, _) in pairwise(seen)]
        assert min(gaps) > 0.8, "each of them is seen up to 50 ms late"
        assert b'"stage":"waiting"' in seen[-1][1].replace(b" ", b"")
        live = workers_of(hand)[0]["progress"]
        assert (live["stage"], live["done"] > 100) == ("waiting", True)
        gate.touch()
        ref.wait(20)


def test_progress_is_that_of_the_job_itself(hand: Chargehand, world: World) -> None:  # spec: WK-9
    """The two sockets of a worker are not ordered: what a job said last may come when its successor is in hand."""
    crew = hand.crew("do", "discovery_handlers:Cancellable", workers=1)
    with hand.running() as host:
        assert host.ready.wait(20)
        for n in range(10):
            world.put(crew, how="says", done=n).wait(20)  # jobs are small, so the next but one is claimed with the next
        for n in range(10):
            gate = world.gate()
            says = {"ledger": world.ledger, "how": "says", "done": n, "seconds": 0.0201}
            said, silent = crew.enqueue_many([says, {"ledger": world.ledger, "gate": str(gate)}])
            said.wait(20)
            world.started(silent)
            eventually(lambda silent=silent: silent.job().worker, what="it is noted who has it")
            wrong = silent.job().progress
            gate.touch()
            silent.wait(20)
            assert wrong is None, f"round {n}: {bytes(wrong).decode()}"


assert LIVELY.cancel == LivenessPolicy().cancel == 10
assert QUICK.first_pause < RestartPolicy().first_pause
