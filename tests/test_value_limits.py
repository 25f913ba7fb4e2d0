"""Depth and digits are limited on every way by which a value of the application comes in, on every Python alike."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from chargehand import Chargehand, Handler, Item, Job, PayloadError
from chargehand.cli.main import app
from chargehand.codec import DEPTH_LIMIT, DIGITS_LIMIT
from chargehand.model.job import NewJob, check
from chargehand.protocol.worker import OutcomeFrame, outcome_of, outcomes
from chargehand.testing import perform
from chargehand.worker.perform import done_frame, item_of, number


class Returns(Handler[Any, Any]):
    def perform(self, job: Job[Any]) -> Any:
        return VALUES[job.payload]


class Follows(Handler[Any, Any]):
    def perform(self, job: Job[Any]) -> None:
        job.enqueue("index", VALUES[job.payload])


class Settles(Handler[Any, Any]):
    def perform(self, job: Job[Any]) -> None:
        with job.settle(VALUES[job.payload]):
            pass


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


VALUES = {
    "deep": nested(DEPTH_LIMIT + 1),
    "very deep": nested(5_000),
    "long": [10**DIGITS_LIMIT],
    "very long": {"a": [1, -(10**5_000)]},
    "infinite": [1e400],
}
WORDS = {
    "deep": "is nested more than 100 levels deep",
    "very deep": "is nested more than 100 levels deep",
    "long": "has a number of more than 640 digits",
    "very long": "has a number of more than 640 digits",
    "infinite": "is inf: pass None for a number that is not finite",
}
TEXTS = {
    "deep": "[" * 101 + "]" * 101,
    "very deep": '{"a":' * 5_000 + "1" + "}" * 5_000,
    "long": f"[{10**DIGITS_LIMIT}]",
    "very long": "9" * 5_000,
    "infinite": "1e400",
}


def with_crew(folder: Path, use: Callable[[Chargehand, Any], object]) -> None:
    hand = Chargehand(folder / "chargehand.db")
    try:
        use(hand, hand.crew("do", "no_such_module:Handler"))
    finally:
        hand.close()


def in_a_transaction(hand: Chargehand, crew: Any, value: Any) -> None:
    with hand.transaction() as tx:
        crew.enqueue(value, within=tx)


WAYS: dict[str, Callable[[Path, str], object]] = {
    "enqueue": lambda at, name: with_crew(at, lambda _, crew: crew.enqueue(VALUES[name])),
    "enqueue_many": lambda at, name: with_crew(at, lambda _, crew: crew.enqueue_many([1, VALUES[name]])),
    "a transaction": lambda at, name: with_crew(at, lambda hand, crew: in_a_transaction(hand, crew, VALUES[name])),
    "recurring": lambda at, name: with_crew(at, lambda hand, crew: hand.recurring("x", crew, VALUES[name], every=60)),
    "a result": lambda at, name: perform(Returns, name),
    "a follow-up": lambda at, name: perform(Follows, name),
    "settle": lambda at, name: with_crew(at, lambda hand, _: perform(Settles, name, hand=hand)),
    "discover": lambda at, name: item_of(Item("a", VALUES[name])),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("way", WAYS)
def test_a_value_beyond_the_limits_is_refused_in_words(tmp_path: Path, way: str, name: str) -> None:  # spec: SE-3 WK-1
    with pytest.raises(PayloadError, match=WORDS[name]):
        WAYS[way](tmp_path, name)


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "infinite"])
def test_the_node_refuses_a_payload_that_a_caller_did_not_check(name: str) -> None:  # spec: SE-3
    with pytest.raises(PayloadError, match=f"the payload {WORDS[name]}"):
        check(NewJob(id="a", queue="q", payload=TEXTS[name]))


def test_the_node_refuses_a_result_that_its_worker_did_not_check() -> None:  # spec: SE-3
    frame = done_frame({"id": "a", "fence": 1}, nested(DEPTH_LIMIT), [], None)
    body: OutcomeFrame = outcomes.decode(frame[5:])
    outcome_of("DONE", body)
    deeper: OutcomeFrame = outcomes.decode(frame[5:].replace(b"[]", b"[[]]"))
    with pytest.raises(PayloadError, match="the result is nested more than"):
        outcome_of("DONE", deeper)


@pytest.mark.parametrize("name", TEXTS)
def test_the_command_line_refuses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:  # spec: SE-3
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "limited", raising=False)
    store = tmp_path / "chargehand.db"
    (tmp_path / "limited.py").write_text(
        f"import chargehand\nhand = chargehand.Chargehand({str(store)!r})\nhand.crew('do', 'x:X')"
    )
    for words in (["jobs", "enqueue", "do", "-", "--app", "limited:hand"], ["run", "limited:hand", "do", "-"]):
        told = CliRunner().invoke(app, words, input=TEXTS[name])
        assert isinstance(told.exception, PayloadError), told.output
        assert WORDS[name] in str(told.exception)


@pytest.mark.parametrize("text", ["10**400", "-(10**5_000)", "float('inf')", "float('nan')"])
def test_progress_that_is_no_float_is_refused_in_words(text: str) -> None:  # spec: SE-3
    value = eval(text)  # a number that is too long to be part of the name of a test
    with pytest.raises(ValueError, match=r"progress: done is .+; expected a finite number"):
        number("done", value)


def test_the_limits_apply_however_deep_the_caller_is(tmp_path: Path) -> None:  # spec: SE-3
    """A caller near the interpreter's own limit receives no other error."""

    def call(deeper: int) -> None:
        if deeper:
            call(deeper - 1)
        else:
            WAYS["enqueue"](tmp_path, "very deep")

    with pytest.raises(PayloadError, match=WORDS["deep"]):
        call(sys.getrecursionlimit() // 2)
