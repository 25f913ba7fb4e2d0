"""`chargehand events`: prints events as lines."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
import typer

from chargehand import clock
from chargehand.cli import find, show
from chargehand.errors import summary
from chargehand.model.address import written
from chargehand.model.topic import RESYNC

MOST_REMEMBERED = 10_000
"""Nodes, workers, queues and jobs whose last line is kept for comparison; older ones are dropped."""


def events(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            help="Such as 'worker:*:status', queue:jobs, job:ID, flow:ID; default: everything but jobs and flows."
        ),
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", help="Exit after this many events.", min=1)] = None,
    app: find.App = None,
    store: find.Store = None,
    json: Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")] = False,
) -> None:
    """Print events until Ctrl+C: the full state first, then every change. Restarts of the node do not end it."""
    following = find.service(app, store).subscribe(*(topics or ()))
    try:
        lines = (show.encodable(msgspec.json.encode(event)) for event in following) if json else news(following)
        for number, text in enumerate(lines, 1):
            show.line(text)
            if number == count:
                break
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    finally:
        following.close()


def news(events: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yields each event as a line, unless the line equals the previous one about the same worker, queue or job."""
    last: dict[str, str] = {}
    nodes: set[str] = set()
    for event in events:
        if event["type"] == RESYNC or len(last) > MOST_REMEMBERED:
            last.clear()
        if event["type"] == "worker_update":
            nodes.add(event["worker"]["node"])
        text = line(event, several=len(nodes) > 1)
        what, untimed = _about(event), text.removeprefix(clock.local_time(event["timestamp_ms"]))
        if last.get(what) != untimed:
            last[what] = untimed
            yield text


def _about(event: dict[str, Any]) -> str:
    kind = event["type"].removesuffix("_update")
    return kind if event["type"] == RESYNC else _name(kind, event[kind], several=True)


def line(event: dict[str, Any], *, several: bool = False) -> str:
    """Returns one event as a line. `several`: workers are named with their nodes."""
    at = clock.local_time(event["timestamp_ms"])
    if event["type"] == RESYNC:
        return f"{at} full state again: {event['reason']}"
    kind = event["type"].removesuffix("_update")
    body = event[kind]
    if several and kind == "job" and body.get("worker") and body.get("node"):
        body = {**body, "worker": written(body["node"], body["worker"])}
    text = "was removed" if event.get("removed") else _LINES[kind](body)
    return show.safe(f"{at} {_name(kind, body, several=several)} {text}")


def _name(kind: str, body: dict[str, Any], *, several: bool) -> str:
    match kind:
        case "worker":
            return written(body["node"], body["component"]) if several else body["component"]
        case "node":
            return f"node {body['name']}"
        case "job" | "flow":
            return f"{kind} {body['id']}"
        case "queue":
            return "all queues" if body["name"] is None else f"queue {body['name']}"
        case _:
            return "verdict"


def _worker(worker: dict[str, Any]) -> str:
    flags = f" ({', '.join(worker['flags'])})" if worker["flags"] else ""
    several = worker.get("concurrency", 1) > 1 and worker.get("in_hand")
    runs = f"{worker['in_hand']} of {worker['concurrency']} jobs" if several else worker["current_job"]
    job = f", runs {runs}" if runs else ""
    progress = show.progress(worker["progress"] or {})
    why = f": {worker.get('cause') or summary(worker['text'])}" if worker["text"] else ""
    return f"is {worker['status']}{flags}{job}{f', {progress}' if progress else ''}{why}"


def _node(node: dict[str, Any]) -> str:
    where = f" on {node['machine']}" if node["machine"] else ""
    crews = show.staff((crew["crew"], crew["live"], crew["configured"]) for crew in node["crews"])
    why = f": {summary(node['reason'])}" if node["reason"] else ""
    return f"is {node['status']}{where}{f', {crews}' if crews else ''}{why}"


def _job(job: dict[str, Any]) -> str:
    about = " ".join(f"[{text}]" for text in (job["label"], job["item"]) if text)
    where = f" in {job['worker']}" if job["worker"] else ""
    progress = show.progress(job["progress"] or {}) if job["state"] == "running" else None
    error = f": {job.get('cause') or summary(job['error'])}" if job["error"] and job["state"] != "done" else ""
    what = f"of {job['queue']} {about}".rstrip()
    awaited = job.get("waits_for", 0)
    where = f", waits for {awaited} {'job' if awaited == 1 else 'jobs'}" if awaited else where
    return f"{what} is {job['state']}{where}{f', {progress}' if progress else ''}{error}"


def _flow(flow: dict[str, Any]) -> str:
    counts = flow["counts"]
    named = ("done", "running", "queued", "failed", "cancelled")
    numbers = ", ".join(f"{counts[name]} {name}" for name in named if counts[name])
    following = f" ({counts['following']} wait for other jobs)" if counts["following"] else ""
    return f"[{flow['name']}] is {flow['state']}: {numbers or 'no jobs'}{following}"


def _queue(queue: dict[str, Any]) -> str:
    counts = ", ".join(f"{queue[name]} {name}" for name in ("queued", "running", "done", "failed"))
    eta = "" if not queue["eta_s"] else f", done in {show.span(queue['eta_s'])}"
    rated = "" if queue.get("rate_next_ms") is None else f"; {show.rate_wait(queue['rate_next_ms'])}"
    return f"{counts}; {queue['rate']:g} a second{eta}{rated}"


def _health(health: dict[str, Any]) -> str:
    return "; ".join([health["status"], *(summary(error) or "" for error in health["errors"])])


_LINES = {"node": _node, "worker": _worker, "job": _job, "flow": _flow, "queue": _queue, "health": _health}
