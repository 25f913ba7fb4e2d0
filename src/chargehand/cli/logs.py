"""`chargehand logs`: the log lines of the node and its workers."""

from typing import Annotated, Any

import typer

from chargehand import clock
from chargehand.cli import find, hints, show

SHOWN_LEVELS = ("warning", "error", "critical")
"""Levels that are shown in front of the text."""


def logs(
    who: Annotated[
        str | None, typer.Argument(help="A crew by its name, or a worker as crew:index or node/crew:index.")
    ] = None,
    job: Annotated[str | None, typer.Option(help="Only lines about this job.")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many of the last lines.", min=0, max=5000)] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new lines until Ctrl+C.")] = False,
    node: find.Node = None,
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Show the last lines that nodes and their workers logged or printed."""
    service = find.service(app, store)
    job = find.job_id(service, job)
    if follow:
        hints.about_job(service, job)
    shown = 0
    try:
        for entry in service.logs(find.scoped(who, node), job=job, count=lines, follow=follow):
            shown += 1
            if json:
                show.json_line(entry)
            else:
                show.line(_line(entry))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    if not shown:
        hints.about_job(service, job)


def _line(entry: dict[str, Any]) -> str:
    at = clock.local_time(entry["at_ms"])
    who = entry["component"] or "node"
    job = f" [{entry['job']}]" if entry["job"] else ""
    level = f" {entry['level']}:" if entry["level"] in SHOWN_LEVELS else ""
    return show.safe(f"{at} {who}{job}{level} {entry['text']}")
