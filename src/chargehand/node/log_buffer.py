"""Keeps the node's last log lines, those of its workers included, for callers that read or follow the log."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

KEPT = 5000
FIELDS = 150
"""About how many characters the fields of an entry have as JSON, beside its text."""


class LogEntry:
    """One log line."""

    __slots__ = ("at_ms", "component", "event", "job", "level", "text")

    def __init__(
        self, at_ms: int, level: str, text: str, component: str | None, job: str | None, event: str | None = None
    ) -> None:
        self.at_ms, self.level, self.text, self.component, self.job = at_ms, level, text, component, job
        self.event = event

    def told(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def concerns(self, scope: str | None, job: str | None) -> bool:
        """Whether the line is about this worker or crew, and this job."""
        if job is not None and self.job != job:
            return False
        if scope is None:
            return True
        component = self.component or ""
        return scope in (component, component.removeprefix("worker:"), component.split(":")[1] if component else "")


class LogBuffer(logging.Handler):
    """A logging handler that keeps the last records of the package, and passes each to `on_entry`."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: deque[LogEntry] = deque(maxlen=KEPT)
        self.on_entry: Callable[[LogEntry], None] | None = None
        self._added = 0
        """How many entries there were; the number of the last one."""

    def emit(self, record: logging.LogRecord) -> None:
        facts: dict[str, Any] = dict(getattr(record, "facts", {}))
        component, job, event = facts.pop("component", None), facts.pop("job", None), facts.get("event")
        exception, logger = facts.pop("exception", None), facts.get("logger")
        if "line" in facts:  # printed by a worker
            texts = [str(facts["line"])]
        elif logger is not None:  # a record of a worker
            more = _words({name: each for name, each in facts.items() if name not in ("event", "logger")})
            texts = f"{logger}: {record.getMessage()}{more}".splitlines() + str(exception or "").splitlines()
        else:
            texts = [f"{record.getMessage()}{_words(facts)}"]
        for text in texts:
            self._add(LogEntry(int(record.created * 1000), record.levelname.lower(), text, component, job, event))

    def _add(self, entry: LogEntry) -> None:
        self.entries.append(entry)
        self._added += 1
        if self.on_entry is not None and threading.current_thread() is threading.main_thread():
            self.on_entry(entry)  # only the main thread may use sockets; lines of other threads are only kept

    def last(self, scope: str | None, job: str | None, count: int) -> list[LogEntry]:
        """Returns the newest matching entries, oldest first."""
        return [entry for entry in self.entries if entry.concerns(scope, job)][-count:] if count else []

    def tail(
        self, scope: str | None, job: str | None, count: int, after: int | None, most: int
    ) -> tuple[list[LogEntry], int]:
        """Returns the newest matching entries, oldest first, and the number of the last entry of all.

        `after`: only entries that follow the one of this number. `most`: how many characters they have together.
        """
        entries, last = list(self.entries), self._added
        if after is not None and after <= last:
            entries = entries[max(0, len(entries) - (last - after)) :]
        found: list[LogEntry] = []
        for entry in reversed(entries):
            if len(found) >= count:
                break
            if entry.concerns(scope, job):
                most -= len(entry.text) + FIELDS
                if most < 0:
                    break
                found.append(entry)
        return found[::-1], last


def _words(facts: dict[str, Any]) -> str:
    return "".join(f" {name}={value}" for name, value in facts.items() if value is not None)
