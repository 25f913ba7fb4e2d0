"""Reads and writes in SQLite which job waits for which; `model.flows` decides. Part of a transaction.

An edge is open while its predecessor is queued or running. Whatever ends a job closes the edges to it; a job that waits
for others and has no open edge left can be claimed. Nothing is counted, so the end of a job costs the same however many
others its followers wait for. A store without open edges and flows pays one statement for each transaction.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from chargehand.errors import Conflict
from chargehand.model import flows
from chargehand.model.flows import BadJob, Ended
from chargehand.model.job import PREDECESSOR, State
from chargehand.stores.rows import json_text, readable

IN_SEQUENCE = -1
"""The `nr` of an edge between two jobs of a sequence."""
IN_CIRCLE = -3
"""The `nr` of an edge to no job: the job would wait for itself, and can never run."""
LIVE = "('queued', 'running')"
BAD = "('failed', 'cancelled')"

# Each EXISTS reads one row of an index. (The conditions that always hold make it a search.)
_USED = """
SELECT EXISTS (SELECT 1 FROM chargehand_edge INDEXED BY chargehand_edge_open WHERE open = 1 AND job > 0),
  EXISTS (SELECT 1 FROM chargehand_flow INDEXED BY chargehand_flow_running WHERE ended_ms IS NULL AND seq > 0),
  EXISTS (SELECT 1 FROM chargehand_kept WHERE job > 0),
  EXISTS (SELECT 1 FROM chargehand_sequence WHERE queue > '')
"""
_USED_BY_NEW = f"""
SELECT EXISTS (SELECT 1 FROM chargehand_job INDEXED BY chargehand_job_share
    WHERE queue > '' AND share IS NOT NULL AND state IN {LIVE}),
  EXISTS (SELECT 1 FROM chargehand_once WHERE queue > '')
"""
# All rows as one JSON text, as in a claim.
_WAITING_FOR = """
SELECT json_group_array(json_array(e.job, e.predecessor, json(iif(e.strict, 'true', 'false'))))
FROM json_each(?1) AS ended
  CROSS JOIN chargehand_edge AS e INDEXED BY chargehand_edge_predecessor
  CROSS JOIN chargehand_job AS f
WHERE e.predecessor = ended.value AND e.open = 1 AND f.seq = e.job AND f.state = 'queued' AND f.waits_for = 'jobs'
"""
_BAD = f"""
SELECT seq, id, coalesce(label, queue), state, error FROM chargehand_job
WHERE seq IN (SELECT value FROM json_each(?1)) AND state IN {BAD}
"""
_CLOSE = """
UPDATE chargehand_edge INDEXED BY chargehand_edge_predecessor SET open = 0
WHERE predecessor IN (SELECT value FROM json_each(?1)) AND open = 1
"""
_RELEASE = """
UPDATE chargehand_job SET waits_for = iif(run_at_ms > ?2, 'time', NULL)
WHERE seq IN (SELECT value FROM json_each(?1)) AND state = 'queued' AND waits_for = 'jobs'
  AND NOT EXISTS (SELECT 1 FROM chargehand_edge AS e INDEXED BY chargehand_edge_open
    WHERE e.job = chargehand_job.seq AND e.open = 1)
RETURNING queue, waits_for
"""
_FAIL = """
UPDATE chargehand_job NOT INDEXED SET state = 'failed', waits_for = NULL, finished_ms = ?2, reason = ?3,
  error = failed.value ->> 1
FROM json_each(?1) AS failed
WHERE seq = failed.value ->> 0 AND state = 'queued'
"""
# If a job of a sequence ends while it waits for the one before, the ones behind it wait for that one. Of several that
# end together, none waits for another.
_CLOSE_RANKS = """
WITH RECURSIVE
  ended(seq) AS MATERIALIZED (SELECT value FROM json_each(?1)),
  before(job, predecessor) AS (
    SELECT k.job, i.predecessor FROM ended
      CROSS JOIN chargehand_edge AS k INDEXED BY chargehand_edge_predecessor
      CROSS JOIN chargehand_edge AS i
    WHERE k.predecessor = ended.seq AND k.open = 1 AND k.nr = -1 AND k.job NOT IN ended
      AND i.job = ended.seq AND i.nr = -1 AND i.open = 1
    UNION
    SELECT before.job, i.predecessor FROM before CROSS JOIN chargehand_edge AS i
    WHERE before.predecessor IN ended AND i.job = before.predecessor AND i.nr = -1 AND i.open = 1)
INSERT OR IGNORE INTO chargehand_edge (job, predecessor, nr, strict, open)
SELECT job, predecessor, -1, 0, 1 FROM before WHERE predecessor NOT IN ended
"""
# The last job of a sequence ends while jobs before it live: the last of those is the last one. Jobs of a sequence that
# end together are passed over.
_NEW_LAST = """
WITH RECURSIVE
  ended(seq) AS MATERIALIZED (SELECT value FROM json_each(?1)),
  back(last, queue, sequence, at) AS (
    SELECT j.seq, j.queue, j.sequence, j.seq FROM ended
      CROSS JOIN chargehand_job AS j ON j.seq = ended.seq AND j.sequence IS NOT NULL
      CROSS JOIN chargehand_sequence AS s ON s.queue = j.queue AND s.sequence = j.sequence AND s.job = j.seq
    UNION
    SELECT back.last, back.queue, back.sequence, i.predecessor FROM back CROSS JOIN chargehand_edge AS i
    WHERE back.at IN ended AND i.job = back.at AND i.nr = -1 AND i.open = 1)
UPDATE chargehand_sequence SET job = back.at FROM back
WHERE chargehand_sequence.queue = back.queue AND chargehand_sequence.sequence = back.sequence AND back.at NOT IN ended
"""
_FLOWS_OF = """
SELECT flow FROM chargehand_job WHERE seq IN (SELECT value FROM json_each(?1)) AND flow IS NOT NULL
"""
_ADD = """
INSERT OR IGNORE INTO chargehand_edge (job, predecessor, nr, strict, open, ordinal)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5 FROM json_each(?1)
"""
# A follower that has ended may be queued again: it has the children as predecessors, too. One that descends from the
# job itself does not wait for the children: it may be one of them.
_ADD_CHILDREN = """
INSERT OR IGNORE INTO chargehand_edge (job, predecessor, nr, strict, open)
SELECT e.job, child.value ->> 1, e.nr, e.strict, e.open
FROM json_each(?1) AS child CROSS JOIN chargehand_edge AS e INDEXED BY chargehand_edge_predecessor
  CROSS JOIN chargehand_job AS f
WHERE e.predecessor = child.value ->> 0 AND e.nr >= 0 AND f.seq = e.job AND (f.parent IS NULL OR NOT EXISTS (
  WITH RECURSIVE up(id) AS (
    SELECT f.parent UNION SELECT j.parent FROM up CROSS JOIN chargehand_job AS j WHERE j.id = up.id)
  SELECT 1 FROM up CROSS JOIN chargehand_job AS j WHERE j.id = up.id AND j.seq = e.predecessor))
"""
# Likewise a job (?1) in place of a child of another (?2); what it waits for does not wait for it.
_ADD_EXISTING = """
WITH RECURSIVE reached(seq) AS (
  SELECT ?1
  UNION
  SELECT e.predecessor FROM reached CROSS JOIN chargehand_edge AS e INDEXED BY chargehand_edge_open
  WHERE e.job = reached.seq AND e.open = 1)
INSERT OR IGNORE INTO chargehand_edge (job, predecessor, nr, strict, open, ordinal)
SELECT job, ?1, nr, strict, open AND ?3, ?4 FROM chargehand_edge INDEXED BY chargehand_edge_predecessor
WHERE predecessor = ?2 AND nr >= 0 AND job NOT IN reached AND job NOT IN (SELECT value FROM json_each(?5))
"""
# Those followers of a job (?1) that descend from another one (?2).
_FOLLOWERS_BELOW = """
SELECT e.job FROM chargehand_edge AS e INDEXED BY chargehand_edge_predecessor CROSS JOIN chargehand_job AS f
WHERE e.predecessor = ?1 AND e.nr >= 0 AND f.seq = e.job AND f.parent IS NOT NULL AND EXISTS (
  WITH RECURSIVE up(id) AS (
    SELECT f.parent UNION SELECT j.parent FROM up CROSS JOIN chargehand_job AS j WHERE j.id = up.id)
  SELECT 1 FROM up WHERE up.id = ?2)
"""
_STRICT_FOLLOWERS = """
SELECT job FROM chargehand_edge INDEXED BY chargehand_edge_predecessor
WHERE predecessor = ?1 AND open = 1 AND strict = 1 AND nr >= 0
"""
# What a job waits for, through others.
_REACHED = """
WITH RECURSIVE reached(seq) AS (
  SELECT predecessor FROM chargehand_edge INDEXED BY chargehand_edge_open WHERE job = ?1 AND open = 1
  UNION
  SELECT e.predecessor FROM reached CROSS JOIN chargehand_edge AS e INDEXED BY chargehand_edge_open
  WHERE e.job = reached.seq AND e.open = 1)
"""
# Each of these jobs, and of those that they wait for through others, with each that it waits for.
_WAITS = """
WITH RECURSIVE reached(seq) AS (
  SELECT value FROM json_each(?1)
  UNION
  SELECT e.predecessor FROM reached CROSS JOIN chargehand_edge AS e INDEXED BY chargehand_edge_open
  WHERE e.job = reached.seq AND e.open = 1)
SELECT e.job, e.predecessor FROM reached CROSS JOIN chargehand_edge AS e INDEXED BY chargehand_edge_open
WHERE e.job = reached.seq AND e.open = 1
"""
_WAITS_FOR_ITSELF = f"{_REACHED} SELECT EXISTS (SELECT 1 FROM reached WHERE seq = ?1)"
_LAST_OF_SEQUENCE = f"""
SELECT s.job, j.state IN {LIVE} FROM chargehand_sequence AS s CROSS JOIN chargehand_job AS j ON j.seq = s.job
WHERE s.queue = ?1 AND s.sequence = ?2
"""
_BEFORE_IN_SEQUENCE = "SELECT predecessor FROM chargehand_edge WHERE job = ?1 AND nr = -1 AND open = 1"
_SET_LAST = """
INSERT INTO chargehand_sequence (queue, sequence, job) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET job = excluded.job
"""
# What jobs that live again wait for.
_OPEN_AGAIN = f"""
UPDATE chargehand_edge SET open = NOT open
WHERE job IN (SELECT value FROM json_each(?1)) AND nr >= 0
  AND open <> (SELECT state IN {LIVE} FROM chargehand_job WHERE seq = predecessor)
"""
_NEEDS = f"""
SELECT e.job, p.seq, p.id, coalesce(p.label, p.queue), p.state, p.error
FROM json_each(?1) AS j CROSS JOIN chargehand_edge AS e CROSS JOIN chargehand_job AS p
WHERE e.job = j.value AND e.strict = 1 AND p.seq = e.predecessor AND p.state IN {BAD}
UNION ALL
SELECT e.job, e.predecessor, i.id, coalesce(i.label, i.queue), i.state, i.error
FROM json_each(?1) AS j CROSS JOIN chargehand_edge AS e CROSS JOIN chargehand_job AS i
WHERE e.job = j.value AND e.nr = {IN_CIRCLE} AND i.seq = e.job
"""
_WAIT_AGAIN = """
UPDATE chargehand_job SET waits_for = 'jobs' WHERE seq IN (SELECT value FROM json_each(?1)) AND state = 'queued'
  AND EXISTS (SELECT 1 FROM chargehand_edge AS e INDEXED BY chargehand_edge_open
    WHERE e.job = chargehand_job.seq AND e.open = 1)
"""
_SEQUENCES_OF = """
SELECT seq, queue, sequence FROM chargehand_job
WHERE seq IN (SELECT value FROM json_each(?1)) AND sequence IS NOT NULL
"""
_REOPEN_FLOWS = """
UPDATE chargehand_flow SET ended_ms = NULL, state = 'running' WHERE ended_ms IS NOT NULL AND id IN (
  SELECT flow FROM chargehand_job WHERE seq IN (SELECT value FROM json_each(?1)) AND flow IS NOT NULL)
"""
# Those of these jobs that did not end well, and all that failed because of them; with the jobs that have their keys.
_BAD_WITH_FOLLOWERS = f"""
WITH RECURSIVE again(seq) AS (
  SELECT j.seq FROM json_each(?1) AS wanted CROSS JOIN chargehand_job AS j
  WHERE j.seq = wanted.value AND j.state IN {BAD}
  UNION
  SELECT f.seq FROM again CROSS JOIN chargehand_edge AS e INDEXED BY chargehand_edge_predecessor
    CROSS JOIN chargehand_job AS f
  WHERE e.predecessor = again.seq AND e.nr >= 0 AND e.strict = 1 AND f.seq = e.job AND f.state = 'failed'
    AND f.reason = '{PREDECESSOR}')
SELECT j.seq, j.id, j.queue, j.key, iif(j.key IS NULL, NULL, (
  SELECT h.id FROM chargehand_job AS h INDEXED BY chargehand_job_key
  WHERE h.queue = j.queue AND h.key = j.key AND h.key IS NOT NULL AND h.state IN {LIVE}))
FROM again CROSS JOIN chargehand_job AS j ON j.seq = again.seq
"""
LIVE_AGAIN = """
state = 'queued', finished_ms = NULL, reason = NULL, error = NULL, result = NULL, attempts = 0, crashes = 0,
  interruptions = 0, progress = NULL, cancel_ms = NULL, failed_in = NULL, expires_at_ms = NULL, retried_ms = ?2
"""
"""What a retry sets, of the job itself and of the followers that it revives."""
# A job that a person names (?3) does not wait for its time.
_REVIVE = f"""
UPDATE chargehand_job NOT INDEXED SET {LIVE_AGAIN},
  waits_for = iif(run_at_ms > ?2 AND seq NOT IN (SELECT value FROM json_each(?3)), 'time', NULL),
  run_at_ms = iif(seq IN (SELECT value FROM json_each(?3)), ?2, max(run_at_ms, ?2))
WHERE seq IN (SELECT value FROM json_each(?1))
"""

_waiting = msgspec.json.Decoder(list[tuple[int, int, bool]])


class Used:
    """What the end of a job must look at, read once a transaction; what writes the first row of a table says so."""

    def __init__(self, db: Any) -> None:
        self.edges, self.flows, self.kept, self.sequences = map(bool, db.execute(_USED).fetchone())


class UsedByNew:
    """Likewise what a new job must look at."""

    def __init__(self, db: Any) -> None:
        self.shares, self.once = map(bool, db.execute(_USED_BY_NEW).fetchone())


class Edges:
    """The jobs that wait for others, as one transaction sees them."""

    def __init__(self, db: Any, now_ms: int) -> None:
        self._db, self._now = db, now_ms
        self._used: Used | None = None
        self._used_by_new: UsedByNew | None = None
        self.woken: set[str] = set()
        """The queues in which jobs can be claimed because others have ended."""

    @property
    def used(self) -> Used:
        """What this store has that the end of a job may concern."""
        if self._used is None:
            self._used = Used(self._db)
        return self._used

    @property
    def used_by_new(self) -> UsedByNew:
        """What this store has that may concern a new job."""
        if self._used_by_new is None:
            self._used_by_new = UsedByNew(self._db)
        return self._used_by_new

    def _column(self, sql: str, *bindings: Any) -> list[Any]:
        return [row[0] for row in self._db.execute(sql, bindings)]

    # the end of jobs

    def ended(self, seqs: Sequence[int]) -> list[str]:
        """Releases or fails what waited for these jobs, which have ended. Returns the flows that may have ended."""
        used = self.used
        if not seqs or not (used.edges or used.flows):
            return []
        every = list(seqs)
        if used.edges:
            level = every
            while level:
                level = self._free(level)
                every = every + level
        return list(dict.fromkeys(self._column(_FLOWS_OF, json_text(every)))) if used.flows else []

    def done(self, seqs: Sequence[int]) -> None:
        """Releases what waited for these jobs, which are done."""
        if self.used.edges:
            self._free(seqs, well=True)

    def _free(self, seqs: Sequence[int], *, well: bool = False) -> list[int]:
        """Closes the edges to these jobs, and releases or fails their followers. Returns those that failed; none does
        if all of these jobs have ended `well`."""
        ended = json_text(seqs)
        ((found,),) = self._db.execute(_WAITING_FOR, (ended,))
        waiting = _waiting.decode(found)
        bad = {} if well or not any(strict for _, _, strict in waiting) else self._bad(ended)
        freed = flows.free(waiting, bad)
        if self.used.sequences:
            self._db.execute(_CLOSE_RANKS, (ended,))
            self._db.execute(_NEW_LAST, (ended,))
        self._db.execute(_CLOSE, (ended,))
        self.woken.update(self.release(freed.perhaps))
        self.fail(freed.failed)
        return list(freed.failed)

    def _bad(self, ended: str) -> dict[int, Ended]:
        rows = self._db.execute(_BAD, (ended,))
        return {seq: Ended(job_id, name, State(state), error) for seq, job_id, name, state, error in rows}

    def release(self, seqs: Sequence[int]) -> set[str]:
        """Lets those of these jobs be claimed that wait for none any more. Returns their queues."""
        if not seqs:
            return set()
        rows = self._db.execute(_RELEASE, (json_text(seqs), self._now)).fetchall()
        return {queue for queue, waits_for in rows if waits_for is None}

    def fail(self, errors: dict[int, str], reason: str = PREDECESSOR) -> None:
        """Fails these queued jobs, each with its error."""
        if errors:
            self._db.execute(_FAIL, (json.dumps(list(errors.items())), self._now, reason))

    # new edges

    def add(self, edges: Sequence[tuple[int, int, int, bool, bool, int | None]]) -> None:
        """Adds edges: job, predecessor, nr, strict, open and ordinal."""
        if edges:
            self._db.execute(_ADD, (json_text(edges),))
            self.used.edges = True

    def adopt(self, children: Sequence[tuple[int, int]]) -> None:
        """Lets the followers of jobs wait for the children that these have spawned. `children` has parent and child."""
        if children:
            self._db.execute(_ADD_CHILDREN, (json_text(children),))

    def adopt_existing(self, seq: int, of: int, *, lives: bool, ordinal: int | None, but: Sequence[int] = ()) -> None:
        """Lets the followers of a job wait for another one as for a child, or, if that has ended, have it as
        predecessor; not those for which it waits itself, because neither could ever run, and not those in `but`."""
        self._db.execute(_ADD_EXISTING, (seq, of, lives, ordinal, json_text(but)))

    def followers_below(self, seq: int, ancestor: str) -> list[int]:
        """Returns the followers of a job that descend from another one."""
        return self._column(_FOLLOWERS_BELOW, seq, ancestor)

    def strict_followers(self, seq: int) -> list[int]:
        """Returns the jobs that wait for a job and fail if that does."""
        return self._column(_STRICT_FOLLOWERS, seq)

    def waits_for_itself(self, seq: int) -> bool:
        """Returns whether a job waits, through others, for itself."""
        return bool(self._column(_WAITS_FOR_ITSELF, seq)[0])

    def append(self, seq: int, queue: str, sequence: str, later: Collection[int] = ()) -> int | None:
        """Adds a job at the end of a sequence: it waits for the last job of it. `later` are added after it. Returns the
        live job that it now waits for; None if there is none, or it waits for what it waited for before."""
        behind: int | None = None
        for last, lives in self._db.execute(_LAST_OF_SEQUENCE, (queue, sequence)).fetchall():
            if last == seq:
                return None  # nothing was added since: what it waited for before, it waits for again
            self._db.execute("DELETE FROM chargehand_edge WHERE job = ? AND nr = ?", (seq, IN_SEQUENCE))
            # A last job that has ended may have ended before the jobs that it waited for.
            behind = last if lives and last not in later else None
            before = [last] if behind is not None else self._column(_BEFORE_IN_SEQUENCE, last)
            before = [each for each in before if each != seq and each not in later]
            self.add([(seq, each, IN_SEQUENCE, False, True, None) for each in before])
        self._db.execute(_SET_LAST, (queue, sequence, seq))
        self.used.sequences = True
        return behind

    # jobs that live again

    def retry(self, seqs: Sequence[int], *, strictly: bool = False) -> list[str]:
        """Queues those of these jobs again that can be, and those that failed because of them. Returns the ids of the
        former. `strictly`: raises Conflict if one of them cannot be, and lets none wait for its time."""
        rows = self._db.execute(_BAD_WITH_FOLLOWERS, (json_text(seqs),))
        bad = {seq: BadJob(*values) for seq, *values in rows}
        named = [seq for seq in seqs if seq in bad]
        needed = self._needs(list(bad))
        found = flows.revival(named, bad, [(job, predecessor) for job, predecessor, _ in needed])
        if strictly:
            _refuse(named, bad, needed, found.taken)
        errors = [(flows.why_not_revived(holder), seq) for seq, holder in found.taken.items() if seq not in named]
        self._db.executemany("UPDATE chargehand_job SET error = ? WHERE seq = ?", errors)
        if found.queued:
            again = json_text(sorted(found.queued))
            self._db.execute(_REVIVE, (again, self._now, json_text(named if strictly else ())))
            self._live_again(again)
        return [bad[seq].id for seq in named if seq in found.queued]

    def _needs(self, seqs: Sequence[int]) -> list[tuple[int, int, Ended]]:
        """Returns, for each of these jobs, the predecessors without which it cannot run, and which did not end well;
        for a job that would wait for itself number 0, and the job."""
        rows = self._db.execute(_NEEDS, (json_text(seqs),))
        return [(job, seq, Ended(job_id, name, State(state), error)) for job, seq, job_id, name, state, error in rows]

    def _live_again(self, again: str) -> None:
        self._db.execute(_OPEN_AGAIN, (again,))
        self._append_again(again)
        self._db.execute(_WAIT_AGAIN, (again,))
        self._db.execute(_REOPEN_FLOWS, (again,))
        self._used = self._used_by_new = None

    def _append_again(self, again: str) -> None:
        """Adds those of these jobs that have a sequence at its end, one that waits for another after that one."""
        of = {seq: (queue, sequence) for seq, queue, sequence in self._db.execute(_SEQUENCES_OF, (again,))}
        waits: list[tuple[int, int]] = []
        if len(of) > 1:
            waits = self._db.execute(_WAITS, (json_text(list(of)),)).fetchall()
        later = set(of)
        for seq in flows.in_order(of, waits):
            later.discard(seq)
            behind = self.append(seq, *of[seq], later)
            # Behind another one of these, it waits for none that waits for it: that is their order.
            if len(of) > 1 and behind not in of and self.waits_for_itself(seq):
                # through another sequence: it is not ordered, but it runs
                self._db.execute("DELETE FROM chargehand_edge WHERE job = ? AND nr = ?", (seq, IN_SEQUENCE))


def _refuse(
    named: Sequence[int],
    bad: Mapping[int, BadJob],
    needed: Sequence[tuple[int, int, Ended]],
    taken: Mapping[int, str],
) -> None:
    """Raises Conflict if one of the named jobs cannot be queued again."""
    for seq in named:
        if seq in taken:
            job = bad[seq]
            raise Conflict(f"job {job.id} cannot be retried: its key '{readable(job.key)}' is held by job {taken[seq]}")
    able = flows.revivable(named, [(job, predecessor) for job, predecessor, _ in needed])
    for job, number, predecessor in needed:
        if job in named and number not in able:
            why = f"{flows.why_failed(predecessor)}. Retry that one: this one follows" if number else predecessor.error
            raise Conflict(f"job {bad[job].id} cannot be retried: {why}")
