"""Groups of failures, and the filters that select them."""

import re
import time

import pytest

from chargehand.errors import STACKS_FOLLOW
from chargehand.model.failures import grouped
from chargehand.model.job_query import line_pattern, parse
from chargehand.model.records import FailedJob, JobFilter


def traceback(line: str) -> str:
    return f'Traceback (most recent call last):\n  File "/app/tag.py", line 7, in perform\n    run()\n{line}\n'


def failed(*errors: str) -> list[FailedJob]:
    return [
        FailedJob(id=f"j{nr}", seq=nr, queue="q", reason="raised", error=error, finished_ms=1)
        for nr, error in enumerate(errors)
    ]


@pytest.mark.parametrize(
    ("line", "one", "other"),
    [
        ("AssertionError", "AssertionError", "AssertionError: 1"),
        ("ValueError: song *", "ValueError: song 7", "ValueError: song seven"),
        ("ValueError: song *", "ValueError: song 7", "ValueError: song 7 of 8"),
        ("ValueError: at * of *", "ValueError: at 7.5 of 1e9f00aa", "ValueError: at 7 of x of 8"),
        ("KeyError: * B", "KeyError: 0x7f12ab B", "KeyError: B B"),
        ("OSError: '*' is gone", "OSError: '/music/a b.flac' is gone", "OSError: 'a.flac' is gone"),
        ("OSError: '*' and '*'", "OSError: '/a' and '/b'", "OSError: '/a' or '/b'"),
        ("E: a (b) [c] {d} ^$.|?+\\ é # &~-", "E: a (b) [c] {d} ^$.|?+\\ é # &~-", "E: a b"),
        ("ValueError: begins…", "ValueError: begins and goes on 7", "ValueError: begin"),
    ],
)
def test_a_line_of_an_error(line: str, one: str, other: str) -> None:
    found = re.compile(line_pattern(line))
    assert found.search(one)
    assert found.search(traceback(one))
    assert found.search(f"KeyError: 1\n  {one}  \r\nand a note")
    assert not found.search(traceback(other))
    assert not found.search(f"x{one}")


def test_a_group_is_selected_by_its_own_line() -> None:  # spec: DB-3
    lines = [
        "AssertionError", "AssertionError: 1", "ValueError: level 3", "ValueError: level 44", "ValueError: level one",
        f"ValueError: {'x' * 400} 1", "OSError: '/a/b.flac' is gone", "OSError: '/c.flac' is gone",
        "KeyError: '3'", "KeyError: '4'", "KeyError: 'artist'",
    ]  # fmt: skip
    jobs = failed(*map(traceback, lines))
    groups = {group.newest: group for group in grouped(jobs, JobFilter())}
    assert groups["j2"].filter == 'state:failed reason:raised cause:"ValueError: level *"'
    for group in groups.values():
        (match,) = parse(group.filter).matches
        assert match.field == "cause"
        chosen = [job for job in jobs if re.search(line_pattern(match.text), job.error or "")]
        assert (len(chosen), chosen[0].id) == (group.count, group.newest)


def test_other_groups_are_selected_by_parts_of_the_error() -> None:
    stacks = 'Current thread 0x1 (most recent call first):\n  File "/a/d.py", line 3 in decode\n'
    crashed = f"worker w (pid 7) ended by signal 11{STACKS_FOLLOW}{stacks}"
    several = (
        "  + Exception Group Traceback (most recent call last):\n  |   File \"a.py\", line 1, in perform\n"
        "  | ExceptionGroup: 2 failed (2 sub-exceptions)\n  +-+---------------- 1 ----------------\n"
        "    | ValueError: a\n    +---------------- 2 ----------------\n    | KeyError: 'b'\n"
    )  # fmt: skip
    for error in (crashed, several, traceback("ImportError: \n\n  no model")):
        (group,) = grouped(failed(error), JobFilter())
        (match,) = parse(group.filter).matches
        assert match.field == "error", group.filter
    (group,) = grouped(failed("", ""), JobFilter())
    assert parse(group.filter).matches == ()


@pytest.mark.parametrize("between", ["1", ".", "a", "/", "' '", " "])
def test_no_filter_makes_a_search_slow(between: str) -> None:
    text = "E: '" + f"1{between}" * 2000 + "!"
    began = time.process_time()
    assert not re.search(line_pattern(f"E: '{between.join('*' * 300)}"), text)
    assert time.process_time() - began < 1.0
