"""What comes in: jobs that are enqueued, found by `discover`, or due again and again.

Like the transaction that it is a part of, it neither begins nor ends anything, and takes no lock.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from chargehand.ids import NewIds
from chargehand.model.job import Enqueued, NewJob
from chargehand.store import Discovered, Discovery, RecurringPlan
from chargehand.stores.sqlite import items
from chargehand.stores.sqlite.fleet import FleetWriting

ROWS_AT_ONCE = 50
"""Many jobs are inserted so many in a statement: half the cost of one each."""
_ROW = "(?, ?, 'queued', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT, _INSERT_MANY = (
    f"""
INSERT INTO chargehand_job (id, queue, state, waits_for, priority, run_at_ms, max_attempts, timeout_ms, key,
                            limit_key, created_ms, label, payload)
VALUES {", ".join([_ROW] * rows)} ON CONFLICT DO NOTHING
"""
    for rows in (1, ROWS_AT_ONCE)
)
TAKEN = """
SELECT id FROM chargehand_job WHERE id = ?1
UNION ALL
SELECT id FROM chargehand_job WHERE queue = ?2 AND key = ?3 AND state IN ('queued', 'running') LIMIT 1
"""
_PLAN = "INSERT INTO chargehand_recurring (name, schedule, job, next_run_ms, last_job) VALUES (?, ?, ?, ?, ?)"
_MOVE_ON = "UPDATE chargehand_recurring SET next_run_ms = ?3 WHERE name = ?1 AND next_run_ms = ?2 RETURNING name"


class Incoming(FleetWriting):
    """The part of `chargehand.store.Transaction` that makes jobs."""

    def __init__(self, db: Any, now_ms: int, new_ids: NewIds) -> None:
        super().__init__(db, now_ms)
        self._new_ids = new_ids

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        rows = [self._row(job) for job in jobs]
        self._db.execute("SAVEPOINT enqueue")
        before = self._db.total_changes()
        self._insert(rows)
        if self._db.total_changes() - before == len(rows):
            self._db.execute("RELEASE enqueue")
            return [Enqueued(job.id, True) for job in jobs]
        # Some were there already; which, is dearer to find out, so it is asked only now.
        self._db.execute("ROLLBACK TO enqueue; RELEASE enqueue")
        created = {row[0] for row in self._db.executemany(f"{_INSERT} RETURNING id", rows)}
        answers: list[Enqueued] = []
        for job in jobs:
            answers.append(Enqueued(job.id, True) if job.id in created else self._existing(job))
            created.discard(job.id)
        return answers

    def _insert(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert those that are not there yet, in order."""
        single = len(rows) - len(rows) % ROWS_AT_ONCE
        if single:
            starts = range(0, single, ROWS_AT_ONCE)
            self._db.executemany(_INSERT_MANY, (tuple(chain(*rows[at : at + ROWS_AT_ONCE])) for at in starts))
        self._db.executemany(_INSERT, rows[single:])

    def _row(self, job: NewJob) -> tuple[Any, ...]:
        run_at = self._now + job.delay_ms if job.run_at_ms is None else job.run_at_ms
        waits_for = "time" if run_at > self._now else None
        return (
            job.id, job.queue, waits_for, job.priority, run_at, job.max_attempts, job.timeout_ms, job.key,
            job.limit_key, self._now, job.label, job.payload,
        )  # fmt: skip

    def _existing(self, job: NewJob) -> Enqueued:
        rows = self.execute(TAKEN, (job.id, job.queue, job.key))
        return Enqueued(rows[0][0], False)

    def discover(self, pages: Sequence[Discovery]) -> list[Discovered]:
        return [items.discover(self._db, page, self._now, self._new_ids) for page in pages]

    def recur(self, plans: Sequence[RecurringPlan]) -> None:
        rows = self.execute("SELECT name, schedule, next_run_ms, last_job FROM chargehand_recurring")
        known = {name: (schedule, next_run_ms, last_job) for name, schedule, next_run_ms, last_job in rows}
        self._db.execute("DELETE FROM chargehand_recurring")
        for plan in plans:
            schedule, next_run_ms, last_job = known.get(plan.name, (None, 0, None))
            if schedule != plan.schedule:
                next_run_ms = plan.next_run_ms
            self._db.execute(_PLAN, (plan.name, plan.schedule, plan.job, next_run_ms, last_job))

    def fire(self, name: str, due_ms: int, next_run_ms: int, job: NewJob) -> bool:
        if not self.execute(_MOVE_ON, (name, due_ms, next_run_ms)):
            return False
        (made,) = self.enqueue([job])
        self._db.execute("UPDATE chargehand_recurring SET last_job = ? WHERE name = ?", (made.id, name))
        return True
