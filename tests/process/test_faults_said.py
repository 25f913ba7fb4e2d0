"""What a worker says: to the node what is no frame, to the world lines of text. And memory that really runs out."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fault_checks import BRISK, FAULTY, counters, first_report, holder, reports, shows, sibling, workers
from world import World, gone

from chargehand import Chargehand, LivenessPolicy
from chargehand.log import Event
from chargehand.node.output import KEPT
from chargehand.processes import proc
from chargehand.testing import eventually

MakeHand = Callable[..., Chargehand]

MEMORY = Path("/sys/fs/cgroup/memory")
UNLIMITED = 1 << 62
PLAIN = {"PYTHONUNBUFFERED": ""}
"""As users have it: what is printed into a pipe waits in the process."""


@shows("garbage", "half a frame")
def test_what_is_no_frame(make_hand: MakeHand, world: World) -> None:  # spec: SV-8 SV-2 WP-5
    hand = make_hand(liveness=BRISK)
    crew = hand.crew("do", FAULTY, workers=3)
    nap: dict[str, Any] = {"fault": "nap"}
    half: dict[str, Any] = {"fault": "half a frame", "seconds": 0}
    with hand.running(), sibling(world, crew) as calm:
        some = world.put(crew, fault="garbage", into="pulse", lines=2, result="two are not three")
        assert some.wait(20) == "two are not three"
        into_work = world.put(crew, fault="garbage", into="work", lines=1, then=nap)
        into_pulse = world.put(crew, fault="garbage", into="pulse", lines=9, then=nap)
        half_and_whole = world.put(crew, **half)
        half_and_gone = world.put(crew, **half, then={"fault": "exit", "code": 9})
        for ref, reasons, code, number, frames, word in (
            (into_work, ["bad frame"], None, 9, 1, "no frame"),
            (into_pulse, ["bad frame"], None, 9, 3, "no frame"),
            (half_and_whole, ["bad frame"], None, 9, 1, 'DONE|{"id":'),
            # Whether the end of its socket is seen first, or its death, is not certain.
            (half_and_gone, ["bad frame", "exited"], 9, None, 0, 'DONE|{"id":'),
        ):
            world.started(ref, times=2)
            report, attempt = first_report(hand, ref), ref.attempts()[0]
            assert report.reason in reasons
            assert (report.exit_code, report.signal) == (code, number)
            assert (report.pid, report.component) == (attempt.pid, attempt.worker)
            assert report.pid == world.starts(ref)[0]
            assert attempt.outcome == "crashed"
            kept = [frame for frame in report.frames if word in frame]
            assert len(kept) >= frames
            assert len(report.frames) <= 5
            assert all(len(frame) < 1200 for frame in report.frames)
            assert ("(bad frame)" in (attempt.error or "")) == (report.reason == "bad frame")
            assert (ref.job().attempts, ref.job().interruptions) == (0, 0)
        assert calm not in {report.pid for report in hand.crashes()}
        assert reports(hand, 0, job=some.id) == []
        assert counters(some) == (0, 0, 0)


def spoken(count: int) -> list[tuple[str, str]]:
    """Level and text of what the fault `output` writes."""
    return [
        line
        for n in range(count)
        for line in (
            ("info", f"line {n} to stdout"),
            ("info", f"line {n} to stderr"),
            ("warning", f"chargehand.testing.faults: line {n} to the log"),
        )
    ]


def numbered(hand: Chargehand, scope: str | None, count: int) -> list[dict[str, Any]]:
    """The lines of the fault `output` in the log, once there are so many."""
    told = [line for line in hand.logs(scope, count=5000) if "line " in line["text"]]
    return told if len(told) >= count else []


@shows("output")
def test_what_it_printed_and_logged(make_hand: MakeHand, world: World) -> None:  # spec: WP-10
    hand = make_hand(liveness=BRISK)
    crew = hand.crew("do", FAULTY, workers=2, environment={"PYTHONUNBUFFERED": "1"})
    with hand.running(), sibling(world, crew):
        well = world.put(crew, fault="output", lines=3, then={"fault": "wait", "gate": str(world.folder)})
        well.wait(20)
        component = well.attempts()[0].worker
        eventually(lambda: len(list(hand.logs(job=well.id))) >= 9)
        told = list(hand.logs(job=well.id))
        assert [(line["level"], line["text"]) for line in told] == spoken(3)
        assert {(line["component"], line["job"]) for line in told} == {(component, well.id)}
        ill = world.put(crew, fault="output", lines=500, then={"fault": "exit"})
        report = first_report(hand, ill)
        assert (report.reason, report.exit_code, report.component) == ("exited", 1, component)
        assert list(report.lines) == [f"{level:7} {text}" for level, text in spoken(500)[-KEPT:]]
        told = eventually(lambda: numbered(hand, component, 1509))
        assert [(line["level"], line["text"]) for line in told[9:1509]] == spoken(500)
        assert {line["job"] for line in told if line["level"] == "warning"} == {well.id, ill.id}
        assert [line for line in hand.logs(component, count=5000) if f"event={Event.WORKER_EXITED}" in line["text"]]


def test_what_it_printed_last_carries_its_job(make_hand: MakeHand, world: World) -> None:  # spec: WP-10
    hand = make_hand(liveness=BRISK)
    crew = hand.crew("do", FAULTY, workers=1)
    with hand.running():
        ref = world.put(crew, fault="output", lines=500, then={"fault": "exit"})
        first_report(hand, ref)
        told = eventually(lambda: numbered(hand, "do", 1500))
        assert {line["job"] for line in told} == {ref.id}


def test_what_it_printed_last_is_not_lost_with_it(make_hand: MakeHand, world: World) -> None:  # spec: WP-10
    hand = make_hand(liveness=BRISK)
    crew = hand.crew("do", "dying_handlers:Unflushed", workers=1, environment=PLAIN)
    with hand.running():
        ref = world.put(crew, lines=500)
        assert list(first_report(hand, ref).lines) == [f"info    line {n}" for n in range(300, 500)]


@shows("flood")
def test_a_flood_of_output_delays_nobody(make_hand: MakeHand, world: World) -> None:  # spec: WP-10 SV-6 SV-8
    """40 MB would take a minute at the pace of the log."""
    hand = make_hand(liveness=LivenessPolicy(beat=0.1, silent=5, still=1.0, grace=0.3, terminate=0.2))
    crew = hand.crew("do", FAULTY, workers=2, timeout=None)
    with hand.running(), sibling(world, crew):
        lines = world.put(crew, fault="flood", bytes=40 << 20, result="all lines")
        one = world.put(crew, fault="flood", bytes=40 << 20, one=True, result="one line")
        assert (lines.wait(10), one.wait(10)) == ("all lines", "one line")
        told = eventually(lambda: [line for line in hand.logs("do", count=5000) if "dropped" in line["text"]])
        assert told[0]["level"] == "warning"
        assert re.fullmatch(r"[\d,]+ lines dropped", told[0]["text"])
        assert hand.crashes() == []


@pytest.fixture
def small_room() -> Iterator[Path]:
    """A control group with little memory: what is put into it, and wants more, is killed by the kernel."""
    if not os.access(MEMORY / "cgroup.procs", os.W_OK):
        pytest.skip(f"no real want of memory here: {MEMORY} (cgroup v1) is not there, or not ours to write")
    own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line)
    stat = (MEMORY / own.split(":")[2].lstrip("/") / "memory.stat").read_text().split()
    limit = int(stat[stat.index("hierarchical_memory_limit") + 1])
    if limit < UNLIMITED:
        pytest.skip(f"no real want of memory here: we have a limit of our own ({limit:,} bytes), and stay under it")
    room = MEMORY / f"chargehand-test-{os.getpid()}"
    try:
        room.mkdir()
        (room / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError as error:
        if room.exists():
            room.rmdir()
        pytest.skip(f"no real want of memory here: {error}")
    yield room

    def removed() -> bool:
        for pid in (room / "cgroup.procs").read_text().split():
            (MEMORY / own.split(":")[2].lstrip("/") / "cgroup.procs").write_text(pid)
        try:
            room.rmdir()
        except OSError:
            return False  # somebody in it has not quite ended
        return True

    eventually(removed)


@shows("hog")
@pytest.mark.alone
def test_the_kernel_kills_it_for_want_of_memory(  # spec: WP-8 WK-6
    make_hand: MakeHand, world: World, small_room: Path
) -> None:
    hand = make_hand(liveness=BRISK)
    crew = hand.crew("do", FAULTY, workers=2)
    gate = world.gate()
    with hand.running(), sibling(world, crew):
        hog = {"fault": "hog", "bytes": 128 << 20}
        ref = world.put(crew, gate, fault="wait", then=hog, result="there was room")
        first, component, kills = world.started(ref), holder(hand, ref), proc.oom_kills()
        (small_room / "cgroup.procs").write_text(str(first))
        gate.touch()
        assert ref.wait(20) == "there was room", "the second time, in another process, it has room"
        assert proc.oom_kills() > kills
        assert len(world.starts(ref)) == 2
        (report,) = reports(hand, 1)
        assert (report.reason, report.exit_code, report.signal) == ("oom", None, 9)
        assert (report.pid, report.job, report.component, report.charged) == (first, ref.id, component, False)
        assert counters(ref) == (0, 1, 0)
        assert [(a.outcome, a.pid) for a in ref.attempts()] == [("crashed", first), ("done", world.starts(ref)[1])]
        assert "signal 9, SIGKILL (oom)" in (ref.attempts()[0].error or "")
        assert eventually(lambda: workers(hand)[component]["restart_count"]) == 1


@pytest.mark.alone
def test_the_kernel_kills_two_at_a_time(make_hand: MakeHand, world: World, small_room: Path) -> None:  # spec: WP-8
    hand = make_hand(liveness=BRISK)
    crew = hand.crew("do", FAULTY, workers=2)
    gates = [world.gate(), world.gate()]
    hog = {"fault": "hog", "bytes": 128 << 20}
    with hand.running() as host:
        refs = [world.put(crew, gate, fault="wait", then=hog) for gate in gates]
        pids = [world.started(ref) for ref in refs]
        assert host.node_pid
        os.kill(host.node_pid, signal.SIGSTOP)  # so that it finds both at the same moment
        for pid, gate in zip(pids, gates, strict=True):
            (small_room / "cgroup.procs").write_text(str(pid))
            gate.touch()
            eventually(lambda pid=pid: gone(pid))
        os.kill(host.node_pid, signal.SIGCONT)
        for ref in refs:
            ref.wait(20)
        assert [report.reason for report in reports(hand, 2)] == ["oom", "oom"]
