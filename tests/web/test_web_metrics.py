"""Metrics from facts: their labels are bounded, and what is not known is not made up."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from chargehand.live.bodies import JobBody, NodeBody, NodeCrewBody
from chargehand.live.broker import Broker
from chargehand.model.fleet.cards import WorkerGpu
from chargehand.model.flows import FlowTotals
from chargehand.model.job import State
from chargehand.model.records import Counts
from chargehand.model.status import NodeStatus, NodeWorker
from chargehand.model.tally import Tally
from chargehand.model.topic import parse
from chargehand.web.metrics import MOST_QUEUES, MetricFacts, exposition


def samples(facts: MetricFacts) -> dict[str, dict[str, float]]:
    """Values by name, and by labels as text."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(exposition(facts)[0].decode()):
        for sample in family.samples:
            label = ",".join(f"{name}={text}" for name, text in sorted(sample.labels.items()))
            found.setdefault(sample.name.removeprefix("chargehand_"), {})[label] = sample.value
    return found


STATUS = NodeStatus(node="n", pid=1, tally=Tally({"q"}).view(events_dropped=3))


def test_a_job_is_in_one_state_and_queues_beyond_the_bound_are_counted_together() -> None:  # spec: HT-5
    each = {"queued": 10, "future": 2, "following": 3, "limited": 1, "done": 1}
    counts = [Counts(queue=f"q{n:04}", **each) for n in range(MOST_QUEUES + 5)]
    found = samples(
        MetricFacts(status=STATUS, counts=counts, waiting={"q0000": 1500}, since_crash={"tag": 2.5}, dropped=4)
    )
    jobs = found["queue_jobs"]
    assert {state: jobs[f"queue=q0000,state={state}"] for state in each} == {**each, "queued": 4}
    assert jobs["queue=(others),state=queued"] == 5 * 4
    assert len(jobs) == (MOST_QUEUES + 1) * 8
    assert found["queue_oldest_wait_seconds"] == {"queue=q0000": 1.5}
    assert found["seconds_since_last_crash"] == {"crew=tag": 2.5}
    assert found["events_dropped_total"] == {"": 7}


def test_flows_by_state() -> None:  # spec: HT-5 FL-4
    flows = FlowTotals(running=3, done=9, failed=1)
    found = samples(MetricFacts(status=None, counts=[], waiting={}, since_crash={}, flows=flows))
    assert found["flows"] == {"state=running": 3, "state=done": 9, "state=failed": 1, "state=cancelled": 0}
    assert "flows" not in samples(MetricFacts(status=None, counts=None, waiting={}, since_crash={}))


def test_gpus_and_what_workers_use_on_them() -> None:  # spec: WP-14 HT-5
    shared = WorkerGpu(uuid="GPU-1", index=0, name="X", memory=80, memory_used=60, utilization=50)
    workers = (
        NodeWorker(component="worker:a:0", crew="a", status="healthy", gpus=(shared,)),
        NodeWorker(component="worker:a:1", crew="a", status="asleep"),
        NodeWorker(
            component="worker:b:0", crew="b", status="healthy",
            gpus=(WorkerGpu(uuid="GPU-1", memory=80, memory_used=60, utilization=50, worker_memory=7),
                  WorkerGpu(uuid="MIG-1")),
        ),
    )  # fmt: skip
    status = NodeStatus(node="n", pid=1, workers=workers)
    found = samples(MetricFacts(status=status, counts=[], waiting={}, since_crash={}))
    assert found["gpu_memory_bytes"] == {"gpu=GPU-1": 80}
    assert found["gpu_memory_used_bytes"] == {"gpu=GPU-1": 60}
    assert found["gpu_utilization_ratio"] == {"gpu=GPU-1": 0.5}
    assert found["worker_gpu_memory_bytes"] == {"crew=b,gpu=GPU-1,worker=worker:b:0": 7}
    assert found["workers"]["crew=a,status=asleep"] == 1
    without = samples(MetricFacts(status=STATUS, counts=[], waiting={}, since_crash={}))
    assert not any("gpu" in name for name in without)


def test_restarts_are_counted_by_crew_also_at_scale_0() -> None:  # spec: HT-5
    kept = NodeStatus(node="n", pid=1, tally=Tally({"q"}).view(0, {"tag": 4, "mail": 0}))
    facts = MetricFacts(status=kept, counts=[], waiting={}, since_crash={})
    assert samples(facts)["restarts_total"] == {"crew=tag": 4, "crew=mail": 0}
    worker = NodeWorker(component="worker:tag:0", crew="tag", status="healthy", restarts_total=2)
    older = NodeStatus(node="n", pid=1, workers=(worker,))
    assert samples(MetricFacts(status=older, counts=[], waiting={}, since_crash={}))["restarts_total"] == {
        "crew=tag": 2
    }


PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;"
    "q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        (PROMETHEUS, True), ("application/openmetrics-text", True), ("Application/OpenMetrics-Text ; q=1", True),
        ("text/plain;q=0.5, application/openmetrics-text;q=0.5", True), ("", False), ("*/*", False),
        ("text/plain", False), ("text/html,application/xhtml+xml", False), ("application/openmetrics-text;q=0", False),
        ("text/plain, application/openmetrics-text;q=0.9", False), ("application/openmetrics-text;q=nan", False),
        ("application/openmetrics-text;version=x;q=9e9", False), (";;,,;q=,", False),
    ],
)  # fmt: skip
def test_the_format_is_the_one_that_was_asked_for(accept: str, openmetrics: bool) -> None:  # spec: HT-5
    status = NodeStatus(node="n", pid=1, tally=Tally({"q"}).view(0, {"tag": 4}))
    facts = MetricFacts(status=status, counts=[Counts(queue="q")], waiting={"q": 1}, since_crash={"tag": 1.0})
    text, media = exposition(facts, accept)
    assert media.startswith("application/openmetrics-text; version=1.0.0" if openmetrics else "text/plain; version=")
    assert text.endswith(b"# EOF\n") is openmetrics
    parse_metrics = openmetrics_families if openmetrics else text_string_to_metric_families
    found = {family.name: family for family in parse_metrics(text.decode())}
    assert found["chargehand_restarts"].type == "counter"
    assert [sample.name for sample in found["chargehand_restarts"].samples] == ["chargehand_restarts_total"]
    kind = "# TYPE chargehand_restarts counter" if openmetrics else "# TYPE chargehand_restarts_total counter"
    assert kind in text.decode().splitlines()


def test_what_nobody_answered_is_left_out_and_said_so() -> None:  # spec: HT-5
    found = samples(MetricFacts(status=None, counts=None, waiting={}, since_crash={}))
    assert (found["node_up"], found["store_up"]) == ({"": 0}, {"": 0})
    assert "workers" not in found
    assert "queue_jobs" not in found


def test_a_process_without_a_node_knows_from_the_store_which_queues_nobody_serves() -> None:  # spec: HT-5
    counts = [Counts(queue="served", queued=1), Counts(queue="waits", queued=1)]
    facts = MetricFacts(
        status=None, counts=counts, waiting={}, since_crash={}, shared=True, unserved={"waits": "no crew serves it"}
    )
    assert samples(facts)["queue_unserved"] == {"queue=served": 0, "queue=waits": 1}


def test_no_name_can_break_the_format() -> None:  # spec: SE-4
    strange = 'a"b\\c\nd'
    found = samples(MetricFacts(status=STATUS, counts=[Counts(queue=strange, queued=1)], waiting={}, since_crash={}))
    assert found["queue_jobs"][f"queue={strange},state=queued"] == 1


def test_what_a_watcher_was_too_slow_for_is_counted() -> None:  # spec: EV-4 HT-5
    broker = Broker("life")
    broker.subscribe(parse(["queue:jobs"]), lambda: None)
    for number in range(3000):
        body = JobBody(id=str(number), queue="q", state=State.DONE)
        broker.publish(f"job:{number}", f"job:{number}", "job", body, number)
    assert broker.dropped > 1000
    broker.start_over("another")
    assert broker.dropped > 1000


# spec: MN-1 HT-5
def test_where_nodes_share_a_store_their_figures_have_their_names() -> None:
    status = NodeStatus(
        node="a", pid=1, workers=(NodeWorker(component="worker:q:0", crew="q", status="healthy"),),
        tally=Tally({"q"}).view(events_dropped=0),
    )  # fmt: skip
    crews = (NodeCrewBody(crew="q", queue="q", configured=2, live=1, busy=1),)
    nodes = [
        NodeBody(name="a", status="healthy", machine="m", version="1", beat_age_ms=1500, crews=crews),
        NodeBody(name="b", status="gone"),
    ]
    facts = MetricFacts(status=status, counts=[], waiting={}, since_crash={}, shared=True, nodes=nodes)
    found = samples(facts)
    assert found["workers"]["crew=q,node=a,status=healthy"] == 1
    assert found["claim_seconds_count"] == {"node=a": 0}
    assert found["node_gone"] == {"node=a": 0, "node=b": 1}
    assert found["node_last_beat_seconds"] == {"node=a": 1.5}
    assert found["node_info"] == {"machine=m,node=a,version=1": 1, "machine=,node=b,version=": 1}
    assert found["node_workers"]["crew=q,node=a,state=busy"] == 1
    alone = samples(MetricFacts(status=status, counts=[], waiting={}, since_crash={}))
    assert alone["workers"]["crew=q,status=healthy"] == 1
    assert not [name for name in alone if name.startswith("node_") and name != "node_up"]
