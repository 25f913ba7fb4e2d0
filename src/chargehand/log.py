"""The package's log: constant messages, facts as fields. Libraries do not own their users' logging: only the node
and the command line, which are processes of ours, call `configure`."""

import logging
import sys
from typing import Any

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


def configure(level: str) -> None:
    """Write the package's log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Plain())
    _logger.addHandler(handler)
    _logger.setLevel(level)
    _logger.propagate = False
