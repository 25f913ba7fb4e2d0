"""Reads and writes what the rates of queues and keys need in SQLite; `model.rates` decides. Part of a transaction.

Every claim from a queue with a rate writes how many jobs it has started, with the total so far. So the number of starts
within a period is the difference of two rows, however many there are. For a queue without a rate nothing is read here.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from chargehand.model import rates
from chargehand.model.job import Settlement
from chargehand.model.limits import LOOK_AT_ONCE, Limit
from chargehand.model.rates import ANY_KEY, Rates, Standing
from chargehand.stores.sqlite.database import Database

SWEEP_AT_LEAST = 20
"""How many starts that count no more one claim deletes, at least, if there are any; more if it starts many."""

# For each key and rate of ?2: how many were started within the period, and the time of the start that decides when
# there is room again. Each is found by the primary key.
_STANDINGS = """
SELECT key, nr, coalesce(last - before, 0), (
  SELECT at_ms FROM chargehand_start AS s
  WHERE s.queue = ?1 AND s.key = w.key AND s.at_ms > ?3 - w.period AND s.total > max(w.last - w.most, w.before)
  ORDER BY at_ms LIMIT 1)
FROM (
  SELECT e.value ->> 0 AS key, e.value ->> 1 AS nr, e.value ->> 2 AS most, e.value ->> 3 AS period,
    (SELECT total FROM chargehand_start WHERE queue = ?1 AND key = e.value ->> 0 ORDER BY at_ms DESC LIMIT 1) AS last,
    (SELECT total - jobs FROM chargehand_start
      WHERE queue = ?1 AND key = e.value ->> 0 AND at_ms > ?3 - (e.value ->> 3) ORDER BY at_ms LIMIT 1) AS before
  FROM json_each(?2) AS e) AS w
"""
_AHEAD = """
SELECT key, sum(jobs), max(total) FROM chargehand_start INDEXED BY chargehand_start_at
WHERE queue = ? AND at_ms > ? GROUP BY key
"""
_FORGET_AHEAD = "DELETE FROM chargehand_start WHERE queue = ? AND at_ms > ?"
_COUNT_NOW = """
INSERT INTO chargehand_start (queue, key, at_ms, jobs, total) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT DO UPDATE SET jobs = jobs + excluded.jobs, total = excluded.total
"""
_OPEN_EARLIER = "UPDATE chargehand_opening SET opens_ms = ?2 WHERE queue = ?1 AND opens_ms > ?2"
_START = """
INSERT INTO chargehand_start (queue, key, at_ms, jobs, total)
SELECT ?1, ?2, ?3, ?4, ?4 + coalesce(
  (SELECT total FROM chargehand_start WHERE queue = ?1 AND key = ?2 ORDER BY at_ms DESC LIMIT 1), 0) WHERE true
ON CONFLICT DO UPDATE SET jobs = jobs + excluded.jobs, total = excluded.total
"""
_SWEEP = """
DELETE FROM chargehand_start WHERE (queue, key, at_ms) IN (
  SELECT queue, key, at_ms FROM chargehand_start INDEXED BY chargehand_start_at
  WHERE queue = ?1 AND at_ms <= ?2 ORDER BY at_ms LIMIT ?3)
"""
_UNSTART = """
UPDATE chargehand_start SET jobs = jobs - (at_ms = ?3), total = total - 1
WHERE queue = ?1 AND key = ?2 AND at_ms >= ?3
  AND (SELECT jobs FROM chargehand_start WHERE queue = ?1 AND key = ?2 AND at_ms = ?3) > 0
"""
_RATED = """
SELECT queue, rate, (SELECT min(opens_ms) FROM chargehand_opening AS o WHERE o.queue = r.queue)
FROM chargehand_rate AS r
"""
_RETURNED = "SELECT limit_key, started_ms FROM chargehand_job WHERE seq = ?"
_OPEN_NOW = "UPDATE chargehand_opening SET opens_ms = min(opens_ms, ?3) WHERE queue = ?1 AND key = ?2"
_OPENED = "SELECT key FROM chargehand_opening WHERE queue = ? AND opens_ms <= ? ORDER BY opens_ms LIMIT ?"
_OPENS = "SELECT min(opens_ms) FROM chargehand_opening WHERE queue = ?"
_CLOSE = """
INSERT INTO chargehand_opening (queue, key, opens_ms) VALUES (?1, ?2, ?3)
ON CONFLICT DO UPDATE SET opens_ms = excluded.opens_ms
"""
_OPEN = "DELETE FROM chargehand_opening WHERE queue = ? AND key = ?"
_ASIDE = """
SELECT seq FROM chargehand_job WHERE queue = ?1 AND limit_key = ?2 AND state = 'queued' AND waits_for = 'limit'
ORDER BY priority DESC, coalesce(place, seq), seq LIMIT ?3
"""
_BRING_BACK = "UPDATE chargehand_job SET waits_for = NULL WHERE seq = ?"

Standings = dict[str, list[Standing]]


class RateBook:
    """The starts of queues with a rate, as one transaction sees them."""

    def __init__(self, db: Any, now_ms: int) -> None:
        self._db, self._now = db, now_ms

    def of_queue(self, queue: str, limit: Limit) -> list[Standing]:
        """Returns the standing of the queue for each of its rates.

        Starts in the future are those of a clock that was set back since: from here on they count as of now.
        """
        ahead = self._db.execute(_AHEAD, (queue, self._now)).fetchall()
        if ahead:
            self._db.execute(_FORGET_AHEAD, (queue, self._now))
            self._db.executemany(_COUNT_NOW, [(queue, key, self._now, jobs, total) for key, jobs, total in ahead])
            self._db.execute(_OPEN_EARLIER, (queue, self._now + rates.longest(limit.key_rates)))
        return self.of(queue, (ANY_KEY,), limit.rates)[ANY_KEY]

    def of(self, queue: str, keys: Collection[str], its: Rates) -> Standings:
        """Returns the standing of each key for each of these rates."""
        if not its or not keys:
            return {key: [] for key in keys}
        return _standings(self._db.execute(_STANDINGS, _asked(queue, keys, its, self._now)), keys, its)

    def reopen(self, queue: str, its: Rates) -> None:
        """Brings back the next jobs of keys that have room again."""
        keys = [key for (key,) in self._db.execute(_OPENED, (queue, self._now, LOOK_AT_ONCE))]
        if not keys:
            return
        for each in rates.reopen(self.of(queue, keys, its), LOOK_AT_ONCE, self._now):
            aside = self._db.execute(_ASIDE, (queue, each.key, each.back + 1)).fetchall()
            self._db.executemany(_BRING_BACK, aside[: each.back])
            if len(aside) > each.back:
                self._db.execute(_CLOSE, (queue, each.key, each.opens_ms))
            else:
                self._db.execute(_OPEN, (queue, each.key))

    def close(self, queue: str, opens: Mapping[str, int]) -> None:
        """Notes when to look at keys again that have no room left."""
        self._db.executemany(_CLOSE, [(queue, key, opens_ms) for key, opens_ms in opens.items()])

    def next_in(self, queue: str) -> int | None:
        """Returns in how many ms a key with jobs that were set aside may have room; None if there is no such key."""
        ((opens_ms,),) = self._db.execute(_OPENS, (queue,))
        return None if opens_ms is None else max(0, opens_ms - self._now)

    def start(self, queue: str, limit: Limit, keys: Sequence[str | None]) -> None:
        """Counts jobs with these keys as started now, and deletes some starts that count no more."""
        if not keys:
            return
        new = Counter({ANY_KEY: len(keys)} if limit.rates else {})
        if limit.key_rates:
            new.update(key for key in keys if key is not None)
        self._db.executemany(_START, [(queue, key, self._now, jobs) for key, jobs in new.items()])
        self._db.execute(_SWEEP, (queue, self._now - limit.longest_ms, SWEEP_AT_LEAST + 2 * len(new)))

    def give_back(self, returned: Sequence[Settlement]) -> None:
        """Counts these jobs as not started. They are of queues with a rate, and no worker had them."""
        for each in returned:
            ((limit_key, started_ms),) = self._db.execute(_RETURNED, (each.seq,))
            keys = [ANY_KEY] if limit_key is None else [ANY_KEY, limit_key]
            self._db.executemany(_UNSTART, [(each.queue, key, started_ms) for key in keys])
            self._db.executemany(_OPEN_NOW, [(each.queue, key, self._now) for key in keys[1:]])


def rate_next(db: Database) -> dict[str, int]:
    """Returns when the next job of a queue may be started, if a rate prevents it now; outside a transaction."""
    now, found = db.now_ms(), dict[str, int]()
    for queue, text, opens_ms in db.all(_RATED):
        its, of = rates.from_text(text), list[Standing]()
        if its:
            of = _standings(db.all(_STANDINGS, _asked(queue, (ANY_KEY,), its, now)), (ANY_KEY,), its)[ANY_KEY]
        next_ms = rates.next_ms(of, opens_ms, now)
        if next_ms is not None:
            found[queue] = next_ms
    return found


def _asked(queue: str, keys: Collection[str], its: Rates, now_ms: int) -> tuple[str, str, int]:
    """Returns the bindings of `_STANDINGS`."""
    asked = [(key, nr, rate.count, rate.period_ms) for key in keys for nr, rate in enumerate(its)]
    return queue, json.dumps(asked), now_ms


def _standings(rows: Iterable[tuple[Any, ...]], keys: Collection[str], its: Rates) -> Standings:
    found: Standings = {key: [] for key in keys}
    for key, nr, started, frees_ms in rows:
        found[key].append(Standing(its[int(nr)], started, frees_ms))
    return found
