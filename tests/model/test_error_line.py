"""What an error comes down to: tracebacks that Python wrote, of every kind, and other texts."""

import traceback
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chargehand.errors import STACKS_FOLLOW, JobFailed, summary
from chargehand.model.error_line import LIMIT, ErrorLine, error_line, own_frames
from chargehand.model.fleet.death import crash_line


class Refused(Exception):
    """An exception of an application's package."""

    __module__ = "shop.errors"


def chained() -> None:
    try:
        int("x")
    except ValueError as error:
        raise RuntimeError("a.flac: the stream ends\nexpected 3 s") from error


def in_the_handling() -> None:
    try:
        int("x")
    except ValueError:
        {}["k"]  # type: ignore[call-overload]


def group() -> None:
    raise ExceptionGroup("two scenes", [ExceptionGroup("one", [OSError(2, "No such file", "/m")]), ValueError("v")])


def flat_group() -> None:
    raise ExceptionGroup("two scenes", [ValueError("v"), KeyError("k")])


def in_the_handling_of_another() -> None:
    try:
        int("x")
    except ValueError:
        flat_group()


def cause_is_a_group() -> None:
    try:
        group()
    except ExceptionGroup as error:
        raise RuntimeError("all scenes failed") from error


def syntax() -> None:
    compile("def f(:\n pass", "/srv/app/tagger.py", "exec")


def noted() -> None:
    error = FileNotFoundError(2, "No such file or directory", "/models/clip.onnx")
    error.add_note("set MODEL_DIR")
    raise error


def begins_with_a_new_line() -> None:
    raise ValueError("\n  title: missing")


def without_message() -> None:
    raise AssertionError


def of_a_package() -> None:
    raise Refused("code 7: no")


def long() -> None:
    raise RuntimeError("x" * 5000)


def traced(work: Callable[[], Any]) -> str:
    try:
        work()
    except Exception as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError


@pytest.mark.parametrize(
    ("work", "line", "code"),
    [
        (chained, "RuntimeError: a.flac: the stream ends", "RuntimeError"),
        (in_the_handling, "KeyError: 'k'", "KeyError"),
        (group, "ExceptionGroup: two scenes (2 sub-exceptions), first FileNotFoundError: [Errno 2] No such file: '/m'",
         "ExceptionGroup"),
        (cause_is_a_group, "RuntimeError: all scenes failed", "RuntimeError"),
        (syntax, "SyntaxError: invalid syntax", "SyntaxError"),
        (noted, "FileNotFoundError: [Errno 2] No such file or directory: '/models/clip.onnx'", "FileNotFoundError"),
        (begins_with_a_new_line, "ValueError: title: missing", "ValueError"),
        (without_message, "AssertionError", "AssertionError"),
        (of_a_package, "shop.errors.Refused: code 7: no", "Refused"),
    ],
)  # fmt: skip
def test_a_traceback_comes_down_to_the_line_of_its_exception(work: Callable[[], Any], line: str, code: str) -> None:
    text = traced(work)
    assert error_line(text) == ErrorLine(line, code)
    assert error_line(f"set-up failed (exit code 5): {text}") == ErrorLine(line, code)
    cut = text[text.rindex('  File "') :]  # of a long one only the end is kept
    if work not in (group, cause_is_a_group):
        assert error_line(cut) == ErrorLine(line, code)


def test_the_summary_of_a_group_is_its_own_line_and_its_first_member() -> None:
    assert summary(traced(flat_group)) == "ExceptionGroup: two scenes (2 sub-exceptions), first ValueError: v"
    assert summary(traced(cause_is_a_group)) == "RuntimeError: all scenes failed"
    text = traced(in_the_handling_of_another)
    assert summary(text) == "ExceptionGroup: two scenes (2 sub-exceptions), first ValueError: v"
    assert str(JobFailed("7", "raised", text)).endswith("first ValueError: v")


def test_a_line_is_not_endless() -> None:
    found = error_line(traced(long))
    assert found is not None
    assert len(found.line) == LIMIT


def test_other_texts_are_cut_to_their_first_line() -> None:
    assert error_line(None) is error_line("") is error_line(" \n ") is None
    assert error_line("no model given\nsee the log") == ErrorLine("no model given")
    stacks = 'Current thread 0x1 (most recent call first):\n  File "/x/site-packages/av/codec.py", line 3 in decode\n'
    assert error_line(f"the worker ended by signal 11{STACKS_FOLLOW}{stacks}") == ErrorLine(
        "the worker ended by signal 11 in av"
    )


@pytest.mark.parametrize(
    ("reason", "facts", "expected"),
    [
        ("crash", {"signal": 11, "where": "av", "loading": True},
         ErrorLine("segfault in av while loading (SIGSEGV)", "SIGSEGV")),
        ("crash", {"signal": 60}, ErrorLine("signal 60", None)),
        ("oom", {"signal": 9, "where": "tagger.py, line 5"}, ErrorLine("out of memory in tagger.py, line 5", "OOM")),
        ("exited", {"text": "exited (exit code 3)"}, ErrorLine("exited (exit code 3)")),
        ("set-up failed", {"text": f"set-up failed (exit code 5): {traced(noted)}"},
         ErrorLine("FileNotFoundError: [Errno 2] No such file or directory: '/models/clip.onnx'", "FileNotFoundError")),
        ("hung", {"text": ""}, ErrorLine("hung")),
    ],
)  # fmt: skip
def test_a_crash_comes_down_to_its_signal_and_place_or_to_its_exception(
    reason: str, facts: dict[str, Any], expected: ErrorLine
) -> None:
    assert crash_line(reason, facts.pop("text", ""), **facts) == expected


def test_only_the_frames_of_the_application_are_its_own() -> None:
    text = f"""Traceback (most recent call last):
  File "{error_line.__code__.co_filename.replace("model/error_line", "worker/main")}", line 491, in _attempt
    result = self.call(performer.perform)
             ^^^^^^^^^
  File "/srv/shop/tagger.py", line 53, in perform
    decode(job.payload)
  File "/usr/lib/python3.11/json/decoder.py", line 337, in decode
    obj, end = self.raw_decode(s)
  File "<frozen importlib._bootstrap>", line 1, in _find
  File "/venv/lib/python3.11/site-packages/torch/nn.py", line 9, in forward
  File "/srv/shop/model.py", line 2, in <lambda>
ValueError: x
"""
    assert own_frames(text) == (
        "/srv/shop/tagger.py:53 in perform\n    decode(job.payload)", "/srv/shop/model.py:2 in <lambda>",
    )  # fmt: skip
    stacks = 'Current thread 0x1 (most recent call first):\n  File "/srv/shop/tagger.py", line 5 in perform\n'
    assert own_frames(stacks) == ("/srv/shop/tagger.py:5 in perform",)
    assert own_frames(None) == ()


def test_the_line_is_made_once_and_survives_the_way_over_http() -> None:
    from chargehand.web.examples import CRASH

    again = msgspec.json.decode(msgspec.json.encode(CRASH), type=type(CRASH))
    assert again == CRASH
    assert CRASH.cause
