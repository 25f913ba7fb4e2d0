"""What is shown of workers, queues and readiness, from what node and store say."""

from typing import Any

import pytest

from chargehand.live.bodies import NodeBody, NodeCrewBody, QueueBody
from chargehand.live.components import Component
from chargehand.model.figures import Share
from chargehand.model.fleet.cards import WorkerGpu
from chargehand.model.fleet.place import Shortage
from chargehand.model.health import FRESH_MS
from chargehand.model.records import Counts, CrewRow, Pause
from chargehand.model.status import NodeStatus, NodeWorker, RestartBudget, StoreStatus
from chargehand.web.answers import Queue
from chargehand.web.summaries import concurrency_of, info_of, queues_of, readiness_of, workers_of

NOW = 1_000_000
TAG = CrewRow(name="tag", queue="tagging", handler="m:H", workers=2, max_attempts=3, timeout_ms=None)


def worker(index: int = 0, **about: Any) -> NodeWorker:
    usual: dict[str, Any] = {
        "component": f"worker:tag:{index}", "crew": "tag", "index": index, "status": "healthy", "pid": 100 + index,
        "incarnation": "i", "memory": 5, "jobs": 1, "heartbeat_s": 0.1, "budget": RestartBudget(5, 20),
    }  # fmt: skip
    return NodeWorker(**{**usual, **about})


def view(*workers: NodeWorker, **about: Any) -> NodeStatus:
    return NodeStatus(node="n", pid=1, version="0", started_ms=5, workers=workers, **about)


def row(index: int = 0, node: str = "n", **about: Any) -> Component:
    usual: dict[str, Any] = {
        "component": f"worker:tag:{index}", "node": node, "crew": "tag", "status": "starting", "flags": (),
        "reason": None, "text": None, "pid": 1, "incarnation": "old", "current_job": None, "last_heartbeat_ms": 1,
        "restart_count": 0, "last_restart_ms": 3, "exit_code": None, "signal": None, "created_at_ms": 4,
        "metadata": {}, "is_healthy": False,
    }  # fmt: skip
    return Component(**{**usual, **about})


def test_what_the_node_says_is_newer_than_its_rows() -> None:  # spec: HT-2 HP-2 RP-8
    shown = workers_of([row(0), row(component="app")], view(worker(0, current_job="j"), worker(1)), NOW)
    assert [(each.component, each.status, each.pid, each.is_healthy) for each in shown] == [
        ("worker:tag:0", "healthy", 100, True),
        ("worker:tag:1", "healthy", 101, True),
    ]
    assert (shown[0].current_job, shown[0].last_restart_ms, shown[0].created_at_ms) == ("j", 3, 4)
    assert shown[0].last_heartbeat_ms == NOW - 100
    assert shown[0].budget is not None
    assert (shown[0].budget.rapid_left, shown[0].budget.lifetime_left) == (5, 20)


def test_without_a_node_its_rows_are_what_there_is() -> None:  # spec: HT-2
    shown = workers_of([row(10), row(9), row(0, node="m")], None, NOW)
    assert [(each.node, each.index, each.status) for each in shown] == [
        ("m", 0, "starting"), ("n", 9, "starting"), ("n", 10, "starting"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("about", "status"),
    [
        ({"heartbeat_s": FRESH_MS / 1000 + 1}, "unknown"),
        ({"heartbeat_s": None}, "unknown"),
        ({"pid": None}, "unknown"),
        ({"flags": ("stalled",)}, "healthy (stalled)"),
        ({"status": "crashed", "pid": None}, "crashed"),
    ],
)
def test_nobody_is_plainly_healthy_without_a_fresh_beat(about: dict[str, Any], status: str) -> None:  # spec: HP-3 SV-4
    (shown,) = workers_of([], view(worker(**about)), NOW)
    assert (shown.status, shown.is_healthy) == (status, False)


def test_a_crew_is_ready_if_somebody_takes_its_work() -> None:  # spec: HT-5
    found = readiness_of([TAG], view(worker(0, status="crashed"), worker(1)), None, [])
    assert (found.ready, found.reasons, found.crews[0].ready) == (True, (), True)
    asleep = worker(status="asleep", reason="idle", pid=None, heartbeat_s=None)
    assert readiness_of([TAG], view(asleep), None, []).ready
    roomless = worker(status="asleep", text="waits for a GPU", shortage=Shortage.TEMPORARY, pid=None, heartbeat_s=None)
    assert readiness_of([TAG], view(roomless), None, []).reasons == (
        "crew tag: none of its 1 workers takes jobs: worker:tag:0 is asleep (waits for a GPU)",
    )


def test_the_gpus_of_a_worker_are_shown() -> None:  # spec: WP-14
    gpu = WorkerGpu(uuid="GPU-1", index=0, memory=80)
    (shown,) = workers_of([], view(worker(gpus=(gpu,))), NOW)
    assert shown.gpus == (gpu,)


PAUSE = Pause(scope="tag", who="ann", reason="new model", since_ms=0)


@pytest.mark.parametrize(
    ("seen", "holder", "pauses", "reason"),
    [
        (None, None, [], "no node runs"),
        (None, {"pid": 77}, [], "the node (pid 77) does not answer"),
        (view(worker(), stopping="SIGTERM"), None, [], "the node is stopping: SIGTERM"),
        (view(worker(), store=StoreStatus(failing="disk full")), None, [], "the store fails: disk full"),
        (view(worker(), unserved={"x": "no crew serves it"}), None, [], "queue x: no crew serves it"),
        (view(worker()), None, [PAUSE], "crew tag: paused by ann: new model"),
        (view(), None, [], "crew tag: it has no workers: chargehand scale tag 1"),
        (
            view(worker(status="failed", pid=None, text="no such model")), None, [],
            "crew tag: none of its 1 workers takes jobs: worker:tag:0 is failed (no such model)",
        ),
        (
            view(worker(status="starting")), None, [],
            "crew tag: none of its 1 workers takes jobs: worker:tag:0 is starting",
        ),
        (
            view(worker(flags=("unresponsive",))), None, [],
            "crew tag: none of its 1 workers takes jobs: worker:tag:0 is healthy (unresponsive)",
        ),
    ],
)  # fmt: skip
def test_why_work_does_not_get_done_is_said(seen: Any, holder: Any, pauses: list[Pause], reason: str) -> None:
    # spec: HT-5 RP-8 SV-12
    found = readiness_of([TAG], seen, holder, pauses)
    assert not found.ready
    assert found.reasons == (reason,)


def test_queues_without_jobs_and_without_crews_are_shown() -> None:  # spec: HT-3
    found = queues_of([Counts(queue="lost", queued=1)], [TAG], [], [("lost", 9)], {"lost": "nobody"})
    assert [(each.queue, each.queued, each.crews, each.unserved) for each in found] == [
        ("lost", 1, (), "nobody"),
        ("tagging", 0, ("tag",), None),
    ]


def test_a_queue_is_read_with_the_figures_of_its_events() -> None:  # spec: EV-3
    counts, share = Counts(queue="tagging", queued=12, future=2), Share(rate=0.5, mean=1.25)
    (found,) = queues_of([counts], [TAG], [], [("tagging", 9)], {}, {"tagging": share})
    body = QueueBody.of(counts, 9, share)
    assert (found.rate, found.mean_duration_s, found.eta_s) == (0.5, 1.25, 20.0)
    other = {"name": "queue", "oldest_wait_s": "oldest_wait_ms"}
    assert {other.get(name, name) for name in QueueBody.__struct_fields__} <= set(Queue.__struct_fields__)
    same = [name for name in QueueBody.__struct_fields__ if name not in other]
    assert [getattr(found, name) for name in same] == [getattr(body, name) for name in same]


# spec: MN-1
def test_workers_of_other_nodes_count_for_crews_and_readiness() -> None:
    there = row(0, node="b", status="healthy", is_healthy=True, metadata={"will_work": True})
    assert readiness_of([TAG], None, None, [], [there]).ready
    stuck = view(worker(0, status="failed", pid=None, text="no such model"))
    assert readiness_of([TAG], stuck, None, [], [there]).ready
    down = row(0, node="b", status="crashed")
    (said,) = readiness_of([TAG], None, None, [], [down]).reasons
    assert said == "crew tag: none of its 1 workers takes jobs: b/tag:0 is crashed"
    crews = (NodeCrewBody(crew="tag", queue="tagging", configured=3, live=2),)
    nodes = [NodeBody(name=name, status=status, crews=crews) for name, status in (("n", "healthy"), ("b", "healthy"))]
    nodes.append(NodeBody(name="c", status="gone", crews=(NodeCrewBody(crew="tag", queue="tagging", configured=9),)))
    (crew,) = info_of("n", True, [TAG], [], view(worker()), None, [], (), nodes).workers
    assert (crew.configured, crew.live) == (6, 3), "its own workers by its own word, those of b by the store"
    (queue,) = queues_of([Counts(queue="q", queued=1)], [], [], [("q", 9)], None)
    assert queue.unserved == "no node runs"


def test_info_tells_who_supervises_and_where() -> None:  # spec: HT-1
    found = info_of("n", True, [TAG], [], view(worker(), worker(1, status="failed")), None, ["lost"])
    assert found.supervisor is not None
    assert (found.supervisor.pid, found.supervisor.answers, found.queues) == (1, True, ("lost", "tagging"))
    assert [(each.configured, each.live) for each in found.workers] == [(2, 1)]
    silent = info_of("n", False, [TAG], [], None, {"pid": 5, "node": "n"}, [])
    assert silent.supervisor is not None
    assert (silent.supervisor.answers, silent.supervisor.pid, silent.embed_workers) == (False, 5, False)
    assert info_of("n", True, [], [], None, None, []).supervisor is None


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize(
    ("scopes", "enabled"),
    [
        ([], True),
        (["*"], False),
        (["tag"], True),
        (["tag", "scan"], False),
        (["tag", "worker:scan:0"], False),
        (["worker:tag:0", "scan"], True),
        (["worker:tag:0", "worker:tag:1", "scan"], False),
        (["worker:tag:0", "worker:tag:1", "worker:tag:2"], True),
    ],
)
def test_workers_are_enabled_unless_all_are_paused(scopes: list[str], enabled: bool, embedded: bool) -> None:
    # spec: HT-1
    scan = CrewRow(name="scan", queue="scan", handler="m:H", workers=9, scaled=1, max_attempts=3, timeout_ms=None)
    pauses = [Pause(scope=scope, who="ops", reason=None, since_ms=0) for scope in scopes]
    found = info_of("n", embedded, [TAG, scan], pauses, None, None, [])
    assert (found.worker_enabled, found.embed_workers) == (enabled, embedded)


def test_without_crews_a_pause_of_everything_disables_workers() -> None:  # spec: HT-1
    everything = Pause(scope="*", who="ops", reason=None, since_ms=0)
    assert not info_of("n", True, [], [everything], None, None, []).worker_enabled
    assert info_of("n", True, [], [], None, None, []).worker_enabled


def test_concurrency_is_what_is_counted_not_what_was_wished() -> None:  # spec: HT-5
    seen = view(worker(0, current_job="j"), worker(1, pid=None))
    (crew,) = concurrency_of([TAG], seen, {"tag": 4}, {100: 6}).crews
    assert (crew.configured, crew.live, crew.busy, crew.threads_configured) == (2, 1, 1, 4)
    assert [(each.pid, each.busy, each.threads) for each in crew.workers] == [(100, True, 6), (None, False, None)]
