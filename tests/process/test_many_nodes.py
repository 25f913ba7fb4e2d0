"""Tests for several nodes, each with its own host, on one PostgreSQL store."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_app import chargehand
from world import WORK, World

import pgserver
from chargehand import Chargehand, ConfigurationError, JobFilter, NobodyServes, clock
from chargehand.model.access import OperationFilter
from chargehand.model.job import State
from chargehand.testing import eventually
from paths import python_path

pytestmark = pytest.mark.full


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    if (packages := pgserver.missing()) is not None:
        pytest.skip(f"several nodes are NOT tested: pip install {packages}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a"))
    return World(tmp_path, pgserver.new_store())


@pytest.fixture
def hand(world: World) -> Iterator[Chargehand]:
    """Reads the store, and talks to the node a."""
    made = chargehand(world.address)
    yield made
    made.close()


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def node(world: World) -> Iterator[Start]:
    """Starts `chargehand work` for a node with this name and these numbers of workers, as if on its own machine."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, lease: float, workers: dict[str, int], **environment: str) -> subprocess.Popen[bytes]:
        crews = {
            f"CHARGEHAND_CREW_{crew.upper()}_WORKERS": str(workers.get(crew, 0)) for crew in ("do", "gpu", "alone")
        }
        own = {"CHARGEHAND_NODE": name, "XDG_STATE_HOME": str(world.folder / name), "TEST_LEASE": str(lease)}
        env = {
            **os.environ,
            "CHARGEHAND_URL": world.address,
            "PYTHONPATH": python_path(),
            **own,
            **crews,
            **environment,
        }
        with open(world.folder / f"log-{name}", "ab") as log:
            words = [sys.executable, "-c", WORK.format("several_app:hand")]
            started.append(subprocess.Popen(words, env=env, stdout=log, stderr=log))
        return started[-1]

    yield start
    for each in started:
        if each.poll() is None:
            each.send_signal(signal.SIGTERM)
        each.wait(30)


def healthy(hand: Chargehand, *nodes: str) -> list[Any]:
    """Waits until all components of these nodes are healthy, and returns them."""

    def found() -> list[Any]:
        rows = hand.internal.health()
        ready = (
            {row.node for row in rows} >= set(nodes) and all(row.is_healthy for row in rows) and len(rows) > len(nodes)
        )
        return rows if ready else []

    return eventually(found, what="healthy nodes")


def _until(events: Iterator[dict[str, Any]], kind: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Returns the first body of this kind that is wanted."""
    bodies = (event[kind] for event in events if event["type"] == f"{kind}_update" and not event.get("removed"))
    return next(body for body in bodies if wanted(body))


# spec: MN-1, MN-2, MN-7, WK-11, WK-12
def test_two_nodes_share_the_work_and_one_does_what_the_other_leaves(
    hand: Chargehand, world: World, node: Start
) -> None:
    do = hand.crew("do", "scripted_handlers:Doer")
    node("a", 1.5, {"do": 2}, TEST_LEDGER=world.ledger)
    other = node("b", 1.5, {"do": 2, "gpu": 1}, TEST_LEDGER=world.ledger)
    rows = healthy(hand, "a", "b")
    gate = world.gate()
    held = [world.put(do, gate) for _ in range(5)]
    eventually(lambda: len(world.lines("start")) >= 3, what="three of five jobs, the limit of the queue")
    eventually(lambda: hand.internal.jobs(JobFilter(queue="gpu", state=State.DONE)), what="a job that only b can do")
    events = hand.subscribe("worker:*:status", "node:*:status")
    busy = _until(events, "worker", lambda each: each["node"] == "b" and each["current_job"] is not None)
    assert busy["status"] == "healthy"
    claims = hand.internal.claims()
    assert ({claim.node for claim in claims}, len(claims)) == ({"a", "b"}, 3)
    status = hand.status()
    assert status is not None
    assert (status["node"], status["unserved"]) == ("a", {}), "the other node serves what this one does not"
    theirs = {claim.id for claim in claims if claim.node == "b"}
    (pid,) = {row.pid for row in rows if row.node == "b" and row.component == "app"}
    other.kill()
    os.kill(pid, signal.SIGKILL)
    _until(events, "worker", lambda each: each["node"] == "b" and each["text"] == "its node b is gone")
    events.close()
    assert [(each.name, each.status) for each in hand.internal.nodes()] == [("a", "healthy"), ("b", "gone")]
    eventually(lambda: {c.node for c in hand.internal.claims()} == {"a"}, what="the claims of b were taken back")
    gate.touch()
    eventually(lambda: all(ref.job().state is State.DONE for ref in held), what="all jobs done")
    for ref in held:
        expected = ["interrupted", "done"] if ref.id in theirs else ["done"]
        assert [attempt.outcome for attempt in ref.attempts()] == expected
        assert ref.attempts()[-1].node == "a"
    eventually(lambda: "gpu" in (hand.status() or {})["unserved"], what="a queue that nobody serves now")
    reasons = (hand.status() or {})["verdict"]["reasons"]
    assert "node b is gone: its jobs go to other nodes" in reasons
    gone = [row for row in hand.internal.health() if row.node == "b"]
    assert {(row.status, row.pid) for row in gone} == {("unknown", None)}
    fired = sorted(job.created_ms for job in hand.internal.jobs(JobFilter(queue="gpu")))
    assert len(fired) <= (fired[-1] - fired[0]) // 1000 + 3, "one for each second, though two nodes declare it"


# spec: MN-1, MN-3, MN-7
def test_a_node_with_a_gpu_and_one_without_run_different_crews_of_one_application(
    hand: Chargehand, world: World, node: Start
) -> None:
    do, gpu = (hand.crew(name, "scripted_handlers:Doer") for name in ("do", "gpu"))
    card = {
        "index": 0, "uuid": "GPU-1", "name": "A100", "memory.total": 81920, "memory.free": 81920, "utilization.gpu": 0,
    }  # fmt: skip
    smi = world.folder / "nvidia-smi"
    (world.folder / "gpus.json").write_text(json.dumps({"cards": [card]}))
    script = f'"{Path(__file__).with_name("nvidia_stand_in.py")}" "{world.folder / "gpus.json"}"'
    smi.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S {script} "$@"\n')
    smi.chmod(0o755)
    node("a", 5.0, {"do": 1}, TEST_GPUS="1", CHARGEHAND_NVIDIA_SMI="none")
    node("g", 5.0, {"gpu": 1}, TEST_GPUS="1", CHARGEHAND_NVIDIA_SMI=str(smi))
    healthy(hand, "a", "g")
    jobs = {"a": [world.put(do) for _ in range(3)], "g": [world.put(gpu) for _ in range(3)]}
    for name, refs in jobs.items():
        eventually(lambda refs=refs: all(ref.job().state is State.DONE for ref in refs), what=f"jobs of {name}")
        assert {attempt.node for ref in refs for attempt in ref.attempts()} == {name}
    status = hand.status() or {}
    assert (status["unserved"], status["verdict"]["status"]) == ({}, "healthy")

    assert [each.component for each in hand.scale("do", 2)] == ["a/do:1"], "its settings give node g no such worker"
    assert [(each.component, each.code) for each in hand.scale("g/do", 1)] == [("g/do:0", "starts")]
    deeds = OperationFilter(verb="scale")  # written after the answer
    eventually(lambda: sorted(each.target for each in hand.operations(deeds)) == ["a/do", "g/do"], what="both deeds")


# spec: MN-2
def test_a_node_that_is_cut_off_stops_the_jobs_that_must_not_overlap(
    hand: Chargehand, world: World, node: Start
) -> None:
    crews = {name: hand.crew(name, "scripted_handlers:Doer") for name in ("do", "alone")}
    node("a", 2.0, {"do": 1, "alone": 1})
    healthy(hand, "a")
    gate = world.gate()
    goes_on, stops = world.put(crews["do"], gate), world.put(crews["alone"], gate)
    for ref in (goes_on, stops):
        world.started(ref)
    with hand.transaction() as tx:
        ((backend,),) = tx.execute("SELECT backend FROM chargehand_node")
    os.kill(backend, signal.SIGSTOP)  # the server answers others, and this node not
    try:
        (victim,) = world.starts(stops)
        eventually(lambda: not Path(f"/proc/{victim}").exists(), what="the worker killed")
    finally:
        os.kill(backend, signal.SIGCONT)
    world.started(stops, times=2)
    gate.touch()
    for ref in (goes_on, stops):
        eventually(lambda ref=ref: ref.job().state is State.DONE, what="done")
    assert [attempt.outcome for attempt in goes_on.attempts()] == ["done"]
    assert [attempt.outcome for attempt in stops.attempts()] == ["interrupted", "done"]
    assert "cut off" in str(stops.attempts()[0].error)


# spec: MN-1, MN-3, WK-10, PD-2
def test_orders_reach_a_node_elsewhere_and_a_node_that_is_drained_leaves_its_work_to_others(
    hand: Chargehand, world: World, node: Start
) -> None:
    """`hand` is on the machine of node a, and everything happens to node b."""
    items = world.folder / "items"
    items.mkdir()
    finds = {"TEST_FOUND": str(items), "CHARGEHAND_CREW_FIND_WORKERS": "1"}

    def lookers() -> list[str]:
        found = Path(f"{items}.ledger")
        return found.read_text().split()[1::2] if found.exists() else []

    do = hand.crew("do", "scripted_handlers:Doer")
    other = node("b", 1.5, {"do": 1}, **finds)
    eventually(lookers, what="the first node searches")
    node("a", 1.5, {"do": 1}, **finds)
    rows = healthy(hand, "a", "b")
    assert set(lookers()) == {str(row.pid) for row in rows if row.node == "b" and row.crew == "find"}

    begun = clock.monotonic()
    assert [(each.component, each.code) for each in hand.restart("b/find:0")] == [("b/find:0", "restarts")]
    assert clock.monotonic() - begun < 2.0
    with pytest.raises(ConfigurationError, match="name one of a/do:0, b/do:0"):
        hand.stop("do:0")
    assert {(each.component, each.code) for each in hand.pause("a/*")} == {("a/do:0", "paused"), ("a/find:0", "paused")}
    gate = world.gate()
    first, second = world.put(do, gate), world.put(do, gate)
    world.started(first)
    assert [claim.node for claim in hand.internal.claims()] == ["b"]
    dump = hand.stack("b/do:0")
    assert (dump.component, dump.job) == ("b/do:0", first.id)
    assert "scripted_handlers.py" in dump.stacks
    assert any(each["component"] == "b/app" and "order" in each["text"] for each in hand.logs("b/*", count=1000))
    assert [answer.code for answer in hand.cancel(first.id)] == ["cancelling"]
    eventually(lambda: first.job().state is State.CANCELLED, what="cancelled by another node")
    world.started(second)

    (items / "one").touch()
    hand.wake("find")
    eventually(lambda: not (items / "one").exists(), what="the node that searches was woken")
    assert {each.code for each in hand.drain("b/*", end=True)} == {"stops"}
    (items / "two").touch()
    assert [answer.code for answer in hand.resume("a/*")] == ["resumed", "resumed"]
    eventually(lambda: not (items / "two").exists(), what="the other node searches")
    assert other.poll() is None, "it has a job"
    gate.touch()
    assert other.wait(30) == 0
    assert second.job().state is State.DONE
    assert [(node.name, node.crews) for node in hand.internal.reach.living()] == [("a", ("alone", "do", "find", "gpu"))]
    with pytest.raises(NobodyServes, match="no node 'b' that runs"):
        hand.start("b/*")
