"""What goes to the store in one transaction, and what comes back: the words between the ledger and the dispatch."""

from typing import Any

import msgspec

from chargehand.model.job import Claim, Enqueued, NewJob, Settlement


class Want(msgspec.Struct, frozen=True):
    """So many jobs would be welcome in this crew."""

    crew: str
    queue: str
    limit: int
    asleep: int = 0
    """So many workers would be started if there were work for them beyond the limit."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Who has a claimed job, and for how long already."""

    seq: int
    fence: int
    worker: str
    age_ms: int
    progress: str | None = None
    """How far it is, as JSON; None: as before."""


class Request(msgspec.Struct, frozen=True):
    """Jobs that somebody wants to enqueue, and the token under which they hear of it."""

    token: Any
    jobs: tuple[NewJob, ...]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction's work, in this order: settle, note, enqueue, chores, claim."""

    settlements: tuple[Settlement, ...] = ()
    notes: tuple[Note, ...] = ()
    requests: tuple[Request, ...] = ()
    chores: tuple[Any, ...] = ()
    """What else the node writes: pauses, reports, health. The ledger only carries them, and repeats them on failure."""
    wants: tuple[Want, ...] = ()
    poll: bool = False
    """It is time to see whether others have written to the store."""
    unsure: bool = False
    """The last such look came to nothing: others may have written before it, too."""
    hinted: bool = False
    """Somebody said that there is work. If not, and nobody else has written, a poll has nothing to claim."""


class Grant(msgspec.Struct, frozen=True):
    """What came of one Want: the claims, and in how many ms the next waiting job of the queue falls due."""

    crew: str
    claims: tuple[Claim, ...]
    next_in_ms: int | None
    waiting: int = 0
    """How many more could have been taken, up to the Want's `asleep`."""
    limited: bool = False
    """There may be more, but a pause, or a limit of the queue or of their keys, was in the way."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a Batch."""

    stirred: bool = False
    """The poll found that others have written: every queue may have something, also those that nobody asked for."""
    lost: tuple[str, ...] = ()
    """Ids of jobs whose claim no longer held: their settlement changed nothing."""
    enqueued: tuple[tuple[Any, tuple[Enqueued, ...]], ...] = ()
    grants: tuple[Grant, ...] = ()
    done: tuple[Any, ...] = ()
    """What came of each chore; None where nobody wants to know."""
    cancelling: tuple[str, ...] | None = None
    """Running jobs that are to be cancelled; None if that was not read."""
    pauses: tuple[tuple[str, int | None], ...] | None = None
    """Every pause flag by its scope, and for how many ms it still holds; None if that was not read."""
    recurring: tuple[Any, ...] | None = None
    """Every recurring job as it stands; None if that was not read."""
    waiting: tuple[tuple[str, int], ...] | None = None
    """Queues with due work, and for how many ms it has waited; None if that was not read."""
