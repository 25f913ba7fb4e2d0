"""What the commands share."""

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
    typer.Option("--home", envvar="TONEARM_HOME", help="Where Tonearm keeps what it knows.", show_default=False),
]


to_close = ExitStack()
"""What a command has opened: closed when it ends."""


def opened(where: Path | None, *, create: bool = False) -> Library:
    """The library that is there, or made there; TonearmError if there is none."""
    library = Library(home(where), create=create)
    to_close.callback(library.close)
    return library


def called(library: Library, folders: list[Path] | None) -> list[Folder]:
    """The folders named, taken in if they are new; all of them if none is named."""
    return [library.add_folder(folder) for folder in folders] if folders else library.folders()


def at_work(where: Path | None) -> Crews | None:
    """The crews, if somebody runs them."""
    found = crews.build(where)
    to_close.callback(found.hand.close)
    return None if found.hand.status() is None else found


def counted(number: int, thing: str) -> str:
    """So many things."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def tell_what_is_next(library: Library, workers: int) -> None:
    """What was found, what will be done, and how long that will take."""
    now = progress(library)
    kinds = ", ".join(f"{count} {kind}" for kind, count in now.kinds.items())
    typer.echo(
        f"{counted(now.files, 'file')}{f' ({kinds})' if kinds else ''}: "
        f"{now.tagged} heard, {now.waiting} to be heard, {now.troubled} with trouble"
    )
    if now.waiting:
        eta = now.eta(workers)
        known = "how long that takes is measured on the first songs" if eta is None else f"about {lasting(eta)}"
        written = "" if now.written or now.writes_waiting else "; nothing is written into files"
        who = f"{counted(now.waiting, 'song')} with {counted(workers, 'worker')}"
        typer.echo(f"to be done: {who}, {known}{written}")
    if now.trying:
        typer.echo("only the songs to be tried first are counted; for all the others: tonearm try --go-on")
    if now.writes_waiting:
        typer.echo(f"{counted(now.writes_waiting, 'file')} to be written")
    if wrong := library.book_trouble():
        typer.echo(f"no labels are derived until the label file is mended: {wrong}")
