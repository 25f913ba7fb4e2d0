"""The package's log: constant messages, facts as fields, for people or (CHARGEHAND_LOG=json) for machines.

Libraries do not own their users' logging: only the node and the command line, which are processes of ours, call
`configure`; in others `speak` asks first. There a record carries its facts in `record.facts`, too.
"""

import json
import logging
import math
import os
import queue
import sys
import threading
from contextvars import ContextVar
from enum import StrEnum
from typing import Any

from chargehand import clock
from chargehand.errors import ConfigurationError

MOST_LINES = 10_000
"""Kept for a reader that is slow; past that they are dropped, and counted."""
LAST_WORDS = 1.0
"""Seconds that the end of a process may wait for its log."""
FORMS = ("human", "json")

request_id: ContextVar[str | None] = ContextVar("chargehand_request_id", default=None)
"""Whoever serves a request sets this, and every line that is logged on its behalf says so."""

_logger = logging.getLogger("chargehand")


class Event(StrEnum):
    """Codes of log lines that programs look for, in the field `event`: the message beside it may be reworded."""

    NODE_STANDBY = "node-standby"
    NODE_STARTED = "node-started"
    NODE_STOPPING = "node-stopping"
    NODE_STOPPED = "node-stopped"
    NODE_EXITED = "node-exited"
    SUPERVISION_ERROR = "supervision-error"
    SUPERVISION_ABORTED = "supervision-aborted"
    WORKER_SPAWNED = "worker-spawned"
    WORKER_READY = "worker-ready"
    WORKER_EXITED = "worker-exited"
    WORKER_DELAYED = "worker-delayed"
    WORKER_GIVEN_UP = "worker-given-up"
    WORKER_STILL_GIVEN_UP = "worker-still-given-up"
    WORKER_FORGIVEN = "worker-forgiven"
    WORKER_OUTPUT = "worker-output"
    BREAKER_OPENED = "breaker-opened"
    CREW_SCALED = "crew-scaled"
    DISCOVER_FAILED = "discover-failed"
    JOB_FAILED = "job-failed"
    OUTCOME_LATE = "outcome-late"
    QUEUE_UNSERVED = "queue-unserved"
    QUEUE_SERVED = "queue-served"
    ORDER = "order"


def info(message: str, **facts: Any) -> None:
    """Something that an operator wants to find later."""
    _say(logging.INFO, message, facts)


def warning(message: str, **facts: Any) -> None:
    """Something that an operator should see."""
    _say(logging.WARNING, message, facts)


def error(message: str, *, trace: bool = False, **facts: Any) -> None:
    """Something that an operator must see; `trace` adds the present exception."""
    _say(logging.ERROR, message, facts, trace)


def at(level: str, message: str, **facts: Any) -> None:
    """The same, at a level by its name."""
    _say(logging.getLevelNamesMapping()[level.upper()], message, facts)


def _say(level: int, message: str, facts: dict[str, Any], trace: bool = False) -> None:
    request = request_id.get()
    if request is not None:
        facts = {**facts, "request_id": request}
    _logger.log(level, message, extra={"facts": facts}, exc_info=trace)


def form() -> str:
    """How the log is written: CHARGEHAND_LOG, or for people."""
    found = os.environ.get("CHARGEHAND_LOG") or FORMS[0]
    if found.lower() not in FORMS:
        raise ConfigurationError(f"CHARGEHAND_LOG is {found!r}; allowed are: {', '.join(FORMS)}")
    return found.lower()


def escaped(text: str) -> str:
    """Text without control characters: no line can be forged, and no terminal moved."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Human(logging.Formatter):
    """One line: time, level, message, component, job, other facts. A traceback follows, indented."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        facts: dict[str, Any] = {"component": self._component, "job": None, **getattr(record, "facts", {})}
        text = " ".join([escaped(record.getMessage()), *_words(facts)])
        line = f"{self.formatTime(record)} {record.levelname.lower():7} {text}"
        if not record.exc_info:
            return line
        trace = self.formatException(record.exc_info).splitlines()
        return "\n".join([line, *(f"    {escaped(each)}" for each in trace)])


def _words(facts: dict[str, Any]) -> list[str]:
    """What is known, as name=value."""
    return [f"{name}={_shown(value)}" for name, value in facts.items() if value is not None]


def _shown(value: Any) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and text else f'"{escaped(text)}"'


class Json(logging.Formatter):
    """One object a line: ts, level, message, component, job, and the facts by their names."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        facts: dict[str, Any] = dict(getattr(record, "facts", {}))
        line: dict[str, Any] = {
            "ts": clock.utc_time(record.created),
            "level": record.levelname.lower(),
            "message": _plain(record.getMessage()),
            "component": _plain(facts.pop("component", self._component)),
            "job": _plain(facts.pop("job", None)),
        }
        if record.exc_info:
            line["exception"] = _plain(self.formatException(record.exc_info))
        for name, value in facts.items():
            line[f"{name}_" if name in line else name] = _plain(value)
        return json.dumps(line).replace("\x7f", "\\u007f")  # the one control character that JSON leaves as it is


def _plain(value: Any) -> Any:
    """A fact as JSON has it; whatever that does not know, as text."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case list() | tuple():
            return [_plain(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return str(value).encode(errors="replace").decode()  # half a character of a file's name is not JSON


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
            lost = {"msg": "lines before this one were dropped: nobody read them in time", "levelname": "WARNING"}
            about = logging.makeLogRecord({**lost, "facts": {"count": self._dropped}})
            line = f"{line}\n{self.format(about)}"
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


def configure(
    level: str,
    component: str = "host",
    *,
    style: str | None = None,
    beside: bool = False,
    journal: logging.Handler | None = None,
) -> None:
    """Write the package's log to standard error, as this component.

    `beside`: from a thread, dropping what nobody reads. `style` is one of FORMS; without it CHARGEHAND_LOG says.
    """
    if journal is not None:
        _logger.addHandler(journal)
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if beside:
        handler = _Beside()
        _beside.append(handler)
    handler.setFormatter(Json(component) if (style or form()) == "json" else Human(component))
    _configured.append(handler)
    _logger.addHandler(handler)
    _logger.setLevel(level)
    _logger.propagate = False


def speak(level: str, style: str) -> None:
    """In a process that is not ours: write to standard error if nobody has said where logs go, else into theirs."""
    if _configured:
        return
    if _logger.hasHandlers():
        _logger.addFilter(_with_facts)
    else:
        configure(level, "api", style=style)


def _with_facts(record: logging.LogRecord) -> bool:
    """For formatters that know nothing of facts: they follow the message."""
    record.msg = " ".join([str(record.msg), *_words(getattr(record, "facts", {}))])
    return True


def finish() -> None:
    """Before the process ends: have the last lines written."""
    for handler in _beside:
        handler.finish()
