"""Pauses: flags in the store that nodes heed, whatever is killed; and workers that were given up, and stay so."""

import os
import signal
from collections.abc import Callable
from typing import Any

from operating import FAULTY, WRONG, become, command, pids, serving, statuses, stays, texts, workers
from world import World

from chargehand import Chargehand, clock
from chargehand.log import Event
from chargehand.testing import eventually

MakeHand = Callable[..., Chargehand]
TWO = "hand.crew('do', 'scripted_handlers:Doer', workers=2)"


def running(hand: Chargehand) -> int:
    return sum(count.running for count in hand.counts())


def finish(world: World, gate: Any, refs: list[Any]) -> None:
    gate.touch()
    assert {ref.wait(30) for ref in refs} == {1}


def test_current_jobs_finish_and_nothing_new_is_taken(hand: Chargehand, world: World) -> None:  # spec: PD-1
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    other = hand.crew("other", "scripted_handlers:Doer", workers=1)
    gate = world.gate()
    with hand.running():
        become(hand, "healthy")
        before = pids(hand)
        current = world.put(do, gate)
        world.started(current)
        told = texts(hand.pause("do", reason="the disk is being changed", seconds=3600, who="olga"))
        assert set(told.values()) == {f"finishes {current.id}, then takes nothing more", "takes nothing more"}
        (again, *_) = texts(hand.pause("do", reason="the disk is being changed", seconds=3600, who="olga")).values()
        assert "; this replaces the pause by olga (the disk is being changed), which had 3" in again
        (pause,) = hand.pauses()
        assert (pause.scope, pause.who, pause.reason) == ("do", "olga", "the disk is being changed")
        assert 3_500_000 < (pause.left_ms or 0) <= 3_600_000
        assert clock.now_ms() - pause.since_ms < 60_000
        become(hand, {"do:0": "paused", "do:1": "paused", "other:0": "healthy"})
        waiting = world.put(do)
        assert world.put(other).wait(30) == 1  # the others go on
        finish(world, gate, [current])
        stays(lambda: world.starts(waiting) == [], 0.5)
        assert (waiting.job().state, pids(hand)) == ("queued", before)  # they stay alive
        eventually(lambda: all(row.is_healthy for row in hand.health() if row.component != "app"))
        began = clock.monotonic()
        assert set(texts(hand.resume("do")).values()) == {"accepts jobs again"}
        world.started(waiting)
        assert clock.monotonic() - began < 2
        assert waiting.wait(30) == 1
        become(hand, "healthy")
        assert (hand.pauses(), pids(hand)) == ([], before)
        hand.resume("do")
    assert hand.crashes() == []


def test_what_was_claimed_ahead_goes_back(hand: Chargehand, world: World) -> None:  # spec: PD-1 WK-3
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    with hand.running():
        gate = world.gate()
        free, held = {"ledger": world.ledger}, {"ledger": world.ledger, "gate": str(gate)}
        do.enqueue_many([free] * 1000 + [held] * 2000)  # not all can have ended before the pause
        eventually(lambda: len(world.lines("end")) > 200)
        hand.pause("do")
        gate.touch()

        def all_settled() -> bool:
            (count,) = hand.counts()
            return (count.queued, count.running, count.done) == (3000 - count.done, 0, len(world.lines("start")))

        eventually(all_settled)  # a job that was handed out within the last 50 ms is still shown as queued
        done = len(world.lines("end"))
        assert done < 3000
        stays(lambda: len(world.lines("start")) == done and running(hand) == 0, 0.3)
        hand.resume("do")
        eventually(lambda: len(world.lines("end")) == 3000, 60)
    assert len({job for job, _ in world.lines("start")}) == len(world.lines("start")) == 3000


def test_every_worker_paused_by_itself_holds_nothing_back(hand: Chargehand, world: World) -> None:  # spec: PD-1
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    with hand.running():
        do.enqueue_many([{"ledger": world.ledger}] * 3000)
        eventually(lambda: len(world.lines("end")) > 200)
        hand.pause("do:0")
        hand.pause("do:1")
        eventually(lambda: running(hand) == 0)
        become(hand, "paused")
        last = [world.put(do) for _ in range(10)]
        hand.resume("do:1")
        eventually(lambda: len(world.lines("end")) == 3010, 60)
        assert {world.starts(ref)[0] for ref in last} == {pids(hand)["do:1"]}


def test_one_worker_is_paused_and_its_siblings_go_on(hand: Chargehand, world: World) -> None:  # spec: PD-1 SV-10
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    with hand.running():
        become(hand, "healthy")
        assert set(texts(hand.pause("do:0"))) == {"worker:do:0"}
        become(hand, {"do:0": "paused", "do:1": "healthy"})
        assert [pause.scope for pause in hand.pauses()] == ["worker:do:0"]
        refs = [world.put(do) for _ in range(10)]
        assert {ref.wait(30) for ref in refs} == {1}
        assert {world.starts(ref)[0] for ref in refs} == {pids(hand)["do:1"]}
        gate = world.gate()
        held = [world.put(do, gate) for _ in range(2)]
        eventually(lambda: any(world.starts(ref) for ref in held))
        hand.resume("worker:do:0")
        assert {world.started(ref) for ref in held} == set(pids(hand).values())
        finish(world, gate, held)


def test_a_pause_runs_out_by_itself(hand: Chargehand, world: World) -> None:  # spec: PD-1
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    with hand.running():
        become(hand, "healthy")
        began = clock.monotonic()
        hand.pause(seconds=1.5)
        ref = world.put(do)
        become(hand, "paused")
        assert ref.wait(30) == 1
        assert clock.monotonic() - began >= 1.4
        become(hand, "healthy")
        assert hand.pauses() == []


def test_pauses_over_each_other(hand: Chargehand, world: World) -> None:  # spec: PD-1
    """Whoever resumes one scope is not told that work goes on while another pause holds it."""
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    with hand.running():
        become(hand, "healthy")
        hand.pause()
        hand.pause("do")
        ref = world.put(do)
        become(hand, "paused")
        assert "still paused" in hand.resume("do")[0].text
        stays(lambda: statuses(hand) == {"do:0": "paused"} and not world.starts(ref), 0.3)
        hand.resume()
        assert ref.wait(30) == 1


def test_without_a_node_and_for_a_node_that_starts(hand: Chargehand, world: World) -> None:  # spec: PD-1 CL-2
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    ref = world.put(do)
    (answer,) = hand.pause(reason="before it starts", who="olga")
    assert (answer.component, answer.text) == ("*", "is paused; no node runs, and the next one takes no jobs either")
    (answer,) = hand.pause(reason="the disk", seconds=60, who="tim")
    assert answer.text.endswith("; this replaces the pause by olga (before it starts), which had no end")
    with hand.running():
        become(hand, "paused")
        stays(lambda: ref.job().state == "queued", 0.3)
    assert "no longer paused" in hand.resume()[0].text
    assert hand.resume()[0].text == "was not paused"
    with hand.running():
        assert ref.wait(30) == 1


def test_a_pause_survives_the_death_of_host_and_node(world: World) -> None:  # spec: PD-1
    with serving(world, TWO) as served:
        become(served.hand, "healthy")
        served.hand.pause("do", reason="keep still", who="olga")
        ref = world.put(served.hand.crew("do", "scripted_handlers:Doer"))
        node = served.ready_pid()
        os.kill(node, signal.SIGKILL)
        eventually(lambda: (served.view() or {}).get("pid") not in (None, node))
        become(served.hand, "paused")
        served.die_with_the_node()
    with serving(world, TWO) as served:
        become(served.hand, "paused")
        assert served.logged(Event.PAUSE_IN_FORCE, "scope=do", "chargehand resume do")
        assert "; 1 waiting: chargehand resume do\n" in command(world, "status").stdout
        assert [(p.scope, p.who, p.reason) for p in served.hand.pauses()] == [("do", "olga", "keep still")]
        assert (world.starts(ref), ref.job().state) == ([], "queued")
        served.hand.resume("do")
        assert ref.wait(30) == 1


def test_given_up_through_pause_resume_and_restarts(world: World) -> None:  # spec: RP-6 RP-5
    crews = f"hand.crew('wrong', '{FAULTY}', environment={WRONG}); hand.crew('do', 'scripted_handlers:Doer')"
    wanted = {"wrong:0": "failed", "do:0": "healthy"}
    remedy = ("worker:wrong:0", "the model's name is wrong, as told", "remedy=", "chargehand reset worker:wrong:0")
    with serving(world, crews) as served:
        become(served.hand, wanted)
        assert served.logged(f"event={Event.WORKER_GIVEN_UP}", *remedy)
        served.hand.pause()
        become(served.hand, {"wrong:0": "failed", "do:0": "paused"})
        told = texts(served.hand.resume())
        assert told["worker:do:0"] == "accepts jobs again"
        assert "stays given up" in told["worker:wrong:0"]
        assert told["worker:wrong:0"].endswith("`chargehand reset worker:wrong:0` starts it")
        become(served.hand, wanted)
        node = served.ready_pid()
        os.kill(node, signal.SIGKILL)
        eventually(lambda: (served.view() or {}).get("pid") not in (None, node))
        become(served.hand, wanted)
        eventually(lambda: served.logged(f"event={Event.WORKER_STILL_GIVEN_UP}", *remedy))
        served.die_with_the_node()
    with serving(world, crews) as served:
        become(served.hand, wanted)
        assert served.logged(f"event={Event.WORKER_STILL_GIVEN_UP}", *remedy)
        assert "the model's name is wrong" in workers(served.hand)["wrong:0"]["text"]
        assert len(served.hand.crashes()) == 1  # nobody tried it again
    with serving(world, crews.replace("'configuration'", "''")) as served:  # other settings of the crew clear it
        become(served.hand, {"wrong:0": "healthy", "do:0": "healthy"})
        assert served.logged(f"event={Event.WORKER_FORGIVEN}", "worker:wrong:0")


HANDLER = """
from chargehand import ConfigurationError, Handler

class Own(Handler):
    def set_up(self):
        {}

    def perform(self, job):
        return "mended"
"""


def test_a_deployed_fix_clears_it(world: World) -> None:  # spec: RP-6
    module = world.folder / "own_handler.py"
    module.write_text(HANDLER.format("raise ConfigurationError('no such model')"))
    crews = "hand.crew('own', 'own_handler:Own')"
    with serving(world, crews) as served:
        become(served.hand, "failed")
        ref = served.hand.crew("own", "own_handler:Own").enqueue({})
    with serving(world, crews) as served:
        become(served.hand, "failed")
        assert ref.job().state == "queued"
    module.write_text(HANDLER.format("self.ready = True"))
    with serving(world, crews) as served:
        become(served.hand, "healthy")
        assert served.logged(f"event={Event.WORKER_FORGIVEN}", "worker:own:0")
        assert ref.wait(30) == "mended"
