"""How many jobs of a queue, and of a key in it, may run at a time in an SQLite store.

Nothing is counted ahead: what runs is few and is counted when a claim needs to know. Of a queue without a limit nothing
here looks at any job. Of each key with a limit its first jobs, as many as it has free slots, are never set aside.
Whatever frees a slot, or takes away one of those, brings one back, so that this stays true.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from chargehand.model.records import CrewRow

LOOK_AT_ONCE = 200
"""Jobs over their key's limit that one claim looks at, at most, beyond those that it was asked for."""

_LIMIT = "SELECT allowed, allowed_per_key FROM chargehand_limit WHERE queue = ?"
_RUNNING = "SELECT count(*) FROM chargehand_job WHERE queue = ? AND state = 'running'"
_RUNNING_BY_KEY = """
SELECT limit_key, count(*) FROM chargehand_job
WHERE queue = ? AND state = 'running' AND limit_key IS NOT NULL GROUP BY limit_key
"""
# One JSON text for all of them: see the claims.
_NEXT_READY = """
SELECT json_group_array(json_array(seq, limit_key)) FROM (
  SELECT seq, limit_key FROM chargehand_job
  WHERE queue = ?1 AND state = 'queued' AND waits_for IS NULL ORDER BY priority DESC, seq LIMIT ?2)
"""
_SET_ASIDE = "UPDATE chargehand_job SET waits_for = 'limit' WHERE seq IN (SELECT value FROM json_each(?))"
# Once for every slot that was freed, by the job (?2) that had it: the next of its key. A job without a key has none.
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


class Limit(msgspec.Struct, frozen=True):
    """What is allowed in a queue; None: any number."""

    queue: int | None = None
    key: int | None = None


class Chosen(msgspec.Struct, frozen=True):
    """Which jobs a claim may take, how many more it could, and whether there are some that it has not looked at."""

    seqs: list[int]
    waiting: int
    cut_short: bool


NO_LIMIT = Limit()


class Limits:
    """The limits as one transaction sees them."""

    def __init__(self, db: Any) -> None:
        self._db = db
        self._known: dict[str, Limit] = {}

    def of(self, queue: str) -> Limit:
        """The limits of a queue: a look at a primary key, once a transaction."""
        limit = self._known.get(queue)
        if limit is None:
            row = self._db.execute(_LIMIT, (queue,)).fetchone()
            limit = self._known[queue] = NO_LIMIT if row is None else Limit(*row)
        return limit

    def room(self, queue: str) -> int | None:
        """How many more of the queue may run; None: any number."""
        allowed = self.of(queue).queue
        if allowed is None:
            return None
        (running,) = self._db.execute(_RUNNING, (queue,)).fetchone()
        return max(0, allowed - int(running))

    def choose(self, queue: str, limit: int, asleep: int) -> Chosen:
        """The next jobs whose keys have room, and how many more have; those that have none are set aside."""
        allowed = self.of(queue).key or 0
        most = limit + asleep + LOOK_AT_ONCE
        used: dict[str, int] = dict(self._db.execute(_RUNNING_BY_KEY, (queue,)))
        ((found,),) = self._db.execute(_NEXT_READY, (queue, most))
        fit: list[int] = []
        over: list[int] = []
        looked_at = 0
        for seq, key in _ready.decode(found):
            if len(fit) == limit + asleep:
                break
            looked_at += 1
            if key is None or used.get(key, 0) < allowed:
                fit.append(seq)
                if key is not None:
                    used[key] = used.get(key, 0) + 1
            else:
                over.append(seq)
        if over:
            self._db.execute(_SET_ASIDE, (json.dumps(over),))
        return Chosen(fit[:limit], len(fit[limit:]), looked_at == most)

    def freed(self, jobs: Iterable[tuple[str, int]]) -> None:
        """These jobs, by queue and seq, no longer run or wait: for each of them the next of its key may."""
        limited = [(queue, seq) for queue, seq in jobs if self.of(queue).key is not None]
        if limited:
            self._db.executemany(_BRING_BACK, limited)

    def set(self, crews: Sequence[CrewRow]) -> None:
        """What these crews say, and nothing else, is allowed now; of several for a queue the smallest counts."""
        before = {str(queue): Limit(*allowed) for queue, *allowed in self._db.execute("SELECT * FROM chargehand_limit")}
        after = {crew.queue: NO_LIMIT for crew in crews}
        for crew in crews:
            known = after[crew.queue]
            after[crew.queue] = Limit(_smaller(known.queue, crew.limit), _smaller(known.key, crew.limit_per_key))
        self._db.execute("DELETE FROM chargehand_limit")
        rows = [(queue, limit.queue, limit.key) for queue, limit in after.items() if limit != NO_LIMIT]
        self._db.executemany("INSERT INTO chargehand_limit VALUES (?, ?, ?)", rows)
        for queue, limit in before.items():
            now = after.get(queue, NO_LIMIT).key
            if limit.key is not None and (now is None or now > limit.key):
                self._db.execute(_BRING_ALL_BACK, (queue,))
        self._known.clear()


def _smaller(one: int | None, other: int | None) -> int | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)
