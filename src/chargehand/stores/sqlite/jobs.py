"""Writes jobs to SQLite: enqueues, claims, settles, cancels and deletes them.

Part of a transaction: it neither begins nor ends one, and takes no lock.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from chargehand.ids import NewIds, claim_of, new_claim
from chargehand.model import rates
from chargehand.model.batch import Grant, Note, Want
from chargehand.model.job import (
    DEFAULT_POLICY,
    EXPIRED,
    Claim,
    ClaimName,
    Enqueued,
    JobPolicy,
    NewJob,
    Settlement,
    State,
)
from chargehand.model.limits import least, within
from chargehand.model.records import CancelResult, Discovered, Discovery, Holder, RecurringPlan, Rescheduling
from chargehand.model.suspects import mark
from chargehand.stores.rows import clean, columns, json_text, readable, with_run
from chargehand.stores.sqlite import items
from chargehand.stores.sqlite.adding import ALIAS, PLACE, ROWS_AT_ONCE, TAKEN, Adding, Origin, Wanted, insert, is_linked
from chargehand.stores.sqlite.clock import MOVE_ON
from chargehand.stores.sqlite.flows import Endings
from chargehand.stores.sqlite.limits import Limits
from chargehand.stores.sqlite.suspects import Suspects

_ROW = "(?, ?, 'queued', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERTS = {
    count: f"""
INSERT INTO chargehand_job (id, queue, state, waits_for, priority, run_at_ms, max_attempts, timeout_ms, key,
                            limit_key, created_ms, label, tags, payload)
VALUES {", ".join([_ROW] * count)} ON CONFLICT DO NOTHING
"""
    for count in ROWS_AT_ONCE
}
_PLAN = "INSERT INTO chargehand_recurring (name, schedule, job, next_run_ms, last_job) VALUES (?, ?, ?, ?, ?)"
_RUNS = """
INSERT INTO chargehand_recurrence (name, runs) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET runs = excluded.runs
"""
_PAUSE_RECURRING = """
INSERT INTO chargehand_recurrence (name, paused_ms, paused_by, pause_reason) VALUES (?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET paused_ms = excluded.paused_ms, paused_by = excluded.paused_by,
  pause_reason = excluded.pause_reason
"""
_RESUME_RECURRING = """
UPDATE chargehand_recurrence SET paused_ms = NULL, paused_by = NULL, pause_reason = NULL
WHERE name = ? AND paused_ms IS NOT NULL RETURNING name
"""
PROMOTE_AT_ONCE = 200
"""How many scheduled jobs one claim makes due, at most: a million that become due together must not slow it down."""

_PROMOTE = """
UPDATE chargehand_job SET waits_for = NULL WHERE seq IN (
  SELECT seq FROM chargehand_job
  WHERE queue = ?1 AND state = 'queued' AND waits_for = 'time' AND run_at_ms <= ?2 ORDER BY run_at_ms LIMIT ?3)
"""
# The column `fence` has the number of the job's last claim, so that version 0.1.0, which counts it, can use the store.
# The numbers of a job ascend even if the clock was set back: the order of its attempts.
_NUMBER = "max(fence + 1, {})"
# Claims and successful outcomes are the hot path. Each is one statement for a whole batch, with one JSON text in and
# out: for every single row SQLite would release and take the interpreter lock, and the node's main thread would wait.
_CLAIM_FIELDS = columns(
    Claim,
    failures="attempts",
    number=_NUMBER.format("?4"),
    first="json(iif(fence = 0, 'true', 'false'))",
    tags="json(tags)",
    waited_ms="max(0, ?3 - run_at_ms)",
    kept="iif(fence = 0, NULL, (SELECT k.state FROM chargehand_kept AS k WHERE k.job = seq))",
    expired="json(iif(expires_at_ms <= ?3, 'true', 'false'))",
    suspect=None,
)
_FIND = f"""
SELECT json_group_array(json_array({_CLAIM_FIELDS})) FROM (
  SELECT * FROM chargehand_job
  WHERE queue = ?1 AND state = 'queued' AND waits_for IS NULL ORDER BY priority DESC, {PLACE}, seq LIMIT ?2)
"""
_FIND_OTHERS = _FIND.replace("waits_for IS NULL", "waits_for IS NULL AND seq NOT IN (SELECT value FROM json_each(?5))")
_FIND_THESE = f"""
SELECT json_group_array(json_array({_CLAIM_FIELDS})) FROM chargehand_job WHERE seq IN (SELECT value FROM json_each(?1))
"""
_CLAIM = f"""
UPDATE chargehand_job SET state = 'running', fence = {_NUMBER.format("?6")}, node = ?2, life = ?3, worker = NULL,
  started_ms = ?4, ahead = ?5
WHERE seq IN (SELECT value FROM json_each(?1))
"""
_HOLDS = "SELECT 1 FROM chargehand_job WHERE seq = ?1 AND fence = ?2 AND state = 'running'"
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
_NEXT = "SELECT min(run_at_ms) FROM chargehand_job WHERE queue = ?1 AND state = 'queued' AND waits_for = 'time'"
# What a claim must know first: which pauses hold, when the next scheduled job becomes due, and if there are suspects.
_LOOK = f"""
SELECT (SELECT json_group_array(until_ms) FROM chargehand_pause
  WHERE scope IN ('*', ?2) AND (until_ms IS NULL OR until_ms > ?3)), ({_NEXT}),
  EXISTS (SELECT 1 FROM chargehand_suspect WHERE job > 0)
"""
_WAITING = """
SELECT count(*) FROM (
  SELECT 1 FROM chargehand_job WHERE queue = ? AND state = 'queued' AND waits_for IS NULL
    AND seq NOT IN (SELECT value FROM json_each(?)) LIMIT ?)
"""
_MORE_URGENT = """
SELECT count(*) FROM (
  SELECT 1 FROM chargehand_job
  WHERE queue = ?1 AND state = 'queued' AND waits_for IS NULL AND priority > ?2
    AND seq NOT IN (SELECT value FROM json_each(?4)) LIMIT ?3)
"""
# A job with a cancel request is cancelled where it would be queued again. A queued job has no progress.
_SETTLE = """
UPDATE chargehand_job SET
  state = iif(?3 = 'queued' AND cancel_ms IS NOT NULL, 'cancelled', ?3),
  waits_for = iif(cancel_ms IS NULL, ?4, NULL),
  run_at_ms = iif(cancel_ms IS NULL, coalesce(?5, run_at_ms), run_at_ms),
  finished_ms = iif(?3 = 'queued' AND cancel_ms IS NULL, NULL, ?6),
  result = ?7, error = ?8,
  reason = iif(?3 = 'queued' AND cancel_ms IS NOT NULL, 'cancelled', ?9),
  attempts = attempts + ?10, crashes = crashes + ?11, interruptions = interruptions + ?12,
  progress = iif(?3 = 'queued' AND cancel_ms IS NULL, NULL, progress), failed_in = coalesce(?13, failed_in),
  expires_at_ms = iif(?14, NULL, expires_at_ms), node = NULL, life = NULL, worker = NULL
WHERE seq = ?1 AND fence = ?2 AND state = 'running' RETURNING seq, fence, state, flow
"""
_ATTEMPT = "INSERT INTO chargehand_attempt VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_NOTE = """
UPDATE chargehand_job SET worker = ?3, started_ms = ?4, progress = coalesce(?5, progress)
WHERE seq = ?1 AND fence = ?2 AND state = 'running'
"""
_HELD = """
SELECT seq, queue, node, life, worker, started_ms FROM chargehand_job WHERE id = ?1 AND fence = ?2 AND state = 'running'
"""
# Cancels a queued job, and marks a running one with the time of the first request.
_CANCEL = """
UPDATE chargehand_job SET
  state = iif(state = 'queued', 'cancelled', state),
  waits_for = NULL,
  finished_ms = iif(state = 'queued', ?2, finished_ms),
  reason = iif(state = 'queued', 'cancelled', reason),
  cancel_ms = iif(state = 'running', coalesce(cancel_ms, ?2), cancel_ms)
WHERE id = ?1 AND state IN ('queued', 'running') RETURNING id, state = 'cancelled', fence, queue, seq
"""
_NUMBERS_OF = "SELECT id, seq FROM chargehand_job WHERE id IN (SELECT value FROM json_each(?))"
_EXPIRE = """
UPDATE chargehand_job SET state = 'cancelled', waits_for = NULL, finished_ms = ?1, reason = ?3 WHERE seq IN (
  SELECT seq FROM chargehand_job INDEXED BY chargehand_job_expires
  WHERE expires_at_ms <= ?1 AND expires_at_ms IS NOT NULL AND state = 'queued' ORDER BY expires_at_ms LIMIT ?2)
RETURNING queue, seq
"""
_KEEP = """
INSERT INTO chargehand_kept (job, state)
SELECT seq, ?3 FROM chargehand_job WHERE seq = ?1 AND fence = ?2 AND (?4 IS NULL OR state = ?4)
ON CONFLICT DO UPDATE SET state = excluded.state
"""
_KEEP_NO_MORE = "DELETE FROM chargehand_kept WHERE job IN (SELECT value FROM json_each(?))"
_DELETE = """
DELETE FROM chargehand_job
WHERE id IN (SELECT value FROM json_each(?)) AND state IN ('done', 'failed', 'cancelled') RETURNING id, seq
"""


_claims = msgspec.json.Decoder(list[Claim])


class SqliteJobs:
    """Implements `chargehand.store.JobWriting`."""

    def __init__(self, db: Any, now_ms: int, limits: Limits, new_ids: NewIds) -> None:
        self._db, self._now, self._limits, self._new_ids = db, now_ms, limits, new_ids
        self._suspects = Suspects(db, now_ms)
        self.endings = Endings(db, now_ms, new_ids, self.enqueue)
        self._edges = self.endings.edges
        self._number = 0
        """The number of the claims of this transaction."""

    def _all(self, sql: str, bindings: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self._db.execute(sql, bindings).fetchall()

    def enqueue(self, jobs: Sequence[NewJob], *, promised: bool = False) -> list[Enqueued]:
        if self._is_linked(jobs):
            answers, flows = self._add([(None, job) for job in jobs], promised)
            self.endings.end_flows(flows)
            return answers
        rows = [self._row(job) for job in jobs]
        several = len(rows) > 1
        if several:
            self._db.execute("SAVEPOINT enqueue")
        before = self._db.total_changes()
        insert(self._db, _INSERTS, rows)
        # The count contains the rows of tags, which a trigger inserts.
        if self._db.total_changes() - before == len(rows) + sum(len(set(job.tags)) for job in jobs if job.tags):
            if several:
                self._db.execute("RELEASE enqueue")
            return [Enqueued(job.id, True) for job in jobs]
        # Some exist already. Finding out which ones costs more, so it is done only now. One alone has inserted nothing.
        if several:
            self._db.execute("ROLLBACK TO enqueue; RELEASE enqueue")
        created = {row[0] for row in self._db.executemany(f"{_INSERTS[1]} RETURNING id", rows)}
        answers: list[Enqueued] = []
        for job in jobs:
            answers.append(Enqueued(job.id, True) if job.id in created else self._existing(job))
            created.discard(job.id)
        if promised:
            aliases = [(job.id, answer.id) for job, answer in zip(jobs, answers, strict=True) if answer.id != job.id]
            self._db.executemany(ALIAS, aliases)
        return answers

    def _is_linked(self, jobs: Sequence[NewJob]) -> bool:
        """Returns whether something about these jobs depends on others than the holders of their ids and keys."""
        used = self._edges.used_by_new
        return used.shares or any(map(is_linked, jobs)) or (used.once and any(job.key is not None for job in jobs))

    def _add(self, wanted: Sequence[Wanted], promised: bool) -> tuple[list[Enqueued], list[str]]:
        return Adding(self._db, self._now, self._limits, self._edges).add(wanted, promised=promised)

    def _row(self, job: NewJob) -> tuple[Any, ...]:
        run_at = self._now + job.delay_ms if job.run_at_ms is None else job.run_at_ms
        waits_for = "time" if run_at > self._now else None
        return (
            job.id, job.queue, waits_for, job.priority, run_at, job.max_attempts, job.timeout_ms, job.key,
            job.limit_key, self._now, job.label, json.dumps(job.tags) if job.tags else None, job.payload,
        )  # fmt: skip

    def _existing(self, job: NewJob) -> Enqueued:
        rows = self._all(TAKEN, (job.id, job.queue, job.key))
        return Enqueued(rows[0][0], False)

    def claim(self, wants: Sequence[Want], holder: Holder) -> list[Grant]:
        self._number = new_claim()
        return [self._claim(want, holder) for want in wants]

    def _claim(self, want: Want, holder: Holder) -> Grant:
        ((pauses, run_at, accused),) = self._all(_LOOK, (want.queue, want.crew, self._now))
        ends: list[int | None] = json.loads(pauses)
        if ends:
            # Nothing is written when a pause expires, so the caller must learn now when to ask again.
            left = None if None in ends else max(end for end in ends if end is not None) - self._now
            return Grant(want.crew, (), left, limited=True)
        room = self._limits.room(want.queue)
        if room == 0 and not want.ahead:
            return Grant(want.crew, (), None, limited=True)  # the next claim after a slot is freed finds it
        standings = self._limits.standings(want.queue)
        may_start = rates.room(standings)
        opens_in = rates.opens_in(standings, 0, self._now) if may_start == 0 else None
        if may_start == 0 and not want.ahead:
            return Grant(want.crew, (), opens_in, limited=True)
        if run_at is not None and run_at <= self._now:
            self._db.execute(_PROMOTE, (want.queue, self._now, PROMOTE_AT_ONCE))
            ((run_at,),) = self._all(_NEXT, (want.queue,))
        slots = within(room, want.limit, want.asleep)
        limit, asleep = within(may_start, *slots)
        blocked, suspects = self._suspects.blocked(want.queue, holder) if accused else ([], set[int]())
        if not (limit or asleep):
            urgent = self._more_urgent(want, blocked)
            return Grant(want.crew, (), opens_in, limited=limit < want.limit, urgent=urgent)
        of = self._limits.of(want.queue)
        if not of.of_keys:
            claims, waiting, next_in = *self._take(want, limit, asleep, holder, blocked), None
        else:
            claims, waiting, next_in = self._take_within_key_limits(want, limit, asleep, holder, blocked)
        if suspects:
            claims = mark(claims, suspects)
        if len(claims) + waiting < limit + asleep:
            next_in = least(next_in, None if run_at is None else max(0, run_at - self._now))
        elif (limit, asleep) != slots:  # because of the rate
            next_in = rates.opens_in(standings, len(claims) + waiting, self._now)
        limited = (limit < want.limit) or of.of_keys or bool(blocked)
        return Grant(want.crew, tuple(claims), next_in, waiting, limited, self._more_urgent(want, blocked))

    def _more_urgent(self, want: Want, blocked: Sequence[int]) -> int:
        """Returns how many ready jobs are more urgent than the least urgent prefetched claim, up to `want.ahead`."""
        if not want.ahead:
            return 0
        ((count,),) = self._all(_MORE_URGENT, (want.queue, want.above, want.ahead, json_text(blocked)))
        return count

    def _take(
        self, want: Want, limit: int, asleep: int, holder: Holder, blocked: Sequence[int]
    ) -> tuple[list[Claim], int]:
        if blocked:
            ((found,),) = self._all(_FIND_OTHERS, (want.queue, limit, self._now, self._number, json_text(blocked)))
        else:
            ((found,),) = self._all(_FIND, (want.queue, limit, self._now, self._number))
        claims = _claims.decode(found)
        self._hold([claim.seq for claim in claims], want, holder)
        self._limits.started(want.queue, [None] * len(claims))
        waiting = 0
        if asleep:
            ((waiting,),) = self._all(_WAITING, (want.queue, json_text(blocked), asleep))
        return claims, waiting

    def _take_within_key_limits(
        self, want: Want, limit: int, asleep: int, holder: Holder, blocked: Sequence[int]
    ) -> tuple[list[Claim], int, int | None]:
        chosen = self._limits.choose(want.queue, limit, asleep, blocked)
        ((found,),) = self._all(_FIND_THESE, (json_text(chosen.seqs), None, self._now, self._number))
        claims = {claim.seq: claim for claim in _claims.decode(found)}
        self._hold(chosen.seqs, want, holder)
        self._limits.started(want.queue, chosen.keys)
        next_in = 0 if chosen.cut_short else self._limits.opens_in(want.queue)
        return [claims[seq] for seq in chosen.seqs], chosen.waiting, next_in

    def _hold(self, seqs: Sequence[int], want: Want, holder: Holder) -> None:
        at_once = want.limit - want.early
        for ahead, part in enumerate((seqs[:at_once], seqs[at_once:])):
            if part:
                args = (json_text(part), holder.node, holder.life, self._now, ahead, self._number)
                self._db.execute(_CLAIM, args)

    def settle(self, settlements: Sequence[Settlement], holder: Holder) -> list[ClaimName]:
        good = [s for s in settlements if s.state is State.DONE]
        if good and self._settle_done(good, holder):
            settlements = [s for s in settlements if s.state is not State.DONE]
        return self._settle(settlements, holder) if settlements else []

    def holds(self, seq: int, claim: int) -> bool:
        return bool(self._db.execute(_HOLDS, (seq, claim)).fetchall())

    def _settle_done(self, settlements: Sequence[Settlement], holder: Holder) -> bool:
        """Settles all of them at once. Returns False, and writes nothing, if one of the claims no longer holds."""
        text = json_text([(s.seq, s.claim, s.result, s.worker, s.pid, s.duration_ms) for s in settlements])
        self._db.execute("SAVEPOINT settle")
        self._db.execute(_DONE, (text, self._now))
        kept = self._db.changes() == len(settlements)
        if kept:
            self._db.execute(_DONE_ATTEMPTS, (text, holder.node, self._now))
            self._limits.freed((s.queue, s.seq) for s in settlements)
            follow = [s for s in settlements if s.follow]
            flows = self._follow([(Origin(s.id, s.seq, s.flow), s.follow) for s in follow])
            done = [s.seq for s in settlements]
            self._forget_kept(done)
            self.endings.done(done, [*(s.flow for s in settlements if s.flow is not None), *flows])
        self._db.execute("RELEASE settle" if kept else "ROLLBACK TO settle; RELEASE settle")
        return kept

    def _settle(self, settlements: Sequence[Settlement], holder: Holder) -> list[ClaimName]:
        rows = [self._settle_row(settlement) for settlement in settlements]
        held = {(seq, claim): (state, flow) for seq, claim, state, flow in self._db.executemany(_SETTLE, rows)}
        kept: list[Settlement] = []
        lost: list[ClaimName] = []
        follow: list[tuple[Origin, Sequence[NewJob]]] = []
        states: dict[int, str] = {}
        for s in settlements:
            # Only the first settlement of a claim counts.
            state, flow = held.pop((s.seq, s.claim), (None, None))
            if state is None:
                lost.append(s.claim_name)
                continue
            kept.append(s)
            states[s.seq] = state
            if s.follow:
                follow.append((Origin(s.id, s.seq, flow), s.follow))
        self._db.executemany(
            _ATTEMPT,
            [
                (
                    s.seq,
                    s.claim,
                    holder.node,
                    s.worker,
                    s.pid,
                    self._now - s.duration_ms,
                    s.duration_ms,
                    s.outcome,
                    readable(s.error),
                )
                for s in kept
                if s.outcome is not None
            ],
        )
        self._limits.freed((s.queue, s.seq) for s in kept)
        self._limits.returned(kept)
        self._keep((s.seq, s.claim, s.kept) for s in kept if states[s.seq] != State.DONE)
        flows = self._follow(follow)
        self._forget_kept([seq for seq, state in states.items() if state == State.DONE])
        self.endings.ended([seq for seq, state in states.items() if state != State.QUEUED])
        self.endings.end_flows(flows)
        return lost

    def _follow(self, follow: Sequence[tuple[Origin, Sequence[NewJob]]]) -> list[str]:
        """Adds the jobs that settled jobs have enqueued or spawned. Returns the flows that may have ended with one that
        did at once: not before everything is added."""
        plain: list[NewJob] = []
        linked: list[Wanted] = []
        for origin, jobs in follow:
            if self._is_linked(jobs):
                linked += [(origin, job) for job in jobs]
            else:
                plain += jobs
        flows = self._add(linked, True)[1] if linked else []
        if plain:
            self.enqueue(plain, promised=True)
        return flows

    def _forget_kept(self, done: Sequence[int]) -> None:
        """Deletes the checkpoints of jobs that are done."""
        if done and self._edges.used.kept:
            self._db.execute(_KEEP_NO_MORE, (json_text(done),))

    def _keep(self, kept: Iterable[tuple[int, int, str | None]], state: str | None = None) -> None:
        """Keeps the checkpoints of jobs in this state, or in any, each with its number and that of its claim."""
        rows = [(seq, claim, clean(text), state) for seq, claim, text in kept if text is not None]
        if rows:
            self._db.executemany(_KEEP, rows)
            self._edges.used.kept = True

    def _settle_row(self, s: Settlement) -> tuple[Any, ...]:
        queued = s.state is State.QUEUED
        run_at = self._now + s.delay_ms if queued and s.delay_ms else None
        return (
            s.seq, s.claim, s.state.value, "time" if run_at is not None else None, run_at,
            self._now, s.result, readable(s.error), s.reason, s.failures, s.crashes, s.interruptions,
            s.failed_in, s.outcome is not None,
        )  # fmt: skip

    def note(self, notes: Sequence[Note]) -> None:
        rows = [(n.seq, n.claim, n.worker, self._now - n.age_ms, clean(n.progress)) for n in notes]
        self._db.executemany(_NOTE, rows)
        self._keep(((n.seq, n.claim, n.kept) for n in notes), "running")

    def cancel(self, ids: Sequence[str]) -> list[CancelResult]:
        rows = list(self._db.executemany(_CANCEL, [(clean(job_id), self._now) for job_id in ids]))
        ended = [(queue, seq) for _, at_once, _, queue, seq in rows if at_once]
        self._limits.withdrawn(ended)
        self.endings.ended([seq for _, seq in ended])
        return [CancelResult(job_id, bool(at_once), claim) for job_id, at_once, claim, _, _ in rows]

    def expire(self, limit: int) -> int:
        rows = self._all(_EXPIRE, (self._now, limit, EXPIRED))
        self._limits.withdrawn(rows)
        self.endings.ended([seq for _, seq in rows])
        return len(rows)

    def release(self, job_id: str, claim: str, why: str) -> bool:
        held = self._all(_HELD, (clean(job_id), claim_of(claim)))
        for seq, queue, node, life, worker, started_ms in held:
            interrupted = Settlement(
                id=job_id, seq=seq, claim=claim_of(claim), queue=queue, state=State.QUEUED, outcome="interrupted",
                error=readable(why), interruptions=1, worker=worker, duration_ms=max(0, self._now - started_ms),
            )  # fmt: skip
            self.settle([interrupted], Holder(node, life))
        return bool(held)

    def discover(self, pages: Sequence[Discovery]) -> list[Discovered]:
        return [items.discover(self._db, page, self._now, self._new_ids) for page in pages]

    def recur(self, plans: Sequence[RecurringPlan], holder: Holder) -> None:
        rows = self._all("SELECT name, schedule, next_run_ms, last_job FROM chargehand_recurring")
        known = {name: (schedule, next_run_ms, last_job) for name, schedule, next_run_ms, last_job in rows}
        self._db.execute("DELETE FROM chargehand_recurring")
        for plan in plans:
            schedule, next_run_ms, last_job = known.get(plan.name, (None, 0, None))
            if schedule != plan.schedule:
                next_run_ms = plan.next_run_ms
            self._db.execute(_PLAN, (plan.name, plan.schedule, plan.job, next_run_ms, last_job))

    def fire(self, name: str, due_ms: int, next_run_ms: int, job: NewJob) -> bool:
        if not self._all(MOVE_ON, (name, due_ms, next_run_ms)):
            return False
        if self._all("SELECT 1 FROM chargehand_recurrence WHERE name = ? AND paused_ms IS NOT NULL", (name,)):
            return False
        return self.run_recurring(name, job) is not None

    def run_recurring(self, name: str, job: NewJob) -> str | None:
        if not self._all("SELECT 1 FROM chargehand_recurring WHERE name = ?", (name,)):
            return None
        (made,) = self.enqueue([job])
        self._db.execute("UPDATE chargehand_recurring SET last_job = ? WHERE name = ?", (made.id, name))
        before = next(iter(self._all("SELECT runs FROM chargehand_recurrence WHERE name = ?", (name,))), (None,))
        self._db.execute(_RUNS, (name, with_run(before[0], made.id)))
        return made.id

    def pause_recurring(self, name: str, who: str, reason: str | None) -> bool:
        if not self._all("SELECT 1 FROM chargehand_recurring WHERE name = ?", (name,)):
            return False
        self._db.execute(_PAUSE_RECURRING, (name, self._now, readable(who), readable(reason)))
        return True

    def resume_recurring(self, name: str, skipped: Rescheduling | None = None) -> bool:
        if not self._all(_RESUME_RECURRING, (name,)):
            return False
        if skipped is not None:
            self._all(MOVE_ON, (name, skipped.due_ms, skipped.next_run_ms))
        return True

    def retry(self, ids: Sequence[str]) -> list[str]:
        wanted = list(dict.fromkeys(map(clean, ids)))
        found = dict(self._all(_NUMBERS_OF, (json.dumps(wanted),)))
        retried = self._edges.retry([found[job_id] for job_id in wanted if job_id in found], strictly=True)
        self._suspects.forgive(retried)
        return retried

    def recover(
        self,
        holder: Holder,
        why: str,
        spare: Sequence[str] = (),
        *,
        died: Collection[str] = (),
        policy: JobPolicy = DEFAULT_POLICY,
    ) -> list[Settlement]:
        # A file has one node, so every other life is an earlier life of it, even under another name.
        held = self._suspects.release(holder, spare, died, why, policy)
        for name in {node for node, _ in held}:
            self.settle([s for node, s in held if node == name], Holder(name, holder.life))
        return [s for _, s in held]

    def delete(self, ids: Sequence[str]) -> list[str]:
        return self._gone(self._all(_DELETE, (json.dumps(list(ids)),)))

    def _gone(self, gone: Sequence[tuple[Any, ...]]) -> list[str]:
        """Deletes the attempts of deleted jobs. Returns the ids of the jobs."""
        self._db.executemany("DELETE FROM chargehand_attempt WHERE job = ?", [(seq,) for _, seq in gone])
        return [str(job_id) for job_id, _ in gone]
