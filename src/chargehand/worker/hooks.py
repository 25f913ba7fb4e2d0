"""Calls the application's hooks around each attempt. What a hook raises is logged and changes nothing else.

A worker loads this module only if there are hooks.
"""

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from chargehand import errors, tracing
from chargehand.worker import perform
from chargehand.worker.failures import spare_descriptor

if TYPE_CHECKING:
    from chargehand.worker.main import Worker

_IS_COROUTINE = 0x80
"""`inspect.CO_COROUTINE`; `inspect` itself is a large module."""


class WorkerHooks:
    """The hooks of a worker."""

    def __init__(self, worker: "Worker", functions: Mapping[str, str]) -> None:
        """Raises ConfigurationError if a function cannot be imported or called."""
        self._worker = worker
        self._functions = {hook: _load(hook, function) for hook, function in functions.items()}

    @contextmanager
    def around(self, job: Any) -> Generator[None]:
        """Calls the hooks of one attempt around the block, inside the attempt's span."""
        with tracing.span_of(job):
            self.begin(job)
            try:
                yield
            except GeneratorExit:
                raise
            except BaseException as error:
                self.end(job, error)
                raise
            self.end(job, None)

    def begin(self, job: Any) -> None:
        """Calls `on_start`."""
        self._call("on_start", job)

    def end(self, job: Any, error: BaseException | None) -> None:
        """Calls `on_failure` if the attempt has failed, and `on_end`; neither in a process that the job has forked."""
        if self._worker.detached:
            return
        if error is not None and not perform.is_cancellation(error) and not isinstance(error, errors.Retry):
            self._call("on_failure", job, error)
        self._call("on_end", job)

    def _call(self, hook: str, *arguments: Any) -> None:
        function = self._functions.get(hook)
        if function is None:
            return
        try:
            function(*arguments)
        except BaseException:  # sys.exit() in a hook ends nothing, either
            with spare_descriptor():
                import logging

                self._worker.forward_logging()
                logging.getLogger("chargehand.hooks").exception("hook %s raised", hook)


def _load(hook: str, name: str) -> Callable[..., object]:
    """Imports the function of a hook."""
    module, _, attribute = name.partition(":")
    try:
        __import__(module)
        found: Any = sys.modules[module]
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, SyntaxError, SystemExit) as error:
        raise errors.ConfigurationError(
            f"hook {hook}, {name!r}, cannot be imported: {perform.why_not_imported(error)}"
        ) from error
    if not callable(found):
        raise errors.ConfigurationError(f"hook {hook}, {name!r}, is not a function: it is {found!r:.200}")
    code = getattr(found, "__code__", None)
    if code is not None and code.co_flags & _IS_COROUTINE:
        raise errors.ConfigurationError(f"hook {hook}, {name!r}, is declared async: declare it with a plain `def`")
    return found
