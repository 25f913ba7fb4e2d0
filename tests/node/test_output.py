"""What a worker prints is read faster than it can be logged: nobody waits, and what is dropped is counted."""

import logging
import os
import re
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from chargehand import codec
from chargehand.node.loop import Loop
from chargehand.node.output import (
    KEPT,
    LOGGED_AT_ONCE,
    LONGEST_LINE,
    MOST_PARTIAL,
    MOST_WAITING,
    READ_AT_ONCE,
    READ_IN_A_ROW,
    Output,
    OutputLine,
)
from chargehand.worker import logs

SECRET = "5ec2e7"


class Printing:
    """A pipe, its reader, and the turns of the node's loop."""

    def __init__(self) -> None:
        self.loop = Loop()
        self._end, self.writing = os.pipe()
        os.set_blocking(self.writing, False)
        self.logged: list[OutputLine] = []
        self.resting: list[Callable[[], None]] = []
        self.job: str | None = "job"
        self.printed = 0
        self.output = Output(
            self.loop, self._end, SECRET, self.logged.append, lambda: self.job, self.resting.append, self._count
        )

    def _count(self) -> None:
        self.printed += 1

    def turn(self) -> int:
        """One turn of the loop. Returns how many lines it logged."""
        before = len(self.logged)
        self.loop.handle(self.loop.wait(0))
        return len(self.logged) - before

    def rest(self) -> int:
        """What happens after a rest. Returns how many lines that logged."""
        before = len(self.logged)
        due, self.resting[:] = self.resting[:], []
        for then in due:
            then()
        return len(self.logged) - before

    def put(self, data: bytes) -> None:
        """Writes all of it, with as many turns as that takes, and no rest."""
        while data:
            try:
                data = data[os.write(self.writing, data) :]
            except BlockingIOError:
                assert self.turn() <= LOGGED_AT_ONCE + 1

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.logged]


@pytest.fixture
def printing() -> Generator[Printing]:
    made = Printing()
    yield made
    os.close(made.writing)
    made.output.close()
    made.loop.close()


# spec: WP-10
def test_lines_are_logged_in_order_with_the_job_that_ran(printing: Printing) -> None:
    printing.put(b"one\ntw")
    printing.turn()
    printing.job = "next"
    printing.put(b"o\r\n\n\x1e" + SECRET.encode() + b'{"level":"error","text":"three","job":"own"}\n')
    printing.turn()
    assert [(line.level, line.text, line.job) for line in printing.logged] == [
        ("info", "one", "job"),
        ("info", "two", "next"),
        ("error", "three", "own"),
    ]
    assert printing.resting == []


# spec: WP-10
def test_a_line_is_read_before_the_outcome_that_was_sent_after_it(printing: Printing) -> None:
    reading, sending = os.pipe()

    def ended(_: int) -> None:
        os.read(reading, 10)
        printing.job = "next"

    printing.loop.add(reading, ended)
    os.write(sending, b"of an earlier job")
    printing.turn()  # this leaves the pipe of the outcomes in front of the other one, as epoll counts them
    printing.job = "job"
    printing.put(b"hello\n")
    os.write(sending, b"done")
    printing.turn()
    assert [(line.text, line.job) for line in printing.logged] == [("hello", "job")]
    printing.loop.remove(reading)
    os.close(reading)
    os.close(sending)


# spec: WP-10
def test_what_was_printed_can_be_read_before_the_loop_comes_to_it(printing: Printing) -> None:
    printing.put(b"hello\n")
    printing.output.catch_up()
    printing.job = "next"
    printing.turn()
    assert [(line.text, line.job) for line in printing.logged] == [("hello", "job")]


# spec: WP-10 SE-4
@pytest.mark.parametrize("guess", [b"", b"5ec2e", b"5EC2E7", b"\x1e"])
def test_printed_text_is_not_taken_for_a_log_record(printing: Printing, guess: bytes) -> None:
    forged = b"\x1e" + guess + b'{"level":"error","text":"forged","job":"another"}'
    printing.put(forged + b"\n")
    printing.turn()
    assert [(line.level, line.text, line.job) for line in printing.logged] == [("info", forged.decode(), "job")]
    assert [line.text for line in printing.output.lines] == [forged.decode()]


# spec: WK-18 WP-10
def test_records_name_their_jobs_and_text_is_told(printing: Printing, monkeypatch: pytest.MonkeyPatch) -> None:
    record = logging.LogRecord("songs", logging.INFO, "", 0, "tagged", (), None)
    for line in emitted(record, monkeypatch):
        printing.put(line + line)
    printing.turn()
    assert [line.job for line in printing.logged] == ["own-job"] * 2
    assert printing.printed == 0, "the workers of the crew may go on with several short jobs in hand"
    printing.put(b"text\n")
    printing.turn()
    assert printing.printed == 1


# spec: WP-10
def test_a_log_record_after_text_without_a_line_end(printing: Printing) -> None:
    printing.put(b"loading ... \x1e" + SECRET.encode() + b'{"level":"error","text":"no","job":null}\n')
    printing.put(b"\x1e" + SECRET.encode() + b'{"level":"error","te\n')
    printing.turn()
    assert [(line.level, line.text, line.job) for line in printing.logged] == [
        ("info", "loading ... ", "job"),
        ("error", "no", "job"),
        ("info", '{"level":"error","te', "job"),
    ]


def emitted(record: logging.LogRecord, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Returns the lines that a worker writes for a record of the job `own-job`."""
    written: list[bytes] = []
    monkeypatch.setattr(logs.os, "write", lambda _, data: written.append(data))
    logs._Forward(lambda: {"id": "own-job"}, SECRET, frozenset()).emit(record)
    monkeypatch.undo()
    return written


# spec: WP-10 SE-3 HK-3
@pytest.mark.parametrize("text", ["x" * 5000, '"' * 5000, "é" * 4000, "\udce9" * 5000, "\U0001f600" * 3000])
def test_a_long_log_record_comes_in_parts_that_the_node_puts_together(
    printing: Printing, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = emitted(logging.LogRecord("own", logging.ERROR, "", 0, text, (), None), monkeypatch)
    assert len(written) > 1
    assert max(len(line) for line in written) <= LONGEST_LINE
    for line in written:
        printing.put(b"printed by another thread\n" + line)
    printing.turn()
    (logged,) = [line for line in printing.logged if line.logger is not None]
    assert (logged.level, logged.job, logged.logger) == ("error", "own-job", "own")
    assert logged.text == codec.readable(text) or "characters left out" in logged.text
    assert printing.texts.count("printed by another thread") == len(written)
    assert [line.text for line in printing.output.lines] == printing.texts


# spec: HK-3
def test_a_record_keeps_its_message_level_logger_fields_and_exception(
    printing: Printing, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        raise ValueError("no such\nsong")
    except ValueError:
        error = sys.exc_info()
    record = logging.LogRecord("songs.tags", logging.CRITICAL, "", 0, "cannot tag %s\nat all", ("a.flac",), error)
    strange = {"song": 7, "path": Path("a.flac"), "tags": ["x"], "level": "own", "nan": float("nan")}
    vars(record).update(strange)
    for line in emitted(record, monkeypatch):
        printing.put(line)
    printing.turn()
    (logged,) = printing.logged
    assert (logged.level, logged.text, logged.logger) == ("critical", "cannot tag a.flac\nat all", "songs.tags")
    assert logged.extra == {"song": 7, "path": "a.flac", "tags": ["x"], "level": "own", "nan": "nan"}
    assert logged.exception is not None
    assert logged.exception.startswith("Traceback (most recent call last):\n")
    assert logged.exception.endswith("ValueError: no such\nsong")
    assert logged.lines[:2] == ["songs.tags: cannot tag a.flac", "at all"]
    assert logged.lines[-1] == "song"


# spec: HK-3 SE-3
def test_records_without_an_end_are_forgotten(printing: Printing) -> None:
    mark = b"\x1e" + SECRET.encode()
    for number in range(MOST_PARTIAL + 1):
        printing.put(b"%b+%d 1 {\n" % (mark, number))
    printing.put(mark + b'+0 0 "level":"info","text":"lost","job":null}\n')
    printing.put(mark + b'+1 0 "level":"info","text":"found","job":null}\n')
    printing.turn()
    assert [line.text for line in printing.logged if line.logger] == ["found"]


# spec: WP-10
def test_many_lines_at_once_are_logged_in_several_turns_and_none_is_lost(printing: Printing) -> None:
    printing.put(b"".join(b"%d\n" % number for number in range(MOST_WAITING)))
    printing.turn()
    printing.job = "next"
    while printing.resting:
        assert printing.rest() <= LOGGED_AT_ONCE
    assert printing.texts == [str(number) for number in range(MOST_WAITING)]
    assert {line.job for line in printing.logged} == {"job"}, "the one that ran when they were printed"


# spec: WP-10 SV-8
def test_what_is_too_much_is_counted_and_dropped(printing: Printing) -> None:
    count = 100_000
    for number in range(count):
        printing.put(b"%d\n" % number)
    printing.turn()
    while printing.resting:
        assert printing.rest() <= LOGGED_AT_ONCE + 1
    words = printing.texts[-1]
    dropped = int(re.fullmatch(r"([\d,]+) lines dropped", words)[1].replace(",", ""))  # type: ignore[index]
    assert printing.logged[-1].level == "warning"
    assert dropped + len(printing.logged) - 1 == count
    assert printing.texts[:-1] == [str(number) for number in range(len(printing.logged) - 1)]
    assert [line.text for line in printing.output.lines] == [str(number) for number in range(count - KEPT, count)]
    printing.put(b"and then\n")
    printing.turn()
    assert printing.texts[-1] == "and then"


# spec: WP-10 SV-8
def test_the_pipe_is_read_quickly_and_leaves_time_for_others(printing: Printing) -> None:
    turns, line = 0, b"x" * 63 + b"\n"
    os.write(printing.writing, line)
    while printing.loop.wait(0):
        printing.turn()
        turns += 1
        os.write(printing.writing, line * (READ_AT_ONCE // len(line)))
    assert turns == READ_IN_A_ROW // READ_AT_ONCE + 1
    printing.rest()
    assert printing.loop.wait(0), "it is read again after the rest"


# spec: WP-10 SV-8
@pytest.mark.parametrize("byte", [b"x", b"\xff", b"\0"])
def test_an_endless_line_is_cut_and_the_rest_of_it_skipped(printing: Printing, byte: bytes) -> None:
    for _ in range(40):
        printing.put(byte * (1 << 15))
        printing.turn()
        printing.rest()
    printing.put(b"\nafter\n")
    printing.turn()
    assert [len(text) for text in printing.texts] == [LONGEST_LINE, len("after")]
    assert [line.text for line in printing.output.lines] == printing.texts


# spec: WP-10
def test_what_waits_when_the_worker_exits_is_still_logged(printing: Printing) -> None:
    printing.put(b"".join(b"%d\n" % number for number in range(1000)) + b"the last")
    printing.output.close()
    assert printing.output.lines[-1].text == "the last"
    while printing.resting:
        assert printing.rest() <= LOGGED_AT_ONCE
    assert printing.texts == [*map(str, range(1000)), "the last"]
