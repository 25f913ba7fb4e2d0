"""Two servers of Adreel, each with a node of its own, on one PostgreSQL and one folder: any answers for any film."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from adreel_gates import PIXEL
from adreelserver import MP4, Adreel, half_sent, incomplete, streamed

import pgserver
from adreel import diagnostics
from chargehand.testing import eventually

pytestmark = pytest.mark.full
NAMES = ("first", "second")
SOON = {"CHARGEHAND_LIVENESS_LEASE": "3", "CHARGEHAND_LIVENESS_NODE_BEAT": "0.3", "CHARGEHAND_GRACE": "1"}
"""A node that is gone is noticed within seconds."""
Begin = Callable[[str], Adreel]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Starts a server whose node has this name."""
    if (packages := pgserver.missing()) is not None:
        pytest.skip(f"several nodes are NOT tested: pip install {packages}")
    monkeypatch.setenv("CHARGEHAND_URL", pgserver.new_store())
    monkeypatch.setenv("CHARGEHAND_ADMIN_KEY", "long-enough-for-a-test-0123456789")
    monkeypatch.setenv("CHARGEHAND_FILES", str(tmp_path / "home" / "files"))
    started: list[Adreel] = []

    def server(name: str) -> Adreel:
        state = {"NODE_NAME": name, "XDG_STATE_HOME": str(tmp_path / f"state-{name}")}  # as on another machine
        started.append(Adreel(tmp_path, WORKER_PROCESSES="1", ADREEL_MIN_FREE="1", **SOON, **state))
        return started[-1]

    yield server
    for each in reversed(started):
        each.close()


@pytest.fixture
def pair(begin: Begin) -> tuple[Adreel, Adreel]:
    first, second = (begin(name) for name in NAMES)
    for each in (first, second):
        each.ready()
    eventually(lambda: set(nodes(first)) == set(nodes(second)) == set(NAMES), 60, what="both nodes")
    return first, second


def nodes(asked: Adreel) -> dict[str, Any]:
    """The nodes as one of the servers shows them."""
    return {node["node"]: node for node in asked.http.get("/cluster").json()["nodes"]}


def order(asked: Adreel, node: str, what: str) -> None:
    """Lets a server tell a node to drain, or to start."""
    assert asked.http.post(f"/cluster/{node}/{what}").status_code == 200
    eventually(lambda: bool(nodes(asked)[node]["drain"]) == (what == "drain"), 60, what=f"{node}: {what}")


def is_at(asked: Adreel, film: str, node: str, stage: str) -> bool:
    """Whether a film is in this stage on this node, as one of the servers shows it."""
    stages = asked.get(film).get("stages", [])
    return any((each["name"], each.get("state"), each.get("node")) == (stage, "running", node) for each in stages)


def test_any_server_answers_for_any_film(
    pair: tuple[Adreel, Adreel], monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: AR-7 AR-8 AR-2 MN-1 MN-3
    first, second = pair
    order(first, "second", "drain")
    gate = first.close_gate("frames")
    film = first.upload("a.mp4")["id"]
    seen: set[str] = set()

    def goes_on(body: dict[str, Any]) -> None:
        seen.update(each["name"] for each in body["stages"] if each.get("node") == "first")
        if "frames" in seen:
            gate.unlink(missing_ok=True)

    events = streamed(second, film, goes_on)  # of a film that the other node analyses
    assert (events[-1][1]["status"], "frames" in seen) == ("done", True)
    order(second, "second", "start")
    assert second.get(film)["result"] == first.get(film)["result"]
    for path in (f"/jobs/{film}/frames/1", f"/jobs/{film}/chapters.vtt"):
        assert first.http.get(path).content == second.http.get(path).content
    assert second.http.get(f"/jobs/{film}/frames/1").content == PIXEL
    assert [each["id"] for each in second.http.get("/jobs").json()["jobs"]] == [film]
    assert first.delete(film) == 204
    assert second.http.get(f"/jobs/{film}").status_code == 404

    order(second, "first", "drain")  # by the other one; the drained server still takes films, and its files
    gate = first.close_gate("frames")
    stubborn = first.upload("stubborn.mp4")["id"]
    eventually(lambda: is_at(first, stubborn, "second", "frames"), 60, what="the other node has it")
    row = first.row(stubborn)
    assert first.delete(stubborn) == 202
    assert second.get(stubborn)["status"] == "deleting"
    eventually(lambda: first.is_gone(row) and second.is_gone(row), 60, what="nothing is left")
    gate.unlink()
    for server in pair:
        concurrency = server.http.get("/diagnostics/concurrency").json()
        assert (concurrency["nodes"], {each["node"] for each in concurrency["workers"]}) == (2, set(NAMES))
    threads = {worker["threads"] for worker in diagnostics.concurrency(first.service)["workers"]}
    assert threads - {None}
    monkeypatch.setattr(socket, "gethostname", lambda: "another-machine")  # where the pids are those of others
    threads = {worker["threads"] for worker in diagnostics.concurrency(first.service)["workers"]}
    assert threads == {None}


def test_the_other_node_finishes_what_a_killed_one_was_doing_and_deleting(
    pair: tuple[Adreel, Adreel], begin: Begin
) -> None:  # spec: AR-7 AR-8 MN-2
    first, second = pair
    order(first, "second", "drain")
    gate = first.close_gate("frames")
    film = first.upload("a.mp4")["id"]
    eventually(lambda: is_at(second, film, "first", "frames"), 60, what="the first node has it")
    first.close_gate("ingest")
    doomed = first.upload("stubborn.mp4")["id"]
    eventually(lambda: is_at(second, doomed, "first", "ingest"), 60, what="the first node has the other one, too")
    row = first.row(doomed)
    order(first, "second", "start")
    with half_sent(first):
        eventually(lambda: len(incomplete(first)) == 1, what="an upload arrives")
        assert first.delete(doomed) == 202
        for pid in first.left():
            with suppress(ProcessLookupError):  # workers end with their node
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not first.left(), what="everything of the first node is dead")
    eventually(lambda: is_at(second, film, "second", "frames"), 60, what="the other node has it")
    eventually(lambda: second.is_gone(row), 60, what="the deletion is complete")
    gate.unlink()
    assert second.ends(film)["result"]["guess"]["category"] == "Travel"
    assert second.get(second.upload("after.mp4", MP4)["id"])["status"] in ("queued", "running", "done")

    again = begin("first").ready()
    assert incomplete(again) == []
    eventually(lambda: nodes(second).get("first", {}).get("status") == "healthy", 60, what="the first node is back")
    assert again.get(film)["result"] == second.get(film)["result"]
