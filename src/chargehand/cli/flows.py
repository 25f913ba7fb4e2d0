"""`chargehand flows`: list and show flows, and cancel, retry or delete each as one."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import typer

from chargehand.cli import ask, find, show
from chargehand.errors import EXIT_ERROR
from chargehand.host.service import Service
from chargehand.model.fleet.orders import Answer, AnswerCode
from chargehand.model.flows import FlowCounts, FlowFilter, FlowRecord, FlowStage, JobLink
from chargehand.model.job import FINISHED, JobRecord, State
from chargehand.model.records import JobFilter

FEW = 10
"""Jobs of each kind that are listed one by one."""
DEEPEST = 20
"""Jobs that are asked in turn what each of them waits for."""

app = typer.Typer(help="List and show flows; cancel, retry or delete a flow with all its jobs.")
Id = Annotated[str, typer.Argument(help="The flow's id, or its last 8 characters.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.callback(invoke_without_command=True)
def flows(
    context: typer.Context,
    application: find.App = None,
    store: find.Store = None,
    state: Annotated[
        Literal["running", "done", "failed", "cancelled"] | None, typer.Option(help="Only in this state.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Only flows with this text in id or name.")] = None,
    limit: Annotated[int, typer.Option(help="How many, newest first.", min=1, max=1000)] = 20,
    before: Annotated[str | None, typer.Option(help="The page after the one that ended with this id.")] = None,
    json: find.Json = False,
) -> None:
    """List flows, newest first; `flows show ID` shows one."""
    if context.invoked_subcommand is not None:
        return
    service = find.service(application, store)
    if before is not None:
        before = service.flow(before).id  # raises FlowNotFound; otherwise the page would be empty
    found = service.flows(FlowFilter(state=state, text=text, limit=limit, before=before))
    if json:
        show.json(found)
        return
    columns = ("ID", "STATE", "JOBS", "DONE", "RUNNING", "WAITING", "FAILED", "CREATED", "TOOK", "NAME")
    show.table(columns, [_row(flow) for flow in found]) if found else show.line("no flows")


def _row(flow: FlowRecord) -> list[Any]:
    counts = flow.counts
    took = None if flow.ended_ms is None else show.span(max(0, flow.ended_ms - flow.created_ms) / 1000)
    numbers = [_all(counts), counts.done, counts.running, counts.queued, counts.failed]
    return [flow.id, flow.state, *numbers, show.ago(flow.created_ms), took, flow.name]


def _all(counts: FlowCounts) -> int:
    return counts.live + counts.done + counts.failed + counts.cancelled


@app.command("show")
def show_flow(
    context: typer.Context,
    id: Id,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Show one flow: its jobs by queue, what runs, what it waits for, and what has failed."""
    service = _service(context, application, store)
    flow = service.flow(id)
    stages = service.stages(flow.id)
    running = service.jobs(JobFilter(flow=flow.id, state=State.RUNNING, limit=FEW)) if flow.counts.running else []
    failed = service.jobs(JobFilter(flow=flow.id, state=State.FAILED, limit=FEW)) if flow.counts.failed else []
    running, failed = service.shown(running), service.shown(failed)
    waits = _waits_for(service, flow) if flow.ended_ms is None and not running else None
    if json:
        about = {name: getattr(flow, name) for name in FlowRecord.__struct_fields__}
        show.json({**about, "stages": stages, "running": running, "failed_jobs": failed, "waits_for": waits})
        return
    for name, value in _facts(flow):
        show.line(f"{name:14} {show.safe(value)}")
    if waits is not None:
        show.line(f"{'waits for':14} {show.safe(_named(waits))}")
    show.line("")
    _stages(stages)
    for title, jobs, count in (("running", running, flow.counts.running), ("failed", failed, flow.counts.failed)):
        if jobs:
            show.line("")
            _jobs(title, jobs, count)


def _facts(flow: FlowRecord) -> list[tuple[str, Any]]:
    counts = flow.counts
    named = ("done", "running", "queued", "failed", "cancelled")
    numbers = ", ".join(f"{getattr(counts, name):,} {name}" for name in named if getattr(counts, name))
    following = f" ({counts.following:,} wait for other jobs)" if counts.following else ""
    facts: list[tuple[str, Any]] = [
        ("id", flow.id),
        ("name", flow.name),
        ("state", flow.state),
        ("jobs", f"{_all(counts):,}: {numbers or 'none'}{following}"),
        ("created", show.moment(flow.created_ms)),
    ]
    if flow.cancel_ms is not None:
        facts.append(("cancelled", show.moment(flow.cancel_ms)))
    if flow.ended_ms is not None:
        took = show.span(max(0, flow.ended_ms - flow.created_ms) / 1000)
        facts.append(("ended", f"{show.moment(flow.ended_ms)}, took {took}"))
    before = flow.ends - (flow.ended_ms is not None)
    if before:
        facts.append(("ended before", f"{before} times" if before > 1 else "once"))
    if flow.on_end is not None:
        facts.append(("on end", f"job {flow.on_end}"))
    return facts


def _stages(stages: Sequence[FlowStage]) -> None:
    columns = ("QUEUE", "WAITING", "RUNNING", "DONE", "FAILED", "CANCELLED", "BEGAN", "TOOK")
    ends = ("running", "done", "failed", "cancelled")
    rows = [
        [stage.queue, _waiting(stage.counts), *(getattr(stage.counts, name) for name in ends), *_times(stage)]
        for stage in stages
    ]
    show.table(columns, rows)


def _waiting(counts: FlowCounts) -> str:
    if not counts.following:
        return f"{counts.queued}"
    return f"{counts.queued} ({counts.following} for other jobs)"


def _times(stage: FlowStage) -> list[str | None]:
    if stage.begun_ms is None:
        return [None, None]
    took = None if stage.ended_ms is None else show.span(max(0, stage.ended_ms - stage.begun_ms) / 1000)
    return [show.ago(stage.begun_ms), took]


def _jobs(title: str, jobs: Sequence[JobRecord], count: int) -> None:
    if title == "running":
        rows = [(job.id, job.queue, job.label, show.ago(job.started_ms), job.worker) for job in jobs]
        show.table(("RUNNING JOB", "QUEUE", "LABEL", "STARTED", "WORKER"), rows)
    else:
        rows = [(job.id, job.queue, job.label, job.reason, job.summary) for job in jobs]
        show.table(("FAILED JOB", "QUEUE", "LABEL", "REASON", "ERROR"), rows)
    if count > len(jobs):
        show.line(f"… and {count - len(jobs):,} more")


def _waits_for(service: Service, flow: FlowRecord) -> dict[str, Any] | None:
    """Returns the job that a flow waits for while none of its jobs runs: one of its own, or another one."""
    found = service.jobs(JobFilter(flow=flow.id, state=State.QUEUED, limit=FEW))
    if not found:
        return None
    job = next((each for each in found if not each.waits_for), found[-1])
    for _ in range(DEEPEST):
        awaited = _awaited(service, job)
        if awaited is None:
            break
        job = service.job(awaited.id)
    why = service.why_waiting(job.queue) if job.state is State.QUEUED else None
    names = ("id", "queue", "label", "state", "run_at_ms", "started_ms")
    return {**{name: getattr(job, name) for name in names}, "why": why}


def _awaited(service: Service, job: JobRecord) -> JobLink | None:
    """Returns the first job that a job still waits for."""
    found = service.relations(job.id).predecessors if job.waits_for else ()
    return next((each for each in found if each.state not in FINISHED), None)


def _named(waits: dict[str, Any]) -> str:
    about = f"job {waits['id']} of queue {waits['queue']}"
    if waits["state"] == State.RUNNING:
        return f"{about}, which was started {show.ago(waits['started_ms'])}"
    return f"{about}, which is {waits['state']}" + (f": {waits['why']}" if waits["why"] else "")


@app.command("cancel")
def cancel(
    context: typer.Context,
    id: Id,
    yes: Yes = False,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Cancel all jobs of a flow: queued ones at once; a running job is asked to stop, and its worker is replaced if it
    does not.

    Exit status 1 if the flow has ended.
    """
    service = _service(context, application, store)
    _confirm(service, id, "Cancel", yes)
    _carry_out(find.flow_id(service, id) or id, service.cancel_flow, json=json)


@app.command("retry")
def retry(
    context: typer.Context,
    id: Id,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Queue the failed and cancelled jobs of a flow again, with cleared counters. A flow that has ended goes on.

    Exit status 1 if there are none.
    """
    service = _service(context, application, store)
    _carry_out(find.flow_id(service, id) or id, service.retry_flow, json=json)


@app.command("delete")
def delete(
    context: typer.Context,
    id: Id,
    yes: Yes = False,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Delete a flow that has ended, with its jobs and their attempts."""
    service = _service(context, application, store)
    _confirm(service, id, "Delete", yes)
    _carry_out(find.flow_id(service, id) or id, service.delete_flow, json=json)


def _service(context: typer.Context, application: str | None, store: str | None) -> Service:
    """Returns the service of a subcommand; `flows --store PATH show ID` means the same as `flows show ID --store`."""
    above = context.parent.params if context.parent is not None else {}
    return find.service(application or above.get("application"), store or above.get("store"))


def _confirm(service: Service, id: str, verb: str, yes: bool) -> None:
    if not yes and ask.interactive():
        flow = service.flow(id)
        ask.confirm(f"{verb} flow {show.safe(flow.name)} with {_all(flow.counts):,} jobs?")


def _carry_out(id: str, act: Callable[[str], Answer], *, json: bool) -> None:
    answer = act(id)
    if json:
        show.json({"id": answer.component, "text": answer.text, "code": answer.code})
    else:
        show.line(f"{show.safe(answer.component)}: {show.safe(answer.text)}")
    if answer.code in (AnswerCode.NOT_CANCELLED, AnswerCode.NOT_RETRIED):
        raise typer.Exit(EXIT_ERROR)
