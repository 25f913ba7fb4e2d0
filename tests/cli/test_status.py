"""Tests for `chargehand status` while the store cannot be read."""

import sys
from typing import Any

import pytest
from msgspec import to_builtins
from typer.testing import CliRunner

from chargehand.cli import find
from chargehand.cli.main import app
from chargehand.cli.status import status
from chargehand.errors import StoreError
from chargehand.model.status import NodeStatus, NodeWorker, StoreStatus


class Away:
    """A node that answers, and a store that does not."""

    address = "postgresql://db/music"

    def status(self) -> dict[str, Any]:
        workers = (
            NodeWorker(component="worker:tag:0", crew="tag", status="healthy", pid=77, heartbeat_s=0.1),
            NodeWorker(component="worker:tag:1", crew="tag", status="asleep"),
            NodeWorker(component="worker:tag:2", crew="tag", status="healthy", pid=79, flags=("stalled",)),
            NodeWorker(component="worker:tag:3", crew="tag", status="failed", cause="OSError: no model"),
        )
        return to_builtins(NodeStatus(node="gpu-1", pid=5, workers=workers))

    def nodes(self) -> None:
        raise StoreError("no server answers", "server-gone")


# spec: CL-3 MN-5
def test_the_node_of_this_machine_is_shown_although_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "service", lambda *_: Away())
    told = CliRunner().invoke(app, ["status"])
    assert isinstance(told.exception, StoreError), "it is reported, and gives the exit status"
    assert "node   gpu-1, pid 5" in told.stdout
    assert ["worker:tag:0", "healthy", "77"] in [line.split()[:3] for line in told.stdout.splitlines()]
    listed = [line.split()[0] for line in told.stdout.splitlines() if line.startswith("worker:")]
    assert listed == ["worker:tag:2", "worker:tag:3", "worker:tag:0", "worker:tag:1"], "the unwell ones first"
    assert CliRunner().invoke(app, ["status", "--json"]).stdout == ""


def test_causes_are_wrapped_between_words_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # spec: CL-3
    class Failing(Away):
        def status(self) -> dict[str, Any]:
            return to_builtins(NodeStatus(node="gpu-1", pid=5, store=StoreStatus(failing="the disk is full " * 8)))

    monkeypatch.setattr(find, "service", lambda *_: Failing())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(StoreError):
        status()
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()).count("the disk is full") == 8
