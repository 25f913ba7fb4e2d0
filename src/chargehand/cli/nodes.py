"""`chargehand nodes`: the nodes that share a store."""

from collections.abc import Sequence

import typer

from chargehand.cli import find, show
from chargehand.errors import EXIT_ERROR
from chargehand.live.bodies import NodeBody
from chargehand.live.components import GONE

COLUMNS = ("NODE", "STATUS", "MACHINE", "PID", "VERSION", "STARTED", "LAST BEAT", "CREWS")


def nodes(app: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """Show the nodes that share the store: machine, version, last heartbeat, and the live workers of each crew.

    A node that is gone has disappeared without having been stopped; its jobs go to other nodes. Exit status 1 if no
    node runs.
    """
    found = find.service(app, store).nodes()
    if json:
        show.json(found)
    else:
        table(found)
    if all(node.status == GONE for node in found):
        raise typer.Exit(EXIT_ERROR)


def table(found: Sequence[NodeBody]) -> None:
    """Prints the nodes."""
    rows = [_row(node) for node in found]
    show.table(COLUMNS, rows) if rows else show.line("no nodes; start one with `chargehand work APP`")


def _row(node: NodeBody) -> list[str | int | None]:
    beat = None if node.beat_age_ms is None else f"{show.span(max(0, node.beat_age_ms) / 1000)} ago"
    crews = show.staff((crew.crew, crew.live, crew.configured) for crew in node.crews)
    status = f"{node.status} ({node.drain})" if node.drain else node.status
    about = [node.name, status, node.machine, node.pid, node.version, show.ago(node.started_ms), beat]
    # In the last column, the sentence of a table, so that a narrow terminal cuts neither.
    return [*about, "; ".join(filter(None, (node.reason, crews))) or None]
