"""`chargehand migrate --from … --to …`. What moves is tested with the stores."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from chargehand import Chargehand
from chargehand.cli import migrate
from chargehand.cli.main import app
from chargehand.errors import ChargehandError
from chargehand.host import nodelock
from chargehand.model.job import NewJob


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["migrate", *words])


def status(told: Result) -> int:
    """Returns the exit status that the command line makes of an exception."""
    assert isinstance(told.exception, ChargehandError), told.output
    return told.exception.exit_code


@pytest.fixture
def ways(hand: Chargehand, tmp_path: Path) -> tuple[str, ...]:
    with hand.transaction() as tx:
        tx.jobs.enqueue([NewJob(id=f"j{number}", queue="q") for number in range(3)])
    return "--from", f"sqlite:///{hand.path}", "--to", str(tmp_path / "new.db")


def test_a_store_is_moved_with_progress_and_the_counts_are_shown(  # spec: ST-5 CL-6
    ways: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "REPORT_EVERY", 0.0)
    told = run(*ways)
    assert told.exit_code == 0, told.output
    assert "move: 3 of 3 `job`" in told.stderr
    assert "compare: 6 of 6 `job`" in told.stderr
    assert told.stdout.startswith("moved 3 of `job` from ")
    again = run(*ways)
    assert "is a copy of" in again.stdout
    result = json.loads(run(*ways, "--json").stdout)
    assert (result["before"], result["rows"]["job"], result["queued_again"]) == (True, 3, 0)


def test_a_store_in_use_is_refused(ways: tuple[str, ...], hand: Chargehand) -> None:  # spec: ST-5
    lock = nodelock.take(hand.location)
    assert lock is not None
    told = run(*ways)
    nodelock.release(lock)
    assert status(told) == 4
    assert not Path(ways[-1]).exists()


@pytest.mark.parametrize(
    "words", [("--from", "a.db"), ("--to", "a.db"), ("--start-over",), ("--from", "a", "--to", "b", "--store", "c")]
)
def test_incomplete_words_are_refused(hand: Chargehand, words: tuple[str, ...]) -> None:
    assert status(run(*words)) == 2
