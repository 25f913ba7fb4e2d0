"""`chargehand jobs delete` and `chargehand jobs clear`, and what they call."""

import json

import pytest
from typer.testing import CliRunner, Result

from chargehand import Chargehand, ConfigurationError, JobFilter
from chargehand.cli.main import app
from chargehand.host import operations
from chargehand.model.batch import Want
from chargehand.model.fleet.orders import AnswerCode
from chargehand.model.job import Done, GaveUp, State, settle
from chargehand.model.records import Holder

# spec: CL-6 HT-3
ME = Holder("node", "life")


@pytest.fixture
def hand(hand: Chargehand) -> Chargehand:
    hand.crew("a", "nowhere:A")
    hand.crew("b", "nowhere:B")
    return hand


def make(hand: Chargehand, state: State, queue: str = "a", count: int = 1, **options: str) -> list[str]:
    """Jobs in this state."""
    refs = [hand.find_crew(queue).enqueue({"x": 1}, tags=list(options.values())) for _ in range(count)]
    ids = [ref.id for ref in refs]
    if state is State.CANCELLED:
        hand.cancel(*ids)
    elif state is not State.QUEUED:
        with hand.transaction() as tx:
            (grant,) = tx.jobs.claim([Want(queue, queue, count)], ME)
            outcome = Done() if state is State.DONE else GaveUp("why")
            ended = [settle(claim, outcome) for claim in grant.claims] if state is not State.RUNNING else []
            tx.jobs.settle([each for each in ended if each is not None], ME)
    return ids


def left(hand: Chargehand) -> set[str]:
    return {job.id for job in hand.jobs(JobFilter(limit=10_000))}


def run(hand: Chargehand, *words: str) -> Result:
    return CliRunner().invoke(app, ["jobs", *words, "--store", str(hand.path)])


def test_only_finished_jobs_are_deleted_and_the_others_are_named(hand: Chargehand) -> None:
    (done,), (failed,) = make(hand, State.DONE), make(hand, State.FAILED)
    (running,), (queued,) = make(hand, State.RUNNING), make(hand, State.QUEUED)
    told = run(hand, "delete", done, failed, queued, running, "nothing")
    assert told.exit_code == 1
    lines = dict(line.split(": ", 1) for line in told.stdout.splitlines() if ": " in line)
    assert lines[done] == lines[failed] == "is deleted"
    assert lines[queued] == "is queued and was not deleted: cancel it first"
    assert lines[running] == "is running and was not deleted: cancel it first"
    assert lines["nothing"] == "does not exist"
    assert left(hand) == {queued, running}
    assert {entry.target for entry in hand.operations() if entry.verb == "delete"} == {f"job:{done}", f"job:{failed}"}


def test_an_alias_deletes_the_job_that_it_means(hand: Chargehand) -> None:
    (done,) = make(hand, State.DONE)
    with hand.transaction() as tx:
        tx.execute(
            "INSERT INTO chargehand_alias (id, job) SELECT 'alias', seq FROM chargehand_job WHERE id = ?", (done,)
        )
    (answer,) = hand.delete("alias")
    assert (answer.component, answer.code) == (done, AnswerCode.DELETED)
    assert left(hand) == set()


def test_a_dry_run_deletes_nothing(hand: Chargehand) -> None:
    (done,), (queued,) = make(hand, State.DONE), make(hand, State.QUEUED)
    told = run(hand, "delete", done, queued, "--dry-run", "--json")
    assert [(job["id"], job["text"]) for job in json.loads(told.stdout)["jobs"]] == [
        (done, "would be deleted"),
        (queued, "is queued: would stay unchanged"),
    ]
    told = run(hand, "clear", "--all", "--dry-run")
    assert "1 job in total; nothing was changed" in told.stdout
    assert left(hand) == {done, queued}
    assert [entry for entry in hand.operations() if entry.verb in ("delete", "clear")] == []


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        (["--all"], {"done", "failed", "cancelled", "other", "tagged"}),
        (["--queue", "a"], {"done", "failed", "cancelled", "tagged"}),
        (["--queue", "b", "--state", "failed"], set[str]()),
        (["--state", "failed"], {"failed"}),
        (["--tag", "t"], {"tagged"}),
        (["--reason", "gave up"], {"failed"}),
        (["--older-than", "1h"], set[str]()),
        (["--older-than", "1h", "--all"], set[str]()),
    ],
)
def test_filters_select_what_is_cleared(hand: Chargehand, words: list[str], gone: set[str]) -> None:
    ids = {state.value: make(hand, state)[0] for state in (State.DONE, State.FAILED, State.CANCELLED, State.RUNNING)}
    ids |= {"other": make(hand, State.DONE, "b")[0], "tagged": make(hand, State.DONE, tag="t")[0]}
    ids |= {"queued": make(hand, State.QUEUED)[0]}
    told = run(hand, "clear", "--json", *words)
    assert (told.exit_code, json.loads(told.stdout)) == (0, {"count": len(gone)})
    assert left(hand) == {job_id for name, job_id in ids.items() if name not in gone}


def test_what_cannot_be_cleared_is_said(hand: Chargehand) -> None:
    make(hand, State.DONE)
    for words, text in (
        ([], "no jobs are selected"),
        (["--state", "running"], "cannot delete jobs that are running; allowed are done, failed and cancelled jobs"),
    ):
        told = run(hand, "clear", *words)
        assert isinstance(told.exception, ConfigurationError)
        assert text in str(told.exception)
    with pytest.raises(ConfigurationError, match="cancel them first"):
        hand.clear(JobFilter(state=State.QUEUED))
    assert len(left(hand)) == 1


def test_a_deletion_of_nothing_says_what_to_give(hand: Chargehand) -> None:  # spec: CL-3
    told = run(hand, "delete")
    assert isinstance(told.exception, ConfigurationError)
    assert "--queue" not in str(told.exception)  # an option of `jobs clear` alone
    asked = run(hand, "delete", "--queue", "a")
    assert asked.exit_code == 2
    assert "jobs clear" in " ".join(asked.output.split())
    nothing = run(hand, "delete", "queue:a")
    assert (nothing.exit_code, nothing.stdout) == (0, "no job matches: there is nothing to delete\n")


def test_a_terminal_is_asked_about_many(hand: Chargehand, monkeypatch: pytest.MonkeyPatch) -> None:
    make(hand, State.DONE, count=21)
    monkeypatch.setattr("chargehand.cli.ask.interactive", lambda: True)
    told = CliRunner().invoke(app, ["jobs", "clear", "--all", "--store", str(hand.path)], input="n\n")
    assert told.exit_code == 1
    assert len(left(hand)) == 21
    assert run(hand, "clear", "--all", "--yes").exit_code == 0
    assert left(hand) == set()


def test_a_transaction_deletes_few_jobs_and_few_bytes(hand: Chargehand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "AT_ONCE", 3)
    ids = make(hand, State.DONE, count=7)
    assert hand.clear(JobFilter(), most=5) == (5, True)
    assert left(hand) == set(ids[:2])  # the newest are deleted first
    assert hand.clear(JobFilter()) == (2, False)
    clears = [(entry.target, entry.detail) for entry in hand.operations() if entry.verb == "clear"]
    assert clears == [("jobs", "2 done jobs"), ("jobs", "2 done jobs"), ("jobs", "3 done jobs")]
    monkeypatch.setattr(operations, "BYTES_AT_ONCE", 25)  # each has 7 + 4 bytes
    make(hand, State.DONE, count=3)
    assert hand.clear(JobFilter(queue="a")) == (3, False)
    clears = [(entry.target, entry.detail) for entry in hand.operations() if entry.verb == "clear"][:2]
    assert clears == [("queue:a", "1 done jobs"), ("queue:a", "2 done jobs")]
