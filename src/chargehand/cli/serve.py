"""`chargehand serve`: API and workers."""

from typing import Annotated

import typer

from chargehand import log
from chargehand.cli.find import application, level
from chargehand.errors import ConfigurationError


def serve(
    app: Annotated[str, typer.Argument(help="The application, as module:object.", metavar="APP")],
    host: Annotated[str | None, typer.Option(help="The address to listen on (CHARGEHAND_HOST, 127.0.0.1).")] = None,
    port: Annotated[
        int | None, typer.Option(help="The port; 0: any free one (CHARGEHAND_PORT, 8356).", min=0, max=65535)
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = None,
) -> None:
    """Serve the API and the dashboard, and run the workers (unless EMBED_WORKERS is false), until Ctrl+C or SIGTERM.

    Other machines can reach it only once there is a key that tells callers apart. The first Ctrl+C lets current jobs
    finish within their grace; a second one ends at once.
    """
    chosen = level(log_level)
    hand = application(app)
    hand.log_level = chosen or hand.log_level
    log.configure(hand.log_level, style=hand.settings.log)
    try:
        from chargehand.web.serving import serve as run
    except ImportError as error:
        raise ConfigurationError(f"{error}: serving needs more: pip install 'chargehand[web]'") from None
    run(hand, host or hand.settings.host, hand.settings.port if port is None else port)
