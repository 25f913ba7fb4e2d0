"""The events of one film as server-sent events, until it has ended or is deleted."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from types import FrameType

import msgspec
from starlette.responses import StreamingResponse

from adreel import clock
from adreel.errors import NoSuchFilm
from adreel.service import FilmView, Service

EVERY = 0.4
"""Seconds between two looks at a film that is being analysed."""
PING = 15.0
ENDED = ("done", "failed", "cancelled")


class Stopping:
    """Knows when the server is about to stop, so that streams and uploads end."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    @contextmanager
    def noticed(self) -> Generator[None]:
        """Notices SIGINT and SIGTERM within the block; the handlers that were there are called, too."""
        self.event = asyncio.Event()  # of this event loop
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread can handle signals
            return
        loop = asyncio.get_running_loop()

        def handle(number: int, frame: FrameType | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self.event.set)
            theirs[number](number, frame)

        theirs = {
            int(number): before
            for number in (signal.SIGINT, signal.SIGTERM)
            if callable(before := signal.getsignal(number)) and not isinstance(before, signal.Handlers)
        }
        for number in theirs:
            signal.signal(number, handle)
        try:
            yield
        finally:
            self.event.set()
            for number, before in theirs.items():
                if signal.getsignal(number) is handle:
                    signal.signal(number, before)


def stream(service: Service, film: str, stopping: Stopping) -> StreamingResponse:
    """Returns the events of a film: `job` with its state after every change, and `gone` when it is deleted."""
    return StreamingResponse(
        _events(service, film, stopping),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _events(service: Service, film: str, stopping: Stopping) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n"
    before, sent = b"", clock.monotonic()
    while not stopping.event.is_set():
        try:
            view: FilmView = await asyncio.to_thread(service.get, film, result=False)
        except NoSuchFilm:
            yield _event("gone", msgspec.json.encode({"id": film}))
            return
        body = msgspec.json.encode(view)
        if body != before:
            before, sent = body, clock.monotonic()
            yield _event("job", body)
            if view.status in ENDED:
                return
        elif clock.monotonic() - sent > PING:
            sent = clock.monotonic()
            yield b": still here\n"
        try:
            await asyncio.wait_for(stopping.event.wait(), EVERY)
        except TimeoutError:
            continue


def _event(kind: str, body: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), body)
