"""Functions shared by the commands."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from tonearm import crews
from tonearm.crews import Crews
from tonearm.library import Folder, Library, home
from tonearm.report import lasting, progress

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", envvar="TONEARM_HOME", help="Tonearm's data directory.", show_default=False),
]


to_close = ExitStack()
"""Resources that a command has opened; closed when the command ends."""


def opened(where: Path | None, *, create: bool = False) -> Library:
    """Opens the library. Raises TonearmError if it does not exist and is not to be created."""
    library = Library(home(where), create=create)
    to_close.callback(library.close)
    return library


def called(library: Library, folders: list[Path] | None) -> list[Folder]:
    """Returns the given folders, adding new ones; all folders if none is given."""
    return [library.add_folder(folder) for folder in folders] if folders else library.folders()


def at_work(where: Path | None) -> Crews | None:
    """Returns the crews if a node runs, otherwise None."""
    found = crews.build(where)
    to_close.callback(found.hand.close)
    return None if found.hand.status() is None else found


def counted(number: int, thing: str) -> str:
    """Returns a number with its noun in the singular or plural."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def write_soon(library: Library, where: Path | None) -> None:
    """Wakes the workers if changed labels are to be written, or prints how they are written."""
    waiting = progress(library).writes_waiting
    if not waiting:
        return
    running = at_work(where)
    if running is not None:
        running.hand.wake("write")
    else:
        typer.echo(f"{counted(waiting, 'file')} to be written: by `tonearm serve`, or now by `tonearm write`")


def tell_what_is_next(library: Library, workers: int) -> None:
    """Prints the number of files, the remaining work and its estimated duration."""
    now = progress(library)
    kinds = ", ".join(f"{count} {kind}" for kind, count in now.kinds.items())
    typer.echo(
        f"{counted(now.files, 'file')}{f' ({kinds})' if kinds else ''}: "
        f"{now.tagged} analysed, {now.waiting} waiting, {now.troubled} with errors"
    )
    if now.waiting:
        eta = now.eta(workers)
        known = "the duration is estimated after the first songs" if eta is None else f"about {lasting(eta)}"
        written = "" if any(folder.mode != "none" for folder in library.folders()) else "; no file is written"
        who = f"{counted(now.waiting, 'song')} with {counted(workers, 'worker')}"
        typer.echo(f"remaining: {who}, {known}{written}")
    if now.trying:
        typer.echo("trial: only the selected songs are counted; to analyse all others: tonearm try --go-on")
    if now.writes_waiting:
        typer.echo(f"{counted(now.writes_waiting, 'file')} to be written")
    if wrong := library.book_trouble():
        typer.echo(f"no labels are derived until the label file is fixed: {wrong}")
