"""Adds jobs to PostgreSQL, in a transaction of the store or of a caller. It neither begins nor ends one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from chargehand.model.job import Enqueued, NewJob
from chargehand.stores.postgres import statements
from chargehand.stores.postgres.session import Statements

_SQL = statements.load("enqueue")
_encoder = msgspec.json.Encoder()


def as_json(value: Any) -> str:
    """Returns the value as one JSON text, the form in which statements take many rows."""
    return _encoder.encode(value).decode()


def row_of(job: NewJob) -> dict[str, Any]:
    """Returns a job as the statement `enqueue` takes it."""
    return {
        "id": job.id, "queue": job.queue, "rank": -job.priority, "delay_ms": job.delay_ms, "run_at_ms": job.run_at_ms,
        "max_attempts": job.max_attempts, "timeout_ms": job.timeout_ms, "key": job.key, "limit_key": job.limit_key,
        "label": job.label, "tags": as_json(job.tags) if job.tags else None, "payload": job.payload,
    }  # fmt: skip


class Adding:
    """Adds jobs; the part of `chargehand.store.JobWriting` that callers can have in their own transactions."""

    def __init__(self, db: Statements, now: int | None, sql: Mapping[str, bytes] = _SQL) -> None:
        self._statements, self._at, self._sql = db, now, sql

    def enqueue(self, jobs: Sequence[NewJob], *, promised: bool = False) -> list[Enqueued]:
        if not jobs:
            return []
        created = self.add([row_of(job) for job in jobs], promised=promised)
        return self.answers(jobs, {str(job_id) for (job_id,) in created()})

    def add(self, rows: Sequence[dict[str, Any]], *, promised: bool = False) -> Callable[[], list[tuple[Any, ...]]]:
        """Sends the statements that add jobs. The result returns the ids of those that were created."""
        text = as_json(rows)
        made = self._statements.send(self._sql["enqueue"], (self._at, text))
        if any(row["key"] is not None for row in rows):
            self._statements.send(self._sql["tidy"], (text,))
            if promised:
                self._statements.send(self._sql["alias"], (text,))
        if any(row["tags"] is not None for row in rows):
            self._statements.send(self._sql["tag"], (text,))
        return made.fetchall

    def answers(self, jobs: Sequence[NewJob], created: set[str]) -> list[Enqueued]:
        """Returns the answer for each job; for those that were not created, it finds the job that has the id or key."""
        if len(created) == len(jobs):
            return [Enqueued(job.id, True) for job in jobs]
        missing: list[int] = []
        answers: list[Enqueued | None] = []
        for at, job in enumerate(jobs):
            if job.id in created:
                created.discard(job.id)  # the same id may be in the list twice
                answers.append(Enqueued(job.id, True))
            else:
                answers.append(None)
                missing.append(at)
        asked = as_json([{"id": jobs[at].id, "queue": jobs[at].queue, "key": jobs[at].key} for at in missing])
        again: list[int] = []
        for at, (found,) in zip(missing, self._statements.rows(self._sql["taken"], (asked,)), strict=True):
            if found is None:
                again.append(at)  # the holder of the key has ended meanwhile
            else:
                answers[at] = Enqueued(str(found), False)
        for at, answer in zip(again, self.enqueue([jobs[at] for at in again]), strict=True):
            answers[at] = answer
        return [answer for answer in answers if answer is not None]
