"""Reads the tables of a store for a diagnosis: one look for each fact, cheapest first.

It knows neither the engine nor the schema: what cannot be read is listed with its error.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from chargehand.errors import ChargehandError, StoreBusy
from chargehand.live.components import component_of, member_of_component
from chargehand.model.doctor.facts import Awaited
from chargehand.model.doctor.wording import place_in
from chargehand.model.error_line import error_line
from chargehand.model.fleet.death import Reason
from chargehand.model.flows import FlowFilter, PredecessorFilter
from chargehand.model.health import APP, unserved
from chargehand.model.job import FINISHED, JobRecord, State
from chargehand.model.records import CrashFilter, JobFilter
from chargehand.store import FleetReading, FlowReading, JobReading

MOST_CRASHES = 50
MOST_FLOWS = 50
"""Flows that are examined, newest first."""
DEEPEST = 50
"""Jobs that are asked in turn what each of them waits for."""
AT_ONCE = 1000
"""Predecessors of a job that are read at once."""
RECENT_MS = 600_000
"""The age up to which the replacement of a worker is reported."""


class Peek(Protocol):
    """Reads a store of any schema version without changing it."""

    @property
    def jobs(self) -> JobReading: ...
    @property
    def fleet(self) -> FleetReading: ...
    @property
    def flows(self) -> FlowReading | None:
        """Reads flows; None if the store was made by a version without flows."""
        ...

    def schema(self) -> int:
        """Returns the version of the schema; 0 if the store has none yet."""
        ...

    def tables(self) -> str:
        """Returns the tables and indexes as text."""
        ...

    def last_done(self, queue: str) -> int | None:
        """Returns when a job of this queue was done last."""
        ...

    def poison(self, crashes: int) -> list[dict[str, Any]]:
        """Returns the jobs that crashed this many workers and are not done, those that have not ended first."""
        ...

    def failed_since(self, queue: str, since_ms: int) -> int:
        """Returns how many jobs of this queue have failed for good since then."""
        ...

    def last_error(self, queue: str) -> str | None:
        """Returns the error of the job of this queue that failed for good last."""
        ...

    def next_run(self) -> dict[str, int]:
        """Returns in how many ms the first scheduled job of each queue is due."""
        ...

    def newest_ms(self) -> int | None:
        """Returns the newest time in the store."""
        ...


def read(
    peek: Peek, told: dict[str, Any], engine_error: type[Exception], is_fatal: Callable[[Exception], bool]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the facts of the tables, and the schema in `told` first. Raises an error that is fatal.

    What cannot be read is listed in `refused`, unless the schema is of another version. If a table is locked, the
    others are not read: each would take the time limit.
    """
    found: dict[str, Any] = {"book": told}
    refused: dict[str, str] = {}
    for name, look in _LOOKS.items():
        yield name.removesuffix("_ms").replace("_", " "), found
        try:
            found = {name: look(peek)}
        except (ChargehandError, engine_error, ValueError) as error:
            if is_fatal(error):
                raise
            found, refused[name] = {}, str(error)
            if isinstance(error, StoreBusy):
                break
    if refused and told["schema"] == told["knows"]:  # expected with another schema
        found["refused"] = refused
    yield "processes", found


def _crashes(peek: Peek) -> list[dict[str, Any]]:
    """Returns the newest crash of each crew, with the innermost place of its stacks instead of the whole report."""
    newest: dict[str, dict[str, Any]] = {}
    for crash in peek.fleet.crashes(CrashFilter(limit=MOST_CRASHES)):
        if crash.crew not in newest:
            known = {name: getattr(crash, name) for name in ("crew", "reason", "text", "signal", "at_ms")}
            newest[crash.crew] = {**known, "where": place_in(crash.stacks)}
    return list(newest.values())


def _replaced(peek: Peek) -> list[dict[str, Any]]:
    """Returns the last replacement of each worker that was broken or suspect, and how many jobs have failed since."""
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    queues = {crew.name: crew.queue for crew in peek.fleet.crews()}
    for crash in peek.fleet.crashes(CrashFilter(limit=MOST_CRASHES)):
        if (
            crash.reason in (Reason.SUSPECT, Reason.BROKEN)
            and crash.age_ms < RECENT_MS
            and (crash.node, crash.component) not in newest
        ):
            known = {name: getattr(crash, name) for name in ("node", "component", "crew", "reason", "text", "at_ms")}
            queue = queues.get(crash.crew, crash.crew)
            failed = peek.failed_since(queue, crash.at_ms)
            line = error_line(peek.last_error(queue)) if failed else None
            newest[crash.node, crash.component] = {**known, "failed_since": failed, "error": line and line.line}
    return list(newest.values())


def _unserved(peek: Peek) -> dict[str, str]:
    """Returns the queues with due jobs that no worker of a node that lives will take, each with the reason."""
    rows = [row for row in peek.fleet.health() if row.node_lives and row.component != APP]
    queues = {crew.name: crew.queue for crew in peek.fleet.crews(living=True)}
    members = [member_of_component(component_of(row)) for row in rows]
    return unserved(peek.jobs.waiting(), queues, members, [pause.scope for pause in peek.fleet.pauses()])


def _awaited(peek: Peek) -> dict[str, dict[str, Any]]:
    """Returns, for each queue of which all queued jobs wait for others, the job that the newest one waits for."""
    found: dict[str, dict[str, Any]] = {}
    for counts in peek.jobs.counts() if peek.flows is not None else ():
        if counts.following and counts.following == counts.queued:
            for job in peek.jobs.find(JobFilter(queue=counts.queue, state=State.QUEUED, limit=1)):
                awaited = _root(peek, job)
                if awaited is not None:
                    found[counts.queue] = awaited
    return found


def _waiting_flows(peek: Peek) -> list[dict[str, Any]]:
    """Returns the flows of which no job runs, each with the job that it waits for."""
    found: list[dict[str, Any]] = []
    for flow in peek.flows.find(FlowFilter(state="running", limit=MOST_FLOWS)) if peek.flows is not None else ():
        if flow.counts.running:
            continue
        jobs = peek.jobs.find(JobFilter(flow=flow.id, state=State.QUEUED, limit=MOST_FLOWS))
        first = next((job for job in jobs if not job.waits_for), jobs[-1]) if jobs else None
        awaited = None if first is None else _root(peek, first)
        if awaited is not None:
            about = {"id": flow.id, "name": flow.name, "waiting": flow.counts.queued}
            found.append({**about, "awaited": awaited})
    return found


def _root(peek: Peek, job: JobRecord) -> dict[str, Any] | None:
    """Returns the job that keeps this one waiting: a predecessor that waits for no other job, or the job itself.

    None if it waits for the job before it in its sequence, or if the chain is too long.
    """
    for _ in range(DEEPEST):
        if not job.waits_for:
            return {name: getattr(job, name) for name in Awaited.__struct_fields__}
        before = _open(peek, job)
        if before is None:
            return None
        job = before
    return None


def _open(peek: Peek, job: JobRecord) -> JobRecord | None:
    """Returns the first predecessor that a job still waits for; if all have ended, the last one."""
    after: tuple[int, int] | None = None
    last: str | None = None
    while True:
        page = peek.jobs.predecessors(PredecessorFilter(job=job.id, after=after, limit=AT_ONCE, texts=False))
        for each in page:
            if each.state not in FINISHED:
                return peek.jobs.get(each.id)
            last = each.id
        if len(page) < AT_ONCE:
            return None if last is None else peek.jobs.get(last)
        after = (page[-1].nr, page[-1].ordinal)


def _last_done(peek: Peek) -> dict[str, int]:
    names = {row.queue for row in peek.fleet.crews()} | {queue for queue, _ in peek.jobs.waiting()}
    found = {name: peek.last_done(name) for name in names}
    return {name: at for name, at in found.items() if at is not None}


_LOOKS: dict[str, Callable[[Peek], Any]] = {
    "pauses": lambda peek: peek.fleet.pauses(),
    "crews": lambda peek: peek.fleet.crews(),
    "given_up": lambda peek: peek.fleet.given_up(),
    "waiting": lambda peek: dict(peek.jobs.waiting()),
    "unserved": _unserved,
    "last_beat_ms": lambda peek: max(
        (r.last_heartbeat_ms or 0 for r in peek.fleet.health() if r.component == APP), default=None
    ),
    "newest_ms": lambda peek: peek.newest_ms(),
    "crashes": _crashes,
    "poison": lambda peek: peek.poison(2),
    "replaced": _replaced,
    "last_done": _last_done,
    "next_run": lambda peek: peek.next_run(),
    "queues": lambda peek: peek.jobs.counts(),
    "awaited": _awaited,
    "waiting_flows": _waiting_flows,
}
"""By the name of the fact, cheapest first."""
