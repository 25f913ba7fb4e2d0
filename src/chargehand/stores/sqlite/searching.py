"""Searches of jobs in an SQLite store; `stores.searching` decides what is read."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from chargehand.model.job import FINISHED, State
from chargehand.model.records import Counts, FailedJob, JobFilter, SearchPlace, Sort
from chargehand.stores.matching import Condition, Matching, joined
from chargehand.stores.rows import clean, columns
from chargehand.stores.searching import Part, states_of
from chargehand.stores.sqlite.database import Database
from chargehand.stores.sqlite.flows import HELD_AHEAD


def _in_payload(steps: Sequence[str]) -> Condition:
    # Without quotation, a key with escapes would be another key to SQLite. Objects and arrays are not compared: what
    # they contain may be hidden.
    keys = (f"[{step}]" if step.isdecimal() else f".{json.dumps(step, ensure_ascii=False)}" for step in steps)
    path = "$" + "".join(keys)
    value = "CASE json_type(payload, ?) WHEN 'text' THEN payload ->> ? WHEN 'object' THEN NULL WHEN 'array' THEN NULL"
    return f"{value} ELSE payload -> ? END", (path, path, path)


MATCHING = Matching(
    {name: name for name in ("id", "label", "key", "item", "error", "share", "sequence", "node", "worker")},
    "LIKE",
    "REGEXP",
    _in_payload,
    "EXISTS (SELECT 1 FROM chargehand_tag AS g WHERE g.tag = ? AND g.job = seq)",
    "EXISTS (SELECT 1 FROM chargehand_attempt AS a WHERE a.job = seq AND {})",
)
_SORTS = {
    Sort.LONGEST: "iif(state = 'queued' OR started_ms IS NULL, -1, coalesce(finished_ms, {now}) - started_ms)",
    Sort.PRIORITY: "priority",
}
_FINISHED = "state IN ('done', 'failed', 'cancelled')"
# Each is answered from an index alone.
_OF_STATE = {
    State.QUEUED: (
        "INDEXED BY chargehand_job_ready WHERE state = 'queued' AND waits_for IS NULL",
        "INDEXED BY chargehand_job_future WHERE state = 'queued' AND waits_for = 'time'",
        "INDEXED BY chargehand_job_limited WHERE state = 'queued' AND waits_for = 'limit'",
        "INDEXED BY chargehand_job_following WHERE state = 'queued' AND waits_for = 'jobs'",
        f"INDEXED BY chargehand_job_running WHERE state = 'running' AND ({HELD_AHEAD})",
    ),
    State.RUNNING: (f"INDEXED BY chargehand_job_running WHERE state = 'running' AND NOT ({HELD_AHEAD})",),
    **{
        state: (f"INDEXED BY chargehand_job_finished WHERE {_FINISHED} AND state = '{state.value}'",)
        for state in sorted(FINISHED)
    },
}
# Steps from queue to queue: an index that begins with the queue is then asked for one state of each.
_QUEUES = f"""
WITH RECURSIVE known (queue) AS (
  SELECT min(queue) FROM chargehand_job INDEXED BY chargehand_job_finished WHERE {_FINISHED}
  UNION ALL
  SELECT (SELECT min(queue) FROM chargehand_job INDEXED BY chargehand_job_finished
          WHERE {_FINISHED} AND queue > known.queue)
  FROM known WHERE queue IS NOT NULL)
SELECT queue FROM known WHERE queue IS NOT NULL
"""


class SqliteSearching:
    """Implements `chargehand.stores.searching.Searchable`."""

    def __init__(
        self,
        db: Database,
        fields: str,
        short: str,
        conditions: Callable[[JobFilter], list[Condition]],
        counts: Callable[[], list[Counts]],
    ) -> None:
        """`fields`: the columns of a JobRecord; `short`: those of a JobSize;
        `conditions`: those of a filter, apart from a tag."""
        self._db, self._fields, self._short = db, fields, short
        self._conditions, self.counts = conditions, counts

    def now_ms(self) -> int:
        return self._db.now_ms()

    def positions(self) -> tuple[int, int]:
        ((low, high),) = self._db.all(
            "SELECT (SELECT min(seq) FROM chargehand_job), (SELECT max(seq) FROM chargehand_job)"
        )
        return (0, 0) if low is None else (int(low), int(high) + 1)

    def created_ms(self, low: int) -> int | None:
        rows = self._db.all("SELECT created_ms FROM chargehand_job WHERE seq >= ? ORDER BY seq LIMIT 1", (low,))
        return int(rows[0][0]) if rows else None

    def page(
        self, which: JobFilter, part: Part, sort: Sort, after: SearchPlace | None, limit: int, *, short: bool = False
    ) -> list[tuple[Any, ...]]:
        conditions = self._within(which, part)
        order = "seq" if sort is Sort.OLDEST else "seq DESC"
        if sort in _SORTS:
            value = _SORTS[sort].format(now=self._db.now_ms())
            order = f"{value} DESC, seq DESC"
            if after is not None:
                conditions.append((f"({value}, seq) < (?, ?)", (after.value, after.seq)))
        condition, bindings = joined(conditions)
        fields = self._short if short else self._fields
        sql = f"SELECT {fields} FROM chargehand_job NOT INDEXED WHERE {condition} ORDER BY {order} LIMIT ?"
        return self._db.all(sql, (*bindings, limit))

    def numbers(self, which: JobFilter, part: Part) -> list[tuple[Any, ...]]:
        condition, bindings = joined(self._within(which, part))
        shown = f"iif({HELD_AHEAD}, 'queued', state)"
        sql = f"SELECT {shown}, count(*) FROM chargehand_job NOT INDEXED WHERE {condition} GROUP BY 1"
        return self._db.all(sql, bindings)

    def failed(self, which: JobFilter, part: Part, limit: int) -> list[tuple[Any, ...]]:
        condition, bindings = joined([*self._within(which, part), ("state = 'failed'", ())])
        sql = f"SELECT {columns(FailedJob)} FROM chargehand_job NOT INDEXED WHERE {condition} ORDER BY seq DESC LIMIT ?"
        return self._db.all(sql, (*bindings, limit))

    def _within(self, which: JobFilter, part: Part) -> list[Condition]:
        if part.these is not None:
            found: Condition = ("seq IN (SELECT value FROM json_each(?))", (json.dumps(part.these),))
        else:
            found = ("seq >= ? AND seq < ?", (part.low, part.below))
        tag: list[Condition] = [(MATCHING.tagged, (clean(which.tag),))] if which.tag is not None else []
        return [found, *tag, *self._conditions(which)]

    def indexed(self, which: JobFilter, part: Part, *, newest: bool, limit: int) -> list[int] | None:
        order = "DESC" if newest else "ASC"
        bounds = (part.low, part.below, limit)
        if which.ids is not None:
            sql = f"""
SELECT seq FROM chargehand_job WHERE id IN (SELECT value FROM json_each(?)) AND seq >= ? AND seq < ?
ORDER BY seq {order} LIMIT ?"""
            return [int(seq) for (seq,) in self._db.all(sql, (json.dumps(which.ids), *bounds))]
        if which.tag is not None:
            sql = f"""
SELECT job FROM chargehand_tag WHERE tag = ? AND job >= ? AND job < ? ORDER BY job {order} LIMIT ?"""
            return [int(seq) for (seq,) in self._db.all(sql, (clean(which.tag), *bounds))]
        if which.flow is not None:
            sql = f"""
SELECT seq FROM chargehand_job INDEXED BY chargehand_job_flow
WHERE flow = ? AND seq >= ? AND seq < ? ORDER BY seq {order} LIMIT ?"""
            return [int(seq) for (seq,) in self._db.all(sql, (which.flow, *bounds))]
        states = states_of(which)
        if states is None and which.queue is None:
            return None
        queues = [which.queue] if which.queue is not None else None
        if queues is None and states is not None and FINISHED.issuperset(states):
            queues = [str(queue) for (queue,) in self._db.all(_QUEUES)]
        branches = [branch for state in states or State for branch in _OF_STATE[state]]
        of_queue = "" if queues is None else " AND queue IN (SELECT value FROM json_each(?4))"
        union = "\nUNION ALL\n".join(
            f"SELECT seq FROM chargehand_job {branch} AND seq >= ?1 AND seq < ?2{of_queue}" for branch in branches
        )
        sql = f"SELECT seq FROM ({union}) ORDER BY seq {order} LIMIT ?3"
        return [int(seq) for (seq,) in self._db.all(sql, bounds if queues is None else (*bounds, json.dumps(queues)))]

    def counted(self, state: State, queue: str | None) -> int:
        queues = [queue] if queue is not None else None
        if queues is None and state in FINISHED:
            queues = [str(name) for (name,) in self._db.all(_QUEUES)]
        of_queue, bindings = (
            ("", ()) if queues is None else (" AND queue IN (SELECT value FROM json_each(?1))", (json.dumps(queues),))
        )
        branches = (f"(SELECT count(*) FROM chargehand_job {branch}{of_queue})" for branch in _OF_STATE[state])
        ((number,),) = self._db.all(f"SELECT {' + '.join(branches)}", bindings)
        return int(number)

    def named(self, ending: str, limit: int) -> list[str]:
        """Returns the ids that end so."""
        sql = "SELECT id FROM chargehand_job WHERE substr(id, ?1) = ?2 ORDER BY id DESC LIMIT ?3"
        return [str(found) for (found,) in self._db.all(sql, (-len(ending), ending, limit))]
