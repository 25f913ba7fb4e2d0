"""Describes exceptions in a process that may have no free file descriptor and no memory left.

Every worker loads this module: it imports nothing heavy, and it does not know jobs.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress

_reserve = -1
"""A descriptor that is open only to be closed when one is needed; -1: none."""


def reserve_descriptor() -> None:
    """Keeps one file descriptor in reserve, for the imports and the source files of an error's description."""
    global _reserve
    if _reserve < 0:
        try:
            _reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # the handler has used up all descriptors; `describe` does without


@contextmanager
def spare_descriptor() -> Generator[None]:
    """Frees the reserved descriptor for the block, and takes it back afterwards."""
    global _reserve
    if _reserve >= 0:
        os.close(_reserve)
        _reserve = -1
    try:
        yield
    finally:
        reserve_descriptor()


def describe(error: BaseException) -> str:
    """Returns the traceback of an exception as text; without source lines if there is no memory or no descriptor."""
    with spare_descriptor():
        try:
            import traceback

            return "".join(traceback.format_exception(error))
        except Exception:
            return _plain(error)


def message(error: BaseException) -> str:
    """Returns the text of an exception, even if its `__str__` fails."""
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"


def _plain(error: BaseException) -> str:
    """Returns a traceback made without imports. Frees the memory and the files that the frames' variables hold."""
    lines = ["Traceback (most recent call last):\n"]
    step = error.__traceback__
    while step is not None:
        frame, code = step.tb_frame, step.tb_frame.f_code
        with suppress(RuntimeError):  # frames of the worker itself are running
            frame.clear()
        lines.append(f'  File "{code.co_filename}", line {step.tb_lineno}, in {code.co_name}\n')
        step = step.tb_next
    text = message(error)
    return "".join([*lines, f"{type(error).__qualname__}: {text}\n" if text else f"{type(error).__qualname__}\n"])
