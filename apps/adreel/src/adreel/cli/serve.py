"""`adreel serve`: the API, the page and, unless EMBED_WORKERS is false, the workers."""

import ipaddress
import logging
import sys
from typing import Annotated

import typer

from adreel.errors import AdreelError
from chargehand import Chargehand


def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(help="The port to listen on; default: ADREEL_PORT, or 8356.", min=1, max=65535)
    ] = None,
) -> None:
    """Serve the API and the page, and analyse films, until Ctrl+C."""
    import uvicorn  # imported here: only this command needs it

    from adreel import crews, settings, web
    from adreel.service import Service

    found = settings.read()
    port = found.port if port is None else port
    service = Service.on(found, crews.build(found))
    check_host(host, service.crews.hand, is_open=found.open)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    hand = service.crews.hand
    hand.log_level = "WARNING"
    typer.echo(f"{hand.with_token(url) if sys.stdout.isatty() else url} is the page; Ctrl+C stops, no work is lost")
    try:
        uvicorn.run(web.create(service, announce=False), host=host, port=port, log_level="warning")
    finally:
        hand.close()


def check_host(host: str, hand: Chargehand, *, is_open: bool) -> None:
    """Raises AdreelError if others could reach the address while no key exists."""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback and not is_open and hand.settings.admin_key is None and not hand.api_keys():
        raise AdreelError(
            f"no key exists, so that Adreel does not listen on {host}: set CHARGEHAND_ADMIN_KEY, or create a key with "
            "`chargehand keys create NAME --scope read --scope enqueue`, or ADREEL_OPEN=true in a network of your own"
        )
