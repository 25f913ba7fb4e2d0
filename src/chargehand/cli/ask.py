"""Asking a person, and keeping one informed, where there is one: questions and progress go to standard error."""

import sys

import typer

from chargehand.errors import EXIT_ERROR


def somebody() -> bool:
    """Whether a person is there to answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def agreed(question: str) -> None:
    """Go on if the person says yes; otherwise nothing is done, and the exit status says so."""
    sys.stderr.write(f"{question} [y/N]: ")  # typer.confirm would leave a blank on standard output
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        sys.stderr.write("nothing was changed\n")
        raise typer.Exit(EXIT_ERROR)


def so_far(text: str) -> None:
    """How far it is, on a line that is written over; only for a person."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text}\x1b[K" if text else "\r\x1b[K")
        sys.stderr.flush()
