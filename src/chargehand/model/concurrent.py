"""Crews whose workers perform several jobs at the same time: who receives which job, and what each worker holds. Pure.

A job that has crashed a worker is performed alone, so that its next crash is charged to no other job. If every worker
holds jobs, one of them is reserved: it receives no others, and takes the job when it holds none. Until then the job
waits in the store.
"""

from collections.abc import Mapping

import msgspec

from chargehand.model.batch import Note
from chargehand.model.held import PROGRESS_EVERY, SECONDS_AHEAD, Held, Pool
from chargehand.model.job import Claim

SHORTEST_TURN, LONGEST_TURN = 0.05, 1.0
"""The limits of the time, in seconds, that is assumed for one job that must be alone, in the line of such jobs."""
LONGEST_LINE = 10.0
"""The longest time, in seconds, for which a job that must be alone goes back to the queue."""
PATIENCE = 1.0
"""How many seconds a reserved worker that holds no job waits for a job that is due and must be alone."""


class SlotHand(Held):
    """The claims that a worker holds at the same time, each with its own start."""

    sinces: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    """When each job was handed over, by job id."""
    unnoted: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    """The jobs whose worker is not written yet, and when each was handed over."""

    @classmethod
    def of(cls, claim: Claim, now: float) -> "SlotHand":
        """Returns the hand of a worker that receives its first job."""
        return cls(claim, now, sinces={claim.id: now}, unnoted={claim.id: now})

    def add(self, claim: Claim, now: float) -> None:
        """Adds a job."""
        self.others = self.others or {}
        self.others[claim.id] = claim
        self.sinces[claim.id] = self.unnoted[claim.id] = now
        self.noted = False

    def take(self, job: str | None) -> Claim:
        """Removes and returns the claim on this job; the last one stays as `claim`, and is to be dropped with the
        hand."""
        assert job is not None
        self.unnoted.pop(job, None)
        self.noted = not self.unnoted
        if self.progress is not None:
            self.progress.pop(job, None)
        if not self.others:
            return self.claim
        if job != self.claim.id:
            del self.sinces[job]
            return self.others.pop(job)
        taken = super().take(job)
        del self.sinces[job]
        self.since = self.sinces[self.claim.id]
        return taken

    def since_of(self, job: str) -> float:
        """Returns when the job was handed over."""
        return self.sinces[job]

    @property
    def note_since(self) -> float:
        """When the first job was handed over whose worker is not written yet."""
        return next(iter(self.unnoted.values()), self.since)

    def notes(self, worker: str, now: float) -> list[Note]:
        """Returns what is to be written about these claims, and marks it as written. Progress that was written less
        than PROGRESS_EVERY seconds ago waits."""
        progress, kept = self.progress or {}, self.newest_kept()
        if self.progress_at > now:
            progress, kept = {}, {}
        names = {**self.unnoted, **progress, **kept}
        found = [(job, self.find(job)) for job in names]
        new = [
            Note(
                seq=claim.seq, claim=claim.number, worker=worker, age_ms=int((now - self.sinces[job]) * 1000),
                progress=progress.get(job), kept=kept.get(job),
            )
            for job, claim in found
            if claim is not None
        ]  # fmt: skip
        self.unnoted.clear()
        self.noted = True
        if progress or kept:
            self.progress, self.unkept, self.progress_at = None, None, now + PROGRESS_EVERY
        return new

    def not_written(self, notes: Mapping[int, Note]) -> None:
        """Marks what these notes (by the job's number) contain as not written, after a failed transaction."""
        for job, claim in self.claims.items():
            note = notes.get(claim.seq)
            if note is not None and note.claim == claim.number:
                self.unnoted[job], self.noted = self.sinces[job], False
                self.write_again(job, note)


class SlotPool(Pool):
    """The workers and the claims of a crew with `concurrency`; `idle` are the workers that can receive another job."""

    concurrency: int = 2
    loads: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """How many jobs each worker holds; a call of `discover` counts as one."""
    blocked: set[str] = msgspec.field(default_factory=set[str])
    """Workers whose event loop does not run."""
    alone: set[str] = msgspec.field(default_factory=set[str])
    """Workers that perform a job which must be alone."""
    reserved: str | None = None
    """The worker that receives no job until it holds none, and then one that must be alone."""
    emptied_at: float = 0.0
    """When the reserved worker ended its last job."""
    line: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    """The jobs that must be alone and went back to the queue, and when each is due."""

    # workers

    @property
    def per_worker(self) -> int:
        """How many waiting jobs are worth the start of one sleeping worker."""
        return self.concurrency

    def welcome(self, worker: str) -> None:
        """Registers the new process of a worker."""
        self.forget(worker)
        self.loads[worker] = 0

    def forget(self, worker: str) -> None:
        """Forgets the process of a worker that has exited."""
        self.loads.pop(worker, None)
        self.blocked.discard(worker)
        self.alone.discard(worker)

    def remove(self, worker: str) -> None:
        """Stops giving jobs to this worker."""
        super().remove(worker)
        if self.reserved == worker:
            self._release()

    def block(self, worker: str, blocked: bool) -> None:
        """Sets whether the event loop of this worker is blocked; while it is, the worker receives no jobs."""
        if blocked:
            self.blocked.add(worker)
        else:
            self.blocked.discard(worker)
        self.offer(worker)

    def offer(self, worker: str) -> None:
        """Adds the worker to those that can receive a job, or removes it from them."""
        held = self.loads.get(worker, 0)
        may = (
            worker in self.available and worker not in self.blocked and worker not in self.alone
            and held < self.concurrency and (worker != self.reserved or not held)
        )  # fmt: skip
        if may and worker not in self.idle:
            self.idle.append(worker)
        elif not may and worker in self.idle:
            self.idle.remove(worker)

    def began(self, worker: str, claim: Claim | None = None) -> None:
        """Records that a worker receives this job (None: a call of `discover`)."""
        self.loads[worker] += 1
        if claim is not None:
            self.line.pop(claim.id, None)
            if must_be_alone(claim):
                self.alone.add(worker)
            elif worker == self.reserved:
                self._release()  # a job that is more urgent than those for which the worker was reserved
        self.offer(worker)

    def ended(self, worker: str, now: float) -> None:
        """Records that a job, or a call of `discover`, has ended."""
        self.loads[worker] -= 1
        self.alone.discard(worker)
        if worker == self.reserved and not self.loads[worker]:
            self.emptied_at = now
        self.offer(worker)

    # claims

    def useful(self, now: float, within: float = SECONDS_AHEAD) -> int:
        """Returns how many claims can be handed over now; none is held ahead."""
        return sum(self._free(worker, now) for worker in self.idle)

    def early(self, room: int) -> int:
        """Returns 0: every claim is handed over at once."""
        return 0

    def surplus_at(self, now: float) -> float | None:
        """Returns None: no claim is held ahead."""
        return None

    def _free(self, worker: str, now: float) -> int:
        """Returns how many jobs this worker can receive."""
        if worker != self.reserved:
            return self.concurrency - self.loads[worker]
        return int(any(due <= now for due in self.line.values()))

    def takers(self, claim: Claim) -> list[str]:
        """Returns the workers that can receive this job, the one with the fewest jobs first."""
        if must_be_alone(claim):
            found = [worker for worker in self.idle if not self.loads[worker]]
            return sorted(found, key=lambda worker: worker != self.reserved)
        return sorted(self.idle, key=lambda worker: (worker == self.reserved, self.loads[worker]))

    @property
    def can_fill(self) -> bool:
        """Whether the first of the claims can be handed over, or goes back to the queue because it must be alone."""
        return bool(self.prefetched and (self.takers(self.prefetched[0]) or must_be_alone(self.prefetched[0])))

    def postpone(self, claim: Claim, now: float) -> float:
        """Returns for how many seconds a job that must be alone goes back to the queue; reserves a worker for it."""
        if self.reserved is None:
            found = [worker for worker in self.available if worker not in self.blocked and worker not in self.alone]
            if found:
                self.reserved = min(sorted(found), key=lambda worker: self.loads[worker])
                self.offer(self.reserved)
        turn = min(max(self.mean or 0.0, SHORTEST_TURN), LONGEST_TURN)
        last = max(self.line.values(), default=now)
        self.line[claim.id] = min(max(last, now) + turn, now + LONGEST_LINE)
        return self.line[claim.id] - now

    def line_at(self, now: float) -> float | None:
        """Returns when the next job of the line is due, or when the reserved worker stops waiting for it; None if
        neither is awaited."""
        if self.reserved is None or self.loads.get(self.reserved):
            return None
        return min((due if due > now else self._patient_until(due) for due in self.line.values()), default=now)

    def _patient_until(self, due: float) -> float:
        return max(due, self.emptied_at) + PATIENCE

    def tidy(self, now: float) -> None:
        """Drops jobs from the line that did not come back: they are cancelled, limited, or performed elsewhere."""
        if self.reserved is None:
            self.line.clear()
        elif not self.loads.get(self.reserved):
            self.line = {job: due for job, due in self.line.items() if self._patient_until(due) > now}
            if not self.line:
                self._release()

    def _release(self) -> None:
        """Lets the reserved worker take any job again."""
        worker, self.reserved = self.reserved, None
        if worker is not None:
            self.offer(worker)


def must_be_alone(claim: Claim) -> bool:
    """Whether the job has crashed a worker before: another crash must not be charged to other jobs."""
    return claim.crashes > 0
