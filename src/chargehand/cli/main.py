"""Assembles the commands. An error is printed as one sentence and becomes the exit status."""

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from chargehand import __version__
from chargehand.cli import (
    check,
    claims,
    crashes,
    dashboard,
    doctor,
    events,
    find,
    flows,
    history,
    init,
    jobs,
    keys,
    logs,
    migrate,
    nodes,
    orders,
    recurring,
    serve,
    show,
    stack,
    status,
    streams,
    top,
    wake,
    work,
)
from chargehand.cli.run import run as run_job
from chargehand.errors import EXIT_BROKEN_PIPE, EXIT_ERROR, EXIT_INTERRUPTED, ChargehandError
from chargehand.host.actor import acting_as, user
from chargehand.stores.refusal import described

NO_FOLDER = "the current folder was deleted: change to another one, or name the store by its full path with --store"

OTHER_WORDS = {
    "beat": "recurring", "control": "pause", "empty": "jobs clear", "flower": "dashboard", "info": "status",
    "inspect": "status", "ps": "status", "purge": "jobs clear", "requeue": "jobs retry", "revoke": "jobs cancel",
    "scheduler": "recurring", "suspend": "pause", "version": "--version", "worker": "work",
}  # fmt: skip
"""Commands of other systems, and the nearest one of ours."""

_COUNT = "The number of workers is a setting of each crew: CHARGEHAND_CREW_NAME_WORKERS=4."
_ALL = "The command runs all crews of the application; CHARGEHAND_CREW_NAME_WORKERS=0 leaves one out."
OTHER_OPTIONS = {
    **{
        (command, option): f"The application is an argument: chargehand {command} jobs:hand."
        for command in ("work", "serve", "run", "check")
        for option in ("-A", "-a", "--app")
    },
    **dict.fromkeys(
        [("work", option) for option in ("-c", "--concurrency", "--worker", "--workers", "--processes")], _COUNT
    ),
    **dict.fromkeys([("work", option) for option in ("-Q", "-q", "--queue", "--queues", "--crew", "--crews")], _ALL),
    **dict.fromkeys(
        [(command, "--crew") for command in ("list", "retry", "cancel", "clear")],
        "The jobs of a crew have its queue: --queue.",
    ),
    ("work", "-B"): "Recurring jobs need no process of their own.",
    ("work", "--port"): "The API is served by: chargehand serve.",
    **dict.fromkeys(
        [("delete", option) for option in ("--queue", "--state", "--tag", "--all")],
        "Give ids, or a filter such as queue:mail; chargehand jobs clear has this option.",
    ),
    **dict.fromkeys(
        [("logs", option) for option in ("--worker", "--crew")],
        "The crew or worker is an argument: chargehand logs tag, chargehand logs tag:0.",
    ),
}
"""Options of other systems and of other commands that these do not have, and what to do instead."""


class Commands(TyperGroup):
    """The commands. A command that is given without its group, or by the name that others have for it, is explained."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the command. The error for one that does not exist names the one that was probably meant."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as found:
            error: Any = found
            word = args[0] if args else ""
            meant = [f"{name} {word}" for name, (group, _) in _SUBCOMMANDS.items() if word in _names(group)]
            if word in OTHER_WORDS:
                meant = [OTHER_WORDS[word]]
            if meant:
                error.message = f"No such command {word!r}. Did you mean {', '.join(map(repr, meant))}?"
            raise

    def invoke(self, ctx: Any) -> Any:
        """Runs the command. The error for an option that other systems have says what to do instead."""
        try:
            return super().invoke(ctx)
        except Exception as found:
            error: Any = found
            command: Any = getattr(getattr(error, "ctx", None), "info_name", None)
            option: Any = getattr(error, "option_name", None)
            meant = OTHER_OPTIONS.get((command, option))
            if meant:
                error.message = f"No such option: {option}. {meant}"
                error.possibilities = None
            raise


class Subcommands(TyperGroup):
    """The commands of a group. An id that is given without a command is explained."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the command. The error for an id in its place names the command that shows it."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as found:
            error: Any = found
            if "show" in self.commands and any(character.isdigit() for character in args[0]):
                error.message = f"No such command {args[0]!r}. Did you mean 'show {args[0]}'?"
            raise


def _names(group: typer.Typer) -> set[str]:
    return {each.name or getattr(each.callback, "__name__", "") for each in group.registered_commands}


app = typer.Typer(
    name="chargehand",
    cls=Commands,
    help="Durable background jobs for Python services, run by supervised worker processes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 success, 1 error, 2 usage or settings, 3 unrecoverable, 4 store unusable, 5 set-up failed.",
)
_GROUPS: dict[str, tuple[tuple[str, Callable[..., None]], ...]] = {
    "Run": (
        ("init", init.init), ("serve", serve.serve), ("work", work.work), ("run", run_job), ("check", check.check),
    ),
    "Look": (
        ("status", status.status), ("top", top.top), ("doctor", doctor.doctor), ("dashboard", dashboard.dashboard),
        ("nodes", nodes.nodes), ("crashes", crashes.crashes), ("logs", logs.logs), ("stack", stack.stack),
        ("events", events.events), ("history", history.history),
    ),
    "Jobs": (("wake", wake.wake),),
    "Control": (
        ("pause", orders.pause), ("resume", orders.resume), ("drain", orders.drain), ("restart", orders.restart),
        ("reset", orders.reset), ("scale", orders.scale), ("start", orders.start), ("stop", orders.stop),
    ),
    "Admin": (("migrate", migrate.migrate),),
}  # fmt: skip
"""The commands, by the group in which the help lists them."""
_SUBCOMMANDS = {
    "jobs": (jobs.app, "Jobs"), "flows": (flows.app, "Jobs"), "claims": (claims.app, "Jobs"),
    "recurring": (recurring.app, "Jobs"),
    "keys": (keys.app, "Admin"),
}  # fmt: skip
for panel, its in _GROUPS.items():
    for name, command in its:
        app.command(name, rich_help_panel=panel)(command)
for name, (group, panel) in _SUBCOMMANDS.items():
    app.add_typer(group, name=name, cls=Subcommands, rich_help_panel=panel)


def _paragraphs(text: str) -> str:
    """Returns a docstring without the ends of its lines, which would stay in the middle of lines of another width."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


for each in (app, *(group for group, _ in _SUBCOMMANDS.values())):
    for known in each.registered_commands:
        known.help = _paragraphs((known.callback and known.callback.__doc__) or "")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"chargehand {__version__}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar="CHARGEHAND_REMOTE_URL",
            metavar="URL",
            help="A server elsewhere, by its HTTP interface; CHARGEHAND_KEY holds the API key.",
        ),
    ] = None,
    version: bool = typer.Option(False, "--version", help="Show the version.", callback=_version, is_eager=True),
) -> None:
    """Durable background jobs for Python services, run by supervised worker processes."""
    source = context.get_parameter_source("url")
    find.remote_url, find.url_given = url, source is not None and source.name == "COMMANDLINE"
    context.call_on_close(find.close)


def run() -> None:
    """Runs the command line. Prints an error as one sentence on standard error, and exits with its status."""
    streams.prepare()
    code = _status(_app)
    sys.exit(_status(streams.finish) or code)


def _app() -> None:
    with acting_as(user(), "cli"):
        app(url_first(sys.argv[1:]))


def url_first(words: Sequence[str]) -> list[str]:
    """Returns the words with `--url` and its value in front: people write it after the command, too."""
    end = words.index("--") if "--" in words else len(words)
    for at in range(end):
        if words[at].startswith("--url="):
            return [words[at], *words[:at], *words[at + 1 :]]
        if words[at] == "--url" and at + 1 < end:
            return [*words[at : at + 2], *words[:at], *words[at + 2 :]]
    return list(words)


def _status(act: Callable[[], None]) -> int:
    """Calls the function and returns the exit status. An error that is not expected keeps its traceback."""
    try:
        act()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else EXIT_ERROR
    except streams.OutputError as error:
        streams.discard()
        if error.reader_ended:
            return EXIT_BROKEN_PIPE
        streams.complain(f"{error} [{error.code}]")
        return EXIT_ERROR
    except (ChargehandError, TimeoutError) as error:
        key = "; the command line reads the key from CHARGEHAND_KEY" if getattr(error, "status", None) == 401 else ""
        code = f" [{error.code}]" if isinstance(error, ChargehandError) else ""  # a section of docs/errors.md
        streams.complain(f"{show.safe(error)}{key}{code}")
        return getattr(error, "exit_code", EXIT_ERROR)
    except OSError as error:
        no_folder = isinstance(error, FileNotFoundError) and error.filename is None  # as os.getcwd raises it
        streams.complain(NO_FOLDER if no_folder else show.safe(described(error)))
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0
