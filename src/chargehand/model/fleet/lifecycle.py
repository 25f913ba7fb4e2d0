"""The statuses of a place, the events that the supervisor reports, and the actions that it performs."""

from collections.abc import Collection
from enum import StrEnum

import msgspec

from chargehand.model.fleet.cards import Reading
from chargehand.model.fleet.death import Death, Evidence, Reason
from chargehand.model.fleet.usage import Usage


class Status(StrEnum):
    """The status of a place."""

    STARTING = "starting"
    HEALTHY = "healthy"
    PAUSED = "paused"
    ASLEEP = "asleep"
    """Its process exited after `idle_exit`; the next job starts another."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    CRASHED = "crashed"
    FAILED = "failed"


TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.STARTING: frozenset({Status.HEALTHY, Status.PAUSED, Status.STOPPING, Status.CRASHED}),
    Status.HEALTHY: frozenset({Status.PAUSED, Status.STOPPING, Status.CRASHED, Status.ASLEEP}),
    Status.PAUSED: frozenset({Status.HEALTHY, Status.STOPPING, Status.CRASHED, Status.ASLEEP}),
    Status.ASLEEP: frozenset({Status.STARTING, Status.STOPPED}),
    Status.STOPPING: frozenset({Status.STOPPED, Status.CRASHED}),
    Status.CRASHED: frozenset({Status.STARTING, Status.FAILED, Status.STOPPED}),
    Status.STOPPED: frozenset({Status.STARTING}),
    Status.FAILED: frozenset({Status.STARTING}),
}
ALIVE = frozenset({Status.STARTING, Status.HEALTHY, Status.PAUSED, Status.STOPPING})


# Events


class Started(msgspec.Struct, frozen=True):
    """The process was started."""

    component: str
    pid: int


class NotStarted(msgspec.Struct, frozen=True):
    """The process could not be started."""

    component: str
    why: str


class Occupied(msgspec.Struct, frozen=True):
    """An earlier node's process occupies this place and cannot be killed; with None, it no longer exists."""

    component: str
    pid: int | None


class Framed(msgspec.Struct, frozen=True):
    """A frame of the worker arrived: its status, its main thread's counter, and its memory in bytes."""

    component: str
    status: str
    turns: int = 0
    memory: int = 0


class MoreTime(msgspec.Struct, frozen=True):
    """A starting worker requests this many seconds from now."""

    component: str
    seconds: float


class Examined(msgspec.Struct, frozen=True):
    """The CPU time that the worker has used; None if it does not exist."""

    component: str
    cpu: Usage | None
    behind: bool = False
    """Whether the node has not read all output of the worker, which may be waiting for that."""


class Broken(msgspec.Struct, frozen=True):
    """The worker sent an invalid frame on its work socket: an outcome may be lost, so it cannot continue."""

    component: str


class Unsound(msgspec.Struct, frozen=True):
    """The worker reported that its process is broken; it exits by itself."""

    component: str


class Exited(msgspec.Struct, frozen=True, kw_only=True):
    """The process and all its descendants have ended."""

    component: str
    death: Death
    crew_done: int
    """How many jobs the crew has completed so far."""
    evidence: Evidence = Evidence()
    """The facts about the process for the crash report."""


class StopAsked(msgspec.Struct, frozen=True):
    """All workers are to stop."""


class PausesChanged(msgspec.Struct, frozen=True):
    """The complete set of paused scopes: `*`, crews by name, workers by component."""

    scopes: Collection[str]


class WorkWaits(msgspec.Struct, frozen=True):
    """This many jobs wait for sleeping workers of the crew."""

    crew: str
    count: int


class GpusRead(msgspec.Struct, frozen=True):
    """The GPUs of this machine were read."""

    reading: Reading


class Tick(msgspec.Struct, frozen=True):
    """Time has passed."""


Event = (
    Started
    | NotStarted
    | Occupied
    | Framed
    | MoreTime
    | Examined
    | Broken
    | Unsound
    | Exited
    | StopAsked
    | PausesChanged
    | WorkWaits
    | GpusRead
    | Tick
)


# Actions


class Spawn(msgspec.Struct, frozen=True):
    """Start a process for this place."""

    component: str
    life: int


class Ask(msgspec.Struct, frozen=True):
    """Ask the worker to stop, through its sockets."""

    component: str


class SetPaused(msgspec.Struct, frozen=True):
    """Notify the worker that it is paused, or no longer."""

    component: str
    paused: bool


class CancelJob(msgspec.Struct, frozen=True):
    """Notify the worker that its job was cancelled."""

    component: str
    job: str


class ExpireJob(msgspec.Struct, frozen=True):
    """Notify the worker that one of several jobs (or its call of `discover`) has exceeded its timeout."""

    component: str
    job: str


class Dismiss(msgspec.Struct, frozen=True):
    """Give this worker no more jobs; it may finish those it holds."""

    component: str


class DumpStacks(msgspec.Struct, frozen=True):
    """Request the stack traces of a worker that is about to be killed."""

    component: str
    reason: Reason


class Terminate(msgspec.Struct, frozen=True):
    """Send SIGTERM to the worker's session."""

    component: str


class Kill(msgspec.Struct, frozen=True):
    """Send SIGKILL to the worker and all its descendants."""

    component: str
    reason: Reason


class Examine(msgspec.Struct, frozen=True):
    """Read the worker's CPU time and report it."""

    component: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Store a report about an unplanned death, and what was decided."""

    component: str
    reason: Reason
    text: str
    charged: bool
    follows: str
    evidence: Evidence = Evidence()


class Suspected(msgspec.Struct, frozen=True):
    """Announce that this worker is replaced as soon as it holds no job, because of the jobs that it failed."""

    component: str
    text: str


class GivenUp(msgspec.Struct, frozen=True):
    """Announce and remember, across restarts of the node, that this worker is not started again."""

    component: str
    reason: str


class Forgiven(msgspec.Struct, frozen=True):
    """Forget that this worker was given up."""

    component: str


class Replace(msgspec.Struct, frozen=True):
    """Announce that this worker died, and when it is restarted."""

    component: str
    reason: str
    pause: float


class BreakerOpened(msgspec.Struct, frozen=True):
    """Announce that all workers of a crew crashed of the same cause, and that only the probe is restarted."""

    crew: str
    cause: str
    probe: str


class BreakerClosed(msgspec.Struct, frozen=True):
    """Announce that the other workers of the crew are restarted."""

    crew: str
    why: str


class Removed(msgspec.Struct, frozen=True):
    """The place was removed: its crew was scaled down."""

    component: str


Action = (
    Spawn
    | Ask
    | SetPaused
    | CancelJob
    | ExpireJob
    | Dismiss
    | DumpStacks
    | Terminate
    | Kill
    | Examine
    | Report
    | Suspected
    | GivenUp
    | Forgiven
    | Replace
    | BreakerOpened
    | BreakerClosed
    | Removed
)
