"""What a node writes beside the work itself: pauses, counts, crash reports, health. Plain data, one function to do it.

The ledger carries chores to the store thread and repeats them on failure, so that none is lost and none may be harmful
when it is done twice.
"""

from typing import Any, assert_never

import msgspec

from chargehand.model.access import Deed
from chargehand.model.records import (
    CrashReport,
    Discovery,
    GivenUpMark,
    HealthNote,
    Holder,
    RecurringPlan,
)
from chargehand.settings.schedule import Firing
from chargehand.store import Transaction


class SetPause(msgspec.Struct, frozen=True, kw_only=True):
    """A person pauses a scope; `token` is who hears of it."""

    token: Any
    scope: str
    who: str
    reason: str | None
    for_ms: int | None


class ClearPause(msgspec.Struct, frozen=True, kw_only=True):
    """A person resumes a scope."""

    token: Any
    scope: str


class CancelJobs(msgspec.Struct, frozen=True, kw_only=True):
    """A person cancels jobs."""

    token: Any
    ids: tuple[str, ...]
    who: str = ""
    origin: str = ""


class KeepDeed(msgspec.Struct, frozen=True):
    """A person ordered something."""

    deed: Deed


class QueueFound(msgspec.Struct, frozen=True):
    """A page that a crew's `discover` found, and when (monotonic) it was asked to look."""

    crew: str
    page: Discovery
    looked_at: float


class Recur(msgspec.Struct, frozen=True):
    """These are the application's recurring jobs."""

    plans: tuple[RecurringPlan, ...]


class Fire(msgspec.Struct, frozen=True):
    """A recurring job is due."""

    firing: Firing


class KeepScale(msgspec.Struct, frozen=True):
    """A person changed a crew's count."""

    crew: str
    count: int


class KeepReport(msgspec.Struct, frozen=True):
    """A worker died."""

    report: CrashReport


class KeepGivenUp(msgspec.Struct, frozen=True):
    """A worker was given up on."""

    mark: GivenUpMark


class Forgive(msgspec.Struct, frozen=True):
    """A worker is no longer given up on."""

    component: str


class Project(msgspec.Struct, frozen=True):
    """The newest health of these components; those of `gone` are no more."""

    notes: tuple[HealthNote, ...]
    gone: tuple[str, ...] = ()


class Wipe(msgspec.Struct, frozen=True):
    """A clean end: nothing of this node's health is left."""


class TakeSnapshot(msgspec.Struct, frozen=True):
    """One more entry in the history."""


class LookAtPauses(msgspec.Struct, frozen=True):
    """Read the pauses again: one has run out."""


class LookAtQueues(msgspec.Struct, frozen=True):
    """Read which queues have work waiting."""


Chore = (
    SetPause
    | ClearPause
    | CancelJobs
    | KeepDeed
    | QueueFound
    | Recur
    | Fire
    | KeepScale
    | KeepReport
    | KeepGivenUp
    | Forgive
    | Project
    | Wipe
    | TakeSnapshot
    | LookAtPauses
    | LookAtQueues
)
ABOUT_PAUSES = (SetPause, ClearPause, LookAtPauses)
LOOKED_BEFORE = 1.0
"""Seconds by which a look is taken to be older than it is: the store has a clock of its own."""


def do(chore: Chore, tx: Transaction, holder: Holder, now: float) -> Any:
    """Write it; what came of it, where somebody asked. `now`: monotonic, and not before the transaction began."""
    match chore:
        case CancelJobs():
            found = tx.jobs.cancel(chore.ids)
            by = {"who": chore.who, "origin": chore.origin}
            tx.access.log([Deed(verb="cancel", target=f"job:{job.id}", **by) for job in found])
            return found
        case KeepDeed(deed):
            tx.access.log([deed])
        case QueueFound(_, page, looked_at):
            # Not when it was made: a store that is slow, or fails for a while, makes it older.
            age_ms = int((now - looked_at + LOOKED_BEFORE) * 1000)
            return tx.jobs.discover([msgspec.structs.replace(page, age_ms=age_ms)])[0]
        case Recur(plans):
            tx.jobs.recur(plans)
        case Fire(firing):
            return tx.jobs.fire(firing.name, firing.due_ms, firing.next_run_ms, firing.job)
        case SetPause():
            tx.fleet.pause(chore.scope, chore.who, chore.reason, chore.for_ms)
        case ClearPause():
            tx.fleet.resume(chore.scope)
        case KeepScale(crew, count):
            tx.fleet.scale(crew, count)
        case KeepReport(report):
            tx.fleet.report([report], holder)
        case KeepGivenUp(mark):
            tx.fleet.mark([mark])
        case Forgive(component):
            tx.fleet.mark((), cleared=[component])
        case Project(notes, gone):
            tx.fleet.project(notes, holder, gone=gone)
        case Wipe():
            tx.fleet.project((), holder, complete=True)
        case TakeSnapshot():
            tx.fleet.snapshot()
        case LookAtPauses() | LookAtQueues():
            return None
        case _:
            assert_never(chore)
    return None
