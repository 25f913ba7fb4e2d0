"""Reads what a worker prints and logs, line by line, for the node's log and for the crash report.

A worker that prints without end is slowed down by its full pipe; the node is not slowed down.
"""

import json
import os
import select
from collections import deque
from collections.abc import Callable
from typing import Any

from chargehand import clock
from chargehand.node.loop import Loop

KEPT = 200
"""Lines kept for a crash report."""
LONGEST_LINE = 4096
READ_AT_ONCE = 1 << 14
"""Bytes read at once. After a full read, the pipe is not read for a moment."""
MARK = "\x1e"
"""The prefix of a line that is a structured log record."""

LEVELS = ("debug", "info", "warning", "error")


class OutputLine:
    """One line of output: its level, its text, and the job that it belongs to."""

    __slots__ = ("at_ms", "job", "level", "text")

    def __init__(self, level: str, text: str, job: str | None) -> None:
        self.at_ms, self.level, self.text, self.job = clock.now_ms(), level, text, job


class Output:
    """Reads the output of one worker."""

    def __init__(
        self,
        loop: Loop,
        descriptor: int,
        on_line: Callable[[OutputLine], None],
        rest: Callable[[Callable[[], None]], None],
    ) -> None:
        os.set_blocking(descriptor, False)
        self._loop, self._descriptor, self._on_line, self._rest = loop, descriptor, on_line, rest
        self._tail = b""
        self._skipping = False
        self.lines: deque[OutputLine] = deque(maxlen=KEPT)
        self._open = True
        loop.add(descriptor, self._ready)

    def _ready(self, _: int) -> None:
        if self._read() == READ_AT_ONCE:
            self._loop.change(self._descriptor, 0)
            self._rest(self._listen)

    def _listen(self) -> None:
        """Resume reading after a rest."""
        if self._open:
            self._loop.change(self._descriptor, select.EPOLLIN)

    def _read(self) -> int:
        """Read once. Returns the number of bytes."""
        try:
            data = os.read(self._descriptor, READ_AT_ONCE)
        except BlockingIOError:
            return 0
        if not data:
            self._let_go()  # every writer has closed it
            return 0
        *whole, rest = data.split(b"\n")
        for line in whole:
            if not self._skipping:
                self._line(self._tail + line)
            self._tail, self._skipping = b"", False
        if not self._skipping:
            self._tail += rest
            if len(self._tail) > LONGEST_LINE:
                self._line(self._tail)
                self._tail, self._skipping = b"", True
        return len(data)

    def _line(self, data: bytes) -> None:
        text = data[:LONGEST_LINE].decode(errors="replace").rstrip("\r")
        if not text:
            return
        line = _structured(text) or OutputLine("info", text, None)
        self.lines.append(line)
        self._on_line(line)

    def close(self) -> None:
        """Read what is left, and close. A writer that never stops is not waited for."""
        for _ in range(KEPT):
            if not self._open or not self._read():
                break
        if self._tail:
            self._line(self._tail)
            self._tail = b""
        self._let_go()

    def _let_go(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove(self._descriptor)
            os.close(self._descriptor)


def _structured(text: str) -> OutputLine | None:
    if not text.startswith(MARK):
        return None
    try:
        found: Any = json.loads(text[1:])
        level, words, job = found["level"], found["text"], found["job"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None  # another text with the same prefix, or a record that was cut: keep it as it is
    return OutputLine(level if level in LEVELS else "info", str(words), None if job is None else str(job))
