"""The jobs of a flow by queue."""

from chargehand.model.flows import FlowCounts, FlowStage, stages_of


def test_stages_are_in_the_order_in_which_they_began() -> None:  # spec: FL-4
    rows = [
        ("join", "queued", True, 2, None, None),
        ("scene", "done", False, 8, 20, 90),
        ("scene", "running", False, 1, 15, None),
        ("scene", "queued", False, 3, None, None),
        ("decode", "done", False, 1, 10, 14),
        ("after", "queued", False, 1, None, None),
    ]
    assert stages_of(rows) == [
        FlowStage(queue="decode", counts=FlowCounts(done=1), begun_ms=10, ended_ms=14),
        FlowStage(queue="scene", counts=FlowCounts(queued=3, running=1, done=8), begun_ms=15, ended_ms=None),
        FlowStage(queue="after", counts=FlowCounts(queued=1)),
        FlowStage(queue="join", counts=FlowCounts(queued=2, following=2)),
    ]


def test_a_stage_whose_jobs_never_ran_has_ended_all_the_same() -> None:  # spec: FL-2
    (stage,) = stages_of([("join", "failed", False, 2, None, 30), ("join", "cancelled", False, 1, None, 31)])
    assert stage == FlowStage(queue="join", counts=FlowCounts(failed=2, cancelled=1), ended_ms=31)
