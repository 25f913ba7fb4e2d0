"""`chargehand work`: the workers, without an HTTP server."""

import sys

from chargehand import log
from chargehand.cli import find
from chargehand.errors import ConfigurationError
from chargehand.host import alone
from chargehand.system import notify, process_1


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
    process_1.divide()
    before = alone.Traces.now()
    hand = find.application(app)
    kept = alone.Traces.now().left(before)
    if not hand.crews:
        raise ConfigurationError(f"{app!r} has no crew: declare one with hand.crew(name, 'module:Class')")
    hand.log_level = chosen or hand.log_level
    log.configure(hand.log_level, style=hand.settings.log)
    hand.log_start(embed_workers=True)
    hand.open()
    if kept is None:
        hand.internal.close()
        try:
            alone.become(hand.brief(), hand.log_level, hand.settings.log, ("chargehand", "work", app))
        except OSError as error:
            log.warning("the host keeps the application loaded, and its memory", why=error)
    else:
        log.info("the host keeps the application loaded: it has made more than its crews", made=kept)
    notify.enable()
    sys.exit(alone.run(lambda: hand.host(give_up=True)))
