"""`chargehand init`: a small working service to begin with."""

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from chargehand.cli import show
from chargehand.errors import ChargehandError

RENAMED = {"gitignore": ".gitignore"}


def init(
    folder: Annotated[
        Path, typer.Argument(help="Where to write it; made if it is not there.", metavar="[FOLDER]")
    ] = Path(),
) -> None:
    """Write a small working service: an API, its jobs, a handler, tests. Nothing is overwritten."""
    files = _starter()
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise ChargehandError(f"{folder.absolute()} has {', '.join(there)} already: nothing was written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise ChargehandError(f"{error.filename} cannot be written: {error.strerror}") from None
    here = folder.absolute()
    typer.echo(f"{show.safe(here)}: {', '.join(files)}")
    typer.echo(f"Go on with: cd {show.safe(here)} && uvicorn main:app")


def _starter() -> dict[str, str]:
    """The files by name. They are real ones, so that they are checked as everything else is."""
    found = resources.files("chargehand.cli") / "starter"
    files = {RENAMED.get(each.name, each.name): each for each in found.iterdir() if each.is_file()}
    return {name: files[name].read_text() for name in sorted(files)}
