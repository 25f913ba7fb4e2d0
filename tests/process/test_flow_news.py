"""Live events of flows with a real node, and without one; what `doctor` says of jobs that wait for others."""

import os
from pathlib import Path

import pytest
from test_live import Subscriber
from world import World

from chargehand import Chargehand, clock
from chargehand.doctor.examine import examine
from chargehand.ids import new_id
from chargehand.model.flows import NewFlow
from chargehand.model.job import NewJob
from chargehand.testing import eventually


def begin(hand: Chargehand, world: World, gate: Path) -> tuple[str, list[str]]:
    """A flow of a job that waits for the gate, and one that follows it."""
    flow = NewFlow(id=new_id(), name="summer.mp4")
    do = hand.crews["do"]
    first = do.new_job({"ledger": world.ledger, "gate": str(gate)}, flow=flow.id)
    last = do.new_job({"ledger": world.ledger}, flow=flow.id, after=[first.id])
    hand.internal.begin_flow(flow, [first, last])
    return flow.id, [first.id, last.id]


# spec: FL-4 EV-2 EV-3
def test_a_flow_is_told_as_it_changes_and_its_end_at_once(
    hand: Chargehand, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The node reads everything once, and then only what must be read at once.
    text = "import chargehand.node.live as live\nlive.POLL = live.LOOK_GAP = 3600.0\n"
    (tmp_path / "sitecustomize.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))))
    hand.crew("do", "scripted_handlers:Doer", workers=1, max_attempts=1)
    with hand.running():
        gate = world.gate()
        flow, (first, _) = begin(hand, world, gate)
        eventually(lambda: hand.job(first).state.value == "running", 20)
        seen = Subscriber(hand, f"flow:{flow}", "worker:*:status")
        found = seen.wait(flow, state="running", ended_ms=None)
        assert (found["name"], found["counts"]["running"], found["counts"]["following"]) == ("summer.mp4", 1, 1)
        gate.touch()
        found = seen.wait(flow, state="done")
        assert found["counts"]["done"] == 2
        assert found["ended_ms"] >= found["created_ms"]
        assert {event["topic"] for event in seen.heard if event["type"] == "flow_update"} == {f"flow:{flow}"}
        seen.end(lambda: hand.pause("do"))


# spec: FL-4 EV-2 EV-5
def test_without_a_node_flows_are_read_from_the_store(hand: Chargehand, world: World) -> None:
    hand.crew("do", "scripted_handlers:Doer", workers=1)
    flow, _ = begin(hand, world, world.gate())
    seen = Subscriber(hand, "flow:*")
    seen.wait(flow, state="running")
    hand.internal.cancel_flow(flow)
    seen.wait(flow, state="cancelled")
    seen.end(lambda: hand.internal.begin_flow(NewFlow(id=new_id(), name="x"), []))


# spec: FL-4 WK-8
def test_running_jobs_of_a_cancelled_flow_are_told_at_once(hand: Chargehand, world: World) -> None:
    hand.crew("do", "scripted_handlers:Doer", workers=1)
    with hand.running():
        flow, (first, last) = begin(hand, world, world.gate())
        eventually(lambda: hand.job(first).state.value == "running", 20)
        began = clock.monotonic()
        assert hand.internal.cancel_flow(flow).code == "cancelling"
        eventually(lambda: hand.internal.flow(flow).state == "cancelled", 20)
        assert clock.monotonic() - began < 15
        assert [hand.job(each).state.value for each in (first, last)] == ["cancelled", "cancelled"]


# spec: CL-4 FL-2
def test_doctor_names_the_job_that_keeps_others_waiting(hand: Chargehand, world: World) -> None:
    hand.crew("do", "scripted_handlers:Doer", workers=1)
    hand.crew("join", "scripted_handlers:Doer", workers=1)
    with hand.running():
        eventually(lambda: hand.status() is not None, 20, what="the node answers")
        hand.pause("do", reason="a new disk", who="olga")
        first = hand.crews["do"].new_job({"ledger": world.ledger}, label="part 1")
        flow = NewFlow(id=new_id(), name="summer.mp4")
        middle = NewJob(id=new_id(), queue="join", flow=flow.id, after=(first.id,), payload="{}")
        last = NewJob(id=new_id(), queue="join", flow=flow.id, after=(middle.id,), payload="{}")
        hand.internal.enqueue([first])
        hand.internal.begin_flow(flow, [middle, last])
        found = {finding.cause: finding for finding in examine(hand).findings}
        assert found["awaits-held"].text == (  # cause: awaits-held
            f"queue join: 2 jobs wait for other jobs: for job {first.id} (part 1, queue do), which is paused"
        )
        assert "chargehand resume do" in found["awaits-held"].remedy
        assert "summer.mp4" in found["flow-held"].text  # cause: flow-held
        assert f"flows show {flow.id}" in found["flow-held"].remedy
        hand.cancel(first.id)
        hand.resume("do")
        gate = world.gate()
        runs = hand.crews["do"].enqueue({"ledger": world.ledger, "gate": str(gate)})
        hand.crews["join"].enqueue({"ledger": world.ledger}, after=runs)
        eventually(lambda: runs.job().state.value == "running", 20)
        found = {finding.cause: finding for finding in examine(hand).findings}
        assert f"for job {runs.id} (queue do), which has been running" in found["following"].text  # cause: following
        gate.touch()
