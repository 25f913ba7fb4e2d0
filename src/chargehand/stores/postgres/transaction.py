"""One PostgreSQL transaction. It neither begins nor ends itself: the store does."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from chargehand.errors import ChargehandError
from chargehand.ids import NewIds
from chargehand.model.records import Holder
from chargehand.stores.postgres.access import PostgresAccess
from chargehand.stores.postgres.edges import Effects
from chargehand.stores.postgres.fleet import PostgresFleet, Registration
from chargehand.stores.postgres.flows import PostgresFlows
from chargehand.stores.postgres.jobs import PostgresJobs
from chargehand.stores.postgres.session import Session
from chargehand.stores.postgres.sweeping import Sweeper


class _Ended:
    def __getattr__(self, name: str) -> Any:
        raise ChargehandError("the transaction has ended: use it inside its `with` block")


_ENDED: Any = _Ended()


class PostgresTransaction:
    """Implements `chargehand.store.Transaction`."""

    def __init__(
        self,
        db: Session,
        new_ids: NewIds,
        registered: Holder | None,
        register: Callable[[Registration], None],
        sweeper: Sweeper,
    ) -> None:
        now = db.now
        self.home = db.address.shown
        self._db = db
        self.effects = Effects()
        self.jobs = PostgresJobs(db, now, new_ids, registered, self.effects)
        self.flows = PostgresFlows(db, now, self.jobs, self.effects, sweeper)
        self.fleet = PostgresFleet(db, now, register)
        self.access = PostgresAccess(db, now)

    if not TYPE_CHECKING:  # a type checker knows all attributes

        def __getattr__(self, name: str) -> Any:
            from chargehand.model.spelling import unknown_attribute  # needed for a mistake only

            raise unknown_attribute("Transaction", name)

    @property
    def woken(self) -> frozenset[str]:
        return frozenset(self.effects.woken)

    @property
    def ended_flows(self) -> tuple[str, ...]:
        return tuple(self.effects.ended_flows)

    def complete(self) -> None:
        """Does, before the commit, what the changes mean for other jobs and for flows."""
        self.jobs.complete(last=True)

    def end(self) -> None:
        """Refuses further use: a later statement would commit by itself, or join another transaction."""
        self._db = self.jobs = self.flows = self.fleet = self.access = _ENDED

    def execute(self, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._db.run(sql, bindings)
