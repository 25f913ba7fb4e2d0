"""The jobs that the application's hooks receive: a job failed for good, a worker crashed, a worker was given up. Pure.

Each is committed with what it tells of, under an id that is derived from that: however often it is written, and by
whichever node, it is one job.
"""

from typing import Literal
from zlib import crc32

import msgspec

from chargehand import codec
from chargehand.model.doctor.wording import place_in
from chargehand.model.error_line import error_line
from chargehand.model.fleet.death import crash_line
from chargehand.model.job import NAME_LIMIT, NewJob, Settlement, State
from chargehand.model.records import CrashReport

_RANDOM_BITS = 22
"""The bits of a claim's number below those of its time."""
_TIME, _PART = 12, 12
"""The digits of an id for its time, and those that the id of the job fills."""


class HookEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of the job that a hook receives."""

    event: Literal["failed", "crash", "given_up"]
    at_ms: int
    node: str
    queue: str | None = None
    """The queue of the job; null if there is none."""
    job: str | None = None
    """The id of the job that failed, or that the worker performed when it crashed."""
    label: str | None = None
    crew: str | None = None
    worker: str | None = None
    reason: str | None = None
    """Why, as a code: of a job such as `raised` or `poison`, of a crash such as `signal`; null for `given_up`."""
    cause: str | None = None
    """The error in one line."""
    code: str | None = None
    """The name of the exception's class, or of the signal."""
    workers_left: int | None = None
    """For `given_up`: how many workers of the crew are not given up."""


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """The hooks of an application."""

    on_start: str | None = None
    """A function, as `module:function`, that workers call; likewise the next two."""
    on_end: str | None = None
    on_failure: str | None = None
    on_failed: NewJob | None = None
    """The job that is enqueued, without its payload; likewise the next two."""
    on_crash: NewJob | None = None
    on_given_up: NewJob | None = None

    @property
    def in_worker(self) -> dict[str, str]:
        """The functions that workers call, by the names of the hooks."""
        named = {"on_start": self.on_start, "on_end": self.on_end, "on_failure": self.on_failure}
        return {name: function for name, function in named.items() if function is not None}

    def is_receiver(self, queue: str | None) -> bool:
        """Returns whether a queue receives jobs of hooks: what happens to those triggers no hook."""
        return any(job is not None and job.queue == queue for job in (self.on_failed, self.on_crash, self.on_given_up))


NO_HOOKS = Hooks()


def failed(hooks: Hooks, settlement: Settlement, label: str | None, node: str, now_ms: int) -> NewJob | None:
    """Returns the job that tells of a job's final failure; None if no hook is called for this outcome."""
    if hooks.on_failed is None or settlement.state is not State.FAILED or hooks.is_receiver(settlement.queue):
        return None
    line, name = error_line(settlement.error), label and codec.readable(label)
    event = HookEvent(
        event="failed", at_ms=now_ms, node=node, queue=settlement.queue, job=settlement.id, label=name,
        crew=_crew_of(settlement.worker), worker=settlement.worker, reason=settlement.reason,
        cause=line and line.line, code=line and line.code,
    )  # fmt: skip
    part = f"{settlement.claim >> _RANDOM_BITS:0{_TIME}x}{settlement.id[-_PART:]}"
    job_id = _id(part, f"{settlement.id} {settlement.claim}")
    return _job(hooks.on_failed, event, job_id, name or settlement.queue)


def crashed(hooks: Hooks, report: CrashReport, queue: str | None, node: str, now_ms: int) -> NewJob | None:
    """Returns the job that tells of a worker's crash; None if no hook is called for it."""
    if hooks.on_crash is None or hooks.is_receiver(queue):
        return None
    loading = report.uptime_ms is None and report.pid is not None
    line = crash_line(report.reason, report.text, signal=report.signal, where=place_in(report.stacks), loading=loading)
    event = HookEvent(
        event="crash", at_ms=now_ms, node=node, queue=queue, job=report.job, crew=report.crew, worker=report.component,
        reason=report.reason, cause=line.line, code=line.code,
    )  # fmt: skip
    return _job(hooks.on_crash, event, _id(report.id[: _TIME + _PART], report.id), report.component)


def given_up(
    hooks: Hooks, worker: str, why: str, queue: str | None, node: str, now_ms: int, *, left: int, job_id: str
) -> NewJob | None:
    """Returns the job, of this id, that tells that a worker was given up; None if no hook is called for it."""
    if hooks.on_given_up is None or hooks.is_receiver(queue):
        return None
    line = error_line(why)
    event = HookEvent(
        event="given_up", at_ms=now_ms, node=node, queue=queue, crew=_crew_of(worker), worker=worker,
        cause=line and line.line, code=line and line.code, workers_left=left,
    )  # fmt: skip
    return _job(hooks.on_given_up, event, job_id, worker)


def _job(wanted: NewJob, event: HookEvent, job_id: str, what: str) -> NewJob:
    payload = msgspec.json.encode(event).decode()
    label = wanted.label or f"{event.event.replace('_', ' ')}: {what}"[:NAME_LIMIT]
    return msgspec.structs.replace(wanted, id=job_id, payload=payload, label=label)


def _id(beginning: str, of: str) -> str:
    """Returns an id that is always the same for the same event. People are shown the end of it, which differs."""
    return f"{beginning}{crc32(of.encode()):08x}"


def _crew_of(worker: str | None) -> str | None:
    parts = (worker or "").split(":")
    return parts[1] if len(parts) == 3 else None
