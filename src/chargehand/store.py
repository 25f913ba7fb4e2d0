"""The contract that every store keeps: durable jobs, atomic claims, fenced settling.

A store never decides what follows from an outcome (the model does that), and never runs anything. Every method of a
Transaction takes a batch. All times that a store writes are its own clock's: callers hand in durations.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from chargehand.model.job import Attempt, Enqueued, JobRecord, NewJob, Settlement, State
from chargehand.model.ledger import Grant, Note, Want


class Holder(msgspec.Struct, frozen=True):
    """Who claims: a node by name, and the life of it that is never repeated."""

    node: str
    life: str


class CrewRow(msgspec.Struct, frozen=True, kw_only=True):
    """What the store remembers of a crew, so that readers need not import the application."""

    name: str
    queue: str
    handler: str
    workers: int
    max_attempts: int
    timeout_ms: int | None
    priority: int = 0


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A pause flag: of one crew, or of all (`*`)."""

    scope: str
    who: str
    reason: str | None
    since_ms: int


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list, newest first; `before` is the id of the last one on the page before."""

    queue: str | None = None
    state: State | None = None
    before: str | None = None
    limit: int = 50


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a queue are in each state; `future` are those of the queued that wait for their time."""

    queue: str
    queued: int = 0
    future: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Which finished jobs are kept: none older than `age_ms`, no more than `count` in a queue and state."""

    age_ms: int = 7 * 86_400_000
    count: int = 1_000_000


class Transaction(Protocol):
    """One atomic change. Each method takes a batch; all of them commit together or not at all."""

    def execute(self, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The caller's own SQL on the caller's own tables."""
        ...

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add jobs, in order. One whose id is known, or whose key is taken, is answered with the one that is there."""
        ...

    def claim(self, wants: Sequence[Want], holder: Holder) -> list[Grant]:
        """Take due jobs for this holder: highest priority first, then oldest; none of a paused crew."""
        ...

    def settle(self, settlements: Sequence[Settlement], holder: Holder) -> list[str]:
        """End claims, each only if its fence still holds. Returns the ids of those that no longer do."""
        ...

    def note(self, notes: Sequence[Note]) -> None:
        """Write down which worker has which job."""
        ...

    def cancel(self, ids: Sequence[str]) -> list[str]:
        """Cancel queued jobs; returns the ids of those that were."""
        ...

    def retry(self, ids: Sequence[str]) -> list[str]:
        """Queue failed or cancelled jobs again, counters cleared; Conflict if a unique key is taken meanwhile."""
        ...

    def recover(self, holder: Holder, why: str, spare: Sequence[str] = ()) -> list[str]:
        """Take back, as interruptions, what earlier lives of this node held. Only after those are proven dead.

        `spare`: workers of theirs that cannot be killed; what they hold, or may hold, stays theirs.
        """
        ...

    def pause(self, scope: str, who: str, reason: str | None) -> None:
        """Set a pause flag; claims of the scope get nothing from the moment of the commit."""
        ...

    def resume(self, scope: str) -> bool:
        """Clear a pause flag; whether there was one."""
        ...

    def register(self, holder: Holder, crews: Sequence[CrewRow], about: dict[str, Any]) -> None:
        """Write down that this life of the node is the present one, and which crews it serves."""
        ...


class Store(Protocol):
    """Where work waits. One object serves one thread at a time."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin; commit at the end of the block, or roll back if it raises."""
        ...

    def stirred(self) -> bool:
        """Whether others may have written since this was last asked; true when unsure."""
        ...

    def job(self, job_id: str) -> JobRecord | None:
        """One job."""
        ...

    def jobs(self, which: JobFilter) -> list[JobRecord]:
        """A page of jobs."""
        ...

    def attempts(self, job_id: str) -> list[Attempt]:
        """The history of one job, oldest first."""
        ...

    def counts(self) -> list[Counts]:
        """Every queue that has jobs."""
        ...

    def crews(self) -> list[CrewRow]:
        """Every crew that a node has registered."""
        ...

    def pauses(self) -> list[Pause]:
        """Every pause flag that is set."""
        ...

    def prune(self, retention: Retention, limit: int) -> int:
        """Delete up to `limit` finished jobs that are past their keeping, in a transaction of its own; how many."""
        ...

    def migrate(self) -> int:
        """Bring the schema up to what this code knows; returns its version. A newer one is refused."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...
