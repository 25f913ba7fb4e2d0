"""`chargehand serve`: the HTTP server and the workers."""

from typing import Annotated

import typer

from chargehand import log
from chargehand.cli import find
from chargehand.system import extras, notify, process_1


def serve(
    app: find.RequiredApp,
    host: Annotated[str | None, typer.Option(help="The address to listen on (CHARGEHAND_HOST, 127.0.0.1).")] = None,
    port: Annotated[
        int | None, typer.Option(help="The port; 0 selects a free one (CHARGEHAND_PORT, 8356).", min=0, max=65535)
    ] = None,
    log_level: find.LogLevel = None,
) -> None:
    """Serve the API and the dashboard, and run the workers (unless EMBED_WORKERS is false), until Ctrl+C or SIGTERM.

    Listening on an address that other machines can reach requires an API key. The first Ctrl+C lets running jobs
    finish within the grace period; a second one exits at once.
    """
    chosen = find.level(log_level)
    process_1.divide()
    hand = find.application(app)
    hand.log_level = chosen or hand.log_level
    log.configure(hand.log_level, style=hand.settings.log)
    with extras.required("web", "the server"):
        from chargehand.web.serving import serve as run
    notify.enable()
    run(hand, host or hand.settings.host, hand.settings.port if port is None else port)
