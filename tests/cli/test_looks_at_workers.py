"""What `chargehand nodes` and `chargehand stack` show of workers."""

import sys

import pytest
from rich.console import Console

from chargehand.cli import nodes, show, stack
from chargehand.live.bodies import NodeBody, NodeCrewBody
from chargehand.model.fleet.stacks import WorkerStacks

STACKS = """Current thread 0x1 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 1045 in _bootstrap

Thread 0x2 (most recent call first):
  File "/srv/music/tagging.py", line 82 in decode
"""


class Narrow(Console):
    def __init__(self, **options: object) -> None:
        super().__init__(file=sys.stdout, highlight=False, width=80)


def test_all_crews_of_a_node_are_told_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # spec: CL-2
    crews = tuple(NodeCrewBody(crew=f"crew-{n}", queue="q", configured=2, live=n % 3) for n in range(12))
    body = NodeBody(name="gpu-1", status="degraded", reason="the store is slow", pid=1, version="0.1.0", crews=crews)
    monkeypatch.setattr(show, "Console", Narrow)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    nodes.table([body])
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80
    assert "the store is slow; crew-0 0/2, " in told
    assert "crew-11 2/2" in told
    nodes.table([])
    assert capsys.readouterr().out == "no nodes; start one with `chargehand work APP`\n"


def test_the_frames_of_the_application_come_first(capsys: pytest.CaptureFixture[str]) -> None:  # spec: CL-6
    found = WorkerStacks(component="worker:tag:0", code="dumped", text="wrote its stacks", stacks=STACKS)
    stack._print(found)  # pyright: ignore[reportPrivateUsage]
    told = capsys.readouterr().out
    assert told.startswith(
        "worker:tag:0: wrote its stacks\n\nframes of the application:\n"
        "  /srv/music/tagging.py:82 in decode\n\nstacks:\n"
    )
