"""One SQLite transaction. It neither begins nor ends itself, and takes no lock: the store does."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chargehand.errors import ChargehandError
from chargehand.ids import NewIds
from chargehand.stores.sqlite.access import SqliteAccess
from chargehand.stores.sqlite.fleet import SqliteFleet
from chargehand.stores.sqlite.flows import SqliteFlows, SweepPosition
from chargehand.stores.sqlite.jobs import SqliteJobs
from chargehand.stores.sqlite.limits import Limits


class _Ended:
    def __getattr__(self, name: str) -> Any:
        raise ChargehandError("the transaction has ended: use it inside its `with` block")


_ENDED = _Ended()


class SqliteTransaction:
    """Implements `chargehand.store.Transaction`."""

    def __init__(self, db: Any, home: str, now_ms: int, new_ids: NewIds, position: SweepPosition) -> None:
        limits = Limits(db, now_ms)
        self.home = home
        self._db = db
        self.jobs = SqliteJobs(db, now_ms, limits, new_ids)
        self._endings = self.jobs.endings
        self._flows: SqliteFlows | None = None
        self._for_flows = now_ms, limits, position
        self.fleet = SqliteFleet(db, now_ms, limits)
        self.access = SqliteAccess(db, now_ms)

    if not TYPE_CHECKING:  # a type checker knows all attributes

        def __getattr__(self, name: str) -> Any:
            from chargehand.model.spelling import unknown_attribute  # needed for a mistake only

            raise unknown_attribute("Transaction", name)

    def end(self, ended: Any = _ENDED) -> None:
        """Refuses further use: a later statement would commit by itself, or join another transaction."""
        self._db = self.jobs = self._flows = self.fleet = self.access = ended

    @property
    def flows(self) -> SqliteFlows:
        if self._flows is None:  # made on use: most transactions have nothing to do with it
            now_ms, limits, position = self._for_flows
            self._flows = SqliteFlows(self._db, now_ms, limits, self._endings, position)
        return self._flows

    def complete(self) -> None:
        """Completes what can be decided only when nothing more is added. The store commits then.

        It is not called `commit`: a caller with this object would take it for the end of the transaction.
        """
        if self._endings.begun:
            self._endings.commit()

    @property
    def woken(self) -> frozenset[str]:
        return frozenset(self._endings.edges.woken)

    @property
    def ended_flows(self) -> tuple[str, ...]:
        return tuple(self._endings.flows)

    def execute(self, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._db.execute(sql, tuple(bindings)).fetchall()
