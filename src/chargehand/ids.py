"""Creates ids for jobs and process incarnations: globally unique, ordered by time, generated without coordination."""

import os
from collections.abc import Callable, Iterator

from chargehand import clock

NewIds = Callable[[int], Iterator[str]]
"""A source of ids: so many of them, in order."""


def new_ids(count: int) -> Iterator[str]:
    """Yields `count` consecutive ids of 32 hex digits: 48 bits of milliseconds and 80 random bits."""
    first = (clock.now_ms() << 80) + int.from_bytes(os.urandom(10), "big")
    for number in range(first, first + count):
        yield f"{number:032x}"


def new_id() -> str:
    """Returns one new id."""
    return next(new_ids(1))
