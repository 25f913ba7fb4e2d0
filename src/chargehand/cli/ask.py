"""Questions and progress for a person at a terminal, on standard error."""

import sys

import typer

from chargehand.errors import EXIT_ERROR


def interactive() -> bool:
    """Returns whether a person can answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str) -> None:
    """Asks the question. Exits with status 1 unless the answer is yes."""
    sys.stderr.write(f"{question} [y/N]: ")  # typer.confirm would write a blank to standard output
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        sys.stderr.write("nothing was changed\n")
        raise typer.Exit(EXIT_ERROR)


def progress(text: str) -> None:
    """Replaces the line of progress by this text; writes nothing if standard error is not a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text}\x1b[K" if text else "\r\x1b[K")
        sys.stderr.flush()
