"""Sends a worker's log records to the node: each whole, with its fields and the job's id, on standard error.

The worker imports this module only after a handler's code has imported `logging`. If the application has configured the
root logger, that is left alone, and its output reaches the node as plain lines.
"""

import itertools
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from chargehand import codec, tracing
from chargehand.model.hiding import text_without, without
from chargehand.model.trace import trace_id

MARK = "\x1e"
"""Precedes a structured record, together with a secret; `chargehand.node.output` reads it."""
PART = "+"
"""Follows mark and secret if the line is a part of a record: number of the record, whether more follow, the text."""
LONGEST = 4096
"""The maximum length of a line in bytes: longer ones would not be written atomically, and the node would cut them."""
MESSAGE_LIMIT, EXCEPTION_LIMIT, FIELD_LIMIT = 16_384, 32_768, 2048
"""Characters of the parts of a record; of a longer message or exception the middle is left out."""
MOST_FIELDS = 50

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""The attributes that every record has: the others are fields that the handler has passed as `extra`."""


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n… {len(text) - limit} characters left out …\n{text[-limit // 2 :]}"


def _field(value: Any, shown: Callable[[str], str]) -> Any:
    """Returns the value of a field as JSON has it; what JSON does not know, or is too long, becomes text, and so does
    what contains texts that are not shown."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        try:
            return _cut(codec.readable(shown(str(value))), FIELD_LIMIT)
        except Exception as error:
            return f"<str() of {type(value).__name__} raised {type(error).__name__}>"
    whole = value if isinstance(value, str) else text
    allowed = shown(whole)
    if len(text) > FIELD_LIMIT or codec.readable(text) != text or allowed != whole:
        return _cut(codec.readable(allowed), FIELD_LIMIT)
    return value


def _about(job: dict[str, Any]) -> dict[str, Any]:
    """Returns what a record says about the job that it belongs to."""
    about = {"job": job.get("id")}
    if job.get("flow") is not None:
        about["flow"] = job["flow"]
    trace = trace_id(tracing.current() or job.get("traceparent"))
    if trace is not None:
        about["trace"] = trace
    return about


class _Forward(logging.Handler):
    def __init__(self, context: Callable[[], dict[str, Any]], secret: str, hidden: frozenset[str]) -> None:
        super().__init__()
        self._context, self._hidden = context, hidden
        self._mark = f"{MARK}{secret}".encode()
        self._numbers = itertools.count()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            body = self._body(record)
        except Exception:
            self.handleError(record)
            return
        for line in self._lines(json.dumps(body, ensure_ascii=False).encode()):
            os.write(2, line)

    def _body(self, record: logging.LogRecord) -> dict[str, Any]:
        """Returns the record in the form that the node reads. `text` has logger and message."""
        job = self._context()
        message = codec.readable(_cut(self._shown(record.getMessage(), job), MESSAGE_LIMIT))
        body: dict[str, Any] = {
            "level": record.levelname.lower(),
            "text": f"{record.name}: {message}",
            "logger": record.name,
            **_about(job),
        }
        extra = [(name, value) for name, value in vars(record).items() if name not in _OWN]
        if self._hidden:
            extra = list(without(dict(extra), self._hidden).items())
        if extra:
            body["extra"] = {
                codec.readable(name[:100]): _field(value, lambda text: self._shown(text, job))
                for name, value in extra[:MOST_FIELDS]
            }
        trace = (self.formatter or logging.Formatter()).formatException(record.exc_info) if record.exc_info else None
        if record.stack_info:
            trace = f"{trace}\n{record.stack_info}" if trace else record.stack_info
        if trace:
            body["exception"] = codec.readable(_cut(self._shown(trace, job), EXCEPTION_LIMIT))
        return body

    def _shown(self, text: str, job: dict[str, Any]) -> str:
        """Returns a text without the hidden values of the job's payload."""
        return text_without(text, job.get("payload"), self._hidden) if self._hidden else text

    def _lines(self, data: bytes) -> Iterator[bytes]:
        """Yields a record as one line, or in parts if it is too long for one."""
        if len(self._mark) + len(data) < LONGEST:
            yield self._mark + data + b"\n"
            return
        number = next(self._numbers)
        size = LONGEST - len(self._mark) - 40
        for start in range(0, len(data), size):
            more = int(start + size < len(data))
            yield b"%b%b%d %d %b\n" % (self._mark, PART.encode(), number, more, data[start : start + size])


def forward(context: Callable[[], dict[str, Any]], secret: str, hide: Iterable[str] = ()) -> bool:
    """Sends records of the root logger, from INFO on, to the node, unless the application has configured it.

    `context` returns the job to which a record belongs, as its frame has it. `secret` proves to the node that a line is
    a record, and not text that a job has printed. `hide` names the fields whose values are hidden.
    """
    root = logging.getLogger()
    if root.handlers:
        return True
    root.addHandler(_Forward(context, secret, frozenset(name.lower() for name in hide)))
    if root.level == logging.WARNING:  # Python's default
        root.setLevel(logging.INFO)
    return True
