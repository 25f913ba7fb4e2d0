"""Tests for the last lines of a node's log, as nodes elsewhere and their callers ask for them."""

import logging

from chargehand.node.log_buffer import FIELDS, KEPT, LogBuffer

PLENTY = 1 << 20


def add(buffer: LogBuffer, *texts: str, **facts: str) -> None:
    for text in texts:
        record = logging.LogRecord("chargehand", logging.INFO, "", 0, text, None, None)
        record.facts = facts
        buffer.emit(record)


def tail(
    buffer: LogBuffer, after: int | None = None, *, count: int = 100, most: int = PLENTY, scope: str | None = None
) -> tuple[list[str], int]:
    entries, last = buffer.tail(scope, None, count, after, most)
    return [entry.text for entry in entries], last


# spec: MN-1
def test_who_names_the_last_line_gets_those_that_follow() -> None:
    buffer = LogBuffer()
    assert tail(buffer) == ([], 0)
    add(buffer, "1", "2", "3")
    assert tail(buffer) == (["1", "2", "3"], 3)
    assert tail(buffer, count=2) == (["2", "3"], 3)
    assert tail(buffer, count=0) == ([], 3)
    assert tail(buffer, 2) == (["3"], 3)
    assert tail(buffer, 3) == ([], 3)
    assert tail(buffer, 7) == (["1", "2", "3"], 3), "the number is of an earlier life of the node"
    add(buffer, *("x" * (KEPT + 5)))
    assert (len(tail(buffer, 3, count=KEPT * 2)[0]), tail(buffer, 3)[1]) == (KEPT, KEPT + 8), "older ones are dropped"


# spec: MN-1
def test_lines_are_chosen_by_worker_and_limited_in_size() -> None:
    buffer = LogBuffer()
    add(buffer, "a" * 50, component="worker:tag:0")
    add(buffer, "b" * 50, component="worker:tag:1")
    add(buffer, "of the node")
    assert tail(buffer, scope="tag") == (["a" * 50, "b" * 50], 3)
    assert tail(buffer, scope="tag:1") == (["b" * 50], 3)
    assert tail(buffer, scope="tag", most=2 * (50 + FIELDS) - 1) == (["b" * 50], 3), "the newest"
