"""What `doctor` says of crews, workers and queues: one node in which nearly everything is wrong at once."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

from operating import serving, statuses, together, workers
from world import World

from chargehand import Chargehand, RestartPolicy
from chargehand.doctor.examine import examine
from chargehand.model.doctor.causes import Finding
from chargehand.model.doctor.diagnosis import Diagnosis
from chargehand.testing import eventually

FAULT = "CHARGEHAND_FAULT_SET_UP"
CREWS = f"""
faulty = "chargehand.testing.faults:Faulty"
def set_up(name, fault, workers=1, **more):
    hand.crew(name, faulty, workers=workers, environment={{"{FAULT}": fault}}, **more)
set_up("wrong", "configuration", 2)
set_up("half", "once:" + os.environ["HALF"] + ":configuration", 2)
set_up("back", "segfault")
set_up("fuse", "segfault", 2)
set_up("slow", "forever")
set_up("huge", "", memory="100000 GiB")
for name in ("hold", "off", "weak", "stuck", "gone", "busy"):
    hand.crew(name, faulty)
hand.crew("narrow", faulty, limit=1)
hand.crew("keyed", faulty, workers=2, limit_per_key=1)
"""
SETTINGS = (
    "restart=RestartPolicy(first_pause=600, longest_pause=600, rapid_limit=1), "
    "liveness=LivenessPolicy(beat=0.2, silent=1.0, grace=0.3, terminate=0.2), "
    "starts=__import__('chargehand').StartPolicy(stagger=0, most_loading=20)"
)
SETTLED = {
    "wrong:0": "failed", "wrong:1": "failed", "back:0": "crashed", "fuse:0": "crashed", "fuse:1": "crashed",
    "slow:0": "starting", "huge:0": "stopped", "hold:0": "paused", "off:0": "stopped", "weak:0": "healthy",
    "stuck:0": "healthy", "busy:0": "healthy",
}  # fmt: skip


def by_cause(found: Diagnosis, cause: str) -> dict[str, Finding]:
    return {finding.about: finding for finding in found.findings if finding.cause == cause}


def make_trouble(hand: Chargehand, world: World, log: Callable[[], str]) -> Path:
    """Everything that takes an order, a job or a kill; the gate that ends it."""
    gate, faulty = world.gate(), "chargehand.testing.faults:Faulty"
    names = ("hold", "off", "weak", "stuck", "gone", "busy", "narrow", "keyed", "nobody")
    crew = {name: hand.crew(name, faulty) for name in names}
    eventually(lambda: set(SETTLED) <= set(statuses(hand)) and statuses(hand)["weak:0"] == "healthy", what=log())
    os.kill(workers(hand)["weak:0"]["pid"], signal.SIGKILL)
    hand.pause("hold", reason="the disk \x1b[31mis full", seconds=5400, who="olga")
    hand.stop("off")
    hand.scale("gone", 0)
    waiting = {"fault": "wait", "gate": str(gate)}
    held = [crew[name].enqueue(waiting, limit_key="album") for name in ("busy", "narrow", "keyed") for _ in range(2)]
    held += [crew[name].enqueue({}) for name in ("hold", "off", "gone", "nobody")]
    crew["stuck"].enqueue({"fault": "burn in c", "seconds": 4})
    eventually(lambda: statuses(hand)["weak:0"] == "crashed")
    hand.restart("weak")
    eventually(lambda: SETTLED.items() <= statuses(hand).items(), what=f"{statuses(hand)}")
    halves = ("half:0", "half:1")
    eventually(lambda: {statuses(hand)[half] for half in halves} == {"failed", "healthy"})
    eventually(lambda: workers(hand)["stuck:0"]["flags"], what="the one in C code is flagged")
    eventually(lambda: held[0].job().state == held[2].job().state == "running")
    return gate


# cause: crashing
def test_a_worker_with_few_restarts_left(make_hand: Callable[..., Chargehand]) -> None:  # spec: CL-4 RP-8
    hand = make_hand(restart=RestartPolicy(first_pause=0.01, longest_pause=0.01, rapid_limit=1))
    hand.crew("weak", "chargehand.testing.faults:Faulty", workers=1)
    with hand.running():
        eventually(lambda: statuses(hand).get("weak:0") == "healthy")
        os.kill(workers(hand)["weak:0"]["pid"], signal.SIGKILL)
        eventually(lambda: statuses(hand)["weak:0"] == "healthy" and workers(hand)["weak:0"]["restart_count"] == 1)
        (weak,) = by_cause(examine(hand), "crashing").values()
    assert weak.text.startswith("worker:weak:0 has been restarted once; 0 left")


# cause: given-up backoff breaker loading no-room stopped paused no-workers no-crew busy limit stuck
def test_all_at_once(world: World) -> None:  # spec: CL-4 SV-12 RP-6 RP-8
    with serving(world, CREWS, SETTINGS, HALF=str(world.folder / "half")) as served:
        hand = served.hand
        gate = make_trouble(hand, world, served.log.read_text)
        found = examine(hand)
        said, data = together(world, "doctor", "doctor --json")
        gate.touch()
    at = f" --store {world.store}"
    assert found.findings[0].severity == found.status == "error"
    assert by_cause(found, "given-up").keys() == {"wrong", "half"}
    wrong, half = by_cause(found, "given-up")["wrong"], by_cause(found, "given-up")["half"]
    why = "configuration error (exit code 2): the model's name is wrong, as told"
    assert wrong.text == f"crew wrong: 2 of 2 given up: {why}"
    assert f"chargehand reset wrong{at}" in wrong.remedy
    assert (wrong.severity, half.severity) == ("error", "warning")
    assert "half: 1 of 2 given up" in half.text
    (back,) = by_cause(found, "backoff").values()
    assert (back.about, back.severity, back.short) == (
        "back",
        "error",
        "back, 1 of 1 crashed, segfault in ctypes (SIGSEGV)",
    )
    assert "the first restarts in" in back.text
    (fuse,) = by_cause(found, "breaker").values()
    assert (fuse.about, fuse.severity) == ("fuse", "error")
    assert "only one is restarted" in fuse.text
    (loading,) = by_cause(found, "loading").values()
    assert (loading.about, loading.severity) == ("slow", "note")  # nothing waits for it
    (huge,) = by_cause(found, "no-room").values()
    assert (huge.about, huge.severity) == ("huge", "error")
    assert "needs 100000.0 GiB of memory" in huge.text
    (off,) = by_cause(found, "stopped").values()
    assert (off.about, off.severity, off.remedy) == ("off", "error", f"chargehand start off{at}")
    (hold,) = by_cause(found, "paused").values()
    assert hold.text.startswith("hold was paused by olga ")
    assert "for another 90 minutes: the disk" in hold.text
    assert (hold.severity, hold.remedy) == ("error", f"chargehand resume hold{at}")
    (gone,) = by_cause(found, "no-workers").values()
    assert (gone.about, gone.remedy) == ("gone", f"chargehand scale gone 1{at}")
    (nobody,) = by_cause(found, "no-crew").values()
    assert (nobody.about, nobody.severity) == ("nobody", "error")
    (busy,) = by_cause(found, "busy").values()
    assert (busy.about, busy.severity) == ("busy", "note")
    assert set(by_cause(found, "limit")) == {"narrow", "keyed"}
    (stuck,) = by_cause(found, "stuck").values()
    assert stuck.text.startswith("worker:stuck:0 is unresponsive in ")
    assert found.headline.startswith("partly not working since ")
    told(found, said.returncode, said.stdout, json.loads(data.stdout))


def told(found: Diagnosis, code: int, text: str, data: dict[str, object]) -> None:
    """The command says the same, one cause a line, headline first."""
    lines = text.splitlines()
    assert code == 1
    assert lines[0].startswith("partly not working since ")
    assert len(lines) >= len(found.findings) + 2
    assert all(" → " in line for line in lines if line.startswith(("error:", "warning:", "note:")))
    assert "the disk \\x1b[31mis full" in text  # nobody's terminal is moved
    assert "\x1b" not in text
    assert (data["status"], data["well"]) == ("error", False)
    assert isinstance(data["findings"], list)
    assert set(data["findings"][0]) == {"severity", "cause", "about", "text", "remedy", "short", "since_ms"}
    for word in ("fence", "incarnation", "settle"):
        assert word not in text
