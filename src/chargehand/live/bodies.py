"""What readers are shown of nodes, workers, jobs, flows, queues and the whole: a struct each, a constructor per source.

The same structs are used by the events of a node, by the view of the store while no node answers, and by HTTP. This
module describes; it reads nothing, keeps nothing and decides nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol

import msgspec

from chargehand.model.concurrent import SlotHand
from chargehand.model.error_line import with_cause
from chargehand.model.figures import Share, eta, rounded
from chargehand.model.fleet.cards import WorkerGpu
from chargehand.model.fleet.place import Place
from chargehand.model.fleet.policy import RestartPolicy, budget
from chargehand.model.flows import FlowCounts, FlowRecord, FlowState
from chargehand.model.health import Findings, Verdict, will_work
from chargehand.model.held import Held
from chargehand.model.hiding import without
from chargehand.model.job import Claim, JobRecord, NewJob, Settlement, State, cut, same_count
from chargehand.model.records import Counts, HealthNote
from chargehand.model.spread import quantile
from chargehand.model.status import NodeWorker, Progress, RestartBudget, WorkerFields
from chargehand.processes import proc
from chargehand.processes.child import Child
from chargehand.protocol.worker import HealthFrame, ProgressFrame

RESULT_SHOWN = 2048
"""Bytes of a result in an event; a longer result is left out."""
ERROR_SHOWN = 2000
"""Characters of an error in an event; of a longer one the beginning and the end are kept."""
DETAIL_SHOWN = 300
"""Characters of a progress text in an event."""
JOBS_SHOWN = 100
"""Names of jobs in an event or a status, of a worker that performs several at the same time."""
MEMORY_STEP = 1 << 20
"""Bytes to which memory is rounded, at least: otherwise every page that a process allocates would be an event."""


# workers


class WorkerProcess(Protocol):
    """The attributes of a live worker process that readers are shown."""

    @property
    def child(self) -> Child: ...
    @property
    def health(self) -> HealthFrame | None: ...


class WorkerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Names a worker that was removed."""

    component: str
    crew: str
    index: int | None
    node: str


class WorkerBody(WorkerFields, frozen=True, kw_only=True):
    """A worker in an event. Moments instead of durations: the body changes only when the worker does."""

    node: str
    job_since_ms: int | None = None
    restart_at_ms: int | None = None
    started_ms: int | None = None

    @property
    def identity(self) -> WorkerIdentity:
        """The fields that name the worker."""
        return WorkerIdentity(component=self.component, crew=self.crew, index=self.index, node=self.node)


def node_worker(
    place: Place, process: WorkerProcess | None, held: Held | None, policy: RestartPolicy, now: float
) -> NodeWorker:
    """Returns a worker for the status of its node."""
    health = process.health if process else None
    return NodeWorker(
        **_fields(place, process, held, policy, now),
        progress=_progress(health.progress) if health and held and health.progress else None,
        memory=health.memory if health else None,
        gpus=place.gpus,
        incarnation=process.child.mark if process else None,
        job_s=round(now - held.since, 3) if held else None,
        heartbeat_s=round(now - place.framed_at, 3) if place.alive and place.framed else None,
        started_s=round(now - place.started_at, 3) if place.alive else None,
        ready_s=None if place.ready_at is None else round(now - place.ready_at, 3),
        restart_in_s=None if place.start_at is None else max(0.0, round(place.start_at - now, 3)),
    )


def worker_body(
    place: Place, process: WorkerProcess | None, held: Held | None, policy: RestartPolicy, now: float, *,
    node: str, wall: float,
) -> WorkerBody:  # fmt: skip
    """Returns a worker for an event. `wall`: the milliseconds between the monotonic clock and the wall clock."""
    health = process.health if process else None
    return WorkerBody(
        **_fields(place, process, held, policy, now),
        progress=short_progress(health.progress) if health and held and health.progress else None,
        memory=rounded_memory(health.memory if health else None),
        gpus=tuple(_rounded_gpu(gpu) for gpu in place.gpus),
        node=node,
        job_since_ms=None if held is None else int(wall + held.since * 1000),
        restart_at_ms=None if place.start_at is None else int(wall + place.start_at * 1000),
        started_ms=int(wall + place.started_at * 1000) if place.alive else None,
    )


def _fields(
    place: Place, process: WorkerProcess | None, held: Held | None, policy: RestartPolicy, now: float
) -> dict[str, Any]:
    """Returns what is the same in the status of a node and in an event."""
    cause = place.cause
    left = budget(policy, place.history, place.ready_at, now)
    return {
        "component": place.component,
        "crew": place.crew,
        "index": place.index,
        "status": place.status.value,
        "flags": place.flags,
        "reason": _reason(place),
        "text": None if place.ready_at is not None else place.text,
        "cause": cause and cause.line,
        "cause_code": cause and cause.code,
        "shortage": place.shortage,
        "pid": _live_pid(process),
        "current_job": job_name(held, place.crew),
        "batch_jobs": _all_jobs(held, place.crew),
        "in_hand": _count(held),
        "concurrency": place.concurrency,
        "jobs": place.jobs,
        "restart_count": place.history.restarts,
        "restarts_total": place.restarts_total,
        "budget": RestartBudget(left.rapid_left, left.lifetime_left),
        "exit_code": place.exit_code,
        "signal": place.signal,
    }


def health_note(place: Place, process: WorkerProcess | None, held: Held | None, now: float) -> HealthNote:
    """Returns a worker for its health row in the store."""
    health = process.health if process else None
    telemetry = {
        "memory": health.memory if health else None,
        "done": health.done if health else 0,
        "errors": health.errors if health else 0,
        "text": place.text,
        "crew": place.crew,
        "will_work": will_work(place),
        "restarts_total": place.restarts_total,
        "progress": short_progress(health.progress) if health and held and health.progress else None,
    }
    if (cause := place.cause) is not None:
        telemetry |= {"cause": cause.line, "cause_code": cause.code}
    if place.concurrency > 1:
        telemetry |= {"concurrency": place.concurrency, "in_hand": _count(held)}
    return HealthNote(
        component=place.component,
        status=place.status.value,
        flags=place.flags,
        reason=_reason(place),
        pid=process.child.pid if process else None,
        pid_start=process.child.start if process else None,
        incarnation=process.child.mark if process else None,
        current_job=job_name(held, place.crew),
        heartbeat_age_ms=_age_ms(now, place.framed_at) if place.alive and place.framed else None,
        restart_count=place.history.restarts,
        restart_age_ms=None if place.restarted_at is None else _age_ms(now, place.restarted_at),
        exit_code=place.exit_code,
        signal=place.signal,
        metadata=msgspec.json.encode(telemetry).decode(),
    )


def job_name(held: Held | None, crew: str) -> str | None:
    """Returns the name of the current job (of a batch the first): its id, or `crew/item` for an item."""
    return None if held is None else _name(held.claim, crew)


def _count(held: Held | None) -> int:
    """Returns how many jobs a worker has begun."""
    return 1 + len(held.others or ()) if held else 0


def _all_jobs(held: Held | None, crew: str) -> tuple[str, ...]:
    """Returns the names of the jobs that a worker has, if there are several; at most JOBS_SHOWN unless a batch."""
    if held is None or not held.others:
        return ()
    most = JOBS_SHOWN if isinstance(held, SlotHand) else None
    return tuple(_name(claim, crew) for claim in islice(held.claims.values(), most))


def _name(claim: Claim, crew: str) -> str:
    return claim.id if claim.item is None else f"{crew}/{claim.item}"


def _reason(place: Place) -> str | None:
    return None if place.reason is None or place.ready_at is not None else place.reason.value


def _live_pid(process: WorkerProcess | None) -> int | None:
    """Returns the pid only while that very process lives."""
    return process.child.pid if process and proc.alive(process.child.pid, process.child.start) else None


def _age_ms(now: float, then: float) -> int:
    return max(0, int((now - then) * 1000))


def rounded_memory(memory: int | None) -> int | None:
    """Returns the memory rounded down to steps of a few per cent."""
    if not memory:
        return memory
    step = max(MEMORY_STEP, 1 << max(0, memory.bit_length() - 6))
    return memory // step * step


def _rounded_gpu(gpu: WorkerGpu) -> WorkerGpu:
    used, own = rounded_memory(gpu.memory_used), rounded_memory(gpu.worker_memory)
    return msgspec.structs.replace(gpu, memory_used=used, worker_memory=own)


def _progress(progress: ProgressFrame) -> Progress:
    return Progress(done=progress.done, total=progress.total, stage=progress.stage, detail=progress.detail)


def short_progress(progress: ProgressFrame | Progress) -> Progress:
    """Returns the progress with its texts cut to what an event may carry."""
    stage, detail = progress.stage, progress.detail
    return Progress(
        done=progress.done,
        total=progress.total,
        stage=None if stage is None else stage[:DETAIL_SHOWN],
        detail=None if detail is None else detail[:DETAIL_SHOWN],
    )


# nodes


class NodeIdentity(msgspec.Struct, frozen=True):
    """Names a node that was stopped."""

    name: str


class NodeCrewBody(msgspec.Struct, frozen=True, kw_only=True):
    """A crew of a node, and its number of workers there."""

    crew: str
    queue: str
    configured: int
    live: int = 0
    """Workers that have a process."""
    busy: int = 0
    """Workers that run a job."""


class NodeBody(msgspec.Struct, frozen=True, kw_only=True):
    """A node: one of those that share the store."""

    name: str
    status: str
    """`healthy`, `degraded` (see `reason`), `starting`, `unknown` if its heartbeat is old, or `gone`."""
    reason: str | None = None
    drain: str | None = None
    """`draining` or `drained`, from the order to drain the node until workers are started again; null otherwise."""
    machine: str | None = None
    version: str | None = None
    pid: int | None = None
    started_ms: int | None = None
    last_beat_ms: int | None = None
    """When the node wrote its health last, by the store's clock."""
    beat_age_ms: int | None = None
    """How old that was when it was read, by the same clock."""
    crews: tuple[NodeCrewBody, ...] = ()

    @property
    def identity(self) -> NodeIdentity:
        """The field that names the node."""
        return NodeIdentity(self.name)


# jobs


class JobIdentity(msgspec.Struct, frozen=True):
    """Names a job that does not exist, or no longer."""

    id: str


class JobBody(msgspec.Struct, frozen=True, kw_only=True):
    """A job in an event."""

    id: str
    queue: str
    label: str | None = None
    item: str | None = None
    state: State
    reason: str | None = None
    failures: int = 0
    attempts: int = 0
    """Deprecated: the same as `failures`."""
    crashes: int = 0
    worker: str | None = None
    node: str | None = None
    """The node of the worker."""
    progress: Progress | None = None
    error: str | None = None
    cause: str | None = None
    """The error in one line."""
    cause_code: str | None = None
    result: Any = None
    tags: tuple[str, ...] = ()
    flow: str | None = None
    """The id of the flow that the job belongs to."""
    waits_for: int = 0
    """How many other jobs a queued job waits for."""
    meta: dict[str, Any] | None = None
    """The object that was given with the job."""
    cut: tuple[str, ...] = ()
    """The fields of `error` and `result` that were too long, and are cut or left out."""

    def __post_init__(self) -> None:
        same_count(self)
        with_cause(self)

    @classmethod
    def of_record(cls, job: JobRecord) -> "JobBody":
        """Returns a job as it was read from the store."""
        error, result, cut = _shown(job.error, None if job.result is None else bytes(job.result).decode())
        return cls(
            id=job.id, queue=job.queue, label=job.label, item=job.item, state=job.state, reason=job.reason,
            failures=job.failures, crashes=job.crashes, worker=job.worker if job.state is State.RUNNING else None,
            node=job.node if job.state is State.RUNNING else None,
            progress=None if job.progress is None else short_progress(msgspec.json.decode(job.progress, type=Progress)),
            error=error, result=result, tags=job.tags or (), flow=job.flow, waits_for=job.waits_for or 0,
            meta=job.meta, cut=cut,
        )  # fmt: skip

    @classmethod
    def of_new(cls, job: NewJob) -> "JobBody":
        """Returns a job that was just enqueued."""
        return cls(
            id=job.id, queue=job.queue, label=job.label, state=State.QUEUED, tags=job.tags, flow=job.flow, meta=job.meta
        )

    @classmethod
    def of_claim(
        cls, claim: Claim, worker: str, progress: ProgressFrame | None = None, *, node: str | None = None
    ) -> "JobBody":
        """Returns a job that a worker of this node is running."""
        return cls(
            id=claim.id, queue=claim.queue, label=claim.label, item=claim.item, state=State.RUNNING,
            failures=claim.failures, crashes=claim.crashes, worker=worker, node=node,
            progress=None if progress is None else short_progress(progress), tags=claim.tags or (), flow=claim.flow,
            meta=None if claim.meta is None else msgspec.json.decode(claim.meta),
        )  # fmt: skip

    def hiding(self, names: frozenset[str] | None) -> "JobBody":
        """Returns this job without the values of these fields."""
        if names is None or (self.result is None and self.meta is None):
            return self
        return msgspec.structs.replace(self, result=without(self.result, names), meta=without(self.meta, names))

    def settled(self, settlement: Settlement) -> "JobBody":
        """Returns this job after its last attempt has ended."""
        error, result, cut = _shown(settlement.error, settlement.result)
        return JobBody(
            id=self.id, queue=settlement.queue, label=self.label, item=self.item, state=settlement.state,
            reason=settlement.reason, failures=self.failures + settlement.failures,
            crashes=self.crashes + settlement.crashes, progress=self.progress, error=error, result=result,
            tags=self.tags, flow=self.flow, meta=self.meta, cut=cut,
        )  # fmt: skip


def _shown(error: str | None, result: str | None) -> tuple[str | None, Any, tuple[str, ...]]:
    """Returns the error and the decoded result as far as an event may carry them, and the names of what was cut."""
    too_long: list[str] = []
    if error is not None and len(error) > ERROR_SHOWN:
        too_long.append("error")
        error = cut(error, ERROR_SHOWN)
    shown: Any = None
    if result is not None and len(result) <= RESULT_SHOWN:
        with suppress(ValueError, RecursionError):  # a version without limits of values may have stored it
            shown, result = msgspec.json.decode(result), None
    if result is not None:
        too_long.append("result")
    return error, shown, tuple(too_long)


# flows


class FlowIdentity(msgspec.Struct, frozen=True):
    """Names a flow that does not exist, or no longer."""

    id: str


class FlowBody(msgspec.Struct, frozen=True, kw_only=True):
    """A flow in an event."""

    id: str
    name: str
    state: FlowState
    counts: FlowCounts
    created_ms: int
    ended_ms: int | None = None
    """When the flow ended; null while one of its jobs is queued or running."""
    ends: int = 0
    """How often the flow has ended."""

    @classmethod
    def of(cls, flow: FlowRecord) -> "FlowBody":
        """Returns a flow as it was read from the store."""
        return cls(
            id=flow.id, name=flow.name, state=flow.state, counts=flow.counts, created_ms=flow.created_ms,
            ended_ms=flow.ended_ms, ends=flow.ends,
        )  # fmt: skip


# queues


class QueueIdentity(msgspec.Struct, frozen=True):
    """Names a queue that was removed."""

    name: str | None


class QueueBody(msgspec.Struct, frozen=True, kw_only=True):
    """A queue in an event; all queues together if `name` is null."""

    name: str | None
    queued: int = 0
    future: int = 0
    """Queued jobs that are not due yet."""
    following: int = 0
    """Queued jobs that wait for other jobs."""
    limited: int = 0
    """Queued jobs that wait for a slot of their limit key, or for its rate."""
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    rate: float = 0.0
    """Jobs that ended per second, over the last minute."""
    mean_duration_s: float | None = None
    eta_s: float | None = None
    """Seconds until all due jobs are done at the present rate; null if nothing is being done, or if jobs wait for the
    rate of their queue."""
    wait_p50_s: float | None = None
    """How long half of the jobs that were started in the last five minutes had been due, at most; null if none was, and
    of all queues together."""
    wait_p95_s: float | None = None
    """The same of 95 %."""
    run_p50_s: float | None = None
    """How long half of the attempts that ended in the last five minutes took, at most."""
    run_p95_s: float | None = None
    """The same of 95 %."""
    oldest_wait_s: float | None = None
    """How long the job that is taken next has been due; null if none is."""
    last_done_ms: int | None = None
    rate_next_ms: int | None = None
    """When a rate admits the next job, by the store's clock; null if no job waits for a rate."""

    @classmethod
    def of(cls, count: Counts, wait_ms: int | None, share: Share) -> "QueueBody":
        """Returns one queue from its counts in the store and its throughput in all nodes."""
        paced = count.rate_next_ms is not None  # then the jobs that ended lately say nothing about those that wait
        return cls(
            name=count.queue, queued=count.queued, future=count.future, following=count.following,
            limited=count.limited, running=count.running, done=count.done, failed=count.failed,
            cancelled=count.cancelled,
            rate=rounded(share.rate) or 0.0,
            mean_duration_s=rounded(share.mean),
            wait_p50_s=rounded(quantile(share.waits, 0.5)), wait_p95_s=rounded(quantile(share.waits, 0.95)),
            run_p50_s=rounded(quantile(share.runs, 0.5)), run_p95_s=rounded(quantile(share.runs, 0.95)),
            eta_s=None if paced else rounded(eta(count.queued - count.future - count.following, share.rate)),
            oldest_wait_s=None if wait_ms is None else wait_ms / 1000,
            last_done_ms=count.last_done_ms, rate_next_ms=count.rate_next_ms,
        )  # fmt: skip

    @classmethod
    def total(cls, queues: Sequence["QueueBody"]) -> "QueueBody":
        """Returns all queues as one: sums, the mean weighted by rate, and the longest of the remaining times."""
        moving = [(queue.rate, queue.mean_duration_s) for queue in queues if queue.mean_duration_s is not None]
        share = sum(rate for rate, _ in moving)
        etas = [queue.eta_s for queue in queues if queue.eta_s is not None]
        return cls(
            name=None,
            queued=sum(queue.queued for queue in queues),
            future=sum(queue.future for queue in queues),
            following=sum(queue.following for queue in queues),
            limited=sum(queue.limited for queue in queues),
            running=sum(queue.running for queue in queues),
            done=sum(queue.done for queue in queues),
            failed=sum(queue.failed for queue in queues),
            cancelled=sum(queue.cancelled for queue in queues),
            rate=rounded(sum(queue.rate for queue in queues)) or 0.0,
            mean_duration_s=rounded(sum(rate * mean for rate, mean in moving) / share) if share else None,
            eta_s=max(etas, default=0.0) if len(etas) == len(queues) else None,
            oldest_wait_s=max((q.oldest_wait_s for q in queues if q.oldest_wait_s is not None), default=None),
            last_done_ms=max((q.last_done_ms for q in queues if q.last_done_ms is not None), default=None),
            rate_next_ms=min((q.rate_next_ms for q in queues if q.rate_next_ms is not None), default=None),
        )

    @property
    def identity(self) -> QueueIdentity:
        """The field that names the queue."""
        return QueueIdentity(self.name)


def queue_bodies(
    counts: Sequence[Counts],
    waiting: Iterable[tuple[str, int]],
    served: Iterable[str],
    throughput: Mapping[str, Share],
) -> list[QueueBody]:
    """Returns every queue that has jobs or a crew, by name, and all queues together as the last element."""
    by_name = {count.queue: count for count in counts}
    waits = dict(waiting)
    names = sorted({*by_name, *served})
    each = [
        QueueBody.of(by_name.get(name) or Counts(queue=name), waits.get(name), throughput.get(name, Share()))
        for name in names
    ]
    return [*each, QueueBody.total(each)]


# the whole


class HealthBody(msgspec.Struct, frozen=True):
    """The verdict on the whole system in an event."""

    status: Verdict
    errors: tuple[str, ...] = ()
    """The reasons in words, most severe first."""

    @classmethod
    def of(cls, found: Findings) -> "HealthBody":
        """Returns a verdict as it is shown in an event."""
        return cls(found.status, found.reasons)


Body = NodeBody | WorkerBody | JobBody | FlowBody | QueueBody | HealthBody
Identity = NodeIdentity | WorkerIdentity | JobIdentity | FlowIdentity | QueueIdentity
