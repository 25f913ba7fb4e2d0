"""Server-sent events: one stream per client, sent as fast as the client reads."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from chargehand import clock
from chargehand.host.feed import Watcher
from chargehand.live.broker import Told
from chargehand.model.topic import RESYNC, Patterns, event_id, has_ended, job_topic, parse, resync
from chargehand.web.site import Site

if TYPE_CHECKING:
    from chargehand.host.operations import Operations

PING_EVERY = 15.0
"""Seconds without events after which a comment is sent, because proxies close idle connections."""
WELCOME_FOR = 15.0
"""Seconds after which it is looked again whether the client may still listen: its key may be revoked by now."""
RETRY_MS = 1000
LAST_WORDS = 0.5
"""Seconds that a client has to receive the end of its stream."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

_sites: "WeakKeyDictionary[Operations, Site]" = WeakKeyDictionary()


def serve(site: Site) -> None:
    """Streams of this Chargehand end when this site closes."""
    _sites[site.hand.internal] = site


def of_job(operations: "Operations", job_id: str) -> "EventStream":
    """The events of one job; the stream ends when the job has."""
    return EventStream(operations, parse((job_topic(job_id),)), to_the_end=True)


class EventStream(StreamingResponse):
    """Ends when the client leaves or is no longer welcome, when the server closes, and, if wanted, with the job."""

    def __init__(
        self,
        operations: "Operations",
        patterns: Patterns,
        last: str | None = None,
        *,
        welcome: Callable[[], Awaitable[bool]] | None = None,
        to_the_end: bool = False,
    ) -> None:
        super().__init__(iter(()), media_type="text/event-stream", headers=HEADERS)
        self._operations, self._patterns, self._last, self._to_the_end = operations, patterns, last, to_the_end
        self._welcome = welcome

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends events until the client disconnects or the server stops."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        talking = asyncio.ensure_future(self._talk(send))
        leaving = asyncio.ensure_future(_left(receive))
        waiting: set[asyncio.Future[Any]] = {talking, leaving}
        site = _sites.get(self._operations)
        if site is not None:
            waiting.add(asyncio.ensure_future(site.closing.wait()))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            left = leaving.done()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        if talking.done() and not talking.cancelled():
            talking.result()
        if not left:
            with suppress(TimeoutError):  # a client that does not read must not keep the server
                async with asyncio.timeout(LAST_WORDS):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _talk(self, send: Send) -> None:
        async with self._operations.feed().watch(self._patterns, self._last) as watcher:
            # Neither this nor a comment ends with an empty line: some clients would take that for an event.
            await _say(send, b"retry: %d\n" % RETRY_MS)
            over, look_at = False, clock.monotonic() + WELCOME_FOR
            while not over:
                anew, told = await watcher.next(PING_EVERY)
                if self._welcome is not None and clock.monotonic() >= look_at:
                    if not await self._welcome():
                        return
                    look_at = clock.monotonic() + WELCOME_FOR
                await _say(send, _text(watcher, anew, told) or b": still here\n")
                over = self._to_the_end and any(has_ended(event.read(topic)) for event, topic in told)


def _text(watcher: Watcher, anew: bool, told: list[Told]) -> bytes:
    life = watcher.life
    parts = [event.sse(life, topic) for event, topic in told]
    if anew:
        head = f"id: {event_id(life, 0)}\nevent: {RESYNC}\ndata: ".encode()
        parts.insert(0, head + resync(clock.now_ms()) + b"\n\n")
    return b"".join(parts)


async def _say(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _left(receive: Receive) -> None:
    """Returns when the client has disconnected."""
    message: dict[str, Any] = {}
    while message.get("type") != "http.disconnect":
        message = dict(await receive())
