"""Starts a node before the first request of a server; the signal that stops the server stops the node, too.

The signal handlers of the server stay in effect: the handlers installed here call them.
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
from chargehand.web import announce
from chargehand.web.site import Site

RELOAD_GRACE = 1.0
"""The grace period of running jobs, in seconds, when a reloader restarts the server: it waits for the node."""
CHECK_INTERVAL = 2.0
"""Seconds between two checks for jobs that no node runs, in an API without workers."""


@asynccontextmanager
async def hosted(site: Site) -> AsyncGenerator[None]:
    """Hosts a node, unless workers run elsewhere. Raises ConfigurationError for invalid settings before it starts."""
    hand = site.hand
    hand.check_settings()
    log.configure_if_unset(hand.log_level, hand.settings.log)
    hand.log_start(embed_workers=hand.settings.embed_workers)
    site.open()
    host = hand.host() if hand.settings.embed_workers else None
    watch = asyncio.create_task(_report_unserved(site)) if host is None else None
    announcing = asyncio.create_task(announce.announce(site))
    with _handling_signals(site, host):
        try:
            yield
        finally:
            site.close()
            announcing.cancel()
            await asyncio.gather(announcing, return_exceptions=True)
            announce.end(site)
            if watch is not None:
                await watch
            await asyncio.to_thread(hand.unhost, RELOAD_GRACE if _reloading() else None)


@contextmanager
def _handling_signals(site: Site, host: Host | None) -> Generator[None]:
    """On SIGINT and SIGTERM stops the node and ends streams and bodies; a second SIGINT kills running jobs."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(site.close)
        if host is not None:
            # At once: the server ends the lifespan only after its last connection, and clients may stall.
            host.begin_stop()
            if number == signal.SIGINT and number in received:
                host.kill()
        received.append(number)
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
        for number, before in theirs.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, before)


def _reloading() -> bool:
    """Returns whether a reloader runs this server: it waits without a limit for the server to stop."""
    development = Path(sys.argv[0]).name == "fastapi" and sys.argv[1:2] == ["dev"]
    return development or "--reload" in sys.argv or os.environ.get("UVICORN_RELOAD", "").lower() in ("1", "true", "yes")


async def _report_unserved(site: Site) -> None:
    """Logs an error if jobs are waiting and no node runs, and when the store begins and ceases to fail."""
    before: list[str] = []
    logged: list[str] = []
    failing = False
    while not site.closing.is_set():
        queues = await asyncio.to_thread(_unserved_queues, site.hand, quiet=failing)
        if failing and queues is not None:
            log.info("the store can be read again", store=site.hand.location)
        failing, queues = queues is None, queues or []
        if queues and queues == before and queues != logged:
            why = "no node runs, and this API starts none (EMBED_WORKERS is false): run `chargehand work APP`"
            log.error(
                "jobs are waiting and no node runs them",
                event=log.Event.QUEUE_UNSERVED,
                queues=",".join(queues),
                store=site.hand.location,
                why=why,
            )
        logged = queues if queues == before else logged
        before = queues
        try:
            await asyncio.wait_for(site.closing.wait(), CHECK_INTERVAL)
        except TimeoutError:
            continue


def _unserved_queues(hand: Chargehand, *, quiet: bool) -> list[str] | None:
    """Returns the queues whose jobs nobody takes; None if the store cannot be read, which is logged unless `quiet`."""
    try:
        return hand.internal.waiting_for_nobody()
    except ChargehandError as error:  # requests report it, too; the checks must continue
        if not quiet:
            log.warning("the store cannot be read", store=hand.location, why=error)
        return None
