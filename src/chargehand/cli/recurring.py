"""`chargehand recurring`: the recurring jobs and when each runs next."""

from contextlib import suppress
from typing import Any

import msgspec

from chargehand import clock
from chargehand.app import Chargehand
from chargehand.cli import find, show
from chargehand.errors import JobNotFound
from chargehand.settings import schedule
from chargehand.settings.schedule import Schedule


def recurring(app: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """Show the recurring jobs: their schedules, when each comes next, and its last job."""
    hand = find.chargehand(app, store)
    found = hand.recurrences()
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
        show.line("there are none; a node writes them down when it starts")
        return
    show.table(
        ("NAME", "SCHEDULE", "NEXT", "LAST JOB"),
        [
            (plan.name, schedule.in_words(times), _moment(plan.next_run_ms), _last(hand, plan.last_job))
            for plan, times in zip(found, schedules, strict=True)
        ],
    )


def _moment(ms: int) -> str:
    return f"{clock.local_time(ms)} ({show.ago(ms)})"


def _last(hand: Chargehand, job_id: str | None) -> Any:
    if job_id is not None:
        with suppress(JobNotFound):  # pruned meanwhile
            return f"{job_id} ({hand.job(job_id).state.value})"
    return job_id
