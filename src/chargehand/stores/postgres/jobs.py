"""Writes jobs to PostgreSQL: enqueues, settles, cancels, retries, deletes and recovers them. `claiming` claims.

Part of a transaction: it neither begins nor ends one.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, Literal

import msgspec

from chargehand import clock, codec
from chargehand.errors import Conflict, StoreBusy
from chargehand.ids import NewIds, claim_of
from chargehand.model import suspects
from chargehand.model.batch import Grant, Note, Want
from chargehand.model.flows import BadJob, revivable, revival, why_not_revived
from chargehand.model.job import DEFAULT_POLICY, Claim, ClaimName, JobPolicy, NewJob, Settlement, State
from chargehand.model.records import CancelResult, Discovered, Discovery, Holder, RecurringPlan, Rescheduling
from chargehand.model.suspects import Orphan
from chargehand.model.wakeups import Wakeup
from chargehand.stores.postgres import items, rates, statements
from chargehand.stores.postgres.adding import (
    Adding,
    as_json,
    is_linked,
    is_single,
    linked_row_of,
    new_row_of,
    row_of,
)
from chargehand.stores.postgres.claiming import Claiming
from chargehand.stores.postgres.edges import Effects, Following, lock, patience
from chargehand.stores.postgres.ending import Ending
from chargehand.stores.postgres.session import Cursor, Session, numbers
from chargehand.stores.rows import clean, readable, with_run

LOOK_MOST = 100_000
"""How many edges one transaction looks at, at most."""
PATIENCE_MS = 100
TRY_AGAIN, LONGEST_WAIT = 0.1, 30.0
"""How often and for how long a worker that settles its own job waits for the key of a follow-up."""

_ADD = statements.load("enqueue")
_END = statements.load("settle")
_CLAIM = statements.load("claim")
_FLOW = statements.load("flows")


class PostgresJobs(Adding):
    """Implements `chargehand.store.JobWriting`."""

    def __init__(
        self, db: Session, now: int | None, new_ids: NewIds, registered: Holder | None, effects: Effects | None = None
    ) -> None:
        super().__init__(db, now)
        self._db, self._now, self._new_ids = db, now, new_ids
        self._claiming = Claiming(db, now, registered)
        self.effects = effects or Effects()
        self._following = Following(db, now, self.effects)
        self._ending = Ending(db, now, new_ids, self.effects, self.enqueue)
        self.begun: set[str] = set()
        """The flows that this transaction has begun: more jobs may come until it commits."""

    def add(self, rows: Sequence[dict[str, Any]], *, promised: bool = False) -> Callable[[], list[tuple[Any, ...]]]:
        self._db.announce(Wakeup.JOBS)
        return super().add(rows, promised=promised)

    def add_linked(
        self, rows: Sequence[dict[str, Any]], *, promised: bool = False
    ) -> Callable[[], list[tuple[Any, ...]]]:
        self._db.announce(Wakeup.JOBS)
        made = super().add_linked(rows, promised=promised)
        begun = self.begun & {row.get("flow") for row in rows}
        if begun:
            self._db.send(_ADD["place_flows"], (as_json(sorted(begun)),))
        self.effects.due = True
        return made

    def close(self, claims: Collection[tuple[int, int]]) -> None:
        """Lets followers go on of jobs that ended with these claims in an earlier transaction."""
        if claims:
            self._following.close(claims, ())()

    def look(self, most: int = LOOK_MOST) -> int:
        """Looks at the edges that are due. Returns how many it has decided."""
        self.effects.due = False
        return self._following.look(most)

    def end_flows(self, flows: Collection[str]) -> None:
        """Ends those of these flows that have no live job."""
        self._ending.end(flows)

    def send_ends(self, flows: Collection[str]) -> Callable[[], set[str]]:
        """Sends the statements that end these flows at the end of a pipeline, as far as they name no job for that. The
        result returns the others."""
        return self._ending.send(flows)

    def complete(self, *, last: bool) -> None:
        """Does what the changes so far mean for other jobs and for flows; `last`: no more changes come."""
        if self.effects.due:
            self.look()
        over, self.effects.flows = self.effects.flows | self.begun if last else self.effects.flows - self.begun, set()
        self.end_flows(over)
        if self.effects.woken:
            self._db.announce(Wakeup.JOBS)

    def discover(self, pages: Sequence[Discovery]) -> list[Discovered]:
        self._db.announce(Wakeup.JOBS)
        return [items.discover(self._db, page, self._now, self._new_ids) for page in pages]

    # claiming and settling

    def claim(self, wants: Sequence[Want], holder: Holder) -> list[Grant]:
        return self._claiming.claim(wants, holder)

    def settle(self, settlements: Sequence[Settlement], holder: Holder) -> list[ClaimName]:
        if not any(may_wait(job) for each in settlements for job in each.follow):
            return self._end_now(settlements, holder)
        until = clock.monotonic() + LONGEST_WAIT
        while True:
            # A caller may hold the key of a follow-up. The rows of the jobs are not locked meanwhile: nodes need them.
            try:
                with self._db.attempt(PATIENCE_MS):
                    return self._end_now(settlements, holder)
            except StoreBusy:
                if clock.monotonic() >= until:
                    raise
            clock.sleep(TRY_AGAIN)

    def _end_now(self, settlements: Sequence[Settlement], holder: Holder) -> list[ClaimName]:
        sent = self.end(settlements, holder, following=True)
        lost = sent.lost()
        self.complete(last=False)
        return lost

    def holds(self, seq: int, claim: int) -> bool:
        return bool(self._db.rows(_END["holds"], (seq, claim)))

    def end(self, settlements: Sequence[Settlement], holder: Holder, *, following: bool) -> "Sent":
        """Sends the statements that settle. `following`: with those that let followers go on; they are needed if there
        are any, and cost as much as all others."""
        sent = Sent(settlements, self._following)
        if not settlements:
            return sent
        first: dict[tuple[int, int], Settlement] = {}
        for each in settlements:
            first.setdefault((each.seq, each.claim), each)  # only the first settlement of a claim counts
        self._db.send(_CLAIM["lock"], (sorted({each.queue for each in settlements}),))
        if self._db.announces and any(each.state is State.QUEUED for each in settlements):
            self._db.announce(Wakeup.JOBS)
        returned = [claim for claim, each in first.items() if each.outcome is None]
        if returned:
            rates.give_back(self._db, self._now, returned)
        kept = [
            {"seq": each.seq, "claim": each.claim, "kept": clean(each.kept)} for each in first.values() if each.kept
        ]
        if kept:
            self._db.send(_END["keep"], (as_json(kept),))
        text = as_json([_settle_row(each) for each in first.values()])
        sent.held = self._db.send(_END["settle"], (self._now, text, holder.node))
        sent.edges = self._db.send(_CLAIM["bring_back"], (numbers([seq for seq, _ in first]),))
        follow = [(each, job) for each in first.values() for job in each.follow]
        if follow:
            self._follow(follow)
            following = following or any(job.child for _, job in follow)
        if following:
            sent.asked = {each.flow for each in first.values() if each.flow is not None}
            sent.noted = self._following.close(first, sent.asked)
        return sent

    def _follow(self, follow: Sequence[tuple[Settlement, NewJob]]) -> None:
        """Adds the jobs of outcomes, those that were accepted."""
        joined = {job.flow for each, job in follow if job.flow is not None and job.flow != each.flow}
        if joined:  # a flow of its own cannot end meanwhile: others see the job as running until the commit
            self._db.send(_ADD["join_flows"], (as_json(sorted(joined)),))
        for kind, run in groupby(follow, lambda each: _kind_of(each[1])):
            jobs = list(run)
            if kind == "spawned":
                self._add_spawned(jobs)
                continue
            rows = [(job, _by(job, each), each) for each, job in jobs]
            if kind == "plain":
                self.add([row_of(job) | by for job, by, _ in rows], promised=True)
            elif kind == "linked":
                self.add_linked([linked_row_of(job) | by for job, by, _ in rows], promised=True)
            else:
                accepted = set(self._db.rows(_ADD["accepted"], (as_json([by for _, by, _ in rows]),)))
                for job, by, each in rows:
                    if (each.seq, each.claim) in accepted:
                        self.enqueue_single(job, promised=True, by=by)

    def _add_spawned(self, jobs: Sequence[tuple[Settlement, NewJob]]) -> None:
        """Sends the statements that add jobs without keys with outcomes."""
        self._db.announce(Wakeup.JOBS)
        outcomes: list[dict[str, Any]] = []
        last: tuple[Settlement, str | None, bool] | None = None
        seen = set[tuple[str, int, int]]()
        for each, job in jobs:
            name = (job.id, each.seq, each.claim)
            if name in seen:
                continue  # it comes twice
            seen.add(name)
            if last is None or last[0] is not each or last[1] != job.flow or last[2] != job.child:
                last = (each, job.flow, job.child)
                outcomes.append(_by(job, each) | {"flow": job.flow, "jobs": []})
            outcomes[-1]["jobs"].append(new_row_of(job))
        special = [(each, job) for each, job in jobs if job.after or job.sequence is not None or job.tags]
        rows = [linked_row_of(job) | _by(job, each) for each, job in special]
        text = as_json(rows)
        self._add_sequences(rows, text)
        self._db.send(_ADD["add_spawned"], (self._now, as_json(outcomes)))
        self._add_names(rows, text, promised=True)
        self._relate(rows, text, [{"id": job.id, "flow": job.flow} for _, job in jobs if job.flow is not None])
        self.effects.due |= bool(rows) or any(job.flow != each.flow for each, job in jobs)

    def note(self, notes: Sequence[Note]) -> None:
        rows = [msgspec.structs.replace(note, progress=clean(note.progress), kept=clean(note.kept)) for note in notes]
        text = as_json(rows)
        self._db.send(_END["note"], (self._now, text))
        if any(note.kept is not None for note in notes):
            self._db.send(_END["keep"], (text,))

    def take_turns(self) -> None:
        """Waits for the operations of other people, and lets them wait until this transaction ends.

        Each locks many jobs and what follows them, step by step: two of them would wait for each other.
        """
        if self._db.announces:
            self._db.send(_END["people_lock"])
            return
        with suppress(StoreBusy), self._db.attempt(patience(self._db)):  # a node waits for nobody
            self._db.send(_END["people_lock"])

    def _lock(self, sql: bytes, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        return lock(self._db, sql, args) if self._db.announces else self._db.rows(sql, args)

    def cancel(self, ids: Sequence[str]) -> list[CancelResult]:
        self.take_turns()
        wanted = _names(ids)
        self._db.announce(Wakeup.ORDERS)
        self._db.send(_END["lock_of"], (wanted,))
        self._lock(_END["lock_with_followers"], (wanted,))
        rows = self._db.rows(_END["cancel"], (self._now, wanted))
        gone = [(seq, flow) for _, at_once, _, _, seq, flow in rows if at_once]
        self._unstarted(gone)
        return [CancelResult(job_id, at_once, claim) for job_id, at_once, claim, *_ in rows]

    def expire(self, limit: int) -> int:
        gone = self._db.rows(_END["expire"], (self._now, limit))
        self._unstarted(gone)
        return len(gone)

    def _unstarted(self, gone: Sequence[tuple[int, str | None]]) -> None:
        """Lets others go on after jobs have ended that waited."""
        if not gone:
            return
        seqs = [seq for seq, _ in gone]
        self._db.send(_CLAIM["bring_back_next"], (numbers(seqs),))
        self._following.ended(seqs)
        self.effects.flows |= {str(flow) for _, flow in gone if flow is not None}
        self.complete(last=False)

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
        self.take_turns()
        found = dict(self._db.rows(_END["numbers_of"], (_names(ids),)))
        named = {int(found[job_id]): job_id for job_id in _names(ids) if job_id in found}
        return self.revive(list(named), strictly=True)

    def revive(self, seqs: Sequence[int], *, strictly: bool = False) -> list[str]:
        """Queues those of these jobs again that can be, and those that failed because of them. Returns the ids of the
        former. `strictly`: raises Conflict if one of them cannot be."""
        rows = self._lock(_END["bad"], (numbers(seqs),))
        if not rows:
            return []
        bad, flows = self._with_holders(rows), {int(row[0]): str(row[4]) for row in rows if row[4] is not None}
        named = [seq for seq in seqs if seq in bad]
        needs = [(int(job), int(needed)) for job, needed in self._db.rows(_END["needs"], (numbers(list(bad)),))]
        found = revival(named, bad, needs)
        if strictly:
            self._refuse(named, bad, needs, found.taken)
        for seq in found.taken:
            if seq not in named:
                self._db.send(_END["not_revived"], (seq, why_not_revived(found.taken[seq])))
        revived = numbers(sorted(found.queued))
        made = self._db.rows(_END["revive"], (self._now, revived, numbers(named if strictly else ())))
        if len(made) != len(found.queued):
            raise Conflict("the jobs cannot be retried: the key of one of them was taken meanwhile; try again")
        self._wait_again(revived)
        self._db.send(_FLOW["reopen"], (sorted({flows[seq] for seq in found.queued if seq in flows}),))
        queued = [bad[seq].id for seq in named if seq in found.queued]
        if queued:
            self._db.announce(Wakeup.JOBS)
            self._db.send(_CLAIM["forgive"], (queued,))
        return queued

    def _wait_again(self, revived: str) -> None:
        self._lock(_END["lock_needed"], (revived,))
        self._db.send(_END["wait_again"], (revived,))
        rows = [
            {"id": job_id, "queue": queue, "sequence": sequence}
            for job_id, queue, sequence in self._db.rows(_END["sequences_of"], (revived,))
        ]
        if rows:
            text = as_json(rows)
            self._db.send(_ADD["add_sequences"], (text,))
            self._db.send(_ADD["lock_sequences"], (text,))
            self._order(text, cycles=True)
        self.look()

    def _with_holders(self, rows: Sequence[tuple[Any, ...]]) -> dict[int, BadJob]:
        """Returns the jobs of these rows, by their numbers, with those that have their keys."""
        jobs = {int(seq): BadJob(job_id, queue, key) for seq, job_id, queue, key, _ in rows}
        keyed = [seq for seq, job in jobs.items() if job.key is not None]
        if keyed:
            asked = as_json([{"queue": jobs[seq].queue, "key": jobs[seq].key} for seq in keyed])
            for seq, (holder,) in zip(keyed, self._db.rows(_END["key_holders"], (asked,)), strict=True):
                jobs[seq] = msgspec.structs.replace(jobs[seq], holder=holder)
        return jobs

    def _refuse(
        self,
        named: Sequence[int],
        bad: Mapping[int, BadJob],
        needs: Sequence[tuple[int, int]],
        taken: Mapping[int, str],
    ) -> None:
        """Raises Conflict if one of the named jobs cannot be queued again."""
        for seq in named:
            job = bad[seq]
            if seq in taken:
                key = readable(job.key)
                raise Conflict(f"job {job.id} cannot be retried: its key '{key}' is held by job {taken[seq]}")
        chosen = revivable(named, needs)
        for seq in named:
            if seq not in chosen:
                needed = [predecessor for job, predecessor in needs if job == seq and predecessor not in chosen]
                rows = self._db.rows(_FLOW["predecessors"], (numbers(needed[:1]),))
                why = "it would wait for a job that waits for it: neither could ever run"
                if rows:
                    why = (
                        f"its predecessor, job {rows[0][2]}, did not end well; retry that one, and this one waits again"
                    )
                raise Conflict(f"job {bad[seq].id} cannot be retried: {why}")

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
        self.take_turns()
        found = dict(self._db.rows(_END["numbers_of"], (_names(ids),)))
        rows = self._db.rows(_END["delete"], (numbers(sorted(map(int, found.values()))), True))
        flows = sorted({str(flow) for _, flow in rows if flow is not None})
        if flows:
            self._db.send(_FLOW["emptied"], (flows,))
        return [str(job_id) for job_id, _ in rows]

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
        if self._db.rows(_END["recurring_paused"], (name,)):
            return False
        return self.run_recurring(name, job) is not None

    def run_recurring(self, name: str, job: NewJob) -> str | None:
        found = self._db.rows(_END["recurring_runs"], (name,))
        if not found:
            return None
        (made,) = self.enqueue([job])
        self._db.send(_END["fired"], (name, made.id, with_run(found[0][0], made.id)))
        return made.id

    def pause_recurring(self, name: str, who: str, reason: str | None) -> bool:
        return bool(self._db.rows(_END["recurring_pause"], (self._now, name, readable(who), readable(reason))))

    def resume_recurring(self, name: str, skipped: Rescheduling | None = None) -> bool:
        if not self._db.rows(_END["recurring_resume"], (name,)):
            return False
        if skipped is not None:
            self._db.rows(_END["move_on"], (name, skipped.due_ms, skipped.next_run_ms))
        return True


class Sent:
    """Settlements that were sent, and how to read the answers."""

    def __init__(self, settlements: Sequence[Settlement], following: Following) -> None:
        self._settlements, self._following = settlements, following
        self.held: Cursor | None = None
        self.edges: Cursor | None = None
        self.noted: Callable[[], None] | None = None
        self.ended: list[tuple[int, int]] = []
        """The claims that ended jobs, after `lost`."""
        self.flows: set[str] = set()
        """The flows of these jobs."""
        self.asked: set[str] = set()
        """Those of which `noted` finds out whether they may have ended."""
        self.followed = False
        """Whether jobs may wait for these."""

    def lost(self) -> list[ClaimName]:
        """Returns the claims that no longer held, and notes the effects of the others."""
        if self.held is None or self.edges is None:
            return []
        rows = self.held.fetchall()
        self.followed = self.edges.fetchall()[0][0]
        for seq, claim, becomes, flow in rows:
            if becomes != State.QUEUED:
                self.ended.append((seq, claim))
                if flow is not None:
                    self.flows.add(flow)
        if self.noted is not None:
            self.noted()
            self._following.effects.flows |= self.flows - self.asked
        if len(rows) == len(self._settlements):
            return []
        kept = {(seq, claim) for seq, claim, *_ in rows}
        found: list[ClaimName] = []
        for each in self._settlements:
            if (each.seq, each.claim) in kept:
                kept.discard((each.seq, each.claim))
            else:
                found.append(each.claim_name)
        return found


def may_wait(job: NewJob) -> bool:
    """Returns whether adding a job may have to wait for a transaction of others that holds its key or sequence."""
    return job.key is not None or job.sequence is not None


def _kind_of(job: NewJob) -> Literal["plain", "spawned", "linked", "single"]:
    """Returns how a job that an outcome brings is added."""
    if not is_linked(job):
        return "plain"
    if job.key is None:
        return "spawned"
    return "single" if is_single(job) else "linked"


def _by(job: NewJob, settled: Settlement) -> dict[str, Any]:
    """Returns what the row of a job says of the outcome with which it is added."""
    by: dict[str, Any] = {"parent": settled.seq, "claim": settled.claim}
    if settled.state is not State.DONE:
        by["becomes"] = settled.state.value
    return by | {"spawned_by": settled.id} if job.child else by


def _names(ids: Sequence[str]) -> list[str]:
    """Returns the ids, each once, in a form that can be sent: people may ask for any text."""
    return list(dict.fromkeys(map(codec.clean, ids)))


class _SettleRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """An outcome as the statement `settle` takes it."""

    seq: int
    claim: int
    state: str
    worker: str | None = None
    pid: int | None = None
    duration_ms: int | None = None
    outcome: str | None = None
    result: str | None = None
    error: str | None = None
    reason: str | None = None
    delay_ms: int = 0
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    failed_in: str | None = None


def _settle_row(s: Settlement) -> _SettleRow:
    return _SettleRow(
        s.seq, s.claim, s.state.value, s.worker, s.pid, s.duration_ms, s.outcome, s.result, readable(s.error), s.reason,
        s.delay_ms, s.failures, s.crashes, s.interruptions, s.failed_in,
    )  # fmt: skip
