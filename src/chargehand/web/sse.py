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
from chargehand.live.broker import Delivery
from chargehand.model.topic import RESYNC, Patterns, event_id, flow_topic, has_ended, job_topic, parse, resync
from chargehand.web.site import Site

if TYPE_CHECKING:
    from chargehand.host.operations import Operations

PING_EVERY = 15.0
"""Seconds without events after which a comment is sent, because proxies close idle connections."""
RECHECK_EVERY = 0.5
"""Seconds after which the access of the client is checked again before something is sent: its key may be revoked."""
RECHECK_LIMIT = 0.2
"""Seconds that events wait for that check: they come from the node, also while the store hangs."""
RETRY_MS = 1000
END_TIMEOUT = 0.5
"""Seconds that a client has to receive the end of its stream."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

_sites: "WeakKeyDictionary[Operations, Site]" = WeakKeyDictionary()


def serve(site: Site) -> None:
    """Makes the event streams of this Chargehand end when the site closes."""
    _sites[site.hand.internal] = site


def of_job(operations: "Operations", job_id: str) -> "EventStream":
    """Returns a stream of the events of one job, which ends when the job ends."""
    return EventStream(operations, parse((job_topic(job_id),)), ends_with_it=True)


def of_flow(operations: "Operations", flow_id: str) -> "EventStream":
    """Returns a stream of the events of one flow, which ends when the flow ends."""
    return EventStream(operations, parse((flow_topic(flow_id),)), ends_with_it=True)


class EventStream(StreamingResponse):
    """Streams events until the client disconnects or loses access, the server stops or, if wanted, its object ends."""

    def __init__(
        self,
        operations: "Operations",
        patterns: Patterns,
        last: str | None = None,
        *,
        allowed: Callable[[], Awaitable[bool]] | None = None,
        ends_with_it: bool = False,
    ) -> None:
        super().__init__(iter(()), media_type="text/event-stream", headers=HEADERS)
        self._operations, self._patterns, self._last = operations, patterns, last
        self._allowed, self._ends_with_it = allowed, ends_with_it

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends events until the client disconnects or the server stops."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        sending = asyncio.ensure_future(self._send_events(send))
        disconnect = asyncio.ensure_future(_disconnected(receive))
        waiting: set[asyncio.Future[Any]] = {sending, disconnect}
        site = _sites.get(self._operations)
        if site is not None:
            waiting.add(asyncio.ensure_future(site.closing.wait()))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            left = disconnect.done()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        if sending.done() and not sending.cancelled():
            sending.result()
        if not left:
            with suppress(TimeoutError):  # a client that does not read must not delay the server
                async with asyncio.timeout(END_TIMEOUT):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_events(self, send: Send) -> None:
        async with self._operations.feed().watch(self._patterns, self._last) as watcher:
            # Neither this nor a comment ends with an empty line, which some clients take for an event.
            await _write(send, b"retry: %d\n" % RETRY_MS)
            over, check_at = False, clock.monotonic() + RECHECK_EVERY
            while not over:
                anew, events = await watcher.next(PING_EVERY)
                if clock.monotonic() >= check_at:
                    if await self._lost_access():
                        return
                    check_at = clock.monotonic() + RECHECK_EVERY
                await _write(send, _text(watcher, anew, events) or b": still here\n")
                over = self._ends_with_it and any(has_ended(event.read(topic)) for event, topic in events)

    async def _lost_access(self) -> bool:
        """Returns whether the client is no longer allowed to read the events; False if that is not known in time."""
        if self._allowed is None:
            return False
        try:
            async with asyncio.timeout(RECHECK_LIMIT):
                return not await self._allowed()
        except TimeoutError:
            return False


def _text(watcher: Watcher, anew: bool, events: list[Delivery]) -> bytes:
    life = watcher.life
    parts = [event.sse(life, topic) for event, topic in events]
    if anew:
        head = f"id: {event_id(life, 0)}\nevent: {RESYNC}\ndata: ".encode()
        parts.insert(0, head + resync(clock.now_ms()) + b"\n\n")
    return b"".join(parts)


async def _write(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    """Returns when the client has disconnected."""
    message: dict[str, Any] = {}
    while message.get("type") != "http.disconnect":
        message = dict(await receive())
