"""Hints about wrong names in filters, the signals in crash reports, and `wake` without a node."""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from chargehand import Chargehand, UnknownCrew
from chargehand.cli import crashes
from chargehand.cli.main import app
from chargehand.model.records import CrewRow, Holder
from chargehand.web.examples import CRASH

# spec: CL-2 CL-6


@pytest.fixture
def hand(hand: Chargehand) -> Chargehand:
    hand.crew("mail", "nowhere:A").enqueue({"x": 1})
    row = CrewRow(name="photos", queue="pictures", handler="nowhere:B", workers=1, max_attempts=1, timeout_ms=None)
    with hand.transaction() as tx:
        tx.fleet.register(Holder("node", "life"), [row], {})
    return hand


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


@pytest.mark.parametrize(
    "command",
    [
        ("list",), ("list", "--json"), ("clear", "--dry-run"), ("clear",), ("retry", "--dry-run"), ("retry",),
        ("cancel", "--dry-run"), ("cancel",),
    ],
)  # fmt: skip
def test_a_queue_that_nothing_has(hand: Chargehand, command: tuple[str, ...]) -> None:
    """The hint names the queues of jobs and of crews; the exit status and standard output stay as they are."""
    told = run("jobs", *command, "--queue", "mial")
    assert told.exit_code == 0
    hint = "hint: no crew and no job has the queue 'mial'; there are: mail, pictures; did you mean mail?\n"
    assert told.stderr == hint
    assert "hint" not in told.stdout


@pytest.mark.parametrize("queue", ["mail", "pictures"])
def test_a_queue_of_a_job_or_of_a_crew_needs_no_hint(hand: Chargehand, queue: str) -> None:
    assert run("jobs", "list", "--queue", queue, "--state", "failed").stderr == ""
    assert run("jobs", "clear", "--queue", queue, "--dry-run").stderr == ""


def test_control_characters_of_a_wrong_queue_are_escaped(hand: Chargehand) -> None:
    assert "\x1b" not in run("jobs", "list", "--queue", "a\x1b[2J").stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--crew", "foto"), "there is no crew 'foto'; there are: photos"),
        (("--worker", "photo:0"), "there is no crew 'photo'; there are: photos; did you mean photos?"),
        (("--worker", "worker:photo:0"), "there is no crew 'photo'; there are: photos; did you mean photos?"),
        (("--job", "nope"), "there is no job 'nope'"),
    ],
)
def test_crash_reports_of_what_does_not_exist(hand: Chargehand, words: tuple[str, ...], hint: str) -> None:
    told = run("crashes", *words)
    assert told.exit_code == 0
    assert told.stderr.startswith(f"hint: {hint}")
    assert told.stdout == "no crash reports\n"


def test_crash_reports_that_a_crew_does_not_have_need_no_hint(hand: Chargehand) -> None:
    assert run("crashes", "--crew", "photos").stderr == run("crashes", "--worker", "photos:0").stderr == ""


@pytest.mark.parametrize(("signal", "words"), [(9, "killed (SIGKILL)"), (11, "segfault (SIGSEGV)"), (60, "signal 60")])
def test_crash_reports_name_signals(capsys: pytest.CaptureFixture[str], signal: int, words: str) -> None:
    died = {"reason": "crash", "signal": signal, "stacks": "", "cause": ""}
    crashes.reports([msgspec.structs.replace(CRASH, **died)])
    assert words in capsys.readouterr().out


def test_wake_without_a_node(hand: Chargehand) -> None:  # spec: WK-10
    """The crews of the application and those of the store are accepted, as `pause` does."""
    hand.wake("mail")
    hand.wake("photos")
    with pytest.raises(UnknownCrew, match="there is no crew or worker 'x'; there are: mail, photos"):
        hand.wake("x")


def test_wake_without_a_store_creates_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHARGEHAND_URL", raising=False)
    hand = Chargehand(folder=tmp_path)
    hand.wake("x")
    hand.crew("mail", "nowhere:A")
    with pytest.raises(UnknownCrew, match="there is no crew or worker 'x'; there are: mail"):
        hand.wake("x")
    assert list(tmp_path.iterdir()) == []
