"""Sends a worker's log records to the node: one structured line per record, with the job's id, on standard error.

The worker imports this module only after a handler's code has imported `logging`. If the application has configured the
root logger, that is left alone, and its output reaches the node as plain lines.
"""

import json
import logging
import os
from collections.abc import Callable

from chargehand import codec

MARK = "\x1e"
"""Precedes a structured record, together with a secret; `chargehand.node.output` reads it."""
LONGEST = 4096
"""The maximum length of a line in bytes: longer ones would not be written atomically, and the node would cut them."""


class _Forward(logging.Handler):
    def __init__(self, current_job: Callable[[], str | None], secret: str) -> None:
        super().__init__()
        self._current_job = current_job
        self._mark = f"{MARK}{secret}"

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines = self.format(record).splitlines() or [""]
        except Exception:
            self.handleError(record)
            return
        for text in lines:
            os.write(2, self._line(record.levelname.lower(), codec.readable(text[:LONGEST])))

    def _line(self, level: str, text: str) -> bytes:
        """Returns a record as one line; the end of a text that is too long is cut."""
        while True:
            body = {"level": level, "text": text, "job": self._current_job()}
            line = f"{self._mark}{json.dumps(body, ensure_ascii=False)}\n".encode()
            if len(line) <= LONGEST or not text:
                return line
            text = text[: len(text) * LONGEST // len(line) - 1]


def forward(current_job: Callable[[], str | None], secret: str) -> bool:
    """Sends records of the root logger, from INFO on, to the node, unless the application has configured it.

    `secret` proves to the node that a line is a record, and not text that a job has printed.
    """
    root = logging.getLogger()
    if root.handlers:
        return True
    handler = _Forward(current_job, secret)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    root.addHandler(handler)
    if root.level == logging.WARNING:  # Python's default
        root.setLevel(logging.INFO)
    return True
