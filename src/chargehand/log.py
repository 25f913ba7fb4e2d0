"""The package's log: constant messages with fields, written for people or, with CHARGEHAND_LOG=json, for machines.

Only Chargehand's own processes (the node and the command line) call `configure`; a user's process calls
`configure_if_unset`, which respects the application's logging. Every record carries its fields in `record.facts`.
"""

import json
import logging
import math
import os
import queue
import sys
import threading
from collections.abc import Sequence
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, cast

from chargehand import clock, codec
from chargehand.errors import ConfigurationError

MOST_LINES = 10_000
"""Lines that are buffered for a slow reader; further lines are dropped and counted."""
FLUSH_TIMEOUT = 1.0
"""Seconds that an exiting process waits for its log to be written."""
FORMS = ("human", "json")

RESERVED = ("ts", "level", "message", "component", "job", "exception")
"""The fields of every line of JSON; others of the same name get an underscore."""

request_id: ContextVar[str | None] = ContextVar("chargehand_request_id", default=None)
"""The id of the HTTP request that is being served; added to every record that is logged meanwhile."""

_logger = logging.getLogger("chargehand")


class Event(StrEnum):
    """Codes of log lines that programs look for, in the field `event`: the message beside it may be reworded."""

    SETTINGS = "settings"
    NO_WORKERS_HERE = "no-workers-here"
    NODE_STANDBY = "node-standby"
    CREWS_UNSERVED = "crews-unserved"
    NODE_STARTED = "node-started"
    NODE_STOPPING = "node-stopping"
    NODE_STOPPED = "node-stopped"
    NODE_DRAINED = "node-drained"
    NODE_EXITED = "node-exited"
    SUPERVISION_ERROR = "supervision-error"
    SUPERVISION_ABORTED = "supervision-aborted"
    WORKER_SPAWNED = "worker-spawned"
    WORKER_READY = "worker-ready"
    WORKER_EXITED = "worker-exited"
    WORKER_TERMINATED = "worker-terminated"
    WORKER_KILLED = "worker-killed"
    WORKER_DELAYED = "worker-delayed"
    WORKER_BROKEN = "worker-broken"
    WORKER_SUSPECT = "worker-suspect"
    WORKER_GIVEN_UP = "worker-given-up"
    WORKER_STILL_GIVEN_UP = "worker-still-given-up"
    WORKER_FORGIVEN = "worker-forgiven"
    WORKER_OUTPUT = "worker-output"
    LOOP_BLOCKED = "loop-blocked"
    BREAKER_OPENED = "breaker-opened"
    CREW_SCALED = "crew-scaled"
    CLOCK_SET_BACK = "clock-set-back"
    DISCOVER_FAILED = "discover-failed"
    JOB_FAILED = "job-failed"
    OUTCOME_LATE = "outcome-late"
    STORE_REPLACED = "store-replaced"
    QUEUE_UNSERVED = "queue-unserved"
    QUEUE_SERVED = "queue-served"
    PAUSE_IN_FORCE = "pause-in-force"
    ORDER = "order"
    FILES_SECURED = "files-secured"
    NODE_FOREIGN = "node-foreign"


def info(message: str, **facts: Any) -> None:
    """Logs an event that an operator may look up later."""
    _log(logging.INFO, message, facts)


def warning(message: str, **facts: Any) -> None:
    """Logs an event that an operator should see."""
    _log(logging.WARNING, message, facts)


def error(message: str, *, trace: bool = False, **facts: Any) -> None:
    """Logs an event that an operator must see; `trace` adds the current exception."""
    _log(logging.ERROR, message, facts, trace)


def at(level: str, message: str, **facts: Any) -> None:
    """Logs an event at the level of this name."""
    _log(logging.getLevelNamesMapping()[level.upper()], message, facts)


def record(level: str, message: str, facts: dict[str, Any]) -> None:
    """Logs a record of a worker, with its own message and fields; `exception` among these is a traceback as text."""
    _log(logging.getLevelNamesMapping()[level.upper()], message, facts)


def _log(level: int, message: str, facts: dict[str, Any], trace: bool = False) -> None:
    request = request_id.get()
    if request is not None:
        facts = {**facts, "request_id": request}
    _logger.log(level, message, extra={"facts": facts}, exc_info=trace)


def form() -> str:
    """Returns the log format: CHARGEHAND_LOG, or "human" if that is not set."""
    found = os.environ.get("CHARGEHAND_LOG") or FORMS[0]
    if found.lower() not in FORMS:
        raise ConfigurationError(f"CHARGEHAND_LOG is {found!r}; must be one of: {', '.join(FORMS)}")
    return found.lower()


def escaped(text: str) -> str:
    """Escapes control characters, so that a text cannot forge log lines or control a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in codec.readable(text))


class Human(logging.Formatter):
    """Formats a record as one line: time, level, message, component, job, other fields; tracebacks follow, indented."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        facts: dict[str, Any] = {"component": self._component, "job": None, **getattr(record, "facts", {})}
        trace = str(facts.pop("exception", None) or "")
        if record.exc_info:
            trace = self.formatException(record.exc_info)
        text = " ".join([escaped(record.getMessage()), *_words(facts)])
        line = f"{self.formatTime(record)} {record.levelname.lower():7} {text}"
        return "\n".join([line, *(f"    {escaped(each)}" for each in trace.splitlines())])


def _words(facts: dict[str, Any]) -> list[str]:
    """Formats the fields that are set as name=value."""
    return [f"{name}={_shown(value)}" for name, value in facts.items() if value is not None]


def _shown(value: Any) -> str:
    listed = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else [value]
    text = ", ".join(str(each) for each in listed)
    return text if text.isprintable() and " " not in text and text else f'"{escaped(text)}"'


class Json(logging.Formatter):
    """Formats a record as one line of JSON: ts, level, message, component, job, and the other fields by name."""

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
        exception = self.formatException(record.exc_info) if record.exc_info else facts.pop("exception", None)
        if exception is not None:
            line["exception"] = _plain(exception)
        for name, value in facts.items():
            line[f"{name}_" if name in RESERVED else name] = _plain(value)
        return json.dumps(line).replace("\x7f", "\\u007f")  # the only control character that json does not escape


def _plain(value: Any) -> Any:
    """Converts a field to a JSON value; types that JSON does not support become text."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case list() | tuple():
            return [_plain(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return {codec.readable(str(name)): _plain(each) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case _:
            return codec.readable(str(value))  # names of files may contain any bytes


class _ThreadHandler(logging.Handler):
    """Writes lines in a thread, so that logging never blocks on a terminal or a pipe."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: queue.Queue[str | None] = queue.Queue(MOST_LINES)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        if self._dropped and not self._lines.full():
            lost = {"msg": "earlier log lines were dropped because they were not read in time", "levelname": "WARNING"}
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
                self._dropped += 1  # standard error is closed

    def finish(self) -> None:
        """Stops the thread after it has written the buffered lines; waits FLUSH_TIMEOUT seconds at most."""
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(FLUSH_TIMEOUT)


_thread_handlers: list[_ThreadHandler] = []
_configured: list[logging.Handler] = []


def configure(
    level: str,
    component: str = "host",
    *,
    style: str | None = None,
    in_thread: bool = False,
    journal: logging.Handler | None = None,
) -> None:
    """Writes the package's log to standard error, with this component name.

    With `in_thread`, a thread writes the lines, and drops them if they are not read in time. `style` is one of FORMS;
    the default is CHARGEHAND_LOG. `journal` is an additional handler.
    """
    if journal is not None:
        _logger.addHandler(journal)
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if in_thread:
        handler = _ThreadHandler()
        _thread_handlers.append(handler)
    handler.setFormatter(Json(component) if (style or form()) == "json" else Human(component))
    _configured.append(handler)
    _logger.addHandler(handler)
    _logger.setLevel(level)
    _logger.propagate = False


def configure_if_unset(level: str, style: str) -> None:
    """Configures the log in a user's process: uses the application's handlers, or standard error if it has none."""
    if _configured:
        return
    if _logger.hasHandlers():
        _logger.addFilter(_with_facts)
    else:
        configure(level, "api", style=style)


def _with_facts(record: logging.LogRecord) -> bool:
    """Appends the fields to the message, for formatters that do not know about them."""
    record.msg = " ".join([str(record.msg), *_words(getattr(record, "facts", {}))])
    return True


def finish() -> None:
    """Flushes the log before the process exits."""
    for handler in _thread_handlers:
        handler.finish()
