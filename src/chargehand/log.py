"""The package's log: constant messages, facts as fields. Libraries do not own their users' logging: only the node
and the command line, which are processes of ours, call `configure`; in others `speak` asks first."""

import logging
import queue
import sys
import threading
from typing import Any

MOST_LINES = 10_000
"""Kept for a reader that is slow; past that they are dropped, and counted."""
LAST_WORDS = 1.0
"""Seconds that the end of a process may wait for its log."""

_logger = logging.getLogger("chargehand")


def info(message: str, **facts: Any) -> None:
    """Something that an operator wants to find later."""
    _logger.info(message, extra={"facts": facts})


def warning(message: str, **facts: Any) -> None:
    """Something that an operator should see."""
    _logger.warning(message, extra={"facts": facts})


def error(message: str, *, trace: bool = False, **facts: Any) -> None:
    """Something that an operator must see; `trace` adds the present exception."""
    _logger.error(message, extra={"facts": facts}, exc_info=trace)


def at(level: str, message: str, **facts: Any) -> None:
    """The same, at a level by its name."""
    _logger.log(logging.getLevelNamesMapping()[level.upper()], message, extra={"facts": facts})


class _Plain(logging.Formatter):
    """One line: time, level, message, facts. Control characters are escaped, so that no text can forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        facts: dict[str, Any] = getattr(record, "facts", {})
        text = " ".join([record.getMessage(), *(f"{name}={_shown(value)}" for name, value in facts.items())])
        line = f"{self.formatTime(record)} {record.levelname.lower():7} {text}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _shown(value: Any) -> str:
    text = str(value)
    if text.isprintable() and " " not in text and text:
        return text
    return '"' + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text) + '"'


class _Beside(logging.Handler):
    """Hands lines to a thread that writes them, so that whoever logs never waits for a terminal or a pipe."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: queue.Queue[str | None] = queue.Queue(MOST_LINES)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        if self._dropped and not self._lines.full():
            line = f"{line}\n({self._dropped} lines before this one were dropped: nobody read them in time)"
            self._dropped = 0
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                sys.stderr.write(line + "\n")
                sys.stderr.flush()
            except (OSError, ValueError):
                self._dropped += 1  # nobody is there any more to read it

    def finish(self) -> None:
        """Let the thread write what it has, for a moment."""
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(LAST_WORDS)


_beside: list[_Beside] = []
_configured: list[logging.Handler] = []


def configure(level: str, *, beside: bool = False, journal: logging.Handler | None = None) -> None:
    """Write the package's log to standard error; `beside`: from a thread, dropping what nobody reads."""
    if journal is not None:
        _logger.addHandler(journal)
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if beside:
        handler = _Beside()
        _beside.append(handler)
    handler.setFormatter(_Plain())
    _configured.append(handler)
    _logger.addHandler(handler)
    _logger.setLevel(level)
    _logger.propagate = False


def speak(level: str) -> None:
    """In a process that is not ours: write to standard error if nobody has said where logs go, else into theirs."""
    if _configured:
        return
    if _logger.hasHandlers():
        _logger.addFilter(_with_facts)
    else:
        configure(level)


def _with_facts(record: logging.LogRecord) -> bool:
    """For formatters that know nothing of facts: they follow the message."""
    facts: dict[str, Any] = getattr(record, "facts", {})
    record.msg = " ".join([str(record.msg), *(f"{name}={_shown(value)}" for name, value in facts.items())])
    return True


def finish() -> None:
    """Before the process ends: have the last lines written."""
    for handler in _beside:
        handler.finish()
