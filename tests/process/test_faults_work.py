"""A job that ends badly: with an exception, or with the process that did it. What is recorded, and what follows."""

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
    reports,
    shows,
    sibling,
    worker,
    workers,
)
from scripted_app import QUICK
from world import World, gone

from chargehand import Chargehand, JobFailed, RestartPolicy
from chargehand.crew import Ref
from chargehand.model.job import State
from chargehand.model.records import CrashRecord
from chargehand.testing import eventually

MakeHand = Callable[..., Chargehand]

DEATHS: dict[str, tuple[dict[str, Any], str, int | None, int | None, str]] = {
    "an exit code": ({"fault": "exit", "code": 7}, "exited", 7, None, ""),
    "an exit code that says nothing": ({"fault": "exit", "code": 0}, "exited", 0, None, ""),
    "an exit code that was not meant": ({"fault": "exit", "code": 2}, "exited", 2, None, ""),
    "a segfault": ({"fault": "segfault"}, "crash", None, 11, "faults_deeds.py"),
    "an abort": ({"fault": "abort"}, "crash", None, 6, "in _abort"),
    "a kill": ({"fault": "kill"}, "crash", None, 9, ""),
}
"""The payload; reason, exit code and signal in the report; a word in the stacks."""


def quarantined(ref: Ref[Any]) -> None:
    with pytest.raises(JobFailed, match="poison"):
        ref.wait(40)
    job = ref.job()
    assert (job.state, job.reason, *counters(ref)) == (State.FAILED, "poison", 0, 3, 0)


@shows("exit", "segfault", "abort", "kill", "wait")
def test_every_way_to_die(make_hand: MakeHand, world: World) -> None:  # spec: WK-6 WP-8 WP-10 SV-2 RP-7
    hand = make_hand(liveness=BRISK)
    crew = hand.crew("do", FAULTY, workers=3)
    with hand.running(), sibling(world, crew) as calm:
        refs = {name: world.put(crew, **payload) for name, (payload, *_) in DEATHS.items()}
        for ref in refs.values():
            quarantined(ref)
        for name, (_, reason, code, number, word) in DEATHS.items():
            ref, found = refs[name], reports(hand, 3, job=refs[name].id)
            how = f"signal {number}, {signal.Signals(number).name}" if number else f"exit code {code}"
            for report in found:
                assert (report.reason, report.exit_code, report.signal) == (reason, code, number)
                assert report.text == f"{reason} ({how})"
                assert (report.memory or 0) > 1 << 20
                assert report.uptime_ms is not None
                assert report.follows.startswith("restarted in 0.")
                assert word in report.stacks
                assert bool(report.stacks) == bool(word)
                assert (report.frames, report.crew) == ((), "do")
            pids = world.starts(ref)
            assert [report.pid for report in found] == pids
            assert [(a.outcome, a.pid, a.worker) for a in ref.attempts()] == [
                ("crashed", pid, report.component) for pid, report in zip(pids, found, strict=True)
            ]
            for attempt in ref.attempts():
                assert f"{attempt.worker} (pid {attempt.pid}) ended by {how}" in (attempt.error or "")
                assert word in (attempt.error or "")
            assert ref.job().error == ref.attempts()[-1].error
        everything = reports(hand, 3 * len(refs))
        assert [report.charged for report in everything] == charges(everything)
        assert calm not in [report.pid for report in everything]
        for component in workers(hand):
            seen, own = at_work(hand, component), [r for r in everything if r.component == component]
            assert seen["restart_count"] == len(own)
            assert (seen["pid"] == calm) == (not own)
        assert world.put(crew, result="as ever").wait(20) == "as ever"


def charges(found: list[CrashRecord]) -> list[bool]:
    """What is to be charged: a crash with a job in hand if no job has ended since that worker's previous crash."""
    crashes: dict[str | None, int] = {}
    last: dict[str, int] = {}
    ended, charged = 0, list[bool]()
    for report in found:
        crashes[report.job] = crashes.get(report.job, 0) + 1
        ended += crashes[report.job] == 3
        charged.append(last.get(report.component) == ended)
        last[report.component] = ended
    return charged


@shows("raise", "retry", "give up", "sys.exit", "memory", "descriptors", "recurse", "threads", "hog")
def test_what_only_ends_the_attempt(make_hand: MakeHand, world: World) -> None:  # spec: WK-5
    hand = make_hand(liveness=BRISK)
    crew = hand.crew("do", FAULTY, workers=2)
    once: dict[str, Any] = {"options": {"max_attempts": 1}}
    with hand.running(), sibling(world, crew) as calm:
        files = world.put(crew, fault="descriptors", **once)  # first: nothing that describes an error is imported yet
        raised = world.put(crew, fault="raise", text="no such note", **once)
        hog = world.put(
            crew, fault="hog", bytes=32 << 20, result="full"
        )  # two failures in a row, never three: that is suspect
        left = world.put(crew, fault="sys.exit", code=3, **once)
        memory = world.put(crew, fault="memory", **once)
        threads = world.put(crew, fault="threads", count=3, result="left some")
        deep = world.put(crew, fault="recurse", **once)
        retry = world.put(crew, fault="retry", options={"max_attempts": 3})
        given_up = world.put(crew, fault="give up", reason="no such song")
        later = world.put(crew, fault="raise")
        assert (hog.wait(20), threads.wait(20)) == ("full", "left some")
        for ref, reason, word in (
            (raised, "raised", "RuntimeError: no such note"),
            (left, "raised", "SystemExit: 3"),
            (memory, "raised", "MemoryError"),
            (files, "raised", "in exhaust_descriptors\n    opened.append(open(os.devnull))"),
            (files, "raised", "OSError: [Errno 24] Too many open files"),
            (deep, "raised", "RecursionError"),
            (retry, "retries used up", "retry in 0 s"),
            (given_up, "gave up", "no such song"),
        ):
            with pytest.raises(JobFailed, match=reason):
                ref.wait(20)
            assert (ref.job().state, ref.job().reason) == (State.FAILED, reason)
            assert word in (ref.job().error or "")
        assert [counters(ref) for ref in (raised, left, memory, files, deep, given_up)] == [(1, 0, 0)] * 6
        assert counters(retry) == (3, 0, 0)
        assert [attempt.outcome for attempt in retry.attempts()] == ["retry"] * 3
        eventually(lambda: later.attempts())
        again_ms, first = later.job().run_at_ms, later.attempts()[0]
        assert (first.outcome, first.pid) == ("raised", world.starts(later)[0])
        assert again_ms - first.started_ms - first.duration_ms >= 1900, "it is tried again after 2 s"
        # All of that was done by one process, which is still there, threads and all.
        refs = (raised, left, memory, files, deep, retry, given_up, later, hog, threads)
        pids = {pid for ref in refs for pid in world.starts(ref)}
        assert pids == {seen["pid"] for seen in workers(hand).values()} - {calm}
        assert [seen["restart_count"] for seen in workers(hand).values()] == [0, 0]
        assert hand.crashes() == []


@shows("children", "fork")
def test_what_a_worker_left_dies_with_it(make_hand: MakeHand, world: World) -> None:  # spec: WP-1 SV-6
    hand = make_hand(liveness=BRISK)
    crew = hand.crew("do", FAULTY, workers=2)
    gate = world.gate()
    with hand.running(), sibling(world, crew):
        kept = world.put(crew, fault="children", then={"fault": "fork"}, result="left some")
        assert kept.wait(20) == "left some"
        first = world.children_of(4)
        assert not any(gone(child) for child in first), "what a job leaves may go on while its worker lives"
        last: dict[str, Any] = {"fault": "wait", "gate": str(gate), "then": {"fault": "kill"}}
        ref = world.put(crew, fault="children", then={"fault": "fork", "then": last})
        assert world.started(ref) == world.starts(kept)[0]
        children = world.children_of(8)
        gate.touch()
        world.started(ref, times=2)
        assert [child for child in children if not gone(child)] == []
        report = first_report(hand, ref)
        assert (report.reason, report.signal, report.pid) == ("crash", 9, world.starts(ref)[0])
    assert [child for child in world.children() if not gone(child)] == []


@shows("leak")
def test_one_that_grew_too_large_is_recycled(make_hand: MakeHand, world: World) -> None:  # spec: WP-9 RP-7
    hand = make_hand(liveness=BRISK, restart=RestartPolicy(first_pause=60))  # so that a pause would be seen
    crew = hand.crew("do", FAULTY, workers=2, recycle_memory="60 MB")
    with hand.running(), sibling(world, crew):
        ref = world.put(crew, fault="leak", bytes=64 << 20, result="leaked")
        assert ref.wait(20) == "leaked"
        (first,) = world.starts(ref)
        component = ref.attempts()[0].worker or ""
        eventually(lambda: gone(first))
        second = at_work(hand, component)
        assert second["pid"] != first
        assert (second["restart_count"], second["exit_code"], second["signal"]) == (0, 0, None)
        assert second["budget"] == {"rapid_left": 5, "lifetime_left": 20}
        again = world.put(crew, result="small")
        assert again.wait(20) == "small"
        assert world.starts(again) == [second["pid"]]
        assert worker(hand, component)["pid"] == second["pid"], "one that is small enough stays"
        assert hand.crashes() == []
    assert counters(ref) == (0, 0, 0)


def test_twenty_crashing_files_among_a_hundred(make_hand: MakeHand, world: World) -> None:  # spec: WK-6 RP-7
    hand = make_hand(restart=LIMITED, liveness=BRISK)
    crew = hand.crew("do", FAULTY, workers=2)
    files: list[dict[str, Any]] = [{"fault": "abort"} if n % 5 == 2 else {"result": n} for n in range(100)]
    with hand.running():
        refs = crew.enqueue_many(files)
        eventually(lambda: [(c.queued, c.running) for c in hand.counts()] == [(0, 0)], 90, what="all ended")
        (counts,) = hand.counts()
        assert (counts.done, counts.failed) == (80, 20)
        for file, ref in zip(files, refs, strict=True):
            if file.get("fault"):
                quarantined(ref)
            else:
                assert ref.wait(20) == file["result"]
                assert counters(ref) == (0, 0, 0)
        found = reports(hand, 60)
        assert [report.charged for report in found].count(True) < 60
        for component in workers(hand):
            at_work(hand, component)
        assert [report for report in found if "given up" in report.follows] == []


@pytest.mark.parametrize("count", [1, 2])
def test_three_crashing_files_and_nothing_else(  # spec: WK-6 RP-7
    make_hand: MakeHand, world: World, count: int
) -> None:
    hand = make_hand(restart=LIMITED, liveness=BRISK)
    crew = hand.crew("do", FAULTY, workers=count)
    with hand.running():
        for ref in [world.put(crew, fault="abort") for _ in range(3)]:
            quarantined(ref)
        seen = [at_work(hand, component) for component in workers(hand)]
        assert sum(each["restart_count"] for each in seen) == 9
        assert world.put(crew, result="as ever").wait(20) == "as ever"
        reports(hand, 9)


assert QUICK.rapid_limit > 3 * len(DEATHS)
