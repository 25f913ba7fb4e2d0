"""Makes the token while no key exists, and tells the operator where the dashboard is.

On a terminal the address is printed with the token, as a fragment, which browsers do not send to servers. The token is
in no log: without a terminal only the path of its file is logged.
"""

import asyncio
import os
import sys
from contextlib import suppress
from ipaddress import ip_address
from typing import TextIO

from chargehand import clock, log
from chargehand.errors import ChargehandError
from chargehand.host import place
from chargehand.ids import new_id
from chargehand.processes import proc
from chargehand.web.keyring import admin_key
from chargehand.web.site import Site

LOOK_EVERY = 0.1
"""Seconds between two looks for the sockets on which the server listens."""
LOOK_FOR = 30.0
LOOK_ON = 3.0
"""Seconds to go on looking after a socket has answered that does not serve the site: another one may be opened."""
RETRY_EVERY = 2.0
"""Seconds between two attempts to make the token."""
PROBE_LIMIT = 2.0
_PROBE = "GET {path}/healthz HTTP/1.1\r\nHost: {host}:{port}\r\nX-Request-ID: {name}\r\nConnection: close\r\n\r\n"


async def announce(site: Site) -> None:
    """Makes the token, finds the address, and prints or logs them."""
    token = await _token(site)
    if site.closing.is_set():
        return
    address = site.address or await _find(site)
    url = None if address is None else f"{address}{site.prefix}/dashboard"
    if url is not None and not place.keep(site.hand.location, url):
        return  # another process of the same server tells it
    terminal = _terminal()
    if token is None or not site.aloud:
        return
    if terminal is not None:
        where = url or f"{site.prefix}/dashboard on this server"
        terminal.write(f"dashboard: {url}#token={token}\n" if url else f"dashboard: {where}, with #token={token}\n")
        terminal.flush()
    else:
        log.info("no key exists: HTTP requires the token in this file", file=site.hand.internal.keys.token_file)


def end(site: Site) -> None:
    """Removes the record of the address that this process has made."""
    with suppress(ChargehandError):
        place.forget(site.hand.location)


async def _token(site: Site) -> str | None:
    """Makes the token; None if a key exists. Retries until the store can be read."""
    keys, logged = site.hand.internal.keys, False
    while not site.closing.is_set():
        try:
            if admin_key(site.hand) is not None:
                await site.in_thread(keys.end_token)
                return None
            return await site.in_thread(keys.make_token)
        except ChargehandError as error:
            if not logged:
                log.error("the token for HTTP cannot be made", why=error)
            logged = True
            await _wait(site, RETRY_EVERY)
    return None


async def _wait(site: Site, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(site.closing.wait(), seconds)


async def _find(site: Site) -> str | None:
    """Returns the URL on which this server serves the site, which the application does not know; None if not found.

    A socket that answers something else is asked once: a middleware of the application may refuse the request.
    """
    others: set[tuple[str, int]] = set()
    end = clock.monotonic() + LOOK_FOR
    while clock.monotonic() < end and not site.closing.is_set():
        for host, port in proc.listening():
            if (host, port) in others:
                continue
            reached = _reachable(host)
            serves = await _serves(site, reached, port)
            if serves:
                shown = f"[{reached}]" if ":" in reached else reached
                return f"http://{shown}:{port}"
            if serves is not None:
                others.add((host, port))
                end = min(end, clock.monotonic() + LOOK_ON)
        await _wait(site, LOOK_EVERY)
    return None


def _reachable(host: str) -> str:
    """Returns an address of this machine on which a socket that listens on `host` is reached."""
    address = ip_address(host)
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


async def _serves(site: Site, host: str, port: int) -> bool | None:
    """Returns whether this site answers there: other sockets of the process may listen, too. None: nothing answers."""
    name = new_id()
    text = _PROBE.format(path=site.prefix, host=f"[{host}]" if ":" in host else host, port=port, name=name)
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(PROBE_LIMIT):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(text.encode())
            return name.encode() in await reader.read(4096)
    except (OSError, TimeoutError) as error:
        return False if writer is not None and isinstance(error, ConnectionError) else None
    finally:
        if writer is not None:
            writer.close()


def _terminal() -> TextIO | None:
    """Returns the terminal of this process: standard error or output, if one is a terminal."""
    for stream in (sys.stderr, sys.stdout):
        with suppress(OSError, ValueError, AttributeError):
            if os.isatty(stream.fileno()):
                return stream
    return None
