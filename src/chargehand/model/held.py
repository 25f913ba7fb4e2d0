"""The claims that workers hold, and the claims that each crew has prefetched: the data of the ledger. Pure."""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec

from chargehand.model.batch import Note
from chargehand.model.job import Claim

MOST_AHEAD = 512
"""The maximum number of prefetched claims of a crew, in addition to those for idle workers.

With two workers it limits only jobs of less than 0.1 ms. A higher one makes turns larger, but all claims of a node that
is killed run one at a time afterwards."""
SECONDS_AHEAD = 0.025
"""The amount of work to prefetch, in seconds: enough to bridge a commit, but too little to delay urgent jobs."""
SECONDS_KEPT = 4 * SECONDS_AHEAD
"""The amount of prefetched work to keep, in seconds, when jobs take longer than expected.

It exceeds SECONDS_AHEAD so that the usual variation of the mean does not return claims that are then claimed again.
"""
PROGRESS_EVERY = 1.0
"""The minimum interval in seconds at which a job's progress is written."""
MOST_TOGETHER = 2 << 20
"""The maximum size of the payloads and checkpoints of one batch, in characters; a single job may be larger. In UTF-8,
and with labels and ids, they fit into a frame."""


class Held(msgspec.Struct):
    """The claims that a worker holds: one, or those of a batch that have not ended yet; and those that it has not
    begun."""

    claim: Claim
    """The claim; in a batch, the first one."""
    since: float
    others: dict[str, Claim] | None = None
    """The other claims of a batch, by job id."""
    first: str | None = None
    """The id of the first job of a batch, also after it has ended."""
    noted: bool = False
    early: bool = False
    """Whether the claims were held ahead: readers see the jobs as queued until their worker is noted."""
    progress: dict[str, str] | None = None
    """Progress that is to be written, as JSON by job id."""
    progress_at: float = 0.0
    """The earliest time at which progress is written again."""
    kept: dict[str, str] | None = None
    """The newest checkpoint of each job that has one, as JSON by job id."""
    unkept: set[str] | None = None
    """The jobs whose newest checkpoint is to be written."""
    ahead: deque[Claim] = msgspec.field(default_factory=deque[Claim])
    """Claims that were sent to the worker and can be called back until it begins them, in order."""
    permitted: bool = False
    """Whether the worker begins the job with a permit that can still be there: the job may not have begun."""
    clears: bool = False
    """Whether the worker has surely dropped jobs that were called back before when it ends this one."""
    sent_ahead: bool = False
    """Whether the job was sent to the worker before it ended the one before: what it prints may be of either."""
    received: float = 0.0
    """When the worker was handed the first job since it last held none."""

    @property
    def claims(self) -> dict[str, Claim]:
        """All claims, by job id."""
        return {self.claim.id: self.claim, **(self.others or {})}

    def find(self, job: str) -> Claim | None:
        """Returns the claim on this job, if the worker holds it; it need not have begun it."""
        if self.claim.id == job:
            return self.claim
        if self.others:
            return self.others.get(job)
        return next((claim for claim in self.ahead if claim.id == job), None)

    @property
    def unsure(self) -> bool:
        """Whether the worker may not have begun everything that it holds."""
        return self.permitted or bool(self.ahead)

    def begin_next(self, now: float) -> None:
        """Makes the first claim that was not begun the one that the worker performs."""
        self.claim, self.since = self.ahead.popleft(), now
        self.noted, self.early, self.permitted, self.sent_ahead = False, False, True, True
        if self.progress is not None:
            kept = self.progress.get(self.claim.id)
            self.progress = None if kept is None else {self.claim.id: kept}
        self.kept = self.unkept = None

    def since_of(self, job: str) -> float:
        """Returns when the job was handed over."""
        return self.since

    @property
    def note_since(self) -> float:
        """When the first job was handed over whose worker is not written yet."""
        return self.since

    def take(self, job: str | None) -> Claim:
        """Removes and returns the claim on this job (None: the first) of a batch."""
        assert self.others
        if job is not None and job != self.claim.id:
            return self.others.pop(job)
        taken, self.claim = self.claim, self.others.pop(next(iter(self.others)))
        return taken

    def set_progress(self, job: str, progress: str) -> None:
        """Sets the progress of a job that is to be written."""
        self.progress = {**(self.progress or {}), job: progress}

    def set_kept(self, job: str, state: str) -> None:
        """Sets the checkpoint of a job, which is to be written."""
        self.kept = {**(self.kept or {}), job: state}
        self.unkept = {*(self.unkept or ()), job}

    def take_kept(self, job: str) -> str | None:
        """Returns the checkpoint of a job that has ended, and forgets it."""
        if self.kept is None:
            return None
        if self.unkept is not None:
            self.unkept.discard(job)
        return self.kept.pop(job, None)

    def newest_kept(self) -> dict[str, str]:
        """Returns the checkpoints that are to be written, by job id."""
        return {job: self.kept[job] for job in self.unkept or () if self.kept is not None and job in self.kept}

    @property
    def has_news(self) -> bool:
        """Whether progress or a checkpoint is to be written."""
        return self.progress is not None or bool(self.unkept)

    def notes(self, worker: str, now: float) -> list[Note]:
        """Returns what is to be written about these claims, and marks it as written."""
        progress, self.progress = self.progress or {}, None
        kept, self.unkept = self.newest_kept(), None
        age = int((now - self.since) * 1000)
        new = [
            Note(
                seq=claim.seq, claim=claim.number, worker=worker, age_ms=age, progress=progress.get(claim.id),
                kept=kept.get(claim.id),
            )
            for claim in self.claims.values()
            if not self.noted or claim.id in progress or claim.id in kept
        ]  # fmt: skip
        self.noted, self.progress_at = True, now + PROGRESS_EVERY
        return new

    def not_written(self, notes: Mapping[int, Note]) -> None:
        """Marks what these notes (by the job's number) contain as not written, after a failed transaction."""
        for job, claim in self.claims.items():
            note = notes.get(claim.seq)
            if note is not None and note.claim == claim.number:
                self.noted = False
                self.write_again(job, note)

    def write_again(self, job: str, note: Note) -> None:
        """Marks the progress and the checkpoint of a note as not written, unless there are newer ones."""
        if note.progress is not None and job not in (self.progress or {}):
            self.set_progress(job, note.progress)
        if note.kept is not None and self.kept is not None and job in self.kept:
            self.unkept = {*(self.unkept or ()), job}


class Pool(msgspec.Struct):
    """The workers and the prefetched claims of one crew."""

    queue: str
    batch: int = 1
    """The maximum number of jobs per batch."""
    batch_wait: float = 0.0
    """How many seconds a job may wait for others to form a batch."""
    prefetches: bool = True
    """Whether jobs are claimed before a worker is free for them."""
    idle: deque[str] = msgspec.field(default_factory=deque[str])
    prefetched: deque[Claim] = msgspec.field(default_factory=deque[Claim])
    available: set[str] = msgspec.field(default_factory=set[str])
    """Workers that may receive jobs: ready, not stopping and not paused individually."""
    busy: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    """Available workers that hold jobs, and since when; the longest first."""
    check_store: bool = True
    """Whether the store may have jobs: a hint was received, or the last claim returned as many as requested."""
    stirred: bool = False
    """Whether the store may have new jobs that are more urgent than prefetched ones."""
    due_at: float | None = None
    gather_until: float | None = None
    """Until when an incomplete batch waits for further jobs, while a worker is idle."""
    mean: float | None = None
    done: int = 0
    """How many of the crew's jobs were performed, with any outcome, or quarantined."""
    owed: bool = False
    """Whether jobs waited for sleeping workers; the first worker that becomes ready checks the store."""
    asleep: int = 0
    """The number of workers that would be started if there were jobs for them."""
    idle_since: float = 0.0
    """When a worker last became idle."""
    alone_until: float = 0.0
    """Until when its workers are handed one job at a time, so that what they print can be attributed to it."""
    one_by_one: bool = False
    """Whether a claim must be a start, because the queue has a limit: its workers are handed one job at a time."""
    paused: bool = False

    @property
    def per_worker(self) -> int:
        """How many waiting jobs are worth the start of one sleeping worker."""
        return 1

    def remove(self, worker: str) -> None:
        """Stops giving jobs to this worker."""
        self.available.discard(worker)
        self.busy.pop(worker, None)
        if worker in self.idle:
            self.idle.remove(worker)

    def add(self, claims: Sequence[Claim]) -> None:
        """Adds claims; more urgent ones are placed ahead of less urgent ones."""
        overtake = bool(claims and self.prefetched and claims[0].priority > self.prefetched[-1].priority)
        self.prefetched.extend(claims)
        if overtake:
            self.prefetched = deque(sorted(self.prefetched, key=lambda claim: -claim.priority))

    def room(self, now: float) -> int:
        """Returns how many more claims can be used now."""
        return 0 if self.paused else max(0, self.useful(now) - len(self.prefetched))

    def early(self, room: int) -> int:
        """Returns how many of so many claims are not handed to an idle worker at once."""
        idle = len(self.idle) - len(self.prefetched) if self.batch == 1 else 0
        return room - min(room, max(0, idle))

    def surplus(self, now: float) -> int:
        """Returns how many prefetched claims no worker is about to receive."""
        return max(0, len(self.prefetched) - self.useful(now, SECONDS_KEPT)) if self.prefetched else 0

    def useful(self, now: float, within: float = SECONDS_AHEAD) -> int:
        """Returns how many prefetched claims are useful: those for idle workers, and those needed `within` seconds."""
        return len(self.idle) * self.batch + min(self._ahead(now, within), MOST_AHEAD)

    def _ahead(self, now: float, within: float) -> int:
        """Returns how many claims are needed `within` seconds if jobs take as long as recent ones."""
        if self.mean is None or not self.prefetches:
            return 0
        late, soon = self._late_before(now), now - self.mean + SECONDS_AHEAD
        if self.mean > SECONDS_AHEAD:
            return sum(late < since <= soon for since in self.busy.values()) * self.batch
        quick = len(self.idle) + len(self.busy)
        for since in self.busy.values():
            if since > late:
                break
            quick -= 1
        return int(quick * within / max(self.mean, 1e-5)) * self.batch

    def _late_before(self, now: float) -> float:
        """Returns the start of a job that takes longer than recent ones: its worker is not about to be free."""
        return now - (self.mean or 0.0) - SECONDS_AHEAD + 1e-6

    def surplus_at(self, now: float) -> float | None:
        """Returns when the next job will take longer than recent ones, so that prefetched claims may be surplus."""
        if not self.prefetched or self.mean is None:
            return None
        late = self._late_before(now)
        return next((since + self.mean + SECONDS_AHEAD for since in self.busy.values() if since > late), None)

    def record_duration(self, seconds: float) -> None:
        """Updates the mean duration with a job that has ended."""
        self.mean = seconds if self.mean is None else self.mean + (seconds - self.mean) / 8

    def gather(self, now: float) -> list[Claim]:
        """Returns the batch for a worker that is free now; empty while an incomplete batch waits for more jobs."""
        count = self._batch_size()
        if count < self.batch and count == len(self.prefetched) and not _must_be_alone(self.prefetched[0]):
            if self.gather_until is None:
                self.gather_until = now + self.batch_wait
            if now < self.gather_until:
                return []
        self.gather_until = None
        return [self.prefetched.popleft() for _ in range(count)]

    def _batch_size(self) -> int:
        """Returns how many claims from the front form a batch: limited by size, without those that must be alone."""
        size = 0
        for count, claim in enumerate(islice(self.prefetched, self.batch)):
            size += size_of(claim)
            if count and (size > MOST_TOGETHER or _must_be_alone(claim) or _must_be_alone(self.prefetched[0])):
                return count
        return min(len(self.prefetched), self.batch)


def size_of(claim: Claim) -> int:
    """Returns the size of what is sent with a job and may be large, in characters."""
    size = len(claim.payload)
    if claim.kept is not None:
        size += len(claim.kept)
    return size if claim.meta is None else size + len(claim.meta)


def longest(claims: Sequence[Claim]) -> float | None:
    """Returns the time limit of a batch in seconds: the longest timeout of its jobs; None if one has no timeout."""
    timeouts = [claim.timeout_ms for claim in claims if claim.timeout_ms is not None]
    return max(timeouts) / 1000 if len(timeouts) == len(claims) else None


def _must_be_alone(claim: Claim) -> bool:
    """Whether the job has failed or crashed a worker before: another failure must not affect other jobs of a batch."""
    return claim.crashes > 0 or claim.failures > 0
