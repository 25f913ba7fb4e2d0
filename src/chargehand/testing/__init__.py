"""What tests need, ours and our users': waiting for a condition without sleeping for a guess."""

from collections.abc import Callable
from typing import TypeVar

from chargehand import clock

Found = TypeVar("Found")


def eventually(condition: Callable[[], Found], timeout: float = 20.0, *, what: str = "") -> Found:
    """The first true value of the condition; AssertionError if there is none within the timeout (seconds)."""
    until = clock.monotonic() + timeout
    pause = 0.001
    while not (found := condition()):
        if clock.monotonic() >= until:
            raise AssertionError(f"not within {timeout:g} s: {what or condition!r}; the last value was {found!r}")
        clock.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return found
