"""Reads an SQLite store without changing it: no lock, no migration, no unlimited wait.

Only for a separate process, which may be killed: `python -m chargehand.doctor`.
"""

from contextlib import nullcontext
from typing import Any

import apsw

from chargehand import clock
from chargehand.errors import StoreError
from chargehand.stores.location import Location
from chargehand.stores.sqlite import files
from chargehand.stores.sqlite.database import Database
from chargehand.stores.sqlite.errors import NO_DATABASE, store_errors
from chargehand.stores.sqlite.flows import SqliteFlowReading
from chargehand.stores.sqlite.reading import SqliteFleetReading, SqliteJobReading
from chargehand.stores.sqlite.schema import MIGRATIONS

BUSY_MS = 1500
"""How long a reader waits for a process that has locked readers out."""
ENGINE_ERROR = apsw.Error
"""The error that reading a damaged file may raise."""
_VERSION = "SELECT coalesce(max(version), 0) FROM chargehand_schema"
# SQLite uses the index of the finished jobs only if its condition is written out.
_FINISHED = "state IN ('done', 'failed', 'cancelled')"
_LAST_DONE = f"SELECT max(finished_ms) FROM chargehand_job WHERE queue = ? AND {_FINISHED} AND state = 'done'"
_NEXT_RUN = """
SELECT queue, min(run_at_ms) - ? FROM chargehand_job WHERE state = 'queued' AND waits_for = 'time' GROUP BY queue
"""
_NEWEST = """
SELECT max(at) FROM (
  SELECT max(created_ms) AS at FROM (SELECT created_ms FROM chargehand_job ORDER BY seq DESC LIMIT 1)
  UNION ALL SELECT max(last_heartbeat_ms) FROM chargehand_health
  UNION ALL SELECT max(at_ms) FROM chargehand_given_up)
"""
_POISON = f"""
WITH suspected (id) AS (
  SELECT job FROM chargehand_crash WHERE job IS NOT NULL
  UNION SELECT id FROM (
    SELECT id, reason FROM chargehand_job
    WHERE queue IN (SELECT queue FROM chargehand_crew) AND {_FINISHED} AND state = 'failed'
    ORDER BY finished_ms DESC LIMIT 1000) WHERE reason = 'poison')
SELECT job.id, job.queue, job.crashes, job.state, job.label FROM suspected JOIN chargehand_job AS job USING (id)
WHERE job.crashes >= ? AND job.state IN ('queued', 'running', 'failed') ORDER BY job.state = 'failed', job.seq DESC
"""
_FAILED_SINCE = f"""
SELECT count(*) FROM chargehand_job WHERE queue = ? AND {_FINISHED} AND state = 'failed' AND finished_ms > ?
"""
_LAST_ERROR = f"""
SELECT error FROM chargehand_job WHERE queue = ? AND {_FINISHED} AND state = 'failed' ORDER BY finished_ms DESC LIMIT 1
"""
_TABLES = "SELECT sql FROM sqlite_schema WHERE tbl_name LIKE 'chargehand_%' AND sql IS NOT NULL ORDER BY rootpage"


class Peek:
    """Reads a store of any schema version; methods that need tables of another version raise the engine's error."""

    def __init__(self, location: Location) -> None:
        path = location.path
        with store_errors(path):
            location.check()
            if files.beginning_of(path) not in (b"", files.MAGIC):
                raise StoreError(NO_DATABASE.format(path=path))
            connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
            connection.set_busy_timeout(BUSY_MS)
        self._db = Database(path, connection, clock.now_ms, nullcontext())
        tables = self.tables()
        # A version without rates, flows, the context of jobs, or adopted children may have made the store.
        rated, flowing = "chargehand_rate" in tables, "chargehand_flow" in tables
        contextual, adopting = "traceparent" in tables, "chargehand_edge_ordinal" in tables
        self.jobs = SqliteJobReading(self._db, rated=rated, flowing=flowing, contextual=contextual, adopting=adopting)
        self.fleet = SqliteFleetReading(self._db, rated=rated, hides=False)
        self.flows = SqliteFlowReading(self._db) if "chargehand_flow" in self.tables() else None

    def schema(self) -> int:
        """Returns the version of the schema; 0 if the store has none yet."""
        return int(self._db.all(_VERSION)[0][0]) if "chargehand_schema" in self.tables() else 0

    def tables(self) -> str:
        """Returns the statements that create the tables and indexes."""
        return ";\n".join(str(sql) for (sql,) in self._db.all(_TABLES))

    def last_done(self, queue: str) -> int | None:
        """Returns when a job of this queue was done last."""
        return self._db.all(_LAST_DONE, (queue,))[0][0]

    def poison(self, crashes: int) -> list[dict[str, Any]]:
        """Returns the jobs that crashed this many workers and are not done, those that have not ended first."""
        names = ("id", "queue", "crashes", "state", "label")
        return [dict(zip(names, row, strict=True)) for row in self._db.all(_POISON, (crashes,))]

    def failed_since(self, queue: str, since_ms: int) -> int:
        """Returns how many jobs of this queue have failed for good since then."""
        return int(self._db.all(_FAILED_SINCE, (queue, since_ms))[0][0])

    def last_error(self, queue: str) -> str | None:
        """Returns the error of the job of this queue that failed for good last."""
        rows = self._db.all(_LAST_ERROR, (queue,))
        return rows[0][0] if rows else None

    def next_run(self) -> dict[str, int]:
        """Returns in how many ms the first scheduled job of each queue is due."""
        return {str(queue): int(left) for queue, left in self._db.all(_NEXT_RUN, (self._db.now_ms(),))}

    def newest_ms(self) -> int | None:
        """Returns the newest time in the store."""
        return self._db.all(_NEWEST)[0][0]

    def close(self) -> None:
        self._db.connection.close()


def is_damage(error: Exception) -> bool:
    """Returns whether the error says that the file is damaged or not a database."""
    kinds = (apsw.CorruptError, apsw.NotADBError)
    return isinstance(error, kinds) or isinstance(error.__cause__, kinds)


def engine_versions() -> dict[str, str]:
    """Returns the versions of SQLite and of its driver."""
    return {"apsw": apsw.apsw_version(), "sqlite": apsw.sqlite_lib_version()}


def known_schema() -> int:
    """Returns the schema version that this code knows."""
    return len(MIGRATIONS)
