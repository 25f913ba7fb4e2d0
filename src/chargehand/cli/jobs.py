"""`chargehand jobs`: enqueue, list and show jobs; `bulk` holds retry, cancel, delete and clear."""

import json as json_module
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
import typer

from chargehand import codec
from chargehand.cli import bulk, crashes, find, hints, orders, show
from chargehand.crew import JobOptions, outcome, wait_for_end
from chargehand.errors import ConfigurationError, JobNotFound, PayloadError, UnknownCrew
from chargehand.host.actor import acting_as, user
from chargehand.host.service import Service
from chargehand.model.flows import JobLink, Relations
from chargehand.model.job import FINISHED, JobRecord, NewJob, State
from chargehand.model.job_query import merged, parse
from chargehand.model.records import CrashFilter, JobFilter, SearchPlace, Sort
from chargehand.settings.plan import CrewPlan, milliseconds, new_job

FEW = 10
"""Related jobs that are named."""

app = typer.Typer(help="Enqueue, list, show, retry, cancel and delete jobs.", no_args_is_help=True)
app.command("retry")(bulk.retry)
app.command("cancel")(bulk.cancel)
app.command("delete")(bulk.delete)
app.command("clear")(bulk.clear)


@app.command("enqueue")
def enqueue(
    crew: Annotated[str, typer.Argument(help="The crew that runs the job.")],
    payload: Annotated[str, typer.Argument(help="The payload as JSON; - reads it from standard input.")] = "null",
    application: find.App = None,
    store: find.Store = None,
    key: Annotated[
        str | None, typer.Option(help="A unique key: while a job with it is queued or running, no other is created.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="A text that is shown with the job.")] = None,
    priority: Annotated[int | None, typer.Option(help="Jobs with a higher priority run first.")] = None,
    delay: Annotated[float, typer.Option(help="Seconds until the job is due.")] = 0.0,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="A short text for filters; may be given several times.")
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(help="The id of a job that must end before this one is started; may be given several times."),
    ] = None,
    if_failed: Annotated[
        Literal["fail", "run"], typer.Option(help="What to do if a job of --after fails or is cancelled.")
    ] = "fail",
    flow: Annotated[str | None, typer.Option(help="The id of the flow that the job belongs to.")] = None,
    share: Annotated[str | None, typer.Option(help="Waiting jobs with different shares take turns.")] = None,
    sequence: Annotated[
        str | None, typer.Option(help="Jobs with the same sequence run one after the other, in order.")
    ] = None,
    unique_for: Annotated[
        str | None, typer.Option(help="Create no other job with the key for so long: 90s, 10m, 1.5h, 2d.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="The payload replaces that of a waiting job with the same key.")
    ] = False,
    expires: Annotated[
        str | None, typer.Option(help="Cancel the job unless it was started within so long: 90s, 10m, 1.5h, 2d.")
    ] = None,
    meta: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE, shown with the job and given to its handler; may be given several times."),
    ] = None,
    wait: Annotated[float | None, typer.Option(help="Wait this many seconds for the result and print it.")] = None,
    json: find.Json = False,
) -> None:
    """Enqueue one job and print its id. With --app its type is checked; without, only that the crew exists."""
    service = find.service(application, store)
    if wait is not None:
        milliseconds("wait", wait)
    text = standard_input() if payload == "-" else payload
    value = codec.parse_json(text, None, "the payload")
    options: JobOptions = {"delay": delay}
    if key is not None:
        options["key"] = key
    if label is not None:
        options["label"] = label
    if priority is not None:
        options["priority"] = priority
    if tags:
        options["tags"] = tags
    if meta:
        options["meta"] = dict(map(_pair, meta))
    before = [_predecessor(service, each) for each in after or ()]
    options |= _of_flows(before, if_failed, find.flow_id(service, flow), share, sequence, unique_for, replace, expires)
    new = _job(service, application, crew, value, options)
    with acting_as(user(), "cli", person=True):
        (done,) = service.enqueue([new])
    if wait is not None:
        job = wait_for_end(service, done.id, wait)
        outcome(job, None)  # raises if the job failed or was cancelled
        show.json({"id": done.id, "created": done.created, "result": job.result})
    elif json:
        show.json({"id": done.id, "created": done.created, "replaced": done.replaced})
    elif done.replaced:
        show.line(f"{done.id} (not created: its payload was replaced)")
    else:
        show.line(done.id if done.created else f"{done.id} (not created: a job with this key exists)")


def _pair(text: str) -> tuple[str, str]:
    """Returns the name and the value of `NAME=VALUE`. Raises PayloadError."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise PayloadError(f"--meta is {text!r}; expected NAME=VALUE")
    return name, value


def _predecessor(service: Service, given: str) -> str:
    """Returns the id of the job that --after names. Raises BadParameter if it names a time."""
    try:
        return service.job(given).id
    except JobNotFound:
        if orders.is_length(given):
            what = f"{given!r} names no job; to wait for a time use --delay {orders.seconds(given, '--after'):g}"
            raise typer.BadParameter(what, param_hint="--after") from None
        return given


def _of_flows(
    after: list[str],
    if_failed: Literal["fail", "run"],
    flow: str | None,
    share: str | None,
    sequence: str | None,
    unique_for: str | None,
    replace: bool,
    expires: str | None,
) -> JobOptions:
    """Returns the options that relate a job to others, as far as they are given."""
    options: JobOptions = {}
    if after:
        options["after"] = after
    if if_failed != "fail":
        options["if_failed"] = if_failed
    if flow is not None:
        options["flow"] = flow
    if share is not None:
        options["share"] = share
    if sequence is not None:
        options["sequence"] = sequence
    if unique_for is not None:
        options["unique_for"] = orders.seconds(unique_for, "--unique-for")
    if replace:
        options["replace"] = True
    if expires is not None:
        options["expires"] = orders.seconds(expires, "--expires")
    return options


def standard_input() -> str:
    """Returns standard input as text. Raises PayloadError if it is not UTF-8."""
    try:
        return typer.get_binary_stream("stdin").read().decode()
    except UnicodeDecodeError as error:
        raise PayloadError(f"the payload on standard input is not UTF-8: {error}") from error


def _job(service: Service, application: str | None, crew: str, value: Any, options: JobOptions) -> NewJob:
    if application is not None:
        known = find.application(application).find_crew(crew)
        return known.new_job(codec.as_type(value, known.takes, f"the payload for crew {crew!r}"), **options)
    rows = {row.name: row for row in service.known_crews()}
    if crew not in rows:
        names = ", ".join(sorted(rows)) or "none yet; a node registers them when it starts"
        raise UnknownCrew(f"there is no crew {crew!r}; this store knows: {names}")
    plan = msgspec.convert(rows[crew], CrewPlan, from_attributes=True)
    return new_job(plan, codec.to_json(value, f"the payload for crew {crew!r}"), **options)


@app.command("list")
def list_jobs(
    filter: bulk.Words = None,
    application: find.App = None,
    store: find.Store = None,
    queue: Annotated[str | None, typer.Option(help="Only of this queue.")] = None,
    state: Annotated[State | None, typer.Option(help="Only in this state.")] = None,
    reason: bulk.Reason = None,
    tag: bulk.Tag = None,
    text: bulk.Text = None,
    flow: Annotated[str | None, typer.Option(help="Only jobs of the flow with this id.")] = None,
    sort: Annotated[Sort, typer.Option(help="The order: by age, duration or priority.")] = Sort.NEWEST,
    limit: Annotated[int, typer.Option(help="How many, newest first.", min=1, max=1000)] = 20,
    before: Annotated[str | None, typer.Option(help="The page after the one that ended with this id.")] = None,
    groups: Annotated[bool, typer.Option("--groups", help="Group the failed jobs by their cause.")] = False,
    json: find.Json = False,
) -> None:
    """List jobs, newest first, that match a filter such as 'queue:tag state:failed error:"CUDA" since:1h label:~flac'.

    Fields: queue, state, reason, error, tags, since, until, older, worker, node, payload.KEY, label, id, key, flow,
    share, sequence, item. ~ finds a part, * stands for any characters; words without a field are searched in id, label,
    key, item and error. A search that no index answers ends after a second, and says how far it came.
    """
    service = find.service(application, store)
    flow = find.flow_id(service, flow)
    options = JobFilter(queue=queue, state=state, reason=reason, tag=tag, text=text, flow=flow)
    which = msgspec.structs.replace(merged(options, parse(" ".join(filter or ()))), limit=limit)
    if groups:
        _list_failures(service, which, json=json)
        return
    after = None
    if before is not None:
        if sort not in (Sort.NEWEST, Sort.OLDEST):
            raise ConfigurationError(f"--before needs the order newest or oldest, not {sort}")
        after = SearchPlace(0, service.job(before).seq)  # raises JobNotFound; otherwise the page would be empty
    found = service.search(which, sort, after)
    jobs = service.shown(found.jobs)
    if not jobs:
        hints.about_queue(service, application, which.queue)
        hints.about_flow(service, which.flow)
    if json:
        show.json(jobs)
    else:
        columns = ("ID", "QUEUE", "STATE", "LABEL", "CREATED", "RAISED", "CRASHES", "WORKER", "NODE", "REASON")
        rows = [
            (
                j.id, j.queue, j.state.value, j.label, show.ago(j.created_ms), j.failures, j.crashes,
                j.worker, j.node, _why(j),
            )
            for j in jobs
        ]  # fmt: skip
        show.table(columns, rows) if rows else show.line("no jobs")
        if len(jobs) == limit:
            show.line(f"more: --before {jobs[-1].id}")
    hints.searched(found.searched_ms)


def _why(job: JobRecord) -> str | None:
    """Returns why a job ended, or was tried again, in one line."""
    if job.reason is None or job.cause is None:
        return job.reason or job.cause
    return job.cause if job.reason == "raised" else f"{job.reason}: {job.cause}"


def _list_failures(service: Service, which: JobFilter, *, json: bool) -> None:
    """Lists the failed jobs that match by their causes."""
    found = service.failures(which)
    if json:
        show.json(found)
    else:
        rows = [
            (group.count, group.cause + (f", {group.where}" if group.where else ""), ", ".join(group.queues),
             None if group.last_ms is None else show.ago(group.last_ms), group.filter)
            for group in found.groups
        ]  # fmt: skip
        columns = ("FAILED", "CAUSE", "QUEUES", "LAST", "FILTER")
        show.table(columns, rows) if rows else show.line("no failed jobs")
    hints.searched(found.searched_ms)


@app.command("show")
def show_job(
    id: Annotated[str, typer.Argument(help="The job's id, or its last 8 characters.")],
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Show one job with its attempts, the jobs that it is related to, and the crash reports of workers that held it."""
    service = find.service(application, store)
    (job,) = service.shown([service.job(id)])
    attempts = service.attempts(job.id)
    relations = service.relations(job.id)
    reports = service.crashes(CrashFilter(job=job.id))
    if json:
        shown = msgspec.structs.asdict(job)
        about = msgspec.structs.asdict(relations)
        show.json({**shown, "attempt_history": attempts, "crash_reports": reports, **about})
        return
    for name, value in (*_facts(job), *_related(job, relations)):
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
        if value is None or name in ("error", "claim", "seq", "attempts", "waits_for"):
            continue
        if name == "progress":
            value = show.progress(msgspec.json.decode(msgspec.json.encode(value)))
        elif name in ("payload", "result"):
            value = json_module.dumps(msgspec.json.decode(msgspec.json.encode(value)), ensure_ascii=False)
        elif name == "meta":
            value = json_module.dumps(value, ensure_ascii=False)
        elif name == "tags":
            value = ", ".join(value)
        elif name == "timeout_ms":
            name, value = "timeout", show.span(value / 1000)
        elif name == "cancel_ms":
            name, value = "cancel asked", show.ago(value)
        elif name == "expires_at_ms":
            name, value = "expires", show.ago(value)
        elif name.endswith("_ms"):
            name, value = name.removesuffix("_ms"), show.ago(value)
        facts.append((name, value))
    return facts


def _related(job: JobRecord, relations: Relations) -> list[tuple[str, str]]:
    """Returns the jobs that a job waits for, those that wait for it, and its children; the first of each by name."""
    facts: list[tuple[str, str]] = []
    awaited = [each for each in relations.predecessors if each.state not in FINISHED]
    ended = [each for each in relations.predecessors if each.state in FINISHED]
    if job.waits_for:
        facts.append(("waits for", _named(awaited, job.waits_for)))
    for name, found, count in (
        ("predecessors", ended, relations.related.predecessors - job.waits_for),
        ("followers", relations.followers, relations.related.followers),
        ("children", relations.children, relations.related.children),
    ):
        if count:
            facts.append((name, _named(found, count)))
    return facts


def _named(jobs: Sequence[JobLink], count: int) -> str:
    """Returns a number of jobs, and the first of them by id, label or queue, and state."""
    each = [f"{job.id} ({job.label or job.queue}, {job.state.value})" for job in jobs[:FEW]]
    more = f", and {count - len(each):,} more" if each and count > len(each) else ""
    return f"{count:,} {'job' if count == 1 else 'jobs'}" + (f": {', '.join(each)}{more}" if each else "")
