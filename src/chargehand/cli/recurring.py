"""`chargehand recurring`: the recurring jobs and when each runs next; runs one now, pauses and resumes one."""

from typing import Annotated, Any

import msgspec
import typer

from chargehand.cli import find, show
from chargehand.model.records import Recurrence
from chargehand.settings.schedule import Schedule

app = typer.Typer(help="Show the recurring jobs; run one now, pause or resume one.")
Name = Annotated[str, typer.Argument(help="The name of the recurring job.")]


@app.callback(invoke_without_command=True)
def recurring(
    context: typer.Context, application: find.App = None, store: find.Store = None, json: find.Json = False
) -> None:
    """Show the recurring jobs: the schedule, the next time and the last job of each; run, pause or resume one."""
    if context.invoked_subcommand is not None:
        return
    found = find.service(application, store).recurrences()
    if json:
        show.json([_as_json(each) for each in found])
        return
    if not found:
        show.line("there are no recurring jobs; a node registers them when it starts")
        return
    show.table(
        ("NAME", "NEXT", "LAST JOB", "STATE", "SCHEDULE"),
        [(each.name, _next(each), each.last_job, _state(each), each.in_words) for each in found],
    )


def _as_json(each: Recurrence) -> dict[str, Any]:
    return {
        "name": each.name, "schedule": msgspec.json.decode(each.schedule, type=Schedule), "in_words": each.in_words,
        "next_run_ms": each.next_run_ms, "last_job": each.last_job, "job": msgspec.Raw(each.job.encode()),
        "paused_ms": each.paused_ms, "paused_by": each.paused_by, "pause_reason": each.pause_reason,
        "runs": each.runs,
    }  # fmt: skip


def _next(each: Recurrence) -> str:
    if each.paused_ms is None:
        return show.moment(each.next_run_ms)
    return f"paused by {each.paused_by} {show.ago(each.paused_ms)}" + (
        f": {each.pause_reason}" if each.pause_reason else ""
    )


def _state(each: Recurrence) -> str | None:
    """Returns the state of the last job."""
    return next((run.state.value for run in each.runs if run.id == each.last_job), None)


@app.command("run")
def run(name: Name, application: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """Enqueue a recurring job now, besides its schedule and also while it is paused. Prints the id of the job."""
    made = find.service(application, store).run_recurring(name)
    show.json({"name": name, "job": made}) if json else show.line(made)


@app.command("pause")
def pause(
    name: Name,
    reason: Annotated[str | None, typer.Option(help="The reason, shown to others.")] = None,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Skip the times of a recurring job until it is resumed. The pause survives restarts and needs no node."""
    find.service(application, store).pause_recurring(name, reason)
    _say(name, "is paused: it skips its times", json)


@app.command("resume")
def resume(name: Name, application: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """End the pause of a recurring job. Times that have passed stay skipped."""
    resumed = find.service(application, store).resume_recurring(name)
    _say(name, "is no longer paused" if resumed else "was not paused", json)


def _say(name: str, text: str, json: bool) -> None:
    show.json({"name": name, "text": text}) if json else show.line(f"{show.safe(name)}: {text}")
