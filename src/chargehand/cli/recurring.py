"""`chargehand recurring`: the recurring jobs and when each runs next."""

from contextlib import suppress
from typing import Any

import msgspec

from chargehand.cli import find, show
from chargehand.errors import JobNotFound
from chargehand.host.service import Service
from chargehand.settings import schedule
from chargehand.settings.schedule import Schedule


def recurring(app: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """Show the recurring jobs: the schedule, the next time and the last job of each."""
    service = find.service(app, store)
    found = service.recurrences()
    schedules = [msgspec.json.decode(plan.schedule, type=Schedule) for plan in found]
    if json:
        show.json(
            [
                {
                    "name": plan.name, "schedule": times, "in_words": schedule.in_words(times),
                    "next_run_ms": plan.next_run_ms, "last_job": plan.last_job, "job": msgspec.Raw(plan.job.encode()),
                }
                for plan, times in zip(found, schedules, strict=True)
            ]
        )  # fmt: skip
        return
    if not found:
        show.line("there are no recurring jobs; a node registers them when it starts")
        return
    show.table(
        ("NAME", "SCHEDULE", "NEXT", "LAST JOB"),
        [
            (plan.name, schedule.in_words(times), show.moment(plan.next_run_ms), _last(service, plan.last_job))
            for plan, times in zip(found, schedules, strict=True)
        ],
    )


def _last(service: Service, job_id: str | None) -> Any:
    if job_id is not None:
        with suppress(JobNotFound):  # the job has been pruned
            return f"{job_id} ({service.job(job_id).state.value})"
    return job_id
