"""Writes jobs to PostgreSQL: enqueues, settles, cancels, retries, deletes and recovers them. `claiming` claims.

Part of a transaction: it neither begins nor ends one.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from chargehand import clock, codec
from chargehand.errors import Conflict, StoreBusy
from chargehand.ids import NewIds, claim_of
from chargehand.model import suspects
from chargehand.model.batch import Grant, Note, Want
from chargehand.model.job import DEFAULT_POLICY, Claim, ClaimName, JobPolicy, NewJob, Settlement, State
from chargehand.model.records import CancelResult, Discovered, Discovery, Holder, RecurringPlan
from chargehand.model.suspects import Orphan
from chargehand.model.wakeups import Wakeup
from chargehand.stores.postgres import items, rates, statements
from chargehand.stores.postgres.adding import Adding, as_json, row_of
from chargehand.stores.postgres.claiming import Claiming
from chargehand.stores.postgres.session import Session, numbers
from chargehand.stores.rows import clean, readable

PATIENCE_MS = 100
TRY_AGAIN, LONGEST_WAIT = 0.1, 30.0
"""How often and for how long a worker that settles its own job waits for the key of a follow-up."""

_ADD = statements.load("enqueue")
_END = statements.load("settle")
_CLAIM = statements.load("claim")


class PostgresJobs(Adding):
    """Implements `chargehand.store.JobWriting`."""

    def __init__(self, db: Session, now: int | None, new_ids: NewIds, registered: Holder | None) -> None:
        super().__init__(db, now)
        self._db, self._now, self._new_ids = db, now, new_ids
        self._claiming = Claiming(db, now, registered)

    def add(self, rows: Sequence[dict[str, Any]], *, promised: bool = False) -> Callable[[], list[tuple[Any, ...]]]:
        self._db.announce(Wakeup.JOBS)
        return super().add(rows, promised=promised)

    def discover(self, pages: Sequence[Discovery]) -> list[Discovered]:
        self._db.announce(Wakeup.JOBS)
        return [items.discover(self._db, page, self._now, self._new_ids) for page in pages]

    # claiming and settling

    def claim(self, wants: Sequence[Want], holder: Holder) -> list[Grant]:
        return self._claiming.claim(wants, holder)

    def settle(self, settlements: Sequence[Settlement], holder: Holder) -> list[ClaimName]:
        if not any(job.key is not None for each in settlements for job in each.follow):
            return self.end(settlements, holder)()
        until = clock.monotonic() + LONGEST_WAIT
        while True:
            # A caller may hold the key of a follow-up. The rows of the jobs are not locked meanwhile: nodes need them.
            try:
                with self._db.attempt(PATIENCE_MS):
                    return self.end(settlements, holder)()
            except StoreBusy:
                if clock.monotonic() >= until:
                    raise
            clock.sleep(TRY_AGAIN)

    def holds(self, seq: int, claim: int) -> bool:
        return bool(self._db.rows(_END["holds"], (seq, claim)))

    def end(self, settlements: Sequence[Settlement], holder: Holder) -> Callable[[], list[ClaimName]]:
        """Sends the statements that settle. The result returns the claims that no longer held."""
        if not settlements:
            return list[ClaimName]
        first: dict[tuple[int, int], Settlement] = {}
        for each in settlements:
            first.setdefault((each.seq, each.claim), each)  # only the first settlement of a claim counts
        self._db.send(_CLAIM["lock"], (sorted({each.queue for each in settlements}),))
        if self._db.announces and any(each.state is State.QUEUED for each in settlements):
            self._db.announce(Wakeup.JOBS)
        returned = [claim for claim, each in first.items() if each.outcome is None]
        if returned:
            rates.give_back(self._db, self._now, returned)
        text = as_json([_settle_row(each) for each in first.values()])
        held = self._db.send(_END["settle"], (self._now, text, holder.node))
        self._db.send(_CLAIM["bring_back"], (numbers([seq for seq, _ in first]),))
        children = [
            row_of(job) | {"parent": each.seq, "claim": each.claim} for each in first.values() for job in each.follow
        ]
        if children:
            self.add(children, promised=True)

        def lost() -> list[ClaimName]:
            kept = set(held.fetchall())
            if len(kept) == len(settlements):
                return []
            found: list[ClaimName] = []
            for each in settlements:
                if (each.seq, each.claim) in kept:
                    kept.discard((each.seq, each.claim))
                else:
                    found.append(each.claim_name)
            return found

        return lost

    def note(self, notes: Sequence[Note]) -> None:
        rows = [msgspec.structs.replace(note, progress=clean(note.progress)) for note in notes]
        self._db.send(_END["note"], (self._now, as_json(rows)))

    def cancel(self, ids: Sequence[str]) -> list[CancelResult]:
        wanted = _names(ids)
        self._db.announce(Wakeup.ORDERS)
        self._db.send(_END["lock_of"], (wanted,))
        rows = self._db.rows(_END["cancel"], (self._now, wanted))
        gone = [seq for _, at_once, _, _, seq in rows if at_once]
        if gone:
            self._db.send(_CLAIM["bring_back_next"], (numbers(gone),))
        return [CancelResult(job_id, at_once, claim) for job_id, at_once, claim, _, _ in rows]

    def release(self, job_id: str, claim: str, why: str) -> bool:
        self._db.send(_END["lock_of"], (_names([job_id]),))
        held = self._db.rows(_END["held"], (self._now, clean(job_id), claim_of(claim)))
        for seq, queue, node, life, worker, duration_ms in held:
            interrupted = Settlement(
                id=job_id, seq=seq, claim=claim_of(claim), queue=queue, state=State.QUEUED, outcome="interrupted",
                error=readable(why), interruptions=1, worker=worker, duration_ms=duration_ms,
            )  # fmt: skip
            self.settle([interrupted], Holder(node, life))
        return bool(held)

    def retry(self, ids: Sequence[str]) -> list[str]:
        queued: list[str] = []
        for job_id in map(codec.clean, ids):
            if self._db.rows(_END["retry"], (self._now, job_id)):
                queued.append(job_id)
                continue
            for queue, key in self._db.rows(_END["retriable"], (job_id,)):
                asked = as_json([{"id": "", "queue": queue, "key": key}])
                ((taken,),) = self._db.rows(_ADD["taken"], (asked,))
                raise Conflict(f"job {job_id} cannot be retried: its key '{readable(key)}' is held by job {taken}")
        if queued:
            self._db.announce(Wakeup.JOBS)
            self._db.send(_CLAIM["forgive"], (queued,))
        return queued

    def recover(
        self,
        holder: Holder,
        why: str,
        spare: Sequence[str] = (),
        *,
        died: Collection[str] = (),
        policy: JobPolicy = DEFAULT_POLICY,
    ) -> list[Settlement]:
        rows = self._db.rows(_CLAIM["orphans"], (self._now, holder.life, list(spare), holder.node))
        if rows:
            # If a row was released by others, and claimed again, while the statement waited for it, its new life may be
            # one of a node that had not been registered when the statement began.
            living = {life for (life,) in self._db.rows(_CLAIM["living_of"], ([row[6] for row in rows], holder.node))}
            rows = [row for row in rows if row[6] not in living]
        orphans = [
            Orphan(
                claim=Claim(
                    id=job_id, seq=seq, number=claim, queue=queue, payload="null", label=None, priority=0, failures=0,
                    max_attempts=1, crashes=crashes, timeout_ms=None,
                ),
                node=node, life=life, worker=worker, duration_ms=duration_ms, suspect=suspect,
            )
            for job_id, seq, claim, queue, crashes, node, life, worker, duration_ms, suspect in rows
        ]  # fmt: skip
        settlements, new = suspects.release(orphans, died, why, policy)
        if new:
            rows = as_json([{"job": orphan.claim.seq, "incarnation": orphan.life} for orphan in new])
            self._db.send(_CLAIM["add_suspects"], (self._now, rows))
        for name in {orphan.node for orphan in orphans}:
            ended = [s for orphan, s in zip(orphans, settlements, strict=True) if orphan.node == name]
            self.settle(ended, Holder(name, holder.life))
        return settlements

    def delete(self, ids: Sequence[str]) -> list[str]:
        return [str(job_id) for (job_id,) in self._db.rows(_END["delete"], (_names(ids),))]

    # recurring jobs

    def recur(self, plans: Sequence[RecurringPlan], holder: Holder) -> None:
        self._db.send(_END["recurring_lock"])
        rows = self._db.rows(_END["recurring_known"])
        known = {name: (schedule, next_run_ms, last_job) for name, schedule, next_run_ms, last_job in rows}
        self._db.send(_END["recurring_withdraw"], (holder.node,))
        for plan in plans:
            schedule, next_run_ms, last_job = known.get(plan.name, (None, 0, None))
            if schedule != plan.schedule:
                next_run_ms = plan.next_run_ms
            row = (plan.name, plan.schedule, plan.job, next_run_ms, last_job, holder.node)
            self._db.send(_END["recurring_add"], row)
        self._db.send(_END["recurring_clear"], (holder.node,))

    def fire(self, name: str, due_ms: int, next_run_ms: int, job: NewJob) -> bool:
        if not self._db.rows(_END["move_on"], (name, due_ms, next_run_ms)):
            return False
        (made,) = self.enqueue([job])
        self._db.send(_END["fired"], (name, made.id))
        return True


def _names(ids: Sequence[str]) -> list[str]:
    """Returns the ids, each once, in a form that can be sent: people may ask for any text."""
    return list(dict.fromkeys(map(codec.clean, ids)))


def _settle_row(s: Settlement) -> dict[str, Any]:
    if s.state is State.DONE and s.error is None:  # the most frequent case, with the fewest fields
        return {
            "seq": s.seq, "claim": s.claim, "state": "done", "result": s.result, "worker": s.worker, "pid": s.pid,
            "duration_ms": s.duration_ms, "outcome": s.outcome, "reason": s.reason, "failures": s.failures,
            "crashes": s.crashes, "interruptions": s.interruptions, "failed_in": s.failed_in,
        }  # fmt: skip
    return {
        "seq": s.seq, "claim": s.claim, "state": s.state.value, "result": s.result, "worker": s.worker, "pid": s.pid,
        "duration_ms": s.duration_ms, "outcome": s.outcome, "reason": s.reason, "error": readable(s.error),
        "delay_ms": s.delay_ms, "failures": s.failures, "crashes": s.crashes, "interruptions": s.interruptions,
        "failed_in": s.failed_in,
    }  # fmt: skip
