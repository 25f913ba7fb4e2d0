"""Tests for what people read of flows: their jobs by queue, their number, and how many jobs a job is related to."""

from builders import HOUR, NOON, Wall, begin, cancel_flow, fan_out, finish, job, perform_all, put, take_one

from chargehand.model.flows import FlowCounts, FlowStage, FlowTotals, Related
from chargehand.model.job import GaveUp
from chargehand.store import Store


# spec: FL-4
def test_the_jobs_of_a_flow_by_queue(store: Store, wall: Wall) -> None:
    wall.at = NOON
    begin(store, "w", job("a"), job("b"), job("c", "r", after=("a",)), job("d", "s", delay_ms=HOUR))
    put(store, job("other"))
    assert store.flows.stages("w") == [
        FlowStage(queue="q", counts=FlowCounts(queued=2)),
        FlowStage(queue="r", counts=FlowCounts(queued=1, following=1)),
        FlowStage(queue="s", counts=FlowCounts(queued=1)),
    ]
    wall.at = NOON + 10
    take_one(store)
    finish(store, "b", GaveUp("broken"))
    assert store.flows.stages("w")[0] == FlowStage(
        queue="q", counts=FlowCounts(running=1, failed=1), begun_ms=NOON + 10
    )
    assert store.flows.stages("nobody") == []


# spec: FL-4
def test_a_stage_has_ended_when_its_last_job_has(store: Store, wall: Wall) -> None:
    wall.at = NOON
    begin(store, "w", job("a"), job("b", "r", after=("a",)))
    wall.at = NOON + 5
    finish(store, "a")
    assert [(stage.queue, stage.begun_ms, stage.ended_ms) for stage in store.flows.stages("w")] == [
        ("q", NOON + 5, NOON + 5),
        ("r", None, None),
    ]


# spec: FL-4
def test_how_many_flows_are_in_each_state(store: Store) -> None:
    assert store.flows.totals() == FlowTotals()
    for flow in ("a", "b", "c", "d"):
        begin(store, flow, job(f"job-{flow}"))
    finish(store, "job-a")
    finish(store, "job-b", GaveUp("broken"))
    cancel_flow(store, "c")
    assert store.flows.totals() == FlowTotals(running=1, done=1, failed=1, cancelled=1)


# spec: FL-1 FL-3
def test_how_many_jobs_a_job_is_related_to(store: Store) -> None:
    put(store, job("a"), job("b"), job("f", after=("a", "b")), job("g", after=("a",)))
    assert store.jobs.related("a") == Related(followers=2)
    assert store.jobs.related("f") == Related(predecessors=2)
    finish(store, "a", fan_out(job("c1", child=True), job("c2", child=True)))
    assert store.jobs.related("a") == Related(followers=2, children=2)
    assert store.jobs.related("f") == Related(predecessors=4), "the children, too"
    assert store.jobs.related("nobody") == Related()
    perform_all(store)
    assert store.jobs.related("f") == Related(predecessors=4), "also after their ends"


# spec: FL-6
def test_the_job_before_in_a_sequence_is_no_predecessor(store: Store) -> None:
    put(store, job("a", sequence="s"), job("b", sequence="s"))
    assert store.jobs.related("b") == Related()
