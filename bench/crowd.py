"""A store with very many jobs of one kind, made quickly, and tended as a node does."""

from pathlib import Path
from typing import Any

from chargehand import Chargehand, Crew, clock
from chargehand.model.batch import Batch, Grant, Want
from chargehand.model.job import Done, Settlement, settle
from chargehand.model.records import CrewRow, Holder
from chargehand.stores import open_store

SIZE = 50
"""Jobs that are settled, and claimed, in one transaction."""
READY = 1000
"""Jobs that can be claimed, beside the crowd; those that were are replaced."""
HOLDER = Holder("bench", "bench")
CREWS = (
    CrewRow(
        name="later", queue="later", handler="bench.handlers:Nothing", workers=2, max_attempts=3, timeout_ms=None,
        limit_per_key=SIZE,
    ),
)  # fmt: skip
"""With a limit for keys: only then are jobs set aside."""

_CROWD = """
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?1)
INSERT INTO chargehand_job (id, queue, state, waits_for, run_at_ms, fence, max_attempts, limit_key, created_ms,
  started_ms, finished_ms, payload, result)
SELECT printf('%032x', n), 'later', ?2, ?3, ?4, ?2 = 'done', 3, ?5, ?6 + n,
  iif(?2 = 'done', ?6 + n, NULL), iif(?2 = 'done', ?6 + n, NULL), 'null', iif(?2 = 'done', 'null', NULL)
FROM number
"""
_ATTEMPTS = """
INSERT INTO chargehand_attempt
SELECT seq, 1, 'bench', 'worker:later:0', 1, started_ms, 0, 'done', NULL FROM chargehand_job WHERE state = 'done'
"""
_RUNNING = """
UPDATE chargehand_job SET state = 'running', waits_for = NULL, life = 'bench', fence = 1
WHERE seq IN (SELECT seq FROM chargehand_job WHERE limit_key = 'busy' LIMIT ?)
"""
_HOUR = 3_600_000


def fill(hand: Chargehand, kind: str, count: int) -> None:
    """So many jobs that are waiting, future, finished or limited, as the statements of Chargehand would leave them."""
    now = clock.now_ms()
    with hand.transaction() as tx:
        match kind:
            case "waiting":
                tx.execute(_CROWD, (count, "queued", None, now, None, now - 2 * count))
            case "future":
                tx.execute(_CROWD, (count, "queued", "time", now + _HOUR, None, now - 2 * count))
            case "finished":
                tx.execute(_CROWD, (count, "done", None, now, None, now - 2 * count))
                tx.execute(_ATTEMPTS)
            case "limited":
                # As many of a key run as may, and the others are set aside.
                tx.execute(_CROWD, (count, "queued", "limit", now, "busy", now - 2 * count))
                tx.execute(_RUNNING, (SIZE,))
            case _:
                raise ValueError(kind)


class Crowd:
    """See the module. The crowd is in the queue that jobs are claimed from."""

    def __init__(self, path: Path, kind: str, count: int) -> None:
        self.path = path
        self._hand = Chargehand(path)
        self._crew: Crew[Any, Any] = self._hand.crew("later", "bench.handlers:Nothing")
        self._options: dict[str, Any] = {"limit_key": "free"} if kind == "limited" else {}
        self._crew.enqueue_many([None] * READY, **self._options)
        fill(self._hand, kind, count)
        self.store = open_store(str(path), node=True)
        with self.store.transaction() as tx:
            tx.fleet.register(HOLDER, CREWS if kind == "limited" else (), {})
        self._held: tuple[Settlement, ...] = ()

    def next_batch(self) -> Batch:
        """What is held is settled, and as much is claimed."""
        return Batch(settlements=self._held, wants=(Want("later", "later", SIZE),))

    def took(self, grant: Grant, lost: tuple[str, ...] = ()) -> None:
        """The batch gave this; then the queue is filled up again."""
        if len(grant.claims) != SIZE or lost:
            raise RuntimeError(f"a claim of {SIZE} gave {len(grant.claims)}, {len(lost)} were lost")
        ended = (settle(claim, Done(), worker="bench", pid=1) for claim in grant.claims)
        self._held = tuple(settlement for settlement in ended if settlement is not None)
        self._crew.enqueue_many([None] * SIZE, **self._options)

    def batch(self) -> float:
        """Seconds that the store needs to settle a batch and claim the next."""
        batch = self.next_batch()
        began = clock.monotonic()
        result = self.store.turn(batch, HOLDER)
        took = clock.monotonic() - began
        self.took(result.grants[0], result.lost)
        return took

    def finished(self) -> int:
        """How many finished jobs there are."""
        (counts,) = self.store.jobs.counts()
        return counts.done

    def close(self) -> None:
        self.store.close()
        self._hand.close()
