"""What a node writes besides the work itself: pauses, counts, crash reports, health. Plain data.

The ledger carries chores to the store and repeats them on failure, so none is lost, and none may be harmful when it is
done twice.
"""

from typing import Any

import msgspec

from chargehand.model.access import Deed
from chargehand.model.fleet.policy import History
from chargehand.model.job import NewJob
from chargehand.model.records import (
    CrashReport,
    Discovery,
    Firing,
    GivenUpMark,
    HealthNote,
    RecurringPlan,
    Rescheduling,
)


class SetPause(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses a scope for an operator; `token` identifies the caller to answer."""

    token: Any
    scope: str
    who: str
    reason: str | None
    for_ms: int | None


class ClearPause(msgspec.Struct, frozen=True, kw_only=True):
    """Resumes a scope for an operator."""

    token: Any
    scope: str


class CancelJobs(msgspec.Struct, frozen=True, kw_only=True):
    """Cancels jobs for an operator."""

    token: Any
    ids: tuple[str, ...]
    who: str = ""
    origin: str = ""


class KeepDeed(msgspec.Struct, frozen=True):
    """Appends an order to the operator log."""

    deed: Deed
    token: Any = None
    """The caller that gave the order, if the order is carried out in the same transaction."""


class QueueFound(msgspec.Struct, frozen=True):
    """Queues a page that a crew's `discover` found; `looked_at` is when (monotonic) it was asked to look."""

    crew: str
    page: Discovery
    looked_at: float


class Recur(msgspec.Struct, frozen=True):
    """Registers the application's recurring jobs."""

    plans: tuple[RecurringPlan, ...]


class Fire(msgspec.Struct, frozen=True):
    """Enqueues a recurring job that is due."""

    firing: Firing


class SetClockBack(msgspec.Struct, frozen=True):
    """Corrects times that were computed from a clock that has been set back since."""

    recurring: tuple[Rescheduling, ...]


class KeepScale(msgspec.Struct, frozen=True):
    """Keeps the worker count that an operator set for a crew."""

    crew: str
    count: int


class KeepReport(msgspec.Struct, frozen=True):
    """Keeps the report of a crash, and enqueues the jobs that tell of it."""

    report: CrashReport
    jobs: tuple[NewJob, ...] = ()


class KeepGivenUp(msgspec.Struct, frozen=True):
    """Marks a worker as given up, and enqueues the jobs that tell of it."""

    mark: GivenUpMark
    jobs: tuple[NewJob, ...] = ()


class Forgive(msgspec.Struct, frozen=True):
    """Clears the mark of a worker that was given up."""

    component: str


class KeepRestarts(msgspec.Struct, frozen=True):
    """Keeps the crashes and restarts of a worker for the next node. The times in `history` are monotonic."""

    component: str
    fingerprint: str
    history: History
    restarts_total: int


class Project(msgspec.Struct, frozen=True):
    """Writes the newest health of these components, and deletes that of `gone`."""

    notes: tuple[HealthNote, ...]
    gone: tuple[str, ...] = ()


class Wipe(msgspec.Struct, frozen=True):
    """Deletes all health rows of this node, at its graceful shutdown."""


class RecordStop(msgspec.Struct, frozen=True):
    """Records that this node was asked to stop: if it is killed meanwhile, its jobs are not to blame."""


class TakeSnapshot(msgspec.Struct, frozen=True):
    """Appends the present health to the history."""


class LookAtPauses(msgspec.Struct, frozen=True):
    """Reads the pauses again, because one has expired."""


class LookAtQueues(msgspec.Struct, frozen=True):
    """Reads which queues have due jobs, and what is known of other nodes."""


class ExpireJobs(msgspec.Struct, frozen=True):
    """Cancels jobs that should have been started earlier. The result is how many they were."""

    limit: int = 500


class SweepFlows(msgspec.Struct, frozen=True):
    """Completes what others have left undone: followers of jobs that have ended, and flows without live jobs. The
    result is how many they were."""

    limit: int = 100


class AnswerRequest(msgspec.Struct, frozen=True):
    """Answers a request that reached this node through the store."""

    id: str
    answer: str | None
    """The reply as JSON; None: the caller waits for none."""


class Lead(msgspec.Struct, frozen=True):
    """Asks for which crews this node calls `discover`: of those that it is ready for, if no other node does."""

    ready: tuple[str, ...]
    unready: tuple[str, ...] = ()


Chore = (
    SetPause
    | ClearPause
    | CancelJobs
    | KeepDeed
    | QueueFound
    | Recur
    | Fire
    | SetClockBack
    | KeepScale
    | KeepReport
    | KeepGivenUp
    | Forgive
    | KeepRestarts
    | Project
    | Wipe
    | RecordStop
    | TakeSnapshot
    | LookAtPauses
    | LookAtQueues
    | ExpireJobs
    | SweepFlows
    | AnswerRequest
    | Lead
)
