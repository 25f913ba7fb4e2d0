"""What must be true of jobs, written from the specification (WK-1 to WK-8) and kept beside the store, never from it.

Of every job the oracle knows what happened to it. After every commit it says what must stand in the store.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from asking import Asking
from clockwork import Broken
from oracle_ahead import AheadPromises
from oracle_trust import Trials

from chargehand.model.batch import Batch, Note, Result
from chargehand.model.chores import CancelJobs, KeepRestarts
from chargehand.model.job import (
    Claim,
    Done,
    GaveUp,
    NewJob,
    Outcome,
    Raised,
    RetryLater,
    Settlement,
    Stopped,
    TimedOut,
)
from chargehand.model.records import CancelResult

if TYPE_CHECKING:
    from actors import Worker
    from stage import World

POISON = 3
SICK = "this process can do nothing any more"
"""What a sick worker says of every job."""
KINDS: dict[type, str] = {
    Done: "done",
    Raised: "raised",
    RetryLater: "retry",
    GaveUp: "gave up",
    Stopped: "cancelled",
    TimedOut: "timed out",
}
_ROWS = """
SELECT id, state, run_at_ms, attempts, crashes, interruptions, fence, reason, life IS NOT NULL, cancel_ms IS NOT NULL
FROM chargehand_job WHERE id IN (SELECT value FROM json_each(?))
"""


class Truth(msgspec.Struct):
    """One job, as it must be. `due`: the earliest and the latest moment (ms) at which it may be taken again."""

    id: str
    queue: str
    order: tuple[int, ...]
    max_attempts: int
    due: tuple[int, int]
    state: str = "queued"
    attempts: int = 0
    crashes: int = 0
    interruptions: int = 0
    number: int = 0
    reason: str | None = None
    ends: int = 0
    completed: int = 0
    cancel_at: float | None = None
    """When somebody asked for its end while it was running."""
    item: str | None = None
    finished_ms: int = 0
    retried: bool = False
    life: str = ""
    """The life of the node that claimed it last."""


class End(msgspec.Struct, frozen=True):
    """How an attempt ended."""

    how: str
    after_ms: int = 0
    credible: bool = True
    own: bool = False
    """Whether the job has proven to fail by itself."""
    pid: int | None = None
    """The process in which it raised."""
    wins: int = 0
    """How many jobs that process had done well by then."""
    sick: bool = False


def backoff(failures: int) -> tuple[int, int]:
    """2 s after the first failure, doubled each time up to 10 minutes, plus up to a tenth. In ms."""
    exact = min(2**failures, 600) * 1000
    return exact, exact * 11 // 10 + 1


class JobPromises:
    """See the module."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.jobs: dict[str, Truth] = {}
        self.trials = Trials(world)
        self.ahead = AheadPromises(world, self)
        self._ends: dict[tuple[str, int], End] = {}
        """How claims ended whose settlement is not committed yet."""
        self._handed: set[tuple[str, int]] = set()
        self.paused: dict[str, float] = {}
        """What is paused in the store, and until when."""
        self.suspects: set[str] = set()
        """Jobs that a node had when it was killed, and that have not ended since (RP-10)."""
        self.past: list[Settlement] = []
        """Settlements of claims that have ended: what a ghost might try again."""

    def check(self, fine: bool, what: str) -> None:
        if not fine:
            raise Broken(what)

    # what people do

    def enqueued(self, job: NewJob) -> None:
        due = self._world.now_ms() + job.delay_ms
        order = (-job.priority, len(self.jobs))
        self.jobs[job.id] = Truth(job.id, job.queue, order, job.max_attempts, (due, due))

    def cancelled(self, job_id: str, found: Sequence[CancelResult]) -> None:
        """Somebody cancelled it: at once if it waited, marked if it was running."""
        job = self.jobs[job_id]
        expected = {
            "queued": [CancelResult(job_id, True, job.number)],
            "running": [CancelResult(job_id, False, job.number)],
        }
        self.check(list(found) == expected.get(job.state, []), f"job {job_id} was {job.state}; cancelled: {found}")
        self._world.note(f"job {job_id}, {job.state}, is cancelled")
        self._world.tally[f"cancelled while {job.state}"] += 1
        if job.state == "queued":
            job.state, job.reason = "cancelled", "cancelled"
            self.suspects.discard(job_id)
        elif job.state == "running" and job.cancel_at is None:
            job.cancel_at = self._world.now

    def retried(self, job_id: str, done: bool) -> None:
        job = self.jobs[job_id]
        self.check(done == (job.state in ("failed", "cancelled")), f"job {job_id} was {job.state}; retried: {done}")
        if done:
            now = self._world.now_ms()
            job.state, job.reason, job.due = "queued", None, (now, now)
            job.attempts = job.crashes = job.interruptions = 0
            job.cancel_at, job.retried = None, True
            self.trials.failures.pop(job_id, None)

    def pause_ends(self, crew: str) -> bool:
        """Whether the store holds claims of this crew back now."""
        now = self._world.now
        return any(self.paused.get(scope, -1.0) > now for scope in ("*", crew))

    def waits(self, job: Truth) -> bool:
        """Whether a queued job waits for others (`oracle_flows`)."""
        return False

    def unsure(self, job: Truth) -> bool:
        """Whether a queued job may wait for others."""
        return False

    def conflict(self, job_id: str) -> None:
        """The store refuses to retry a job."""
        self.check(False, f"job {job_id} cannot be retried")

    # what happens to a claim

    def handed(self, claim: Claim) -> None:
        job = self.jobs[claim.id]
        self.check(
            job.state == "running" and job.number == claim.number,
            f"job {claim.id} is handed out with claim {claim.number}, but it is {job.state} with {job.number}",
        )
        self.check(
            (claim.id, claim.number) not in self._handed, f"the same claim of job {claim.id} is handed out twice"
        )
        self._handed.add((claim.id, claim.number))
        self.ahead.handed(claim)

    def ended(self, claim: Claim, end: End) -> None:
        self.check((claim.id, claim.number) not in self._ends, f"job {claim.id} ends twice under one claim")
        self._ends[claim.id, claim.number] = end

    def performed(self, worker: "Worker", first: str, claim: Claim, outcome: Outcome) -> None:
        after_ms = outcome.after_ms if isinstance(outcome, RetryLater) else 0
        credible, own = self.trials.performed(worker, first, claim, outcome)
        pid = worker.pid if isinstance(outcome, Raised) else None
        sick = isinstance(outcome, Raised) and outcome.error == SICK
        self.ended(claim, End(KINDS[type(outcome)], after_ms, credible, own, pid, self.trials.wins(worker), sick))

    def would_fail(self, claim: Claim, how: str) -> bool:
        """Whether this end is the job's last, and not a good one."""
        job = self.jobs[claim.id]
        return (how == "crashed" and job.crashes + 1 >= POISON) or (
            how in ("raised", "retry", "timed out") and job.attempts + 1 >= job.max_attempts
        )

    # commits

    def committed(self, batch: Batch, result: Result) -> None:
        self.ahead.committed(result)
        self.check(not result.lost, f"the store says that the node does not hold {result.lost}")
        touched: set[str] = set()
        for settlement in batch.settlements:
            self._settled(settlement)
            touched.add(settlement.id)
        for chore, done in zip(batch.chores, result.done, strict=True):
            touched |= self.chore(chore, done)
        wants = {want.crew: want for want in batch.wants}
        for grant in result.grants:
            self._granted(grant.crew, grant.claims, wants[grant.crew].limit)
            touched.update(claim.id for claim in grant.claims)
        if touched:
            self.compare(touched)
        for note in batch.notes:
            self._noted(note)

    def chore(self, chore: Any, done: Any) -> set[str]:
        """Something else was written: which jobs are not as they were."""
        if isinstance(chore, KeepRestarts):
            return set()
        assert isinstance(chore, CancelJobs)
        asking: Asking | None = chore.token
        if asking is not None and not asking.waits:
            self.check(not done, f"jobs {chore.ids} are cancelled for a caller that has gone on without the node")
            return set(chore.ids)
        if asking is not None:
            asking.done = True
        for job_id in chore.ids:
            self.cancelled(job_id, [each for each in done if each.id == job_id])
        return set(chore.ids)

    def _noted(self, note: Note) -> None:
        """Whoever has a job is known by name: what an unkillable worker holds must be told from what others hold."""
        sql = "SELECT worker FROM chargehand_job WHERE seq = ? AND fence = ? AND state = 'running'"
        rows = self._world.stage.people._db.execute(sql, (note.seq, note.claim)).fetchall()
        self.check(rows in ([], [(note.worker,)]), f"{note.worker} has a job, but {rows} is written down")

    def _settled(self, settlement: Settlement) -> None:
        key = (settlement.id, settlement.claim)
        end = self._ends.pop(key, End("returned"))
        how = end.how
        self.check(
            how != "returned" or key not in self._handed, f"job {settlement.id} is settled, but its attempt goes on"
        )
        self.check((settlement.outcome or "returned") == how, f"job {key}: {how}, settled as {settlement.outcome}")
        self.ahead.left(*key)
        job = self.jobs[settlement.id]
        self.check(job.number == settlement.claim and job.state == "running", f"a ghost settles: {settlement}")
        self._follows(job, end)
        if how == "returned" and settlement.delay_ms:
            alone = job.crashes > 0 and self._world.profile.crews[job.queue].concurrency > 1
            extra = job.attempts >= job.max_attempts
            self.check(
                extra or alone, f"job {job.id} waits though it is not on its extra attempt, and need not be alone"
            )
            due = self._world.now_ms() + settlement.delay_ms
            job.due = (due, due)
        if end.pid is not None:
            self.trials.settled(job.id, end.pid, end.wins, credible=end.own, sick=end.sick)
            only_fresh = end.credible and not end.own  # the crew did nothing well when it failed, and may have since
            if job.state == "failed" and not only_fresh:
                self.trials.failed_for_good(job.id, job.queue, job.max_attempts)
        self.past.append(settlement)

    def _follows(self, job: Truth, end: End) -> None:
        """What an end makes of a job."""
        now, how, after_ms = self._world.now_ms(), end.how, end.after_ms
        wait: tuple[int, int] | None = (0, 0)
        job.ends += how != "returned"
        job.state, job.reason = "queued", None
        match how:
            case "done":
                job.state, wait = "done", None
                job.completed += 1
            case "raised" | "timed out" | "retry" | "gave up":
                job.attempts += 1
                wait = (after_ms, after_ms) if how == "retry" else backoff(job.attempts)
                last = job.attempts >= job.max_attempts
                more = how == "raised" and not end.credible and job.attempts == job.max_attempts > 1
                if more and last:
                    self._world.tally["one more attempt"] += 1
                if (last and not more) or how == "gave up":
                    job.state, wait = "failed", None
                    job.reason = "retries used up" if how == "retry" else how
            case "crashed":
                job.crashes += 1
                wait = backoff(job.crashes - 1) if job.crashes > 1 else (0, 0)
                if job.crashes >= POISON:
                    job.state, job.reason, wait = "failed", "poison", None
            case "interrupted":
                job.interruptions += 1
            case "cancelled":
                self.check(job.cancel_at is not None, f"job {job.id} ends as cancelled, but nobody cancelled it")
            case _:
                self.check(how == "returned", how)
        if job.state == "queued" and job.cancel_at is not None:
            job.state, job.reason, wait = "cancelled", "cancelled", None
        job.finished_ms = now
        if job.state != "queued":
            self.suspects.discard(job.id)
        if wait is not None and wait != (0, 0):
            job.due = (now + wait[0], now + wait[1])

    def _granted(self, crew: str, claims: tuple[Claim, ...], limit: int) -> None:
        now = self._world.now_ms()
        paused = self.pause_ends(crew)
        self.check(not (paused and claims), f"{crew} is paused, but {len(claims)} jobs were claimed for it")
        ready = sorted(
            (job.order, job.id) for job in self.jobs.values()
            if job.queue == crew and job.state == "queued" and job.due[0] <= now and not self.waits(job)
        )  # fmt: skip
        taken = [claim.id for claim in claims]
        sure = all(self.jobs[job].due[1] <= now and not self.unsure(self.jobs[job]) for _, job in ready)
        if not paused and sure:
            free = self._with_one_suspect(crew, [job for _, job in ready])
            self.check(taken == free[:limit], f"{crew} wants {limit} of {free}, and gets {taken}")
        for claim in claims:
            job = self.jobs[claim.id]
            self.check(job.state == "queued", f"job {claim.id} is claimed, but it is {job.state}")
            self.check(not self.waits(job), f"job {claim.id} is claimed, but it waits for others")
            self.check(job.due[0] <= now, f"job {claim.id} is claimed {job.due[0] - now} ms too early")
            self.check(claim.number > job.number, f"job {claim.id}: claim {claim.number} follows {job.number}")
            self.check((claim.failures, claim.crashes) == (job.attempts, job.crashes), f"job {claim.id}: {claim}")
            self.check(claim.suspect == (claim.id in self.suspects), f"job {claim.id} is a suspect, or is not: {claim}")
            job.state, job.number, job.life = "running", claim.number, f"life {self._world.lives}"
        self.check(len(self._suspects_here()) <= 1, f"the node has several suspects: {self._suspects_here()}")

    def _suspects_here(self) -> list[str]:
        life = f"life {self._world.lives}"
        found = [self.jobs[job] for job in self.suspects]
        return [job.id for job in found if job.state == "running" and job.life == life]

    def _with_one_suspect(self, crew: str, ready: list[str]) -> list[str]:
        """What may be claimed: all, but of the suspects only one, and none while the node has one."""
        free, taken = list[str](), bool(self._suspects_here())
        for job in ready:
            if job not in self.suspects or not taken:
                free.append(job)
            taken = taken or job in self.suspects
        return free

    def recovered(self, ids: list[str], spared: set[str], *, some: bool, died: str | None = None) -> None:
        """A new node took back what an earlier one held; what an unkillable worker holds, or may hold, is spared."""
        running = {job.id for job in self.jobs.values() if job.state == "running"}
        self.check(set(ids) <= running and len(ids) == len(set(ids)), f"recovered {ids} of {running}")
        self.check(not spared & set(ids), f"{spared & set(ids)} are in an unkillable hand, and were taken from it")
        if not some:
            self.check(set(ids) == running, f"{running - set(ids)} were not recovered")
        there = {job_id for job_id in ids if self.jobs[job_id].life == died}
        accused = there & self.suspects
        for job_id in ids:
            charged = accused == {job_id}
            self._world.tally["charged with the death of a node"] += charged
            self.suspects |= there & {job_id}
            self._follows(self.jobs[job_id], End("crashed" if charged else "interrupted"))
        self._ends = {key: end for key, end in self._ends.items() if key[0] not in ids}
        self.compare(set(ids))

    def node_starts(self) -> None:
        """What an earlier node did not commit has not happened."""
        self._ends.clear()
        self.trials.node_starts()
        self.ahead.node_starts()

    # the store against the truth

    def compare(self, ids: set[str]) -> None:
        rows = self._world.stage.store._db.execute(_ROWS, (json.dumps(sorted(ids)),)).fetchall()
        self.check(len(rows) == len(ids), f"jobs are lost: {ids - {row[0] for row in rows}}")
        for job_id, state, run_at, attempts, crashes, interruptions, number, reason, held, marked in rows:
            job = self.jobs[job_id]
            found = (state, attempts, crashes, interruptions, number, reason, bool(held), bool(marked))
            counts = (job.attempts, job.crashes, job.interruptions, job.number)
            expected = (job.state, *counts, job.reason, job.state == "running", job.cancel_at is not None)
            self.check(found == expected, f"job {job_id}: {found} instead of {expected}")
            if job.state == "queued":
                low, high = job.due
                self.check(low <= run_at <= high, f"job {job_id} waits until {run_at}, not {low} to {high}")
                job.due = (run_at, run_at)

    def final(self, poison: set[str]) -> None:
        """Everything has ended, well or with a reason; nothing twice."""
        self.compare(set(self.jobs))
        counted = self._world.stage.people._db.execute(
            "SELECT id, count(a.fence), sum(a.outcome = 'done') FROM chargehand_job j "
            "LEFT JOIN chargehand_attempt a ON a.job = j.seq GROUP BY id"
        )
        for job_id, attempts, done in counted:
            self.check(job_id in self.jobs, f"job {job_id} exists, but nothing that was accepted made it")
            job = self.jobs[job_id]
            self.check(job.state in ("done", "failed", "cancelled"), f"job {job_id} is still {job.state}")
            self.check((done or 0) == job.completed <= 1, f"job {job_id} was completed {done} times")
            self.check(attempts == job.ends, f"job {job_id} has {attempts} attempts instead of {job.ends}")
            if job_id in poison and job.state != "cancelled":
                self.check((job.state, job.reason) == ("failed", "poison"), f"poison job {job_id} is {job.state}")
