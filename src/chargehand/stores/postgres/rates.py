"""Reads and writes what the rates of queues and keys need in PostgreSQL; `model.rates` decides. Part of a transaction.

Only for queues with a rate, after the lock of the queue's row in `chargehand_limit`. The time of a claim is read after
the lock, so that starts are counted in the order of their times.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from chargehand.model import rates
from chargehand.model.limits import LOOK_AT_ONCE, Limit
from chargehand.model.rates import ANY_KEY, Rates, Standing
from chargehand.stores.postgres import statements
from chargehand.stores.postgres.adding import as_json
from chargehand.stores.postgres.session import Session

SWEEP_AT_LEAST = 20
"""How many starts that count no more one claim deletes, at least, if there are any; more if it starts many."""

SQL = statements.load("rates")

Standings = dict[str, list[Standing]]


class RateBook:
    """The starts of one queue with a rate, at the time of one claim."""

    def __init__(self, db: Session, queue: str, limit: Limit) -> None:
        self._db, self._queue, self._limit = db, queue, limit
        ((self.now_ms, last_ms),) = db.rows(SQL["now"], (db.now, queue))
        if last_ms is not None and last_ms > self.now_ms:
            db.send(SQL["count_now"], (self.now_ms, queue))
            db.send(SQL["open_earlier"], (queue, self.now_ms + rates.longest(limit.key_rates)))

    def of_queue(self) -> list[Standing]:
        """Returns the standing of the queue for each of its rates."""
        return self.of((ANY_KEY,), self._limit.rates)[ANY_KEY]

    def of_keys(self, keys: Collection[str]) -> Standings:
        """Returns the standing of each key for each of its rates."""
        return self.of(keys, self._limit.key_rates)

    def of(self, keys: Collection[str], its: Rates) -> Standings:
        return _standings(self._db, self.now_ms, self._queue, keys, its)

    def reopen(self) -> None:
        """Brings back the next jobs of keys that have room again."""
        keys = [str(key) for (key,) in self._db.rows(SQL["opened"], (self._queue, self.now_ms, LOOK_AT_ONCE))]
        if not keys:
            return
        decided = rates.reopen(self.of_keys(keys), LOOK_AT_ONCE, self.now_ms)
        wanted = as_json([{"key": each.key, "back": each.back} for each in decided])
        left = {str(key) for (key,) in self._db.rows(SQL["bring_back_of"], (self._queue, wanted))}
        self._db.send(SQL["open"], (self._queue, [each.key for each in decided if each.key not in left]))
        self.close({each.key: each.opens_ms for each in decided if each.key in left})

    def close(self, opens: Mapping[str, int]) -> None:
        """Notes when to look at keys again that have no room left."""
        rows = [{"key": key, "opens_ms": opens_ms} for key, opens_ms in opens.items()]
        if rows:
            self._db.send(SQL["close"], (self._queue, as_json(rows)))

    def next_in(self) -> int | None:
        """Returns in how many ms a key with jobs that were set aside may have room; None if there is no such key."""
        ((opens_ms,),) = self._db.rows(SQL["opens"], (self._queue,))
        return None if opens_ms is None else max(0, opens_ms - self.now_ms)

    def start(self, keys: Sequence[str | None]) -> None:
        """Counts jobs with these keys as started now, and deletes some starts that count no more."""
        if not keys:
            return
        new = Counter({ANY_KEY: len(keys)} if self._limit.rates else {})
        if self._limit.key_rates:
            new.update(key for key in keys if key is not None)
        rows = [{"key": key, "jobs": jobs} for key, jobs in sorted(new.items())]
        self._db.send(SQL["start"], (self.now_ms, self._queue, as_json(rows)))
        old = self.now_ms - self._limit.longest_ms
        self._db.send(SQL["sweep"], (self._queue, old, SWEEP_AT_LEAST + 2 * len(new)))


def give_back(db: Session, now: int | None, claims: Sequence[tuple[int, int]]) -> None:
    """Sends the statement that counts the jobs of these claims, by seq and number, as not started: no worker had them.

    The claims must hold, and those of queues without a rate are left out.
    """
    rows = [{"seq": seq, "claim": number} for seq, number in claims]
    db.send(SQL["unstart"], (now, as_json(rows)))


def rate_next(db: Session) -> dict[str, int]:
    """Returns when the next job of a queue may be started, if a rate prevents it now; outside a transaction."""
    found: dict[str, int] = {}
    for queue, text, opens_ms, now_ms in db.rows(SQL["rated"], (db.now,)):
        of = _standings(db, now_ms, queue, (ANY_KEY,), rates.from_text(text))[ANY_KEY]
        next_ms = rates.next_ms(of, opens_ms, now_ms)
        if next_ms is not None:
            found[str(queue)] = next_ms
    return found


def _standings(db: Session, now_ms: int, queue: str, keys: Collection[str], its: Rates) -> Standings:
    found: Standings = {key: [] for key in keys}
    if its and keys:
        asked = [
            {"key": key, "nr": nr, "most": rate.count, "period": rate.period_ms}
            for key in keys
            for nr, rate in enumerate(its)
        ]
        for key, nr, started, frees_ms in db.rows(SQL["standings"], (now_ms, queue, as_json(asked))):
            found[key].append(Standing(its[int(nr)], int(started), frees_ms))
    return found
