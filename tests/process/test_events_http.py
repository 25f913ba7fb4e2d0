"""The event stream over HTTP, with a real server and unmodified clients: curl and httpx-sse."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from listening import Listener, Served, Table
from scripted_app import chargehand
from terminal import chargehand as cli
from world import World

from chargehand import Chargehand, Crew
from chargehand.client import Client
from chargehand.errors import TopicError
from chargehand.model.job import State
from chargehand.testing import eventually

WATCHED = "queue:status,queue:*:status,worker:*:status,system:health,queue:jobs"
WORKERS = ("worker:step:0", "worker:step:1")


@pytest.fixture
def served(world: World) -> Iterator[Served]:
    server = Served(world)
    yield server
    server.stop()


@pytest.fixture
def listen(served: Served) -> Iterator[Callable[..., Listener]]:
    made: list[Listener] = []

    def start(url: str, last: str | None = None) -> Listener:
        made.append(Listener(url, last, served.token))
        return made[-1]

    yield start
    for listener in made:
        listener.end()


def crew_of(world: World) -> tuple[Chargehand, Crew[dict[str, object], object]]:
    hand = chargehand(world.store)
    return hand, hand.crew("step", "progress_handlers:Stepper", max_attempts=1)


def all_healthy(table: Table) -> None:
    for worker in WORKERS:
        table.wait(worker, status="healthy", flags=[])


def beats(hand: Chargehand, count: int) -> None:
    """Wait until every worker has been heard so often."""
    seen: dict[str, tuple[int, float]] = {}

    def enough() -> bool:
        for worker in (hand.status() or {"workers": []})["workers"]:
            number, age = seen.get(worker["component"], (0, 0.0))
            seen[worker["component"]] = (number + (worker["heartbeat_s"] < age), worker["heartbeat_s"])
        return len(seen) == 2 and min(number for number, _ in seen.values()) >= count

    eventually(enough, 30, what=f"{count} beats of everybody")


def test_clients_see_the_state_and_then_every_change(
    served: Served, world: World, listen: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: EV-1 EV-2 EV-3 EV-7 HT-4 SE-1
    hand, step = crew_of(world)
    seen = listen(served.events(WATCHED))
    all_healthy(seen)
    seen.wait("system:health", status="healthy", errors=[])
    seen.wait("queue:status", name=None, queued=0, running=0, done=0, rate=0.0)

    beats(hand, 3)  # how much memory each has is known only now
    heard = len(seen.heard)
    beats(hand, 5)
    assert seen.heard[heard:] == []  # everybody said that all is well, which is no news

    with open(world.folder / "curl", "wb") as out:
        key = f"Authorization: Bearer {served.token}"
        curl = subprocess.Popen(["curl", "-sN", "-H", key, served.events("*")], stdout=out)
    gate = world.gate()
    ref = step.enqueue({"steps": 2, "gate": str(gate)}, label="a song")
    running = seen.wait(ref.id, state="running", progress={"done": 1.0, "total": 2.0, "stage": "net", "detail": None})
    assert (running["label"], running["queue"], running["error"], running["result"]) == ("a song", "step", None, None)
    assert running["worker"] in WORKERS
    seen.wait(running["worker"], current_job=ref.id)
    seen.wait("queue:step:status", name="step", running=1)
    followed = listen(f"{served.url}/follow/{ref.id}")
    followed.wait(ref.id, state="running")
    Path(f"{gate}-1").touch()
    seen.wait(ref.id, progress={"done": 2.0, "total": 2.0, "stage": "net", "detail": None})
    Path(f"{gate}-2").touch()
    seen.wait(ref.id, state="done", result={"steps": 2})
    seen.wait(running["worker"], current_job=None, progress=None)
    queue = seen.wait("queue:step:status", running=0, done=1)
    assert queue["rate"] > 0
    assert queue["mean_duration_s"] > 0
    assert queue["last_done_ms"] == ref.job().finished_ms
    followed.wait(ref.id, state="done")
    assert {event["topic"] for event in followed.heard} == {f"job:{ref.id}"}
    failed = step.enqueue({"bad": True})
    assert "ValueError: as told" in seen.wait(failed.id, state="failed", reason="raised")["error"]

    os.kill(seen.things["worker:step:0"]["pid"], signal.SIGKILL)
    seen.wait("worker:step:0", status="healthy", restart_count=1)
    statuses = [e["worker"]["status"] for e in seen.heard if e["topic"] == "worker:step:0:status"]
    assert "crashed" in statuses or "starting" in statuses

    eventually(lambda: f'"id":"{failed.id}"' in (world.folder / "curl").read_text(), what="curl has heard of it, too")
    curl.kill()
    curl.wait()
    lines = (world.folder / "curl").read_text().splitlines()
    assert lines[0] == "retry: 1000"
    types = {json.loads(line[6:])["type"] for line in lines if line.startswith("data: ")}
    assert types == {"worker_update", "job_update", "queue_update", "health_update"}
    away = f"{served.url}/chargehand"
    monkeypatch.setenv("CHARGEHAND_KEY", served.token)
    with Client(away, served.token) as elsewhere:
        told = elsewhere.subscribe("system:health")
        assert next(told)["health"]["status"] in ("healthy", "degraded")
        told.close()
        with pytest.raises(TopicError, match="there is no topic 'nonsense'"):
            next(elsewhere.subscribe("nonsense"))
    line = cli("--url", away, "events", "worker:step:1:status", "-n", "1")
    assert (line.returncode, "worker:step:1 is healthy" in line.stdout) == (0, True)
    assert httpx.get(served.events("*")).status_code == 401  # without the token, also from this machine
    wrong = httpx.get(served.events("nonsense"), headers={"Authorization": f"Bearer {served.token}"})
    assert (wrong.status_code, wrong.headers["content-type"]) == (400, "application/problem+json")
    assert "there is no topic 'nonsense'" in wrong.json()["detail"]


def rss(pid: int) -> int:
    (line,) = [text for text in Path(f"/proc/{pid}/status").read_text().splitlines() if text.startswith("VmRSS")]
    return int(line.split()[1]) << 10


def test_a_client_that_does_not_read_costs_little_and_ends_up_right(
    served: Served, world: World, listen: Callable[..., Listener]
) -> None:  # spec: EV-4
    hand, step = crew_of(world)
    seen = listen(served.events(WATCHED))
    all_healthy(seen)
    asleep = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(5)]
    for sock in asleep:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        key = f"Authorization: Bearer {served.token}"
        sock.sendall(f"GET /chargehand/api/events?topics={WATCHED} HTTP/1.1\r\nHost: x\r\n{key}\r\n\r\n".encode())
    node = (hand.status() or {})["pid"]
    before = rss(served.process.pid), rss(node)
    refs = step.enqueue_many({} for _ in range(400))
    seen.wait("queue:step:status", done=400)
    last = step.enqueue({"steps": 3})
    last.wait(30)
    seen.wait("queue:step:status", done=401)
    assert rss(served.process.pid) - before[0] < 32 << 20
    assert rss(node) - before[1] < 32 << 20
    awake = asleep[0].makefile("rb")
    table, status = Table(), awake.readline()
    assert status == b"HTTP/1.1 200 OK\r\n"
    while not (table.is_now("queue:step:status", done=401, running=0) and table.is_now(last.id, state="done")):
        line = awake.readline()
        if line.startswith(b"data: "):
            table.hear(json.loads(line[6:]))
    awake.close()
    for sock in asleep:
        sock.close()
    running = [thing for thing in table.things.values() if thing.get("state") == State.RUNNING.value]
    assert running == []
    assert refs[-1].job().state is State.DONE


def test_a_client_that_comes_back_is_told_what_it_missed(
    served: Served, world: World, listen: Callable[..., Listener]
) -> None:  # spec: EV-2 EV-5
    hand, _ = crew_of(world)
    first = listen(served.events("worker:*:status,system:health"))
    all_healthy(first)
    beats(hand, 3)  # how much memory each has is known only now
    first.end()
    hand.scale("step", 1)
    eventually(lambda: len((hand.status() or {"workers": []})["workers"]) == 1, what="one worker left")

    second = listen(served.events("worker:*:status,system:health"), first.last)
    second.things = dict(first.things)
    eventually(lambda: "worker:step:1" not in second.things, what="it is told that one is gone")
    assert {event["type"] for event in second.heard} == {"worker_update"}
    assert {event["topic"] for event in second.heard} == {"worker:step:1:status"}  # what has not changed is not told
    (removed,) = [event for event in second.heard if event.get("removed")]
    assert removed["worker"]["component"] == "worker:step:1"

    old = second.things["worker:step:0"]["pid"]
    served.kill()
    served.start()
    eventually(lambda: second.things.get("worker:step:0", {"pid": old})["pid"] not in (old, None), 30)
    second.wait("worker:step:0", status="healthy")
    second.wait("system:health", status="healthy", errors=[])
    assert "resync" in [event["type"] for event in second.heard]
    assert set(second.things) == {"worker:step:0", "system:health"}  # the count that a person set is kept
