"""Flows: jobs that belong together, and what the end of a job means for the jobs that wait for it.

Pure: the stores write what is decided here.
"""

from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Literal

import msgspec

from chargehand.errors import PayloadError, summary
from chargehand.model.job import NAME_LIMIT, JobRecord, NewJob, State, check, check_name, check_text
from chargehand.model.records import CancelResult, Filter, Limit

FlowState = Literal["running", "done", "failed", "cancelled"]


class NewFlow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A flow to be made, in the transaction of its first jobs. The caller creates the id."""

    id: str
    name: str
    """A text that is shown with the flow, escaped as the texts of a job are."""
    arrival: bool = False
    """Whether followers and children are ordered by their own arrival, and not by that of the flow."""
    on_end: NewJob | None = None
    """The job that is enqueued whenever the flow has ended; it is no member of it. Its id and payload are ignored:
    each gets an id of its own, and a `FlowEnd` as its payload."""


class FlowCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a flow are in each state; `following` of those queued wait for other jobs."""

    queued: int = 0
    following: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def live(self) -> int:
        """How many jobs have not ended."""
        return self.queued + self.running


class FlowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One flow as it is stored."""

    id: str
    name: str
    state: FlowState
    counts: FlowCounts
    created_ms: int
    ended_ms: int | None
    """When the flow ended; None while one of its jobs is queued or running."""
    ends: int
    """How often the flow has ended: a retry lets it go on."""
    cancel_ms: int | None
    """When the flow was cancelled; a retry clears it."""
    on_end: str | None
    """The id of the job that was enqueued because of the last end."""


class FlowStage(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a flow in one queue."""

    queue: str
    counts: FlowCounts
    begun_ms: int | None = None
    """When the first of these jobs was started; None if none was."""
    ended_ms: int | None = None
    """When the last of them ended; None while one is queued or running."""


class FlowTotals(msgspec.Struct, frozen=True, kw_only=True):
    """How many flows are in each state."""

    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0


class Related(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs a job is related to."""

    predecessors: int = 0
    """Jobs that it waits for, or waited for, with those that they spawned."""
    followers: int = 0
    children: int = 0


class FlowFilter(Filter, frozen=True, kw_only=True):
    """Which flows to list, newest first; `before` is the id of the last flow of the previous page."""

    state: FlowState | None = None
    text: str | None = None
    """Part of the id or the name; upper and lower case are the same."""
    before: str | None = None
    limit: Limit = 50


class FlowEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of the job that a flow names for its end."""

    flow: str
    name: str
    state: FlowState
    """`failed` if a job of the flow failed, or else `cancelled` if one was cancelled, or else `done`."""
    counts: FlowCounts
    reasons: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """How many jobs failed or were cancelled for each reason."""
    end: int = 1
    """The number of this end: a flow that is retried ends again."""
    created_ms: int = 0
    ended_ms: int = 0


ORDINAL_BITS = 20
"""A child has its number, followed by so many bits of 0, as its place among the children of its parent. The places
between two children belong to jobs that have the keys of others."""


def ordinal_between(before: int, nth: int) -> int:
    """Returns the place of a job that had the key of a child already. `before` is the number of the child before it, or
    else of the parent; `nth` counts such jobs of the parent, from 1."""
    return (before << ORDINAL_BITS) + min(nth, (1 << ORDINAL_BITS) - 1)


class FlowCancelled(msgspec.Struct, frozen=True):
    """The effect of cancelling a flow: how many jobs were cancelled at once, and the running ones to be notified."""

    at_once: int
    running: tuple[CancelResult, ...] = ()


class Predecessor(msgspec.Struct, frozen=True, kw_only=True):
    """A job that another one waits for, or waited for, in the order in which the other named them; children follow the
    job that spawned them."""

    id: str
    seq: int
    nr: int
    """The position of the predecessor, or of the ancestor that spawned it, in `after`."""
    ordinal: int
    """The order among predecessors with the same `nr`."""
    queue: str
    label: str | None
    state: State
    reason: str | None = None
    result: msgspec.Raw | None = None
    error: str | None = None


class JobLink(msgspec.Struct, frozen=True, kw_only=True):
    """A job as another one that is related to it names it."""

    id: str
    queue: str
    label: str | None
    state: State
    reason: str | None = None


class Relations(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that a job is related to: how many, and of each kind the first ones."""

    related: Related = Related()
    predecessors: tuple[JobLink, ...] = ()
    """The jobs that it waits for, or waited for, in the order in which it names them."""
    followers: tuple[JobLink, ...] = ()
    """The jobs that wait for it, or waited for it, oldest first."""
    children: tuple[JobLink, ...] = ()
    """The jobs that it spawned, oldest first."""


def links(jobs: Iterable[JobRecord | Predecessor]) -> tuple[JobLink, ...]:
    """Returns jobs as another one names them."""
    return tuple(
        JobLink(id=job.id, queue=job.queue, label=job.label, state=job.state, reason=job.reason) for job in jobs
    )


class PredecessorFilter(Filter, frozen=True, kw_only=True):
    """A page of the predecessors of a job, in order."""

    job: str
    queue: str | None = None
    """Only jobs of this queue."""
    after: tuple[int, int] | None = None
    """`nr` and `ordinal` of the last predecessor of the previous page."""
    limit: Limit = 100
    texts: bool = True
    """Whether results and errors are read."""


def state_of(counts: FlowCounts, *, cancelled: bool) -> FlowState:
    """Returns the state of a flow with these jobs; `cancelled`: the flow itself was cancelled."""
    if counts.live:
        return "running"
    if cancelled:
        return "cancelled"
    if counts.failed:
        return "failed"
    return "cancelled" if counts.cancelled else "done"


StageRow = tuple[str, str, bool, int, int | None, int | None]
"""Queue, state, whether they wait for other jobs, number, first start and last end of jobs of a flow."""


def stages_of(rows: Iterable[StageRow]) -> list[FlowStage]:
    """Returns the stages of a flow in the order in which they began; those that have not begun come last, by name."""
    by_queue: dict[str, list[StageRow]] = {}
    for row in rows:
        by_queue.setdefault(row[0], []).append(row)
    stages = [_stage(queue, each) for queue, each in by_queue.items()]
    return sorted(stages, key=lambda stage: (stage.begun_ms is None, stage.begun_ms or 0, stage.queue))


def _stage(queue: str, rows: list[StageRow]) -> FlowStage:
    numbers: dict[str, int] = {}
    for _, state, following, count, _, _ in rows:
        numbers[state] = numbers.get(state, 0) + count
        if following and state == State.QUEUED:
            numbers["following"] = numbers.get("following", 0) + count
    counts = FlowCounts(**numbers)
    ends = [end for *_, end in rows if end is not None]
    return FlowStage(
        queue=queue,
        counts=counts,
        begun_ms=min((begin for *_, begin, _ in rows if begin is not None), default=None),
        ended_ms=None if counts.live else max(ends, default=None),
    )


def check_flow(flow: NewFlow) -> NewFlow:
    """Returns the flow. Raises PayloadError if it cannot be stored."""
    check_name("the id of a flow", flow.id)
    check_text("the name of a flow", flow.name)
    if flow.on_end is not None:
        check(flow.on_end)
        if flow.on_end.after or flow.on_end.flow is not None or flow.on_end.key is not None:
            raise PayloadError("on_end cannot have after, flow or key: it is enqueued at the end of its flow")
    return flow


# what the end of a job means for those that wait for it


class Ended(msgspec.Struct, frozen=True):
    """A predecessor that has ended."""

    id: str
    name: str
    """Its label, or else its queue."""
    state: State
    error: str | None = None

    @property
    def well(self) -> bool:
        """Whether its followers may run because of it."""
        return self.state is State.DONE


class Freed(msgspec.Struct, frozen=True):
    """What becomes of jobs that waited for one that has ended."""

    failed: dict[int, str]
    """The jobs that fail, each with its error."""
    perhaps: list[int]
    """The jobs that wait for one job less: those that wait for none any more can be claimed."""


def free(waiting: Iterable[tuple[int, int, bool]], bad: Mapping[int, Ended]) -> Freed:
    """Decides what becomes of the followers of jobs that have ended.

    `waiting` has follower, predecessor, and whether the follower fails if the predecessor did; `bad` has the
    predecessors that did not end well.
    """
    failed: dict[int, str] = {}
    perhaps: dict[int, None] = {}
    for follower, predecessor, strict in waiting:
        ended = bad.get(predecessor)
        if ended is None or not strict:
            perhaps[follower] = None
        elif follower not in failed:
            failed[follower] = why_failed(ended)
    return Freed(failed, [follower for follower in perhaps if follower not in failed])


def fail_further(
    failed: Mapping[int, str],
    edges: Iterable[tuple[int, int, int]],
    named: Mapping[int, Ended],
    waiting: Collection[int],
) -> dict[int, str]:
    """Decides which jobs fail because these do, and because of each other, each with its error.

    `edges` have a job, the position of its predecessor, and the predecessor; `named` says who these are. Of several
    predecessors that fail, the error names one that has the shortest way to a job of `failed`.
    """
    followers: dict[int, list[tuple[int, int]]] = {}
    for job, nr, predecessor in edges:
        if job in waiting:
            followers.setdefault(predecessor, []).append((job, nr))
    errors = dict(failed)
    level = list(failed)
    while level:
        first: dict[int, tuple[int, int]] = {}
        for predecessor in level:
            for job, nr in followers.get(predecessor, ()):
                if job not in errors:
                    first[job] = min((nr, predecessor), first.get(job, (nr, predecessor)))
        for job, (_, predecessor) in first.items():
            ended = msgspec.structs.replace(named[predecessor], error=errors[predecessor])
            errors[job] = why_failed(ended)
        level = list(first)
    return {job: error for job, error in errors.items() if job not in failed}


def why_failed(ended: Ended) -> str:
    """Returns the error of a follower of a job that failed or was cancelled."""
    who = f"predecessor {ended.id} ({ended.name})"
    if ended.state is State.CANCELLED:
        return f"{who} was cancelled"
    text = summary(ended.error)
    return f"{who} failed: {text}" if text else f"{who} failed"


def why_not_found(predecessor: str) -> str:
    """Returns the error of a job with a predecessor that does not exist."""
    return f"predecessor {predecessor} does not exist: it was never enqueued in this store, or was deleted"


def why_no_flow(flow: str, *, ended: bool) -> str:
    """Returns the error of a job that names a flow which has ended, or does not exist."""
    return f"flow {flow} has ended: only its retry adds to it" if ended else f"there is no flow {flow}"


def why_in_circle(parent: str) -> str:
    """Returns the error of a child that would wait for a job which waits for the child."""
    return f"it would wait for a job that waits for the children of job {parent}: neither could ever run"


def why_not_revived(holder: str) -> str:
    """Returns the error of a follower that cannot wait again, because another job has its key."""
    return f"cannot be revived: its key is held by job {holder}"


def revivable(jobs: Collection[int], needs: Iterable[tuple[int, int]]) -> set[int]:
    """Returns those of these jobs that can be queued again.

    `needs` has a job and a predecessor of it that did not end well: the job stays as it is unless the predecessor is
    queued again, too.
    """
    needed: dict[int, list[int]] = {}
    for job, predecessor in needs:
        needed.setdefault(predecessor, []).append(job)
    found = set(jobs)
    lost = [predecessor for predecessor in needed if predecessor not in found]
    while lost:
        for job in needed.get(lost.pop(), ()):
            if job in found:
                found.discard(job)
                lost.append(job)
    return found


class BadJob(msgspec.Struct, frozen=True):
    """A job that has failed or was cancelled."""

    id: str
    queue: str
    key: str | None
    holder: str | None = None
    """The queued or running job that has its key."""


class Revival(msgspec.Struct, frozen=True):
    """What a retry means for jobs that did not end well."""

    queued: set[int]
    """The jobs that are queued again."""
    taken: dict[int, str]
    """The jobs that are not because their key is taken, each with the job that has it."""


def revival(named: Collection[int], jobs: Mapping[int, BadJob], needs: Collection[tuple[int, int]]) -> Revival:
    """Decides which of these jobs are queued again if the `named` ones are retried; the others failed because of them.

    `needs` is that of `revivable`. Of several jobs with one key that can be queued again, one is: a named one, or else
    the oldest.
    """
    taken: dict[int, str] = {}
    able = dict.fromkeys([*named, *sorted(jobs)])
    while True:
        queued = revivable([seq for seq in able if seq not in taken], needs)
        holders: dict[tuple[str, str], str] = {}
        known = len(taken)
        for seq in able:
            job = jobs[seq]
            if seq not in queued or job.key is None:
                continue
            holder = job.holder or holders.setdefault((job.queue, job.key), job.id)
            if holder != job.id:
                taken[seq] = holder
        if len(taken) == known:
            return Revival(queued, taken)


def in_order(jobs: Collection[int], waits: Iterable[tuple[int, int]]) -> list[int]:
    """Returns the jobs by number, but each after those of them that it waits for.

    `waits` has each job that one of them waits for, through others, with one that waits for it.
    """
    followers: dict[int, list[int]] = {}
    open_edges: dict[int, int] = dict.fromkeys(jobs, 0)
    for job, predecessor in waits:
        followers.setdefault(predecessor, []).append(job)
        open_edges[job] = open_edges.get(job, 0) + 1
        open_edges.setdefault(predecessor, 0)
    wanted = set(jobs)
    # A job that is not wanted, and can come now, does: others may wait for it.
    able = [(job in wanted, job) for job, number in open_edges.items() if not number]
    heapify(able)
    found: list[int] = []
    while able:
        is_wanted, job = heappop(able)
        if is_wanted:
            found.append(job)
        for follower in followers.get(job, ()):
            open_edges[follower] -= 1
            if not open_edges[follower]:
                heappush(able, (follower in wanted, follower))
    return found + sorted(wanted.difference(found))


def end_of(
    flow: str, name: str, counts: FlowCounts, reasons: dict[str, int], *, cancelled: bool, end: int, created_ms: int,
    ended_ms: int,
) -> FlowEnd:  # fmt: skip
    """Returns what the job that a flow names for its end is given."""
    return FlowEnd(
        flow=flow, name=name, state=state_of(counts, cancelled=cancelled), counts=counts, reasons=reasons, end=end,
        created_ms=created_ms, ended_ms=ended_ms,
    )  # fmt: skip


def job_of_end(on_end: NewJob, end: FlowEnd, job_id: str) -> NewJob:
    """Returns the job to enqueue because a flow has ended."""
    label = on_end.label or f"{end.name[: NAME_LIMIT - len(_ENDED)]}{_ENDED}"
    payload = msgspec.json.encode(end).decode()
    return msgspec.structs.replace(on_end, id=job_id, label=label, payload=payload, child=False)


_ENDED = " ended"


# the order of jobs


def takes_place(job: NewJob, *, arrival: bool, by_member: bool) -> bool:
    """Returns whether a job of a flow is ordered by the arrival of the flow: it follows another job, or a member of
    the flow (`by_member`) has enqueued or spawned it."""
    return not arrival and (bool(job.after) or by_member)


def share_place(highest: int | None, running: int | None, ready: int | None, seq: int) -> int:
    """Returns the place of a new job, so that jobs of different shares take turns.

    `highest` is the highest place of the live jobs of its share, `running` that of all running jobs, and `ready` the
    lowest of all ready jobs, of the same queue and priority; `seq` is the number of the new job.
    """
    now = running if running is not None else ready if ready is not None else seq
    return now if highest is None else max(now, highest + 1)
