"""Reads and writes flows in SQLite; `model.flows` decides. The writing part takes no lock and ends no transaction."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from chargehand.codec import MARK
from chargehand.errors import Conflict, FlowNotFound
from chargehand.ids import NewIds
from chargehand.model import flows
from chargehand.model.flows import (
    FlowCancelled,
    FlowCounts,
    FlowFilter,
    FlowRecord,
    FlowStage,
    FlowTotals,
    NewFlow,
    stages_of,
)
from chargehand.model.job import NewJob
from chargehand.model.records import CancelResult
from chargehand.stores.rows import json_text, readable, where
from chargehand.stores.sqlite.database import Database
from chargehand.stores.sqlite.edges import BAD, LIVE, Edges
from chargehand.stores.sqlite.limits import Limits
from chargehand.stores.sqlite.suspects import Suspects

HELD_AHEAD = "state = 'running' AND worker IS NULL AND ahead"
"""A job that the node holds ahead is shown as queued: no worker has it."""
LOOK_AT_ONCE = 5_000
"""How many open edges, waiting jobs or running flows one sweep looks at, at most."""

_BEGIN = """
INSERT INTO chargehand_flow (id, name, created_ms, arrival, on_end) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING
"""
# Each SELECT is answered from the index alone, except that of the running jobs, which are few.
_COUNTS = f"""
SELECT flow, iif(state = 'queued' AND waits_for = 'jobs', 'following', state), count(*) FROM chargehand_job
WHERE flow IN (SELECT value FROM json_each(?1)) AND state IN ('queued', 'done', 'failed', 'cancelled') GROUP BY 1, 2
UNION ALL
SELECT flow, iif({HELD_AHEAD}, 'queued', 'running'), count(*) FROM chargehand_job
WHERE flow IN (SELECT value FROM json_each(?1)) AND state = 'running' GROUP BY 1, 2
"""
# Of flows that end: all of their jobs have ended, so the order of the index is that of the groups.
_LAST_COUNTS = """
SELECT flow, state, count(*) FROM chargehand_job WHERE flow IN (SELECT value FROM json_each(?1)) GROUP BY flow, state
"""
_REASONS = f"""
SELECT flow, reason, count(*) FROM chargehand_job
WHERE flow IN (SELECT value FROM json_each(?1)) AND state IN {BAD} AND reason IS NOT NULL GROUP BY flow, reason
"""
_END = """
UPDATE chargehand_flow SET ended_ms = ?2, ends = ended.value ->> 1, state = ended.value ->> 2,
  on_end_job = ended.value ->> 3
FROM json_each(?1) AS ended WHERE chargehand_flow.id = ended.value ->> 0
"""
_ENDED_MS = "SELECT ended_ms FROM chargehand_flow WHERE id = ?"
_CANCEL_QUEUED = """
UPDATE chargehand_job SET state = 'cancelled', waits_for = NULL, finished_ms = ?2, reason = 'cancelled'
WHERE flow = ?1 AND state = 'queued' RETURNING queue, seq
"""
# Two searches in the index for each flow, however many jobs it has.
_OVER = """
SELECT f.id, f.name, f.created_ms, f.on_end, f.cancel_ms, f.ends
FROM json_each(?1) AS wanted CROSS JOIN chargehand_flow AS f
WHERE f.id = wanted.value AND f.ended_ms IS NULL
  AND NOT EXISTS (SELECT 1 FROM chargehand_job WHERE flow = f.id AND state = 'queued')
  AND NOT EXISTS (SELECT 1 FROM chargehand_job WHERE flow = f.id AND state = 'running')
"""
_CANCEL_RUNNING = """
UPDATE chargehand_job SET cancel_ms = coalesce(cancel_ms, ?2) WHERE flow = ?1 AND state = 'running' RETURNING id, fence
"""
_TO_RETRY = f"SELECT seq FROM chargehand_job WHERE flow = ?1 AND state IN {BAD} ORDER BY seq"
_OLDEST = "SELECT seq FROM chargehand_job WHERE flow = ? ORDER BY seq LIMIT ?"
_LEFT_OPEN = f"""
SELECT e.job, e.nr, e.predecessor, coalesce(p.state IN {LIVE}, 0) FROM (
  SELECT job, nr, predecessor FROM chargehand_edge INDEXED BY chargehand_edge_open
  WHERE open = 1 AND (job, nr, predecessor) > (?2, ?3, ?4) ORDER BY job, nr, predecessor LIMIT ?1) AS e
LEFT JOIN chargehand_job AS p ON p.seq = e.predecessor
"""
_LEFT_WAITING = """
SELECT queue, seq, EXISTS (SELECT 1 FROM chargehand_edge AS e INDEXED BY chargehand_edge_open
  WHERE e.job = f.seq AND e.open = 1)
FROM (
  SELECT queue, seq FROM chargehand_job INDEXED BY chargehand_job_following
  WHERE state = 'queued' AND waits_for = 'jobs' AND (queue, seq) > (?2, ?3) ORDER BY queue, seq LIMIT ?1) AS f
"""
_LEFT_RUNNING = """
SELECT seq, id,
  EXISTS (SELECT 1 FROM chargehand_job WHERE flow = f.id AND state = 'queued')
  OR EXISTS (SELECT 1 FROM chargehand_job WHERE flow = f.id AND state = 'running')
FROM (
  SELECT seq, id FROM chargehand_flow INDEXED BY chargehand_flow_running
  WHERE ended_ms IS NULL AND seq > ?2 ORDER BY seq LIMIT ?1) AS f
"""
_DELETE_JOBS = f"""
DELETE FROM chargehand_job WHERE seq IN (SELECT value FROM json_each(?1)) AND state NOT IN {LIVE}
"""
_DELETE_ATTEMPTS = "DELETE FROM chargehand_attempt WHERE job IN (SELECT value FROM json_each(?1))"
_FIELDS = "id, name, state, created_ms, ended_ms, ends, cancel_ms, on_end_job"
# Escapes are compared as people see them.
_SAYS = f"""
EXISTS (SELECT 1 FROM (SELECT lower(?) AS wanted, '{MARK}' AS mark)
  WHERE instr(lower(id), wanted) OR instr(replace(lower(name), mark, '\\'), wanted))
"""

# Reads each job of the flow, through the index.
_STAGES = f"""
SELECT queue, iif({HELD_AHEAD}, 'queued', state), waits_for IS 'jobs', count(*), min(started_ms), max(finished_ms)
FROM chargehand_job WHERE flow = ? GROUP BY 1, 2, 3
"""
_TOTALS = "SELECT state, count(*) FROM chargehand_flow GROUP BY state"

_on_end = msgspec.json.Decoder(NewJob)


class Endings:
    """What the ends of jobs mean for others in one transaction: followers are released or fail, and flows end."""

    def __init__(self, db: Any, now_ms: int, new_ids: NewIds, enqueue: Callable[[Sequence[NewJob]], object]) -> None:
        self._db, self._now, self._new_ids, self._enqueue = db, now_ms, new_ids, enqueue
        self.edges = Edges(db, now_ms)
        self.flows: list[str] = []
        """The flows that have ended in this transaction."""
        self.begun: set[str] = set()
        """The flows that were begun in this transaction: more jobs may come until it commits."""

    def ended(self, seqs: Sequence[int]) -> None:
        """Does what follows from the end of these jobs."""
        self.end_flows(self.edges.ended(seqs))

    def done(self, seqs: Sequence[int], flows: Iterable[str]) -> None:
        """Does what follows from the end of these jobs, which are done, and belong to these flows."""
        self.edges.done(seqs)
        self.end_flows(flows)

    def end_flows(self, flows: Iterable[str]) -> int:
        """Ends those of these flows of which no job is queued or running. Returns how many."""
        found = [flow for flow in dict.fromkeys(flows) if flow not in self.begun]
        if not found:
            return 0
        over: list[tuple[Any, ...]] = self._db.execute(_OVER, (json_text(found),)).fetchall()
        if over:
            self._end(over)
        return len(over)

    def commit(self) -> None:
        """Ends the flows without a live job that were begun in this transaction."""
        begun, self.begun = self.begun, set()
        self.end_flows(sorted(begun))

    def _end(self, over: Sequence[tuple[Any, ...]]) -> None:
        """Ends flows, and enqueues the jobs that they name for their end."""
        which = (json_text([flow for flow, *_ in over]),)
        counts = counts_of_flows(self._db.execute(_LAST_COUNTS, which))
        reasons: dict[str, dict[str, int]] = {}
        if any(each.failed or each.cancelled for each in counts.values()):
            for flow, reason, number in self._db.execute(_REASONS, which):
                reasons.setdefault(flow, {})[reason] = number
        rows: list[tuple[str, int, str, str | None]] = []
        jobs: list[NewJob] = []
        for flow, name, created_ms, on_end, cancel_ms, ends in over:
            end = flows.end_of(
                flow, name, counts.get(flow, FlowCounts()), reasons.get(flow, {}), cancelled=cancel_ms is not None,
                end=ends + 1, created_ms=created_ms, ended_ms=self._now,
            )  # fmt: skip
            job = None
            if on_end is not None:
                job = flows.job_of_end(_on_end.decode(on_end), end, next(iter(self._new_ids(1))))
                jobs.append(job)
            rows.append((flow, end.end, end.state, None if job is None else job.id))
        self._db.execute(_END, (json_text(rows), self._now))
        self.flows += [flow for flow, *_ in over]
        if jobs:
            self._enqueue(jobs)
            self.edges.woken.update(job.queue for job in jobs)


class SqliteFlows:
    """Implements `chargehand.store.FlowWriting`."""

    def __init__(self, db: Any, now_ms: int, limits: Limits, endings: Endings, position: "SweepPosition") -> None:
        self._db, self._now, self._limits, self._position = db, now_ms, limits, position
        self._endings, self._edges = endings, endings.edges

    def begin(self, flow: NewFlow) -> None:
        on_end = None if flow.on_end is None else msgspec.json.encode(flow.on_end).decode()
        self._db.execute(_BEGIN, (flow.id, flow.name, self._now, flow.arrival, on_end))
        if self._db.changes():
            self._endings.begun.add(flow.id)
            self._edges.used.flows = True

    def cancel(self, flow_id: str) -> FlowCancelled:
        if self._ended_ms(flow_id) is not None:
            return FlowCancelled(0)
        self._db.execute(
            "UPDATE chargehand_flow SET cancel_ms = coalesce(cancel_ms, ?2) WHERE id = ?1", (flow_id, self._now)
        )
        queued = self._db.execute(_CANCEL_QUEUED, (flow_id, self._now)).fetchall()
        running = self._db.execute(_CANCEL_RUNNING, (flow_id, self._now)).fetchall()
        self._limits.withdrawn(queued)
        self._endings.ended([seq for _, seq in queued])
        return FlowCancelled(len(queued), tuple(CancelResult(job_id, False, claim) for job_id, claim in running))

    def retry(self, flow_id: str) -> list[str]:
        runs = self._ended_ms(flow_id) is None
        retried = self._edges.retry([seq for (seq,) in self._db.execute(_TO_RETRY, (flow_id,))])
        if retried or runs:
            self._db.execute("UPDATE chargehand_flow SET cancel_ms = NULL WHERE id = ?", (flow_id,))
        Suspects(self._db, self._now).forgive(retried)
        return retried

    def delete(self, flow_id: str, limit: int) -> bool:
        if self._ended_ms(flow_id) is None:
            raise Conflict(f"flow {flow_id} has not ended: cancel it first, or wait for its end")
        seqs = [seq for (seq,) in self._db.execute(_OLDEST, (flow_id, limit))]
        which = (json_text(seqs),)
        self._db.execute(_DELETE_JOBS, which)
        self._db.execute(_DELETE_ATTEMPTS, which)
        gone = "DELETE FROM chargehand_flow WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM chargehand_job WHERE flow = ?1)"
        self._db.execute(gone, (flow_id,))
        return bool(self._db.changes())

    def sweep(self, limit: int) -> int:
        position, look = self._position, min(limit, LOOK_AT_ONCE)
        edges = self._db.execute(_LEFT_OPEN, (look, *position.edge)).fetchall()
        position.edge = edges[-1][:3] if len(edges) == look else FIRST_EDGE
        ended = dict.fromkeys(predecessor for _, _, predecessor, lives in edges if not lives)
        self._endings.ended(list(ended))
        waiting = self._db.execute(_LEFT_WAITING, (look, *position.job)).fetchall()
        position.job = waiting[-1][:2] if len(waiting) == look else FIRST_JOB
        left = [seq for _, seq, waits in waiting if not waits]
        self._edges.woken.update(self._edges.release(left))
        running = self._db.execute(_LEFT_RUNNING, (look, position.flow)).fetchall()
        position.flow = running[-1][0] if len(running) == look else 0
        over = self._endings.end_flows(flow for _, flow, lives in running if not lives)
        return len(ended) + len(left) + over

    def _ended_ms(self, flow_id: str) -> int | None:
        """Returns when a flow has ended; None if it runs. Raises FlowNotFound."""
        row = self._db.execute(_ENDED_MS, (flow_id,)).fetchone()
        if row is None:
            raise FlowNotFound(flows.why_no_flow(flow_id, ended=False))
        return row[0]


FIRST_EDGE = (0, 0, 0)
FIRST_JOB = ("", 0)


class SweepPosition:
    """Where the next sweep of a store continues."""

    def __init__(self) -> None:
        self.edge: tuple[int, int, int] = FIRST_EDGE
        self.job: tuple[str, int] = FIRST_JOB
        self.flow = 0


class SqliteFlowReading:
    """Implements `chargehand.store.FlowReading`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def get(self, flow_id: str) -> FlowRecord | None:
        rows = self._db.all(f"SELECT {_FIELDS} FROM chargehand_flow WHERE id = ?", (flow_id,))
        return next(iter(self._records(rows)), None)

    def find(self, which: FlowFilter) -> list[FlowRecord]:
        condition, bindings = where(
            {
                "state = ?": which.state,
                _SAYS: which.text and readable(which.text),
                "seq < (SELECT seq FROM chargehand_flow WHERE id = ?)": which.before,
            }
        )
        sql = f"SELECT {_FIELDS} FROM chargehand_flow WHERE {condition} ORDER BY seq DESC LIMIT ?"
        return self._records(self._db.all(sql, (*bindings, which.limit)))

    def stages(self, flow_id: str) -> list[FlowStage]:
        return stages_of(self._db.all(_STAGES, (flow_id,)))

    def totals(self) -> FlowTotals:
        return FlowTotals(**{str(state): int(number) for state, number in self._db.all(_TOTALS)})

    def exist(self, flows: Sequence[str], jobs: Sequence[str]) -> tuple[set[str], set[str]]:
        flow_ids = "SELECT id FROM chargehand_flow WHERE id IN (SELECT value FROM json_each(?))"
        job_ids = "SELECT id FROM chargehand_job WHERE id IN (SELECT value FROM json_each(?))"
        return (
            {str(found) for (found,) in self._db.all(flow_ids, (json.dumps(list(flows)),))},
            {str(found) for (found,) in self._db.all(job_ids, (json.dumps(list(jobs)),))},
        )

    def _records(self, rows: Sequence[tuple[Any, ...]]) -> list[FlowRecord]:
        counts = counts_of_flows(self._db.all(_COUNTS, (json_text([row[0] for row in rows]),)))
        return [
            FlowRecord(
                id=flow_id, name=name, state=state, counts=counts.get(flow_id, FlowCounts()), created_ms=created_ms,
                ended_ms=ended_ms, ends=ends, cancel_ms=cancel_ms, on_end=on_end_job,
            )
            for flow_id, name, state, created_ms, ended_ms, ends, cancel_ms, on_end_job in rows
        ]  # fmt: skip


def counts_of_flows(rows: Iterable[tuple[str, str, int]]) -> dict[str, FlowCounts]:
    """Returns the counts of each flow, from rows of flow, state and number; none for a flow without jobs."""
    found: dict[str, dict[str, int]] = {}
    for flow, state, number in rows:
        of_flow = found.setdefault(flow, {})
        for name in ("following", "queued") if state == "following" else (state,):
            of_flow[name] = of_flow.get(name, 0) + number
    return {flow: FlowCounts(**states) for flow, states in found.items()}
