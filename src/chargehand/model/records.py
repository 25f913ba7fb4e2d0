"""The records that are written to a store and read from it, apart from jobs (`model.job`) and access (`model.access`).

Plain data: no record here decides or does anything.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from chargehand.errors import ConfigurationError
from chargehand.model.doctor.wording import place_in
from chargehand.model.fleet.death import crash_line
from chargehand.model.job import Found, JobRecord, NewJob, State
from chargehand.model.spelling import field_meant


class _Named(msgspec.StructMeta):
    """Says which fields a filter has, if one is given that it has not."""

    if not TYPE_CHECKING:

        def __call__(cls, *given: Any, **fields: Any) -> Any:  # noqa: N805 - a class is what is called
            if given:
                raise ConfigurationError(
                    f"{cls.__name__}({given[0]!r}): conditions have names, as in {cls.__name__}(limit=9)"
                )
            known = cls.__struct_fields__
            for name in fields.keys() - set(known):
                raise ConfigurationError(
                    f"{cls.__name__}: unknown field {name}; there are: {', '.join(known)}{field_meant(name, known)}"
                )
            return super().__call__(**fields)


class Filter(msgspec.Struct, frozen=True, kw_only=True, metaclass=_Named):
    """A choice of records. Raises ConfigurationError if a field has a value of another type, or does not exist."""

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(type(self)):
            value = getattr(self, field.name)
            try:
                known = msgspec.convert(value, field.type)
            except msgspec.ValidationError as error:
                name = type(self).__name__
                raise ConfigurationError(f"{name}: {field.name} is {value!r}: {error}") from None
            if known is not value:
                msgspec.structs.force_setattr(self, field.name, known)  # the name of a state


Limit = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
"""How many records to return, at most."""


class Holder(msgspec.Struct, frozen=True):
    """The owner of a claim: a node by its name, and the id of this one life of the node, which is never reused."""

    node: str
    life: str


class NodeAbout(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself, for other nodes of the same store."""

    pid: int | None = None
    start: int | None = None
    """The start time of its process, as the kernel counts it; None if the node's version did not record it."""
    boot: str | None = None
    pid_namespace: str | None = None
    machine: str | None = None
    """The name of the machine or container, for people."""
    version: str | None = None
    lease: float = 30.0
    """How many seconds without a beat others wait before they take its jobs."""
    stops: bool = False
    """Whether it runs a crew whose jobs end before the lease does (`when_cut_off="stop"`)."""
    asked: bool = False
    """Whether it was asked to stop: its end, whatever it is, is not the fault of a job."""


class LastLife(msgspec.Struct, frozen=True):
    """The life of a node that was registered last."""

    life: str
    about: NodeAbout
    beat: int | None = None
    """The counter that grows while the node lives; None in a store for one node, where a lock shows that it lives."""
    session_ended: bool = False
    """Whether the server process of its connection has ended."""


class OtherNodes(msgspec.Struct, frozen=True):
    """What a node knows of the others."""

    served: tuple[str, ...] = ()
    """The queues that workers of others take jobs from, or will without intervention."""
    gone: tuple[str, ...] = ()
    """The names of nodes that have disappeared without having been stopped."""
    now_ms: int | None = None
    """The time of the clock that all nodes share; None if it is the clock of this machine."""


class LivingNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that lives, with what callers may address on it."""

    name: str
    life: str
    crews: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    """The components of its workers, as its health rows have them."""
    without: tuple[str, ...] = ()
    """The crews that its settings give no workers."""


class NodeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to one life of a node, from a caller that reaches this node only through the store."""

    id: str
    life: str
    kind: str
    body: str
    """The request as JSON, as on the node's control socket."""


class NodeReply(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a request to a node."""

    id: str
    answer: str | None
    """The reply as JSON, as on the node's control socket; None: there is none yet."""
    lives: bool
    """Whether the node still lives."""


class NewLife(msgspec.Struct, frozen=True):
    """A life that a node has begun because other nodes had taken it for dead."""

    holder: Holder
    held: frozenset[tuple[int, int]]
    """The claims that are still its own: the seq of the job, and the number of the claim."""


class CrewRow(msgspec.Struct, frozen=True, kw_only=True):
    """A registered crew. Readers need it because they do not import the application."""

    name: str
    queue: str
    handler: str
    workers: int
    max_attempts: int
    timeout_ms: int | None
    priority: int = 0
    limit: int | None = None
    """How many jobs of the crew's queue may run at a time, in the whole cluster."""
    limit_per_key: int | None = None
    """How many jobs that share a `limit_key` may run at a time."""
    rate: str | None = None
    """How many jobs of the crew's queue may be started within a period, in the whole cluster: `600/min`."""
    rate_per_key: str | None = None
    """How many jobs that share a `limit_key` may be started within a period."""
    hide: tuple[str, ...] = ()
    """The names of fields whose values readers are not shown."""
    scaled: int | None = None
    """The worker count that an operator set while the crew ran; it holds until the configured count changes."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A pause flag of one worker (`worker:crew:index`), of a crew (its name) or of everything (`*`).

    With a node in front (`node/crew`), it is about this node alone.
    """

    scope: str
    who: str
    reason: str | None
    since_ms: int
    until_ms: int | None = None
    left_ms: int | None = None
    """The time left by the store's clock when the flag was read; None: until it is resumed."""


class HealthNote(msgspec.Struct, frozen=True, kw_only=True):
    """The health of one component, as its supervisor writes it: with ages, because the store has its own clock."""

    component: str
    status: str
    flags: tuple[str, ...] = ()
    reason: str | None = None
    pid: int | None = None
    pid_start: int | None = None
    """The process's start time in kernel ticks: a pid alone may belong to another process by now."""
    incarnation: str | None = None
    current_job: str | None = None
    heartbeat_age_ms: int | None = None
    restart_count: int = 0
    restart_age_ms: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    metadata: str = "{}"
    """A JSON object: telemetry and other details for readers."""


class HealthRow(msgspec.Struct, frozen=True, kw_only=True):
    """The health of one component, as another process reads it. It may be out of date: check the pid and the age."""

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
    """When the component was written for the first time, by any life of the node."""
    metadata: msgspec.Raw
    age_ms: int | None
    """The age of the last heartbeat by the store's clock when the row was read."""
    node_lives: bool = True
    """Whether its node is registered; a store for one node does not know."""
    boot: str | None = None
    """The boot of its node's machine, and the pid namespace: only there has the pid a meaning. None: on this one."""
    pid_namespace: str | None = None


class NodeCrew(msgspec.Struct, frozen=True, kw_only=True):
    """A crew that a node serves, and the number of workers that it has there, by the settings or by an operator."""

    name: str
    queue: str
    workers: int


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node as another process reads it. Of one that is gone, only its health rows and its crews are left."""

    name: str
    lives: bool
    """Whether it is registered; a store for one node does not know: check the pid."""
    started_ms: int | None
    """When this life was registered."""
    about: NodeAbout | None
    last_heartbeat_ms: int | None
    age_ms: int | None
    """The age of the last heartbeat by the store's clock when the row was read."""
    crews: tuple[NodeCrew, ...]


class CrashReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of an unexpected death of a worker."""

    id: str
    component: str
    crew: str
    incarnation: str
    pid: int | None
    reason: str
    """One of the codes of `chargehand.model.fleet.death`; exit code and signal are separate facts."""
    text: str
    """The reason as a sentence, for people."""
    exit_code: int | None
    signal: int | None
    job: str | None
    memory: int | None
    uptime_ms: int | None
    """The time since the worker became ready; None if it never did."""
    charged: bool
    follows: str
    """What was decided: when the worker is restarted, or that it was given up."""
    stacks: str = ""
    lines: tuple[str, ...] = ()
    """The last lines of the worker's log."""
    frames: tuple[str, ...] = ()
    """What the worker sent that was not a valid frame, shortened."""
    age_ms: int = 0


class CrashRecord(CrashReport, frozen=True, kw_only=True):
    """A crash report as it is read."""

    node: str
    at_ms: int
    cause: str = ""
    """What ended the worker, in one line: the exception's own line, or the signal and where it struck."""
    cause_code: str | None = None
    """The name of the exception's class or of the signal; null if neither is known."""

    def __post_init__(self) -> None:
        if not self.cause:
            loading = self.uptime_ms is None and self.pid is not None
            found = crash_line(self.reason, self.text, signal=self.signal, where=place_in(self.stacks), loading=loading)
            msgspec.structs.force_setattr(self, "cause", found.line)
            msgspec.structs.force_setattr(self, "cause_code", found.code)


class CrashFilter(Filter, frozen=True, kw_only=True):
    """Which crash reports to list, newest first; `before` is the id of the last report of the previous page."""

    component: str | None = None
    crew: str | None = None
    job: str | None = None
    node: str | None = None
    before: str | None = None
    limit: Limit = 20


class GivenUpMark(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was given up; kept across restarts, until the fingerprint changes or an operator restarts it."""

    component: str
    crew: str
    reason: str
    fingerprint: str
    at_ms: int = 0
    """Set by the store; ignored when the mark is written."""
    node: str = ""
    """Likewise; empty in a store for one node."""


class RestartNote(msgspec.Struct, frozen=True, kw_only=True):
    """The crashes and restarts of a worker, which outlive its node: with ages, because the store has its own clock."""

    component: str
    fingerprint: str
    """Of the code and the settings that crashed: the history of others does not count."""
    charged_age_ms: tuple[int, ...] = ()
    """The charged crashes, oldest first."""
    streak: int = 0
    rested_age_ms: int | None = None
    restarts: int = 0
    """Since the last reset, restart by an operator, or rest."""
    restarts_total: int = 0
    node: str = ""
    """Set by the store, and ignored when the note is written; empty in a store for one node."""

    @property
    def crew(self) -> str:
        """The name of the worker's crew."""
        return self.component.split(":")[1]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The health of every component at one moment, for people and charts; no decision is made from it."""

    timestamp_ms: int
    components: msgspec.Raw
    """A JSON array of objects: component, status, flags, current_job, pid, restart_count."""


class CancelResult(msgspec.Struct, frozen=True):
    """The effect of a cancel: the job ended at once, or its worker must be notified, for the claim with this number."""

    id: str
    at_once: bool
    claim: int


class RecurringPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring job. The store keeps `schedule` without reading it; the node computes the next time from it."""

    name: str
    schedule: str
    job: str
    """The NewJob to enqueue, as JSON, without its id."""
    next_run_ms: int
    """By the store's clock. If the schedule of a plan has not changed, the stored time is kept."""
    last_job: str | None = None


MOST_RUNS = 30
"""How many of its newest jobs the store remembers of a recurring job."""


class RecurringState(msgspec.Struct, frozen=True, kw_only=True):
    """What operators and nodes add to a recurring job: its pause, and its newest jobs."""

    name: str
    paused_ms: int | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    runs: tuple[str, ...] = ()
    """The ids of its newest jobs, oldest first, MOST_RUNS at most; some may have been pruned."""


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """How a job went, without its texts."""

    id: str
    state: State
    created_ms: int
    started_ms: int | None = None
    finished_ms: int | None = None


class Recurrence(RecurringPlan, frozen=True, kw_only=True):
    """A recurring job as readers see it."""

    in_words: str
    queue: str
    label: str | None = None
    paused_ms: int | None = None
    """Since when it is paused; None if it is not."""
    paused_by: str | None = None
    pause_reason: str | None = None
    runs: tuple[JobRun, ...] = ()
    """Its newest jobs that the store still has, oldest first."""


class Rescheduling(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring job whose next time is not `due_ms` but `next_run_ms`."""

    name: str
    due_ms: int
    next_run_ms: int


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring job that is due: for which time, when it is due next, and what to enqueue."""

    name: str
    due_ms: int
    next_run_ms: int
    job: NewJob


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """A page of items that a crew's `discover` found, and the settings of the job for each item."""

    queue: str
    found: tuple[Found, ...]
    priority: int
    max_attempts: int
    timeout_ms: int | None
    most_done: int = 3
    """An item that was done this often within the window and is found again makes no progress."""
    window_ms: int = 3_600_000
    age_ms: int = 0
    """The time since the look began. An item that was done after that may be in the page only because the look read it
    before."""


class Discovered(msgspec.Struct, frozen=True, kw_only=True):
    """How many items of a page were queued, already had a live job, were set aside before, or are set aside now."""

    queued: int = 0
    held: int = 0
    set_aside: int = 0
    no_progress: tuple[str, ...] = ()
    """The items that are set aside now."""


class ClaimRow(msgspec.Struct, frozen=True, kw_only=True):
    """A claim: which worker of which node holds which job, and since when."""

    id: str
    queue: str
    label: str | None
    claim: str
    """The claim's number."""
    node: str
    worker: str | None
    started_ms: int
    cancel_ms: int | None
    item: str | None = None
    """The item's key in the application's own tables, if `discover` returned it."""


PAYLOAD = "payload."
"""The beginning of the field of a JobMatch that is a value in the payload; the keys follow."""


class JobMatch(msgspec.Struct, frozen=True):
    """A condition on one field of a job: what the filter language has beyond the fields of JobFilter."""

    field: str
    """label, id, key, share, sequence, item, error, cause, worker, node, tag, text, or `payload.` and keys."""
    text: str
    how: Literal["is", "like", "part"] = "is"
    """Whether the value must be the text, be like it (`*` stands for any characters), or have a part that is like it.
    The latter two take upper and lower case for the same."""


class JobFilter(Filter, frozen=True, kw_only=True):
    """Which jobs to list, newest first; `before` is the id of the last job of the previous page."""

    queue: str | None = None
    state: State | None = None
    reason: str | None = None
    tag: str | None = None
    text: str | None = None
    """Part of the id, label, key, item or error; upper and lower case are the same."""
    older_ms: int | None = None
    """Only jobs that finished at least so long ago."""
    since_ms: int | None = None
    """Only jobs that were created at most so long ago."""
    until_ms: int | None = None
    """Only jobs that were created at least so long ago."""
    matches: tuple[JobMatch, ...] = ()
    """Further conditions, which all must hold."""
    ids: tuple[str, ...] | None = None
    """Only these jobs."""
    flow: str | None = None
    """Only jobs of the flow with this id."""
    before: str | None = None
    below: int | None = None
    """The `seq` of the last job of the previous page; unlike `before` it stays valid when that job is pruned."""
    limit: Limit = 50


class Sort(StrEnum):
    """The orders in which jobs are searched."""

    NEWEST = "newest"
    OLDEST = "oldest"
    LONGEST = "longest"
    """By the time from start to end, or until now."""
    PRIORITY = "priority"
    """The highest first."""


class SearchPlace(msgspec.Struct, frozen=True, order=True, array_like=True):
    """The place of a job in a search: what it is sorted by, and its position in the order of arrival."""

    value: int
    seq: int


class JobsFound(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a search."""

    jobs: tuple[JobRecord, ...]
    next: SearchPlace | None = None
    """Where the next page begins; None on the last page."""
    searched_ms: int | None = None
    """None: all jobs were searched. Otherwise time ran out: only jobs created since then were (with the order
    `oldest`: until then)."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs match a filter, by state."""

    queued: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    searched_ms: int | None = None
    """None: all jobs were counted. Otherwise time ran out: only those created since then were."""


class FailedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A failed job, as far as failures are grouped by it."""

    id: str
    queue: str
    reason: str | None
    error: str | None
    finished_ms: int | None
    seq: int


class FailuresFound(msgspec.Struct, frozen=True, kw_only=True):
    """Failed jobs that match a filter, newest first."""

    jobs: tuple[FailedJob, ...]
    searched_ms: int | None = None
    """As in JobsFound; also set if there were too many."""


class JobSize(msgspec.Struct, frozen=True):
    """A job, and the bytes of its payload, result and error."""

    id: str
    seq: int
    size: int


class SizesFound(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a search for jobs without their texts."""

    jobs: tuple[JobSize, ...]
    next: SearchPlace | None = None
    """Where the next page begins; None on the last page. If time ran out, a page is short."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a queue are in each state.

    Of the queued jobs, `future` wait for their time, `following` for other jobs, and `limited` were set aside because
    their key has as many running jobs as its limit allows, or was started as often as its rate allows.
    """

    queue: str
    queued: int = 0
    future: int = 0
    following: int = 0
    limited: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    last_done_ms: int | None = None
    """When the last job that is done ended."""
    rate_next_ms: int | None = None
    """When a rate admits the next job, by the store's clock; None if no job waits for a rate."""


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """The schema version of a store before and after a migration, and the additive steps that were applied."""

    before: int
    after: int
    additions: tuple[str, ...] = ()


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long finished jobs are kept: up to `age_ms`, and up to `count` for each queue and state."""

    age_ms: int = 7 * 86_400_000
    """Finished jobs."""
    count: int = 1_000_000
    """Finished jobs, for each queue and state."""
    crash_age_ms: int = 30 * 86_400_000
    """Crash reports."""
    crash_count: int = 1_000
    """Crash reports of all crews together."""
    history_age_ms: int = 7 * 86_400_000
    """Snapshots of health, if that history is switched on."""
    history_every_ms: Annotated[int, msgspec.Meta(ge=100)] = 30_000
    """The interval of the snapshots of health, in milliseconds."""
    operation_age_ms: int = 366 * 86_400_000
    """The operator log."""
