"""The answer of a node to `STATUS`: the node, its workers, its counters and its verdict, as plain typed data. Pure.

Every field that a node of an earlier version may not send has a default, and fields of a later version are ignored.
"""

import msgspec

from chargehand.model.fleet.cards import WorkerGpu
from chargehand.model.fleet.place import Shortage
from chargehand.model.health import Findings, Verdict
from chargehand.model.job import DEFAULT_POLICY


class RestartBudget(msgspec.Struct, frozen=True):
    """The number of crashes that a worker has left before it is given up."""

    rapid_left: int
    lifetime_left: int


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress that a handler reported last."""

    done: float | None = None
    total: float | None = None
    stage: str | None = None
    detail: str | None = None


class WorkerFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a worker that are the same in the status of a node and in events."""

    component: str
    crew: str = ""
    index: int | None = None
    status: str = ""
    flags: tuple[str, ...] = ()
    reason: str | None = None
    """Why the worker is not at work, as a code."""
    text: str | None = None
    """Why the worker is not at work, in words."""
    cause: str | None = None
    """The same in one line: the exception's own line, or the signal and where it struck."""
    cause_code: str | None = None
    """The name of the exception's class or of the signal; null if neither is known."""
    shortage: Shortage | None = None
    """Set if the worker is not started for lack of memory or GPUs."""
    pid: int | None = None
    current_job: str | None = None
    """The id of the current job, or `crew/item` for an item; of a batch, the first."""
    batch_jobs: tuple[str, ...] = ()
    """All jobs of the current batch, or the first 100 that the worker performs at the same time; empty if it has one
    job or none."""
    in_hand: int = 0
    """How many jobs the worker has."""
    concurrency: int = 1
    """How many jobs the worker can perform at the same time."""
    progress: Progress | None = None
    memory: int | None = None
    gpus: tuple[WorkerGpu, ...] = ()
    """The GPUs that the node assigned to the worker."""
    jobs: int = 0
    restart_count: int = 0
    """Restarts after a crash, since the last reset, restart by an operator, or five minutes of healthy running."""
    restarts_total: int = 0
    """Restarts after a crash since the worker was first registered."""
    budget: RestartBudget | None = None
    exit_code: int | None = None
    signal: int | None = None


class NodeWorker(WorkerFields, frozen=True, kw_only=True):
    """A worker in the status of its node; durations are seconds up to the moment of the answer."""

    incarnation: str | None = None
    job_s: float | None = None
    heartbeat_s: float | None = None
    started_s: float | None = None
    ready_s: float | None = None
    restart_in_s: float | None = None

    @property
    def heartbeat_age_ms(self) -> int | None:
        """The age of the last heartbeat in milliseconds; None if there was none."""
        return None if self.heartbeat_s is None else int(self.heartbeat_s * 1000)


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The store as the node sees it."""

    address: str = ""
    failing: str | None = None
    """The error of the last write; null if it succeeded."""
    code: str | None = None
    """The code of this error, one of the causes of `doctor`; null if there is none."""
    waiting_s: float | None = None
    """How long the current call to the store has taken so far; null if there is none."""
    notified: bool | None = None
    """Whether the server notifies the node of what others write; null for a store that does not."""
    unnotified: str | None = None
    """Why it does not; then the node polls more often."""


class UnkillableProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process of an earlier node that SIGKILL did not end."""

    component: str
    pid: int


class HistogramStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The number of observations up to each bound in seconds; the last count is of those above all bounds."""

    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = (0,)
    total: float = 0.0
    """The sum of all observations in seconds."""


class TallyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the node has counted since it started."""

    wait: dict[str, HistogramStatus] = {}
    """By queue: from when a job was due until it was claimed."""
    run: dict[str, HistogramStatus] = {}
    """By queue: how long a worker had a job."""
    ended: tuple[tuple[str, str, int], ...] = ()
    """Attempts by queue and outcome."""
    crashes: tuple[tuple[str, str, int], ...] = ()
    """Crashes by crew and reason."""
    restarts: dict[str, int] = {}
    """Restarts after a crash by crew, those of workers that were removed included."""
    claim: HistogramStatus = HistogramStatus()
    settle: HistogramStatus = HistogramStatus()
    events_dropped: int = 0


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer of a node to `STATUS`."""

    node: str
    pid: int
    version: str = ""
    started_ms: int = 0
    stopping: str | None = None
    """Why the node is stopping; null if it is not."""
    store: StoreStatus = StoreStatus()
    unkillable: tuple[UnkillableProcess, ...] = ()
    tally: TallyStatus = TallyStatus()
    workers: tuple[NodeWorker, ...] = ()
    breakers: dict[str, str] = {}
    """Crews whose circuit breaker is open, each with the reason."""
    paused: tuple[str, ...] = ()
    """The scopes that are paused."""
    unserved: dict[str, str] = {}
    """Queues with due work that no worker will take, each with the reason."""
    blind: dict[str, str] = {}
    """Crews whose discovery fails, each with the reason."""
    drain: str | None = None
    """`draining` or `drained`, from the order to drain the node until workers are started again; null otherwise."""
    suspect_after: int = DEFAULT_POLICY.suspect_after
    """After how many failures in a row a worker is suspect."""
    verdict: Findings = Findings(Verdict.HEALTHY)
