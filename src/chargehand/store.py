"""The contract that every store keeps: durable jobs, atomic claims, fenced settling.

A store never decides what follows from an outcome (the model does that), and never runs anything. Every method of a
Transaction takes a batch. All times that a store writes are its own clock's: callers hand in durations.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from chargehand.model.access import ApiKey, Deed, Operation, OperationFilter, Remembered, Session
from chargehand.model.batch import Grant, Note, Want
from chargehand.model.job import IN_WORDS, Attempt, Enqueued, Found, JobRecord, NewJob, Settlement, State


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
    limit: int | None = None
    """How many jobs of its queue may run at a time, in the whole cluster."""
    limit_per_key: int | None = None
    """How many that share a `limit_key`."""
    scaled: int | None = None
    """A count that a person set while the crew ran; it holds until the configured one changes."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A pause flag: of one worker (`worker:crew:index`), of a crew by its name, or of all (`*`)."""

    scope: str
    who: str
    reason: str | None
    since_ms: int
    until_ms: int | None = None
    left_ms: int | None = None
    """How much of it is left by the store's clock, at the time of reading; None: until somebody resumes."""


class HealthNote(msgspec.Struct, frozen=True, kw_only=True):
    """One component as its supervisor sees it, on its way into the store. Ages, because a store's clock is its own."""

    component: str
    status: str
    flags: tuple[str, ...] = ()
    reason: str | None = None
    pid: int | None = None
    pid_start: int | None = None
    """The process's start time in the kernel's ticks: a pid alone may be somebody else's by now."""
    incarnation: str | None = None
    current_job: str | None = None
    heartbeat_age_ms: int | None = None
    restart_count: int = 0
    restart_age_ms: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    created_age_ms: int = 0
    metadata: str = "{}"
    """JSON: telemetry and what else readers may want."""


class HealthRow(msgspec.Struct, frozen=True, kw_only=True):
    """One component as readers in other processes find it. What it says of `healthy` and of the pid must be checked."""

    component: str
    node: str
    status: str
    flags: tuple[str, ...]
    reason: str | None
    pid: int | None
    pid_start: int | None
    incarnation: str | None
    current_job: str | None
    last_heartbeat_ms: int | None
    restart_count: int
    last_restart_ms: int | None
    exit_code: int | None
    signal: int | None
    created_at_ms: int
    metadata: msgspec.Raw
    age_ms: int | None
    """How old the last heartbeat was by the store's clock, at the time of reading."""


class CrashReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a worker's death that nobody asked for."""

    id: str
    component: str
    crew: str
    incarnation: str
    pid: int | None
    reason: str
    """One of the words of `chargehand.model.fleet.death`; exit code and signal are facts of their own."""
    text: str
    """The same for people, in a sentence."""
    exit_code: int | None
    signal: int | None
    job: str | None
    memory: int | None
    uptime_ms: int | None
    """Since it was ready; None if it never was."""
    charged: bool
    follows: str
    """What was decided: when it comes back, or that it was given up."""
    stacks: str = ""
    lines: tuple[str, ...] = ()
    """The last lines of its log."""
    frames: tuple[str, ...] = ()
    """What it said that was no frame, cut."""
    age_ms: int = 0


class CrashRecord(CrashReport, frozen=True, kw_only=True):
    """A crash report as it is read."""

    node: str
    at_ms: int


class CrashFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which crash reports to list, newest first; `before` is the id of the last one on the page before."""

    component: str | None = None
    crew: str | None = None
    job: str | None = None
    before: str | None = None
    limit: int = 20


class GivenUpMark(msgspec.Struct, frozen=True, kw_only=True):
    """That a worker was given up on; kept through restarts, until the fingerprint changes or a person acts."""

    component: str
    crew: str
    reason: str
    fingerprint: str
    at_ms: int = 0
    """Written by the store; of no matter on the way in."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The health of everything at one moment. For people and charts; no decision is made from it."""

    timestamp_ms: int
    components: msgspec.Raw
    """A JSON array of objects: component, status, flags, current_job, pid, restart_count."""


class CancelResult(msgspec.Struct, frozen=True):
    """What came of a cancel: at once, or the job is running and its worker has to be told (`fence`: which claim)."""

    id: str
    at_once: bool
    fence: int


class RecurringPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is enqueued again and again. Whoever computes the next time reads `schedule`; stores only keep it."""

    name: str
    schedule: str
    job: str
    """The NewJob to enqueue, as JSON, without its id."""
    next_run_ms: int
    """By the store's clock; of a plan whose schedule has not changed, the stored one stays."""
    last_job: str | None = None


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """A page that a crew's `discover` found, and what a job for each is given."""

    queue: str
    found: tuple[Found, ...]
    priority: int
    max_attempts: int
    timeout_ms: int | None
    most_done: int = 3
    """An item that was done so often within the window and is found again makes no progress."""
    window_ms: int = 3_600_000
    age_ms: int = 0
    """How long ago the look began: an item that was done since may be found only because it was not done yet."""


class Discovered(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a page: how many are new in the queue, held or waiting already, set aside before, set aside now."""

    queued: int = 0
    held: int = 0
    set_aside: int = 0
    no_progress: tuple[str, ...] = ()
    """The items."""


class ClaimRow(msgspec.Struct, frozen=True, kw_only=True, rename=IN_WORDS):
    """Who holds what since when."""

    id: str
    queue: str
    label: str | None
    fence: int
    node: str
    worker: str | None
    started_ms: int
    cancel_ms: int | None


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list, newest first; `before` is the id of the last one on the page before."""

    queue: str | None = None
    state: State | None = None
    reason: str | None = None
    text: str | None = None
    """Part of the id, label, key, item or error, in any case of letters."""
    before: str | None = None
    below: int | None = None
    """The same by its `seq`, which stays true when that job is pruned."""
    limit: int = 50


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a queue are in each state.

    Of the queued, `future` are those that wait for their time, and `limited` those that were set aside because their
    key has as many running as it may.
    """

    queue: str
    queued: int = 0
    future: int = 0
    limited: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    last_done_ms: int | None = None
    """When the last of those that are done was."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Which finished jobs are kept: none older than `age_ms`, no more than `count` in a queue and state."""

    age_ms: int = 7 * 86_400_000
    """Finished jobs."""
    count: int = 1_000_000
    """Finished jobs, in a queue and state."""
    crash_age_ms: int = 30 * 86_400_000
    """Crash reports."""
    crash_count: int = 1_000
    """Crash reports, of all crews together."""
    history_age_ms: int = 7 * 86_400_000
    """Snapshots of health, where that history is switched on."""
    operation_age_ms: int = 366 * 86_400_000
    """The operator log."""


class Transaction(Protocol):
    """One atomic change. Each method takes a batch; all of them commit together or not at all."""

    def execute(self, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The caller's own SQL on the caller's own tables."""
        ...

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add jobs, in order. One whose id is known, or whose key is taken, is answered with the one that is there."""
        ...

    def claim(self, wants: Sequence[Want], holder: Holder) -> list[Grant]:
        """Take due jobs for this holder: highest priority first, then oldest; none of a paused crew.

        A Want with `asleep` also asks how many more could be taken now, up to that number (Grant.waiting). A pause that
        runs out says when (Grant.next_in_ms), for nobody is told when it does. None over a limit of its queue or key:
        such jobs wait aside, so that no later claim looks at them, until a slot is free.
        """
        ...

    def settle(self, settlements: Sequence[Settlement], holder: Holder) -> list[str]:
        """End claims, each only if its fence still holds. Returns the ids of those that no longer do.

        A job that was asked to cancel is cancelled where it would be queued again; any other end stands. Every end
        frees its slots, and one job that waits for each of them may be claimed again.
        """
        ...

    def note(self, notes: Sequence[Note]) -> None:
        """Write down which worker has which job, and how far it is."""
        ...

    def cancel(self, ids: Sequence[str]) -> list[CancelResult]:
        """Cancel queued jobs, and mark running ones as to be cancelled. Finished and unknown ones are left out."""
        ...

    def release(self, job_id: str, fence: int, why: str) -> bool:
        """Take a claim back by hand, as an interruption, if it is still that one."""
        ...

    def discover(self, pages: Sequence[Discovery]) -> list[Discovered]:
        """Queue what was found: a job for every item, but for those that have one queued or running, those whose last
        one failed or was cancelled (a person retries or clears it), and those that make no progress: these get a failed
        job with reason `no progress`."""
        ...

    def recur(self, plans: Sequence[RecurringPlan]) -> None:
        """These are the recurring jobs now, and no others."""
        ...

    def fire(self, name: str, due_ms: int, next_run_ms: int, job: NewJob) -> bool:
        """Enqueue a recurring job and move it on, if nobody has done so for this time; whether it was us."""
        ...

    def retry(self, ids: Sequence[str]) -> list[str]:
        """Queue failed or cancelled jobs again, counters cleared; Conflict if a unique key is taken meanwhile."""
        ...

    def recover(self, holder: Holder, why: str, spare: Sequence[str] = ()) -> list[str]:
        """Take back, as interruptions, what earlier lives of this node held. Only after those are proven dead.

        `spare`: workers of theirs that cannot be killed; what they hold, or may hold, stays theirs.
        """
        ...

    def pause(self, scope: str, who: str, reason: str | None, for_ms: int | None = None) -> None:
        """Set a pause flag; claims of the scope get nothing from the moment of the commit, for so long."""
        ...

    def resume(self, scope: str) -> bool:
        """Clear a pause flag; whether there was one."""
        ...

    def register(self, holder: Holder, crews: Sequence[CrewRow], about: dict[str, Any]) -> None:
        """Write down that this life of the node is the present one, and which crews it serves.

        A `scaled` count in the store stays if the configured count is the one beside which it was set. Health rows
        that this node left, in whatever life, are wiped.
        """
        ...

    def scale(self, crew: str, count: int | None) -> None:
        """Keep a count that a person set for this crew (None: the configured one again)."""
        ...

    def project(self, notes: Sequence[HealthNote], holder: Holder) -> None:
        """Write or replace this node's health rows of these components."""
        ...

    def wipe(self, holder: Holder, components: Sequence[str] | None = None) -> None:
        """Delete this node's health rows: all of them, or of these components."""
        ...

    def report(self, crashes: Sequence[CrashReport], holder: Holder) -> None:
        """Keep crash reports. One whose id is known already is not written again."""
        ...

    def give_up(self, marks: Sequence[GivenUpMark]) -> None:
        """Keep that these workers were given up on."""
        ...

    def forgive(self, components: Sequence[str]) -> None:
        """Forget that these were."""
        ...

    def snapshot(self) -> None:
        """Append the present health rows to the history."""
        ...

    def clear_failed(self, queue: str, limit: int) -> list[str]:
        """Delete up to so many failed jobs of this queue, oldest first; their ids."""
        ...

    def add_key(self, key: ApiKey) -> None:
        """Keep a new key; Conflict if a key of that name is in use."""
        ...

    def revoke_key(self, name: str) -> bool:
        """End a key, by its name or id, and every sign-in with it; whether there was one."""
        ...

    def used_keys(self, used: Sequence[tuple[str, int]]) -> None:
        """Write down when keys, by their ids, were last used."""
        ...

    def sign_in(self, session: Session) -> None:
        """Keep a sign-in; if there are too many, the oldest go."""
        ...

    def sign_out(self, digest: str) -> None:
        """End a sign-in."""
        ...

    def log(self, deeds: Sequence[Deed]) -> None:
        """Add to the operator log what somebody did."""
        ...

    def remember(self, answer: Remembered) -> None:
        """Keep what was answered to a request, for its repetitions within a day."""
        ...

    def remembered(self, caller: str, key: str) -> Remembered | None:
        """What this caller was answered under this key within the last day."""
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

    def cancelling(self) -> list[tuple[str, int]]:
        """Running jobs that were asked to cancel, with their fences."""
        ...

    def claims(self, limit: int = 1000) -> list[ClaimRow]:
        """What is held, oldest first."""
        ...

    def recurring(self) -> list[RecurringPlan]:
        """Every recurring job, by name."""
        ...

    def now_ms(self) -> int:
        """The store's clock."""
        ...

    def crews(self) -> list[CrewRow]:
        """Every crew that a node has registered."""
        ...

    def pauses(self) -> list[Pause]:
        """Every pause flag that is set."""
        ...

    def health(self) -> list[HealthRow]:
        """Every component of every node, by node and component."""
        ...

    def crashes(self, which: CrashFilter) -> list[CrashRecord]:
        """A page of crash reports, newest first."""
        ...

    def crash(self, crash_id: str) -> CrashRecord | None:
        """One crash report."""
        ...

    def given_up(self) -> list[GivenUpMark]:
        """Every worker that is marked as given up on."""
        ...

    def api_keys(self) -> list[ApiKey]:
        """Every key, oldest first; revoked and expired ones, too."""
        ...

    def sessions(self) -> list[Session]:
        """Every sign-in that has not run out."""
        ...

    def operations(self, which: OperationFilter) -> list[Operation]:
        """A page of the operator log, newest first."""
        ...

    def snapshots(self, since_ms: int, limit: int) -> list[Snapshot]:
        """The history from then on, oldest first."""
        ...

    def waiting(self) -> list[tuple[str, int]]:
        """The queues that have due jobs waiting, with for how many ms the one that is taken next has been due.

        If one that had a time to wait for has been due for longer, and no claim has come by since, then it is that one.
        Its cost grows with the number of queues, not of jobs.
        """
        ...

    def prune(self, retention: Retention, limit: int) -> int:
        """Delete up to `limit` finished jobs that are past their keeping, in a transaction of its own; how many.

        Crash reports, history, operations, sign-ins and remembered answers past theirs go, too; they are few and not
        counted.
        """
        ...

    def probe(self) -> None:
        """Write something, to see that it can be; StoreError if not, or if the schema is not what this code knows."""
        ...

    @property
    def pruning(self) -> bool:
        """Whether the last `prune` left off while it was counting: the next one goes on from there."""
        ...

    def migrate(self) -> int:
        """Bring the schema up to what this code knows; returns its version. A newer one is refused."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...
