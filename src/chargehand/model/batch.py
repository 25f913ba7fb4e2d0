"""The content of one turn of the store (Batch) and its result (Result). Plain data: no decision is made here."""

from typing import Any

import msgspec

from chargehand.model.chores import Chore
from chargehand.model.job import Claim, ClaimName, Enqueued, NewJob, Settlement
from chargehand.model.records import NodeRequest, RecurringPlan
from chargehand.model.wakeups import Wakeup


class Want(msgspec.Struct, frozen=True):
    """Asks for up to `limit` jobs for a crew."""

    crew: str
    queue: str
    limit: int
    asleep: int = 0
    """How many more workers would be started if there were jobs beyond the limit."""
    ahead: int = 0
    """The number of prefetched claims; asks how many jobs beyond the limit are more urgent than `above`."""
    above: int = 0
    """The lowest priority of the prefetched claims."""
    early: int = 0
    """How many jobs of the limit, the last ones, are claimed before a worker is free for them."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """The worker that has a claimed job, and since how long."""

    seq: int
    claim: int
    worker: str
    age_ms: int
    progress: str | None = None
    """The job's progress as JSON; None: unchanged."""
    kept: str | None = None
    """The job's checkpoint as JSON; None: unchanged."""


class Request(msgspec.Struct, frozen=True):
    """Jobs to enqueue for a caller; `token` identifies the caller to answer."""

    token: Any
    jobs: tuple[NewJob, ...]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one transaction, in this order: settle, note, enqueue, chores, claim."""

    settlements: tuple[Settlement, ...] = ()
    notes: tuple[Note, ...] = ()
    requests: tuple[Request, ...] = ()
    chores: tuple[Chore, ...] = ()
    """Other writes of the node: pauses, reports, health. The ledger repeats them on failure."""
    wants: tuple[Want, ...] = ()
    poll: bool = False
    """Check whether others have written to the store."""
    unsure: bool = False
    """The last poll failed: others may have written before it."""
    hinted: bool = False
    """A caller reported new work. If not, and if no other process has written, a poll has nothing to claim."""
    wakeups: frozenset[Wakeup] = frozenset()
    """What other nodes are notified of after the commit; a store for one node has nobody to notify."""

    def without(self, left: "Batch") -> "Batch":
        """Returns this batch without the settlements, requests and chores of another one, which is a part of it."""
        claims = {(each.seq, each.claim) for each in left.settlements}
        tokens = [each.token for each in left.requests]
        chores = {id(chore) for chore in left.chores}
        return msgspec.structs.replace(
            self,
            settlements=tuple(each for each in self.settlements if (each.seq, each.claim) not in claims),
            requests=tuple(each for each in self.requests if each.token not in tokens),
            chores=tuple(chore for chore in self.chores if id(chore) not in chores),
        )


NOTHING = Batch()


class Grant(msgspec.Struct, frozen=True):
    """The answer to one Want: the claims, and in how many ms the next waiting job of the queue becomes due."""

    crew: str
    claims: tuple[Claim, ...]
    next_in_ms: int | None
    waiting: int = 0
    """How many more jobs could have been taken, up to the Want's `asleep`."""
    limited: bool = False
    """There may be more jobs, but a pause, or a limit of the queue or of their keys, prevented a claim."""
    urgent: int = 0
    """How many waiting jobs are more urgent than the least urgent prefetched claim, up to the Want's `ahead`."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a Batch."""

    changed: bool = False
    """The poll found that others have written: every queue may have jobs, even those without a Want."""
    lost: tuple[ClaimName, ...] = ()
    """Claims that no longer held: their settlement changed nothing."""
    enqueued: tuple[tuple[Any, tuple[Enqueued, ...]], ...] = ()
    grants: tuple[Grant, ...] = ()
    done: tuple[Any, ...] = ()
    """The result of each chore that was done; None for a chore that has none."""
    postponed: Batch = NOTHING
    """The settlements, requests and chores of the batch that were not written, because another transaction, which has
    not ended, holds the key of a job in them. All the rest was written."""
    dropped: tuple[Any, ...] = ()
    """The tokens of callers that had stopped waiting: nothing was done for them."""
    cancelling: tuple[str, ...] | None = None
    """Running jobs with a cancel request; None if that was not read."""
    pauses: tuple[tuple[str, int | None], ...] | None = None
    """Every pause flag by its scope, and for how many ms it still holds; None if that was not read."""
    recurring: tuple[RecurringPlan, ...] | None = None
    """Every recurring job; None if that was not read."""
    waiting: tuple[tuple[str, int], ...] | None = None
    """Queues with due jobs, and for how many ms the next one has been due; None if that was not read."""
    woken: frozenset[str] = frozenset()
    """The queues in which jobs became ready because others ended: followers, and the jobs that flows name for their
    end."""
    ended_flows: tuple[str, ...] = ()
    """The ids of the flows that ended in this turn."""
    asked: tuple[NodeRequest, ...] | None = None
    """The requests to this node that callers elsewhere have left in the store; None if that was not read."""


class Finished(msgspec.Struct, frozen=True):
    """What the turns of a node have left until after their results."""

    ended_flows: tuple[str, ...] = ()
    """The ids of the flows that have ended."""
    woken: frozenset[str] = frozenset()
    """The queues in which jobs became ready because of that."""


NOTHING_LEFT = Finished()
