"""Converts rows to records, and texts to what a store can hold. It runs no statement and knows no engine."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from chargehand import codec
from chargehand.model.access import Scope
from chargehand.model.job import NewJob, State
from chargehand.model.records import MOST_RUNS, Counts, NodeAbout, NodeCrew

Record = TypeVar("Record", bound=msgspec.Struct)


_NOT_STORED = frozenset({"cause", "cause_code"})
"""Fields that records make from the others."""


def _stored(kind: type[msgspec.Struct]) -> list[str]:
    return [name for name in kind.__struct_fields__ if name not in _NOT_STORED]


def columns(kind: type[msgspec.Struct], **computed: str | None) -> str:
    """Returns the columns to select for records of this kind: its fields by name, or what `computed` gives instead.

    None: the field is left out, and has its default.
    """
    found = (computed.get(name, name) for name in _stored(kind))
    return ", ".join(column for column in found if column is not None)


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def _texts(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _scopes(text: str) -> tuple[Scope, ...]:
    return tuple(Scope(word) for word in json.loads(text))


def with_run(runs: str | None, job_id: str) -> str:
    """Returns the column with the newest jobs of a recurring job, and this one as the newest."""
    before = [] if runs is None else [each for each in json.loads(runs) if each != job_id]
    return json.dumps([*before, job_id][-MOST_RUNS:])


_encoder = msgspec.json.Encoder()
_about = msgspec.json.Decoder(NodeAbout)
_crews = msgspec.json.Decoder(tuple[NodeCrew, ...])


def json_text(values: Any) -> str:
    """Returns numbers, ids and rows of them as the JSON text that a statement reads. Other texts must be readable."""
    return _encoder.encode(values).decode()


def meta_text(job: NewJob) -> str | None:
    """Returns the `meta` of a job as JSON."""
    return None if job.meta is None else msgspec.json.encode(job.meta).decode()


def hide_text(names: tuple[str, ...]) -> str | None:
    """Returns the column with the fields that a crew hides."""
    return json.dumps(names) if names else None


def about_of(text: str) -> NodeAbout:
    """Returns what a node said about itself when it was registered."""
    return _about.decode(text)


_MADE_FROM: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("payload", "progress", "result", "metadata", "components"), _raw),
    **dict.fromkeys(("flags", "lines", "frames", "tags", "runs", "hide"), _texts),
    "scopes": _scopes,
    "meta": msgspec.json.decode,
    "state": State,
    **dict.fromkeys(("charged", "node_lives", "lives"), bool),
    "about": about_of,
    "crews": _crews.decode,
}
"""How to make the value of a field from its column, where they differ. A name means the same in every table."""


def records(kind: type[Record], rows: Iterable[tuple[Any, ...]]) -> list[Record]:
    """Returns rows of `columns(kind)` as records."""
    names = _stored(kind)
    made_from = [(at, _MADE_FROM[name]) for at, name in enumerate(names) if name in _MADE_FROM]
    found: list[Record] = []
    for row in rows:
        values = list(row)
        for at, make in made_from:
            values[at] = None if values[at] is None else make(values[at])
        found.append(kind(**dict(zip(names, values, strict=True))))
    return found


def where(conditions: dict[str, Any]) -> tuple[str, list[Any]]:
    """Joins the conditions whose value is not None. Returns the SQL and its bindings."""
    asked = {sql: value for sql, value in conditions.items() if value is not None}
    return " AND ".join(("1 = 1", *asked)), list(asked.values())


def counts_of(rows: Iterable[tuple[Any, ...]], rate_next: Mapping[str, int]) -> list[Counts]:
    """Returns the counts of each queue, from rows of queue, state, number and last end, and from the times at which
    rates admit the next job."""
    found: dict[str, dict[str, int]] = {}
    for queue, state, number, last in rows:
        of_queue = found.setdefault(str(queue), {})
        if state in ("future", "following", "limited"):
            of_queue["queued"] = of_queue.get("queued", 0) + int(number)
        elif state == "done":
            of_queue["last_done_ms"] = int(last)
        of_queue[str(state)] = of_queue.get(str(state), 0) + int(number)
    for queue, next_ms in rate_next.items():
        states = found.get(queue, {})
        if states.get("queued", 0) > states.get("future", 0):
            states["rate_next_ms"] = next_ms
    return [Counts(queue=queue, **states) for queue, states in sorted(found.items())]


def readable(text: str | None) -> str | None:
    """Returns a text for people in a form that can be stored: the output of a worker must not fail the whole batch."""
    return None if text is None else codec.readable(text)


def clean(text: str | None) -> str | None:
    """Returns a JSON text, or one with names of the application, in a form that can be stored; escapes are kept."""
    return None if text is None else codec.clean(text)
