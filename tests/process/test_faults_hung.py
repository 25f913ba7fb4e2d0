"""Workers that stand still, and workers that only look like it: who is killed, who is left alone, and what is said."""

import inspect
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from fault_checks import (
    BRISK,
    FAULTY,
    LIMITED,
    at_work,
    counters,
    first_report,
    holder,
    reports,
    shows,
    sibling,
    worker,
    workers,
)
from scripted_app import QUICK
from world import World, gone

from chargehand import Chargehand, JobFailed, LivenessPolicy, clock
from chargehand.errors import STACKS_FOLLOW
from chargehand.model.job import State
from chargehand.testing import eventually
from chargehand.testing.faults_deeds import wait_for_a_lock_that_never_comes

MakeHand = Callable[..., Chargehand]

BURN = float(os.environ.get("CHARGEHAND_TEST_BURN", "3"))
"""Seconds for which C code holds the interpreter: many times the limit, and longer than the store lags behind."""
ENDLESS: dict[str, Any] = {"timeout": None}


@shows("silent", "sleep in c", "stop")
def test_silent_and_no_cpu_used_is_a_heartbeat_timeout(  # spec: SV-6 WK-6
    make_hand: MakeHand, world: World
) -> None:
    hand = make_hand(liveness=LivenessPolicy(beat=0.1, silent=0.8, grace=0.3, terminate=0.2))
    crew = hand.crew("do", FAULTY, workers=5)
    asleep: dict[str, Any] = {"fault": "sleep in c"}
    with hand.running(), sibling(world, crew) as calm:
        children: dict[str, Any] = {"fault": "children", "kinds": ["session", "daemon"]}
        refs = {
            "in _silent": world.put(crew, fault="silent"),
            "in sleep_in_c": world.put(crew, **asleep),
            # These want the interpreter every 10 ms, and use CPU time to ask for it.
            "in sleep": world.put(crew, fault="threads", count=30, pause=0.01, then=asleep, options=ENDLESS),
            "state T": world.put(crew, **children, then={"fault": "stop"}),  # the kernel's word: it writes none
        }
        for word, ref in refs.items():
            world.started(ref, times=2)
            first, second = world.starts(ref)[:2]
            assert gone(first)
            assert second != first
            report = first_report(hand, ref)
            assert (report.reason, report.exit_code, report.signal) == ("heartbeat timeout", None, 9)
            assert (report.pid, report.job) == (first, ref.id)
            assert report.follows.startswith("restarted in")
            assert (report.memory or 0) > 1 << 20
            assert word in report.stacks
            attempt = ref.attempts()[0]
            assert (attempt.outcome, attempt.pid, attempt.worker) == ("crashed", first, report.component)
            error = attempt.error or ""
            assert f"signal 9, SIGKILL (heartbeat timeout) while it performed the job{STACKS_FOLLOW}" in error
            assert word in (attempt.error or "")
            assert (ref.job().attempts, ref.job().interruptions) == (0, 0)
        assert [child for child in world.children()[:2] if not gone(child)] == []
        assert calm not in {report.pid for report in hand.crashes()}


@shows("deadlock")
def test_a_deadlock_is_found_with_the_right_line(make_hand: MakeHand, world: World) -> None:  # spec: SV-7 SV-6 WP-10
    hand = make_hand(liveness=LivenessPolicy(beat=0.1, silent=5, still=1.0, grace=0.3, terminate=0.2))
    crew = hand.crew("do", FAULTY, workers=3)
    with hand.running(), sibling(world, crew):
        stuck = world.put(crew, fault="deadlock", options=ENDLESS)
        ruled = world.put(crew, fault="deadlock", options={"timeout": 30})
        rest = world.started(ruled)
        world.started(stuck, times=2)
        first, second = world.starts(stuck)[:2]
        assert gone(first)
        assert second != first
        report = first_report(hand, stuck)
        assert (report.reason, report.exit_code, report.signal) == ("hung", None, 9)
        assert (report.pid, report.job, report.charged) == (first, stuck.id, False)
        source, start = inspect.getsourcelines(wait_for_a_lock_that_never_comes)
        number = start + next(n for n, text in enumerate(source) if "acquire" in text)
        line = f'faults_deeds.py", line {number} in wait_for_a_lock_that_never_comes'
        assert report.stacks.count(line) == 2, "both threads stand there"
        error = stuck.attempts()[0].error or ""
        assert f"signal 9, SIGKILL (hung) while it performed the job{STACKS_FOLLOW}" in error
        assert error.count(line) == 2
        assert (stuck.job().crashes >= 1, stuck.job().attempts, stuck.job().interruptions) == (True, 0, 0)
        assert world.starts(ruled) == [rest], "where a job has a timeout, that rules"
        assert not gone(rest)


@shows("spin", "burn in c", "native threads")
@pytest.mark.timeout(BURN + 120)
def test_the_busy_are_flagged_and_never_killed(make_hand: MakeHand, world: World) -> None:  # spec: SV-6 SV-7 SV-4 HP-8
    limits = LivenessPolicy(beat=0.1, silent=0.5, still=1.0, stalled=1.5, grace=0.3, terminate=0.2)
    hand = make_hand(liveness=limits)
    crew = hand.crew("do", FAULTY, workers=4)
    gate = world.gate()
    wait: dict[str, Any] = {"fault": "wait", "gate": str(gate)}
    with hand.running(), sibling(world, crew) as calm:
        burns = world.put(crew, fault="burn in c", seconds=BURN, then=wait, result="burnt")
        spins = world.put(crew, fault="spin", seconds=BURN + 2, then=wait, result="spun", options=ENDLESS)
        native = world.put(crew, fault="native threads", seconds=1, then=wait, result="waited", options=ENDLESS)
        burner, spinner, waiter = world.started(burns), world.started(spins), world.started(native)
        places = {"unresponsive": holder(hand, burns), "stalled": holder(hand, spins)}
        for flag, component in places.items():
            eventually(lambda f=flag, c=component: worker(hand, c)["flags"] == [f], BURN + 20, what=flag)
            shown = eventually(lambda f=flag, c=component: [h for h in [hand.component(c)] if h and h.flags == (f,)])[0]
            assert (shown.status, shown.is_healthy) == (f"healthy ({flag})", False)
            assert not hand.is_healthy(component)
            view = hand.status() or {}
            assert view["verdict"]["status"] == "degraded"
            assert f"{component} is {flag}" in view["verdict"]["reasons"]
        for component in places.values():  # they report progress now, while still in the same job
            eventually(lambda c=component: worker(hand, c)["flags"] == [], BURN + 40, what="no flag any more")
            eventually(lambda c=component: hand.is_healthy(c))
        gate.touch()
        assert (burns.wait(20), spins.wait(20), native.wait(20)) == ("burnt", "spun", "waited")
        assert hand.crashes() == []
        assert (world.starts(burns), world.starts(spins), world.starts(native)) == ([burner], [spinner], [waiter])
        assert counters(burns) == counters(spins) == counters(native) == (0, 0, 0)
        assert {seen["pid"] for seen in workers(hand).values()} == {burner, spinner, waiter, calm}
        assert [seen["restart_count"] for seen in workers(hand).values()] == [0, 0, 0, 0]


@shows("nap", "half a frame")
def test_a_job_that_takes_longer_than_it_may(make_hand: MakeHand, world: World) -> None:  # spec: WK-7 RP-7
    hand = make_hand(restart=LIMITED, liveness=BRISK)
    crew = hand.crew("do", FAULTY, workers=3, timeout=0.6)
    with hand.running():
        gate = world.gate()
        calm = world.put(crew, gate, fault="wait", options={"timeout": 60})
        pid = world.started(calm)
        once: dict[str, Any] = {"max_attempts": 1}
        nap = world.put(crew, fault="nap", options=once)
        half = world.put(crew, fault="half a frame", options=once)
        for ref, word in ((nap, "in _nap"), (half, "in _half_a_frame")):
            with pytest.raises(JobFailed, match="timed out"):
                ref.wait(20)
            job, (attempt,) = ref.job(), ref.attempts()
            (report,) = reports(hand, 1, job=ref.id)
            assert (job.state, job.reason, *counters(ref)) == (State.FAILED, "timed out", 1, 0, 0)
            assert (attempt.outcome, attempt.pid) == ("timed out", world.starts(ref)[0])
            assert attempt.duration_ms >= 600
            assert "the job took longer than its timeout" in (job.error or "")
            assert word in (job.error or "")
            assert job.error == attempt.error
            assert (report.reason, report.signal, report.pid) == ("job timeout", 9, attempt.pid)
            assert (report.charged, report.follows) == (False, "restarted at once")
            assert word in report.stacks
            seen = at_work(hand, report.component)
            assert seen["pid"] != attempt.pid
            assert (seen["restart_count"], seen["budget"]) == (1, {"rapid_left": 5, "lifetime_left": 20})
        gate.touch()
        calm.wait(20)
        assert world.starts(calm) == world.ends(calm) == [pid]


@shows("ignore sigterm")
def test_one_that_hears_no_sigterm_is_killed_after_the_grace(  # spec: WP-6 PD-3 SV-10
    make_hand: MakeHand, world: World
) -> None:
    hand = make_hand(liveness=BRISK)
    crew = hand.crew("do", FAULTY, workers=2)
    with hand.running():
        with sibling(world, crew):
            ref = world.put(crew, fault="children", kinds=["plain"], then={"fault": "ignore sigterm"})
            pid, component = world.started(ref), holder(hand, ref)
            eventually(lambda: world.lines("ignoring"))
            os.kill(pid, signal.SIGTERM)
            began = clock.monotonic()
            hand.stop(component)
            eventually(lambda: worker(hand, component)["status"] == "stopped")
            assert clock.monotonic() - began >= BRISK.grace
            assert gone(pid)
            assert [child for child in world.children() if not gone(child)] == []
            seen = worker(hand, component)
            assert (seen["reason"], seen["signal"], seen["restart_count"], seen["pid"]) == ("stopped", 9, 0, None)
            eventually(lambda: ref.job().state is State.QUEUED)
            assert counters(ref) == (0, 0, 1)
            assert [(a.outcome, a.pid) for a in ref.attempts()] == [("interrupted", pid)]
            assert hand.crashes() == []
        world.started(ref, times=2)  # by the sibling, which was stopped by nobody


def test_a_stopped_node_kills_nobody_and_shifts_every_limit(make_hand: MakeHand, world: World) -> None:  # spec: SV-3
    """The machine slept: neither silence nor a job's timeout counts while the node could not see."""
    timeout, asleep = 2.0, 3.0
    hand = make_hand(
        restart=QUICK,
        liveness=LivenessPolicy(beat=0.1, silent=1.0, idle=1.0, still=1.5, grace=0.3, terminate=0.2),
    )
    crew = hand.crew("do", FAULTY, workers=5)
    gate, never = world.gate(), world.gate()
    limit: dict[str, Any] = {"timeout": timeout, "max_attempts": 1}
    with hand.running() as host:
        eventually(lambda: [seen["status"] for seen in workers(hand).values()] == ["healthy"] * 5)
        pids = {seen["pid"] for seen in workers(hand).values()}
        in_time = [world.put(crew, gate, fault="wait", options=limit), world.put(crew, gate, fault="wait")]
        burns = world.put(crew, fault="burn in c", seconds=asleep + 0.3, options=ENDLESS)
        too_long = world.put(crew, never, fault="wait", options=limit)
        for ref in (*in_time, burns, too_long):
            world.started(ref)
        assert host.node_pid
        os.kill(host.node_pid, signal.SIGSTOP)
        until = clock.monotonic() + asleep
        eventually(lambda: clock.monotonic() >= until)
        os.kill(host.node_pid, signal.SIGCONT)
        gate.touch()
        for ref in (*in_time, burns):
            ref.wait(20)
            assert counters(ref) == (0, 0, 0)
            assert len(world.starts(ref)) == 1
        assert {seen["pid"] for seen in workers(hand).values()} == pids, "the one without a job, too"
        assert hand.crashes() == []
        # What is left of a timeout is granted, and no more.
        with pytest.raises(JobFailed, match="timed out"):
            too_long.wait(20)
        (attempt,) = too_long.attempts()
        assert attempt.duration_ms >= 1000 * (timeout + asleep - 1)
        (report,) = reports(hand, 1)
        assert (report.reason, report.job) == ("job timeout", too_long.id)
