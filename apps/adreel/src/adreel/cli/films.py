"""Commands about films: submit, status, result, retry, delete."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from adreel import clock, names
from adreel.cli.remote import Gone, Server, Unavailable, film_path, server
from adreel.errors import AdreelError
from adreel.records import STAGES

Url = Annotated[str | None, typer.Option(help="The address of the server; default: ADREEL_URL, or this machine.")]
Key = Annotated[str | None, typer.Option(help="An API key; default: ADREEL_KEY, or the token of this machine.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ENDED = ("done", "failed", "cancelled")
AWAY = 60.0
"""Seconds for which `submit` waits for a server that restarts."""
PAUSE = 0.5


def submit(
    files: Annotated[list[Path], typer.Argument(help="Films to upload.", exists=True, dir_okay=False, readable=True)],
    wait: Annotated[bool, typer.Option(help="Wait until the films are analysed.")] = True,
    as_json: Json = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Upload films and wait for their analysis. The exit status is 1 if one of them fails."""
    found: list[dict[str, Any]] = []
    tasks: list[TaskID] = []
    try:
        with server(url, key) as remote, _progress(quiet=as_json) as progress:
            for path in files:
                film, task = _upload(remote, path, progress)
                found.append(film)
                tasks.append(task)
            for number, task in enumerate(tasks):
                if wait and found[number]["id"]:
                    found[number] = _follow(remote, found[number], task, progress)
    finally:  # also after Ctrl+C: what was uploaded is analysed all the same
        if found:
            _show(found, as_json=as_json)
    if any(film["status"] not in ("done", "queued") for film in found):
        raise typer.Exit(1)


def _show(found: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for film in found:
        typer.echo(_line(film))


def _progress(*, quiet: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[stage]}"), TimeElapsedColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, disable=quiet or not console.is_terminal)


def _upload(remote: Server, path: Path, progress: Progress) -> tuple[dict[str, Any], TaskID]:
    name = names.shown(path.name)
    task = progress.add_task(Text(name).plain[:40], total=path.stat().st_size, stage="upload")
    try:
        return remote.submit(path, lambda count: progress.advance(task, count)), task
    except AdreelError as error:
        progress.update(task, stage="refused")
        return {"id": None, "name": name, "status": "refused", "error": str(error)}, task


def _follow(remote: Server, film: dict[str, Any], task: TaskID, progress: Progress) -> dict[str, Any]:
    progress.update(task, completed=0, total=len(STAGES), stage="queued")
    view, until = film, clock.monotonic() + AWAY
    while view["status"] not in ENDED:  # a server that restarts ends the stream
        try:
            for view in remote.follow(film["id"]):
                progress.update(task, completed=_share(view), stage=view.get("stage") or view["status"])
                until = clock.monotonic() + AWAY
        except Gone:
            progress.update(task, stage="deleted")
            return {**view, "status": "deleted"}
        except (httpx.TransportError, Unavailable):
            if clock.monotonic() > until:
                raise
            progress.update(task, stage="no answer")
        if view["status"] not in ENDED:
            clock.sleep(PAUSE)
    return view


def _share(view: dict[str, Any]) -> float:
    """Returns how many stages are done, with the part of the one that is going on."""
    done = 0.0
    for stage in view.get("stages") or ():
        if stage.get("state") == "done":
            done += 1
        elif stage.get("state") == "running" and stage.get("total"):
            done += min(1.0, (stage.get("done") or 0) / stage["total"])
    return done


def _line(film: dict[str, Any]) -> str:
    """Returns one line about a film."""
    what = film["status"]
    if what == "done":
        sure = f" ({film['confidence']:.0%})" if film.get("confidence") is not None else ""
        brand = f", {film['brands'][0]}" if film.get("brands") else ""
        scenes = film.get("scenes", 0)
        what = f"{film.get('category') or 'not sure'}{sure}{brand}, {scenes} scene{'s' * (scenes != 1)}"
    elif film.get("error"):
        what = f"{what}: {film['error']}"
    return f"{film['id'] or '-':21}  {film['name']}: {what}"


def status(
    film: Annotated[str | None, typer.Argument(help="The id of a film; all if none is given.")] = None,
    as_json: Json = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Show the newest films, or one film with its stages."""
    with server(url, key) as remote:
        if film is None:
            found = remote.ask("GET", "/jobs", params={"limit": 50})
        else:
            found = remote.ask("GET", film_path(film), params={"result": "false"})
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    elif film is None:
        for each in found["jobs"]:
            typer.echo(_line(each))
        if not found["jobs"]:
            typer.echo("no films yet: adreel submit FILE")
    else:
        typer.echo(_line(found))
        _table(found.get("stages") or [])


def _table(stages: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("stage", "state", "progress", "seconds", "worker"):
        table.add_column(column)
    for stage in stages:
        share = f"{stage.get('done') or 0:g} of {stage['total']:g}" if stage.get("total") else ""
        start, end = stage.get("started_ms"), stage.get("finished_ms")
        took = f"{(end - start) / 1000:.1f}" if start and end else ""
        about = Text(stage.get("worker") or stage.get("error") or "")
        table.add_row(stage["name"], stage.get("state", "waiting"), share, took, about)
    Console().print(table)


def result(
    film: Annotated[str, typer.Argument(help="The id of a film.")],
    chapters: Annotated[bool, typer.Option("--chapters", help="Print the scenes as WebVTT.")] = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Print the result of a film as JSON."""
    with server(url, key) as remote:
        if chapters:
            sys.stdout.write(remote.ask("GET", f"{film_path(film)}/chapters.vtt"))
            return
        found = remote.ask("GET", film_path(film))
    if "result" not in found:
        raise AdreelError(f"the film is {found['status']}{': ' + found['error'] if found.get('error') else ''}")
    if found["status"] != "done":
        why = f"{found['status']}{': ' + found['error'] if found.get('error') else ''}"
        typer.echo(f"the film is {why}; this is the earlier result", err=True)
    typer.echo(json.dumps(found["result"], indent=2, ensure_ascii=False))


def retry(
    film: Annotated[str, typer.Argument(help="The id of a failed film, or of one that is done.")],
    url: Url = None,
    key: Key = None,
) -> None:
    """Try a failed film again, or classify a finished one with the present categories."""
    with server(url, key) as remote:
        now = remote.ask("GET", film_path(film), params={"result": "false"})
        verb = "reanalyse" if now["status"] == "done" else "retry"
        typer.echo(_line(remote.ask("POST", f"{film_path(film)}/{verb}")))


def delete(
    films: Annotated[list[str], typer.Argument(help="The ids of films.")],
    url: Url = None,
    key: Key = None,
) -> None:
    """Delete films with their files. A stage that runs is stopped."""
    with server(url, key) as remote:
        for film in films:
            left = remote.ask("DELETE", film_path(film))
            typer.echo(f"{film}  {'is being deleted: a stage stops first' if left else 'deleted'}")
