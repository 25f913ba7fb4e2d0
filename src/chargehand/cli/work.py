"""`chargehand work`: the workers, without an HTTP server."""

import signal
import sys

from chargehand import log
from chargehand.cli import find, show
from chargehand.errors import ConfigurationError
from chargehand.host.host import Host


def work(
    app: find.RequiredApp,
    log_level: find.LogLevel = None,
) -> None:
    """Run the crews of the application until Ctrl+C or SIGTERM.

    If another node of this machine serves the same store, this one waits and takes over when that node has ended. On
    PostgreSQL, nodes of several machines share the work: each needs its own name (NODE_NAME, default: the host name).
    The first Ctrl+C lets running jobs finish within the grace period; a second one exits at once.
    """
    chosen = find.level(log_level)
    hand = find.application(app)
    if not hand.crews:
        raise ConfigurationError(f"{app!r} has no crew: declare one with hand.crew(name, 'module:Class')")
    hand.log_level = chosen or hand.log_level
    log.configure(hand.log_level, style=hand.settings.log)
    hand.log_start(embed_workers=True)
    hand.open()
    signals: list[int] = []
    hosts: list[Host] = []

    def receive(number: int, _: object) -> None:
        signals.append(number)
        for host in hosts:
            end(host)

    def end(host: Host) -> None:
        if len(signals) > 1:
            host.kill()
            return
        log.info("stopping; a second signal exits at once", signal=signal.Signals(signals[0]).name)
        host.begin_stop()

    signal.signal(signal.SIGINT, receive)
    signal.signal(signal.SIGTERM, receive)
    host = hand.host(give_up=True)
    hosts.append(host)
    if signals:  # received before the host existed
        end(host)
    host.ended.wait()
    if host.failed is not None:
        sys.stderr.write(f"chargehand: {show.safe(host.failed.why)}\n")
        sys.exit(host.failed.code)
