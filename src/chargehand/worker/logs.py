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
"""Starts a line that holds a structured record; `chargehand.node.output` reads it."""
LONGEST = 4000
"""The maximum length of a record in characters: a line must fit into the pipe's buffer to be written atomically."""


class _Forward(logging.Handler):
    def __init__(self, current_job: Callable[[], str | None]) -> None:
        super().__init__()
        self._current_job = current_job

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines = self.format(record).splitlines() or [""]
        except Exception:
            self.handleError(record)
            return
        for text in lines:
            body = {
                "level": record.levelname.lower(),
                "text": codec.readable(text[:LONGEST]),
                "job": self._current_job(),
            }
            os.write(2, f"{MARK}{json.dumps(body, ensure_ascii=False)}\n".encode())


def forward(current_job: Callable[[], str | None]) -> bool:
    """Sends records of the root logger, from INFO on, to the node, unless the application has configured it."""
    root = logging.getLogger()
    if root.handlers:
        return True
    handler = _Forward(current_job)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    root.addHandler(handler)
    if root.level == logging.WARNING:  # Python's default
        root.setLevel(logging.INFO)
    return True
