"""Reads and writes what the limits of queues and keys need in SQLite; `model.limits` decides. Part of a transaction.

Nothing is counted in advance: running jobs are few, and are counted when a claim needs the number. For a queue without
a limit no job is read here.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from chargehand.model import limits
from chargehand.model.limits import NO_LIMIT, Chosen, Limit
from chargehand.model.records import CrewRow

_LIMIT = "SELECT allowed, allowed_per_key FROM chargehand_limit WHERE queue = ?"
_RUNNING = "SELECT count(*) FROM chargehand_job WHERE queue = ? AND state = 'running'"
_RUNNING_BY_KEY = """
SELECT limit_key, count(*) FROM chargehand_job
WHERE queue = ? AND state = 'running' AND limit_key IS NOT NULL GROUP BY limit_key
"""
# All rows as one JSON text, as in a claim.
_NEXT_READY = """
SELECT json_group_array(json_array(seq, limit_key)) FROM (
  SELECT seq, limit_key FROM chargehand_job
  WHERE queue = ?1 AND state = 'queued' AND waits_for IS NULL AND seq NOT IN (SELECT value FROM json_each(?3))
  ORDER BY priority DESC, seq LIMIT ?2)
"""
_SET_ASIDE = "UPDATE chargehand_job SET waits_for = 'limit' WHERE seq IN (SELECT value FROM json_each(?))"
# Runs once for each freed slot: brings back the next job of the key of the job (?2) that had the slot.
_BRING_BACK = """
UPDATE chargehand_job SET waits_for = NULL WHERE seq = (
  SELECT seq FROM chargehand_job
  WHERE queue = ?1 AND limit_key = (SELECT limit_key FROM chargehand_job WHERE seq = ?2)
    AND state = 'queued' AND waits_for = 'limit'
  ORDER BY priority DESC, seq LIMIT 1)
"""
_BRING_ALL_BACK = """
UPDATE chargehand_job SET waits_for = NULL WHERE queue = ? AND state = 'queued' AND waits_for = 'limit'
"""

_ready = msgspec.json.Decoder(list[tuple[int, str | None]])


class Limits:
    """The limits of all queues, as one transaction sees them."""

    def __init__(self, db: Any) -> None:
        self._db = db
        self._known: dict[str, Limit] = {}

    def of(self, queue: str) -> Limit:
        """Returns the limits of a queue, read by primary key once a transaction."""
        limit = self._known.get(queue)
        if limit is None:
            row = self._db.execute(_LIMIT, (queue,)).fetchone()
            limit = self._known[queue] = NO_LIMIT if row is None else Limit(*row)
        return limit

    def room(self, queue: str) -> int | None:
        """Returns how many more jobs of the queue may run; None: any number."""
        limit = self.of(queue)
        if limit.queue is None:
            return None
        (running,) = self._db.execute(_RUNNING, (queue,)).fetchone()
        return limits.room(limit, int(running))

    def choose(self, queue: str, limit: int, asleep: int, blocked: Sequence[int] = ()) -> Chosen:
        """Chooses the next jobs, without the blocked ones, whose keys have a free slot, and sets aside the others."""
        running: dict[str, int] = dict(self._db.execute(_RUNNING_BY_KEY, (queue,)))
        bindings = (queue, limits.jobs_needed(limit, asleep), json.dumps(blocked))
        ((ready,),) = self._db.execute(_NEXT_READY, bindings)
        chosen = limits.choose(_ready.decode(ready), running, self.of(queue).key or 0, limit, asleep)
        if chosen.over:
            self._db.execute(_SET_ASIDE, (json.dumps(chosen.over),))
        return chosen

    def freed(self, jobs: Iterable[tuple[str, int]]) -> None:
        """Brings back the next job of the key of each of these jobs, which no longer run or wait."""
        limited = [(queue, seq) for queue, seq in jobs if self.of(queue).key is not None]
        if limited:
            self._db.executemany(_BRING_BACK, limited)

    def set(self, crews: Sequence[CrewRow]) -> None:
        """Replaces all limits by those of these crews."""
        before = {str(queue): Limit(*allowed) for queue, *allowed in self._db.execute("SELECT * FROM chargehand_limit")}
        after = limits.limits_of(crews)
        self._db.execute("DELETE FROM chargehand_limit")
        rows = [(queue, limit.queue, limit.key) for queue, limit in after.items() if limit != NO_LIMIT]
        self._db.executemany("INSERT INTO chargehand_limit VALUES (?, ?, ?)", rows)
        for queue in limits.relaxed(before, after):
            self._db.execute(_BRING_ALL_BACK, (queue,))
        self._known.clear()
