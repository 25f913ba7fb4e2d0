"""`chargehand claims`: which worker holds which job; `chargehand claims release` ends a claim by hand."""

from typing import Annotated

import typer

from chargehand.cli import ask, find, show
from chargehand.errors import ConfigurationError, Conflict
from chargehand.model.job import State

app = typer.Typer(help="Show which worker holds which job; release a job.")


@app.callback(invoke_without_command=True)
def claims(
    context: typer.Context,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Show which worker holds which job, and since when; `claims release` ends a claim by hand."""
    if context.invoked_subcommand is not None:
        return
    found = find.service(application, store).claims()
    if json:
        show.json(found)
        return
    columns = ("JOB", "CLAIM", "QUEUE", "WORKER", "NODE", "SINCE", "CANCEL ASKED", "ITEM", "LABEL")
    since = [(show.ago(c.started_ms), show.ago(c.cancel_ms)) for c in found]
    rows = [
        (c.id, c.claim, c.queue, c.worker, c.node, *times, c.item, c.label)
        for c, times in zip(found, since, strict=True)
    ]
    show.table(columns, rows) if rows else show.line("no worker holds a job")


@app.command("release")
def release(
    context: typer.Context,
    id: Annotated[str, typer.Argument(help="The job's id, or its last 8 characters.")],
    claim: Annotated[
        str | None, typer.Option(help="Only if the job still has this claim; `claims` shows the number.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Release a job from a worker that cannot be reached: the job is queued again at once.

    If that worker still runs the job, the job runs twice at the same time, and the outcome of the first run is
    rejected. To stop a running job, cancel it; to end a worker, restart it.
    """
    above = context.parent.params if context.parent is not None else {}
    service = find.service(application or above.get("application"), store or above.get("store"))
    job = service.job(id)
    if job.state is not State.RUNNING or job.claim is None:
        raise Conflict(f"no worker holds job {id}: it is {job.state.value}")
    if claim is not None and claim != job.claim:
        raise Conflict(f"job {id} was claimed again: claim {claim} has ended, the present claim is {job.claim}")
    holder = f"{job.worker or 'no worker yet'}, of node {job.node}, {show.ago(job.started_ms)}"
    meaning = (
        f"job {id} was claimed by {holder}, which may still run it: if released, it is queued again and may run twice"
    )
    if not yes:
        if not ask.interactive():
            raise ConfigurationError(f"{meaning}; confirm with --yes")
        ask.confirm(f"{show.safe(meaning)}. Release it?")
    if not service.release(job.id, job.claim):
        raise Conflict(f"job {id} is no longer held by {holder}: nothing was changed")
    if json:
        show.json({"id": job.id, "claim": job.claim, "text": "is queued again"})
    else:
        show.line(f"{show.safe(job.id)}: is queued again; {show.safe(holder)}, may still run it")
