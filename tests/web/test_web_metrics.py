"""Metrics from facts: their labels are bounded, and what is not known is not made up."""

from prometheus_client.parser import text_string_to_metric_families

from chargehand.live.bodies import JobBody
from chargehand.live.broker import Broker
from chargehand.model.fleet.cards import WorkerGpu
from chargehand.model.job import State
from chargehand.model.records import Counts
from chargehand.model.status import NodeStatus, NodeWorker
from chargehand.model.tally import Tally
from chargehand.model.topic import parse
from chargehand.web.metrics import MOST_QUEUES, MetricFacts, exposition


def samples(facts: MetricFacts) -> dict[str, dict[str, float]]:
    """Values by name, and by labels as text."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(exposition(facts).decode()):
        for sample in family.samples:
            label = ",".join(f"{name}={text}" for name, text in sorted(sample.labels.items()))
            found.setdefault(sample.name.removeprefix("chargehand_"), {})[label] = sample.value
    return found


STATUS = NodeStatus(node="n", pid=1, tally=Tally({"q"}).view(events_dropped=3))


def test_a_job_is_in_one_state_and_queues_beyond_the_bound_are_counted_together() -> None:  # spec: HT-5
    counts = [Counts(queue=f"q{n:04}", queued=7, future=2, limited=1, done=1) for n in range(MOST_QUEUES + 5)]
    found = samples(
        MetricFacts(status=STATUS, counts=counts, waiting={"q0000": 1500}, since_crash={"tag": 2.5}, dropped=4)
    )
    jobs = found["queue_jobs"]
    assert {state: jobs[f"queue=q0000,state={state}"] for state in ("queued", "future", "limited", "done")} == {
        "queued": 4, "future": 2, "limited": 1, "done": 1,
    }  # fmt: skip
    assert jobs["queue=(others),state=queued"] == 5 * 4
    assert len(jobs) == (MOST_QUEUES + 1) * 7
    assert found["queue_oldest_wait_seconds"] == {"queue=q0000": 1.5}
    assert found["seconds_since_last_crash"] == {"crew=tag": 2.5}
    assert found["events_dropped_total"] == {"": 7}


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


def test_what_nobody_answered_is_left_out_and_said_so() -> None:  # spec: HT-5
    found = samples(MetricFacts(status=None, counts=None, waiting={}, since_crash={}))
    assert (found["node_up"], found["store_up"]) == ({"": 0}, {"": 0})
    assert "workers" not in found
    assert "queue_jobs" not in found


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
