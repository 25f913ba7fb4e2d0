"""What a claim costs with few and with very many jobs waiting."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.row import Row, measures, p50
from bench.scene import folder
from chargehand import Chargehand, Crew, clock
from chargehand.dispatch import execute
from chargehand.model.batch import Batch, Want
from chargehand.model.job import Done, Settlement, settle
from chargehand.store import Holder
from chargehand.stores import open_store

FEW, MANY = 1000, 1_000_000
AT_ONCE = 50_000
SIZE = 50
BATCHES = 100
_HOLDER = Holder("bench", "bench")


class Queue:
    """A store with so many jobs waiting, tended as a node does."""

    def __init__(self, path: Path, waiting: int) -> None:
        self._hand = Chargehand(path)
        self._crew: Crew[Any, Any] = self._hand.crew("later", "bench.handlers:Nothing")
        for begin in range(0, waiting, AT_ONCE):
            self._crew.enqueue_many([None] * min(AT_ONCE, waiting - begin))
        self._store = open_store(str(path), node=True)
        self._held: tuple[Settlement, ...] = ()

    def batch(self) -> float:
        """Seconds that the store needs to settle a batch and claim the next; then the queue is filled up again."""
        batch = Batch(settlements=self._held, wants=(Want("later", "later", SIZE),))
        began = clock.monotonic()
        result = execute(self._store, batch, _HOLDER)
        took = clock.monotonic() - began
        (grant,) = result.grants
        if len(grant.claims) != SIZE or result.lost:
            raise RuntimeError(f"a claim of {SIZE} gave {len(grant.claims)}")
        ended = (settle(claim, Done(), worker="bench", pid=1) for claim in grant.claims)
        self._held = tuple(settlement for settlement in ended if settlement is not None)
        self._crew.enqueue_many([None] * SIZE)
        return took

    def close(self) -> None:
        self._store.close()
        self._hand.close()


@measures("claim with a million waiting")
def a_million_waiting() -> Iterable[Row]:
    """The two are measured in turns, so that whatever else happens on the machine happens to both."""
    with folder() as path:
        queues = Queue(path / "few.db", FEW), Queue(path / "many.db", MANY)
        try:
            for _ in range(BATCHES // 5):
                _ = [queue.batch() for queue in queues]
            few, many = zip(*([queue.batch() for queue in queues] for _ in range(BATCHES)), strict=True)
        finally:
            for queue in queues:
                queue.close()
    note = (
        f"a batch of {SIZE} takes {1000 * p50(few):.2f} ms with {FEW:,} waiting, {1000 * p50(many):.2f} with {MANY:,}"
    )
    yield Row("claim with a million waiting", p50(many) / p50(few), "× a thousand", 1.0, 1.3, note=note)
