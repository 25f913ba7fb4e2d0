"""How a caller waits until a job or a flow has ended."""

import sys
import warnings
from collections.abc import Callable
from typing import TypeVar

from chargehand import clock
from chargehand.host.calls import looks
from chargehand.settings.plan import milliseconds

Ended = TypeVar("Ended")
PATIENCE = 5.0
"""Seconds after which a caller that waits without a limit is told if it waits in vain."""


def as_seconds(timeout: float | None) -> float | None:
    """Returns the timeout of a caller that waits. Raises PayloadError if it is not a number of seconds."""
    return None if timeout is None else milliseconds("timeout", timeout) / 1000


def warn_in_loop(what: str, instead: str) -> None:
    """Warns the caller's caller if it runs in an event loop, which `what` would block."""
    loops = sys.modules.get("asyncio")  # without it there is no loop
    if loops is not None and loops._get_running_loop() is not None:
        warnings.warn(f"{what} blocks the event loop: use `{instead}`", RuntimeWarning, stacklevel=3)


def warn_in_vain(job: str, why: str | None, level: int) -> None:
    """Warns a caller, `level` frames above, who waits without a limit for a job that no worker will take."""
    if why is not None:
        warnings.warn(f"waiting for job {job}, which no worker will take: {why}", RuntimeWarning, stacklevel=level + 1)


def until_ended(
    await_end: Callable[[float | None], None],
    ended: Callable[[], Ended | None],
    limit: float | None,
    late: Callable[[], TimeoutError],
    check: Callable[[], None] | None = None,
) -> Ended:
    """Waits until `ended`, which reads the store, returns what has ended, and returns that.

    `await_end` returns when it may have, at the latest at a time of the monotonic clock; it may return early. Raises
    what `late` returns after `limit` seconds. Without a limit, `check` is called once after a while.
    """
    until = None if limit is None else clock.monotonic() + limit
    soon = clock.monotonic() + PATIENCE if limit is None and check is not None else None
    pauses = looks()
    while True:
        await_end(until if soon is None else soon)
        if (found := ended()) is not None:
            return found
        if soon is not None and check is not None and clock.monotonic() >= soon:
            soon = None
            check()
        if until is not None and clock.monotonic() >= until:
            raise late()
        pause = next(pauses)
        clock.sleep(pause if until is None else max(0.0, min(pause, until - clock.monotonic())))
