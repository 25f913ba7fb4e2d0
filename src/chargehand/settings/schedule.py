"""Recurring jobs: when each is due next, and which are due now. The store makes sure that each one is enqueued once.

Times are wall-clock milliseconds. A cron expression is evaluated in its own time zone: a time skipped by a clock change
runs right after it, and a time that occurs twice runs once, as in Debian's cron. Intervals ignore clock changes.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any

import msgspec

from chargehand import codec
from chargehand.errors import ConfigurationError
from chargehand.ids import new_id
from chargehand.model.job import NewJob
from chargehand.model.records import Firing, JobRun, Recurrence, RecurringPlan, RecurringState, Rescheduling
from chargehand.system import extras

SHORTEST_MS = 1000


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cron expression with its time zone, or an interval."""

    cron: str | None = None
    zone: str = "UTC"
    every_ms: int | None = None


class RecurringJob(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring job as the application declared it."""

    name: str
    schedule: Schedule
    job: NewJob


def check(name: str, schedule: Schedule) -> Schedule:
    """Returns the schedule. Raises ConfigurationError if it is invalid."""
    given: Any = name
    if not isinstance(given, str):
        raise ConfigurationError(f"recurring job {given!r}: the name must be a string")
    if codec.clean(name) != name:
        raise ConfigurationError(f"recurring job {given!r}: the name must be valid Unicode without NUL")
    if schedule.cron is None and schedule.every_ms is None:
        raise ConfigurationError(
            f"recurring job {name!r} has neither cron nor every; set one: cron='0 3 * * *', or every=3600 (seconds)"
        )
    if schedule.cron is not None and schedule.every_ms is not None:
        raise ConfigurationError(f"recurring job {name!r} has both cron and every; set one of them")
    cron: Any = schedule.cron
    if cron is not None and not isinstance(cron, str):
        raise ConfigurationError(f"recurring job {name!r}: cron is {cron!r}; must be a string such as '0 3 * * *'")
    zone: Any = schedule.zone
    if not isinstance(zone, str):
        raise ConfigurationError(f"recurring job {name!r}: zone is {zone!r}; must be a string such as 'Europe/Berlin'")
    if schedule.every_ms is not None and schedule.zone != "UTC":
        raise ConfigurationError(f"recurring job {name!r}: a time zone can only be combined with cron")
    if schedule.every_ms is not None and schedule.every_ms < SHORTEST_MS:
        raise ConfigurationError(
            f"recurring job {name!r}: every is {schedule.every_ms / 1000:g} s; must be 1 s or more"
        )
    try:
        _zone(schedule)
        next_after(schedule, 0)
    except ConfigurationError as error:
        raise ConfigurationError(f"recurring job {name!r}: {error}") from error
    return schedule


def next_after(schedule: Schedule, moment_ms: int) -> int:
    """Returns the first due time after this moment."""
    if schedule.every_ms is not None:
        return moment_ms + schedule.every_ms
    simulated = _cronsim()
    start = datetime.fromtimestamp(moment_ms / 1000, _zone(schedule))
    try:
        # In an hour that occurs twice, the first time it yields may belong to the first occurrence.
        times = simulated.CronSim(schedule.cron, start)
        found: datetime = next(time for time in times if time.timestamp() * 1000 > moment_ms)
    except simulated.CronSimError as error:
        raise ConfigurationError(
            f"cron expression {schedule.cron!r}: {error}; must be minute, hour, day of the month, month and day of "
            "the week, as in '0 3 * * *'"
        ) from error
    except StopIteration:
        raise ConfigurationError(f"cron expression {schedule.cron!r} never matches") from None
    return int(found.timestamp() * 1000)


def in_words(schedule: Schedule) -> str:
    """Describes the schedule; returns a cron expression unchanged if the library that explains it is missing."""
    if schedule.every_ms is not None:
        return f"every {schedule.every_ms / 1000:g} s"
    try:
        text: str = _cronsim().CronSim(schedule.cron, datetime.fromtimestamp(0, _zone(schedule))).explain()
    except ConfigurationError:
        return f"{schedule.cron} ({schedule.zone})"
    return f"{text} ({schedule.zone})"


def _zone(schedule: Schedule) -> tzinfo:
    # Imported here: most nodes have no cron expression, and do not need the module's memory.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(schedule.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"unknown time zone {schedule.zone!r}; must be a name such as 'UTC' or 'Europe/Berlin'"
        ) from error


def _cronsim() -> Any:
    with extras.required("cron", "a cron expression"):
        import cronsim
    return cronsim


def plans(entries: Sequence[RecurringJob], now_ms: int) -> list[RecurringPlan]:
    """Returns the rows to store; for an unchanged schedule the store keeps the next due time that it has."""
    return [
        RecurringPlan(
            name=entry.name,
            schedule=msgspec.json.encode(entry.schedule).decode(),
            job=msgspec.json.encode(entry.job).decode(),
            next_run_ms=next_after(entry.schedule, now_ms),
        )
        for entry in entries
    ]


def seen(plan: RecurringPlan, state: RecurringState, runs: Mapping[str, JobRun]) -> Recurrence:
    """Returns a recurring job as readers see it; `runs`: its jobs that the store still has, and others, by id."""
    job = job_of(plan)
    return Recurrence(
        **{name: getattr(plan, name) for name in RecurringPlan.__struct_fields__},
        in_words=in_words(msgspec.json.decode(plan.schedule, type=Schedule)), queue=job.queue, label=job.label,
        paused_ms=state.paused_ms, paused_by=state.paused_by, pause_reason=state.pause_reason,
        runs=tuple(runs[job_id] for job_id in state.runs if job_id in runs),
    )  # fmt: skip


def job_of(plan: RecurringPlan) -> NewJob:
    """Returns a new job of a recurring job."""
    return msgspec.structs.replace(msgspec.json.decode(plan.job, type=NewJob), id=new_id())


def passed(plan: RecurringPlan, now_ms: int) -> Rescheduling | None:
    """Returns how to skip the next time of a recurring job if it has passed; None if it has not."""
    if plan.next_run_ms > now_ms:
        return None
    following = _following(msgspec.json.decode(plan.schedule, type=Schedule), plan.next_run_ms, now_ms)
    return Rescheduling(name=plan.name, due_ms=plan.next_run_ms, next_run_ms=following)


def due(known: Sequence[RecurringPlan], now_ms: int) -> list[Firing]:
    """Returns the recurring jobs that are due now, each once, however many runs were missed."""
    return [
        Firing(
            name=plan.name,
            due_ms=plan.next_run_ms,
            next_run_ms=_following(msgspec.json.decode(plan.schedule, type=Schedule), plan.next_run_ms, now_ms),
            job=job_of(plan),
        )
        for plan in known
        if plan.next_run_ms <= now_ms
    ]


def too_late(known: Sequence[RecurringPlan], now_ms: int) -> list[Rescheduling]:
    """Returns the recurring jobs whose next time was computed from a clock that has been set back since.

    An interval waits no longer than one interval from now. A cron expression may skip its next time, which it has
    run already if the clock was ahead of it, but no further one.
    """
    found: list[Rescheduling] = []
    for plan in known:
        schedule = msgspec.json.decode(plan.schedule, type=Schedule)
        following = next_after(schedule, now_ms)
        latest = following if schedule.every_ms is not None else next_after(schedule, following)
        if plan.next_run_ms > latest:
            found.append(Rescheduling(name=plan.name, due_ms=plan.next_run_ms, next_run_ms=following))
    return found


def _following(schedule: Schedule, due_ms: int, now_ms: int) -> int:
    """Returns the next due time; an interval keeps its phase, however late this is called."""
    if schedule.every_ms is None:
        return next_after(schedule, now_ms)
    return due_ms + schedule.every_ms * ((now_ms - due_ms) // schedule.every_ms + 1)
