"""What readers are shown of jobs whose crews hide fields: pages, events, HTTP and the command line.

Callers who wait for a result, and handlers, receive everything.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from chargehand.errors import ConfigurationError
from chargehand.model.hiding import without
from chargehand.model.job import JobRecord
from chargehand.model.job_query import PAYLOAD
from chargehand.model.records import CrewRow, JobFilter

Hidden: TypeAlias = Mapping[str, frozenset[str]]
"""The names of the fields that are hidden in the jobs of each queue, in lower case."""


def together(crews: Iterable[CrewRow], declared: Iterable[tuple[str, Iterable[str]]] = ()) -> dict[str, frozenset[str]]:
    """Returns what crews hide, and what applications have declared for queues whose crews are not registered yet."""
    found: dict[str, frozenset[str]] = {}
    for queue, names in (*((crew.queue, crew.hide) for crew in crews), *declared):
        if names := frozenset(name.lower() for name in names):
            found[queue] = found.get(queue, frozenset()) | names
    return found


def shown(job: JobRecord, hidden: Hidden) -> JobRecord:
    """Returns a job as readers are shown it."""
    names = hidden.get(job.queue)
    if names is None:
        return job
    return msgspec.structs.replace(
        job,
        payload=_raw(job.payload, names),
        result=None if job.result is None else _raw(job.result, names),
        meta=without(job.meta, names),
    )


def _raw(value: msgspec.Raw, names: frozenset[str]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(without(msgspec.json.decode(value), names)))


def compares_payloads(which: JobFilter) -> bool:
    """Returns whether the filter compares values of payloads."""
    return any(match.field.startswith(PAYLOAD) for match in which.matches)


def check_search(which: JobFilter, hidden: Hidden) -> None:
    """Raises ConfigurationError if the filter compares a hidden value: its answers would tell the value."""
    for match in which.matches:
        steps = match.field.lower().split(".")[1:] if match.field.startswith(PAYLOAD) else []
        for queue, names in hidden.items():
            if which.queue in (None, queue) and (found := next((step for step in steps if step in names), None)):
                raise ConfigurationError(
                    f"the filter has {match.field}:, but the crew of queue {queue!r} hides the field {found!r} "
                    "(hide=): such jobs cannot be found by its value"
                )
