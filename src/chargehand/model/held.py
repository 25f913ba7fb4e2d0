"""What workers have in hand, and what a crew's workers could be handed next: the pages of the ledger. Pure."""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec

from chargehand.model.batch import Note
from chargehand.model.job import Claim

MOST_AHEAD = 256
"""Claimed jobs kept in memory for a crew, at most, beside those that idle workers are about to be handed."""
SECONDS_AHEAD = 0.025
"""How much work the memory should hold: enough to bridge a commit, too little to be unfair."""
PROGRESS_EVERY = 1.0
"""How often a job's progress is written, at most."""
MOST_TOGETHER = 2 << 20
"""Characters of payload that are handed out together; a single job may have more."""


class Held(msgspec.Struct):
    """What a worker has in hand: one claim, or as many of those that it was handed together as have not ended yet."""

    claim: Claim
    """The one; of several the first."""
    since: float
    others: dict[str, Claim] | None = None
    """The others of several, by the job's id."""
    noted: bool = False
    progress: dict[str, str] | None = None
    """How far its jobs are, as JSON, where that is to be written."""
    progress_at: float = 0.0
    """Not before then."""

    @property
    def claims(self) -> dict[str, Claim]:
        """All of them, by the job's id."""
        return {self.claim.id: self.claim, **(self.others or {})}

    def find(self, job: str) -> Claim | None:
        """The claim on that job, if it is in hand."""
        return self.claim if self.claim.id == job else self.others.get(job) if self.others else None

    def take(self, job: str | None) -> Claim:
        """That one (or the first) of several is no longer in hand."""
        assert self.others
        if job is not None and job != self.claim.id:
            return self.others.pop(job)
        taken, self.claim = self.claim, self.others.pop(next(iter(self.others)))
        return taken

    def set_progress(self, job: str, progress: str) -> None:
        """That job's progress is to be written."""
        self.progress = {**(self.progress or {}), job: progress}

    def notes(self, worker: str, now: float) -> list[Note]:
        """What the store is told of it; said only once."""
        progress, self.progress = self.progress or {}, None
        age = int((now - self.since) * 1000)
        new = [
            Note(seq=claim.seq, fence=claim.fence, worker=worker, age_ms=age, progress=progress.get(claim.id))
            for claim in self.claims.values()
            if not self.noted or claim.id in progress
        ]
        self.noted, self.progress_at = True, now + PROGRESS_EVERY
        return new

    def not_written(self, notes: Mapping[int, Note]) -> None:
        """These (by the job's number) did not reach the store: what they said of these claims is to be said again."""
        for job, claim in self.claims.items():
            note = notes.get(claim.seq)
            if note is not None and note.fence == claim.fence:
                self.noted = False
                if note.progress is not None and job not in (self.progress or {}):
                    self.set_progress(job, note.progress)


class Pool(msgspec.Struct):
    """One crew as the ledger sees it."""

    queue: str
    batch: int = 1
    """So many jobs a worker is handed together, at most."""
    batch_wait: float = 0.0
    """Seconds for which jobs wait for others to be handed out with."""
    idle: deque[str] = msgspec.field(default_factory=deque[str])
    prefetched: deque[Claim] = msgspec.field(default_factory=deque[Claim])
    available: set[str] = msgspec.field(default_factory=set[str])
    """Workers that may be handed something: ready, and neither dismissed nor paused by themselves."""
    check_store: bool = True
    """Whether the store may have something for us: a hint came, or the last claim came back full."""
    due_at: float | None = None
    gather_until: float | None = None
    """A worker is idle, and what it could be handed waits so long for others to join."""
    mean: float | None = None
    done: int = 0
    """Jobs that the crew got out of the way: performed, whatever came of it, or quarantined."""
    owed: bool = False
    """There was work for workers that were asleep: the first that comes asks for it."""
    asleep: int = 0
    """Workers that would be started if there were work for them."""
    paused: bool = False

    def remove(self, worker: str) -> None:
        """The worker is handed nothing more."""
        self.available.discard(worker)
        if worker in self.idle:
            self.idle.remove(worker)

    @property
    def stranded(self) -> bool:
        """Whether there is something in memory that nobody can be handed."""
        return bool(self.prefetched) and not self.available

    def room(self) -> int:
        """How many more claims could be used now."""
        return 0 if self.paused else max(0, self.useful() - len(self.prefetched))

    def useful(self) -> int:
        """How many claims in memory are of use: those for the idle, and as many as the others soon come to."""
        ahead = 0 if self.mean is None else int(len(self.available) * SECONDS_AHEAD / max(self.mean, 1e-5)) * self.batch
        return len(self.idle) * self.batch + min(ahead, MOST_AHEAD)

    def record_duration(self, seconds: float) -> None:
        """A job has ended after so long."""
        self.mean = seconds if self.mean is None else self.mean + (seconds - self.mean) / 8

    def raise_mean(self, seconds: float) -> None:
        """A job has been in hand so long, and has not ended: the next ones may take as long."""
        self.mean = max(self.mean or 0.0, seconds)

    def gather(self, now: float) -> list[Claim]:
        """What a worker that is free now is handed together; nothing while that waits for more to join."""
        count = self._batch_size()
        if count < self.batch and count == len(self.prefetched) and not _must_be_alone(self.prefetched[0]):
            if self.gather_until is None:
                self.gather_until = now + self.batch_wait
            if now < self.gather_until:
                return []
        self.gather_until = None
        return [self.prefetched.popleft() for _ in range(count)]

    def _batch_size(self) -> int:
        """How many from the front go together: no more than fit, and none with one that goes alone."""
        size = 0
        for count, claim in enumerate(islice(self.prefetched, self.batch)):
            size += len(claim.payload)
            if count and (size > MOST_TOGETHER or _must_be_alone(claim) or _must_be_alone(self.prefetched[0])):
                return count
        return min(len(self.prefetched), self.batch)


def longest(claims: Sequence[Claim]) -> float | None:
    """Seconds that these may take together: as many as the most patient of them may by itself."""
    timeouts = [claim.timeout_ms for claim in claims if claim.timeout_ms is not None]
    return max(timeouts) / 1000 if len(timeouts) == len(claims) else None


def _must_be_alone(claim: Claim) -> bool:
    """One that has crashed a worker or failed before: if it does so again, it must not be charged to others."""
    return claim.crashes > 0 or claim.attempts > 0
