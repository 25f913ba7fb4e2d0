"""What people can order of running workers, and what really becomes of their processes and jobs."""

import os
import signal
from collections.abc import Callable

import pytest
from operating import FAULTY, WRONG, become, pids, serving, statuses, stays, texts, workers
from world import World, gone

from chargehand import Chargehand, ChargehandError, ConfigurationError, LivenessPolicy, UnknownCrew
from chargehand.log import Event
from chargehand.testing import eventually

MakeHand = Callable[..., Chargehand]
HASTY = LivenessPolicy(beat=0.2, silent=20.0, grace=0.3, terminate=0.2)


def test_drain_finishes_the_long_job_and_takes_nothing_more(  # spec: PD-2 SV-10
    make_hand: MakeHand, world: World
) -> None:
    hand = make_hand(liveness=HASTY)
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    gate = world.gate()
    with hand.running() as host:
        long = world.put(do, gate)
        pid = world.started(long)
        after = world.put(do)
        component = "worker:do:0"
        assert texts(hand.drain("do")) == {component: f"finishes {long.id}, then stops"}
        assert texts(hand.drain("do")) == {component: f"finishes {long.id}, then stops"}  # twice changes nothing more
        # The grace (0.3 s) does not count: it may take as long as it takes.
        stays(lambda: pids(hand) == {"do:0": pid}, 1.0)
        gate.touch()
        assert long.wait(20) == 1
        (worker,) = become(hand, "stopped").values()
        assert (worker["pid"], worker["reason"], worker["restart_count"]) == (None, "drained", 0)
        eventually(lambda: gone(pid))
        assert (world.starts(long), world.starts(after), after.job().state) == ([pid], [], "queued")
        assert texts(hand.drain()) == {component: "is stopped"}
        eventually(lambda: (hand.status() or {})["drain"] == "drained", what="the node has nothing to do")
        assert texts(hand.start("do:0")) == {component: "starts"}
        assert after.wait(20) == 1
        assert texts(hand.start()) == {component: "is already running"}
        assert (hand.status() or {})["drain"] is None
        with pytest.raises(ConfigurationError, match="as a whole"):
            hand.drain("do", end=True)
        assert texts(hand.drain(f"{hand.node_name}/*", end=True)) == {f"{hand.node_name}/do:0": "stops"}
        assert host.ended.wait(20)
        assert host.failed is None
    assert hand.crashes() == []
    assert (long.job().interruptions, after.job().interruptions) == (0, 0)


def test_stop_interrupts_after_the_grace_and_charges_nobody(make_hand: MakeHand, world: World) -> None:  # spec: PD-3
    hand = make_hand(liveness=HASTY)
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    gates = world.gate(), world.gate()
    with hand.running():
        refs = [world.put(do, gate, children=["sleep"]) for gate in gates]
        first = [world.started(ref) for ref in refs]
        world.children_of(2)
        told = texts(hand.stop("do"))
        assert {text.split(";")[1] for text in told.values()} == {
            f" {ref.id} may finish within the grace period, otherwise it is queued again" for ref in refs
        }
        hand.stop("do")
        become(hand, "stopped")
        assert [pid for pid in (*first, *world.children()) if not gone(pid)] == []
        eventually(lambda: {ref.job().state for ref in refs} == {"queued"})
        for ref in refs:
            job = ref.job()
            assert (job.state, job.interruptions, job.crashes, job.attempts) == ("queued", 1, 0, 0)
            assert [attempt.outcome for attempt in ref.attempts()] == ["interrupted"]
        for gate in gates:
            gate.touch()
        assert set(texts(hand.start()).values()) == {"starts"}
        assert [ref.wait(20) for ref in refs] == [1, 1]
        found = workers(hand).values()
        assert {(w["restart_count"], w["budget"]["lifetime_left"]) for w in found} == {(0, 10**6)}
    assert hand.crashes() == []


def test_a_stop_within_the_grace_settles_the_job(hand: Chargehand, world: World) -> None:  # spec: PD-3
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    gate = world.gate()
    with hand.running():
        ref = world.put(do, gate)
        world.started(ref)
        hand.stop()
        become(hand, "stopping")
        # Whoever changes his mind meanwhile gets a worker again.
        assert texts(hand.start()) == {"worker:do:0": "restarts when it has stopped"}
        gate.touch()
        assert ref.wait(20) == 1
        assert world.put(do).wait(20) == 1
        assert pids(hand)["do:0"] not in world.starts(ref)
    assert (ref.job().interruptions, hand.crashes()) == (0, [])


def test_restart_gives_new_processes_to_one_a_crew_or_all(hand: Chargehand, world: World) -> None:  # spec: SV-10
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    hand.crew("other", "scripted_handlers:Doer", workers=1)
    everybody = {"do:0", "do:1", "other:0"}
    with hand.running():
        become(hand, "healthy")
        for scope, concerned in (
            ("do:1", {"do:1"}),
            ("worker:do:0", {"do:0"}),
            ("do", {"do:0", "do:1"}),
            (None, everybody),
        ):
            before = pids(hand)
            assert texts(hand.restart(scope)) == {f"worker:{name}": "restarts" for name in concerned}

            def changed(before: dict[str, int] = before) -> set[str]:
                now = pids(hand)
                return {name for name in before if now.get(name) not in (None, before[name])}

            eventually(lambda changed=changed, concerned=concerned: changed() >= concerned)
            become(hand, "healthy")
            assert changed() == concerned
        gate = world.gate()
        ref = world.put(do, gate)
        pid = world.started(ref)
        assert f"restarts; {ref.id} may finish within the grace period" in texts(hand.restart("do")).values()
        gate.touch()
        assert ref.wait(20) == 1
        eventually(lambda: gone(pid))
        become(hand, "healthy")
        assert {w["restart_count"] for w in workers(hand).values()} == {0}
    assert (hand.crashes(), ref.job().interruptions) == ([], 0)


def test_scale_up_and_down_live(hand: Chargehand, world: World) -> None:  # spec: SV-10
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    gate = world.gate()
    with hand.running():
        become(hand, {"do:0": "healthy"})
        told = texts(hand.scale("do", 3))
        assert (told["worker:do:1"], told["worker:do:2"]) == ("starts", "starts")
        first = pids(hand)["do:0"]
        become(hand, dict.fromkeys(("do:0", "do:1", "do:2"), "healthy"))
        before = pids(hand)
        assert set(texts(hand.scale("do", 3)).values()) == {"unchanged"}  # twice changes nothing more
        assert pids(hand) == before
        refs = [world.put(do, gate) for _ in range(3)]
        assert len({world.started(ref) for ref in refs}) == 3
        told = texts(hand.scale("do", 1))
        assert told.pop("worker:do:0", "unchanged") == "unchanged"
        assert all("finishes" in text and text.endswith("then is removed") for text in told.values())
        more = world.put(do)
        stays(lambda: len(pids(hand)) == 3, 0.3)
        gate.touch()
        assert [ref.wait(20) for ref in (*refs, more)] == [1] * 4
        become(hand, {"do:0": "healthy"})
        assert pids(hand) == {"do:0": first}
        hand.scale("do", 0)
        eventually(lambda: statuses(hand) == {})
        waiting = world.put(do)
        assert texts(hand.scale("do", 1)) == {"worker:do:0": "starts"}
        assert waiting.wait(20) == 1
    assert (hand.crashes(), {ref.job().interruptions for ref in refs}) == ([], {0})


CREW = "hand.crew('do', 'scripted_handlers:Doer', workers={})"


def test_a_scale_outlives_node_and_host_until_the_configured_count_changes(world: World) -> None:  # spec: SV-10
    three: dict[str, str] = dict.fromkeys(("do:0", "do:1", "do:2"), "healthy")
    with serving(world, CREW.format(1)) as served:
        become(served.hand, {"do:0": "healthy"})
        served.hand.scale("do", 3)
        become(served.hand, three)
        node = served.ready_pid()
        os.kill(node, signal.SIGKILL)
        eventually(lambda: (served.view() or {}).get("pid") not in (None, node))
        become(served.hand, three)
        assert served.logged(f"event={Event.CREW_SCALED}", "workers=3")
        served.die_with_the_node()
    with serving(world, CREW.format(1)) as served:
        become(served.hand, three)
    with serving(world, CREW.format(2)) as served:
        become(served.hand, {"do:0": "healthy", "do:1": "healthy"})


def test_reset_mends_what_was_given_up(hand: Chargehand, world: World) -> None:  # spec: RP-6 SV-10
    mark = world.folder / "tried"
    wrong = hand.crew("wrong", FAULTY, workers=1, environment={"CHARGEHAND_FAULT_SET_UP": f"once:{mark}:configuration"})
    with hand.running():
        ref = wrong.enqueue({})
        (worker,) = become(hand, "failed").values()
        assert (worker["reason"], worker["exit_code"], worker["pid"]) == ("configuration error", 2, None)
        assert "the model's name is wrong, as told" in worker["text"]
        for answers, ending in (
            (hand.start(), "`chargehand reset worker:wrong:0` starts it"),
            (hand.resume(), "`chargehand reset worker:wrong:0` starts it"),
            (hand.stop(), "was given up; nothing to stop"),
            (hand.drain("wrong"), "was given up; nothing to drain"),
        ):
            assert texts(answers)["worker:wrong:0"].endswith(ending)
            assert statuses(hand) == {"wrong:0": "failed"}
        assert "the model's name is wrong" in hand.resume()[0].text
        assert texts(hand.reset("wrong")) == {"worker:wrong:0": "crash history cleared; starts"}
        assert ref.wait(20) is None
        pid = pids(hand)["wrong:0"]
        assert texts(hand.reset()) == {"worker:wrong:0": "crash history cleared; is already running"}
        assert pids(hand) == {"wrong:0": pid}
    assert [(report.reason, report.follows[:8]) for report in hand.crashes()] == [("configuration error", "given up")]


def test_restart_mends_what_was_given_up(hand: Chargehand, world: World) -> None:  # spec: RP-6
    mark = world.folder / "tried"
    hand.crew("wrong", FAULTY, workers=1, environment={"CHARGEHAND_FAULT_SET_UP": f"once:{mark}:unrecoverable"})
    with hand.running():
        become(hand, "failed")
        assert texts(hand.restart()) == {"worker:wrong:0": "starts"}
        become(hand, "healthy")
    with hand.running():  # it is forgotten for the next life, too
        become(hand, "healthy")


def test_a_reset_that_does_not_help(hand: Chargehand) -> None:  # spec: RP-6
    hand.crew("wrong", FAULTY, workers=1, environment=WRONG)
    with hand.running():
        become(hand, "failed")
        hand.reset()
        eventually(lambda: len(hand.crashes()) == 2)
        become(hand, "failed")


def test_orders_that_cannot_be(hand: Chargehand) -> None:  # spec: SV-10
    hand.crew("do", "scripted_handlers:Doer", workers=1)
    hand.open()
    for order in (hand.start, hand.stop, hand.drain, hand.restart, hand.reset):
        with pytest.raises(ChargehandError, match=r"no node serves .*; start one with `chargehand work APP`"):
            order()
    with hand.running() as host:
        assert host.ready.wait(20)
        for order in (hand.start, hand.stop, hand.drain, hand.restart, hand.reset, hand.pause, hand.resume):
            for scope in ("nobody", "do:7", "worker:do:-1", "", "worker:"):
                with pytest.raises(UnknownCrew, match=r"there is no crew or worker .*; there are: do, worker:do:0"):
                    order(scope)
        with pytest.raises(UnknownCrew, match="there is no crew 'nobody'; there are: do"):
            hand.scale("nobody", 1)
        for count in (-1, 1001):
            with pytest.raises(ConfigurationError, match="must be 0 to 1000"):
                hand.scale("do", count)
        for seconds in (0, -1, float("nan"), 1e9):
            with pytest.raises(ChargehandError):
                hand.pause("do", seconds=seconds)
        assert hand.pauses() == []
        become(hand, {"do:0": "healthy"})
