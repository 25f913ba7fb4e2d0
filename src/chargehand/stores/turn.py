"""One turn of a node over the parts of the contract: a Batch in one transaction, then the reads that go with it.

Every store may use this function as its `turn`; a store that can do a turn in one round trip has its own.
"""

from collections.abc import Callable, Sequence
from typing import Any, assert_never

import msgspec

from chargehand.model import chores
from chargehand.model.access import Deed
from chargehand.model.batch import Batch, Result
from chargehand.model.job import NewJob
from chargehand.model.records import Holder
from chargehand.store import Store, Transaction

ABOUT_PAUSES = (chores.SetPause, chores.ClearPause, chores.LookAtPauses, chores.SetClockBack)
ABOUT_RECURRING = (chores.Recur, chores.Fire, chores.SetClockBack)
LOOKED_BEFORE = 1.0
"""Seconds added to the age of a look: the store's clock and the node's are not the same."""


def turn(
    store: Store,
    batch: Batch,
    holder: Holder,
    monotonic: Callable[[], float],
    waits: Callable[[Any], bool] = lambda _: True,
) -> Result:
    """Executes a batch in one transaction, in this order: settle, note, enqueue, chores, claim."""
    changed = batch.poll and (store.changed() or batch.unsure)
    has_work = batch.hinted or batch.settlements or batch.notes or batch.requests or batch.chores
    if batch.poll and not (changed or has_work):
        return Result()
    with store.transaction() as tx:
        # A caller that stops waiting closes its connection before it writes into the store itself. Checked here, while
        # nobody else can write, the request is either dropped, or done before the caller writes.
        dropped = {token for token in tokens_of(batch) if not waits(token)}
        lost = tx.jobs.settle(batch.settlements, holder) if batch.settlements else []
        if batch.notes:
            tx.jobs.note(batch.notes)
        enqueued: list[Any] = []
        if batch.requests:
            asked = [(each.token, () if each.token in dropped else each.jobs) for each in batch.requests]
            answers = iter(tx.jobs.enqueue([job for _, jobs in asked for job in jobs]))
            enqueued = [(token, tuple(next(answers) for _ in jobs)) for token, jobs in asked]
        done = [
            undone(chore) if token_of(chore) in dropped else do(chore, tx, holder, monotonic())
            for chore in batch.chores
        ]
        grants = tx.jobs.claim(batch.wants, holder) if batch.wants else []
    kinds = {type(chore) for chore in batch.chores}
    read_pauses = changed or not kinds.isdisjoint(ABOUT_PAUSES)
    read_recurring = not kinds.isdisjoint(ABOUT_RECURRING)
    return Result(
        changed=changed,
        lost=tuple(lost),
        enqueued=tuple(enqueued),
        grants=tuple(grants),
        done=tuple(done),
        dropped=tuple(dropped),
        cancelling=tuple(job_id for job_id, _ in store.jobs.cancelling()) if changed else None,
        pauses=pauses_of(store) if read_pauses else None,
        waiting=tuple(store.jobs.waiting()) if chores.LookAtQueues in kinds else None,
        recurring=tuple(store.jobs.recurring()) if read_recurring else None,
        woken=tx.woken,
        ended_flows=tx.ended_flows,
        asked=tuple(store.fleet.requests(holder)) if changed else None,
    )


def token_of(chore: chores.Chore) -> Any:
    """Returns the caller that asked for a chore; None if the node did."""
    match chore:
        case chores.SetPause() | chores.ClearPause() | chores.CancelJobs() | chores.KeepDeed():
            return chore.token
        case _:
            return None


def tokens_of(batch: Batch) -> list[Any]:
    """Returns the callers that asked for a part of the batch."""
    found = [*(request.token for request in batch.requests), *(token_of(chore) for chore in batch.chores)]
    return [token for token in found if token is not None]


def undone(chore: chores.Chore) -> Any:
    """Returns the result of a chore that is dropped."""
    return [] if isinstance(chore, chores.CancelJobs) else None


def pauses_of(store: Store) -> tuple[tuple[str, int | None], ...]:
    """Returns the scope of every pause, and for how many ms it still holds."""
    return tuple((pause.scope, pause.left_ms) for pause in store.fleet.pauses())


def do(chore: chores.Chore, tx: Transaction, holder: Holder, now: float) -> Any:
    """Writes a chore and returns its result, if it has one. `now` is monotonic, taken inside the transaction."""
    match chore:
        case chores.CancelJobs():
            found = tx.jobs.cancel(chore.ids)
            by = {"who": chore.who, "origin": chore.origin}
            tx.access.log([Deed(verb="cancel", target=f"job:{job.id}", **by) for job in found])
            return found
        case chores.KeepDeed(deed):
            tx.access.log([deed])
        case chores.QueueFound(_, page, looked_at):
            # Computed now and not when the chore was made: a store that is slow, or fails for a while, adds to the age.
            age_ms = int((now - looked_at + LOOKED_BEFORE) * 1000)
            return tx.jobs.discover([msgspec.structs.replace(page, age_ms=age_ms)])[0]
        case chores.Recur(plans):
            tx.jobs.recur(plans, holder)
        case chores.Fire(firing):
            return tx.jobs.fire(firing.name, firing.due_ms, firing.next_run_ms, firing.job)
        case chores.SetClockBack(recurring):
            return tx.fleet.clock_set_back(recurring)
        case chores.SetPause():
            return tx.fleet.pause(chore.scope, chore.who, chore.reason, chore.for_ms)
        case chores.ClearPause():
            tx.fleet.resume(chore.scope)
        case chores.RecordStop():
            tx.fleet.stopping(holder)
        case chores.KeepScale(crew, count):
            tx.fleet.scale(crew, count, holder)
        case chores.KeepReport(report, jobs):
            tx.fleet.report([report], holder)
            _tell(tx, jobs)
        case chores.KeepGivenUp(mark, jobs):
            tx.fleet.mark([mark], holder)
            _tell(tx, jobs)
        case chores.Forgive(component):
            tx.fleet.mark((), holder, cleared=[component])
        case chores.KeepRestarts():
            note = chore.history.note(chore.component, chore.fingerprint, chore.restarts_total, now)
            tx.fleet.keep_restarts([note], holder)
        case chores.Project(notes, gone):
            tx.fleet.project(notes, holder, gone=gone)
        case chores.Wipe():
            tx.fleet.project((), holder, complete=True)
        case chores.TakeSnapshot():
            tx.fleet.snapshot()
        case chores.LookAtQueues():
            return tx.fleet.others(holder)
        case chores.LookAtPauses():
            return None
        case chores.ExpireJobs(limit):
            return tx.jobs.expire(limit)
        case chores.SweepFlows(limit):
            return tx.flows.sweep(limit)
        case chores.AnswerRequest(request, answer):
            tx.fleet.answer(request, answer)
        case chores.Lead(ready, unready):
            return tx.fleet.lead(ready, unready, holder)
        case _:
            assert_never(chore)
    return None


def _tell(tx: Transaction, jobs: Sequence[NewJob]) -> None:
    """Enqueues the jobs that tell of what is written."""
    if jobs:
        tx.jobs.enqueue(jobs)
