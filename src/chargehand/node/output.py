"""Reads what a worker prints and logs, line by line, for the node's log and for the crash report.

The pipe is read faster than lines can be logged, so that a worker which prints a lot is not delayed; what the log
cannot take is counted and dropped. A turn takes bounded time and memory, whatever a worker prints.
"""

import fcntl
import json
import os
import select
import termios
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, cast

from chargehand import clock
from chargehand.node.loop import Loop

KEPT = 200
"""Lines kept for a crash report."""
LONGEST_LINE = 4096
READ_AT_ONCE = 1 << 16
"""Bytes read at once: what a pipe holds."""
READ_IN_A_ROW = 1 << 20
"""Bytes after which the pipe is not read for a moment: about 50 MB/s, at a few percent of a core."""
LOGGED_AT_ONCE = 100
"""Lines logged at once; the others wait for a moment."""
LOGGED_AT_THE_END = 2000
"""Lines logged at once when a worker has exited: some 30 milliseconds."""
MOST_WAITING, MOST_WAITING_BYTES = 4000, 4 << 20
"""Lines, and bytes of them, that may wait to be logged. Further lines are dropped until all of these are logged."""
MARK = b"\x1e"
"""Precedes, together with the secret of the worker, a structured log record."""

PART = b"+"
"""Follows the mark if the line is a part of a record that is too long for one line."""
MOST_PARTIAL, LONGEST_RECORD = 16, 256 * 1024
"""Records of which some parts are missing, and the bytes of one: the oldest, or one that is longer, is dropped."""

LEVELS = ("debug", "info", "warning", "error", "critical")


class OutputLine:
    """One line that a worker has printed, or one of its log records; and the job that it belongs to."""

    __slots__ = ("at_ms", "exception", "extra", "flow", "job", "level", "logger", "text", "trace")

    def __init__(
        self,
        level: str,
        text: str,
        job: str | None,
        logger: str | None = None,
        extra: dict[str, Any] | None = None,
        exception: str | None = None,
        flow: str | None = None,
        trace: str | None = None,
    ) -> None:
        """`logger` is None for a printed line; for a record, `text` is the message."""
        self.at_ms, self.level, self.text, self.job = clock.now_ms(), level, text, job
        self.logger, self.extra, self.exception = logger, extra or {}, exception
        self.flow, self.trace = flow, trace

    @property
    def lines(self) -> list[str]:
        """The lines as people read them: those of the message, with its logger in front, and of the exception."""
        text = self.text if self.logger is None else f"{self.logger}: {self.text}"
        return [*text.splitlines(), *(self.exception or "").splitlines()]


class Output:
    """Reads the output of one worker."""

    def __init__(
        self,
        loop: Loop,
        descriptor: int,
        secret: str,
        on_line: Callable[[OutputLine], None],
        current_job: Callable[[], str | None],
        rest: Callable[[Callable[[], None]], None],
        on_print: Callable[[], None] = lambda: None,
    ) -> None:
        """Reads the descriptor until it is closed. `rest` calls what it is given after a short rest. `on_print` is
        called for text that is no log record: it does not name its job.

        What follows MARK and `secret` is a log record of the worker; printed text cannot contain that.
        """
        os.set_blocking(descriptor, False)
        self._loop, self._descriptor, self._mark = loop, descriptor, MARK + secret.encode()
        self._on_line, self._current_job, self._rest, self._on_print = on_line, current_job, rest, on_print
        self._tail = b""
        self._skipping = False
        self._in_a_row = 0
        self._rested = False
        """Whether reading has rested since somebody last asked."""
        self._waiting: deque[tuple[bytes, str | None]] = deque()
        """Lines to be logged, each with the job that was running when it was read."""
        self._waiting_bytes = 0
        self._logs_later = False
        self._dropping = False
        self._dropped = 0
        self._recent: deque[bytes] = deque(maxlen=KEPT)
        self._parts = _Parts()
        self._open = True
        loop.add(descriptor, self._ready, first=True)  # a line is printed before its job reports its outcome

    @property
    def lines(self) -> list[OutputLine]:
        """The last lines, dropped ones included, for a crash report."""
        parts = _Parts()
        return [line for data in self._recent for line in self._read_line(data, None, parts)]

    def was_behind(self) -> bool:
        """Whether the worker had to wait for room in the pipe: it holds unread output, or was rested since the last
        call."""
        rested, self._rested = self._rested, False
        return rested or (self._open and fcntl.ioctl(self._descriptor, termios.FIONREAD, b"\0" * 4) != b"\0" * 4)

    def catch_up(self) -> None:
        """Reads what the worker has printed so far, unless reading rests because it prints very much."""
        read = 1
        while self._open and read and self._in_a_row < READ_IN_A_ROW:
            read = self._read()

    def close(self) -> None:
        """Reads what is left, without waiting for more, and closes. Waiting lines are logged now, ahead of those of the
        worker's next process; very many of them later."""
        read = 1
        while self._open and read and self._in_a_row < 2 * READ_IN_A_ROW:
            read = self._read()
        if self._tail:
            self._take(self._tail)
            self._tail = b""
        self._let_go()
        self._write(LOGGED_AT_THE_END)

    def _ready(self, _: int) -> None:
        self._read()
        if self._open and self._in_a_row >= READ_IN_A_ROW:
            self._rested = True
            self._loop.change(self._descriptor, 0)
            self._rest(self._listen)

    def _listen(self) -> None:
        """Resumes reading after a rest."""
        self._in_a_row = 0
        if self._open:
            self._loop.change(self._descriptor, select.EPOLLIN)

    def _read(self) -> int:
        """Reads once. Returns the number of bytes."""
        try:
            data = os.read(self._descriptor, READ_AT_ONCE)
        except BlockingIOError:
            return 0
        if not data:
            self._let_go()  # every writer has closed it
            return 0
        self._in_a_row += len(data)
        self._split(data)
        if not self._logs_later:
            self._log()
        return len(data)

    def _split(self, data: bytes) -> None:
        """Takes the whole lines, and keeps the beginning of the last one unless it is too long."""
        if self._skipping:
            _, newline, data = data.partition(b"\n")
            self._skipping = not newline
        whole, newline, rest = (self._tail + data).rpartition(b"\n")
        if newline:
            self._take(whole)
        self._tail = rest
        if len(rest) > LONGEST_LINE:
            self._take(rest)
            self._tail, self._skipping = b"", True

    def _take(self, text: bytes) -> None:
        """Lets lines wait to be logged, or counts and drops those for which there is no room."""
        self._recent.extend(line[:LONGEST_LINE] for line in text.rsplit(b"\n", KEPT)[-KEPT:])
        room = 0 if self._dropping else MOST_WAITING - len(self._waiting)
        lines = text.split(b"\n", room)
        if len(lines) > room:
            self._dropped += lines.pop().count(b"\n") + 1
            self._dropping = True
        if not all(line.startswith(self._mark) for line in lines):
            self._on_print()
        job = self._current_job()
        for line in lines:
            self._waiting.append((line[:LONGEST_LINE], job))
            self._waiting_bytes += len(self._waiting[-1][0])
        self._dropping = self._dropping or self._waiting_bytes > MOST_WAITING_BYTES

    def _log(self) -> None:
        """Logs some of the waiting lines."""
        self._logs_later = False
        self._write(LOGGED_AT_ONCE)

    def _write(self, most: int) -> None:
        """Logs up to `most` waiting lines, and the others later; after the last one, says how many were dropped."""
        for _ in range(min(most, len(self._waiting))):
            data, job = self._waiting.popleft()
            self._waiting_bytes -= len(data)
            for line in self._read_line(data, job, self._parts):
                self._on_line(line)
        if self._waiting:
            if not self._logs_later:
                self._logs_later = True
                self._rest(self._log)
            return
        if self._dropped:
            self._on_line(OutputLine("warning", f"{self._dropped:,} lines dropped", None))
        self._dropped, self._dropping = 0, False

    def _read_line(self, data: bytes, job: str | None, parts: "_Parts") -> Iterator[OutputLine]:
        """Yields what a line holds: printed text, a log record, or text without a line end and a record after it."""
        printed, mark, record = data.partition(self._mark)
        text = printed.decode(errors="replace").rstrip("\r")
        if text:
            yield OutputLine("info", text, job)
        if mark and record.startswith(PART):
            record = parts.add(record[len(PART) :])
        if mark and record is not None:
            yield _record(record, job)

    def _let_go(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove(self._descriptor)
            os.close(self._descriptor)


class _Parts:
    """Puts records together that came in several lines."""

    def __init__(self) -> None:
        self._found: dict[bytes, list[bytes]] = {}

    def add(self, data: bytes) -> bytes | None:
        """Adds a part. Returns the record if this was its last one."""
        number, _, rest = data.partition(b" ")
        more, _, text = rest.partition(b" ")
        parts = self._found.pop(number, [])
        parts.append(text)
        if more == b"0":
            return b"".join(parts)
        if sum(map(len, parts)) <= LONGEST_RECORD:
            self._found[number] = parts
        if len(self._found) > MOST_PARTIAL:
            del self._found[next(iter(self._found))]
        return None


def _record(data: bytes, current: str | None) -> OutputLine:
    """Decodes a log record."""
    text = data.decode(errors="replace")
    try:
        found: Any = json.loads(text)
        level, words, job = found["level"], str(found["text"]), found["job"]
        logger, extra, exception = found.get("logger"), found.get("extra"), found.get("exception")
        flow, trace = found.get("flow"), found.get("trace")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return OutputLine("info", text, current)  # it was cut, after text without a line end
    return OutputLine(
        level if level in LEVELS else "info",
        words.removeprefix(f"{logger}: "),
        current if job is None else str(job),
        str(logger or "root"),
        cast(dict[str, Any], extra) if isinstance(extra, dict) else None,
        None if exception is None else str(exception),
        None if flow is None else str(flow),
        None if trace is None else str(trace),
    )
