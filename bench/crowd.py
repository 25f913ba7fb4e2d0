"""A store with very many jobs of one state, created quickly and processed as a node does."""

from pathlib import Path
from typing import Any

from chargehand import Chargehand, Crew, clock
from chargehand.model.batch import Batch, Grant, Want
from chargehand.model.job import Done, Settlement, settle
from chargehand.model.records import CrewRow, Holder
from chargehand.stores import open_store

SIZE = 50
"""Number of jobs settled and claimed in one transaction."""
READY = 1000
"""Number of claimable jobs next to the others; claimed ones are replaced."""
HOLDER = Holder("bench", "bench")
CREWS = (
    CrewRow(
        name="later", queue="later", handler="bench.handlers:Nothing", workers=2, max_attempts=3, timeout_ms=None,
        limit_per_key=SIZE,
    ),
)  # fmt: skip
"""Whether there is a limit per key: only then are jobs marked as limited."""

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
    """Creates jobs that are waiting, future, finished or limited, as Chargehand's statements would leave them."""
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
                # As many jobs of a key run as the limit allows; the others are marked as limited.
                tx.execute(_CROWD, (count, "queued", "limit", now, "busy", now - 2 * count))
                tx.execute(_RUNNING, (SIZE,))
            case _:
                raise ValueError(kind)


class Crowd:
    """A store with many jobs in the queue from which jobs are claimed."""

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
        """Returns a batch that settles the held jobs and claims as many."""
        return Batch(settlements=self._held, wants=(Want("later", "later", SIZE),))

    def took(self, grant: Grant, lost: tuple[object, ...] = ()) -> None:
        """Takes the result of the batch, and refills the queue."""
        if len(grant.claims) != SIZE or lost:
            raise RuntimeError(f"a claim of {SIZE} returned {len(grant.claims)}, {len(lost)} were lost")
        ended = (settle(claim, Done(), worker="bench", pid=1) for claim in grant.claims)
        self._held = tuple(settlement for settlement in ended if settlement is not None)
        self._crew.enqueue_many([None] * SIZE, **self._options)

    def batch(self) -> float:
        """Returns the seconds that the store needs to settle a batch and claim the next one."""
        batch = self.next_batch()
        began = clock.monotonic()
        result = self.store.turn(batch, HOLDER)
        took = clock.monotonic() - began
        self.took(result.grants[0], result.lost)
        return took

    def finished(self) -> int:
        """Returns the number of finished jobs."""
        (counts,) = self.store.jobs.counts()
        return counts.done

    def close(self) -> None:
        self.store.close()
        self._hand.close()
