"""What `chargehand status` and orders say while a host waits to start the next node."""

import json
import os

import pytest
from typer.testing import CliRunner

from chargehand import Chargehand, NobodyServes, clock
from chargehand.cli.main import app
from chargehand.host import restart_plan
from chargehand.processes import proc

# spec: CL-4 WP-7


def announce(hand: Chargehand, deaths: int = 3) -> restart_plan.RestartPlan:
    own = proc.stat(os.getpid())
    assert own is not None
    plan = restart_plan.RestartPlan(
        host=os.getpid(), start=own.start, deaths=deaths, window=300.0, last="signal 9", at_ms=clock.now_ms() + 20_000
    )
    restart_plan.announce(hand.location, plan)
    return plan


def test_status_says_when_the_next_node_is_started(hand: Chargehand) -> None:
    told = CliRunner().invoke(app, ["status"])
    assert "node   none: no jobs are processed; start one with `chargehand work APP`" in told.stdout
    assert json.loads(CliRunner().invoke(app, ["status", "--json"]).stdout)["next_node"] is None
    plan = announce(hand)
    told = CliRunner().invoke(app, ["status"])
    assert told.exit_code == 1
    pid = os.getpid()
    words = f"none: the last one exited (signal 9; 3 exits within 300 s), and its host (pid {pid}) starts another in "
    assert words in told.stdout
    assert "chargehand work" not in told.stdout
    data = json.loads(CliRunner().invoke(app, ["status", "--json"]).stdout)
    assert data["node"] is None
    assert (data["next_node"]["host"], data["next_node"]["at_ms"]) == (pid, plan.at_ms)


def test_an_order_says_when_the_next_node_is_started(hand: Chargehand) -> None:
    with pytest.raises(NobodyServes, match="start one with `chargehand work APP`"):
        hand.stop()
    announce(hand, 1)
    with pytest.raises(NobodyServes, match=rf"\(signal 9\), and its host \(pid {os.getpid()}\) starts another in"):
        hand.stop()


def test_a_time_that_has_passed_is_now(hand: Chargehand) -> None:
    plan = announce(hand)
    assert plan.in_words(plan.at_ms + 5000).endswith("starts another in 0 s")
    assert plan.in_words(plan.at_ms - 5000).endswith("starts another in 5 s")
