"""Writes those parts of a turn that add jobs with a key, and leaves out the parts whose key another transaction holds.

Such a transaction may be one of a caller and stay open for minutes, and the server lets everybody who adds a job with
the same key wait for its end. Here nothing waits for long, and a key that was held is not tried again for a while.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from chargehand import clock
from chargehand.errors import StoreBusy
from chargehand.model.batch import Batch
from chargehand.model.chores import Chore, Fire, QueueFound
from chargehand.model.job import NewJob
from chargehand.stores.postgres.items import key_of
from chargehand.stores.postgres.session import Session

PATIENCE_MS = 100
"""How long all parts together wait for keys: turns of other nodes hold them no longer."""
SHORT_MS = 10
"""How long a single part waits for its keys, and all parts together while a key is known to be held."""
MOST = 0.2
"""Seconds after which a turn tries no further part."""
REMEMBER = 0.5
"""Seconds for which a key that was held is not tried again."""

Key = tuple[str, ...]
"""The queue and the key of a job, or its queue, its sequence and a mark."""
NO_KEYS: frozenset[Key] = frozenset()
Written = TypeVar("Written")


class Part(msgspec.Struct, frozen=True):
    """A part of a batch that is written as a whole or left out: a settlement, a request or a chore."""

    batch: Batch
    keys: frozenset[Key]


def split(batch: Batch) -> tuple[Batch, list[Part]]:
    """Returns the settlements and requests of a batch that add no job with a key, and the others, each as a part."""
    settlements = [(each, keys_of(each.follow) if each.follow else NO_KEYS) for each in batch.settlements]
    requests = [(each, keys_of(each.jobs)) for each in batch.requests]
    plain = Batch(
        settlements=tuple(each for each, keys in settlements if not keys),
        requests=tuple(each for each, keys in requests if not keys),
    )
    parts = [Part(Batch(settlements=(each,)), keys) for each, keys in settlements if keys]
    return plain, parts + [Part(Batch(requests=(each,)), keys) for each, keys in requests if keys]


def joined(parts: Sequence[Part]) -> Batch:
    """Returns the content of several parts."""
    return Batch(
        settlements=tuple(each for part in parts for each in part.batch.settlements),
        requests=tuple(each for part in parts for each in part.batch.requests),
        chores=tuple(each for part in parts for each in part.batch.chores),
    )


def part_of(chore: Chore) -> Part | None:
    """Returns a chore that adds jobs with a key; None for another one."""
    keys = NO_KEYS
    match chore:
        case Fire(firing):
            keys = keys_of((firing.job,))
        case QueueFound(_, page):
            keys = frozenset((page.queue, key_of(each.item)) for each in page.found)
        case _:
            pass
    return Part(Batch(chores=(chore,)), keys) if keys else None


def keys_of(jobs: Sequence[NewJob]) -> frozenset[Key]:
    """Returns the keys and sequences of jobs, each with its queue."""
    keys: set[Key] = {(job.queue, job.key) for job in jobs if job.key is not None}
    keys.update((job.queue, job.sequence, "sequence") for job in jobs if job.sequence is not None)
    return frozenset(keys) if keys else NO_KEYS


class HeldKeys:
    """Remembers between turns which keys are held by transactions that have not ended."""

    def __init__(self, db: Session) -> None:
        self._db = db
        self._until: dict[Key, float] = {}

    def write(
        self, parts: Sequence[Part], write: Callable[[Sequence[Part]], Written]
    ) -> tuple[list[Written], list[Part]]:
        """Writes the parts inside a pipeline: together, or else each for itself. Returns those that had to be left."""
        began = clock.monotonic()
        self._until = {key: until for key, until in self._until.items() if until > began}
        left = [part for part in parts if not part.keys.isdisjoint(self._until)]
        rest = [part for part in parts if part.keys.isdisjoint(self._until)]
        if not rest:
            return [], left
        try:
            return [self._attempt(rest, write, SHORT_MS if self._until else PATIENCE_MS)], left
        except StoreBusy:
            if len(rest) == 1:
                self._remember(rest[0])
                return [], [*left, *rest]
        written: list[Written] = []
        for part in rest:
            if clock.monotonic() - began > MOST or not part.keys.isdisjoint(self._until):
                left.append(part)
                continue
            try:
                written.append(self._attempt([part], write, SHORT_MS))
            except StoreBusy:
                self._remember(part)
                left.append(part)
        return written, left

    def _remember(self, part: Part) -> None:
        self._until |= dict.fromkeys(part.keys, clock.monotonic() + REMEMBER)

    def _attempt(self, parts: Sequence[Part], write: Callable[[Sequence[Part]], Written], patience_ms: int) -> Written:
        with self._db.attempt(patience_ms):
            return write(parts)
