"""What tables show of an id, its last 8 characters, is accepted in place of it."""

import json

import pytest
from typer.testing import CliRunner

from chargehand import Chargehand, FlowNotFound
from chargehand.cli.main import app
from chargehand.model.batch import Want
from chargehand.model.records import CrashReport, Holder

ME = Holder("node", "life")
CRASH = "0123456789abcdef" * 2


def run(hand: Chargehand, *words: str) -> str:
    done = CliRunner().invoke(app, [*words, "--store", str(hand.path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def job(hand: Chargehand) -> str:
    """A running job of a flow, whose worker has crashed before."""
    crew = hand.crew("a", "nowhere:A")
    with hand.flow("summer") as flow:
        ref = crew.enqueue({}, flow=flow)
    report = CrashReport(
        id=CRASH, component="worker:a:0", crew="a", incarnation="i", pid=1, reason="crash", text="crash",
        exit_code=None, signal=11, job=ref.id, memory=None, uptime_ms=1, charged=False, follows="",
    )  # fmt: skip
    with hand.transaction() as tx:
        tx.jobs.claim([Want("a", "a", 1)], ME)
        tx.fleet.report([report], ME)
    return ref.id


def test_crash_reports_are_found_by_the_end_of_their_id_and_of_their_job(hand: Chargehand, job: str) -> None:
    assert json.loads(run(hand, "crashes", CRASH[-8:], "--json"))["id"] == CRASH
    assert [each["id"] for each in json.loads(run(hand, "crashes", "--job", job[-8:], "--json"))] == [CRASH]
    assert json.loads(run(hand, "crashes", "--before", CRASH[-8:], "--json")) == []
    assert json.loads(run(hand, "crashes", "--job", "no-such-job", "--json")) == []


def test_a_claim_is_released_by_the_end_of_its_job(hand: Chargehand, job: str) -> None:
    assert json.loads(run(hand, "claims", "release", job[-8:], "--yes", "--json"))["id"] == job


def test_flows_are_found_by_the_end_of_their_id(hand: Chargehand, job: str) -> None:
    (flow,) = hand.flows()
    end = flow.id[-8:]
    assert json.loads(run(hand, "flows", "show", end, "--json"))["id"] == flow.id
    assert [each["id"] for each in json.loads(run(hand, "jobs", "list", "--flow", end, "--json"))] == [job]
    assert json.loads(run(hand, "flows", "cancel", end, "--yes", "--json"))["id"] == flow.id
    with pytest.raises(FlowNotFound):
        run(hand, "flows", "show", "no-such-flow")
