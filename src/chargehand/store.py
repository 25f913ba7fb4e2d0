"""The contract of every store: durable jobs, atomic claims, settling by claim number.

A store never decides what follows from an outcome (the model does) and never runs anything. A transaction writes in
three parts (`jobs`, `fleet`, `access`), and a store reads in the same three. Times are the store's own clock: callers
pass durations.

Texts of the application (keys, items, labels, tags, payloads, results) reach a store escaped by `codec`: valid Unicode
without NUL. A store returns them as they are.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from chargehand import clock
from chargehand.model.access import ApiKey, Deed, Operation, OperationFilter, Remembered, Session
from chargehand.model.batch import Batch, Finished, Grant, Note, Result, Want
from chargehand.model.failover import Comparison
from chargehand.model.flows import (
    FlowCancelled,
    FlowFilter,
    FlowRecord,
    FlowStage,
    FlowTotals,
    NewFlow,
    Predecessor,
    PredecessorFilter,
    Related,
)
from chargehand.model.job import DEFAULT_POLICY, Attempt, ClaimName, Enqueued, JobPolicy, JobRecord, NewJob, Settlement
from chargehand.model.records import (
    CancelResult,
    ClaimRow,
    Counts,
    CrashFilter,
    CrashRecord,
    CrashReport,
    CrewRow,
    Discovered,
    Discovery,
    FailuresFound,
    GivenUpMark,
    HealthNote,
    HealthRow,
    Holder,
    JobFilter,
    JobRun,
    JobsFound,
    JobSize,
    LastLife,
    LivingNode,
    Migrated,
    NewLife,
    NodeReply,
    NodeRequest,
    NodeRow,
    OtherNodes,
    Pause,
    RecurringPlan,
    RecurringState,
    Rescheduling,
    RestartNote,
    Retention,
    SearchPlace,
    SizesFound,
    Snapshot,
    Sort,
    Tally,
)
from chargehand.model.wakeups import Wakeup

OnFailed = Callable[[Sequence[Settlement]], list[NewJob]]
"""Returns the jobs to enqueue, in the same transaction, because of those of these jobs that have failed for good."""


def no_jobs(_: Sequence[Settlement]) -> list[NewJob]:
    """Enqueues nothing, whatever fails."""
    return []


class Enqueueing(Protocol):
    """Adds jobs and flows, inside one transaction."""

    def enqueue(self, jobs: Sequence[NewJob], *, promised: bool = False) -> list[Enqueued]:
        """Adds jobs in order. If the id exists, or the key is taken, the answer names the existing job.

        Ids that are `promised` are known to others already: each becomes an alias of the existing job.
        """
        ...

    def begin(self, flow: NewFlow) -> None:
        """Adds a flow, as `FlowWriting.begin` does."""
        ...


class JobWriting(Protocol):
    """Writes to jobs, inside one transaction."""

    def enqueue(self, jobs: Sequence[NewJob], *, promised: bool = False) -> list[Enqueued]:
        """Adds jobs in order. If the id exists, or the key is taken, the answer names the existing job.

        Ids that are `promised` are known to others already: each becomes an alias of the existing job.

        A job with predecessors (`after`) waits for them, and for the jobs that they spawn. A predecessor may come
        earlier in the same call or transaction. One that is done counts as ended; if one has failed or was cancelled,
        the job fails at once (unless `if_failed` is `run`). Raises JobNotFound, and adds nothing, if a predecessor
        does not exist; FlowNotFound if the flow does not, and FlowEnded if it has ended. What is enqueued by an outcome
        that is settled raises neither: such a job is added and fails at once.
        """
        ...

    def claim(self, wants: Sequence[Want], holder: Holder) -> list[Grant]:
        """Takes due jobs for this holder: highest priority first, then oldest; none of a paused crew.

        For a Want with `asleep`, Grant.waiting counts how many more could be taken, up to that number. If a pause is in
        the way, Grant.next_in_ms says when it expires, because nothing is written then. Jobs over a limit of their
        queue or key are not taken; those over a key's limit are set aside until a slot is free, so that later claims
        do not look at them. At most one suspect is taken, and none while the holder has one.
        """
        ...

    def settle(self, settlements: Sequence[Settlement], holder: Holder) -> list[ClaimName]:
        """Ends claims that still hold. Returns the others.

        A job with a cancel request is cancelled where it would be queued again; every other outcome stands. Each
        settled job frees its slots, and for each slot one job that was set aside may be claimed again. The ids of the
        jobs that a settled job enqueues are promised.

        If a job has ended, followers for which it was the last predecessor can be claimed from this transaction on.
        If it failed or was cancelled, its followers fail (reason `predecessor`), and theirs in turn, except those with
        `if_failed` as `run`. Followers of the job wait for the children that it spawned, too. A flow whose last job has
        ended ends.
        """
        ...

    def holds(self, seq: int, claim: int) -> bool:
        """Returns whether the claim holds now. Only `settle` makes sure of it."""
        ...

    def note(self, notes: Sequence[Note]) -> None:
        """Records which worker has which job, and its progress."""
        ...

    def cancel(self, ids: Sequence[str]) -> list[CancelResult]:
        """Cancels queued jobs and marks running ones. The answer leaves out finished and unknown jobs.

        Followers of a cancelled job fail, as in `settle`.
        """
        ...

    def expire(self, limit: int) -> int:
        """Cancels up to `limit` queued jobs that should have been started earlier (reason `expired`). Returns how
        many. Their followers fail, as in `settle`."""
        ...

    def release(self, job_id: str, claim: str, why: str) -> bool:
        """Ends a claim as an interruption, by hand. Returns False if the claim no longer holds."""
        ...

    def discover(self, pages: Sequence[Discovery]) -> list[Discovered]:
        """Queues a job for each new item of the pages.

        An item gets none if one of its jobs is queued or running, or if its last job failed or was cancelled (until a
        person retries or clears it). An item that makes no progress gets a failed job with reason `no progress`.
        """
        ...

    def recur(self, plans: Sequence[RecurringPlan], holder: Holder) -> None:
        """Replaces the recurring jobs of this node by these. Those that other living nodes declare stay."""
        ...

    def fire(self, name: str, due_ms: int, next_run_ms: int, job: NewJob) -> bool:
        """Enqueues a recurring job and sets its next time. Returns False if that was already done for this time, and
        if the recurring job is paused: then this time is skipped."""
        ...

    def run_recurring(self, name: str, job: NewJob) -> str | None:
        """Enqueues a recurring job besides its schedule. Returns the id; None if there is no such recurring job."""
        ...

    def pause_recurring(self, name: str, who: str, reason: str | None) -> bool:
        """Makes a recurring job skip its times. Returns False if there is no such recurring job."""
        ...

    def resume_recurring(self, name: str, skipped: Rescheduling | None = None) -> bool:
        """Ends the pause of a recurring job. Returns False if it is not paused.

        `skipped`: the next time, which passed while no node ran, and the one that follows.
        """
        ...

    def retry(self, ids: Sequence[str]) -> list[str]:
        """Queues failed or cancelled jobs again with cleared counters. Raises Conflict if a unique key is taken, or if
        a predecessor of a job that never ran has failed or was cancelled.

        A follower that failed because of one of these jobs waits again, and its followers in turn, unless another of
        its predecessors has failed or was cancelled. One whose key is taken stays failed and says so. The result
        contains the jobs that were named, not the followers.
        """
        ...

    def recover(
        self,
        holder: Holder,
        why: str,
        spare: Sequence[str] = (),
        *,
        died: Collection[str] = (),
        policy: JobPolicy = DEFAULT_POLICY,
    ) -> list[Settlement]:
        """Ends, as interruptions, the claims of earlier lives of this node. Call it only after those are dead.

        `spare` names workers of those lives that cannot be killed: what they hold, or may hold, stays claimed. `died`
        are the lives that ended without having been asked to: their jobs are suspects (`model/suspects.py`) from then
        on.
        `policy` says after how many crashes a job fails.
        """
        ...

    def delete(self, ids: Sequence[str]) -> list[str]:
        """Deletes finished jobs with their attempts. The answer leaves out queued, running and unknown jobs."""
        ...


class FlowWriting(Protocol):
    """Writes to flows, inside one transaction."""

    def begin(self, flow: NewFlow) -> None:
        """Adds a flow, to which `jobs.enqueue` of the same transaction adds its first jobs. One without any job ends
        with the transaction. A flow whose id exists is not added again."""
        ...

    def cancel(self, flow_id: str) -> FlowCancelled:
        """Cancels every queued job of a flow and marks the running ones. What these enqueue or spawn into the flow
        later is cancelled, too. Raises FlowNotFound."""
        ...

    def retry(self, flow_id: str) -> list[str]:
        """Queues all failed and cancelled jobs of a flow again; those that wait for others wait again. Returns their
        ids. Jobs whose unique key is taken stay as they are. Raises FlowNotFound."""
        ...

    def delete(self, flow_id: str, limit: int) -> bool:
        """Deletes up to `limit` jobs of a flow that has ended, and the flow with the last of them. Returns whether it
        is gone. Raises FlowNotFound, and Conflict if the flow has not ended."""
        ...

    def sweep(self, limit: int) -> int:
        """Completes what others have left undone: followers of jobs that have ended, and flows whose jobs have all
        ended. Returns how many it has found; a node calls it at its start, and now and then."""
        ...


class FleetWriting(Protocol):
    """Writes about nodes, crews and workers, inside one transaction.

    A store for many nodes keeps everything about crews and workers for each node, and a node changes only its own.
    """

    def register(
        self, holder: Holder, crews: Sequence[CrewRow], about: dict[str, Any], *, after: str | None = None
    ) -> None:
        """Records this life of the node as the present one, with the crews it serves, and deletes its health rows.

        A `scaled` count is kept if the configured count is still the one beside which it was set. `after` is the
        earlier life of a node of this name, which is dead. A store for many nodes raises StoreError if another life of
        this name is registered.
        """
        ...

    def others(self, holder: Holder) -> OtherNodes:
        """Returns what is known of the other nodes; nothing in a store for one node."""
        ...

    def stopping(self, holder: Holder) -> None:
        """Records that this node was asked to stop: if it is killed before it has stopped, its jobs are not to blame.

        A store for one node does nothing: the node records it beside the store.
        """
        ...

    def scale(self, crew: str, count: int | None, holder: Holder) -> None:
        """Keeps the worker count that a person set for this crew (None: the configured count again)."""
        ...

    def pause(self, scope: str, who: str, reason: str | None, for_ms: int | None = None) -> Pause | None:
        """Sets a pause flag: from the commit on, and for so long, claims of the scope get nothing.

        Returns the pause of the same scope that it replaces.
        """
        ...

    def clock_set_back(self, recurring: Sequence[Rescheduling]) -> int:
        """Corrects times that were computed from a clock that has been set back since: those of these recurring jobs,
        if they are still the same, of retries, and of pauses. Returns how many retries were corrected."""
        ...

    def resume(self, scope: str) -> bool:
        """Clears a pause flag. Returns whether it was set."""
        ...

    def project(
        self, notes: Sequence[HealthNote], holder: Holder, *, gone: Sequence[str] = (), complete: bool = False
    ) -> None:
        """Writes this node's health rows, and deletes those of `gone`; if `complete`, those of all other components."""
        ...

    def report(self, crashes: Sequence[CrashReport], holder: Holder) -> None:
        """Keeps crash reports. A report whose id exists is not written again."""
        ...

    def mark(self, given_up: Sequence[GivenUpMark], holder: Holder, *, cleared: Sequence[str] = ()) -> None:
        """Marks workers as given up, and clears the marks of the components in `cleared`."""
        ...

    def keep_restarts(self, notes: Sequence[RestartNote], holder: Holder) -> None:
        """Keeps the crashes and restarts of workers, beyond the life of their node and the wipe of its health rows."""
        ...

    def snapshot(self) -> None:
        """Appends the present health rows to the history."""
        ...

    # other nodes; a store for one node has none, and keeps no requests

    def ask(self, requests: Sequence[NodeRequest]) -> None:
        """Leaves requests for nodes. A `WAKE` replaces one with the same body that waits for the same node."""
        ...

    def withdraw(self, ids: Sequence[str]) -> list[NodeReply]:
        """Deletes requests. Returns what was known of them."""
        ...

    def answer(self, request: str, answer: str | None) -> None:
        """Answers a request; None deletes it, because nobody waits for the answer."""
        ...

    def lead(self, ready: Sequence[str], unready: Sequence[str], holder: Holder) -> list[str]:
        """Returns the crews, of those that this node is ready for, for which it alone calls `discover` from now on.

        A node that has a crew keeps it until it dies, leaves, or is `unready` for it.
        """
        ...


class AccessWriting(Protocol):
    """Writes about API keys, sessions, remembered answers and the operator log, inside one transaction."""

    def add_key(self, key: ApiKey) -> None:
        """Keeps a new key, and ends the sessions of the token. Raises Conflict if a key of that name is in use."""
        ...

    def revoke_key(self, name: str) -> bool:
        """Revokes a key, by its name or id, and ends its sessions. Returns False if there is no such key in use."""
        ...

    def touch_keys(self, used: Sequence[tuple[str, int]]) -> None:
        """Records when keys, by their ids, were last used."""
        ...

    def sign_in(self, session: Session) -> None:
        """Keeps a session; if its key has too many, the oldest of this key end."""
        ...

    def sign_out(self, digests: Sequence[str]) -> None:
        """Ends the sessions with these digests."""
        ...

    def log(self, deeds: Sequence[Deed]) -> None:
        """Appends to the operator log."""
        ...

    def remember(self, answer: Remembered) -> None:
        """Keeps the answer to a request, for repetitions of the request within a day."""
        ...

    def remembered(self, caller: str, key: str) -> Remembered | None:
        """Returns the answer that this caller got under this key within the last day.

        Waits for another transaction that has asked for this key before, and may be about to keep an answer.
        """
        ...


@runtime_checkable
class Transaction(Protocol):
    """One atomic change: everything commits together, or nothing does."""

    @property
    def home(self) -> str:
        """The address of the store, as its location shows it."""
        ...

    @property
    def jobs(self) -> JobWriting:
        """Writes to jobs."""
        ...

    @property
    def flows(self) -> FlowWriting:
        """Writes to flows."""
        ...

    @property
    def fleet(self) -> FleetWriting:
        """Writes about crews and workers."""
        ...

    @property
    def access(self) -> AccessWriting:
        """Writes about keys, sessions, remembered answers and the operator log."""
        ...

    @property
    def woken(self) -> frozenset[str]:
        """The queues in which jobs became ready because others ended in this transaction."""
        ...

    @property
    def ended_flows(self) -> tuple[str, ...]:
        """The ids of the flows that ended in this transaction."""
        ...

    def execute(self, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs the caller's own SQL on the caller's own tables."""
        ...


class JobReading(Protocol):
    """Reads jobs."""

    def get(self, job_id: str) -> JobRecord | None:
        """Returns one job, by its id or an alias of it."""
        ...

    def find(self, which: JobFilter) -> list[JobRecord]:
        """Returns a page of jobs, newest first."""
        ...

    def sizes(self, which: JobFilter) -> list[JobSize]:
        """Returns a page of jobs, newest first, without their texts."""
        ...

    def search(
        self, which: JobFilter, sort: Sort = Sort.NEWEST, after: SearchPlace | None = None, seconds: float = 1.0
    ) -> JobsFound:
        """Returns a page of jobs in this order; `after` is `next` of the page before.

        What an index answers is always complete. Otherwise the search ends when so many seconds are over, and says how
        far it came.
        """
        ...

    def search_sizes(self, which: JobFilter, after: SearchPlace | None = None, seconds: float = 1.0) -> SizesFound:
        """Returns a page of jobs as `search`, newest first, without their texts."""
        ...

    def tally(self, which: JobFilter, seconds: float = 1.0) -> Tally:
        """Returns how many jobs match, by state, as far as it is known within so many seconds."""
        ...

    def failures(self, which: JobFilter, most: int, seconds: float = 1.0) -> FailuresFound:
        """Returns the newest failed jobs that match, up to `most`, as far as they are found within so many seconds."""
        ...

    def named(self, ending: str, limit: int = 10) -> list[str]:
        """Returns the ids of jobs that end so, newest first."""
        ...

    def predecessors(self, which: PredecessorFilter) -> list[Predecessor]:
        """Returns a page of the jobs that a job waits for, or waited for, in order. Those that were deleted are left
        out."""
        ...

    def followers(self, job_id: str, limit: int = 100) -> list[JobRecord]:
        """Returns the jobs that wait for this one, or waited for it, oldest first."""
        ...

    def children(self, job_id: str, limit: int = 100) -> list[JobRecord]:
        """Returns the jobs that this one spawned, oldest first."""
        ...

    def related(self, job_id: str) -> Related:
        """Returns how many predecessors, followers and children a job has."""
        ...

    def attempts(self, job_id: str) -> list[Attempt]:
        """Returns the attempts of one job, by its id or an alias of it, oldest first."""
        ...

    def counts(self) -> list[Counts]:
        """Returns the counts of every queue that has jobs."""
        ...

    def cancelling(self) -> list[tuple[str, int]]:
        """Returns the ids and claim numbers of running jobs with a cancel request."""
        ...

    def claims(self, limit: int = 1000) -> list[ClaimRow]:
        """Returns the claims, oldest first."""
        ...

    def recurring(self) -> list[RecurringPlan]:
        """Returns every recurring job, by name."""
        ...

    def recurring_states(self) -> list[RecurringState]:
        """Returns what operators and nodes have added to recurring jobs, by name, also of those that are gone."""
        ...

    def runs(self, ids: Sequence[str]) -> list[JobRun]:
        """Returns how these jobs went, in no order; those that do not exist are left out."""
        ...

    def waiting(self) -> list[tuple[str, int]]:
        """Returns the queues that have due jobs, and for how many ms the job that is claimed next has been due.

        A scheduled job that has been due for longer, and that no claim has seen since, counts as that job. The cost
        grows with the number of queues, not of jobs.
        """
        ...


class FlowReading(Protocol):
    """Reads flows."""

    def get(self, flow_id: str) -> FlowRecord | None:
        """Returns one flow."""
        ...

    def find(self, which: FlowFilter) -> list[FlowRecord]:
        """Returns a page of flows, newest first."""
        ...

    def stages(self, flow_id: str) -> list[FlowStage]:
        """Returns the jobs of a flow by queue, in the order in which the queues began; none of a flow without jobs."""
        ...

    def totals(self) -> FlowTotals:
        """Returns how many flows are in each state. The cost grows with the number of flows, not of jobs."""
        ...

    def exist(self, flows: Sequence[str], jobs: Sequence[str]) -> tuple[set[str], set[str]]:
        """Returns those of these flows and jobs that exist: files of others can be removed."""
        ...


class FleetReading(Protocol):
    """Reads what is known of nodes, crews and workers. A store for one node ignores the names of nodes."""

    def crews(self, node: str | None = None, *, living: bool = False) -> list[CrewRow]:
        """Returns every crew that this node, or any node, has registered; one row for each name.

        `living`: only those of nodes that live.
        """
        ...

    def pauses(self) -> list[Pause]:
        """Returns every pause flag that is set."""
        ...

    def health(self) -> list[HealthRow]:
        """Returns every component of every node, by node and component."""
        ...

    def nodes(self) -> list[NodeRow]:
        """Returns every node that lives, and those that have disappeared without having been stopped, by name."""
        ...

    def crash(self, crash_id: str) -> CrashRecord | None:
        """Returns one crash report."""
        ...

    def crashes(self, which: CrashFilter) -> list[CrashRecord]:
        """Returns a page of crash reports, newest first."""
        ...

    def last_life(self, node: str) -> LastLife | None:
        """Returns the life of this node that was registered last; None if there was none, or if it is known to have
        ended."""
        ...

    def given_up(self, node: str | None = None) -> list[GivenUpMark]:
        """Returns every worker of this node, or of any node, that is marked as given up."""
        ...

    def restarts(self, node: str | None = None) -> list[RestartNote]:
        """Returns the crashes and restarts of every worker of this node, or of any, with ages by the store's clock.

        An age never shrinks while the clock is set back, and never falls below what it was when it was written.
        """
        ...

    def snapshots(self, since_ms: int, limit: int) -> list[Snapshot]:
        """Returns the history of health from `since_ms` on, oldest first."""
        ...

    def living(self) -> list[LivingNode]:
        """Returns the nodes that live, by name; a store for one node does not know, and returns none."""
        ...

    def requests(self, holder: Holder) -> list[NodeRequest]:
        """Returns the requests to this life of a node that are not answered and not too old, oldest first."""
        ...

    def replies(self, ids: Sequence[str]) -> list[NodeReply]:
        """Returns what is known of these requests; nothing of those that are gone."""
        ...


class AccessReading(Protocol):
    """Reads API keys, sessions and the operator log."""

    def api_keys(self) -> list[ApiKey]:
        """Returns every key, oldest first, with the revoked and expired ones."""
        ...

    def sessions(self) -> list[Session]:
        """Returns every session that has not expired."""
        ...

    def operations(self, which: OperationFilter) -> list[Operation]:
        """Returns a page of the operator log, newest first."""
        ...


class Listener(Protocol):
    """A connection that waits for notifications of what others have written. One object serves one thread."""

    def fileno(self) -> int:
        """Returns the descriptor that is readable if `receive` has something to return, or to raise."""
        ...

    def receive(self) -> set[Wakeup]:
        """Returns what was reported since the last call. Raises StoreError if the connection is lost, or must be
        replaced, because another one of this process has lost the server."""
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class Store(Protocol):
    """An open store. One object serves one thread at a time."""

    @property
    def jobs(self) -> JobReading:
        """Reads jobs."""
        ...

    @property
    def flows(self) -> FlowReading:
        """Reads flows."""
        ...

    @property
    def fleet(self) -> FleetReading:
        """Reads what is known of crews and workers."""
        ...

    @property
    def access(self) -> AccessReading:
        """Reads keys, sessions and the operator log."""
        ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begins a transaction: it commits at the end of the block, and rolls back if the block raises."""
        ...

    def within(self, given: Any) -> Enqueueing:
        """Returns what enqueues in a transaction of the caller, on a connection of the caller to the same database.

        Raises ChargehandError, which says what is accepted, if that is impossible.
        """
        ...

    def turn(
        self,
        batch: Batch,
        holder: Holder,
        monotonic: Callable[[], float] = clock.monotonic,
        waits: Callable[[Any], bool] = lambda _: True,
        *,
        finish: bool = True,
    ) -> Result:
        """Executes a node's batch in one transaction, with the reads that go with it.

        What would have to wait for the key of a job, because a transaction of others holds it, is left out, and
        named by the result. Raises StoreBusy if something else is locked; a store for many nodes has recorded then that
        the node lives.

        `monotonic` is the clock of the times in the batch. `waits` returns whether the caller behind a token still
        waits; it is called while no other process can write, and nothing is done for a caller that does not. With
        `finish=False`, the end of flows may be left to `finish`: nobody waits for it with the result.
        """
        ...

    def finish(self) -> Finished:
        """Does, in a transaction of its own, what earlier turns have left."""
        ...

    def new_life(self) -> NewLife | None:
        """Returns the life that the node has begun in a turn since the last call; None, as a rule, if it goes on.

        A store for many nodes registers a node anew if the others have taken it for dead. The next turn must be one of
        the new life.
        """
        ...

    def comparison(self) -> Comparison | None:
        """Returns what the store and the node have of the node's claims, if the last turn has compared it; None, as a
        rule. The comparison was made before the turn claimed.

        A turn compares after the connection to the store was lost, and after a claim was: a server may have been
        replaced by one that lacks the last commits.
        """
        ...

    def leave(self, holder: Holder) -> None:
        """Records that this life of the node has ended as asked: in a store for many nodes, its name is free."""
        ...

    def changed(self, *, again: bool = False) -> bool:
        """Returns whether others may have written since the last call; True when unsure.

        `again`: the next call returns the same, as if this one had not been made.
        """
        ...

    def look(self, queues: Collection[str]) -> list[str]:
        """Returns those of the queues that have jobs which are due, and perhaps those where one soon is. It only reads.

        A claim decides whether one of them can be taken: a limit or a pause may be in the way.
        """
        ...

    def now_ms(self) -> int:
        """Returns the time of the store's clock."""
        ...

    def prune(self, retention: Retention, limit: int) -> int:
        """Deletes, in its own transaction, up to `limit` finished jobs past their retention. Returns how many.

        Crash reports, history, operations, sessions and remembered answers past theirs are deleted, too; they are few
        and not counted.
        """
        ...

    @property
    def pruning(self) -> bool:
        """Whether the last `prune` stopped while it was counting: the next one continues from there."""
        ...

    def probe(self) -> None:
        """Writes, to prove that the store is writable. Raises StoreError if it is not, or if its schema is unknown."""
        ...

    @property
    def migrated(self) -> Migrated:
        """What opening this store changed in its schema."""
        ...

    def migrate(self) -> Migrated:
        """Brings the schema to the version that this code knows. Raises StoreError for a newer one."""
        ...

    def close(self) -> None:
        """Closes every connection and file."""
        ...
