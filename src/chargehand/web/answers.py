"""The bodies of HTTP responses as structs: the server encodes them, the client decodes them."""

import base64
from typing import Literal

import msgspec

from chargehand.live.bodies import (
    FlowBody,
    FlowIdentity,
    HealthBody,
    JobBody,
    JobIdentity,
    NodeBody,
    NodeIdentity,
    QueueBody,
    QueueIdentity,
    WorkerBody,
    WorkerIdentity,
)
from chargehand.live.components import Component
from chargehand.model.access import Operation
from chargehand.model.doctor.diagnosis import Diagnosis
from chargehand.model.fleet.cards import WorkerGpu
from chargehand.model.fleet.orders import Answer
from chargehand.model.flows import FlowRecord, FlowStage, JobLink, Related
from chargehand.model.health import Verdict
from chargehand.model.job import Attempt, JobRecord
from chargehand.model.records import (
    ClaimRow,
    Counts,
    CrashRecord,
    CrewRow,
    Pause,
    Recurrence,
    Snapshot,
)
from chargehand.model.status import NodeStatus, Progress, RestartBudget
from chargehand.settings.plan import Page


class SupervisorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The node beside this process."""

    node: str | None
    pid: int | None
    version: str | None
    started_ms: int | None
    answers: bool
    """False if a node holds the store but does not answer."""
    stopping: str | None = None


class CrewInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A crew: its queue, and its number of workers in all nodes."""

    crew: str
    queue: str
    configured: int
    live: int


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """The versions, the node, the crews and the queues."""

    version: str
    node: str
    supervisor: SupervisorInfo | None
    """Null if no node runs beside this process; in a store for one node, no jobs are performed then."""
    worker_enabled: bool
    """False while all workers are paused."""
    embed_workers: bool = True
    """Whether this API starts the node and its workers itself (EMBED_WORKERS)."""
    workers: tuple[CrewInfo, ...]
    queues: tuple[str, ...]
    pages: tuple[Page, ...] = ()
    """Pages of the application that the dashboard links to."""


class WorkerStatus(Component, frozen=True, kw_only=True):
    """A worker: its health row and, if its node answers, its current status in the node."""

    index: int | None = None
    progress: Progress | None = None
    memory: int | None = None
    gpus: tuple[WorkerGpu, ...] = ()
    """The GPUs that the node assigned to the worker."""
    in_hand: int = 0
    """How many jobs the worker has."""
    concurrency: int = 1
    """How many jobs the worker can perform at the same time."""
    batch_jobs: tuple[str, ...] = ()
    """The jobs that the worker has, if there are several; of more than 100 at the same time the first 100."""
    jobs: int | None = None
    budget: RestartBudget | None = None
    restart_in_s: float | None = None


class WorkerMoment(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a worker's status, or the end of a job."""

    at_ms: int
    kind: str
    """`status` or `job`."""
    what: str
    """The status, or how the job ended."""
    text: str | None = None
    """The reason for a status."""
    pid: int | None = None
    """The process id at a change of status."""
    job: str | None = None
    """The id of a job."""
    duration_ms: int | None = None
    """The duration of a job."""


class WorkerHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The recent history of a worker, since its node started."""

    component: str
    node: str | None = None
    """Null if no node answers: then the history is empty."""
    at_ms: int
    """The time of the response."""
    moments: tuple[WorkerMoment, ...] = ()
    """The last 20 statuses and 40 jobs, newest first; some of the jobs that end at the same time are left out."""
    memory_at_ms: tuple[int, ...] = ()
    """The times of the memory measurements in the last hour, at most one a minute, oldest first."""
    memory: tuple[int, ...] = ()


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on the system with its reasons, most severe first, and every component."""

    status: Verdict
    reasons: tuple[str, ...]
    components: tuple[Component, ...]


class HistoryPage(msgspec.Struct, frozen=True):
    """A page of the snapshots of health, oldest first; empty if the history is switched off."""

    snapshots: tuple[Snapshot, ...]
    next: str | None = None


class ComponentHealth(Component, frozen=True, kw_only=True):
    """One component, and whether its last heartbeat is recent enough."""

    well: bool


class Answers(msgspec.Struct, frozen=True):
    """The effect of an order on each worker."""

    answers: tuple[Answer, ...]


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was enqueued."""

    id: str
    queue: str
    created: bool
    """False if the unique key was taken: then this is the existing job."""
    replaced: bool = False
    """Whether the payload replaced that of the existing job."""


class MadeMany(msgspec.Struct, frozen=True):
    """The jobs that were enqueued, in the order of the request."""

    jobs: tuple[Made, ...]


class JobPage(msgspec.Struct, frozen=True):
    """A page of jobs in the order of `sort`."""

    jobs: tuple[JobRecord, ...]
    next: str | None = None
    """The value of `after` for the next page; null on the last page."""
    searched_ms: int | None = None
    """null: all jobs were searched. Otherwise the time of the search was over: only jobs created since then were
    (with the sort `oldest`: until then), and the next page goes on there."""


class BulkChanged(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an operation on many jobs."""

    count: int
    refused: int = 0
    """How many jobs stayed as they are: their unique key is taken, or their state has changed."""
    next: str | None = None
    """The value of `after` for the request that goes on; null: all jobs that match were changed."""
    searched_ms: int | None = None
    """Only with `dry_run`: null if all jobs were counted; otherwise only those created since then were."""


class JobDetail(JobRecord, frozen=True, kw_only=True):
    """One job with its history, and the jobs that it is related to."""

    own_frames: tuple[str, ...] = ()
    """The frames of the application in the error's traceback or stacks: file, line, function and source line."""
    attempt_history: tuple[Attempt, ...]
    crash_reports: tuple[CrashRecord, ...]
    """The crashes of workers that were running the job."""
    related: Related = Related()
    """How many jobs it is related to; of each kind the first 100 follow."""
    predecessors: tuple[JobLink, ...] = ()
    """The jobs that it waits for, or waited for, in the order in which it names them."""
    followers: tuple[JobLink, ...] = ()
    """The jobs that wait for it, or waited for it, oldest first."""
    children: tuple[JobLink, ...] = ()
    """The jobs that it spawned, oldest first."""


class FlowMade(msgspec.Struct, frozen=True, kw_only=True):
    """A flow that was created, and its first jobs in the order of the request."""

    id: str
    name: str
    jobs: tuple[Made, ...]


class FlowPage(msgspec.Struct, frozen=True):
    """A page of flows, newest first."""

    flows: tuple[FlowRecord, ...]
    next: str | None = None
    """The value of `after` for the next page; null on the last page."""


class FlowDetail(FlowRecord, frozen=True, kw_only=True):
    """One flow with its jobs by queue."""

    stages: tuple[FlowStage, ...]
    """In the order in which they began."""


class Queue(Counts, frozen=True, kw_only=True):
    """A queue: the number of jobs by state, its crews, and why no worker takes its jobs, if so."""

    crews: tuple[str, ...] = ()
    paused: bool = False
    oldest_wait_ms: int | None = None
    """How long the next job has been due; null if none is due."""
    rate: float = 0.0
    """Jobs that ended per second, over the last minute, in all nodes; a few seconds old, like the next six."""
    mean_duration_s: float | None = None
    """The mean duration of the jobs that ended in the last minute; null if none has."""
    eta_s: float | None = None
    """Seconds until all due jobs are done at that rate; null if there is no estimate."""
    wait_p50_s: float | None = None
    """How long half of the jobs that were started in the last five minutes had been due, at most."""
    wait_p95_s: float | None = None
    run_p50_s: float | None = None
    """How long half of the attempts that ended in the last five minutes took, at most."""
    run_p95_s: float | None = None
    unserved: str | None = None
    """Why no worker takes the waiting jobs; null if one does."""


class Queues(msgspec.Struct, frozen=True):
    """Every queue."""

    queues: tuple[Queue, ...]


class QueueHistory(msgspec.Struct, frozen=True):
    """The history of a queue: one list per figure, and their times, oldest first."""

    name: str
    at_ms: tuple[int, ...]
    """The times at which a figure changed, at most one every ten seconds; the first may be older than two hours."""
    waiting: tuple[int, ...]
    running: tuple[int, ...]
    failed: tuple[int, ...]
    rate: tuple[float, ...]
    """Ended jobs per second."""
    wait_p50_s: tuple[float | None, ...] = ()
    wait_p95_s: tuple[float | None, ...] = ()
    run_p50_s: tuple[float | None, ...] = ()
    run_p95_s: tuple[float | None, ...] = ()
    oldest_wait_s: tuple[float | None, ...] = ()
    """How long the next job had been due; null if none was."""


class QueueHistories(msgspec.Struct, frozen=True):
    """The history of every queue over the last two hours, since the node started."""

    queues: tuple[QueueHistory, ...]


class Changed(msgspec.Struct, frozen=True):
    """The number of changed jobs, and whether there may be more; then repeat the request."""

    count: int
    more: bool


class Claims(msgspec.Struct, frozen=True):
    """A page of claims, oldest first."""

    claims: tuple[ClaimRow, ...]
    next: str | None = None


class CrashPage(msgspec.Struct, frozen=True):
    """A page of crash reports, newest first."""

    crashes: tuple[CrashRecord, ...]
    next: str | None = None


class CrashDetail(CrashRecord, frozen=True, kw_only=True):
    """One crash report."""

    own_frames: tuple[str, ...] = ()
    """The frames of the application in the traceback or the stacks: file, line, function and source line."""


class OperationPage(msgspec.Struct, frozen=True):
    """A page of the operator log, newest first."""

    operations: tuple[Operation, ...]
    next: str | None = None


class Pauses(msgspec.Struct, frozen=True):
    """The current pauses, with the caller, the reason and the end of each."""

    pauses: tuple[Pause, ...]


class Crews(msgspec.Struct, frozen=True):
    """Every crew that a node has registered."""

    crews: tuple[CrewRow, ...]


class Recurring(msgspec.Struct, frozen=True):
    """Every recurring job."""

    recurring: tuple[Recurrence, ...]


class Nodes(msgspec.Struct, frozen=True):
    """Every node that shares the store, by name; also those that are gone."""

    nodes: tuple[NodeBody, ...]


class NodeAnswer(msgspec.Struct, frozen=True):
    """The status of the node beside this process; null if none answers. `nodes` lists all."""

    node: NodeStatus | None


class Diagnosed(Diagnosis, frozen=True, kw_only=True):
    """A diagnosis: the causes that were found, each with its remedy."""

    well: bool  # pyright: ignore[reportIncompatibleMethodOverride]


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the node's log; `component` names the worker that wrote it."""

    at_ms: int
    level: str
    text: str
    component: str | None = None
    job: str | None = None


class LogLines(msgspec.Struct, frozen=True):
    """The last lines, oldest first."""

    lines: tuple[LogLine, ...]


class Probe(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a probe."""

    status: str
    reason: str | None = None
    code: str | None = None
    """The cause, one of those of `chargehand doctor`."""


class CrewReadiness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a crew takes jobs, and if not, why."""

    crew: str
    queue: str
    ready: bool
    reason: str | None = None


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether jobs are performed: a node runs, and every crew takes jobs."""

    ready: bool
    reasons: tuple[str, ...]
    crews: tuple[CrewReadiness, ...]


class WorkerThreads(msgspec.Struct, frozen=True, kw_only=True):
    """The number of threads of a worker process, as the kernel reports it; null if the process does not exist."""

    component: str
    pid: int | None
    busy: bool
    threads: int | None


class CrewConcurrency(msgspec.Struct, frozen=True, kw_only=True):
    """The configured and the current number of workers and threads of a crew."""

    crew: str
    configured: int
    live: int
    busy: int
    threads_configured: int | None
    """Threads per job (PIPELINE_THREADS_PER_JOB); null if this process does not have the crew's settings."""
    workers: tuple[WorkerThreads, ...]


class Concurrency(msgspec.Struct, frozen=True):
    """The concurrency of every crew."""

    crews: tuple[CrewConcurrency, ...]


class SignedIn(msgspec.Struct, frozen=True, kw_only=True):
    """The caller and its scopes."""

    name: str
    kind: str
    scopes: tuple[str, ...]
    csrf: str | None = None
    """The token that requests with a session cookie must send as X-CSRF-Token to change something."""
    expires_ms: int | None = None


class KeyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An API key without its secret, which nobody keeps."""

    id: str
    name: str
    scopes: tuple[str, ...]
    state: Literal["in use", "expired", "revoked"]
    created_ms: int
    expires_ms: int | None = None
    used_ms: int | None = None
    """When it was last used, to the minute."""
    revoked_ms: int | None = None


class ApiKeys(msgspec.Struct, frozen=True):
    """Every API key, oldest first, including revoked and expired ones."""

    keys: tuple[KeyFacts, ...]


class MadeKey(KeyFacts, frozen=True, kw_only=True):
    """A new API key."""

    key: str
    """The key itself. It is shown only here: the store keeps its digest."""


# the data of server-sent events


class LiveEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of every event."""

    topic: str
    timestamp_ms: int


class NodeUpdate(LiveEvent, frozen=True, kw_only=True):
    """The current state of a node, where several share the store."""

    type: Literal["node_update"]
    node: NodeBody


class NodeRemoval(LiveEvent, frozen=True, kw_only=True):
    """A node that was stopped."""

    type: Literal["node_update"]
    removed: bool
    node: NodeIdentity


class WorkerUpdate(LiveEvent, frozen=True, kw_only=True):
    """The current state of a worker."""

    type: Literal["worker_update"]
    worker: WorkerBody


class WorkerRemoval(LiveEvent, frozen=True, kw_only=True):
    """A worker that no longer exists."""

    type: Literal["worker_update"]
    removed: bool
    worker: WorkerIdentity


class QueueUpdate(LiveEvent, frozen=True, kw_only=True):
    """The current state of a queue."""

    type: Literal["queue_update"]
    queue: QueueBody


class QueueRemoval(LiveEvent, frozen=True, kw_only=True):
    """A queue that no longer has jobs or a crew."""

    type: Literal["queue_update"]
    removed: bool
    queue: QueueIdentity


class JobUpdate(LiveEvent, frozen=True, kw_only=True):
    """The current state of a job."""

    type: Literal["job_update"]
    job: JobBody


class JobRemoval(LiveEvent, frozen=True, kw_only=True):
    """A job that does not exist or no longer exists."""

    type: Literal["job_update"]
    removed: bool
    job: JobIdentity


class FlowUpdate(LiveEvent, frozen=True, kw_only=True):
    """The current state of a flow."""

    type: Literal["flow_update"]
    flow: FlowBody


class FlowRemoval(LiveEvent, frozen=True, kw_only=True):
    """A flow that does not exist or no longer exists."""

    type: Literal["flow_update"]
    removed: bool
    flow: FlowIdentity


class HealthUpdate(LiveEvent, frozen=True, kw_only=True):
    """The current verdict on the whole system."""

    type: Literal["health_update"]
    health: HealthBody


class Resync(LiveEvent, frozen=True, kw_only=True):
    """All state sent before is invalid; the full state follows."""

    type: Literal["resync"]
    reason: str


EVENTS = (
    NodeUpdate, NodeRemoval, WorkerUpdate, WorkerRemoval, QueueUpdate, QueueRemoval, JobUpdate, JobRemoval,
    FlowUpdate, FlowRemoval, HealthUpdate, Resync,
)  # fmt: skip


# pages


def cursor(*where: int | str) -> str:
    """Returns an opaque cursor for the end of a page."""
    return base64.urlsafe_b64encode(msgspec.json.encode(where)).decode().rstrip("=")


def place(after: str) -> list[int | str]:
    """Returns the content of a cursor; an empty list if it is malformed."""
    try:
        data = base64.b64decode(after + "=" * (-len(after) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=list[int | str])
    except (ValueError, msgspec.DecodeError):
        return []
