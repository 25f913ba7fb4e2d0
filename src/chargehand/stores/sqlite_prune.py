"""What is past its keeping in an SQLite store: found by reading, beside the writers, and deleted a few at a time."""

from typing import Any

import msgspec

from chargehand.model.access import REMEMBERED_MS
from chargehand.model.job import FINISHED, State
from chargehand.store import Retention

TEXTS_AT_ONCE = 100
"""Crash reports, and snapshots, deleted in one transaction, at most: each may be many pages long."""

_NEXT_QUEUE = """
SELECT queue FROM chargehand_job INDEXED BY chargehand_job_finished
WHERE state IN ('done', 'failed', 'cancelled') AND queue > ? ORDER BY queue LIMIT 1
"""
_BEYOND = """
SELECT finished_ms FROM chargehand_job INDEXED BY chargehand_job_finished
WHERE queue = ?1 AND state = ?2 AND state IN ('done', 'failed', 'cancelled')
ORDER BY finished_ms DESC LIMIT 1 OFFSET ?3
"""
_OLDEST = """
SELECT seq FROM chargehand_job INDEXED BY chargehand_job_finished
WHERE queue = ?1 AND state = ?2 AND state IN ('done', 'failed', 'cancelled') AND finished_ms <= ?3
ORDER BY finished_ms LIMIT ?4
"""
_DELETE_JOB = "DELETE FROM chargehand_job WHERE seq = ? AND state IN ('done', 'failed', 'cancelled') RETURNING seq"
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


class Doomed(msgspec.Struct, frozen=True, kw_only=True):
    """What may go, by the primary keys of its tables."""

    jobs: list[tuple[int]]
    crashes: list[tuple[int]]
    history: list[tuple[int]]
    operations: list[tuple[int]]
    remembered: list[tuple[int]]
    sessions: list[tuple[str]]

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)

    def delete(self, db: Any) -> int:
        """Delete it, inside the caller's transaction; how many jobs went."""
        gone = list(db.executemany(_DELETE_JOB, self.jobs))  # not those that somebody has just retried
        db.executemany("DELETE FROM chargehand_attempt WHERE job = ?", gone)
        db.executemany("DELETE FROM chargehand_crash WHERE seq = ?", self.crashes)
        db.executemany("DELETE FROM chargehand_history WHERE timestamp_ms = ?", self.history)
        db.executemany("DELETE FROM chargehand_operation WHERE id = ?", self.operations)
        db.executemany("DELETE FROM chargehand_remembered WHERE rowid = ?", self.remembered)
        db.executemany("DELETE FROM chargehand_session WHERE digest = ?", self.sessions)
        return len(gone)


def overdue(db: Any, retention: Retention, now_ms: int, limit: int) -> Doomed:
    """Up to `limit` finished jobs, and some reports and snapshots, that are too old, or too many, to be kept."""
    few = min(limit, TEXTS_AT_ONCE)
    return Doomed(
        jobs=_jobs(db, retention, now_ms, limit),
        crashes=_crashes(db, retention, now_ms, few),
        history=db.execute(_OLDEST_HISTORY, (now_ms - retention.history_age_ms, few)).fetchall(),
        operations=db.execute(_OLDEST_OPERATIONS, (now_ms - retention.operation_age_ms, few)).fetchall(),
        remembered=db.execute(_OLDEST_REMEMBERED, (now_ms - REMEMBERED_MS, few)).fetchall(),
        sessions=db.execute(_OVER_SESSIONS, (now_ms, few)).fetchall(),
    )


def _jobs(db: Any, retention: Retention, now_ms: int, limit: int) -> list[tuple[int]]:
    doomed: list[tuple[int]] = []
    queue = ""
    while len(doomed) < limit and (row := db.execute(_NEXT_QUEUE, (queue,)).fetchone()):
        queue = str(row[0])
        for state in sorted(FINISHED):
            beyond = db.execute(_BEYOND, (queue, state.value, retention.count)).fetchone()
            until = max(now_ms - retention.age_ms - 1, int(beyond[0]) if beyond else 0)
            room = limit - len(doomed)
            if beyond is not None and int(beyond[0]) == until:
                # Several may have finished in that very millisecond: never more than there are too many.
                room = min(room, _surplus(db, queue, state, retention.count))
            rows = db.execute(_OLDEST, (queue, state.value, until, room)).fetchall()
            doomed += [(int(seq),) for (seq,) in rows]
    return doomed


def _surplus(db: Any, queue: str, state: State, keep: int) -> int:
    sql = (
        "SELECT count(*) FROM chargehand_job WHERE queue = ? AND state = ? AND state IN ('done', 'failed', 'cancelled')"
    )
    (number,) = db.execute(sql, (queue, state.value)).fetchone() or (0,)
    return max(0, int(number) - keep)


def _crashes(db: Any, retention: Retention, now_ms: int, limit: int) -> list[tuple[int]]:
    young = now_ms - retention.crash_age_ms
    # The newest that must go: the first beyond the count, else whichever came before all that are young enough.
    newest = db.execute(_BEYOND_CRASHES, (young, retention.crash_count)).fetchone() or (young, -1)
    return db.execute(_OLDEST_CRASHES, (*newest, limit)).fetchall()
