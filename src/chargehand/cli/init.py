"""`chargehand init`: writes a small working service to start from."""

from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from chargehand.cli import show
from chargehand.errors import ChargehandError

RENAMED = {"gitignore": ".gitignore"}


def init(
    folder: Annotated[
        Path, typer.Argument(help="The folder to write to; it is created if missing.", metavar="[FOLDER]")
    ] = Path(),
) -> None:
    """Write a small working service: an API, its jobs, a handler, tests. No file is overwritten."""
    files = _starter()
    try:
        folder = folder.absolute()
        there = [name for name in files if (folder / name).exists()]
        if there:
            raise ChargehandError(f"{folder} already contains {', '.join(there)}: nothing was written")
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    except FileExistsError:
        raise ChargehandError(f"{folder} is a file, not a folder: nothing was written") from None
    typer.echo(f"{show.safe(folder)}: {', '.join(files)}")
    install = "" if all(map(find_spec, ("fastapi", "uvicorn"))) else " && pip install 'chargehand[standard]'"
    typer.echo(f"Continue with: cd {show.safe(folder)}{install} && uvicorn main:app")


def _starter() -> dict[str, str]:
    """Returns the files by name. They are part of the repository, so that its tests and linters check them."""
    found = resources.files("chargehand.cli") / "starter"
    files = {RENAMED.get(each.name, each.name): each for each in found.iterdir() if each.is_file()}
    return {name: files[name].read_text() for name in sorted(files)}
