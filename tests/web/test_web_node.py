"""With a real node: workers, orders, readiness, concurrency and metrics as they are told over HTTP, by the client."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from webworld import Web

from chargehand import Chargehand, RestartPolicy, UnknownCrew
from chargehand.client import Client, Refused
from chargehand.log import Event
from chargehand.testing import eventually
from chargehand.web.answers import WorkerStatus

FAULTY = "chargehand.testing.faults:Faulty"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(client: Client) -> Samples:
    """Every sample, by its name and labels."""
    families = text_string_to_metric_families(client.metrics())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"chargehand_{name}", frozenset(labels.items())]


def workers(client: Client) -> dict[str, WorkerStatus]:
    return {worker.component: worker for worker in client.workers()}


def test_a_node_over_http(folder: Path) -> None:  # spec: HT-1 HT-2 HT-5 HP-8 SE-5 SV-10 DB-2
    hand = Chargehand(folder / "chargehand.db", restart=RestartPolicy(first_pause=0.01, longest_pause=0.01))
    hand.crew("do", FAULTY, workers=2, threads=3)
    web = Web(folder, hand)
    client = web.client(web.key("read", "enqueue", "control", name="ann"))
    try:
        assert (client.workers_ready().ready, client.info().supervisor) == (False, None)
        assert client.queue_history() == ()
        with hand.running():
            eventually(lambda: client.workers_ready().ready)
            _jobs_and_metrics(web, client)
            _the_past_of_workers(client)
            _a_job_in_hand(client, folder / "gate")
            _orders(client)
        assert client.workers_ready().reasons[0] == "no node runs"
        with pytest.raises(Refused, match="no component 'worker:do:0'"):
            client.worker_history("worker:do:0")  # nobody is left who knows of it
        assert value(scrape_again(web, client), "node_up") == 0
    finally:
        web.close()


def scrape_again(web: Web, client: Client) -> Samples:
    web.site.facts.forget()
    return scrape(client)


def _jobs_and_metrics(web: Web, client: Client) -> None:
    ids = [made.id for made in client.enqueue_many([{"crew": "do", "payload": {}}] * 5)]
    ids.append(client.enqueue("do", {"fault": "give up", "reason": "no use"}, label="bad").id)
    ids.append(client.enqueue(queue="do", payload={"fault": "kill"}, once="k").id)
    assert client.enqueue(queue="do", payload={"fault": "kill"}, once="k").id == ids[-1]
    eventually(lambda: all(job.state in ("done", "failed") for job in client.all_jobs()))
    (past,) = eventually(client.queue_history)  # though nobody watches
    assert (past.name, len(past.at_ms), len(past.rate)) == ("do", len(past.waiting), len(past.failed))
    poison = client.job(ids[-1])
    assert (poison.reason, poison.crashes, len(poison.crash_reports)) == ("poison", 3, 3)
    eventually(lambda: all(worker.status == "healthy" for worker in client.workers()))
    samples = scrape_again(web, client)
    (counts,) = web.hand.counts()
    for state in ("queued", "running", "done", "failed", "cancelled"):
        assert value(samples, "queue_jobs", queue="do", state=state) == getattr(counts, state)
    assert (counts.done, counts.failed) == (5, 2)
    assert value(samples, "attempts_total", queue="do", outcome="done") == 5
    assert value(samples, "attempts_total", queue="do", outcome="gaveup") == 1
    assert value(samples, "attempts_total", queue="do", outcome="crashed") == 3
    reports = client.crashes().crashes
    assert value(samples, "crashes_total", crew="do", reason=reports[0].reason) == len(reports) == 3
    assert 0 <= value(samples, "seconds_since_last_crash", crew="do") < 600
    assert value(samples, "restarts_total", crew="do") == sum(w.restart_count for w in client.workers()) == 3
    assert value(samples, "workers", crew="do", status="healthy") == 2
    assert value(samples, "workers", crew="do", status="failed") == 0
    assert value(samples, "job_run_seconds_count", queue="do") == 9
    assert value(samples, "job_wait_seconds_count", queue="do") == 9
    assert value(samples, "job_wait_seconds_bucket", queue="do", le="+Inf") == 9
    for name in ("claim", "settle"):
        assert value(samples, f"{name}_seconds_count") > 0
        assert 0 < value(samples, f"{name}_seconds_sum") < 600
    assert value(samples, "events_dropped_total") == 0
    assert (value(samples, "node_up"), value(samples, "store_up")) == (1, 1)
    # Another scrape has the same series: nothing that comes and goes is a label.
    assert set(scrape_again(web, client)) == set(samples)


def _the_past_of_workers(client: Client) -> None:
    pasts = [client.worker_history(f"worker:do:{index}") for index in range(2)]
    assert all(past.node == client.info().node for past in pasts)
    ended = [moment for past in pasts for moment in past.moments if moment.kind == "job"]
    assert sorted(moment.what for moment in ended) == ["crashed"] * 3 + ["done"] * 5 + ["gave up"]
    assert {moment.job for moment in ended} == {job.id for job in client.all_jobs()}
    assert all(moment.duration_ms is not None and moment.pid is None for moment in ended)
    for past in pasts:
        times = [moment.at_ms for moment in past.moments]
        assert times == sorted(times, reverse=True)
        assert times[0] <= past.at_ms
        states = [moment for moment in reversed(past.moments) if moment.kind == "status"]
        assert [state.what for state in states] == ["starting", "healthy", "crashed"] * (len(states) // 3) + [
            "starting",
            "healthy",
        ]
        assert all(state.pid for state in states)
        assert all("SIGKILL" in str(state.text) for state in states if state.what == "crashed")
    weighed = eventually(lambda: client.worker_history("worker:do:0").memory, 15)
    assert weighed[0] > 1 << 20
    node = client.worker_history("app")  # it is no worker, but the store has it
    assert (node.node, node.moments, node.memory) == (None, (), ())


def _a_job_in_hand(client: Client, gate: Path) -> None:
    job = client.enqueue("do", {"fault": "wait", "gate": str(gate), "then": {"fault": "threads", "count": 1}})
    busy: Any = eventually(lambda: [w for w in client.workers() if w.current_job == job.id and w.progress])
    (worker,) = busy
    assert worker.is_healthy
    assert worker.budget is not None
    assert client.component(worker.component).well
    assert not client.component(worker.component, max_age=1e-9).well
    (crew,) = client.concurrency().crews
    assert (crew.configured, crew.live, crew.busy, crew.threads_configured) == (2, 2, 1, 3)
    counted = {each.pid: each.threads for each in crew.workers}
    tasks = len(list(Path(f"/proc/{worker.pid}/task").iterdir()))
    assert counted[worker.pid] == tasks
    info = client.info()
    assert info.supervisor is not None
    assert (info.supervisor.answers, info.queues, info.workers[0].live) == (True, ("do",), 2)
    assert client.health().status == "healthy"
    assert {each.component for each in client.health().components} == {"app", "worker:do:0", "worker:do:1"}
    assert [each.component for each in client.health("healthy").components if each.component == "app"] == ["app"]
    assert any(f"event={Event.WORKER_SPAWNED}" in line.text for line in client.logs("do"))
    with pytest.raises(UnknownCrew, match="no crew or worker 'nobody'"):
        client.logs("nobody")
    assert isinstance(client.doctor().well, bool)
    stacks = client.stack(worker.component)  # spec: CL-6
    assert (stacks.pid, stacks.job, stacks.code) == (worker.pid, job.id, "dumped")
    assert " in _wait\n" in stacks.stacks
    with pytest.raises(UnknownCrew, match="no crew or worker 'do:7'"):
        client.stack("do:7")
    assert client.cancel(job.id).code == "cancelling"
    eventually(lambda: client.job(job.id).state == "cancelled")


def _orders(client: Client) -> None:
    assert {answer.component for answer in client.pause("do", reason="tea", seconds=60)} == {
        "worker:do:0",
        "worker:do:1",
    }
    eventually(lambda: {worker.status for worker in client.workers()} == {"paused"})
    assert client.workers_ready().crews[0].reason == "paused by ann: tea"
    assert (client.pauses()[0].who, client.pauses()[0].reason) == ("ann", "tea")
    client.resume("do")
    before = {worker.pid for worker in client.workers()}
    assert client.restart("worker:do:0")[0].component == "worker:do:0"
    eventually(lambda: len({w.pid for w in client.workers() if w.status == "healthy"} - before) == 1)
    client.scale("do", 1)
    eventually(lambda: list(workers(client)) == ["worker:do:0"])
    client.stop()
    eventually(lambda: workers(client)["worker:do:0"].status == "stopped")
    assert client.workers_ready().crews[0].ready is False
    client.start()
    client.reset()
    client.drain()
    with pytest.raises(UnknownCrew):
        client.stop("nobody")
    expected = [
        ("pause", "do", "for 60 s: tea"),
        ("resume", "do", None),
        ("restart", "worker:do:0", None),
        ("scale", "do", "1 workers"),
        ("stop", "*", None),
        ("start", "*", None),
        ("reset", "*", None),
        ("drain", "*", None),
    ]

    def logged() -> bool:  # the node answers an order before it has written it to the log
        done = [(each.verb, each.target, each.detail) for each in client.all_operations(who="ann")]
        return done[::-1][-8:] == expected

    eventually(logged)
    assert any(each.verb == "cancel" and each.who == "ann" for each in client.all_operations())
