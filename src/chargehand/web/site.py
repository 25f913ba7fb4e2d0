"""The state that all requests of one API process share."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING

from chargehand import clock
from chargehand.doctor import examine
from chargehand.model.doctor.diagnosis import Diagnosis
from chargehand.web.keyring import Keyring
from chargehand.web.metrics import gather
from chargehand.web.threads import Cached, ThreadPool

if TYPE_CHECKING:
    from chargehand.app import Chargehand

PROBE_LIMIT = 2.0
"""Seconds after which a probe stops waiting for the store."""
DOCTOR_LIMIT = examine.PATIENCE + 4
"""Seconds that a diagnosis may take."""
MAX_AGE = 1.0
"""Seconds for which a result is cached."""


class Site:
    """The state of one Chargehand in an API process."""

    def __init__(self, hand: "Chargehand", prefix: str) -> None:
        self.hand, self.prefix = hand, prefix
        self.closing = asyncio.Event()
        """Set when the server is about to stop; all streams then end."""
        self._waiting: set[asyncio.Timeout] = set()
        self.in_thread = ThreadPool()
        """Runs blocking calls to the store and the node."""
        self.keyring = Keyring(hand, self.in_thread)
        self._prober = ThreadPool(threads=1, waiting=0, limit=PROBE_LIMIT)  # not delayed by hung requests
        self.probe = Cached(lambda: self._prober(hand.internal.probe), MAX_AGE, clock.monotonic)
        """Checks that the store can be written."""
        self.facts = Cached(lambda: gather(hand, self.in_thread, self.events_dropped()), MAX_AGE, clock.monotonic)
        """The facts for the metrics."""
        self.diagnosis = Cached(self._examine, MAX_AGE, clock.monotonic)
        """The diagnosis; at most one runs at a time."""
        # Cookies are shared by all ports of a host: the name differs for each store.
        self.cookie = f"chargehand_{sha256(hand.url.encode()).hexdigest()[:8]}"

    async def _examine(self) -> Diagnosis:
        return await self.in_thread(lambda: examine.examine(self.hand), DOCTOR_LIMIT)

    def events_dropped(self) -> int:
        """Returns the number of events that were dropped because clients of this process were too slow."""
        return self.hand.internal.feed().broker.dropped

    def open(self) -> None:
        """Prepares for the start of a server: an asyncio.Event belongs to one event loop."""
        self.closing = asyncio.Event()

    def close(self) -> None:
        """Ends streams, and stops waiting for clients, because the server is about to stop."""
        self.closing.set()
        for timeout in self._waiting:
            if not timeout.expired():
                timeout.reschedule(0)

    @asynccontextmanager
    async def until_closing(self, seconds: float) -> AsyncGenerator[None]:
        """Raises TimeoutError in the block after that time, or when the server is about to stop."""
        async with asyncio.timeout(0 if self.closing.is_set() else seconds) as timeout:
            self._waiting.add(timeout)
            try:
                yield
            finally:
                self._waiting.discard(timeout)
