"""The stores, each in its own package; all of them implement the contract in `chargehand.store`."""

import msgspec

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


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """The schema version of a store before and after a migration, and the additive steps that were applied."""

    before: int
    after: int
    additions: tuple[str, ...]


def migrate(location: Location) -> Migrated:
    """Brings the schema of an existing store up to date, and returns what was done."""
    from chargehand.stores.sqlite.peek import Peek

    def seen() -> tuple[int, set[str]]:
        peek = Peek(location)
        try:
            return peek.schema(), peek.additions()
        finally:
            peek.close()

    before, had = seen()
    open_store(location, create=False).close()
    after, has = seen()
    return Migrated(before=before, after=after, additions=tuple(sorted(has - had)))
