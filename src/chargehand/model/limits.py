"""Decides how many jobs of a queue, and of a key in it, may run at a time, and which a claim takes.

Of each key with a limit, the first jobs, as many as it has free slots, are never set aside. An
operation that frees a slot, or removes one of those jobs, must bring one job of the key back to keep this true.
The rate of a key frees slots by the passing of time: the store has the time at which each key that has none left is
looked at again (`model.rates`).
"""

from collections.abc import Mapping, Sequence

import msgspec

from chargehand.model import rates
from chargehand.model.rates import Rates
from chargehand.model.records import CrewRow

LOOK_AT_ONCE = 200
"""How many jobs over their key's limit one claim reads, at most, beyond those that it was asked for."""


class Limit(msgspec.Struct, frozen=True):
    """How many jobs of a queue, and of each key in it, may run at a time; None: any number."""

    queue: int | None = None
    key: int | None = None
    rates: Rates = ()
    """How many jobs of the queue may be started within a period."""
    key_rates: Rates = ()
    """How many jobs of each key may be started within a period."""

    @property
    def of_keys(self) -> bool:
        """Whether keys have a limit or a rate."""
        return self.key is not None or bool(self.key_rates)

    @property
    def rated(self) -> bool:
        """Whether starts are counted."""
        return bool(self.rates or self.key_rates)

    @property
    def longest_ms(self) -> int:
        """The longest period of all rates."""
        return rates.longest(self.rates, self.key_rates)


NO_LIMIT = Limit()


class Chosen(msgspec.Struct, frozen=True):
    """The decision of a claim from a queue whose keys have a limit or a rate."""

    seqs: list[int]
    """The jobs to claim."""
    waiting: int
    """How many more could be claimed, up to what was asked for."""
    over: list[int]
    """The jobs to set aside, because their key has no free slot."""
    cut_short: bool
    """There may be more jobs that were not read."""
    keys: list[str | None]
    """The keys of the jobs to claim."""
    fit: dict[str, int]
    """How many jobs of each key can be claimed, those that are only counted included."""
    late: set[str]
    """The keys whose jobs are set aside because of their rate."""


def limits_of(crews: Sequence[CrewRow]) -> dict[str, Limit]:
    """Returns the limits of every queue of these crews; of several for one queue the smallest counts, and all rates."""
    found: dict[str, Limit] = {}
    for crew in crews:
        known = found.get(crew.queue, NO_LIMIT)
        found[crew.queue] = Limit(
            least(known.queue, crew.limit),
            least(known.key, crew.limit_per_key),
            rates.together((*known.rates, *rates.from_text(crew.rate))),
            rates.together((*known.key_rates, *rates.from_text(crew.rate_per_key))),
        )
    return found


def relaxed(before: Mapping[str, Limit], after: Mapping[str, Limit]) -> list[str]:
    """Returns the queues whose limit for keys was raised or removed, or whose rate for keys is another one: what was
    set aside there must be brought back."""
    found: list[str] = []
    for queue, limit in before.items():
        now = after.get(queue, NO_LIMIT)
        raised = limit.key is not None and (now.key is None or now.key > limit.key)
        if raised or (limit.key_rates and now.key_rates != limit.key_rates):
            found.append(queue)
    return found


def room(limit: Limit, running: int) -> int | None:
    """Returns how many more jobs of the queue may run; None: any number."""
    return None if limit.queue is None else max(0, limit.queue - running)


def within(room: int | None, limit: int, asleep: int) -> tuple[int, int]:
    """Returns how many jobs to claim, and how many more to count, if only so many may (None: any number)."""
    if room is None:
        return limit, asleep
    limit = min(limit, room)
    return limit, min(asleep, room - limit)


def least(*numbers: int | None) -> int | None:
    """Returns the smallest of these numbers, of which None is none; None if there is no other."""
    return min((number for number in numbers if number is not None), default=None)


def jobs_needed(limit: int, asleep: int) -> int:
    """Returns how many ready jobs `choose` needs for this claim."""
    return limit + asleep + LOOK_AT_ONCE


def choose(
    ready: Sequence[tuple[int, str | None]],
    running: Mapping[str, int],
    allowed: int | None,
    limit: int,
    asleep: int,
    rooms: Mapping[str, int] | None = None,
) -> Chosen:
    """Chooses up to `limit` jobs whose keys have a free slot, and counts up to `asleep` more.

    `ready` has the first ready jobs as (seq, key), as many as `jobs_needed` says or all; `running` counts running jobs
    by key, of which `allowed` may run (None: any number); `rooms` has how many jobs of each key may be started by its
    rate.
    """
    used = dict(running)
    fit_by_key: dict[str, int] = {}
    fit: list[tuple[int, str | None]] = []
    over: list[int] = []
    late: set[str] = set()
    looked_at = 0
    for seq, key in ready:
        if len(fit) == limit + asleep:
            break
        looked_at += 1
        if key is None:
            fit.append((seq, None))
            continue
        if allowed is not None and used.get(key, 0) >= allowed:
            over.append(seq)
        elif rooms is not None and fit_by_key.get(key, 0) >= rooms.get(key, 0):
            over.append(seq)
            late.add(key)
        else:
            fit.append((seq, key))
            used[key] = used.get(key, 0) + 1
            fit_by_key[key] = fit_by_key.get(key, 0) + 1
    cut_short = looked_at == jobs_needed(limit, asleep)
    taken = fit[:limit]
    seqs, keys = [seq for seq, _ in taken], [key for _, key in taken]
    return Chosen(seqs, len(fit) - len(taken), over, cut_short, keys, fit_by_key, late)
