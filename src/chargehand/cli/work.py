"""`chargehand work`: workers only."""

import signal
import sys
import threading
from typing import Annotated

import typer

from chargehand import log
from chargehand.cli import show
from chargehand.cli.find import application, level
from chargehand.errors import ConfigurationError
from chargehand.host.host import Host


def work(
    app: Annotated[str, typer.Argument(help="The application, as module:object.", metavar="APP")],
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = None,
) -> None:
    """Start the application's crews and keep them working until Ctrl+C or SIGTERM.

    If another node serves the same store already, this one waits and takes over when that is gone. The first
    Ctrl+C lets current jobs finish within their grace; a second one ends at once.
    """
    chosen = level(log_level)
    hand = application(app)
    if not hand.crews:
        raise ConfigurationError(f"{app!r} has no crew: declare one with hand.crew(name, 'module:Class')")
    hand.log_level = chosen or hand.log_level
    log.configure(hand.log_level, style=hand.settings.log)
    log.info("store", path=hand.location)
    hand.open()
    asked: list[int] = []
    hosts: list[Host] = []

    def ask(number: int, _: object) -> None:
        asked.append(number)
        for host in hosts:
            end(host)

    def end(host: Host) -> None:
        if len(asked) > 1:
            host.kill()
            return
        log.info("stopping; once more ends at once", signal=signal.Signals(asked[0]).name)
        threading.Thread(target=host.stop, daemon=True).start()

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    host = hand.host(give_up=True)
    hosts.append(host)
    if asked:  # before there was anything to stop
        end(host)
    host.ended.wait()
    if host.failed is not None:
        sys.stderr.write(f"chargehand: {show.safe(host.failed.why)}\n")
        sys.exit(host.failed.code)
