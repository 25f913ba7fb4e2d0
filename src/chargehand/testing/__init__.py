"""Helpers for tests: wait for a condition, perform one job or all jobs without processes, replace a crew by a
function."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from chargehand import clock

if TYPE_CHECKING:
    from chargehand.testing.running import Performed, run_all
    from chargehand.testing.stand_in import fake, perform

__all__ = ["Performed", "eventually", "fake", "perform", "run_all"]

Found = TypeVar("Found")


def eventually(condition: Callable[[], Found], timeout: float = 20.0, *, what: str = "") -> Found:
    """Polls the condition and returns its first true value. Raises AssertionError after `timeout` seconds."""
    if not callable(condition):
        raise TypeError(f"eventually() takes a function, such as lambda: ref.job().state == 'done', not {condition!r}")
    until = clock.monotonic() + timeout
    pause = 0.001
    while not (found := condition()):
        if clock.monotonic() >= until:
            raise AssertionError(f"not within {timeout:g} s: {what or condition!r}; the last value was {found!r}")
        clock.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    one: Any = found
    if hasattr(one, "cr_await"):  # a coroutine, which is always true
        one.close()
        raise TypeError(f"eventually() takes a plain function, not a coroutine function: {what or condition!r}")
    return found


def __getattr__(name: str) -> Any:
    """Loads the other helpers on first use: workers load the faults in this package and must stay small."""
    if name not in __all__:
        raise AttributeError(f"module 'chargehand.testing' has no attribute {name!r}")
    from importlib import import_module

    home = "stand_in" if name in ("fake", "perform") else "running"
    return getattr(import_module(f"chargehand.testing.{home}"), name)
