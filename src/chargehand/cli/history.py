"""`chargehand history`: the snapshots of the health of every component."""

from typing import Annotated, Any, cast

import msgspec
import typer

from chargehand import clock
from chargehand.cli import find, orders, show
from chargehand.model.records import Snapshot


def history(
    since: Annotated[str, typer.Option(help="How long ago the first snapshot may be: 90s, 10m, 1.5h, 2d.")] = "1h",
    worker: Annotated[str | None, typer.Option(help="Only this worker, as crew:index.")] = None,
    limit: Annotated[int, typer.Option(help="How many snapshots, oldest first.", min=1, max=10_000)] = 100,
    after: Annotated[
        int | None, typer.Option(help="The page after the one that ended at this time (ms since 1970).", min=0)
    ] = None,
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Show the recorded health of the node and its workers, if the setting `history` is true (CHARGEHAND_HISTORY)."""
    begin = clock.now_ms() - round(orders.seconds(since, "--since") * 1000) if after is None else after + 1
    found = find.service(app, store).history(begin, limit)
    component = None if worker is None else f"worker:{worker.removeprefix('worker:')}"
    rows: list[tuple[int, list[dict[str, Any]]]] = [(each.timestamp_ms, _components(each, component)) for each in found]
    if json:
        show.json([{"timestamp_ms": at, "components": components} for at, components in rows])
        return
    names = ("component", "status", "flags", "current_job", "pid", "restart_count")
    show.table(
        ("WHEN", "COMPONENT", "STATUS", "FLAGS", "JOB", "PID", "RESTARTS"),
        [
            (show.moment(at), *(_cell(component.get(name)) for name in names))
            for at, components in rows
            for component in components
        ],
    )
    if not found:
        show.line("no snapshots; CHARGEHAND_HISTORY=true makes a node record them")
    elif len(found) == limit:
        show.line(f"more: --after {found[-1].timestamp_ms}")


def _components(snapshot: Snapshot, component: str | None) -> list[dict[str, Any]]:
    every = msgspec.json.decode(snapshot.components, type=list[dict[str, Any]])
    return [each for each in every if component in (None, each["component"])]


def _cell(value: Any) -> Any:
    return ", ".join(cast("list[str]", value)) or None if isinstance(value, list) else value
