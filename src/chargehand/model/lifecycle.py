"""The words between the supervisor's hands and its mind: what a place can be, what can happen, what can be done."""

from enum import StrEnum

import msgspec


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
    """A frame came from the worker, saying this status."""

    component: str
    status: str


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
    exit_code: int | None
    signal: int | None
    said: str | None
    had_job: bool
    crew_done: int


class StopAsked(msgspec.Struct, frozen=True):
    """Everything is to stop."""


class Tick(msgspec.Struct, frozen=True):
    """Time has passed; `late` is how much later than planned the supervisor itself looked."""

    late: float = 0.0


Event = Started | NotStarted | Occupied | Framed | MoreTime | Examined | Broken | Exited | StopAsked | Tick


# Actions


class Spawn(msgspec.Struct, frozen=True):
    """Start a process for this place."""

    component: str
    life: int


class Ask(msgspec.Struct, frozen=True):
    """Ask the worker through its sockets to stop."""

    component: str


class Terminate(msgspec.Struct, frozen=True):
    """SIGTERM to the worker's whole session."""

    component: str


class Kill(msgspec.Struct, frozen=True):
    """SIGKILL to the worker and all that it started."""

    component: str
    reason: str


class Examine(msgspec.Struct, frozen=True):
    """Read the worker's CPU time and report it."""

    component: str


class GivenUp(msgspec.Struct, frozen=True):
    """Tell people that nobody will start this worker again."""

    component: str
    reason: str


class Replace(msgspec.Struct, frozen=True):
    """Tell people that this worker died, and when it comes back."""

    component: str
    reason: str
    pause: float


Action = Spawn | Ask | Terminate | Kill | Examine | GivenUp | Replace
