"""What `top` watches of a node elsewhere: its events over HTTP, as `Feed` gives those of a node here."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from chargehand.client import Client
from chargehand.errors import ChargehandError
from chargehand.model.topic import RESYNC, Patterns

PATIENCE = 5.0
"""Seconds for the full state to be told; then what is known is shown."""


class Heard(NamedTuple):
    """An event that came as plain data."""

    event: dict[str, Any]

    def read(self, topic: str) -> dict[str, Any]:
        return self.event


class AwayWatcher:
    """`next` gives what is new, when there is something. A thread listens; everything else is the loop's."""

    def __init__(self, client: Client) -> None:
        self._client, self._loop = client, asyncio.get_running_loop()
        self.news = asyncio.Event()
        self.node_there = False
        self._heard: list[dict[str, Any]] = []
        self._error: ChargehandError | None = None

    def listen(self) -> None:
        """Hear until the process ends; runs in the thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody watches any more
            try:
                for event in self._client.subscribe():
                    self._loop.call_soon_threadsafe(self._hear, event)
            except ChargehandError as error:
                self._loop.call_soon_threadsafe(self._fail, error)

    def _hear(self, event: dict[str, Any]) -> None:
        self._heard.append(event)
        self.news.set()

    def _fail(self, error: ChargehandError) -> None:
        self._error = error
        self.news.set()

    async def complete(self) -> None:
        """Wait until the state of everything that is there has been told."""
        self.node_there = await asyncio.to_thread(self._client.status) is not None
        wanted = {"system:health", *(f"{w.component}:status" for w in await asyncio.to_thread(self._client.workers))}
        wanted |= {f"queue:{queue.queue}:status" for queue in await asyncio.to_thread(self._client.queues)}
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while self._error is None and wanted - {event["topic"] for event in self._heard}:
                    await self.news.wait()
                    self.news.clear()
        self.news.set()

    async def next(self, timeout: float | None = None) -> tuple[bool, list[tuple[Heard, str]]]:
        """The next events, none after so many seconds; and whether everything told before is void."""
        try:
            async with asyncio.timeout(timeout):
                await self.news.wait()
        except TimeoutError:
            return False, []
        self.news.clear()
        if self._error is not None:
            raise self._error
        heard, self._heard = self._heard, []
        last = max((at for at, event in enumerate(heard) if event["type"] == RESYNC), default=None)
        return last is not None, [(Heard(event), event["topic"]) for event in heard[0 if last is None else last + 1 :]]


class AwayFeed:
    """Stands for a `Feed`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @asynccontextmanager
    async def watch(self, patterns: Patterns) -> AsyncGenerator[AwayWatcher]:
        """Watch for the length of the block, whatever the patterns: everything but the jobs."""
        watcher = AwayWatcher(self._client)
        threading.Thread(target=watcher.listen, daemon=True).start()
        await watcher.complete()
        yield watcher
