"""Assembles the commands. An error is printed as one sentence and becomes the exit status."""

import inspect
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from chargehand import __version__
from chargehand.cli import (
    check,
    claims,
    crashes,
    dashboard,
    doctor,
    events,
    find,
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

app = typer.Typer(
    name="chargehand",
    help="Durable background jobs for Python services, run by supervised worker processes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 success, 1 error, 2 usage or settings, 3 unrecoverable, 4 store unusable, 5 set-up failed.",
)
app.command("init")(init.init)
app.command("serve")(serve.serve)
app.command("work")(work.work)
app.command("dashboard")(dashboard.dashboard)
app.command("status")(status.status)
app.command()(nodes.nodes)
for order in (orders.start, orders.stop, orders.pause, orders.resume, orders.drain, orders.restart, orders.reset):
    app.command()(order)
app.command()(orders.scale)
app.command()(crashes.crashes)
app.command()(logs.logs)
app.command()(stack.stack)
app.command()(history.history)
app.command()(migrate.migrate)
for command in (doctor.doctor, top.top, events.events):
    app.command()(command)
for command in (run_job, check.check, wake.wake, recurring.recurring):
    app.command()(command)
app.add_typer(jobs.app, name="jobs")
app.add_typer(claims.app, name="claims")
app.add_typer(keys.app, name="keys")


def _paragraphs(text: str) -> str:
    """Returns a docstring without the ends of its lines, which would stay in the middle of lines of another width."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


for each in (app, jobs.app, claims.app, keys.app):
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
    find.remote_url = url
    context.call_on_close(find.close)


def run() -> None:
    """Runs the command line. Prints an error as one sentence on standard error, and exits with its status."""
    streams.prepare()
    code = _status(_app)
    sys.exit(_status(streams.finish) or code)


def _app() -> None:
    with acting_as(user(), "cli"):
        app()


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
        streams.complain(str(error))
        return EXIT_ERROR
    except (ChargehandError, TimeoutError) as error:
        key = "; the command line reads the key from CHARGEHAND_KEY" if getattr(error, "status", None) == 401 else ""
        streams.complain(f"{show.safe(error)}{key}")
        return getattr(error, "exit_code", EXIT_ERROR)
    except OSError as error:
        no_folder = isinstance(error, FileNotFoundError) and error.filename is None  # as os.getcwd raises it
        streams.complain(NO_FOLDER if no_folder else show.safe(described(error)))
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0
