"""Reads and writes what the limits of queues and keys need in SQLite; `model.limits` decides. Part of a transaction.

Nothing is counted in advance: running jobs are few, and are counted when a claim needs the number. For a queue without
a limit no job is read here.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from chargehand.model import limits, rates
from chargehand.model.job import Settlement
from chargehand.model.limits import NO_LIMIT, Chosen, Limit
from chargehand.model.rates import Standing
from chargehand.model.records import CrewRow
from chargehand.stores.rows import json_text
from chargehand.stores.sqlite.rates import RateBook, Standings

_LIMIT = """
SELECT allowed, allowed_per_key, rate, rate_per_key
FROM chargehand_limit LEFT JOIN chargehand_rate USING (queue) WHERE queue = ?
"""
_LIMITS = """
SELECT queue, allowed, allowed_per_key, rate, rate_per_key
FROM chargehand_limit LEFT JOIN chargehand_rate USING (queue)
"""
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
  ORDER BY priority DESC, coalesce(place, seq), seq LIMIT ?2)
"""
_SET_ASIDE = "UPDATE chargehand_job SET waits_for = 'limit' WHERE seq IN (SELECT value FROM json_each(?))"
# Runs once for each freed slot: brings back the next job of the key of the job (?2) that had the slot.
_BRING_BACK = """
UPDATE chargehand_job SET waits_for = NULL WHERE seq = (
  SELECT seq FROM chargehand_job
  WHERE queue = ?1 AND limit_key = (SELECT limit_key FROM chargehand_job WHERE seq = ?2)
    AND state = 'queued' AND waits_for = 'limit'
  ORDER BY priority DESC, coalesce(place, seq), seq LIMIT 1)
"""
_BRING_ALL_BACK = """
UPDATE chargehand_job SET waits_for = NULL WHERE queue = ? AND state = 'queued' AND waits_for = 'limit'
"""

_ready = msgspec.json.Decoder(list[tuple[int, str | None]])


class Limits:
    """The limits of all queues, as one transaction sees them."""

    def __init__(self, db: Any, now_ms: int) -> None:
        self._db, self._now = db, now_ms
        self._known: dict[str, Limit] = {}
        self.book = RateBook(db, now_ms)

    def of(self, queue: str) -> Limit:
        """Returns the limits of a queue, read by primary key once a transaction."""
        limit = self._known.get(queue)
        if limit is None:
            row = self._db.execute(_LIMIT, (queue,)).fetchone()
            limit = self._known[queue] = NO_LIMIT if row is None else _limit(*row)
        return limit

    def room(self, queue: str) -> int | None:
        """Returns how many more jobs of the queue may run; None: any number."""
        limit = self.of(queue)
        if limit.queue is None:
            return None
        (running,) = self._db.execute(_RUNNING, (queue,)).fetchone()
        return limits.room(limit, int(running))

    def standings(self, queue: str) -> list[Standing]:
        """Returns what was started of the queue for each of its rates; nothing is read if starts are not counted."""
        limit = self.of(queue)
        return self.book.of_queue(queue, limit) if limit.rated else []

    def choose(self, queue: str, limit: int, asleep: int, blocked: Sequence[int] = ()) -> Chosen:
        """Chooses the next jobs, without the blocked ones, whose keys have a free slot, and sets aside the others."""
        of = self.of(queue)
        if of.key_rates:
            self.book.reopen(queue, of.key_rates)
        running: dict[str, int] = {}
        if of.key is not None:
            running = dict(self._db.execute(_RUNNING_BY_KEY, (queue,)))
        bindings = (queue, limits.jobs_needed(limit, asleep), json_text(blocked))
        ((text,),) = self._db.execute(_NEXT_READY, bindings)
        ready = _ready.decode(text)
        standings: Standings = {}
        rooms: dict[str, int] | None = None
        if of.key_rates:
            standings = self.book.of(queue, {key for _, key in ready if key is not None}, of.key_rates)
            rooms = {key: rates.room(its) or 0 for key, its in standings.items()}
        chosen = limits.choose(ready, running, of.key, limit, asleep, rooms)
        if chosen.over:
            self._db.execute(_SET_ASIDE, (json_text(chosen.over),))
        if chosen.late:
            self.book.close(queue, rates.closed(standings, chosen.fit, chosen.late, self._now))
        return chosen

    def started(self, queue: str, keys: Sequence[str | None]) -> None:
        """Counts jobs with these keys as started, if the queue has a rate."""
        limit = self.of(queue)
        if limit.rated:
            self.book.start(queue, limit, keys)

    def opens_in(self, queue: str) -> int | None:
        """Returns in how many ms the rate of a key admits a job that was set aside; None if there is no such job."""
        return self.book.next_in(queue) if self.of(queue).key_rates else None

    def freed(self, jobs: Iterable[tuple[str, int]]) -> None:
        """Brings back the next job of the key of each of these jobs, which no longer run."""
        limited = [(queue, seq) for queue, seq in jobs if self.of(queue).key is not None]
        if limited:
            self._db.executemany(_BRING_BACK, limited)

    def withdrawn(self, jobs: Iterable[tuple[str, int]]) -> None:
        """Brings back the next job of the key of each of these jobs, which no longer wait."""
        limited = [(queue, seq) for queue, seq in jobs if self.of(queue).of_keys]
        if limited:
            self._db.executemany(_BRING_BACK, limited)

    def returned(self, settlements: Iterable[Settlement]) -> None:
        """Counts the jobs among these that no worker had as not started."""
        back = [s for s in settlements if s.outcome is None and self.of(s.queue).rated]
        if back:
            self.book.give_back(back)

    def set(self, crews: Sequence[CrewRow]) -> None:
        """Replaces all limits by those of these crews."""
        before = {str(queue): _limit(*row) for queue, *row in self._db.execute(_LIMITS)}
        after = {queue: limit for queue, limit in limits.limits_of(crews).items() if limit != NO_LIMIT}
        self._db.execute("DELETE FROM chargehand_limit")
        self._db.execute("DELETE FROM chargehand_rate")
        rows = [(queue, limit.queue, limit.key) for queue, limit in after.items()]
        self._db.executemany("INSERT INTO chargehand_limit VALUES (?, ?, ?)", rows)
        rated = [
            (queue, rates.to_text(limit.rates), rates.to_text(limit.key_rates))
            for queue, limit in after.items()
            if limit.rated
        ]
        self._db.executemany("INSERT INTO chargehand_rate (queue, rate, rate_per_key) VALUES (?, ?, ?)", rated)
        # Code that knows no rates may have removed the limit of the queue since.
        waiting = {str(queue) for (queue,) in self._db.execute("SELECT DISTINCT queue FROM chargehand_opening")}
        unrated = {queue for queue in waiting if not after.get(queue, NO_LIMIT).key_rates}
        for queue in {*limits.relaxed(before, after), *unrated}:
            self._db.execute(_BRING_ALL_BACK, (queue,))
            self._db.execute("DELETE FROM chargehand_opening WHERE queue = ?", (queue,))
        self._known.clear()


def _limit(queue: int | None, key: int | None, rate: str | None, rate_per_key: str | None) -> Limit:
    return Limit(queue, key, rates.from_text(rate), rates.from_text(rate_per_key))
