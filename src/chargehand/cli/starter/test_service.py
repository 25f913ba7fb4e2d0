"""Tests that start no processes."""

import asyncio

from chargehand.testing import fake, perform
from handlers import Counter
from jobs import Text, Words, count
from main import result, submit


def test_words_are_counted() -> None:
    """Tests the handler without a process."""
    assert perform(Counter, Text(text="The cat saw a cat")).counts == {"cat": 2, "saw": 1}


def test_what_is_submitted_can_be_asked_for() -> None:
    """Tests the API without the handler."""

    async def both() -> Words:
        return await result(await submit(Text(text="x")))

    with fake(count, lambda text: Words(counts={text.text: 7})):
        assert asyncio.run(both()).counts == {"x": 7}
