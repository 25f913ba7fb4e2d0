"""The node around a server's life: there before the first request, gone after the last; streams end first.

The server's own handling of signals is kept: what is done here is done beside it.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType

from chargehand import log
from chargehand.app import Chargehand
from chargehand.errors import ChargehandError
from chargehand.host.host import Host
from chargehand.web.site import Site

RELOAD_GRACE = 1.0
"""Seconds for current jobs when a developer's change restarts the server, which waits for us."""
LOOK = 2.0
"""Seconds between looks for work that nobody does, in an API without workers."""


@asynccontextmanager
async def hosted(site: Site) -> AsyncGenerator[None]:
    """Host a node, unless workers are elsewhere; whatever is wrong with the settings is raised before anything runs."""
    hand = site.hand
    hand.check_settings()
    log.configure_if_unset(hand.log_level, hand.settings.log)
    log.info("store", path=hand.location)
    site.open()
    host = hand.host() if hand.settings.embed_workers else None
    watch = asyncio.create_task(_look_out(site)) if host is None else None
    with _heeding_signals(site, host):
        try:
            yield
        finally:
            site.closing.set()
            if watch is not None:
                await watch
            await asyncio.to_thread(hand.unhost, RELOAD_GRACE if _reloading() else None)


@contextmanager
def _heeding_signals(site: Site, host: Host | None) -> Generator[None]:
    """End streams when the server is told to stop, which would wait for them; a second Ctrl+C waits for no job."""
    if threading.current_thread() is not threading.main_thread():
        yield  # such as a test's server: whoever runs that stops it
        return
    loop = asyncio.get_running_loop()
    asked: list[int] = []

    def heed(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(site.closing.set)
        if host is not None and number == signal.SIGINT and number in asked:
            host.kill()
        asked.append(number)
        theirs[number](number, frame)

    theirs = {
        int(number): before
        for number in (signal.SIGINT, signal.SIGTERM)
        if callable(before := signal.getsignal(number)) and not isinstance(before, signal.Handlers)
    }
    for number in theirs:
        signal.signal(number, heed)
    try:
        yield
    finally:
        for number, before in theirs.items():
            if signal.getsignal(number) is heed:
                signal.signal(number, before)


def _reloading() -> bool:
    """Whether a reloader runs this server: it waits for us, without a limit, after every change of a file."""
    development = Path(sys.argv[0]).name == "fastapi" and sys.argv[1:2] == ["dev"]
    return development or "--reload" in sys.argv or os.environ.get("UVICORN_RELOAD", "").lower() in ("1", "true", "yes")


async def _look_out(site: Site) -> None:
    """Say so when work waits and no node is there to do it."""
    before: list[str] = []
    said: list[str] = []
    while not site.closing.is_set():
        queues = await asyncio.to_thread(_waiting_for_nobody, site.hand)
        if queues and queues == before and queues != said:
            why = "no node runs, and this API has none (EMBED_WORKERS is false): start one with `chargehand work APP`"
            log.error(
                "work waits and nobody does it",
                event=log.Event.QUEUE_UNSERVED,
                queues=",".join(queues),
                store=site.hand.location,
                why=why,
            )
        said = queues if queues == before else said
        before = queues
        try:
            await asyncio.wait_for(site.closing.wait(), LOOK)
        except TimeoutError:
            continue


def _waiting_for_nobody(hand: Chargehand) -> list[str]:
    try:
        return hand.internal.waiting_for_nobody()
    except ChargehandError as error:  # said by whoever uses the store; here it must not end the looking
        log.warning("the store cannot be looked at", store=hand.location, why=error)
        return []
