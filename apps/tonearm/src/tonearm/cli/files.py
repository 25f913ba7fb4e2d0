"""write, undo, errors: what concerns the files themselves."""

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

Folders = Annotated[list[Path] | None, typer.Argument(help="Which folders; none: all of them.")]


def write(
    folders: Folders = None,
    where: HomeOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be changed.")] = False,
    mode: Annotated[Mode | None, typer.Option(help="Minimal: the labels; full: scores, too. Kept.")] = None,
    onto: Annotated[list[str] | None, typer.Option(help="Also into a tag: mood=MOOD:fill-empty. Kept.")] = None,
    tier: Annotated[Tier | None, typer.Option(help="Which labels: the fewest and surest, or more. Kept.")] = None,
    hard_links: Annotated[bool | None, typer.Option(help="Also files with several names. Kept.")] = None,
    keep_mtime: Annotated[bool | None, typer.Option(help="Keep files' times of change. Kept.")] = None,
) -> None:
    """Write labels into the files' own tags. Only here, and only when asked: nothing else writes."""
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
            typer.echo(f"{shown(folder.root)}: mode none, nothing is written; say --mode minimal or --mode full")
            continue
        if dry_run:
            _show(library, changed)
            continue
        library.change_folder(changed)
        asked = counted(written.ask(library, changed, "write"), "file")
        typer.echo(f"{shown(folder.root)}: {asked} to be written ({changed.mode})")
    if not dry_run:
        _do(library, where)


def undo(folders: Folders = None, where: HomeOption = None) -> None:
    """Take everything out of the files that was written into them; other tags stay as they are."""
    library = opened(where)
    for folder in called(library, folders):
        typer.echo(f"{shown(folder.root)}: {counted(written.ask(library, folder, 'undo'), 'file')} to be cleaned")
    _do(library, where)


def errors(
    where: HomeOption = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try once more to listen to them.")] = False,
) -> None:
    """Files that could not be read, heard or written, each with its reason."""
    library, running = opened(where), at_work(where)
    if running is not None:
        report.notice_failures(running.hand, library)
    if retry:
        typer.echo(f"{counted(report.retry(library), 'file')} to be tried again")
        if running is not None:
            running.hand.wake("tag")
        return
    found = report.troubles(library)
    for wrong in found:
        typer.echo(f"{wrong.path}\n    {wrong.stage}: {wrong.reason}")
    typer.echo(f"{len(found)} in all")
    stages = {wrong.stage for wrong in found}
    if "tag" in stages:
        typer.echo("tag: they could not be heard; `tonearm errors --retry` listens once more")
    if "write" in stages:
        typer.echo("write: they were left as they are; `tonearm write` tries again")


def _changed(folder: Folder, given: dict[str, Any]) -> Folder:
    try:
        made = msgspec.structs.replace(folder, **given)
        parse_ontos(made.onto)
    except TextError as error:
        raise TonearmError(f"these settings are not possible: {error}") from error
    return made


def _show(library: Library, folder: Folder) -> None:
    """What would be changed in every file."""
    would = 0
    query = "SELECT id, path FROM file WHERE folder = ? AND tagged_ms IS NOT NULL AND missing_ms IS NULL ORDER BY path"
    for number, path in library.rows(query, folder.id):
        plan = written.dry(library, number, path, folder)
        if isinstance(plan, Refused):
            typer.echo(f"{shown(path)}\n    would not be written: {plan.reason}")
        elif plan.changes:
            would += 1
            typer.echo("\n    ".join([shown(path), *plan.lines()]))
    typer.echo(f"{counted(would, 'file')} would be written; nothing was")


def _do(library: Library, where: Path | None) -> None:
    """Have it done by the workers, or, if there are none, here."""
    if not report.progress(library).writes_waiting:
        return
    running = at_work(where)
    if running is not None:
        running.hand.wake("write")
        typer.echo("the workers do it now; tonearm status, tonearm errors")
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
    typer.echo(f"{counted(done, 'file')} changed, {same} said so already, {refused} left as they were (tonearm errors)")
