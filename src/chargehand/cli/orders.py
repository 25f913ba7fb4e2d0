"""Commands that control workers: start, stop, pause, resume, drain, restart, reset, scale."""

import re
from typing import Annotated

import typer

from chargehand.cli import find, show
from chargehand.errors import EXIT_ERROR
from chargehand.model.fleet.orders import Answer, AnswerCode

Scope = Annotated[
    str | None,
    typer.Argument(
        help="A crew by its name, or a worker as crew:index or node/crew:index; default: all workers.", metavar="[WHO]"
    ),
]
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)?")


def start(
    who: Scope = None,
    node: find.Node = None,
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Start workers that were stopped."""
    _show(find.service(app, store).start(find.scoped(who, node)), json)


def stop(
    who: Scope = None,
    node: find.Node = None,
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Stop workers. Running jobs may finish within the grace period; otherwise they are queued again.

    The workers stay stopped until `chargehand start`, or until the node restarts. A pause lasts longer.
    """
    _show(find.service(app, store).stop(find.scoped(who, node)), json)


def pause(
    who: Scope = None,
    reason: Annotated[str | None, typer.Option(help="The reason, shown to others.")] = None,
    length: Annotated[str | None, typer.Option("--for", help="The duration: 90s, 10m, 1.5h, 2d.")] = None,
    node: find.Node = None,
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Take no new jobs. Running jobs finish, and workers keep running. A pause survives restarts and needs no node."""
    duration = None if length is None else seconds(length, "--for")
    _show(find.service(app, store).pause(find.scoped(who, node), reason=reason, seconds=duration), json)


def resume(
    who: Scope = None,
    node: find.Node = None,
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Take jobs again. Workers that were given up stay given up; `chargehand reset` starts them."""
    _show(find.service(app, store).resume(find.scoped(who, node)), json)


def drain(
    who: Scope = None,
    node: find.Node = None,
    end: Annotated[bool, typer.Option("--end", help="The whole node ends when it is drained.")] = False,
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Finish running jobs without a time limit, take no new ones, then stop.

    A node of which all workers are drained is shown as `drained`; with `--end` it ends, and no other is started.
    """
    _show(find.service(app, store).drain(find.scoped(who, node), end=end), json)


def restart(
    who: Scope = None,
    node: find.Node = None,
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Replace workers, including those that were given up. Running jobs may finish within the grace period."""
    _show(find.service(app, store).restart(find.scoped(who, node)), json)


def reset(
    who: Scope = None,
    node: find.Node = None,
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Clear crash histories, and start workers that were given up."""
    _show(find.service(app, store).reset(find.scoped(who, node)), json)


def scale(
    crew: Annotated[str, typer.Argument(help="The crew.")],
    count: Annotated[int, typer.Argument(help="The number of workers.", min=0)],
    node: find.Node = None,
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Change the number of workers of a crew. Surplus workers finish their jobs first.

    Where several nodes share the store, the number is set on each node whose settings give the crew workers; `--node`
    sets it on one node, whatever its settings are.
    """
    _show(find.service(app, store).scale(find.scoped(crew, node) or crew, count), json)


def is_length(text: str) -> bool:
    """Returns whether a text is a duration such as 90s or 1.5h."""
    return _LENGTH.fullmatch(text.strip()) is not None


def seconds(text: str, option: str) -> float:
    """Returns a duration such as 90s or 1.5h in seconds. Raises BadParameter."""
    found = _LENGTH.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r}; expected a length such as 90s, 10m, 1.5h or 2d", param_hint=option)
    return float(found[1]) * _UNITS[found[2] or "s"]


def _show(answers: list[Answer], json: bool) -> None:
    if json:
        show.json(answers)
    else:
        for answer in answers:
            show.line(f"{show.safe(answer.component)}: {show.safe(answer.text)}")
        if not answers:
            show.line("there are no workers")
            raise typer.Exit(EXIT_ERROR)
    if any(answer.code == AnswerCode.NO_ANSWER for answer in answers):
        raise typer.Exit(EXIT_ERROR)
