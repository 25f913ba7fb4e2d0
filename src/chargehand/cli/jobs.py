"""`chargehand jobs`: enqueue, list, show; `many` has retry and cancel."""

import json as json_module
from typing import Annotated, Any

import msgspec
import typer

from chargehand import codec
from chargehand.app import Chargehand
from chargehand.cli import bulk, crashes, find, show
from chargehand.crew import Crew, JobOptions, Ref
from chargehand.errors import PayloadError, UnknownCrew
from chargehand.model.job import IN_WORDS, JobRecord, NewJob, State
from chargehand.model.records import CrashFilter, JobFilter
from chargehand.settings.plan import CrewPlan, milliseconds

app = typer.Typer(help="Enqueue, list, show, retry and cancel jobs.", no_args_is_help=True)
app.command("retry")(bulk.retry)
app.command("cancel")(bulk.cancel)


@app.command("enqueue")
def enqueue(
    crew: Annotated[str, typer.Argument(help="The crew that is to do it.")],
    payload: Annotated[str, typer.Argument(help="JSON; - reads it from standard input.")] = "null",
    application: find.App = None,
    store: find.Store = None,
    key: Annotated[
        str | None, typer.Option(help="Unique: a second one while the first is queued or running is the first.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="For people.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first.")] = None,
    delay: Annotated[float, typer.Option(help="Seconds from now.")] = 0.0,
    wait: Annotated[float | None, typer.Option(help="Wait so many seconds for the result and print it.")] = None,
    json: find.Json = False,
) -> None:
    """Enqueue one job and print its id. With --app its type is checked; without, only that the crew exists."""
    hand = find.chargehand(application, store)
    if wait is not None:
        milliseconds("wait", wait)
    text = standard_input() if payload == "-" else payload
    value = codec.from_json(text, None, "the payload")
    options: JobOptions = {"delay": delay}
    for name, given in (("key", key), ("label", label), ("priority", priority)):
        if given is not None:
            options[name] = given  # type: ignore[literal-required]
    (done,) = hand.enqueue_jobs([_job(hand, application, crew, value, options)], None)
    ref = Ref[Any](hand, done.id, created=done.created)
    if wait is not None:
        show.json({"id": ref.id, "created": ref.created, "result": ref.wait(wait)})
    elif json:
        show.json({"id": ref.id, "created": ref.created})
    else:
        show.line(ref.id if ref.created else f"{ref.id} (it was there already: its key is taken)")


def standard_input() -> str:
    """All of it, as text."""
    try:
        return typer.get_binary_stream("stdin").read().decode()
    except UnicodeDecodeError as error:
        raise PayloadError(f"the payload on standard input is not UTF-8: {error}") from error


def _job(hand: Chargehand, application: str | None, crew: str, value: Any, options: JobOptions) -> NewJob:
    if application is not None:
        known = hand.find_crew(crew)
        return known.new_job(codec.as_type(value, known.takes, f"the payload for crew {crew!r}"), **options)
    rows = {row.name: row for row in hand.known_crews()}
    if crew not in rows:
        names = ", ".join(sorted(rows)) or "none yet; a node writes them when it starts"
        raise UnknownCrew(f"there is no crew {crew!r}; this store knows: {names}")
    plan = msgspec.convert(rows[crew], CrewPlan, from_attributes=True)
    return Crew[Any, Any](hand, plan, None, None).new_job(value, **options)


@app.command("list")
def list_jobs(
    application: find.App = None,
    store: find.Store = None,
    queue: Annotated[str | None, typer.Option(help="Only of this queue.")] = None,
    state: Annotated[State | None, typer.Option(help="Only in this state.")] = None,
    reason: bulk.Reason = None,
    text: bulk.Text = None,
    limit: Annotated[int, typer.Option(help="How many, newest first.", min=1, max=1000)] = 20,
    before: Annotated[str | None, typer.Option(help="The page after the one that ended with this id.")] = None,
    json: find.Json = False,
) -> None:
    """List jobs, newest first."""
    hand = find.chargehand(application, store)
    if before is not None:
        hand.job(before)  # a page after a job that does not exist would look like an empty store
    jobs = hand.jobs(JobFilter(queue=queue, state=state, reason=reason, text=text, limit=limit, before=before))
    if json:
        show.json(jobs)
        return
    columns = ("ID", "QUEUE", "STATE", "LABEL", "CREATED", "RAISED", "CRASHES", "WORKER", "REASON")
    show.table(
        columns,
        [
            (j.id, j.queue, j.state.value, j.label, show.ago(j.created_ms), j.attempts, j.crashes, j.worker, j.reason)
            for j in jobs
        ],
    )
    if len(jobs) == limit:
        show.line(f"more: --before {jobs[-1].id}")


@app.command("show")
def show_job(
    id: Annotated[str, typer.Argument(help="The job's id.")],
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Show one job with its attempts, and how workers died that had it in hand."""
    hand = find.chargehand(application, store)
    job, attempts = hand.job(id), hand.attempts(id)
    reports = hand.crashes(CrashFilter(job=id))
    if json:
        shown = {IN_WORDS.get(name, name): value for name, value in msgspec.structs.asdict(job).items()}
        show.json({**shown, "attempt_history": attempts, "crash_reports": reports})
        return
    for name, value in _facts(job):
        show.line(f"{name:14} {show.safe(value)}")
    if job.error:
        show.line("error")
        for text in job.error.splitlines():
            show.line(f"  {show.safe(text)}")
    show.line("")
    columns = ("ATTEMPT", "STARTED", "TOOK", "WORKER", "PID", "NODE", "OUTCOME")
    show.table(
        columns,
        [
            (n, show.ago(a.started_ms), show.span(a.duration_ms / 1000), a.worker, a.pid, a.node, a.outcome)
            for n, a in enumerate(attempts, 1)
        ],
    )
    if reports:
        show.line("")
        crashes.reports(reports)


def _facts(job: JobRecord) -> list[tuple[str, Any]]:
    facts: list[tuple[str, Any]] = []
    for name in JobRecord.__struct_fields__:
        value = getattr(job, name)
        if value is None or name in ("error", "fence", "seq"):
            continue
        if name == "progress":
            value = show.progress(msgspec.json.decode(msgspec.json.encode(value)))
        elif name in ("payload", "result"):
            value = json_module.dumps(msgspec.json.decode(msgspec.json.encode(value)), ensure_ascii=False)
        elif name == "attempts":
            name = "failed tries"
        elif name == "timeout_ms":
            name, value = "timeout", show.span(value / 1000)
        elif name == "cancel_ms":
            name, value = "cancel asked", show.ago(value)
        elif name.endswith("_ms"):
            name, value = name.removesuffix("_ms"), show.ago(value)
        facts.append((name, value))
    return facts
