"""The words between the supervisor's hands and its mind: what a place can be, what can happen, what can be done."""

from collections.abc import Collection
from enum import StrEnum

import msgspec

from chargehand.model.fleet.death import Death, Evidence, Reason


class Status(StrEnum):
    """What a place is, as everybody sees it."""

    STARTING = "starting"
    HEALTHY = "healthy"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    CRASHED = "crashed"
    FAILED = "failed"


TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.STARTING: frozenset({Status.HEALTHY, Status.PAUSED, Status.STOPPING, Status.CRASHED}),
    Status.HEALTHY: frozenset({Status.PAUSED, Status.STOPPING, Status.CRASHED}),
    Status.PAUSED: frozenset({Status.HEALTHY, Status.STOPPING, Status.CRASHED}),
    Status.STOPPING: frozenset({Status.STOPPED, Status.CRASHED}),
    Status.CRASHED: frozenset({Status.STARTING, Status.FAILED, Status.STOPPED}),
    Status.STOPPED: frozenset({Status.STARTING}),
    Status.FAILED: frozenset({Status.STARTING}),
}
ALIVE = frozenset({Status.STARTING, Status.HEALTHY, Status.PAUSED, Status.STOPPING})


# Events


class Started(msgspec.Struct, frozen=True):
    """The process exists."""

    component: str
    pid: int


class NotStarted(msgspec.Struct, frozen=True):
    """The process could not be made."""

    component: str
    why: str


class Occupied(msgspec.Struct, frozen=True):
    """An earlier life of this place, of an earlier node, cannot be killed; or, with None, there is none (any more)."""

    component: str
    pid: int | None


class Framed(msgspec.Struct, frozen=True):
    """A frame came from the worker: its status, its working thread's counter, the bytes of memory that it uses."""

    component: str
    status: str
    turns: int = 0
    memory: int = 0


class MoreTime(msgspec.Struct, frozen=True):
    """A worker that is loading asks to be given so many seconds from now."""

    component: str
    seconds: float


class Examined(msgspec.Struct, frozen=True):
    """The CPU time, in seconds, that the worker and its children have used so far; None if it is not there."""

    component: str
    cpu: float | None


class Broken(msgspec.Struct, frozen=True):
    """What came on the worker's work socket is no frame, so an outcome is lost: this life cannot be trusted."""

    component: str


class Exited(msgspec.Struct, frozen=True, kw_only=True):
    """The process is gone, and so is all that it started."""

    component: str
    death: Death
    crew_done: int
    """How many jobs its crew has got out of the way so far."""
    evidence: Evidence = Evidence()
    """What the crash report will say of the process."""


class StopAsked(msgspec.Struct, frozen=True):
    """Everything is to stop."""


class PausesChanged(msgspec.Struct, frozen=True):
    """These are paused now, and nobody else: `*`, crews by name, workers by component."""

    scopes: Collection[str]


class WorkWaits(msgspec.Struct, frozen=True):
    """So many jobs wait for workers of this crew that have gone to sleep."""

    crew: str
    count: int


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
    | Exited
    | StopAsked
    | PausesChanged
    | WorkWaits
    | Tick
)


# Actions


class Spawn(msgspec.Struct, frozen=True):
    """Start a process for this place."""

    component: str
    life: int


class Ask(msgspec.Struct, frozen=True):
    """Ask the worker through its sockets to stop."""

    component: str


class Heed(msgspec.Struct, frozen=True):
    """Tell the worker that it is paused, or no longer."""

    component: str
    paused: bool


class Recall(msgspec.Struct, frozen=True):
    """Tell the worker that its job is cancelled."""

    component: str
    job: str


class Dismiss(msgspec.Struct, frozen=True):
    """Hand this worker nothing more; what it has it may finish."""

    component: str


class DumpStacks(msgspec.Struct, frozen=True):
    """Have the worker write down where all its threads stand: it is about to be killed."""

    component: str
    reason: Reason


class Terminate(msgspec.Struct, frozen=True):
    """SIGTERM to the worker's whole session."""

    component: str


class Kill(msgspec.Struct, frozen=True):
    """SIGKILL to the worker and all that it started."""

    component: str
    reason: Reason


class Examine(msgspec.Struct, frozen=True):
    """Read the worker's CPU time and report it."""

    component: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Keep what is known of a death that nobody asked for, and of what was decided."""

    component: str
    reason: Reason
    text: str
    charged: bool
    follows: str
    evidence: Evidence = Evidence()


class GivenUp(msgspec.Struct, frozen=True):
    """Tell people, and remember through restarts, that nobody will start this worker again."""

    component: str
    reason: str


class Forgiven(msgspec.Struct, frozen=True):
    """Forget that this worker was given up on."""

    component: str


class Replace(msgspec.Struct, frozen=True):
    """Tell people that this worker died, and when it comes back."""

    component: str
    reason: str
    pause: float


class BreakerOpened(msgspec.Struct, frozen=True):
    """Tell people that all of a crew crashed of the same cause, and that only one of them is tried further."""

    crew: str
    cause: str
    probe: str


class BreakerClosed(msgspec.Struct, frozen=True):
    """Tell people that the others of the crew come back."""

    crew: str
    why: str


class Removed(msgspec.Struct, frozen=True):
    """The place is no more: its crew was made smaller."""

    component: str


Action = (
    Spawn
    | Ask
    | Heed
    | Recall
    | Dismiss
    | DumpStacks
    | Terminate
    | Kill
    | Examine
    | Report
    | GivenUp
    | Forgiven
    | Replace
    | BreakerOpened
    | BreakerClosed
    | Removed
)
