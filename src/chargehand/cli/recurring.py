"""Work that nobody enqueues: `recurring` shows what comes by the clock, `wake` has a crew look for items."""

from contextlib import suppress
from typing import Annotated, Any

import msgspec
import typer

from chargehand import clock
from chargehand.app import Chargehand
from chargehand.cli import find, show
from chargehand.errors import ConfigurationError, JobNotFound, UnknownCrew
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


def wake(
    crew: Annotated[str, typer.Argument(help="A crew that is declared discovers=True.")],
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Have a discovering crew look at once for what needs work, instead of in a while."""
    hand = find.chargehand(app, store)
    names = sorted({row.name for row in hand.known_crews()} | set(hand.crews))
    if crew not in names:
        known = ", ".join(names) or "none yet; a node writes them when it starts"
        raise UnknownCrew(f"there is no crew {crew!r}; there are: {known}")
    if crew in hand.crews and not hand.crews[crew].plan.discovers:
        raise ConfigurationError(f"crew {crew!r} is not declared discovers=True: it has nothing to look for")
    node = hand.status() is not None
    hand.wake(crew)
    text = "looks now" if node else "no node runs; one that starts looks first"
    if json:
        show.json({"crew": crew, "told": node})
    else:
        show.line(f"{show.safe(crew)}: {text}")
