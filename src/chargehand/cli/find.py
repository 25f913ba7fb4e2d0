"""Finds the application, the store or the server that a command is about, and holds the options that name them."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chargehand.app import Chargehand
from chargehand.errors import ConfigurationError, FlowNotFound, JobNotFound, StoreError
from chargehand.host.service import Service
from chargehand.ids import is_short
from chargehand.model.spelling import as_module, is_module, nearest
from chargehand.stores.location import locate
from chargehand.stores.refusal import refusals
from chargehand.system import callers

if TYPE_CHECKING:
    from chargehand.cli.remote import Remote

App = Annotated[
    str | None,
    typer.Option(
        "--app", "-a", envvar="CHARGEHAND_APP", help="The application, as module:object.", metavar="MODULE:OBJECT"
    ),
]
RequiredApp = Annotated[str, typer.Argument(help="The application, as module:object.", metavar="APP")]
Store = Annotated[
    str | None, typer.Option("--store", "-s", help="The store, as a path or as postgresql://…", metavar="PATH")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
LogLevel = Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")]
Node = Annotated[
    str | None,
    typer.Option("--node", help="Only this node; default: all nodes that have the crew or worker.", metavar="NAME"),
]
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def scoped(who: str | None, node: str | None) -> str | None:
    """Returns the scope of a command: a crew, a worker or everything, of one node or of all."""
    return who if node is None else f"{node}/{who or '*'}"


def application(name: str) -> Chargehand:
    """Imports the object of the application, such as jobs:hand. The modules of the handlers are not imported."""
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    if not is_module(module) or module.endswith(".py"):
        meant = f"; did you mean {found}?" if (found := as_module(name)) else _elsewhere(name) or ", such as jobs:hand"
        raise ConfigurationError(f"application {name!r} is not of the form module:object{meant}")
    try:
        found = import_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            package = error.name.rpartition(".")[0]
            here = [f"{package}.{path.stem}".lstrip(".") for path in Path(package.replace(".", "/")).glob("*.py")]
            raise ConfigurationError(
                f"application {name!r}: there is no module {error.name!r} in {os.getcwd()}"
                f"{nearest(error.name, here) or _above(module)}"
            ) from error
        raise ConfigurationError(
            f"application {name!r} cannot be imported from {os.getcwd()}: {callers.told(error)}{_instead(error)}"
        ) from error
    hands = {f"{module}:{key}": value for key, value in vars(found).items() if isinstance(value, Chargehand)}
    choice = f"; its Chargehand objects: {', '.join(hands) or 'none'}{'' if hands else _hidden(module)}"
    if not attribute:
        if len(hands) != 1:
            raise ConfigurationError(f"module {module!r} does not have exactly one Chargehand object{choice}")
        return next(iter(hands.values()))
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(f"module {module!r} has no name {attribute!r}{choice}")
        found = getattr(found, part)
    if not isinstance(found, Chargehand):
        raise ConfigurationError(f"{name!r} is of type {type(found).__name__}, not a Chargehand object{choice}")
    return found


def _elsewhere(name: str) -> str:
    """Returns what to do if the name of an application is the path of a module in another folder."""
    path, colon, attribute = name.partition(":")
    file = Path(path if path.endswith(".py") else f"{path}.py")
    if not file.is_file() or not is_module(file.stem):
        return ""
    return f"; in {file.parent.resolve()} it is {file.stem}{colon}{attribute}: change to that folder"


def _above(module: str) -> str:
    """Returns what to do if the module of an application is in a folder above this one."""
    first = module.partition(".")[0]
    found = next((each for each in Path.cwd().parents if (each / f"{first}.py").is_file()), None)
    return f"; there is one in {found}: change to that folder" if found is not None else ""


def _hidden(module: str) -> str:
    """Returns what to do if another module of this name was found before that of the current folder."""
    own = Path(f"{module.replace('.', '/')}.py").resolve()
    found = getattr(sys.modules[module], "__file__", None)
    if not own.is_file() or (found is not None and Path(found).resolve() == own):
        return ""
    return f"; {own} is hidden by {found or 'a module of Python'}: give it another name"


def _instead(error: BaseException) -> str:
    """Returns what to do about the import of a module that failed, if that is known."""
    if isinstance(error, ImportError) and "circular import" in str(error):
        return (
            "; a module that declares crews imports none of their handlers: it names them as text, 'handlers:Tag', and "
            "only workers import them"
        )
    if not isinstance(error, SystemExit):
        return ""
    return "; put what runs the program under `if __name__ == '__main__':`"


_opened: list[Callable[[], None]] = []
remote_url: str | None = None
"""The server that commands are about: --url, or CHARGEHAND_REMOTE_URL."""
url_given = False
"""Whether it was given as --url, which takes precedence over CHARGEHAND_APP."""


def server_meant(app: str | None, store: str | None) -> str | None:
    """Returns the server that a command is about; None if it is about a store. Raises ConfigurationError if the command
    line names both."""
    if remote_url is not None and url_given:
        if store is not None or (app is not None and app != os.environ.get("CHARGEHAND_APP")):
            raise ConfigurationError(
                "give --url, --store or --app, only one of them: each says what the command is about"
            )
        return remote_url
    return remote_url if app is None and store is None else None


def service(app: str | None, store: str | None) -> Service:
    """Returns what a command is about: by --app, --store, --url, CHARGEHAND_URL, or the store in this folder."""
    server = server_meant(app, store)
    if server is not None:
        return remote(server)
    if store is not None and app == os.environ.get("CHARGEHAND_APP"):
        app = None  # the command line takes precedence over the environment
    if app is not None and store is not None:
        raise ConfigurationError("give --app or --store, not both: an application has its own store")
    if app is not None:
        return application(app).internal
    if store is not None:
        os.environ["CHARGEHAND_URL"] = store  # the command line takes precedence over the environment
    folder = Path.cwd() if store is None else locate(store).path.parent
    with refusals(folder), suppress(FileNotFoundError):
        os.stat(f"{folder}/.")  # may its files be opened at all?
    hand = Chargehand(folder=folder)
    _check_file(hand, store)
    hand.internal.stores.may_create = False
    _opened.append(hand.internal.close)
    return hand.internal


def _check_file(hand: Chargehand, store: str | None) -> None:
    """Raises StoreError if there is no file at the location of the store; a server is asked when it is used."""
    if hand.location.server is not None:
        return
    with refusals(hand.location.path):
        if hand.location.path.is_dir():
            raise StoreError(f"{hand.location} is a folder, not a store: name a file in it")
        if hand.location.exists():
            return
    if "url" not in hand.settings.origins:
        raise StoreError(
            f"there is no chargehand.db in {os.getcwd()}: name the store with --store, the application with --app, "
            "or set CHARGEHAND_URL"
        )
    link = f", to which {store} is a symbolic link" if store is not None and os.path.islink(store) else ""
    raise StoreError(f"there is no store at {hand.location}{link}")


def remote(url: str) -> "Remote":
    """Returns a client for the server at this URL; `close` closes it."""
    from chargehand.cli.remote import KEY, Remote  # httpx is slow to import, and most commands do not need it

    found = Remote(url, os.environ.get(KEY) or None)
    _opened.append(found.close)
    return found


def level(name: str | None) -> str | None:
    """Returns the log level in capitals. Raises BadParameter if there is no such level."""
    if name is not None and name.upper() not in LEVELS:
        raise typer.BadParameter(f"{name!r}; allowed are {', '.join(LEVELS)}", param_hint="--log-level")
    return None if name is None else name.upper()


def close() -> None:
    """Closes the connections that commands have opened."""
    while _opened:
        _opened.pop()()


def job_id(service: Service, given: str | None) -> str | None:
    """Returns the id of the job that is named by it or by its end; what names no job stays. Raises AmbiguousId."""
    if given is not None and is_short(given):
        with suppress(JobNotFound):
            return service.job(given).id
    return given


def flow_id(service: Service, given: str | None) -> str | None:
    """Returns the id of the flow that is named by it or by its end; what names no flow stays. Raises AmbiguousId."""
    if given is not None and is_short(given):
        with suppress(FlowNotFound):
            return service.flow(given).id
    return given
