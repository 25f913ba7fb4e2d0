"""The stores, each in its own package; all of them implement the contract in `chargehand.store`.

A host that only waits loads this module, so it imports nothing before its use.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from chargehand.errors import NoDriver
from chargehand.system.forks import importing
from chargehand.system.linux import require_linux

if TYPE_CHECKING:
    from chargehand.model.job import JobPolicy
    from chargehand.model.records import Migrated
    from chargehand.store import Listener, OnFailed, Store
    from chargehand.stores.location import Location
    from chargehand.stores.moving import Reader, Writer
    from chargehand.stores.postgres.address import Address


def open_store(
    where: "str | Location",
    *,
    create: bool = True,
    node: bool = False,
    asked: bool = False,
    synchronous: str = "full",
    policy: "JobPolicy | None" = None,
    on_failed: "OnFailed | None" = None,
) -> "Store":
    """Returns the store at this address, checked and migrated. `node`: the caller is the node.

    `asked`: the schema is migrated although nodes of an older version live, if they can use it.
    `synchronous` is "full", or "normal", where a power cut may undo the commits that were acknowledged last.
    `policy` is that of the node, for jobs of other nodes that have died; None: the default. `on_failed` returns the
    jobs to enqueue because of those that failed with their node.
    """
    require_linux()
    from chargehand.stores.location import locate

    location = locate(where) if isinstance(where, str) else where
    if location.server is not None:
        return _on_server(
            location.server, create=create, node=node, asked=asked, synchronous=synchronous, policy=policy,
            on_failed=on_failed,
        )  # fmt: skip
    with importing():
        from chargehand.stores.sqlite.store import SqliteStore

    return SqliteStore(location.path, create=create, tend=node, synchronous=synchronous)


def _on_server(
    server: "Address",
    *,
    create: bool,
    node: bool,
    asked: bool,
    synchronous: str,
    policy: "JobPolicy | None",
    on_failed: "OnFailed | None",
) -> "Store":
    with _driver(server):
        from chargehand.model.job import DEFAULT_POLICY
        from chargehand.store import no_jobs
        from chargehand.stores.postgres.store import PostgresStore

    return PostgresStore(
        server, create=create, node=node, asked=asked, synchronous=synchronous, policy=policy or DEFAULT_POLICY,
        on_failed=on_failed or no_jobs,
    )  # fmt: skip


def open_listener(server: "Address", stale: Callable[[], None]) -> "Listener":
    """Returns a connection for notifications. `stale` is called, in any thread, when `receive` is to be called because
    the connection must be replaced. Raises StoreError."""
    with _driver(server):
        from chargehand.stores.postgres.listening import PostgresListener

    return PostgresListener(server, stale)


@contextmanager
def _driver(server: "Address") -> Generator[None]:
    """Raises NoDriver if an import in the block fails for want of the driver."""
    with importing():
        try:
            yield
        except ImportError as error:
            raise NoDriver(
                f"the store {server.shown} needs the driver psycopg ({error}): pip install 'chargehand[postgres]'"
            ) from error


def open_reader(location: "Location", *, target: bool = False) -> "Reader":
    """Returns what reads all rows of a store for a move, and changes nothing in it. `target`: it is being filled."""
    require_linux()
    if location.server is not None:
        with _driver(location.server):
            from chargehand.stores.postgres.moving import PostgresReader

        return PostgresReader(location.server, target=target)
    with importing():
        from chargehand.stores.sqlite.moving import SqliteReader

    return SqliteReader(location, target=target)


def open_writer(location: "Location") -> "Writer":
    """Returns what writes the rows of a move. The store is created if there is none."""
    require_linux()
    if location.server is not None:
        with _driver(location.server):
            from chargehand.stores.postgres.moving import PostgresWriter

        return PostgresWriter(location.server)
    with importing():
        from chargehand.stores.sqlite.moving import SqliteWriter

    return SqliteWriter(location)


def migrate(location: "Location") -> "Migrated":
    """Brings the schema of a store up to date, and returns what was done. On a server it makes the tables, too."""
    store = open_store(location, create=location.server is not None, asked=True)
    try:
        return store.migrated
    finally:
        store.close()
