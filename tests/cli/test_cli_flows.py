"""`chargehand flows`, and what `jobs` and `status` say of jobs that wait for others."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from chargehand import Chargehand
from chargehand.cli.main import app
from chargehand.ids import new_id
from chargehand.model.batch import Want
from chargehand.model.flows import NewFlow
from chargehand.model.job import Done, GaveUp, NewJob, Outcome, settle
from chargehand.model.records import CrewRow, Holder

# spec: CL-3 CL-6 FL-1 FL-2 FL-4
ME = Holder("node", "life")


@pytest.fixture
def hand(hand: Chargehand) -> Chargehand:
    rows = [
        CrewRow(name=name, queue=name, handler="nowhere:H", workers=1, max_attempts=3, timeout_ms=None)
        for name in ("decode", "join")
    ]
    with hand.transaction() as tx:
        tx.fleet.register(ME, rows, {})
    return hand


def begin(hand: Chargehand, name: str = "summer.mp4") -> tuple[str, list[str]]:
    """A flow of two jobs and one that waits for both."""
    flow = NewFlow(id=new_id(), name=name)
    jobs = [NewJob(id=new_id(), queue="decode", label=f"part {n}", flow=flow.id) for n in range(2)]
    join = NewJob(id=new_id(), queue="join", label="all parts", flow=flow.id, after=tuple(job.id for job in jobs))
    hand.internal.begin_flow(flow, [*jobs, join])
    return flow.id, [job.id for job in (*jobs, join)]


def end(hand: Chargehand, outcome: Outcome | None, queue: str = "decode") -> str:
    """Ends the next job of the queue so; None: it goes on running."""
    with hand.transaction() as tx:
        (grant,) = tx.jobs.claim([Want(queue, queue, 1)], ME)
        if outcome is not None:
            settlement = settle(grant.claims[0], outcome)
            assert settlement is not None
            tx.jobs.settle([settlement], ME)
    return grant.claims[0].id


def run(hand: Chargehand, *words: str) -> Result:
    return CliRunner(env={"COLUMNS": "300"}).invoke(app, [*words, "--store", str(hand.path)])


def told(hand: Chargehand, *words: str) -> Any:
    done = run(hand, *words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_flows_are_listed(hand: Chargehand) -> None:
    first, _ = begin(hand, "first.mp4")
    second, _ = begin(hand, "second.mp4")
    end(hand, Done())
    run(hand, "flows", "cancel", second)
    lines = [line.split() for line in run(hand, "flows").stdout.splitlines()]
    assert lines[0] == ["ID", "STATE", "JOBS", "DONE", "RUNNING", "WAITING", "FAILED", "CREATED", "TOOK", "NAME"]
    assert [(line[0], line[1], line[2], line[3], line[-1]) for line in lines[1:]] == [
        (second, "cancelled", "3", "0", "second.mp4"),
        (first, "running", "3", "1", "first.mp4"),
    ]
    assert [flow["id"] for flow in told(hand, "flows", "--state", "running")] == [first]
    assert [flow["id"] for flow in told(hand, "flows", "--text", "SECOND")] == [second]
    assert [flow["id"] for flow in told(hand, "flows", "--before", second)] == [first]
    assert run(hand, "flows", "--before", "nobody").exit_code == 1


def test_a_flow_is_shown_by_stage_with_what_runs_and_what_it_waits_for(hand: Chargehand) -> None:
    flow, (first, second, join) = begin(hand)
    shown = run(hand, "flows", "show", flow).stdout
    assert "3: 3 queued (1 wait for other jobs)" in shown
    assert f"waits for      job {second} of queue decode, which is queued: no node runs" in shown
    end(hand, None)
    shown = run(hand, "flows", "show", flow).stdout
    assert "waits for  " not in shown, "one of its jobs runs"
    stages = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.startswith(("decode", "join"))}
    assert stages["decode"][:3] == ["1", "1", "0"]
    assert stages["join"][:4] == ["1", "(1", "for", "other"]
    (running,) = told(hand, "flows", "show", flow)["running"]
    assert running["id"] in (first, second)
    assert [stage["queue"] for stage in told(hand, "flows", "show", flow)["stages"]] == ["decode", "join"]
    assert "there is no flow" in str(run(hand, "flows", "show", "nobody").exception)
    assert told(hand, "jobs", "show", join)["related"] == {"predecessors": 2, "followers": 0, "children": 0}


def test_what_failed_is_shown_and_retried_as_one(hand: Chargehand) -> None:
    flow, (_, _, join) = begin(hand)
    bad = end(hand, GaveUp("the file is broken"))
    end(hand, Done())
    shown = run(hand, "flows", "show", flow).stdout
    assert ("failed" in shown, "the file is broken" in shown, bad in shown, join in shown) == (True,) * 4
    assert "ended before" not in shown
    done = run(hand, "flows", "retry", flow)
    assert "ended before   once" in run(hand, "flows", "show", flow).stdout
    assert (done.exit_code, done.stdout) == (0, f"{flow}: 2 jobs are queued again\n")
    again = run(hand, "flows", "retry", flow)
    assert (again.exit_code, "no failed or cancelled job" in again.stdout) == (1, True)


def test_a_flow_is_cancelled_and_deleted(hand: Chargehand) -> None:  # spec: SE-5
    flow, _ = begin(hand)
    assert run(hand, "flows", "delete", flow).exit_code == 1, "it has not ended"
    assert told(hand, "flows", "cancel", flow) == {"id": flow, "text": "3 jobs are cancelled", "code": "cancelled"}
    again = run(hand, "flows", "cancel", flow)
    assert (again.exit_code, again.stdout) == (1, f"{flow}: has ended already: it is cancelled\n")
    assert told(hand, "flows", "delete", flow)["code"] == "deleted"
    assert told(hand, "flows") == []
    assert [entry.verb for entry in hand.operations() if entry.target == f"flow:{flow}"] == ["delete", "cancel"]


def test_jobs_name_what_they_wait_for(hand: Chargehand) -> None:
    flow, (first, second, join) = begin(hand)
    shown = run(hand, "jobs", "show", join).stdout
    assert f"waits for      2 jobs: {first} (part 0, queued), {second} (part 1, queued)" in shown
    assert f"followers      1 job: {join} (all parts, queued)" in run(hand, "jobs", "show", first).stdout
    end(hand, Done())
    shown = run(hand, "jobs", "show", join).stdout
    assert "waits for      1 job: " in shown
    assert "predecessors   1 job: " in shown
    assert [job["id"] for job in told(hand, "jobs", "list", "--flow", flow)] == [join, second, first]
    hint = run(hand, "jobs", "list", "--flow", "nobody")
    assert "hint: there is no flow 'nobody'" in hint.stderr


def test_the_status_says_how_many_wait_for_others(hand: Chargehand) -> None:
    begin(hand)
    assert "queue join: 1 waits for other jobs" in run(hand, "status").stdout


def test_children_are_named(hand: Chargehand) -> None:  # spec: FL-3
    _, (first, *_) = begin(hand)
    parent = end(hand, Done(follow=(NewJob(id="c1", queue="decode", label="scene 1", child=True),)))
    assert "children       1 job: c1 (scene 1, queued)" in run(hand, "jobs", "show", parent).stdout
    assert f"parent         {parent}" in run(hand, "jobs", "show", "c1").stdout
    assert first == parent


def test_options_of_a_job_that_waits(hand: Chargehand) -> None:  # spec: FL-6 WK-16 WK-17
    flow, (first, second, _) = begin(hand)
    made = told(
        hand, "jobs", "enqueue", "join", "--after", first, "--after", second, "--if-failed", "run", "--flow", flow,
        "--share", "customer-7", "--sequence", "album-7", "--expires", "1h",
    )  # fmt: skip
    job = told(hand, "jobs", "show", made["id"])
    assert (job["flow"], job["share"], job["sequence"]) == (flow, "customer-7", "album-7")
    assert [each["id"] for each in job["predecessors"]] == [first, second]
    assert job["expires_at_ms"] - job["created_ms"] == 3_600_000
    for option, value in (("--after", "nobody"), ("--flow", "nobody")):
        assert run(hand, "jobs", "enqueue", "join", option, value).exit_code == 1
    assert run(hand, "jobs", "enqueue", "join", "--expires", "soon").exit_code == 2
    timed = run(hand, "jobs", "enqueue", "join", "--after", "90s")
    assert timed.exit_code == 2
    assert "names no job; to wait for a time use --delay 90" in " ".join(timed.output.replace("│", "").split())
    short = told(hand, "jobs", "enqueue", "join", "--after", first[-8:], "--flow", flow[-8:])
    assert told(hand, "jobs", "show", short["id"])["predecessors"][0]["id"] == first
    assert told(hand, "jobs", "show", short["id"])["flow"] == flow
    assert "replace needs a key" in str(run(hand, "jobs", "enqueue", "join", "--replace").exception)


def test_a_payload_is_replaced_or_not_created_for_a_period(hand: Chargehand) -> None:  # spec: FL-6
    words = ("jobs", "enqueue", "decode", "1", "--key", "hourly")
    first = told(hand, *words, "--unique-for", "10m")
    end(hand, Done())
    assert told(hand, *words, "--unique-for", "10m") == {"id": first["id"], "created": False, "replaced": False}
    waits = told(hand, "jobs", "enqueue", "decode", "1", "--key", "k", "--replace")
    done = run(hand, "jobs", "enqueue", "decode", "2", "--key", "k", "--replace")
    assert done.stdout == f"{waits['id']} (not created: its payload was replaced)\n"
    assert told(hand, "jobs", "show", waits["id"])["payload"] == 2
