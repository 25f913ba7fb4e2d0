"""Creates ids for jobs and process incarnations: globally unique, ordered by time, generated without coordination."""

import os
from collections.abc import Callable, Iterator

from chargehand import clock

NewIds = Callable[[int], Iterator[str]]
"""A source of ids: so many of them, in order."""


def new_ids(count: int) -> Iterator[str]:
    """Yields `count` consecutive ids of 32 hex digits: 48 bits of milliseconds and 79 random bits."""
    first = int.from_bytes(os.urandom(4), "big") >> 1  # the free bit keeps the count from running over
    same = f"{clock.now_ms():012x}{os.urandom(6).hex()}"
    for number in range(first, first + count):
        yield same + "%08x" % number  # noqa: UP031 - the fastest way, for enqueuing in bulk


def new_id() -> str:
    """Returns one new id."""
    return next(new_ids(1))
