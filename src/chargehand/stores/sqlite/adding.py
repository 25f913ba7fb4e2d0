"""Adds jobs with options of flows to SQLite: predecessors, a flow, a share, a sequence, a period or a replacement of a
key, an expiry. `model.flows` decides. Part of a transaction.

Jobs without such options do not come here (`stores.sqlite.jobs`), unless their queue has shares or their key a period.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from chargehand.errors import FlowEnded, FlowNotFound, JobNotFound
from chargehand.model import flows
from chargehand.model.flows import Ended
from chargehand.model.job import Enqueued, NewJob, State
from chargehand.stores.rows import json_text, meta_text
from chargehand.stores.sqlite.edges import IN_CIRCLE, LIVE, Edges
from chargehand.stores.sqlite.limits import Limits

ROWS_AT_ONCE = (50, 8, 1)
"""How many jobs one statement inserts, as long as there are so many: that halves the cost of a job, because a statement
opens every index once."""
PLACE = "coalesce(place, seq)"
BAD_STATES = (State.FAILED, State.CANCELLED)
NO_FLOW = "flow"
"""The reason of a job that failed because its flow had ended, or did not exist."""
_NO_SHARE = ""
"""The share of jobs without one, in a queue where others have one."""
_ROW = "(?, ?, 'queued', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERTS = {
    count: f"""
INSERT INTO chargehand_job (id, queue, state, waits_for, priority, run_at_ms, max_attempts, timeout_ms, key,
                            limit_key, created_ms, label, tags, payload, flow, parent, place, share, sequence,
                            expires_at_ms, meta, traceparent)
VALUES {", ".join([_ROW] * count)} ON CONFLICT DO NOTHING
"""
    for count in ROWS_AT_ONCE
}
TAKEN = f"""
SELECT id, seq FROM chargehand_job WHERE id = ?1
UNION ALL
SELECT id, seq FROM chargehand_job WHERE queue = ?2 AND key = ?3 AND state IN {LIVE} LIMIT 1
"""
ALIAS = "INSERT OR IGNORE INTO chargehand_alias (id, job) SELECT ?1, seq FROM chargehand_job WHERE id = ?2"
_ADOPTED = """
UPDATE chargehand_alias SET parent = ?2, ordinal = ?3 WHERE id = ?1 AND parent IS NULL
"""
_COUNT_ADOPTED = """
SELECT count(*) FROM chargehand_alias INDEXED BY chargehand_alias_parent WHERE parent = ? AND parent IS NOT NULL
"""
_FLOWS = """
SELECT id, arrival, place, cancel_ms, ended_ms FROM chargehand_flow WHERE id IN (SELECT value FROM json_each(?))
"""
_SET_PLACE = f"""
UPDATE chargehand_flow SET place = (SELECT {PLACE} FROM chargehand_job WHERE seq = ?2) WHERE id = ?1 AND place IS NULL
"""
_ONCE = "SELECT job FROM chargehand_once WHERE queue = ? AND key = ? AND until_ms > ?"
_SET_ONCE = """
INSERT INTO chargehand_once (queue, key, until_ms, job) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT DO UPDATE SET until_ms = excluded.until_ms, job = excluded.job
"""
# The tags of the job that is replaced, before it is.
_FORGET_TAGS = f"""
DELETE FROM chargehand_tag WHERE (tag, job) IN (
  SELECT t.value, j.seq FROM chargehand_job AS j INDEXED BY chargehand_job_key CROSS JOIN json_each(j.tags) AS t
  WHERE j.queue = ?1 AND j.key = ?2 AND j.state = 'queued' AND j.state IN {LIVE})
"""
# (Without the second condition on the state, SQLite would not use the index of keys.)
_REPLACE = f"""
UPDATE chargehand_job INDEXED BY chargehand_job_key
SET payload = ?4, label = ?5, tags = ?6, run_at_ms = ?7, expires_at_ms = ?8, meta = ?9, traceparent = ?10,
  waits_for = iif(waits_for = 'jobs' OR waits_for = 'limit' AND ?7 <= ?3, waits_for, iif(?7 > ?3, 'time', NULL))
WHERE queue = ?1 AND key = ?2 AND state = 'queued' AND state IN {LIVE} RETURNING id, seq
"""
_KNOWN = """
SELECT wanted.value, j.seq, j.id, coalesce(j.label, j.queue), j.state, iif(j.state = 'failed', j.error, NULL)
FROM json_each(?1) AS wanted CROSS JOIN chargehand_job AS j
WHERE j.id = wanted.value
UNION ALL
SELECT wanted.value, j.seq, j.id, coalesce(j.label, j.queue), j.state, iif(j.state = 'failed', j.error, NULL)
FROM json_each(?1) AS wanted CROSS JOIN chargehand_alias AS a CROSS JOIN chargehand_job AS j
WHERE a.id = wanted.value AND j.seq = a.job
"""
# Jobs that have the keys of children count as children.
_DESCENDANTS = """
WITH RECURSIVE below(root, parent, id, seq, name, state, error, ordinal) AS (
  SELECT value, NULL, value, NULL, NULL, NULL, NULL, NULL FROM json_each(?1)
  UNION
  SELECT below.root, below.id, j.id, j.seq, coalesce(j.label, j.queue), j.state, iif(j.state = 'failed', j.error, NULL),
    NULL
  FROM below CROSS JOIN chargehand_job AS j INDEXED BY chargehand_job_parent
  WHERE j.parent = below.id
  UNION
  SELECT below.root, below.id, j.id, j.seq, coalesce(j.label, j.queue), j.state, iif(j.state = 'failed', j.error, NULL),
    a.ordinal
  FROM below CROSS JOIN chargehand_alias AS a INDEXED BY chargehand_alias_parent CROSS JOIN chargehand_job AS j
  WHERE a.parent = below.id AND a.parent IS NOT NULL AND j.seq = a.job)
SELECT root, parent, seq, id, name, state, error, ordinal FROM below WHERE seq IS NOT NULL ORDER BY seq, ordinal
"""
_LINE = """
WITH RECURSIVE up(id) AS (
  SELECT ?1
  UNION
  SELECT j.parent FROM up CROSS JOIN chargehand_job AS j WHERE j.id = up.id AND j.parent IS NOT NULL
  UNION
  SELECT a.parent FROM up CROSS JOIN chargehand_job AS j
    CROSS JOIN chargehand_alias AS a INDEXED BY chargehand_alias_job
  WHERE j.id = up.id AND a.job = j.seq AND a.parent IS NOT NULL)
SELECT id FROM up
"""
_CANCEL = """
UPDATE chargehand_job SET state = 'cancelled', waits_for = NULL, finished_ms = ?2, reason = 'cancelled'
WHERE seq IN (SELECT value FROM json_each(?1)) AND state = 'queued'
"""
# The places that the place of a new job with a share depends on.
_HIGHEST = f"""
SELECT max({PLACE}) FROM chargehand_job INDEXED BY chargehand_job_share
WHERE queue = ?1 AND priority = ?2 AND share = ?3 AND share IS NOT NULL AND state IN {LIVE}
"""
_RUNNING = f"""
SELECT max({PLACE}) FROM chargehand_job INDEXED BY chargehand_job_running
WHERE queue = ?1 AND state = 'running' AND priority = ?2
"""
_READY = f"""
SELECT {PLACE} FROM chargehand_job INDEXED BY chargehand_job_ready
WHERE queue = ?1 AND priority = ?2 AND state = 'queued' AND waits_for IS NULL ORDER BY {PLACE} LIMIT 1
"""
_SHARED = f"""
SELECT EXISTS (SELECT 1 FROM chargehand_job INDEXED BY chargehand_job_share
  WHERE queue = ?1 AND priority = ?2 AND share IS NOT NULL AND state IN {LIVE})
"""
# The last job that waits without a share, before the first one with a share: later ones without come after it.
_MARK_LAST = f"""
UPDATE chargehand_job SET share = '' WHERE share IS NULL AND seq = (
  SELECT seq FROM chargehand_job INDEXED BY chargehand_job_ready
  WHERE queue = ?1 AND priority = ?2 AND state = 'queued' AND waits_for IS NULL ORDER BY {PLACE} DESC, seq DESC LIMIT 1)
"""
_NEXT_SEQ = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'chargehand_job'), 0) + 1"


class Origin(msgspec.Struct, frozen=True):
    """The settled job that enqueues jobs."""

    id: str
    seq: int
    flow: str | None


class _Flow(msgspec.Struct):
    """The flow of a job that is added."""

    id: str
    arrival: bool
    place: int | None
    cancelled: bool
    refused: str | None
    """Why the flow takes no job; None: it does."""
    begun: bool
    """Whether the store has its place."""
    exists: bool


Wanted = tuple[Origin | None, NewJob]
"""A job to add, and the settled job that enqueues it, if one does."""


class _Added(msgspec.Struct):
    """A job that was added, and what becomes of it at once."""

    origin: Origin | None
    job: NewJob
    seq: int
    flow: _Flow | None
    held: bool
    """Whether it was inserted as waiting for others: it is decided at the end whether it does."""


def insert(db: Any, statements: Mapping[int, str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Inserts the rows in order, with the statements for so many rows at once, the largest first."""
    done = 0
    for count, sql in statements.items():
        until = len(rows) - (len(rows) - done) % count
        if until > done:
            db.executemany(sql, (tuple(chain(*rows[at : at + count])) for at in range(done, until, count)))
            done = until


def is_linked(job: NewJob) -> bool:
    """Returns whether a job has an option that only this module knows."""
    return (
        bool(job.after)
        or job.flow is not None
        or job.child
        or job.share is not None
        or job.sequence is not None
        or job.expires_ms is not None
        or job.unique_for_ms is not None
        or job.replace
        or job.meta is not None
        or job.traceparent is not None
    )


class Adding:
    """Adds jobs that have to do with others."""

    def __init__(self, db: Any, now_ms: int, limits: Limits, edges: Edges) -> None:
        self._db, self._now, self._limits, self._edges = db, now_ms, limits, edges

    def add(self, wanted: Sequence[Wanted], *, promised: bool = False) -> tuple[list[Enqueued], list[str]]:
        """Adds the jobs in order. Returns the answers, and the flows that may have ended with a job that did at once.

        If one names what does not exist, nothing is added, and an exception says so; what a settled job enqueues is
        added and fails. Ids that are `promised` become aliases of the jobs that exist already.
        """
        self._db.execute("SAVEPOINT linked")
        try:
            found = _Call(self._db, self._now, self._limits, self._edges, promised).add(wanted)
        except BaseException:
            self._db.execute("ROLLBACK TO linked; RELEASE linked")
            raise
        self._db.execute("RELEASE linked")
        return found


class _Call:
    """One call of `Adding.add`."""

    def __init__(self, db: Any, now_ms: int, limits: Limits, edges: Edges, promised: bool) -> None:
        self._db, self._now, self._limits, self._edges = db, now_ms, limits, edges
        self._promised = promised
        self._flows: dict[str, _Flow] = {}
        self._places = _Places(db)
        self._answers: list[Enqueued] = []
        self._added: list[_Added] = []
        """The added jobs whose edges are not written yet."""
        self._ended: list[str] = []
        """The flows of jobs that have ended at once."""
        self._lines: dict[str, set[str]] = {}
        self._meant: dict[str, str] = {}
        """The existing jobs that ids of this call stand for."""
        self._adopted: dict[str, tuple[str, int]] = {}
        """The ids of children that exist already: the parent of each, and the place among its children."""
        self._last_child: dict[int, int] = {}
        """The last child so far of each parent, both by their numbers."""
        self._children: set[tuple[int, str]] = set()
        """The children that were added: the number of the parent, and the id."""
        self._failed: dict[int, str] = {}
        """Jobs that existed before and fail because of what was added."""

    def add(self, wanted: Sequence[Wanted]) -> tuple[list[Enqueued], list[str]]:
        self._read_flows({job.flow for _, job in wanted if job.flow is not None})
        together: list[Wanted] = []
        for each in wanted:
            if not self._is_alone(each[1]):
                together.append(each)
                continue
            self._insert(together)
            self._link()
            together = []
            self._add_keyed(*each)
            self._link()
        self._insert(together)
        self._link()
        if self._promised:
            self._db.executemany(ALIAS, list(self._meant.items()))
            self._db.executemany(_ADOPTED, [(child, *of) for child, of in self._adopted.items()])
        return self._answers, self._ended

    def _is_alone(self, job: NewJob) -> bool:
        """Returns whether the job must be added by itself, because its key decides more than whether it exists, or
        because it may end at once, and leave the key to the next job."""
        if job.key is None:
            return False
        used = self._edges.used_by_new.once or job.unique_for_ms is not None or job.replace
        return used or bool(job.after) or job.flow is not None

    def _add_keyed(self, origin: Origin | None, job: NewJob) -> None:
        """Adds a job whose key may be taken for a period, or whose payload may replace another."""
        used = self._edges.used_by_new.once
        for (holder,) in self._db.execute(_ONCE, (job.queue, job.key, self._now)).fetchall() if used else ():
            if holder != job.id:
                self._exists(origin, job, Enqueued(holder, False))
                return
        if job.replace and (replaced := self._replace(job)) is not None:
            self._exists(origin, job, Enqueued(replaced, False, True))
            return
        self._insert([(origin, job)])
        if self._answers[-1].created and job.unique_for_ms is not None:
            until = self._now + job.unique_for_ms
            self._db.execute(_SET_ONCE, (job.queue, job.key, until, job.id))
            self._edges.used_by_new.once = True

    def _exists(self, origin: Origin | None, job: NewJob, answer: Enqueued) -> None:
        self._answers.append(answer)
        if answer.id != job.id:
            self._meant[job.id] = answer.id
            if job.child and origin is not None and (origin.seq, answer.id) not in self._children:
                self._adopt_existing(origin, job.id, answer.id)

    def _adopt_existing(self, origin: Origin, child: str, job_id: str) -> None:
        """Lets the followers of the origin wait for a job that exists already, in place of a child."""
        found = self._known([job_id]).get(job_id)
        if found is None or found[1].state in BAD_STATES:
            return
        ((count,),) = self._db.execute(_COUNT_ADOPTED, (origin.id,)).fetchall()
        nth = count + 1 + sum(parent == origin.id for parent, _ in self._adopted.values())
        ordinal = flows.ordinal_between(self._last_child.get(origin.seq, origin.seq), nth)
        self._adopted[child] = origin.id, ordinal
        self._edges.adopt_existing(found[0], origin.seq, lives=not found[1].well, ordinal=ordinal)
        below = self._descendants([job_id]).get(job_id, ()) if found[1].well else ()
        # A job that descends from another waits for that one, not for its children, as in `_follow`.
        own = self._edges.followers_below(origin.seq, job_id) if below else ()
        for seq, ended, place in below:
            lives = ended.state not in BAD_STATES and not ended.well
            self._edges.adopt_existing(seq, origin.seq, lives=lives, ordinal=place, but=own)
            if ended.state in BAD_STATES:
                others = [each for each in self._edges.strict_followers(origin.seq) if each not in own]
                self._failed |= dict.fromkeys(others, flows.why_failed(ended))

    def _replace(self, job: NewJob) -> str | None:
        """Replaces what a waiting job with the same key does. Returns its id; None if there is none."""
        run_at, expires = self._times(job)
        tags = _tags(job)
        values = (
            job.queue, job.key, self._now, job.payload, job.label, tags, run_at, expires, meta_text(job),
            job.traceparent,
        )  # fmt: skip
        self._db.execute(_FORGET_TAGS, (job.queue, job.key))
        for job_id, seq in self._db.execute(_REPLACE, values).fetchall():
            if run_at > self._now:
                self._limits.withdrawn([(job.queue, seq)])
            rows = [(tag, seq) for tag in dict.fromkeys(job.tags)]
            self._db.executemany("INSERT INTO chargehand_tag (tag, job) VALUES (?, ?)", rows)
            return str(job_id)
        return None

    # rows

    def _insert(self, wanted: Sequence[Wanted]) -> None:
        """Inserts jobs in order, those that do not exist."""
        if not wanted:
            return
        ((next_seq,),) = self._db.execute(_NEXT_SEQ)
        rows = [self._row(origin, job, seq) for seq, (origin, job) in enumerate(wanted, next_seq)]
        self._db.execute("SAVEPOINT rows")
        before = self._db.total_changes()
        insert(self._db, _INSERTS, rows)
        # The count contains the rows of tags, which a trigger inserts.
        if self._db.total_changes() - before == len(rows) + sum(len(set(job.tags)) for _, job in wanted if job.tags):
            self._db.execute("RELEASE rows")
            first = self._db.last_insert_rowid() - len(rows) + 1
            for seq, (each, row) in enumerate(zip(wanted, rows, strict=True), first):
                self._note_added(*each, row, seq)
            return
        self._db.execute("ROLLBACK TO rows; RELEASE rows")
        self._insert_singly(wanted)

    def _insert_singly(self, wanted: Sequence[Wanted]) -> None:
        for origin, job in wanted:
            for flow in self._flows.values():
                flow.place = flow.place if flow.begun else None
            ((next_seq,),) = self._db.execute(_NEXT_SEQ)
            row = self._row(origin, job, next_seq)
            made = self._db.execute(f"{_INSERTS[1]} RETURNING seq", row).fetchone()
            if made is not None:
                self._note_added(origin, job, row, made[0])
            else:
                (job_id, _), *_ = self._db.execute(TAKEN, (job.id, job.queue, job.key)).fetchall()
                self._exists(origin, job, Enqueued(job_id, False))

    def _note_added(self, origin: Origin | None, job: NewJob, row: tuple[Any, ...], seq: int) -> None:
        self._answers.append(Enqueued(job.id, True))
        flow = None if job.flow is None else self._flows[job.flow]
        if flow is not None and flow.refused is not None and origin is None:
            raise FlowEnded(flow.refused) if flow.exists else FlowNotFound(flow.refused)
        if flow is not None and not flow.begun:
            self._db.execute(_SET_PLACE, (flow.id, seq))
            flow.begun = True
        self._added.append(_Added(origin, job, seq, flow, row[2] == "jobs"))
        if job.child and origin is not None:
            self._last_child[origin.seq] = seq
            self._children.add((origin.seq, job.id))

    def _row(self, origin: Origin | None, job: NewJob, seq: int) -> tuple[Any, ...]:
        run_at, expires = self._times(job)
        flow = None if job.flow is None else self._flows[job.flow]
        held = bool(job.after) or job.sequence is not None
        place: int | None = None
        share = job.share
        if flow is not None:
            held |= flow.cancelled or flow.refused is not None
            by_member = origin is not None and origin.flow == flow.id
            if flow.place is not None and flows.takes_place(job, arrival=flow.arrival, by_member=by_member):
                place = flow.place
        if place is None and (share is not None or self._edges.used_by_new.shares):
            share, place = self._places.next(job, seq)
            self._edges.used_by_new.shares = self._edges.used_by_new.shares or share is not None
        if flow is not None and flow.place is None:
            flow.place = seq if place is None else place
        waits_for = "jobs" if held else "time" if run_at > self._now else None
        parent = origin.id if job.child and origin is not None else None
        return (
            job.id, job.queue, waits_for, job.priority, run_at, job.max_attempts, job.timeout_ms, job.key,
            job.limit_key, self._now, job.label, _tags(job), job.payload,
            None if flow is None or flow.refused is not None else flow.id, parent, place, share, job.sequence, expires,
            meta_text(job), job.traceparent,
        )  # fmt: skip

    def _times(self, job: NewJob) -> tuple[int, int | None]:
        """Returns when the job is due, and when it expires."""
        run_at = self._now + job.delay_ms if job.run_at_ms is None else job.run_at_ms
        return run_at, None if job.expires_ms is None else self._now + job.expires_ms

    def _read_flows(self, wanted: Collection[str]) -> None:
        """Reads the flows of the jobs."""
        rows = self._db.execute(_FLOWS, (json.dumps(list(wanted)),)) if wanted else ()
        known = {flow_id: values for flow_id, *values in rows}
        for flow_id in wanted:
            arrival, place, cancel_ms, ended_ms = known.get(flow_id, (0, None, None, None))
            exists, refused = flow_id in known, None
            if not exists or ended_ms is not None:
                refused = flows.why_no_flow(flow_id, ended=exists)
            begun = place is not None or refused is not None
            self._flows[flow_id] = _Flow(flow_id, bool(arrival), place, cancel_ms is not None, refused, begun, exists)

    # relations

    def _link(self) -> None:
        """Writes the edges of the jobs that were inserted, and decides which of them wait, and which end at once."""
        added, self._added = self._added, []
        held = [each for each in added if each.held]
        refused = {each.seq: each.flow.refused for each in held if each.flow is not None and each.flow.refused}
        bad = self._follow(held)
        for each in held:
            if each.job.sequence is not None:
                self._edges.append(each.seq, each.job.queue, each.job.sequence)
        bad |= self._adopt(added) | self._failed
        self._failed = {}
        cancelled = [each.seq for each in held if each.flow is not None and each.flow.cancelled]
        if cancelled:
            self._db.execute(_CANCEL, (json_text(cancelled), self._now))
        self._edges.fail(refused, NO_FLOW)
        self._edges.fail({seq: error for seq, error in bad.items() if seq not in refused})
        self._edges.release([each.seq for each in held])
        self._ended += self._edges.ended(list({**bad, **refused, **dict.fromkeys(cancelled)}))

    def _adopt(self, added: Sequence[_Added]) -> dict[int, str]:
        """Lets the followers of the origins wait for their children. Returns the children that would wait for
        themselves, with the error of each."""
        children = [(each.origin, each) for each in added if each.job.child and each.origin is not None]
        self._edges.adopt([(origin.seq, each.seq) for origin, each in children])
        bad = {
            each.seq: flows.why_in_circle(origin.id)
            for origin, each in children
            if each.held and self._edges.waits_for_itself(each.seq)
        }
        self._edges.add([(seq, 0, IN_CIRCLE, True, False, None) for seq in bad])  # no retry makes them wait again
        return bad

    def _follow(self, held: Sequence[_Added]) -> dict[int, str]:
        """Adds the edges to predecessors and to what these have spawned. Returns the jobs that fail, with the error of
        each. Raises JobNotFound unless a settled job enqueues them."""
        wanted = {self._meant.get(name, name): None for each in held for name in each.job.after}
        if not wanted:
            return {}
        known = self._known(wanted)
        spawned = self._descendants([ended.id for _, ended in known.values() if ended.well])
        edges: list[tuple[int, int, int, bool, bool, int | None]] = []
        bad: dict[int, str] = {}
        for each in held:
            strict = each.job.if_failed == "fail"
            for nr, name in enumerate(dict.fromkeys(each.job.after)):
                found = known.get(self._meant.get(name, name))
                if found is None or found[0] >= each.seq:  # a later job of the same call is no predecessor
                    if each.origin is None:
                        raise JobNotFound(flows.why_not_found(name))
                    bad.setdefault(each.seq, flows.why_not_found(name))
                    continue
                # A job that descends from another waits for that one, not for its children: it may be one of them.
                own = each.job.child and found[1].id in self._line(each.origin)
                for seq, ended, ordinal in ((*found, None), *(() if own else spawned.get(found[1].id, ()))):
                    lives = ended.state in (State.QUEUED, State.RUNNING)
                    edges.append((each.seq, seq, nr, strict, lives, ordinal))
                    if strict and not lives and not ended.well:
                        bad.setdefault(each.seq, flows.why_failed(ended))
        self._edges.add(edges)
        return bad

    def _line(self, origin: Origin | None) -> set[str]:
        """Returns a settled job and those from which it descends."""
        if origin is None:
            return set()
        if origin.id not in self._lines:
            self._lines[origin.id] = {str(job_id) for (job_id,) in self._db.execute(_LINE, (origin.id,)).fetchall()}
        return self._lines[origin.id]

    def _known(self, ids: Iterable[str]) -> dict[str, tuple[int, Ended]]:
        rows = self._db.execute(_KNOWN, (json.dumps(list(ids)),))
        return {
            wanted: (seq, Ended(job_id, name, State(state), error)) for wanted, seq, job_id, name, state, error in rows
        }

    def _descendants(self, ids: Sequence[str]) -> dict[str, list[tuple[int, Ended, int | None]]]:
        """Returns what each of these jobs has spawned, and what those have, nearest first, each with its ordinal."""
        if not ids:
            return {}
        below: dict[str, dict[str, list[tuple[int, Ended, int | None]]]] = {}
        rows = self._db.execute(_DESCENDANTS, (json.dumps(ids),))
        for root, parent, seq, job_id, name, state, error, ordinal in rows:
            child = seq, Ended(job_id, name, State(state), error), ordinal
            below.setdefault(root, {}).setdefault(parent, []).append(child)
        found: dict[str, list[tuple[int, Ended, int | None]]] = {}
        for root, children in below.items():
            seen, at = {root}, [root]
            while at:
                level = [child for parent in at for child in children.get(parent, ())]
                at = list[str]()
                for child in level:
                    if child[1].id not in seen:
                        seen.add(child[1].id)
                        at.append(child[1].id)
                        found.setdefault(root, []).append(child)
        return found


class _Places:
    """The places of jobs with shares, within one call: the jobs of a share get consecutive ones."""

    def __init__(self, db: Any) -> None:
        self._db = db
        self._highest: dict[tuple[str, int, str], int] = {}
        self._now: dict[tuple[str, int], tuple[int | None, int | None]] = {}
        """By queue and priority: the highest place of running jobs and the lowest of ready ones."""
        self._shared: set[tuple[str, int]] = set()

    def _value(self, sql: str, *bindings: Any) -> Any:
        row = self._db.execute(sql, bindings).fetchone()
        return None if row is None else row[0]

    def next(self, job: NewJob, seq: int) -> tuple[str | None, int | None]:
        """Returns the share and the place of the next job, with this number; None if nothing like it has a share."""
        line = (job.queue, job.priority)
        if line not in self._shared:
            if not self._value(_SHARED, *line):
                if job.share is None:
                    return None, None
                self._db.execute(_MARK_LAST, line)
            self._shared.add(line)
        share = _NO_SHARE if job.share is None else job.share
        if line not in self._now:
            self._now[line] = self._value(_RUNNING, *line), self._value(_READY, *line)
        highest = self._highest.get((*line, share))
        if highest is None:
            highest = self._value(_HIGHEST, *line, share)
        running, ready = self._now[line]
        place = flows.share_place(highest, running, ready, seq)
        self._highest[(*line, share)] = place
        if ready is None:
            self._now[line] = running, place
        return share, place


def _tags(job: NewJob) -> str | None:
    return json.dumps(job.tags) if job.tags else None
