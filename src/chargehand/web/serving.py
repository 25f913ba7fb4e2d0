"""Serves Chargehand alone, at the root: what `chargehand serve` runs."""

import signal
import socket
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from chargehand import log
from chargehand.errors import ConfigurationError
from chargehand.web.api import create
from chargehand.web.attach import enclose
from chargehand.web.listen import check_listening
from chargehand.web.site import Site

if TYPE_CHECKING:
    from chargehand.app import Chargehand

BACKLOG = 512


def serve(hand: "Chargehand", host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM; ConfigurationError if this address cannot, or must not, be listened on."""
    hand.open()
    with listen(hand, host, port) as listening:
        site = Site(hand, "")
        api = create(site)
        enclose(api, site)
        shown = f"[{host}]" if ":" in host else host
        log.info("serving", address=f"http://{shown}:{listening.getsockname()[1]}")
        # uvicorn repeats a signal once it has stopped; that it was heeded is enough.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _was_heeded)
        config = uvicorn.Config(api, lifespan="on", log_config=None, access_log=False)
        uvicorn.Server(config).run(sockets=[listening])


def _was_heeded(number: int, frame: FrameType | None) -> None:
    """The server has stopped already."""


def listen(hand: "Chargehand", host: str, port: int) -> socket.socket:
    """A socket that listens there; ConfigurationError if that cannot, or must not, be."""
    check_listening(hand, host)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"host {host!r} cannot be listened on: {error.strerror or error}") from None
    family, _, _, _, address = found[0]
    try:
        return socket.create_server((str(address[0]), port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(
            f"{host}:{port} cannot be listened on: {error.strerror or error}; choose another with --port"
        ) from None
