"""One `uvicorn` command serves the API and runs the workers."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from embedserver import Server, large_files, stalled

from chargehand.log import Event
from chargehand.model.access import Scope
from chargehand.processes import proc
from chargehand.testing import eventually

Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Servers that are stopped at the end of the test."""
    started: list[Server] = []

    def server(*words: str, **settings: Any) -> Server:
        started.append(Server(tmp_path, *words, **settings))
        return started[-1]

    yield server
    for each in started:
        each.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests that leave it as it was."""
    made = Server(tmp_path_factory.mktemp("served"))
    made.answers()
    yield made
    made.close()


def test_jobs_are_done_without_a_second_command(server: Server) -> None:  # spec: CF-3 CL-1
    assert server.result(server.submit(path="x"))["scores"] == {"x": 1.0}
    assert len(server.workers()) == 2
    assert f" path={server.store}\n" in server.log.read_text()  # spec: CF-3
    assert server.answers()["greeting"] == "hello"  # the state of the user's own lifespan
    assert server.http.get("/chargehand/healthz").status_code == 200


def test_a_wrong_payload_is_refused_by_the_users_own_route(server: Server) -> None:
    response = server.http.post("/songs", json={"path": 7})
    assert (response.status_code, response.json()["detail"][0]["loc"]) == (422, ["body", "path"])


def test_a_killed_worker_is_replaced(server: Server) -> None:  # spec: SV-2 WP-6
    before = server.workers()
    os.kill(before[0], signal.SIGKILL)
    eventually(lambda: before[0] not in (now := server.workers()) and len(now) == 2, 30, what="another worker")
    assert server.result(server.submit())["pid"] in server.workers()


def test_workers_are_supervised_while_the_api_holds_its_interpreter(server: Server) -> None:  # spec: SV-3
    fifo = server.folder / "fifo"
    os.mkfifo(fifo)
    before = server.workers()
    answers: list[httpx.Response] = []
    held = threading.Thread(target=lambda: answers.append(server.http.get("/hold", params={"fifo": str(fifo)})))
    held.start()
    try:
        stuck = eventually(lambda: open_by(server.process.pid, fifo), what="the API in C code")
        os.kill(before[1], signal.SIGKILL)
        eventually(lambda: before[1] not in (now := server.workers()) and len(now) == 2, 60, what="another worker")
        gate = server.folder / "open"
        gate.touch()
        crew = server.hand.crew("tag", "service_handlers:Tagger")
        assert crew.enqueue({"path": "y", "gate": str(gate)}).wait(30)["scores"] == {"y": 1.0}
        assert stuck
        assert not answers  # the API was busy all the time
    finally:
        with open(fifo, "r+b", buffering=0) as opened:
            opened.write(b"x")
        held.join()
    assert [answer.text for answer in answers] == ['"held"']


def open_by(pid: int, path: Path) -> bool:
    try:
        return str(path) in {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()}
    except FileNotFoundError:
        return False


def test_fifty_open_streams_do_not_keep_it_from_stopping(server: Server) -> None:  # spec: SV-11
    """The last test of the shared server: SIGTERM ends the streams, finishes the job in hand and leaves nothing."""
    gate = server.folder / "last"
    job_id = server.submit(gate=str(gate))
    server.started(gate)
    key, _ = server.hand.make_key("streams", [Scope.READ])
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=server.http.base_url, limits=httpx.Limits(max_connections=60), timeout=60) as client:
        path, topics = "/chargehand/api/events", {"topics": "system:health"}
        request = client.build_request("GET", path, params=topics, headers=headers)
        streams = [client.send(request, stream=True) for _ in range(50)]
        assert {stream.status_code for stream in streams} == {200}
        lines = [stream.iter_lines() for stream in streams]
        assert all(any(line.startswith("data:") for line in each) for each in lines)  # each has heard something
        server.signal(signal.SIGTERM)
        for each in lines:
            list(each)  # ends as a whole: a stream that was cut raises
    eventually(lambda: (server.hand.status() or {}).get("stopping"), what="the node stops")
    gate.touch()
    server.ended()
    assert server.hand.job(job_id).state == "done"
    assert server.hand.claims() == []


def test_the_node_stops_while_a_client_keeps_the_server_from_stopping(start: Start) -> None:  # spec: SE-6
    server = start(WORKER_PROCESSES="1")
    server.answers()
    gate = server.folder / "gate"
    running = server.submit(gate=str(gate))
    server.started(gate)
    waiting = server.submit()
    half = "POST /chargehand/api/web/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
    unread = large_files("/chargehand", "Host: localhost\r\n")
    with stalled(server.port, unread) as reading, stalled(server.port, half) as sending:
        assert reading.recv(12) == b"HTTP/1.1 200"
        server.answers()
        server.signal(signal.SIGTERM)
        eventually(lambda: (server.hand.status() or {}).get("stopping"), what="the node stops")
        gate.touch()
        eventually(lambda: server.hand.status() is None, what="the node has stopped")
        assert sending.recv(12) == b"HTTP/1.1 503"  # bodies of our own routes end
        assert server.process.poll() is None  # the rest belongs to the server
    server.ended()
    assert [server.hand.job(each).state for each in (running, waiting)] == ["done", "queued"]
    assert server.hand.attempts(waiting) == []


def test_ctrl_c_leaves_nothing(start: Start) -> None:  # spec: WP-6 PD-3
    server = start(WORKER_PROCESSES="1", CHARGEHAND_GRACE="600")
    server.answers()
    assert len(server.workers()) == 1  # spec: CF-1
    gate = server.folder / "gate"
    job_id = server.submit(gate=str(gate))
    server.started(gate)
    server.ctrl_c()
    eventually(lambda: (server.hand.status() or {}).get("stopping"), what="the node stops")
    server.ctrl_c()  # a second one does not wait for the job
    assert server.ended() == 0
    assert (server.hand.job(job_id).state, server.hand.job(job_id).interruptions) == ("queued", 1)
    assert server.hand.claims() == []


def test_an_api_that_is_killed_leaves_nothing(start: Start) -> None:  # spec: WP-7
    server = start()
    server.answers()
    gate = server.folder / "gate"
    job_id = server.submit(gate=str(gate))
    server.started(gate)
    server.signal(signal.SIGKILL)
    gate.touch()
    server.ended()
    assert server.hand.job(job_id).state == "done"
    assert server.hand.claims() == []


def test_without_workers_jobs_wait_for_a_second_command(start: Start) -> None:  # spec: CF-2 SV-12 CL-1
    server = start(EMBED_WORKERS="False")
    server.answers()
    job_id = server.submit()
    assert [proc.stat(pid) is not None for pid in server.left()] == [True]  # the API alone
    assert server.hand.status() is None
    assert server.hand.job(job_id).state == "queued"
    eventually(lambda: f"event={Event.QUEUE_UNSERVED}" in server.log.read_text(), what="it is said")
    worker = start(command="chargehand work service_jobs:hand", WORKER_PROCESSES="1", EMBED_WORKERS="no")
    assert server.result(job_id)["scores"] == {"a": 1.0}
    assert len(server.workers()) == 1
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0


def test_many_api_processes_have_one_node(start: Start) -> None:  # spec: SV-11
    server = start("--workers", "3")
    server.answers()
    server.workers()
    node = server.node()
    host = proc.stat(node).parent if node is not None else 0  # type: ignore[union-attr]
    assert [pid for pid in server.left() if is_node(pid)] == [node]
    os.kill(host, signal.SIGKILL)
    eventually(lambda: server.node() not in (None, node), 60, what="another node")
    assert [pid for pid in server.left() if is_node(pid)] == [server.node()]
    assert server.result(server.submit())["scores"] == {"a": 1.0}
    assert f"event={Event.NODE_STANDBY}" in server.log.read_text()
    server.ctrl_c()
    server.ended()


def is_node(pid: int) -> bool:
    try:
        return b"chargehand.node.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_a_reload_is_quick_and_leaves_nothing(start: Start, tmp_path: Path) -> None:  # spec: SV-11
    (tmp_path / "reloaded.py").write_text("from service_app import app\n")
    server = start("--reload", "--reload-dir", str(tmp_path), command="uvicorn reloaded:app", CHARGEHAND_GRACE="600")
    first = server.answers()["pid"]
    server.workers()
    node = server.node()
    gate = server.folder / "gate"
    job_id = server.submit(gate=str(gate))
    server.started(gate)
    (tmp_path / "reloaded.py").write_text("from service_app import app  # changed\n")
    eventually(lambda: server.node() not in (None, node), 60, what="another node, though a job never ends")
    assert server.answers()["pid"] != first
    assert [pid for pid in server.left() if is_node(pid)] == [server.node()]
    gate.touch()
    assert server.result(job_id)["scores"] == {"a": 1.0}
    assert server.hand.job(job_id).interruptions == 1
