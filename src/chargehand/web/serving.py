"""Serves Chargehand alone, at the root path: the server of `chargehand serve`."""

import signal
import socket
from ipaddress import ip_address
from types import FrameType
from typing import TYPE_CHECKING

from chargehand import log
from chargehand.errors import ConfigurationError
from chargehand.web.api import create
from chargehand.web.attach import wrap_lifespan
from chargehand.web.keyring import ADMIN, admin_key
from chargehand.web.server import BACKLOG, SEND_BUFFER, Config, Server
from chargehand.web.site import Site

if TYPE_CHECKING:
    from chargehand.app import Chargehand


def serve(hand: "Chargehand", host: str, port: int) -> None:
    """Serves until SIGINT or SIGTERM. Raises ConfigurationError if the address cannot or must not be used, or if the
    settings do not fit the crews."""
    hand.check_settings()  # uvicorn would show a traceback
    hand.open()
    with listen(hand, host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        site = Site(hand, "", address=f"http://{shown}:{listening.getsockname()[1]}")
        api = create(site)
        wrap_lifespan(api, site)
        log.info("serving", address=site.address)
        # uvicorn raises the signal again after it has stopped; it must not end the process a second time.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _ignored)
        config = Config(api, hand.settings.http, hand.settings.liveness.grace)
        Server(config).run(sockets=[listening])


def _ignored(number: int, frame: FrameType | None) -> None:
    """Ignores a signal, because the server has already stopped."""


def _is_loopback(host: str) -> bool:
    """Returns whether a host name always means this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        found = ip_address(host)
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def check_listening(hand: "Chargehand", host: str) -> None:
    """Raises ConfigurationError if other machines could connect to this host name while no key exists."""
    if _is_loopback(host.strip("[]").lower()) or admin_key(hand) is not None or hand.api_keys():
        return
    raise ConfigurationError(
        f"listening on {host} would allow other machines to connect, and no key exists yet: create one with "
        f"`chargehand keys create NAME --scope read --scope control` (or set {ADMIN}), or listen on 127.0.0.1"
    )


def listen(hand: "Chargehand", host: str, port: int) -> socket.socket:
    """Returns a listening socket. Raises ConfigurationError if the address cannot or must not be used."""
    check_listening(hand, host)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on host {host!r}: {error.strerror or error}") from None
    family, _, _, _, address = found[0]
    try:
        listening = socket.create_server((str(address[0]), port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another port with --port"
        ) from None
    # Connections inherit both options. asyncio sets TCP_NODELAY only on sockets that name their protocol; without it,
    # the end of a response waits up to 40 ms for the client to acknowledge its beginning.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    return listening
