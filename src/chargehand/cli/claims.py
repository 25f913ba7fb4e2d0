"""`chargehand claims`: who holds what since when; and taking one back by hand."""

from typing import Annotated

import typer

from chargehand.cli import ask, find, show
from chargehand.errors import ConfigurationError, Conflict
from chargehand.model.job import State

app = typer.Typer(help="Show who holds which job since when; release one.")


@app.callback(invoke_without_command=True)
def claims(
    context: typer.Context,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Show who holds which job since when; `claims release` takes one back by hand."""
    if context.invoked_subcommand is not None:
        return
    found = find.chargehand(application, store).claims()
    if json:
        show.json(found)
        return
    columns = ("JOB", "CLAIM", "QUEUE", "WORKER", "NODE", "SINCE", "CANCEL ASKED", "LABEL")
    show.table(
        columns,
        [
            (c.id, c.fence, c.queue, c.worker, c.node, show.ago(c.started_ms), show.ago(c.cancel_ms), c.label)
            for c in found
        ],
    )


@app.command("release")
def release(
    context: typer.Context,
    id: Annotated[str, typer.Argument(help="The job's id.")],
    claim: Annotated[
        int | None, typer.Option(help="Only if it is still this claim; `claims` shows the number.", min=1)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Take a job back from a worker that nobody can reach: it is queued again at once.

    The worker may still be at it: then it is done twice, at the same time, and what the first one says is not
    accepted any more. To stop a job that runs, cancel it; to end a worker, restart it.
    """
    above = context.parent.params if context.parent is not None else {}
    hand = find.chargehand(application or above.get("application"), store or above.get("store"))
    job = hand.job(id)
    if job.state is not State.RUNNING:
        raise Conflict(f"nobody holds job {id}: it is {job.state.value}")
    if claim is not None and claim != job.fence:
        raise Conflict(f"job {id} has been claimed anew since: that was claim {claim}, this is {job.fence}")
    holder = f"{job.worker or 'nobody yet'}, of node {job.node}, {show.ago(job.started_ms)}"
    meaning = (
        f"job {id} was taken by {holder}, who may still be at it: released, it is queued again and may be done twice"
    )
    if not yes:
        if not ask.somebody():
            raise ConfigurationError(f"{meaning}; say --yes if that is meant")
        ask.agreed(f"{show.safe(meaning)}. Release it?")
    if not hand.release(id, job.fence):
        raise Conflict(f"job {id} is no longer held by {holder}: nothing was changed")
    if json:
        show.json({"id": id, "claim": job.fence, "text": "is queued again"})
    else:
        show.line(f"{show.safe(id)}: is queued again; {show.safe(holder)}, may still be at it")
