"""A store in PostgreSQL: any number of nodes, and of processes that enqueue and read.

The clock of the store is the server's. A store object has one connection and serves one thread at a time.
"""

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import Any

import msgspec

from chargehand import clock
from chargehand.ids import NewIds, new_id, new_ids
from chargehand.model.batch import Batch, Finished, Result
from chargehand.model.failover import Comparison
from chargehand.model.job import DEFAULT_POLICY, JobPolicy
from chargehand.model.records import Holder, Migrated, NewLife, Retention
from chargehand.store import OnFailed, no_jobs
from chargehand.stores.postgres import driver, schema, statements
from chargehand.stores.postgres.address import Address
from chargehand.stores.postgres.callers import Callers, Within
from chargehand.stores.postgres.fleet import Registration
from chargehand.stores.postgres.prune import prune
from chargehand.stores.postgres.reading import (
    PostgresAccessReading,
    PostgresFleetReading,
    PostgresFlowReading,
    PostgresJobReading,
    now_ms,
)
from chargehand.stores.postgres.session import Session
from chargehand.stores.postgres.sweeping import Sweeper
from chargehand.stores.postgres.transaction import PostgresTransaction
from chargehand.stores.postgres.turn import Turns
from chargehand.stores.surplus import Needed, Surplus

_SQL = statements.load("store")
_FLEET = statements.load("fleet")
_CLAIM = statements.load("claim")
SOON_MS = 1000
"""A look finds jobs that are due within so many ms: the node then knows when."""
MOST_FORMER = 100
"""How many of its former lives a node remembers."""


class PostgresStore:
    """Implements `chargehand.store.Store`."""

    def __init__(
        self,
        address: Address,
        *,
        create: bool = True,
        node: bool = False,
        moving: bool = False,
        asked: bool = False,
        synchronous: str = "full",
        policy: JobPolicy = DEFAULT_POLICY,
        on_failed: OnFailed = no_jobs,
        now_ms: Callable[[], int] | None = None,
        new_ids: NewIds = new_ids,
    ) -> None:
        driver.check_driver()
        kind = driver.MOVE_SETTINGS if moving else driver.NODE_SETTINGS if node else driver.OTHER_SETTINGS
        settings = dict(kind)
        if synchronous == "normal":
            settings["synchronous_commit"] = "off"
        self.session = Session(address, settings, now_ms, announces=not node and not moving)
        self._new_ids, self._surplus, self._needed = new_ids, Surplus(), Needed()
        self._registration: Registration | None = None
        """The node that was registered through this store, if any."""
        self._new_life: NewLife | None = None
        self.jobs = PostgresJobReading(self.session)
        self.flows = PostgresFlowReading(self.session)
        self.fleet = PostgresFleetReading(self.session)
        self.access = PostgresAccessReading(self.session)
        self._sweeper = Sweeper(self.session)
        self._turns = Turns(self, new_ids, policy, on_failed)
        self._callers = Callers(self.session)
        try:
            if not moving:
                schema.check_finished(self.session)
            self.migrated = schema.migrate(self.session, create=create, asked=asked)
        except BaseException:
            self.close()
            raise

    def migrate(self) -> Migrated:
        return schema.migrate(self.session, create=True, asked=True)

    def changed(self, *, again: bool = False) -> bool:
        ((snapshot, _),) = self.session.rows(_SQL["snapshot"])
        return self.session.watch.changed(snapshot, again=again)

    def look(self, queues: Collection[str]) -> list[str]:
        rows = self.session.rows(_SQL["look"], (self.session.now, list(queues), SOON_MS))
        return [str(queue) for (queue,) in rows]

    def now_ms(self) -> int:
        return now_ms(self.session)

    # writing

    @contextmanager
    def transaction(self) -> Generator[PostgresTransaction]:
        with self.session.transaction(), self.parts() as tx:
            yield tx
            tx.complete()

    def within(self, given: Any) -> Within:
        return self._callers.within(given)

    @contextmanager
    def parts(self) -> Generator[PostgresTransaction]:
        """Returns the writing parts for a transaction that has begun."""
        registered: list[Registration] = []
        known = self._registration
        tx = PostgresTransaction(self.session, self._new_ids, known and known.holder, registered.append, self._sweeper)
        try:
            yield tx
        finally:
            tx.end()
        if registered:
            self._registration = registered[-1]

    def is_registered(self, holder: Holder) -> bool:
        """Returns whether this is the node that was registered through this store: it beats with every turn."""
        return self._registration is not None and self._registration.holder == holder

    def join(self) -> Holder:
        """Registers the node again, as a new life, and returns it. Raises StoreError if another one has its name.

        The claims of its former lives that others have not released yet are its own again.
        """
        known = self._registration
        assert known is not None
        lives = (*known.former, known.holder.life)
        holder = Holder(known.holder.node, new_id())
        try:
            with self.transaction() as tx:
                self.session.send(_FLEET["remove_nodes"], (list(lives),))
                tx.fleet.register(holder, known.crews, known.about)
                held = self.session.rows(_FLEET["adopt"], (list(lives), holder.life))
                self.session.send(_CLAIM["acquit"], (list(lives),))
        except BaseException:
            # It may have committed all the same: the next attempt replaces this life, too.
            tried = (*known.former, holder.life)[-MOST_FORMER:]
            self._registration = Registration(known.holder, known.crews, known.about, tried)
            raise
        self._registration = Registration(holder, known.crews, known.about, lives[-MOST_FORMER:])
        self._new_life = NewLife(holder, frozenset((int(seq), int(claim)) for seq, claim in held))
        return holder

    def leave(self, holder: Holder) -> None:
        with self.session.transaction():
            self.session.send(_FLEET["remove_nodes"], ([holder.life],))
            self.session.send(_FLEET["left_by"], (self.session.now, [holder.node]))

    def new_life(self) -> NewLife | None:
        found, self._new_life = self._new_life, None
        return found

    def comparison(self) -> Comparison | None:
        return self._turns.take_comparison()

    def turn(
        self,
        batch: Batch,
        holder: Holder,
        monotonic: Callable[[], float] = clock.monotonic,
        waits: Callable[[Any], bool] = lambda _: True,
        *,
        finish: bool = True,
    ) -> Result:
        result = self._turns.turn(batch, holder, monotonic, waits)
        if not finish or not (left := self.finish()).ended_flows:
            return result
        ended, woken = result.ended_flows + left.ended_flows, result.woken | left.woken
        return msgspec.structs.replace(result, ended_flows=ended, woken=woken)

    def finish(self) -> Finished:
        return self._turns.finish()

    def prune(self, retention: Retention, limit: int) -> int:
        return prune(self.session, self._surplus, self._needed, retention, limit)

    @property
    def pruning(self) -> bool:
        return self._surplus.unfinished or self._needed.unfinished

    def probe(self) -> None:
        with self.session.transaction():
            schema.check(self.session)
            self.session.send(_SQL["probe"], (self.session.now,))

    def close(self) -> None:
        self.session.close()
