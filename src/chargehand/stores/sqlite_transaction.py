"""One SQLite transaction and what can be done in it: the statements that write jobs (`sqlite_fleet` has the others).

It neither begins nor ends the transaction, and takes no lock: whoever made it does.
"""

import json
from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from chargehand.errors import Conflict
from chargehand.model.batch import Grant, Note, Want
from chargehand.model.job import Claim, Enqueued, NewJob, Settlement, State
from chargehand.store import Holder
from chargehand.stores.sqlite_fleet import FleetWriting

PROMOTE_AT_ONCE = 200
"""Future jobs made due by one claim, at most: a million that fall due together must not make one claim slow."""

_INSERT = """
INSERT INTO chargehand_job (id, queue, state, waits_for, priority, run_at_ms, max_attempts, timeout_ms, key,
                            created_ms, label, payload)
VALUES (?, ?, 'queued', ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_TAKEN = """
SELECT id FROM chargehand_job WHERE id = ?1
UNION ALL
SELECT id FROM chargehand_job WHERE queue = ?2 AND key = ?3 AND state IN ('queued', 'running') LIMIT 1
"""
_PROMOTE = """
UPDATE chargehand_job SET waits_for = NULL WHERE seq IN (
  SELECT seq FROM chargehand_job
  WHERE queue = ?1 AND state = 'queued' AND waits_for = 'time' AND run_at_ms <= ?2 ORDER BY run_at_ms LIMIT ?3)
"""
# Claims and good ends are the hot path. Each is one statement for a whole batch, in and out as one JSON text: every row
# that crosses into Python by itself would take and release the interpreter, and make the node's main thread wait.
_CLAIM_FIELDS = ", ".join("fence + 1" if name == "fence" else name for name in Claim.__struct_fields__)
_FIND = f"""
SELECT json_group_array(json_array({_CLAIM_FIELDS})) FROM (
  SELECT * FROM chargehand_job
  WHERE queue = ?1 AND state = 'queued' AND waits_for IS NULL ORDER BY priority DESC, seq LIMIT ?2)
"""
_CLAIM = """
UPDATE chargehand_job SET state = 'running', fence = fence + 1, node = ?2, life = ?3, worker = NULL, started_ms = ?4
WHERE seq IN (SELECT value FROM json_each(?1))
"""
_DONE = """
UPDATE chargehand_job NOT INDEXED SET state = 'done', finished_ms = ?2, result = ended.value ->> 2, error = NULL,
  reason = NULL, node = NULL, life = NULL, worker = NULL
FROM json_each(?1) AS ended
WHERE seq = ended.value ->> 0 AND fence = ended.value ->> 1 AND state = 'running'
"""
_DONE_ATTEMPTS = """
INSERT INTO chargehand_attempt (job, fence, node, worker, pid, started_ms, duration_ms, outcome)
SELECT value ->> 0, value ->> 1, ?2, value ->> 3, value ->> 4, ?3 - (value ->> 5), value ->> 5, 'done'
FROM json_each(?1)
"""
_NEXT = "SELECT min(run_at_ms) FROM chargehand_job WHERE queue = ? AND state = 'queued' AND waits_for = 'time'"
_WAITING = """
SELECT count(*) FROM (
  SELECT 1 FROM chargehand_job WHERE queue = ? AND state = 'queued' AND waits_for IS NULL LIMIT ?)
"""
_PAUSED = """
SELECT until_ms FROM chargehand_pause WHERE scope IN ('*', ?1) AND (until_ms IS NULL OR until_ms > ?2)
"""
_SETTLE = """
UPDATE chargehand_job SET state = ?3, waits_for = ?4, run_at_ms = coalesce(?5, run_at_ms), finished_ms = ?6,
  result = ?7, error = ?8, reason = ?9, attempts = attempts + ?10, crashes = crashes + ?11,
  interruptions = interruptions + ?12, node = NULL, life = NULL, worker = NULL
WHERE seq = ?1 AND fence = ?2 AND state = 'running' RETURNING seq, fence
"""
_ATTEMPT = "INSERT INTO chargehand_attempt VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_NOTE = """
UPDATE chargehand_job SET worker = ?3, started_ms = ?4 WHERE seq = ?1 AND fence = ?2 AND state = 'running'
"""
_ORPHANS = """
SELECT id, seq, fence, queue, node, worker, started_ms FROM chargehand_job
WHERE state = 'running' AND life <> ?1
  AND (?2 = '[]' OR worker IS NOT NULL AND worker NOT IN (SELECT value FROM json_each(?2)))
"""
_CANCEL = """
UPDATE chargehand_job SET state = 'cancelled', waits_for = NULL, finished_ms = ?2, reason = 'cancelled'
WHERE id = ?1 AND state = 'queued' RETURNING id
"""
_RETRY = """
UPDATE chargehand_job SET state = 'queued', waits_for = NULL, run_at_ms = ?2, finished_ms = NULL, reason = NULL,
  error = NULL, result = NULL, attempts = 0, crashes = 0, interruptions = 0
WHERE id = ?1 AND state IN ('failed', 'cancelled') RETURNING id
"""


_claims = msgspec.json.Decoder(list[Claim])
_encoder = msgspec.json.Encoder()


class SqliteTransaction(FleetWriting):
    """See the module and `chargehand.store.Transaction`."""

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        rows = [self._row(job) for job in jobs]
        self._db.execute("SAVEPOINT enqueue")
        before = self._db.total_changes()
        self._db.executemany(_INSERT, rows)
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

    def _row(self, job: NewJob) -> tuple[Any, ...]:
        run_at = self._now + job.delay_ms if job.run_at_ms is None else job.run_at_ms
        waits_for = "time" if run_at > self._now else None
        return (
            job.id, job.queue, waits_for, job.priority, run_at, job.max_attempts, job.timeout_ms, job.key,
            self._now, job.label, job.payload,
        )  # fmt: skip

    def _existing(self, job: NewJob) -> Enqueued:
        rows = self.execute(_TAKEN, (job.id, job.queue, job.key))
        return Enqueued(rows[0][0], False)

    def claim(self, wants: Sequence[Want], holder: Holder) -> list[Grant]:
        return [self._claim(want, holder) for want in wants]

    def _claim(self, want: Want, holder: Holder) -> Grant:
        ends = [until for (until,) in self.execute(_PAUSED, (want.crew, self._now))]
        if ends:
            # Nobody writes anything when a pause runs out, so whoever asks must learn now when to ask again.
            return Grant(want.crew, (), None if None in ends else max(ends) - self._now)
        self._db.execute(_PROMOTE, (want.queue, self._now, PROMOTE_AT_ONCE))
        ((found,),) = self.execute(_FIND, (want.queue, want.limit))
        claims = _claims.decode(found)
        if claims:
            seqs = json.dumps([claim.seq for claim in claims])
            self._db.execute(_CLAIM, (seqs, holder.node, holder.life, self._now))
        waiting, next_in = 0, None
        if want.asleep:
            ((waiting,),) = self.execute(_WAITING, (want.queue, want.asleep))
        if len(claims) + waiting < want.limit + want.asleep:
            ((run_at,),) = self.execute(_NEXT, (want.queue,))
            next_in = None if run_at is None else max(0, run_at - self._now)
        return Grant(want.crew, tuple(claims), next_in, waiting)

    def settle(self, settlements: Sequence[Settlement], holder: Holder) -> list[str]:
        good = [s for s in settlements if s.state is State.DONE and not s.follow]
        if good and self._end_well(good, holder):
            settlements = [s for s in settlements if s.state is not State.DONE or s.follow]
        return self._settle(settlements, holder)

    def _end_well(self, settlements: Sequence[Settlement], holder: Holder) -> bool:
        """All of them at once; if one of the claims no longer holds, nothing is written and the answer is no."""
        text = _encoder.encode(
            [(s.seq, s.fence, s.result, s.worker, s.pid, s.duration_ms) for s in settlements]
        ).decode()
        self._db.execute("SAVEPOINT settle")
        self._db.execute(_DONE, (text, self._now))
        kept = self._db.changes() == len(settlements)
        if kept:
            self._db.execute(_DONE_ATTEMPTS, (text, holder.node, self._now))
        self._db.execute("RELEASE settle" if kept else "ROLLBACK TO settle; RELEASE settle")
        return kept

    def _settle(self, settlements: Sequence[Settlement], holder: Holder) -> list[str]:
        rows = [self._settle_row(settlement) for settlement in settlements]
        held = set(self._db.executemany(_SETTLE, rows))
        kept: list[Settlement] = []
        lost: list[str] = []
        for s in settlements:
            if (s.seq, s.fence) in held:
                held.discard((s.seq, s.fence))  # a second one of the same claim comes too late
                kept.append(s)
            else:
                lost.append(s.id)
        self._db.executemany(
            _ATTEMPT,
            [
                (
                    s.seq,
                    s.fence,
                    holder.node,
                    s.worker,
                    s.pid,
                    self._now - s.duration_ms,
                    s.duration_ms,
                    s.outcome,
                    s.error,
                )
                for s in kept
                if s.outcome is not None
            ],
        )
        follow = [job for s in kept for job in s.follow]
        if follow:
            self.enqueue(follow)
        return lost

    def _settle_row(self, s: Settlement) -> tuple[Any, ...]:
        queued = s.state is State.QUEUED
        run_at = self._now + s.delay_ms if queued and s.delay_ms else None
        return (
            s.seq, s.fence, s.state.value, "time" if run_at is not None else None, run_at,
            None if queued else self._now, s.result, s.error, s.reason, s.attempts, s.crashes, s.interruptions,
        )  # fmt: skip

    def note(self, notes: Sequence[Note]) -> None:
        self._db.executemany(_NOTE, [(n.seq, n.fence, n.worker, self._now - n.age_ms) for n in notes])

    def cancel(self, ids: Sequence[str]) -> list[str]:
        return [row[0] for row in self._db.executemany(_CANCEL, [(job_id, self._now) for job_id in ids])]

    def retry(self, ids: Sequence[str]) -> list[str]:
        queued: list[str] = []
        for job_id in ids:
            try:
                queued += [row[0] for row in self.execute(_RETRY, (job_id, self._now))]
            except apsw.ConstraintError:
                (queue, key), *_ = self.execute("SELECT queue, key FROM chargehand_job WHERE id = ?", (job_id,))
                taken = self.execute(_TAKEN, ("", queue, key))[0][0]
                raise Conflict(f"job {job_id} cannot be retried: its key {key!r} is held by job {taken}") from None
        return queued

    def recover(self, holder: Holder, why: str, spare: Sequence[str] = ()) -> list[str]:
        # A file has one node, so every other life is an earlier one of it, whatever it was called.
        orphans = self.execute(_ORPHANS, (holder.life, json.dumps(list(spare))))
        held = [
            (node, Settlement(
                id=job_id, seq=seq, fence=fence, queue=queue, state=State.QUEUED, outcome="interrupted", error=why,
                interruptions=1, worker=worker, duration_ms=max(0, self._now - started_ms),
            ))
            for job_id, seq, fence, queue, node, worker, started_ms in orphans
        ]  # fmt: skip
        for name in {node for node, _ in held}:
            self.settle([s for node, s in held if node == name], Holder(name, holder.life))
        return [s.id for _, s in held]
