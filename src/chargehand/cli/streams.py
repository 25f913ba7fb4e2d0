"""The standard streams of the command line: any text can be written, and an error of writing is one sentence."""

import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any

from chargehand.errors import ChargehandError


class OutputError(ChargehandError):
    """Standard output cannot be written: it is closed, its disk is full, or its reader has ended."""

    code = "output"

    def __init__(self, error: OSError) -> None:
        why = "it is closed" if error.errno == errno.EBADF else error.strerror or str(error)
        super().__init__(f"standard output cannot be written: {why}; what the command has done is not undone")
        self.reader_ended = isinstance(error, BrokenPipeError)
        """Whether the program that read the output has ended, as `head` does."""


class _Output(io.FileIO):
    """A file whose errors of writing are OutputError, which no library takes for an error of its own."""

    def write(self, data: Any, /) -> int | None:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError(error) from error


def prepare() -> None:
    """Makes the streams usable: closed ones are opened, and characters that the encoding lacks are escaped."""
    # A closed descriptor would be taken by the next file that is opened, and what is printed would be written into it.
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stderr = os.fdopen(2, "w", closefd=False)
    if sys.stdout is sys.__stdout__:
        encoding = "utf-8" if sys.__stdout__ is None else sys.__stdout__.encoding
        out = io.BufferedWriter(_Output(1, "w", closefd=False))
        sys.stdout = io.TextIOWrapper(out, encoding, "backslashreplace", line_buffering=out.isatty())


def finish() -> None:
    """Writes what is still buffered. Raises OutputError."""
    sys.stdout.flush()


def discard() -> None:
    """Drops what is still buffered, so that the interpreter does not try to write it at its exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    sys.stdout.flush()


def complain(text: str) -> None:
    """Writes one line on standard error, if that is possible."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"chargehand: {text}\n")
        sys.stderr.flush()
