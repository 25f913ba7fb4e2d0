"""The simulated store thread: the shipped `turn` on the real SQL, slow or failing as the seed decides."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from asking import waits
from msgspec.structs import replace

from chargehand.errors import StoreError
from chargehand.model import ledger
from chargehand.model.batch import NOTHING, Batch, Result
from chargehand.model.records import Holder
from chargehand.store import Store
from chargehand.stores.turn import turn

if TYPE_CHECKING:
    from hands import Node

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
NEVER = float("inf")


class Failing:
    """A store whose transactions fail at the commit."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def transaction(self) -> Generator[Any]:
        with self._store.transaction() as tx:
            yield tx
            raise StoreError("the disk is full")


class Storekeeper:
    """Executes one batch at a time: begins it, commits it or not, and then confirms it."""

    def __init__(self, node: "Node", life: str) -> None:
        self._node, self._world = node, node.world
        self.holder = Holder("sim", life)
        self._pause = FIRST_PAUSE
        self._world.after(ledger.POLL, self._watch)

    def _watch(self) -> None:
        """Tells the main thread between two batches that others have written, as the store thread does."""
        node, world = self._node, self._world
        if not node.alive:
            return
        failing = world.now < world.store_fails_until
        if node.ledger.in_flight is None and (failing or world.stage.store.changed(again=True)):
            node.order(lambda: node.ledger.others_wrote(world.now))
        world.after(ledger.POLL, self._watch)

    def submit(self) -> float:
        """Executes the next batch if it is due. Returns when it is due otherwise."""
        its, world = self._node.ledger, self._world
        due = its.batch_due(world.now)
        if due is None:
            return NEVER
        if due > world.now + 1e-9:
            return due
        batch = its.next_batch(world.now)
        if batch == Batch():
            its.confirm(Result(), world.now)
            return its.batch_due(world.now) or NEVER
        world.oracle.jobs.ahead.submitted()
        delay = self._delay()
        if world.now < world.store_fails_until:
            world.after(delay, lambda: self._fail(batch))
        else:
            world.after(delay / 2, lambda: self._commit(batch, delay / 2))
        return NEVER

    def _delay(self) -> float:
        world = self._world
        if not world.fates.calm and world.chance.random() < world.profile.slow_store:
            world.tally["store: slow"] += 1
            return world.chance.uniform(0.1, 20)
        return world.chance.choice([0.001, 0.002, 0.005, 0.02])

    def _fail(self, batch: Batch) -> None:
        """Executes the batch up to the commit, which fails."""
        node, world = self._node, self._world
        if not node.alive:
            return
        world.tally["store: failed"] += 1
        try:
            result = turn(cast(Store, Failing(world.stage.store)), batch, self.holder, lambda: world.now, waits)
        except StoreError:
            node.order(self._failed)
        else:  # there was nothing to write
            node.order(lambda: self._confirmed(batch, result))

    def _failed(self) -> None:
        self._world.oracle.jobs.ahead.failed()
        self._node.ledger.failed(self._world.now, self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _commit(self, batch: Batch, delay: float) -> None:
        node, world = self._node, self._world
        if not node.alive and (not world.is_last(self.holder.life) or world.chance.random() < 0.5):
            return  # the node died before the commit; after a successor has the lock no commit can come
        left = Batch(settlements=batch.settlements) if world.now < world.keys_held_until else NOTHING
        batch = batch.without(left)
        result = replace(world.stage.store.turn(batch, self.holder, lambda: world.now, waits), postponed=left)
        world.oracle.jobs.committed(batch, result)
        world.oracle.written(batch)
        world.after(delay, lambda: node.order(lambda: self._confirmed(batch, result)))

    def _confirmed(self, batch: Batch, result: Result) -> None:
        self._pause = FIRST_PAUSE
        self._node.committed(batch, result)
