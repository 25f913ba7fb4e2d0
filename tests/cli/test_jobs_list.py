"""`chargehand jobs list` says why a job failed, not only how."""

import pytest
from typer.testing import CliRunner

from chargehand import Chargehand
from chargehand.cli.main import app
from chargehand.model.batch import Want
from chargehand.model.job import Crashed, GaveUp, Outcome, Raised, settle
from chargehand.model.records import Holder

TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 3, in perform\nValueError: the stream ends early\n'
ME = Holder("node", "life")


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (Raised(TRACEBACK), "ValueError: the stream ends early"),
        (GaveUp(TRACEBACK), "gave up: ValueError: the stream ends early"),
        (Crashed("worker:a:0 ended by signal 11"), "worker:a:0 ended by signal 11"),  # and is tried again
    ],
)
def test_the_cause_stands_in_the_list(hand: Chargehand, outcome: Outcome, told: str) -> None:  # spec: CL-3
    hand.crew("a", "nowhere:A", max_attempts=1).enqueue({}, label="song")
    with hand.transaction() as tx:
        (grant,) = tx.jobs.claim([Want("a", "a", 1)], ME)
        ended = settle(grant.claims[0], outcome)
        assert ended is not None
        tx.jobs.settle([ended], ME)
    lines = CliRunner().invoke(app, ["jobs", "list", "--store", str(hand.path)]).stdout.splitlines()
    assert lines[1].endswith(f"  {told}")


def test_an_empty_list_says_so(hand: Chargehand) -> None:  # spec: CL-3
    def told(*words: str) -> str:
        return CliRunner().invoke(app, [*words, "--store", str(hand.path)]).stdout

    assert told("jobs", "list") == "no jobs\n"
    assert told("jobs", "list", "--groups") == "no failed jobs\n"
    assert told("status").splitlines()[-1] == "no jobs"
    assert told("jobs", "list", "--json") == "[]\n"
