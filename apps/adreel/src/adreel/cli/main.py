"""Assembles the commands. An expected error prints one sentence and sets the exit status."""

import sys

import typer

from adreel import __version__
from adreel.cli import films
from adreel.cli.serve import serve
from adreel.errors import AdreelError
from chargehand import ChargehandError

app = typer.Typer(
    name="adreel",
    help="Analyses films: scenes, text on screen, QR codes and a category.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (serve, films.submit, films.status, films.result, films.retry, films.delete):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"adreel {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: bool = typer.Option(False, "--version", help="Show the version.", callback=_version, is_eager=True),
) -> None:
    """Analyses films: scenes, text on screen, QR codes and a category."""


def run() -> None:
    """Runs the command line."""
    try:
        app()
    except (AdreelError, ChargehandError) as error:
        sys.stderr.write(f"adreel: {str(error).encode('utf-8', 'backslashreplace').decode()}\n")
        sys.exit(getattr(error, "exit_code", 1))
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
