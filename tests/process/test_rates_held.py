"""The rate of a queue, with real processes that are killed and started again."""

import os
import signal

from terminal import chargehand as command
from workworld import workers_of
from world import World

from chargehand import Chargehand, clock
from chargehand.doctor.examine import examine
from chargehand.testing import eventually


# cause: rate
def test_a_rate_holds_across_kills_and_restarts_and_is_told(hand: Chargehand, world: World) -> None:  # spec: WK-19 CL-4
    do = hand.crew("do", "scripted_handlers:Doer", workers=3, rate="2/h")
    quick = hand.crew("quick", "scripted_handlers:Doer", workers=2, rate="3/s")
    gate = world.folder / "gate"
    held = [world.put(do, gate) for _ in range(2)]
    left = [world.put(do) for _ in range(3)]
    with hand.running() as host:
        assert host.ready.wait(20)
        for ref in held:
            world.started(ref)
        for worker in workers_of(hand):
            if worker["current_job"]:
                os.kill(worker["pid"], signal.SIGKILL)
        eventually(lambda: all(ref.job().state == "queued" for ref in held), 20, what="the jobs are queued again")
        (found,) = [each for each in examine(hand).findings if each.cause == "rate"]
        assert (found.about, found.severity) == ("do", "note")
        assert found.text.startswith("queue do: limited by rate (rate=2/h), next in ")
        told = command("status", CHARGEHAND_URL=str(world.store)).stdout
        assert "queue do: limited by rate, next in " in told
    gate.touch()
    began = clock.monotonic()
    refs = [world.put(quick) for _ in range(7)]
    with hand.running() as host:
        assert host.ready.wait(20)
        for ref in refs:
            ref.wait(20)
    assert clock.monotonic() - began >= 2.0, "seven jobs at three a second take two seconds"
    starts = [world.starts(ref) for ref in (*held, *left)]
    assert [len(each) for each in starts] == [1, 1, 0, 0, 0], "those that were killed count, in every life"
