"""`chargehand migrate`: brings the schema of a store up to date, or moves a store into another one."""

import sys
from typing import Annotated

import typer

from chargehand import clock
from chargehand.cli import find, show
from chargehand.errors import ConfigurationError
from chargehand.host import moving
from chargehand.host.operations import Operations
from chargehand.stores.location import locate

Source = Annotated[str | None, typer.Option("--from", help="Move the store at this address …", metavar="ADDRESS")]
Target = Annotated[str | None, typer.Option("--to", help="… into the empty one at this address.", metavar="ADDRESS")]
StartOver = Annotated[
    bool, typer.Option("--start-over", help="Delete what an unfinished move has written, and begin again.")
]
REPORT_EVERY = 1.0
"""The minimum number of seconds between two lines about the progress of a move."""


def migrate(
    app: find.App = None,
    store: find.Store = None,
    source: Source = None,
    target: Target = None,
    start_over: StartOver = False,
    json: find.Json = False,
) -> None:
    """Migrate the store to the schema of this version, and show from which version to which.

    Every process that opens a store does the same, on PostgreSQL only if no node of an older version lives. Make a
    backup first: an older version may refuse a migrated store.

    With --from and --to, move a store instead: from SQLite to PostgreSQL, back, or within one of them. Both must be
    stopped. Everything is copied and compared, the source is not changed, and an interrupted move is continued by the
    same command.
    """
    if source is not None or target is not None:
        if source is None or target is None:
            raise ConfigurationError("give --from and --to together: the store to move, and where to")
        if store is not None:
            raise ConfigurationError("give --from and --to, or --store, not both")
        _move(source, target, start_over, json)
        return
    if start_over:
        raise ConfigurationError("--start-over needs --from and --to")
    service = find.service(app, store)
    if not isinstance(service, Operations):
        raise ConfigurationError(f"a store cannot be migrated over HTTP ({service.address}): do it on its machine")
    done = service.migrate()
    if json:
        show.json(done)
        return
    added = f"; added: {', '.join(done.additions)}" if done.additions else ""
    if done.before == 0:
        text = f"was made, with schema {done.after}"
    elif done.before == done.after:
        text = f"has schema {done.after}{added}" if added else f"has schema {done.after} already: nothing to do"
    else:
        text = f"was migrated from schema {done.before} to {done.after}{added}"
    show.line(f"{show.safe(service.address)} {text}")


def _move(source: str, target: str, start_over: bool, json: bool) -> None:
    moved = moving.move(locate(source), locate(target), _Lines(), start_over=start_over)
    if json:
        show.json(moved)
        return
    counted = ", ".join(f"{count:,} of `{part}`" for part, count in moved.rows.items() if count) or "no rows"
    if moved.before:
        show.line(f"{moved.target} is a copy of {moved.source} already ({counted}): nothing to do")
        return
    show.line(f"moved {counted} from {moved.source} to {moved.target}; both were compared, the source is unchanged")
    if moved.queued_again:
        show.line(f"{moved.queued_again:,} of the jobs were running: they count as interrupted, and are queued again")


class _Lines:
    """Prints the progress of a move on standard error, now and then."""

    def __init__(self) -> None:
        self._next = clock.monotonic() + REPORT_EVERY

    def __call__(self, what: str, part: str, done: int, total: int) -> None:
        now = clock.monotonic()
        if now >= self._next:
            self._next = now + REPORT_EVERY
            sys.stderr.write(f"{what}: {done:,} of {total:,} `{part}`\n")
            sys.stderr.flush()
