"""Names the line of the user's own code that an error belongs to: not one of Chargehand, and not one of a library.

Workers load this module when a handler cannot be loaded, so it imports nothing.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

from chargehand.errors import ChargehandError

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")

_PACKAGE = __file__.rpartition("/system/")[0] + "/"
_LIBRARY = (sys.modules["os"].__file__ or "").rpartition("/")[0] + "/"
_INSTALLED = ("/site-packages/", "/dist-packages/")


def _is_foreign(file: str) -> bool:
    """Returns whether a file belongs to Chargehand or to the import system."""
    return file.startswith((_PACKAGE, "<frozen"))


def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARY) or any(part in file for part in _INSTALLED)


def place(error: BaseException) -> str | None:
    """Returns the last line of the user's code in the traceback, as "/a/jobs.py, line 3"; None if there is none.

    An error in a library counts for the line that called it. An application may itself be installed like a library:
    if no other code is in the traceback, its last line is returned.
    """
    own: tuple[str, int] | None = None
    installed: tuple[str, int] | None = None
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not _is_foreign(file):
            if _is_library(file):
                installed = file, trace.tb_lineno
            else:
                own = file, trace.tb_lineno
        trace = trace.tb_next
    found = own or installed
    return None if found is None or isinstance(error, SyntaxError) else f"{found[0]}, line {found[1]}"


def told(error: BaseException) -> str:
    """Returns the message of an error that the import of a user's module raised, with its type and its place.

    Errors of Chargehand have no need of their type, and those of a file of settings have their own place.
    """
    text = str(error) if isinstance(error, ChargehandError) else f"{type(error).__name__}: {error}"
    where = None if getattr(error, "has_place", False) else place(error)
    return text if where is None else f"{text} ({where})"


def note(error: Exception, frame: FrameType) -> None:
    """Ends the traceback of an error with the line of the user's code, whose frame is given, instead of one of ours."""
    if getattr(error, "has_place", False) or hasattr(error, "__notes__"):
        return
    file = frame.f_code.co_filename
    if not _is_foreign(file):
        error.add_note(f"in {file}, line {frame.f_lineno}")


def located(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Decorates a function of the public API: the traceback of its errors ends with the caller's line."""
    return used_as("")(function)


def used_as(usage: str) -> Callable[[Callable[Arguments, Returned]], Callable[Arguments, Returned]]:
    """Decorates like `located`; the error for wrong arguments also says what to write."""
    from functools import wraps

    def decorated(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
        @wraps(function)
        def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Returned:
            try:
                return function(*arguments, **options)
            except ChargehandError as error:
                note(error, sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
                raise
            except TypeError as error:
                trace = error.__traceback__
                if trace is None or trace.tb_next is None:  # wrong arguments
                    if usage:
                        error.args = (f"{error}; {usage}",)
                    note(error, sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
                raise

        return call

    return decorated
