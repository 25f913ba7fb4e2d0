"""Workers that do not come to work: what is said of each, how often it is tried, and when it is given up."""

from collections.abc import Callable
from importlib import import_module

from fault_checks import FAULTY, LIMITED, TESTED, at_work, counters, reports, shows, sibling, worker
from world import World

from chargehand import Chargehand, LivenessPolicy
from chargehand.log import Event
from chargehand.model.fleet.policy import StartPolicy
from chargehand.model.job import State
from chargehand.testing import eventually
from chargehand.testing.faults import FAULTS
from chargehand.testing.faults_loading import SET_UP_FAULTS, VARIABLE

MakeHand = Callable[..., Chargehand]

LOADING = LivenessPolicy(beat=0.1, silent=5, set_up=3.0, grace=0.3, terminate=0.2)
SET_UP = "set_up:"
"""Before the name of a fault of the set-up, where it stands among others."""


def test_every_fault_has_a_test() -> None:
    for module in ("work", "said", "hung", "loading"):
        import_module(f"test_faults_{module}")
    assert {*FAULTS, *(SET_UP + name for name in SET_UP_FAULTS)} == TESTED


@shows(*(SET_UP + name for name in ("raise", "exit:CODE", "segfault", "configuration", "unrecoverable")))
def test_a_set_up_that_fails(make_hand: MakeHand, world: World) -> None:  # spec: WP-8 RP-2 RP-5 RP-8 SV-12
    hand = make_hand(restart=LIMITED, liveness=LOADING)
    failing = {
        "raise": (6, "set-up failed", 5, None, "RuntimeError: the model file is missing, as told"),
        "exit:4": (6, "exited", 4, None, "exited (exit code 4)"),
        "segfault": (6, "crash", None, 11, "crash (signal 11, SIGSEGV)"),
        "configuration": (1, "configuration error", 2, None, "the model's name is wrong, as told"),
        "unrecoverable": (1, "unrecoverable error", 3, None, "this machine has no GPU, as told"),
    }
    crews = {
        fault: hand.crew(fault.replace(":", "-"), FAULTY, environment={VARIABLE: fault}) for fault in failing
    }  # fmt: skip
    calm = hand.crew("calm", FAULTY)
    with hand.running(), sibling(world, calm):
        refs = {fault: world.put(crew) for fault, crew in crews.items()}
        for fault, (count, reason, code, number, word) in failing.items():
            crew, ref = crews[fault], refs[fault]
            component = f"worker:{crew.name}:0"
            eventually(lambda c=component: worker(hand, c)["status"] == "failed", 40, what=f"{component} given up")
            found = reports(hand, count, crew=crew.name)
            for report in found:
                assert (report.reason, report.exit_code, report.signal) == (reason, code, number), report
                assert (report.component, report.job, report.uptime_ms) == (component, None, None)
                assert report.charged
                assert word in report.text
                assert ("in segfault" in report.stacks) == (fault == "segfault")
            assert len({report.pid for report in found}) == count
            assert all(report.follows.startswith("restarted in 0.") for report in found[:-1])
            assert found[-1].follows.startswith("given up: ")
            seen = worker(hand, component)
            assert (seen["reason"], seen["restart_count"], seen["pid"]) == (reason, count - 1, None)
            assert word in seen["text"]
            assert (f"{count} crashes within 300 s" in seen["text"]) == (count > 1)
            assert seen["budget"]["rapid_left"] == max(0, 5 - count)
            # Its job waits, untouched, and that is said aloud.
            assert (ref.job().state, *counters(ref)) == (State.QUEUED, 0, 0, 0)
            assert ref.attempts() == world.starts(ref) == []
        view = hand.status() or {}
        assert view["verdict"]["status"] == "error"
        assert any("crew configuration: 1 of 1 given up" in reason for reason in view["verdict"]["reasons"])
        assert worker(hand, "worker:calm:0")["restart_count"] == 0


@shows(*(SET_UP + name for name in ("slow:SECONDS", "slow:SECONDS:MORE", "forever", "once:FILE:FAULT")))
def test_a_set_up_that_takes_its_time(make_hand: MakeHand, world: World) -> None:  # spec: SV-5 WP-5
    hand = make_hand(restart=LIMITED, liveness=LOADING, starts=StartPolicy(most_loading=8))
    seconds = {"slow": 1.0, "slower": 4.0}
    slow = hand.crew("slow", FAULTY, environment={VARIABLE: "slow:1"})
    slower = hand.crew("slower", FAULTY, environment={VARIABLE: "slow:4:60"})
    once = hand.crew("once", FAULTY, environment={VARIABLE: f"once:{world.folder}/forever:forever"}, workers=2)
    raised = hand.crew("raised", FAULTY, environment={VARIABLE: f"once:{world.folder}/raised:raise"}, workers=2)
    with hand.running(), sibling(world, once), sibling(world, raised):
        refs = {crew: world.put(crew, result="loaded") for crew in (slow, slower, once, raised)}
        assert worker(hand, "worker:slower:0")["status"] == "starting"
        for ref in refs.values():
            assert ref.wait(30) == "loaded"
            assert counters(ref) == (0, 0, 0)
        spawned, ready = ({}, {})
        for line in hand.logs(count=5000):
            for event, moments in ((Event.WORKER_SPAWNED, spawned), (Event.WORKER_READY, ready)):
                if f"event={event}" in line["text"]:
                    moments[line["component"]] = line["at_ms"]
        for crew, least in seconds.items():
            assert ready[f"worker:{crew}:0"] - spawned[f"worker:{crew}:0"] >= 990 * least
            assert at_work(hand, f"worker:{crew}:0")["restart_count"] == 0
        (report,) = reports(hand, 1, crew="once")
        assert (report.reason, report.exit_code, report.signal) == ("start timeout", None, 9)
        assert (report.job, report.uptime_ms, report.charged) == (None, None, True)
        assert "in _misload" in report.stacks
        assert "in set_up" in report.stacks
        assert at_work(hand, report.component)["restart_count"] == 1
        (report,) = reports(hand, 1, crew="raised")
        assert (report.reason, report.exit_code, report.charged) == ("set-up failed", 5, True)
        assert at_work(hand, report.component)["restart_count"] == 1
        reports(hand, 2)
