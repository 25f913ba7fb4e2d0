"""Commands for files: write, undo, errors."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tonearm import report, written
from tonearm.cli.common import HomeOption, at_work, called, counted, opened
from tonearm.errors import TonearmError
from tonearm.labels import Tier
from tonearm.library import Folder, Library, shown
from tonearm.tags import Mode, Refused, TextError, Unchanged, parse_ontos

Folders = Annotated[list[Path] | None, typer.Argument(help="Folders; all if none is given.")]


def write(
    folders: Folders = None,
    where: HomeOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would change.")] = False,
    mode: Annotated[Mode | None, typer.Option(help="minimal: labels; full: also scores. Stored per folder.")] = None,
    onto: Annotated[
        list[str] | None, typer.Option(help="Also write to a standard tag: mood=MOOD:fill-empty. Stored per folder.")
    ] = None,
    tier: Annotated[
        Tier | None, typer.Option(help="Tier of the labels to write, from few and certain to many. Stored per folder.")
    ] = None,
    hard_links: Annotated[
        bool | None, typer.Option(help="Also write files with several hard links. Stored per folder.")
    ] = None,
    keep_mtime: Annotated[
        bool | None, typer.Option(help="Keep the modification time of files. Stored per folder.")
    ] = None,
) -> None:
    """Write labels into the tags of the files, also of songs that are analysed later; --mode none ends this.

    Only folders with a write mode are changed, and within working hours.
    """
    library = opened(where)
    for folder in called(library, folders):
        given: dict[str, Any] = {
            "mode": mode,
            "onto": tuple(onto) if onto else None,
            "tier": tier,
            "hard_links": hard_links,
            "keep_mtime": keep_mtime,
        }
        changed = _changed(folder, {name: value for name, value in given.items() if value is not None})
        if changed.mode == "none":
            if folder.mode != "none" and not dry_run:
                written.end(library, folder)
            typer.echo(f"{shown(folder.root)}: mode none, nothing is written; use --mode minimal or --mode full")
            continue
        if dry_run:
            _show(library, changed)
            continue
        library.change_folder(changed)
        asked = counted(written.ask(library, changed, "write"), "file")
        later = "songs analysed later are written too (--mode none ends this)"
        typer.echo(f"{shown(folder.root)}: {asked} to be checked and written ({changed.mode}); {later}")
    if not dry_run:
        _do(library, where)


def undo(folders: Folders = None, where: HomeOption = None) -> None:
    """Remove everything that Tonearm wrote into the files, and end the write mode; other tags stay unchanged."""
    library = opened(where)
    for folder in called(library, folders):
        typer.echo(f"{shown(folder.root)}: {counted(written.ask(library, folder, 'undo'), 'file')} to be cleaned")
    _do(library, where)


def errors(
    where: HomeOption = None,
    retry: Annotated[bool, typer.Option("--retry", help="Queue the files for another analysis.")] = False,
) -> None:
    """List files that could not be read, analysed or written, with the reason."""
    library, running = opened(where), at_work(where)
    if running is not None:
        report.notice_failures(running.hand, library)
    if retry:
        typer.echo(f"{counted(report.retry(library), 'file')} queued again")
        if running is not None:
            running.hand.wake("tag")
        return
    found = report.troubles(library)
    for wrong in found:
        typer.echo(f"{wrong.path}\n    {wrong.stage}: {wrong.reason}")
    typer.echo(f"{len(found)} in total")
    stages = {wrong.stage for wrong in found}
    if "tag" in stages:
        typer.echo("tag: not analysed; `tonearm errors --retry` queues the files again")
    if "write" in stages:
        typer.echo("write: left unchanged; `tonearm write` tries again")


def _changed(folder: Folder, given: dict[str, Any]) -> Folder:
    try:
        made = msgspec.structs.replace(folder, **given)
        parse_ontos(made.onto)
    except TextError as error:
        raise TonearmError(f"invalid settings: {error}") from error
    return made


def _show(library: Library, folder: Folder) -> None:
    """Prints what would change in every file."""
    done = same = refused = 0
    for path, plan in written.dry(library, folder):
        if isinstance(plan, Refused):
            refused += 1
            typer.echo(f"{shown(path)}\n    would not be written: {plan.reason}")
        elif plan.changes:
            done += 1
            typer.echo("\n    ".join([shown(path), *plan.lines()]))
        else:
            same += 1
    typer.echo(
        f"{counted(done, 'file')} would be changed, {same} already up to date, {refused} left unchanged; "
        "nothing was written"
    )


def _do(library: Library, where: Path | None) -> None:
    """Lets the workers do the requested writes, or does them here if no node runs."""
    if not report.progress(library).writes_waiting:
        return
    running = at_work(where)
    if running is not None:
        running.hand.wake("write")
        held = next((pause for pause in running.hand.pauses() if pause.scope == "write"), None)
        when = "are writing" if held is None else f"write later ({held.reason or f'paused by {held.who}'})"
        typer.echo(f"the workers {when}; see tonearm status and tonearm errors")
        return
    done = same = refused = after = 0
    while some := written.in_line(library, after, 200):
        for number, _, _ in some:
            todo = written.task(library, number)
            outcome = Unchanged() if todo is None else written.perform(library, todo)
            refused += isinstance(outcome, Refused)
            same += isinstance(outcome, Unchanged)
            done += not isinstance(outcome, Refused | Unchanged)
        after = some[-1][0]
    typer.echo(f"{counted(done, 'file')} changed, {same} already up to date, {refused} left unchanged (tonearm errors)")
