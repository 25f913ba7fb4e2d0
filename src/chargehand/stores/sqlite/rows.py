"""SQLite rows into records, and the reading questions that take more than one statement."""

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from chargehand.model.access import Scope
from chargehand.model.job import State
from chargehand.store import Counts

Record = TypeVar("Record", bound=msgspec.Struct)


def columns(kind: type[msgspec.Struct], **computed: str) -> str:
    """What to select for records of this kind: its fields by their names, but for those that are computed."""
    return ", ".join(computed.get(name, name) for name in kind.__struct_fields__)


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def _texts(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _scopes(text: str) -> tuple[Scope, ...]:
    return tuple(Scope(word) for word in json.loads(text))


_MADE_FROM: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("payload", "progress", "result", "metadata", "components"), _raw),
    **dict.fromkeys(("flags", "lines", "frames"), _texts),
    "scopes": _scopes,
    "state": State,
    "charged": bool,
}
"""Columns that are not what their fields are. A name means the same in every table."""


def records(kind: type[Record], rows: Iterable[tuple[Any, ...]]) -> list[Record]:
    """Rows of `columns(kind)` as records."""
    names = kind.__struct_fields__
    made_from = [(at, _MADE_FROM[name]) for at, name in enumerate(names) if name in _MADE_FROM]
    found: list[Record] = []
    for row in rows:
        values = list(row)
        for at, make in made_from:
            values[at] = None if values[at] is None else make(values[at])
        found.append(kind(**dict(zip(names, values, strict=True))))
    return found


def where(conditions: dict[str, Any]) -> tuple[str, list[Any]]:
    """Those of the conditions that are given a value, as one, and what to bind to it."""
    asked = {sql: value for sql, value in conditions.items() if value is not None}
    return " AND ".join(("1", *asked)), list(asked.values())


# Each question is answered from an index alone.
_COUNTS = """
SELECT queue, 'queued', count(*), NULL FROM chargehand_job
  WHERE state = 'queued' AND waits_for IS NULL GROUP BY queue
UNION ALL
SELECT queue, 'future', count(*), NULL FROM chargehand_job
  WHERE state = 'queued' AND waits_for = 'time' GROUP BY queue
UNION ALL
SELECT queue, 'limited', count(*), NULL FROM chargehand_job
  WHERE state = 'queued' AND waits_for = 'limit' GROUP BY queue
UNION ALL
SELECT queue, 'running', count(*), NULL FROM chargehand_job WHERE state = 'running' GROUP BY queue
UNION ALL
SELECT queue, state, count(*), max(finished_ms) FROM chargehand_job
  WHERE state IN ('done', 'failed', 'cancelled') GROUP BY queue, state
"""


def counts_of(db: Any) -> list[Counts]:
    """Every queue that has jobs, with how many in each state."""
    found: dict[str, dict[str, int]] = {}
    for queue, state, number, last in db.execute(_COUNTS):
        of_queue = found.setdefault(str(queue), {})
        if state in ("future", "limited"):
            of_queue["queued"] = of_queue.get("queued", 0) + int(number)
        elif state == "done":
            of_queue["last_done_ms"] = int(last)
        of_queue[str(state)] = of_queue.get(str(state), 0) + int(number)
    return [Counts(queue=queue, **states) for queue, states in sorted(found.items())]
