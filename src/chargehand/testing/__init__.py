"""What tests need, ours and our users': waiting without sleeping for a guess, jobs without processes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from chargehand import clock

if TYPE_CHECKING:
    from chargehand.testing.stand_in import fake, perform

__all__ = ["eventually", "fake", "perform"]

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


def __getattr__(name: str) -> Any:
    """Loaded when they are used: workers load the faults beside them, and must stay small."""
    if name not in ("fake", "perform"):
        raise AttributeError(f"module 'chargehand.testing' has no attribute {name!r}")
    from chargehand.testing import stand_in

    return getattr(stand_in, name)
