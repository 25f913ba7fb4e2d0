"""No more run at a time than a queue and a key allow, as the handlers themselves see it, whoever dies."""

import os
import random
import signal
from contextlib import suppress
from typing import Any

import pytest
from workworld import application, workers_of
from world import World

from chargehand import Chargehand
from chargehand.testing import eventually

JOBS = int(os.environ.get("CHARGEHAND_TEST_LIMITED", "300"))
MOST = 3
KEYS = 5


def checked(world: World) -> None:
    """What the handlers found: nobody too many, and nobody beside another on the same key."""
    assert world.lines("exceeded") == []
    assert world.lines("overlap") == []


@pytest.mark.parametrize("which", ["queue", "key", "both"])
def test_limits_hold_and_nothing_is_left_waiting(hand: Chargehand, world: World, which: str) -> None:  # spec: WK-13
    """Small jobs, as fast as they go: every slot that is freed is used again, though nobody enqueues anything."""
    most = MOST if which != "key" else 8
    lim = hand.crew(
        "lim", "discovery_handlers:Limited", workers=8, limit=None if which == "key" else MOST,
        limit_per_key=None if which == "queue" else 1, environment=application(world),
    )  # fmt: skip
    with hand.running() as host:
        assert host.ready.wait(20)
        refs = [
            lim.enqueue(
                {"most": most, "key": f"j{n}" if which == "queue" else f"k{n % KEYS}"}, limit_key=f"k{n % KEYS}"
            )
            for n in range(60)
        ]
        for ref in refs:
            ref.wait(20)
    checked(world)
    assert len(world.lines("end")) == 60


def test_limits_under_eight_workers_and_kills(hand: Chargehand, world: World) -> None:  # spec: WK-13 WK-6
    chance = random.Random(13)
    lim = hand.crew(
        "lim", "discovery_handlers:Limited", workers=8, limit=MOST, limit_per_key=1, environment=application(world)
    )  # fmt: skip
    payloads: list[dict[str, Any]] = [
        {"most": MOST, "key": f"k{chance.randrange(KEYS)}", "seconds": 0.01} for _ in range(JOBS)
    ]
    with hand.running() as host:
        assert host.ready.wait(20)
        refs = [lim.enqueue(payload, limit_key=payload["key"]) for payload in payloads]
        for done in range(JOBS // 10, JOBS, JOBS // 10):
            eventually(lambda done=done: hand.counts()[0].done >= done, 60, what=f"{done} done: {hand.counts()}")
            busy = [w["pid"] for w in workers_of(hand) if w["current_job"] and w["pid"]]
            for pid in busy[: chance.randint(1, 2)]:
                with suppress(ProcessLookupError):  # it was killed in the round before, and died only now
                    os.kill(pid, signal.SIGKILL)
            if done // (JOBS // 10) in (3, 7):
                os.kill(eventually(lambda: host.node_pid) or 0, signal.SIGKILL)
        for ref in refs:
            ref.wait(60)
        checked(world)
        # No slot is lost: as many as ever are at work together, and every key has its own.
        gate = world.gate()
        last = [
            lim.enqueue({"most": MOST, "key": f"k{n % KEYS}", "gate": str(gate)}, limit_key=f"k{n % KEYS}")
            for n in range(8)
        ]
        eventually(lambda: sum(bool(world.starts(ref)) for ref in last) == MOST, what="all slots are used")
        gate.touch()
        for ref in last:
            ref.wait(20)
        eventually(lambda: hand.counts()[0].running == 0)
    checked(world)
    (counts,) = hand.counts()
    assert (counts.queued, counts.limited, counts.running, counts.failed) == (0, 0, 0, 0)
    assert counts.done == JOBS + len(last)


def test_a_slot_that_an_interrupted_raised_or_cancelled_job_had_is_free(  # spec: WK-13 WK-8
    hand: Chargehand, world: World
) -> None:
    lim = hand.crew("lim", "chargehand.testing.faults:Faulty", workers=2, limit=1, max_attempts=1)
    with hand.running():
        gate = world.gate()
        held = world.put(lim, gate, fault="wait")
        world.started(held)
        raises, killed = world.put(lim, fault="raise"), world.put(lim, fault="kill")
        after = world.put(lim, result="after")
        assert hand.counts()[0].running == 1
        held.cancel()
        assert after.wait(30) == "after"
        eventually(lambda: killed.job().reason == "poison", 30)
        assert (held.job().state, raises.job().reason) == ("cancelled", "raised")
        assert world.put(lim, result="last").wait(20) == "last"


def test_one_key_at_its_limit_does_not_hold_up_the_others(hand: Chargehand, world: World) -> None:  # spec: WK-13
    lim = hand.crew("lim", "discovery_handlers:Limited", workers=2, limit_per_key=1, environment=application(world))
    gate = world.gate()
    with hand.running() as host:
        assert host.ready.wait(20)
        slow = [lim.enqueue({"most": 2, "key": "a", "gate": str(gate)}, limit_key="a") for _ in range(300)]
        world.started(slow[0])
        others = [lim.enqueue({"most": 2, "key": f"b{n}"}, limit_key=f"b{n}") for n in range(3)]
        unlimited = lim.enqueue({"most": 2, "key": "c"})
        for ref in (*others, unlimited):
            ref.wait(20)
        assert [len(world.starts(ref)) for ref in slow[:2]] == [1, 0]
        hand.cancel(*(ref.id for ref in slow[2:]))
        gate.touch()
        slow[1].wait(20)
    checked(world)
