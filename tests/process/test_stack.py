"""What a running worker is doing now: `chargehand stack`, also while C code holds the interpreter."""

import os
import re
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from burning_handlers import STOP
from fault_checks import FAULTY, first_report
from operating import answered, become, command, pids, said, statuses
from world import World

from chargehand import Chargehand, JobFailed, LivenessPolicy, StackCode, State, WorkerStacks
from chargehand.testing import eventually

MakeHand = Callable[..., Chargehand]
NEVER = LivenessPolicy(beat=0.1, silent=60, grace=0.3, terminate=0.2)


def writer_of(found: WorkerStacks) -> str:
    """The stack of the thread that wrote them."""
    return found.stacks.partition("Current thread ")[2].partition("\n\n")[0]


def test_stacks_on_request_while_c_code_holds_the_interpreter_and_before_crashes(  # spec: CL-6 SV-6
    make_hand: MakeHand, world: World
) -> None:
    hand = make_hand(liveness=NEVER)
    crew = hand.crew("do", "burning_handlers:Burning", workers=1)
    burn = world.folder / "burn"
    burn.write_bytes(b"\0")
    with hand.running():
        burning = world.put(crew, burn=str(burn))
        eventually(lambda: burning.job().state is State.RUNNING)
        (pid,) = pids(hand).values()

        def ask() -> list[WorkerStacks]:
            """The stacks, by three callers at the same time; nothing if the pulse thread wrote them: it had the GIL."""
            with ThreadPoolExecutor(3) as callers:
                found = list(callers.map(hand.stack, ["do:0", "worker:do:0", "do:0"]))
            return [] if any("in _turn" in writer_of(each) for each in found) else found

        for stacks in eventually(ask):
            assert (stacks.component, stacks.pid, stacks.job) == ("worker:do:0", pid, burning.id)
            assert (stacks.code, stacks.stacks.count("in burn_in_c")) == (StackCode.DUMPED, 1), stacks
            assert "in _turn" in stacks.stacks, "the pulse thread waits"
            assert f"thread {pid} 'python': state " in stacks.threads
            assert (stacks.memory or 0) > 1 << 20, stacks
            assert min(stacks.cpu or 0, stacks.cpu_s or 0) > 0, stacks
        with burn.open("r+b") as file:  # not truncated: it is mapped
            file.write(bytes([STOP]))
        burning.wait(30)
        assert world.starts(burning) == [pid], "it went on"
        late = world.put(crew, fault="nap", options={"timeout": 0.2, "max_attempts": 1})
        with pytest.raises(JobFailed, match="timed out"):
            late.wait(30)
        hung = first_report(hand, late)
        assert (hung.pid, hung.reason) == (pid, "job timeout")
        assert hung.stacks.count("in _nap") == hung.stacks.count("Current thread") == 1
        assert "in burn_in_c" not in hung.stacks, "what a person asked for is no part of a crash"
        waiting = world.put(crew, gate=(gate := world.gate()), fault="wait", then={"fault": "segfault"})
        world.started(waiting)
        assert hand.stack("do:0").stacks.count("in _wait") == 1
        gate.touch()
        crashed = first_report(hand, waiting)
        assert crashed.signal == signal.SIGSEGV
        assert crashed.stacks.count("in segfault") == crashed.stacks.count("Current thread") == 1
        assert "in _wait" not in crashed.stacks
        waiting.cancel()


def test_stacks_from_another_terminal(make_hand: MakeHand, world: World) -> None:  # spec: CL-6 CL-3
    hand = make_hand(liveness=NEVER)
    crew = hand.crew("do", FAULTY, workers=2)
    with hand.running():
        become(hand, "healthy")
        ref = world.put(crew, gate=(gate := world.gate()), fault="wait")
        pid = world.started(ref)
        busy = next(name for name, number in pids(hand).items() if number == pid)
        shown = said(world, "stack", busy)
        assert shown.startswith(f"worker:{busy} (pid {pid}), job {ref.id}: wrote its stacks\nuses ")
        assert re.search(
            r"uses [\d.]+ MiB of memory, \d+% of a core now, [\d.]+ s of CPU time since its start\n\nstacks:\n", shown
        )
        assert 'faults.py", line ' in shown
        assert " in _wait\n" in shown
        assert answered(world, "stack", f"worker:{busy}")["code"] == "dumped"
        os.kill(pid, signal.SIGSTOP)
        told = command(world, "stack", busy)
        assert (told.returncode, told.stderr) == (1, "")
        assert (
            f"worker:{busy} (pid {pid}), job {ref.id}: is suspended by SIGSTOP or a debugger (state T)" in told.stdout
        )
        os.kill(pid, signal.SIGCONT)
        assert answered(world, "stack", busy)["stacks"].count(" in _wait\n") == 1
        gate.touch()
        ref.wait(30)
        hand.stop(busy)
        eventually(lambda: statuses(hand)[busy] == "stopped")
        told = command(world, "stack", busy)
        assert (told.returncode, told.stdout) == (1, f"worker:{busy}: has no process: it is stopped\n")
        for name, text in (("do", "is not the name of one worker"), ("do:7", "there is no crew or worker 'do:7'")):
            told = command(world, "stack", name)
            assert (told.returncode, told.stdout) == (2, "")
            assert text in told.stderr
    told = command(world, "stack", "do:0")
    assert (told.returncode, told.stdout) == (1, "")
    assert "no stacks: no node serves" in told.stderr
    assert hand.crashes() == []
