"""`chargehand crashes`: the crash reports of workers."""

from typing import Annotated, Any

import typer

from chargehand.cli import find, hints, show
from chargehand.model import address, routing
from chargehand.model.error_line import own_frames
from chargehand.model.fleet.death import signal_in_words
from chargehand.model.records import CrashFilter, CrashRecord


def crashes(
    id: Annotated[
        str | None,
        typer.Argument(help="Show the report with this id, or end of an id, in full; without it, reports are listed."),
    ] = None,
    worker: Annotated[str | None, typer.Option(help="Only of this worker, as crew:index or node/crew:index.")] = None,
    crew: Annotated[str | None, typer.Option(help="Only of this crew.")] = None,
    job: Annotated[str | None, typer.Option(help="Only of workers that ran this job.")] = None,
    node: Annotated[str | None, typer.Option(help="Only of workers of this node.", metavar="NAME")] = None,
    limit: Annotated[int, typer.Option(help="How many, newest first.", min=1, max=1000)] = 20,
    before: Annotated[str | None, typer.Option(help="The page after the one that ended with this id.")] = None,
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Show how workers crashed: reason, exit code or signal, the running job, stack traces, last log lines."""
    service = find.service(app, store)
    if id is not None:
        report = service.crash(id)
        show.json(report) if json else _report(report)
        return
    if before is not None:
        before = service.crash(before).id
    job = find.job_id(service, job)
    named, component = routing.split(worker)
    component = component and address.component_of(component)
    wanted = CrashFilter(component=component, crew=crew, job=job, node=node or named, limit=limit, before=before)
    found = service.crashes(wanted)
    if not found:
        hints.about_crew(service, app, crew)
        hints.about_crew(service, app, component and component.split(":")[1])
        hints.about_job(service, job)
    if json:
        show.json(found)
        return
    reports(found)
    if len(found) == limit:
        show.line(f"more: --before {found[-1].id}")


def reports(found: list[CrashRecord]) -> None:
    """Prints a table of crash reports."""
    columns = ("ID", "WHEN", "WORKER", "NODE", "REASON", "JOB", "WHAT FOLLOWED", "CAUSE")
    rows = [(c.id, show.ago(c.at_ms), c.component, c.node, c.reason, c.job, c.follows, c.cause) for c in found]
    show.table(columns, rows) if rows else show.line("no crash reports")


def _ended_by(report: CrashRecord) -> str | None:
    if report.signal is not None:
        return signal_in_words(report.signal)
    return None if report.exit_code is None else f"exit code {report.exit_code}"


def _report(report: CrashRecord) -> None:
    memory = None if report.memory is None else f"{report.memory / 2**20:.0f} MiB"
    uptime = "never ready" if report.uptime_ms is None else show.span(report.uptime_ms / 1000)
    facts: list[tuple[str, Any]] = [
        ("id", report.id), ("when", show.moment(report.at_ms)), ("worker", report.component), ("node", report.node),
        ("pid", report.pid), ("reason", report.reason), ("ended by", _ended_by(report)), ("cause", report.cause),
        ("running job", report.job), ("memory", memory), ("ran for", uptime),
        ("charged", "to the worker" if report.charged else "not to the worker"), ("then", report.follows),
    ]  # fmt: skip
    for name, value in facts:
        if value is not None:
            show.line(f"{name:12} {show.safe(value)}")
    own = own_frames(report.text) or own_frames(report.stacks)
    traceback = report.text.splitlines()
    for title, lines in (
        ("frames of the application", [line for frame in own for line in frame.splitlines()]),
        ("error", traceback if len(traceback) > 1 else []),
        ("output that was no valid frame", report.frames),
        ("stack traces", report.stacks.splitlines()),
        ("last log lines", report.lines),
    ):
        if lines:
            show.line(f"\n{title}:")
            for text in lines:
                show.line(f"  {show.safe(text)}")
