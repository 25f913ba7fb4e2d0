"""`chargehand stack`: what a running worker is doing now."""

from typing import Annotated

import typer

from chargehand.cli import find, show
from chargehand.errors import EXIT_ERROR
from chargehand.model.doctor.wording import size
from chargehand.model.error_line import own_frames
from chargehand.model.fleet.stacks import StackCode, WorkerStacks


def stack(
    worker: Annotated[str, typer.Argument(help="A worker as crew:index or node/crew:index.")],
    node: find.Node = None,
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Show the Python stacks of all threads of a running worker, which goes on, and its memory and CPU use."""
    found = find.service(app, store).stack(find.scoped(worker, node) or worker)
    show.json(found) if json else _print(found)
    if found.code != StackCode.DUMPED:
        raise typer.Exit(EXIT_ERROR)


def _used(found: WorkerStacks) -> list[str]:
    """Returns what the process uses, in words."""
    used: list[str] = []
    if found.memory is not None:
        used.append(f"{size(found.memory)} of memory")
    if found.cpu is not None:
        used.append(f"{found.cpu:.0%} of a core now")
    if found.cpu_s is not None:
        used.append(f"{found.cpu_s:,.1f} s of CPU time since its start")
    return used


def _print(found: WorkerStacks) -> None:
    pid = "" if found.pid is None else f" (pid {found.pid})"
    job = "" if found.job is None else f", job {found.job}"
    show.line(f"{found.component}{pid}{job}: {found.text}")
    if used := _used(found):
        show.line(f"uses {', '.join(used)}")
    own = "\n".join(own_frames(found.stacks))
    parts = (("frames of the application", own), ("stacks", found.stacks), ("threads, from /proc", found.threads))
    for title, text in parts:
        if text:
            show.line(f"\n{title}:")
            for each in text.splitlines():
                show.line(f"  {each}")
