"""Creates ids for jobs and process incarnations, and the numbers of claims: unique, ordered by time, generated without
coordination."""

import os
from collections.abc import Callable, Iterator

from chargehand import clock

RANDOM_BITS = 22
LENGTH = 32
"""The number of characters of an id."""
SHORT = 8
"""The number of characters that people are shown of an id: its last ones."""
NewIds = Callable[[int], Iterator[str]]
"""A source of ids: so many of them, in order."""


def new_ids(count: int) -> Iterator[str]:
    """Yields `count` consecutive ids of 32 hex digits: 48 bits of milliseconds and 79 random bits."""
    chance = os.urandom(10)
    first = int.from_bytes(chance[:4], "big") >> 1  # the free bit keeps the count from running over
    same = f"{clock.now_ms():012x}{chance[4:].hex()}"
    for number in range(first, first + count):
        yield same + "%08x" % number  # noqa: UP031 - the fastest way, for enqueuing in bulk


def new_id() -> str:
    """Returns one new id."""
    return next(new_ids(1))


def new_claim() -> int:
    """Returns a number for claims: 41 bits of milliseconds and 22 random bits; positive, as 64 signed bits.

    A counter in the store would not do: after a failover that lost the last commits it would count the same again.
    """
    return (clock.now_ms() << RANDOM_BITS | int.from_bytes(os.urandom(4), "big") >> 32 - RANDOM_BITS) & (1 << 63) - 1


def claim_of(text: str) -> int:
    """Returns the number of a claim that a person or program names; 0, which no claim has, if it is not a number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def is_short(text: str) -> bool:
    """Returns whether a text may be the end of an id, of as many characters as people are shown, or more."""
    return SHORT <= len(text) < LENGTH
