"""Finds what is past its retention in an SQLite store, by reading beside the writers, and deletes it in small steps."""

import json
from typing import Any

import msgspec

from chargehand.model.access import REMEMBERED_MS
from chargehand.model.job import FINISHED
from chargehand.model.records import Retention
from chargehand.stores.surplus import LAST, Surplus

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
_OLDEST = """
SELECT seq FROM chargehand_job INDEXED BY chargehand_job_finished
WHERE queue = ?1 AND state = ?2 AND state IN ('done', 'failed', 'cancelled') AND (finished_ms, seq) <= (?3, ?4)
ORDER BY finished_ms, seq LIMIT ?5
"""
# Leaves out jobs that were retried meanwhile; of the others all attempts are deleted.
_DELETE_JOBS = """
DELETE FROM chargehand_job WHERE seq IN (SELECT value FROM json_each(?)) AND state IN ('done', 'failed', 'cancelled')
"""
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

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)

    def delete(self, db: Any) -> int:
        """Deletes the rows inside the caller's transaction. Returns the number of jobs."""
        jobs = (json.dumps(self.jobs),)
        db.execute(_DELETE_JOBS, jobs)
        gone = int(db.changes())
        db.execute(_DELETE_ATTEMPTS, jobs)
        db.executemany("DELETE FROM chargehand_crash WHERE seq = ?", self.crashes)
        db.executemany("DELETE FROM chargehand_history WHERE timestamp_ms = ?", self.history)
        db.executemany("DELETE FROM chargehand_operation WHERE id = ?", self.operations)
        db.executemany("DELETE FROM chargehand_remembered WHERE rowid = ?", self.remembered)
        db.executemany("DELETE FROM chargehand_session WHERE digest = ?", self.sessions)
        return gone


def find_expired(db: Any, surplus: Surplus, retention: Retention, now_ms: int, limit: int) -> Expired:
    """Returns up to `limit` finished jobs, and some rows of other tables, that are past their retention."""
    few = min(limit, TEXTS_AT_ONCE)
    return Expired(
        jobs=_jobs(db, surplus, retention, now_ms, limit),
        crashes=_crashes(db, retention, now_ms, few),
        history=db.execute(_OLDEST_HISTORY, (now_ms - retention.history_age_ms, few)).fetchall(),
        operations=db.execute(_OLDEST_OPERATIONS, (now_ms - retention.operation_age_ms, few)).fetchall(),
        remembered=db.execute(_OLDEST_REMEMBERED, (now_ms - REMEMBERED_MS, few)).fetchall(),
        sessions=db.execute(_OVER_SESSIONS, (now_ms, few)).fetchall(),
    )


def _jobs(db: Any, surplus: Surplus, retention: Retention, now_ms: int, limit: int) -> list[int]:
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
            rows = db.execute(_OLDEST, (queue, state.value, *until, room)).fetchall()
            if len(rows) < room:
                surplus.gone(queue, state.value, retention.count)
            expired += [int(seq) for (seq,) in rows]
    return expired


def _crashes(db: Any, retention: Retention, now_ms: int, limit: int) -> list[tuple[int]]:
    young = now_ms - retention.crash_age_ms
    # The newest report to delete: the first beyond the count, or else the newest that is too old.
    newest = db.execute(_BEYOND_CRASHES, (young, retention.crash_count)).fetchone() or (young, -1)
    return db.execute(_OLDEST_CRASHES, (*newest, limit)).fetchall()
