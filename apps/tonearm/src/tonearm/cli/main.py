"""Assembles the commands. An expected error prints one sentence and sets the exit status."""

import sys

import typer

from chargehand import ChargehandError
from tonearm import __version__
from tonearm.cli import files, labelling, running
from tonearm.cli.common import to_close
from tonearm.errors import TonearmError
from tonearm.tags import TextError

app = typer.Typer(
    name="tonearm",
    help="Analyses a music library and tags it, offline, on your own machine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (running.serve, running.scan, running.status, running.retag, running.calibrate):
    app.command()(command)
app.command("try")(running.try_some)
for command in (files.write, files.undo, files.errors, labelling.playlist, labelling.similar):
    app.command()(command)
app.command("navidrome")(labelling.tell_navidrome)
app.add_typer(labelling.labels, name="labels")
app.add_typer(labelling.models, name="models")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tonearm {__version__}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Show the version.", callback=_version, is_eager=True),
) -> None:
    """Analyses a music library and tags it, offline, on your own machine."""
    context.call_on_close(to_close.close)


def run() -> None:
    """Runs the command line."""
    try:
        app()
    except (TonearmError, ChargehandError, TextError, TimeoutError) as error:
        sys.stderr.write(f"tonearm: {str(error).encode('utf-8', 'backslashreplace').decode()}\n")
        sys.exit(getattr(error, "exit_code", 1))
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
