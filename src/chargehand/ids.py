"""Names for jobs and lives: unique everywhere, growing with time, made without asking anybody."""

import os
from collections.abc import Callable, Iterator

from chargehand import clock

NewIds = Callable[[int], Iterator[str]]
"""A source of ids: so many of them, in order."""


def new_ids(count: int) -> Iterator[str]:
    """So many ids of 32 hex digits, in order: 48 bits of milliseconds, 80 bits of chance."""
    first = (clock.now_ms() << 80) + int.from_bytes(os.urandom(10), "big")
    for number in range(first, first + count):
        yield f"{number:032x}"


def new_id() -> str:
    """One id."""
    return next(new_ids(1))
