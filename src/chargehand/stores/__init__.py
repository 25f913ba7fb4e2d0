"""The stores, each in its own package; all of them implement the contract in `chargehand.store`."""

from chargehand.model.records import Migrated
from chargehand.store import Store
from chargehand.stores.location import Location, locate
from chargehand.system.forks import importing
from chargehand.system.linux import require_linux


def open_store(where: str | Location, *, create: bool = True, node: bool = False, synchronous: str = "full") -> Store:
    """Returns the store at this address, checked and migrated. `node`: the caller is the node, which checkpoints.

    `synchronous` is "full", or "normal", where a power cut may undo the commits that were acknowledged last.
    """
    require_linux()
    with importing():
        from chargehand.stores.sqlite.store import SqliteStore

    location = where if isinstance(where, Location) else locate(where)
    return SqliteStore(location.path, create=create, tend=node, synchronous=synchronous)


def migrate(location: Location) -> Migrated:
    """Brings the schema of an existing store up to date, and returns what was done."""
    store = open_store(location, create=False)
    try:
        return store.migrated
    finally:
        store.close()
