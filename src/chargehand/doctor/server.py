"""The examination of a store on a server, its node on this machine, and the server itself. Runs in the child process.

The step least likely to hang comes first. It writes nothing and imports no application.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from chargehand.doctor import looks, tables
from chargehand.errors import StoreError
from chargehand.host import nodelock
from chargehand.stores.location import Location, locate_unread

if TYPE_CHECKING:
    from chargehand.stores.postgres.peek import Peek


def store(url: str, name: str = "store", *more: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Examines one store and its node on this machine; with `more`, first all running nodes.

    `name` is that of the files of the node; if it does not run, another one of the store is examined.
    """
    if more:
        yield from looks.nodes()
    location = locate_unread(url)
    location = Location(location.path.with_name(name), location.server)
    yield "state folder", {"path": str(location)}
    location = nodelock.nearest(location.resolved())
    node = looks.holder(location)
    yield "node", {"node": node}
    if node["held"] and not node["elsewhere"] and not node.get("refused"):
        node |= looks.asked(location)
    yield "connection", {"node": node, "server": {}}
    yield from _server(location)
    orphans = (
        []
        if node["held"]
        else [found for each in (location, *location.of_other_nodes) for found in looks.orphans(each)]
    )
    yield "", {"orphans": orphans}


def _server(location: Location) -> Iterator[tuple[str, dict[str, Any]]]:
    """Examines the server, then the tables."""
    try:
        peek, found = opened(location)
    except StoreError as error:
        yield "processes", {"server": {"error": str(error), "code": error.code}}
        return
    refused: dict[str, str] = {}
    for name, look in LOOKS.items():
        yield name, {"server": found}
        try:
            found |= look(peek)
        except StoreError as error:
            refused[name] = str(error)
    yield "tables", {"server": found, "refused": refused}
    try:
        yield from _tables(peek, found, refused)
    except StoreError as error:
        yield "processes", {"server": {**found, "error": str(error), "code": error.code}}
    finally:
        peek.close()


def _tables(peek: "Peek", found: dict[str, Any], refused: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    from chargehand.stores.postgres.peek import known_schema

    if any(right.startswith(("USAGE on schema", "SELECT")) for right in found.get("lacks", ())):
        return  # the missing rights are a finding
    # The times in the tables are of the server's clock.
    told = {"knows": known_schema(), "schema": peek.schema() or None, "oldest": peek.oldest()}
    yield "tables", {"book": told, "now_ms": peek.now_ms(), "ground": {"exists": told["schema"] is not None}}
    if told["schema"] is None:
        return
    try:
        found |= peek.peers()
    except StoreError as error:
        refused["nodes"] = str(error)
    yield "tables", {"server": found}
    for step, part in tables.read(peek, told, StoreError, is_lost):
        if "refused" in part and found.get("locked") is None:
            refused |= part["refused"]
        yield step, {**part, "refused": refused}


def is_lost(error: Exception) -> bool:
    """Returns whether the server is gone."""
    return isinstance(error, StoreError) and error.code == "server-gone"


def opened(location: Location) -> "tuple[Peek, dict[str, Any]]":
    """Returns a connection to the server of the store, and what is known of the driver."""
    assert location.server is not None
    try:
        from chargehand.stores.postgres.peek import Peek, driver_facts
    except ImportError as error:
        raise StoreError(f"the store {location} needs the driver psycopg: {error}", "no-driver") from error
    return Peek(location.server), dict(driver_facts())


LOOKS: dict[str, Callable[["Peek"], dict[str, Any]]] = {
    "state": lambda peek: peek.state(),
    "clock": lambda peek: peek.skew(),
    "settings": lambda peek: peek.settings(),
    "connections": lambda peek: peek.connections(),
    "snapshots": lambda peek: peek.snapshots(),
    "vacuum": lambda peek: peek.vacuum(),
    "rights": lambda peek: peek.rights(),
    "locks": lambda peek: peek.locks(),
}
"""What is asked of the server, by the name of the step."""
