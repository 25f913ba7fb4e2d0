"""One PostgreSQL transaction. It neither begins nor ends itself: the store does."""

from collections.abc import Callable, Sequence
from typing import Any

from chargehand.errors import ChargehandError
from chargehand.ids import NewIds
from chargehand.model.records import Holder
from chargehand.stores.postgres.access import PostgresAccess
from chargehand.stores.postgres.fleet import PostgresFleet, Registration
from chargehand.stores.postgres.jobs import PostgresJobs
from chargehand.stores.postgres.session import Session


class _Ended:
    def __getattr__(self, name: str) -> Any:
        raise ChargehandError("the transaction has ended: use it inside its `with` block")


_ENDED: Any = _Ended()


class PostgresTransaction:
    """Implements `chargehand.store.Transaction`."""

    def __init__(
        self, db: Session, new_ids: NewIds, registered: Holder | None, register: Callable[[Registration], None]
    ) -> None:
        now = db.now
        self._db = db
        self.jobs = PostgresJobs(db, now, new_ids, registered)
        self.fleet = PostgresFleet(db, now, register)
        self.access = PostgresAccess(db, now)

    def end(self) -> None:
        """Refuses further use: a later statement would commit by itself, or join another transaction."""
        self._db = self.jobs = self.fleet = self.access = _ENDED

    def execute(self, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._db.run(sql, bindings)
