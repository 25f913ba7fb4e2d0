"""Which application and which store a command is about."""

import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from chargehand.app import Chargehand
from chargehand.errors import ConfigurationError, StoreError
from chargehand.stores.location import locate

if TYPE_CHECKING:
    from chargehand.cli.remote import Remote

App = Annotated[
    str | None,
    typer.Option(
        "--app", "-a", envvar="CHARGEHAND_APP", help="The application, as module:object.", metavar="MODULE:OBJECT"
    ),
]
Store = Annotated[str | None, typer.Option("--store", "-s", help="The store, as a path or address.", metavar="PATH")]
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def application(name: str) -> Chargehand:
    """Import the application's object, such as jobs:hand; the handlers' modules are not imported."""
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    if not all(part.isidentifier() for part in module.split(".")):
        raise ConfigurationError(f"application {name!r} is not of the form module:object, such as jobs:hand")
    try:
        found = import_module(module)
    except (Exception, SystemExit) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        at = "" if where.filename.startswith("<frozen") else f" ({where.filename}, line {where.lineno})"
        raise ConfigurationError(
            f"application {name!r} cannot be imported from {os.getcwd()}: {type(error).__name__}: {error}{at}"
        ) from error
    if not attribute:
        hands = [value for value in vars(found).values() if isinstance(value, Chargehand)]
        if len(hands) != 1:
            raise ConfigurationError(f"module {module!r} has {len(hands)} Chargehand objects; name one: {module}:NAME")
        return hands[0]
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Chargehand):
        raise ConfigurationError(f"{name!r} is not a Chargehand object; expected something like jobs:hand")
    return found


_opened: list[Callable[[], None]] = []
elsewhere: str | None = None
"""The address of a node that commands are about, if that is another machine's: --url, or CHARGEHAND_REMOTE_URL."""


def chargehand(app: str | None, store: str | None) -> Chargehand:
    """The Chargehand that a command is about: by application, store, --url, CHARGEHAND_URL, or in this folder."""
    if app is None and store is None and elsewhere is not None:
        return cast("Chargehand", remote())  # it has the methods that commands use
    if app is not None and store is not None:
        raise ConfigurationError("give --app or --store, not both: an application has a store of its own")
    if app is not None:
        return application(app)
    if store is not None:
        os.environ["CHARGEHAND_URL"] = store  # what is named on the command line wins over the environment
    folder = Path.cwd() if store is None else locate(store).path.parent
    hand = Chargehand(folder=folder)
    if not hand.location.exists():
        if "url" not in hand.settings.origins:
            raise StoreError(
                f"there is no chargehand.db in {os.getcwd()}: name the store with --store, the application with --app, "
                "or set CHARGEHAND_URL"
            )
        raise StoreError(f"there is no store at {hand.location}")
    return hand


def remote() -> "Remote":
    """The node elsewhere that commands are about."""
    from chargehand.cli.remote import KEY, Remote  # httpx is slow to load, and most commands do without

    assert elsewhere is not None
    found = Remote(elsewhere, os.environ.get(KEY) or None)
    _opened.append(found.close)
    return found


def level(name: str | None) -> str | None:
    """A log level, checked."""
    if name is not None and name.upper() not in LEVELS:
        raise typer.BadParameter(f"{name!r}; allowed are {', '.join(LEVELS)}", param_hint="--log-level")
    return None if name is None else name.upper()


def close() -> None:
    """Let go of what commands have opened."""
    while _opened:
        _opened.pop()()
