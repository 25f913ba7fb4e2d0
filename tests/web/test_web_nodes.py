"""Several nodes as one API process shows them, without a node of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner
from webworld import Web

import pgserver
from chargehand import Chargehand
from chargehand.cli.main import app
from chargehand.model.job import NewJob
from chargehand.model.records import CrewRow, HealthNote, Holder

if (packages := pgserver.missing()) is not None:
    pytest.skip(f"several nodes are NOT tested: pip install {packages}", allow_module_level=True)

NODES = [Holder("a", "life-a"), Holder("b", "life-b")]
CREW = CrewRow(name="tag", queue="tag", handler="m:H", workers=2, max_attempts=3, timeout_ms=None)


@pytest.fixture
def web(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    url = pgserver.new_store()
    monkeypatch.setenv("CHARGEHAND_URL", url)
    made = Web(folder, Chargehand(url))
    for holder in NODES:
        _register(made.hand, holder)
    yield made
    made.close()


def _register(hand: Chargehand, holder: Holder) -> None:
    """Registers a node of another machine, with a worker."""
    about = {"boot": f"boot {holder.node}", "pid_namespace": "p", "machine": f"m-{holder.node}", "version": "7"}
    metadata = {"app": "{}", "worker:tag:0": '{"crew": "tag", "will_work": true, "memory": 1048576}'}
    with hand.transaction() as tx:
        tx.fleet.register(holder, [CREW], about)
        notes = [
            HealthNote(component=name, status="healthy", pid=5, pid_start=5, heartbeat_age_ms=0, metadata=text)
            for name, text in metadata.items()
        ]
        tx.fleet.project(notes, holder)


def expire(hand: Chargehand, name: str) -> None:
    with hand.transaction() as tx:
        tx.execute("DELETE FROM chargehand_node WHERE name = %s", (name,))


# spec: MN-1 HT-1 HT-2 HT-5
def test_an_api_process_without_a_node_shows_all_nodes(web: Web) -> None:
    shown = web.get("/api/v1/nodes")["nodes"]
    assert [(node["name"], node["status"], node["machine"]) for node in shown] == [
        ("a", "healthy", "m-a"), ("b", "healthy", "m-b"),
    ]  # fmt: skip
    workers = web.get("/api/web/worker/status")
    assert [(each["node"], each["component"], each["memory"]) for each in workers] == [
        ("a", "worker:tag:0", 1 << 20), ("b", "worker:tag:0", 1 << 20),
    ]  # fmt: skip
    (crew,) = web.get("/api/v1/info")["workers"]
    assert (crew["configured"], crew["live"]) == (4, 2)
    assert web.get("/workers/ready")["ready"]
    web.hand.internal.enqueue([NewJob(id="j1", queue="tag")])
    (queue,) = web.get("/api/v1/queues")["queues"]
    assert (queue["queued"], queue["unserved"]) == (1, None)
    web.hand.internal.enqueue([NewJob(id="j2", queue="nobody")])
    metrics = web.ask("GET", "/metrics").text
    assert 'chargehand_node_gone{node="b"} 0.0' in metrics
    assert 'chargehand_queue_unserved{queue="nobody"} 1.0' in metrics
    assert 'chargehand_queue_unserved{queue="tag"} 0.0' in metrics
    expire(web.hand, "b")
    assert [node["status"] for node in web.get("/api/v1/nodes")["nodes"]] == ["healthy", "gone"]
    assert {each["node"]: each["status"] for each in web.get("/api/web/worker/status")} == {
        "a": "healthy",
        "b": "unknown",
    }
    web.site.facts.forget()
    assert 'chargehand_node_gone{node="b"} 1.0' in web.ask("GET", "/metrics").text


# spec: MN-1
@pytest.mark.full
def test_a_worker_is_addressed_with_its_node_where_several_have_one(web: Web) -> None:
    refused = web.ask("GET", "/api/v1/health/worker:tag:0")
    assert (refused.status_code, refused.json()["detail"]) == (
        422, "several nodes have a worker 'worker:tag:0': name one of a/tag:0, b/tag:0",
    )  # fmt: skip
    for path in ("/api/v1/health/b/tag:0", "/api/v1/health/b%2Ftag:0", "/api/v1/health/b/worker:tag:0"):
        found = web.get(path)
        assert (found["node"], found["component"], found["well"]) == ("b", "worker:tag:0", True)
    found = web.get("/api/v1/workers/b/tag:0/history")
    assert (found["component"], found["node"], found["moments"]) == ("worker:tag:0", None, [])
    assert web.ask("GET", "/api/v1/health/c/tag:0").status_code == 404


# spec: MN-1 CL-3
def test_commands_show_all_nodes(web: Web) -> None:
    run = CliRunner().invoke
    listed = run(app, ["nodes"])
    assert listed.exit_code == 0
    assert [line.split()[:3] for line in listed.stdout.splitlines()[1:]] == [
        ["a", "healthy", "m-a"],
        ["b", "healthy", "m-b"],
    ]
    expire(web.hand, "b")
    told = run(app, ["status"])
    assert told.exit_code == 0
    lines = [line.split()[:3] for line in told.stdout.splitlines()]
    assert ["a", "worker:tag:0", "healthy"] in lines
    assert ["b", "worker:tag:0", "unknown"] in lines
    assert "verdict degraded\n  node b is gone: its jobs go to other nodes\n" in told.stdout
    once = run(app, ["top"])
    assert once.exit_code == 0
    assert ["b", "gone"] in [line.split()[:2] for line in once.stdout.splitlines()]
    expire(web.hand, "a")
    assert run(app, ["nodes"]).exit_code == 1
    told = run(app, ["status"])
    assert (told.exit_code, "node   none" in told.stdout) == (1, True)
