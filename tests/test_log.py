"""Log lines, for people and for machines: nothing in them can forge a line or move a terminal."""

import json
import logging
from typing import Any

import pytest

from chargehand import log
from chargehand.errors import ConfigurationError

NASTY = "a\nb\x1b[31mc\x7f\x85\u202e\u2028d\udcff"


def record(message: str = "worker ready", *, trace: BaseException | None = None, **facts: Any) -> logging.LogRecord:
    about = None if trace is None else (type(trace), trace, trace.__traceback__)
    made = logging.LogRecord("chargehand", logging.INFO, "", 0, message, None, about)
    made.created, made.msecs = 1_800_000_000.25, 250.0
    made.facts = facts
    return made


def told(**facts: Any) -> dict[str, Any]:
    line = log.Json("node").format(record(**facts))
    assert line.isprintable(), line
    return json.loads(line)


def test_a_line_for_machines() -> None:  # spec: WP-10 SE-4
    assert told(component="worker:tag:0", job="j-1", pid=7, ready=True, took=0.5, why=None) == {
        "ts": "2027-01-15T08:00:00.250Z", "level": "info", "message": "worker ready", "component": "worker:tag:0",
        "job": "j-1", "pid": 7, "ready": True, "took": 0.5, "why": None,
    }  # fmt: skip
    plain = told()
    assert (plain["component"], plain["job"]) == ("node", None)


def test_no_fact_can_break_the_line_or_hide_another() -> None:  # spec: SE-4
    line = told(text=NASTY, level="fake", ts="fake", number=float("nan"), things=[1, {"a"}], error=ValueError(NASTY))
    assert line["level"] == "info"
    assert (line["level_"], line["ts_"], line["number"]) == ("fake", "fake", "nan")
    assert line["things"] == [1, "{'a'}"]
    assert line["text"] == line["error"] == NASTY.replace("\udcff", "\\xff")


def test_an_exception_is_a_field() -> None:
    try:
        raise ValueError(NASTY)
    except ValueError as error:
        caught = error
    line = told(trace=caught)
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    human = log.Human("node").format(record(trace=caught))
    first, *rest = human.split("\n")
    assert first.endswith("worker ready component=node")
    assert all(each.startswith("    ") and each.isprintable() for each in rest)  # none looks like a line of its own


def test_a_line_for_people() -> None:  # spec: WP-10 SE-4
    line = log.Human("node").format(record(NASTY, component="worker:tag:0", job="j-1", text=NASTY, empty=""))
    assert line.isprintable()
    assert "component=worker:tag:0 job=j-1 text=" in line
    assert line.endswith(' empty=""')
    assert "job=" not in log.Human("node").format(record(job=None))
    assert log.Human("node").format(record(exit_code=None, signal=9)).endswith(" component=node signal=9")
    assert log.Human("node").format(record(pid=7)).endswith(" info    worker ready component=node pid=7")


def test_a_request_is_named_on_every_line_of_it(caplog: pytest.LogCaptureFixture) -> None:
    token = log.request_id.set("r-1")
    try:
        log.warning("a key was refused", scope="read")
    finally:
        log.request_id.reset(token)
    log.warning("a key was refused")
    with_it, without = (log.Json("app").format(each) for each in caplog.records)
    assert json.loads(with_it)["request_id"] == "r-1"
    assert "request_id" not in json.loads(without)


def test_the_form_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:  # spec: CF-1
    monkeypatch.delenv("CHARGEHAND_LOG", raising=False)
    assert log.form() == "human"
    monkeypatch.setenv("CHARGEHAND_LOG", "JSON")
    assert log.form() == "json"
    monkeypatch.setenv("CHARGEHAND_LOG", "xml")
    with pytest.raises(ConfigurationError, match="CHARGEHAND_LOG is 'xml'; must be one of: human, json"):
        log.form()


def test_lines_that_nobody_read_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that is slow: what was dropped is said, in the same form."""
    monkeypatch.setattr(log, "MOST_LINES", 1)
    handler = log._ThreadHandler()
    handler.setFormatter(log.Json("node"))
    handler.finish()  # from here on nobody writes
    for _ in range(3):
        handler.emit(record())
    assert json.loads(str(handler._lines.get_nowait()))["message"] == "worker ready"
    handler.emit(record(number=2))
    first, second = str(handler._lines.get_nowait()).split("\n")
    assert json.loads(first)["number"] == 2
    assert json.loads(second)["count"] == 2
