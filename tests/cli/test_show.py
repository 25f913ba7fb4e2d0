"""Texts of any characters on any terminal."""

import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import pytest

from chargehand.cli import show
from chargehand.codec import escape

NAME = "caf\udce9 ü \U0001f3b5.mp3"
encodings = pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])


def written(encoding: str, write: Callable[[], None]) -> str:
    """What is printed on a terminal with this encoding, which is prepared as by `streams.prepare`."""
    data = io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(data, encoding, "backslashreplace", write_through=True)):
        write()
        return data.getvalue().decode(encoding)


@encodings
@pytest.mark.parametrize("write", [show.json, show.json_line])
def test_json_is_valid_in_every_encoding(encoding: str, write: Callable[[Any], None]) -> None:  # spec: CL-4
    assert json.loads(written(encoding, lambda: write({"item": escape(NAME)}))) == {"item": escape(NAME)}


HOSTILE = {
    "C1": "a\x9b31mb\x85c", "escape": "\x1b]0;x\x07", "bidi": "a\u202eb\u2066c\u2069", "delete": "\x7f",
    "zero width": "\u200b\ufeff",
    "line ends": "a\u2028b\u2029c\r\n", "tags": "\U000e0041",
}  # fmt: skip


def is_harmless(text: str) -> bool:
    """Whether a terminal only shows it."""
    return all(line.isprintable() for line in text.split("\n"))


@encodings
@pytest.mark.parametrize("kind", HOSTILE)
def test_no_text_controls_the_terminal(encoding: str, kind: str) -> None:  # spec: SE-4
    text = HOSTILE[kind]
    for write in (show.json, show.json_line):
        printed = written(encoding, partial(write, {text: [text]}))
        assert is_harmless(printed)
        assert json.loads(printed) == {text: [text]}
    assert is_harmless(written(encoding, lambda: show.line(f"store {text}")))
    assert is_harmless(written(encoding, lambda: show.table(("LABEL",), [(text,)])))


def test_a_traceback_does_not_control_the_terminal() -> None:  # spec: SE-4
    try:
        raise ValueError(HOSTILE["C1"])
    except ValueError:
        printed = show.trace()
    assert is_harmless(printed)
    assert printed.endswith("ValueError: a\\x9b31mb\\x85c\n")


@encodings
@pytest.mark.parametrize("name", [NAME, escape(NAME)], ids=["as the application has it", "as a store has it"])
def test_a_table_shows_the_bytes_of_a_name(encoding: str, name: str) -> None:  # spec: CL-4
    assert "caf\\xe9 " in written(encoding, lambda: show.table(("LABEL",), [(name,)]))


# spec: CL-3 MN-1
def test_crews_that_a_node_does_not_run_are_left_out() -> None:
    assert (
        show.staff([("encode", 2, 2), ("tag", 0, 0), ("scan", 0, 1), ("old", 1, 0)]) == "encode 2/2, scan 0/1, old 1/0"
    )
    assert show.staff([("tag", 0, 0)]) == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_findings_are_wrapped_between_words_on_a_terminal_alone(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # spec: CL-3
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "60")
    text = "crew tag is given up because its model is missing → run `chargehand reset tag` when it is there"
    show.paragraph("error:", text, indent=9)
    lines = capsys.readouterr().out.splitlines()
    assert "".join(line[9:] + " " for line in lines).strip() == text
    assert lines[0].startswith("error:   crew tag")
    assert len(lines) == (2 if terminal else 1)
    assert all(len(line) <= 60 for line in lines) == terminal
