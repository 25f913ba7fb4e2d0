"""A worker's log records on their way to the node: one structured line each, with the job's id, on standard error.

Imported only once a handler's code has imported `logging`, and only where that left the root logger alone: an
application that configured its own logging keeps it, and what that prints reaches the node as plain lines.
"""

import json
import logging
import os
from collections.abc import Callable

MARK = "\x1e"
"""Begins a line that is a structured record; see chargehand.node.output."""
LONGEST = 4000
"""Characters of a record: a line has to fit into a pipe's buffer whole, so that nothing can come between."""


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
            body = {"level": record.levelname.lower(), "text": text[:LONGEST], "job": self._current_job()}
            os.write(2, f"{MARK}{json.dumps(body, ensure_ascii=False)}\n".encode(errors="replace"))


def forward(current_job: Callable[[], str | None]) -> bool:
    """Send records of the root logger to the node, from INFO on, unless the application has its own way."""
    root = logging.getLogger()
    if root.handlers:
        return True
    handler = _Forward(current_job)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    root.addHandler(handler)
    if root.level == logging.WARNING:  # as Python leaves it
        root.setLevel(logging.INFO)
    return True
