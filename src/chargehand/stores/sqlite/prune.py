"""Finds what is past its retention in an SQLite store, by reading beside the writers, and deletes it in small steps."""

import json
from functools import partial
from typing import Any

import msgspec

from chargehand.model.access import REMEMBERED_MS
from chargehand.model.job import FINISHED
from chargehand.model.records import Retention
from chargehand.stores.sqlite.edges import LIVE
from chargehand.stores.surplus import LAST, Needed, Surplus

TEXTS_AT_ONCE = 100
"""How many crash reports or snapshots one transaction deletes, at most: each may be many pages long."""

_NEXT_QUEUE = """
SELECT queue FROM chargehand_job INDEXED BY chargehand_job_finished
WHERE state IN ('done', 'failed', 'cancelled') AND queue > ? ORDER BY queue LIMIT 1
"""
_OLDER = """
SELECT finished_ms, seq FROM chargehand_job INDEXED BY chargehand_job_finished
WHERE queue = ?1 AND state = ?2 AND state IN ('done', 'failed', 'cancelled') AND (finished_ms, seq) < (?3, ?4)
ORDER BY finished_ms DESC, seq DESC LIMIT 1 OFFSET ?5
"""
# A queued or running follower still needs a job, and a flow all of its jobs until it has ended.
_UNNEEDED = f"""
NOT EXISTS (SELECT 1 FROM chargehand_edge AS e INDEXED BY chargehand_edge_predecessor
    CROSS JOIN chargehand_job AS f WHERE e.predecessor = j.seq AND e.nr >= 0 AND f.seq = e.job AND f.state IN {LIVE})
  AND (j.flow IS NULL OR NOT EXISTS (SELECT 1 FROM chargehand_flow WHERE id = j.flow AND ended_ms IS NULL))
"""
_OLDEST = f"""
SELECT finished_ms, seq, {_UNNEEDED} FROM chargehand_job AS j INDEXED BY chargehand_job_finished
WHERE queue = ?1 AND state = ?2 AND state IN ('done', 'failed', 'cancelled') AND (finished_ms, seq) <= (?3, ?4)
  AND (finished_ms, seq) > (?5, ?6)
ORDER BY finished_ms, seq LIMIT ?7
"""
# Leaves out jobs that were retried meanwhile, or have got a follower; of the others all attempts are deleted.
_DELETE_JOBS = f"""
DELETE FROM chargehand_job AS j
WHERE seq IN (SELECT value FROM json_each(?)) AND state IN ('done', 'failed', 'cancelled') AND {_UNNEEDED}
RETURNING flow
"""
# Flows that have lost their last job, and those that had none.
_EMPTY_FLOWS = """
SELECT id FROM chargehand_flow INDEXED BY chargehand_flow_empty
WHERE place IS NULL AND ended_ms IS NOT NULL AND ended_ms < ? ORDER BY ended_ms LIMIT ?
"""
_DELETE_FLOW = """
DELETE FROM chargehand_flow
WHERE id = ?1 AND ended_ms IS NOT NULL AND NOT EXISTS (SELECT 1 FROM chargehand_job WHERE flow = ?1)
"""
_OVER_PERIODS = "SELECT queue, key FROM chargehand_once WHERE until_ms <= ? ORDER BY until_ms LIMIT ?"
_DELETE_ATTEMPTS = """
DELETE FROM chargehand_attempt
WHERE job IN (SELECT value FROM json_each(?)) AND NOT EXISTS (SELECT 1 FROM chargehand_job WHERE seq = job)
"""
_BEYOND_CRASHES = """
SELECT at_ms, seq FROM chargehand_crash WHERE at_ms >= ?1 ORDER BY at_ms DESC, seq DESC LIMIT 1 OFFSET ?2
"""
_OLDEST_CRASHES = """
SELECT seq FROM chargehand_crash WHERE (at_ms, seq) <= (?1, ?2) ORDER BY at_ms, seq LIMIT ?3
"""
_OLDEST_HISTORY = "SELECT timestamp_ms FROM chargehand_history WHERE timestamp_ms < ? ORDER BY timestamp_ms LIMIT ?"
_OLDEST_OPERATIONS = "SELECT id FROM chargehand_operation WHERE at_ms < ? ORDER BY at_ms LIMIT ?"
_OLDEST_REMEMBERED = "SELECT rowid FROM chargehand_remembered WHERE at_ms <= ? ORDER BY at_ms LIMIT ?"
_OVER_SESSIONS = "SELECT digest FROM chargehand_session WHERE expires_ms <= ? LIMIT ?"


class Expired(msgspec.Struct, frozen=True, kw_only=True):
    """The rows to delete, by the primary keys of their tables."""

    jobs: list[int]
    crashes: list[tuple[int]]
    history: list[tuple[int]]
    operations: list[tuple[int]]
    remembered: list[tuple[int]]
    sessions: list[tuple[str]]
    flows: list[tuple[str]]
    """The flows that never had a job."""
    periods: list[tuple[str, str]]

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)

    def delete(self, db: Any) -> int:
        """Deletes the rows inside the caller's transaction. Returns the number of jobs."""
        jobs = (json.dumps(self.jobs),)
        gone = [flow for (flow,) in db.execute(_DELETE_JOBS, jobs)]
        db.execute(_DELETE_ATTEMPTS, jobs)
        db.executemany(_DELETE_FLOW, [*((flow,) for flow in {*gone} if flow is not None), *self.flows])
        db.executemany("DELETE FROM chargehand_once WHERE queue = ? AND key = ?", self.periods)
        db.executemany("DELETE FROM chargehand_crash WHERE seq = ?", self.crashes)
        db.executemany("DELETE FROM chargehand_history WHERE timestamp_ms = ?", self.history)
        db.executemany("DELETE FROM chargehand_operation WHERE id = ?", self.operations)
        db.executemany("DELETE FROM chargehand_remembered WHERE rowid = ?", self.remembered)
        db.executemany("DELETE FROM chargehand_session WHERE digest = ?", self.sessions)
        return len(gone)


def find_expired(db: Any, surplus: Surplus, needed: Needed, retention: Retention, now_ms: int, limit: int) -> Expired:
    """Returns up to `limit` finished jobs, and some rows of other tables, that are past their retention."""
    few = min(limit, TEXTS_AT_ONCE)
    return Expired(
        jobs=_jobs(db, surplus, needed, retention, now_ms, limit),
        crashes=_crashes(db, retention, now_ms, few),
        history=db.execute(_OLDEST_HISTORY, (now_ms - retention.history_age_ms, few)).fetchall(),
        operations=db.execute(_OLDEST_OPERATIONS, (now_ms - retention.operation_age_ms, few)).fetchall(),
        remembered=db.execute(_OLDEST_REMEMBERED, (now_ms - REMEMBERED_MS, few)).fetchall(),
        sessions=db.execute(_OVER_SESSIONS, (now_ms, few)).fetchall(),
        flows=db.execute(_EMPTY_FLOWS, (now_ms - retention.age_ms, few)).fetchall(),
        periods=db.execute(_OVER_PERIODS, (now_ms, few)).fetchall(),
    )


def _jobs(db: Any, surplus: Surplus, needed: Needed, retention: Retention, now_ms: int, limit: int) -> list[int]:
    def older(*asked: str | int) -> tuple[int, int] | None:
        return db.execute(_OLDER, asked).fetchone()

    expired: list[int] = []
    queue = ""
    while len(expired) < limit and (row := db.execute(_NEXT_QUEUE, (queue,)).fetchone()):
        queue = str(row[0])
        for state in sorted(FINISHED):
            aged = now_ms - retention.age_ms - 1, LAST
            until = max(aged, surplus.first(older, queue, state.value, retention.count))
            room = limit - len(expired)
            free, more = needed.free(partial(_page, db, queue, state.value, until), queue, state.value, room)
            if not more:
                surplus.gone(queue, state.value, retention.count)
            expired += free
    return expired


def _page(
    db: Any, queue: str, state: str, until: tuple[int, int], after: tuple[int, int], size: int
) -> list[tuple[int, int, bool]]:
    return db.execute(_OLDEST, (queue, state, *until, *after, size)).fetchall()


def _crashes(db: Any, retention: Retention, now_ms: int, limit: int) -> list[tuple[int]]:
    young = now_ms - retention.crash_age_ms
    # The newest report to delete: the first beyond the count, or else the newest that is too old.
    newest = db.execute(_BEYOND_CRASHES, (young, retention.crash_count)).fetchone() or (young, -1)
    return db.execute(_OLDEST_CRASHES, (*newest, limit)).fetchall()
