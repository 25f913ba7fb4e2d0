"""Orders to a running node: start, stop, pause, resume, drain, restart, reset, scale."""

import re
from typing import Annotated

import typer

from chargehand.cli import find, show
from chargehand.errors import EXIT_ERROR
from chargehand.model.fleet.orders import Answer

Scope = Annotated[
    str | None,
    typer.Argument(help="A crew by its name, a worker as crew:index; nothing: all of them.", metavar="[WHO]"),
]
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)?")


def start(who: Scope = None, app: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """Start workers that were stopped."""
    _tell(find.chargehand(app, store).start(who), json)


def stop(who: Scope = None, app: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """Stop workers; current jobs have the grace to finish, and are otherwise queued again.

    They stay stopped until `chargehand start`, or until the node restarts. To take no work for longer: pause.
    """
    _tell(find.chargehand(app, store).stop(who), json)


def pause(
    who: Scope = None,
    reason: Annotated[str | None, typer.Option(help="Why, for those who find it paused.")] = None,
    length: Annotated[str | None, typer.Option("--for", help="For how long: 90s, 10m, 1.5h, 2d.")] = None,
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Take nothing new; current jobs finish, workers stay. It survives restarts, and works without a node."""
    lasting = None if length is None else seconds(length, "--for")
    _tell(find.chargehand(app, store).pause(who, reason=reason, seconds=lasting), json)


def resume(who: Scope = None, app: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """Take work again. Workers that were given up stay so: reset them."""
    _tell(find.chargehand(app, store).resume(who), json)


def drain(who: Scope = None, app: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """Finish current jobs, however long they take, take nothing more, then stop."""
    _tell(find.chargehand(app, store).drain(who), json)


def restart(who: Scope = None, app: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """Replace workers: current jobs have the grace to finish. Starts given-up ones, too; nothing is charged."""
    _tell(find.chargehand(app, store).restart(who), json)


def reset(who: Scope = None, app: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """Clear crash histories, and start workers that were given up."""
    _tell(find.chargehand(app, store).reset(who), json)


def scale(
    crew: Annotated[str, typer.Argument(help="The crew.")],
    count: Annotated[int, typer.Argument(help="How many workers it is to have.", min=0)],
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Change how many workers a crew has. Those that go finish their jobs first."""
    _tell(find.chargehand(app, store).scale(crew, count), json)


def seconds(text: str, option: str) -> float:
    """A length of time as people write it."""
    found = _LENGTH.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r}; expected a length such as 90s, 10m, 1.5h or 2d", param_hint=option)
    return float(found[1]) * _UNITS[found[2] or "s"]


def _tell(answers: list[Answer], json: bool) -> None:
    if json:
        show.json(answers)
        return
    for answer in answers:
        show.line(f"{show.safe(answer.component)}: {show.safe(answer.text)}")
    if not answers:
        show.line("there is nobody to tell")
        raise typer.Exit(EXIT_ERROR)
