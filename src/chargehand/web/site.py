"""What all requests of one API process share."""

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chargehand.app import Chargehand


class Site:
    """One Chargehand as it is served here."""

    def __init__(self, hand: "Chargehand", prefix: str) -> None:
        self.hand, self.prefix = hand, prefix
        self.closing = asyncio.Event()
        """Set when the server is about to stop: whoever streams ends."""

    def open(self) -> None:
        """A server starts (again): an event belongs to the loop that waits for it."""
        self.closing = asyncio.Event()
