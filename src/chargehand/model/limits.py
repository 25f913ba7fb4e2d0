"""Decides how many jobs of a queue, and of a key in it, may run at a time, and which a claim takes.

Of each key with a limit, the first jobs, as many as it has free slots, are never set aside. An
operation that frees a slot, or removes one of those jobs, must bring one job of the key back to keep this true.
"""

from collections.abc import Mapping, Sequence

import msgspec

from chargehand.model.records import CrewRow

LOOK_AT_ONCE = 200
"""How many jobs over their key's limit one claim reads, at most, beyond those that it was asked for."""


class Limit(msgspec.Struct, frozen=True):
    """How many jobs of a queue, and of each key in it, may run at a time; None: any number."""

    queue: int | None = None
    key: int | None = None


NO_LIMIT = Limit()


class Chosen(msgspec.Struct, frozen=True):
    """The decision of a claim from a queue whose keys have a limit."""

    seqs: list[int]
    """The jobs to claim."""
    waiting: int
    """How many more could be claimed, up to what was asked for."""
    over: list[int]
    """The jobs to set aside, because their key has no free slot."""
    cut_short: bool
    """There may be more jobs that were not read."""


def limits_of(crews: Sequence[CrewRow]) -> dict[str, Limit]:
    """Returns the limits of every queue of these crews; of several for one queue the smallest counts."""
    found: dict[str, Limit] = {}
    for crew in crews:
        known = found.get(crew.queue, NO_LIMIT)
        found[crew.queue] = Limit(_smaller(known.queue, crew.limit), _smaller(known.key, crew.limit_per_key))
    return found


def _smaller(one: int | None, other: int | None) -> int | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)


def relaxed(before: Mapping[str, Limit], after: Mapping[str, Limit]) -> list[str]:
    """Returns the queues whose limit for keys was raised or removed: what was set aside there must be brought back."""
    found: list[str] = []
    for queue, limit in before.items():
        now = after.get(queue, NO_LIMIT).key
        if limit.key is not None and (now is None or now > limit.key):
            found.append(queue)
    return found


def room(limit: Limit, running: int) -> int | None:
    """Returns how many more jobs of the queue may run; None: any number."""
    return None if limit.queue is None else max(0, limit.queue - running)


def jobs_needed(limit: int, asleep: int) -> int:
    """Returns how many ready jobs `choose` needs for this claim."""
    return limit + asleep + LOOK_AT_ONCE


def choose(
    ready: Sequence[tuple[int, str | None]], running: Mapping[str, int], allowed: int, limit: int, asleep: int
) -> Chosen:
    """Chooses up to `limit` jobs whose keys have a free slot, and counts up to `asleep` more.

    `ready` has the first ready jobs as (seq, key), as many as `jobs_needed` says or all; `running` counts running jobs
    by key.
    """
    used = dict(running)
    fit: list[int] = []
    over: list[int] = []
    looked_at = 0
    for seq, key in ready:
        if len(fit) == limit + asleep:
            break
        looked_at += 1
        if key is None or used.get(key, 0) < allowed:
            fit.append(seq)
            if key is not None:
                used[key] = used.get(key, 0) + 1
        else:
            over.append(seq)
    return Chosen(fit[:limit], len(fit[limit:]), over, looked_at == jobs_needed(limit, asleep))
