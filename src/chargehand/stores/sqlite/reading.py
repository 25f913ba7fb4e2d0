"""What can be asked of an SQLite store. It reads beside whoever writes: it takes no lock and writes nothing."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from chargehand.model.access import ApiKey, Operation, OperationFilter, Session
from chargehand.model.job import Attempt, JobRecord
from chargehand.store import (
    ClaimRow,
    Counts,
    CrashFilter,
    CrashRecord,
    CrewRow,
    GivenUpMark,
    HealthRow,
    JobFilter,
    Pause,
    RecurringPlan,
    Snapshot,
)
from chargehand.stores.sqlite.fleet import readable
from chargehand.stores.sqlite.rows import columns, counts_of, records, where
from chargehand.stores.sqlite.words import in_words

_JOBS = f"SELECT {columns(JobRecord)} FROM chargehand_job"
_ATTEMPTS = f"""
SELECT {columns(Attempt)} FROM chargehand_attempt
WHERE job = (SELECT seq FROM chargehand_job WHERE id = ?) ORDER BY fence
"""
_SAYS = """
EXISTS (SELECT 1 FROM (SELECT lower(?) AS wanted) WHERE instr(lower(id), wanted) OR instr(lower(label), wanted)
  OR instr(lower(key), wanted) OR instr(lower(item), wanted) OR instr(lower(error), wanted))
"""
# Both look through those that run, which are few.
_CANCELLING = """
SELECT id, fence FROM chargehand_job INDEXED BY chargehand_job_running
WHERE state = 'running' AND cancel_ms IS NOT NULL ORDER BY cancel_ms, seq
"""
_CLAIMS = f"""
SELECT {columns(ClaimRow)} FROM chargehand_job INDEXED BY chargehand_job_running
WHERE state = 'running' ORDER BY started_ms, seq LIMIT ?
"""
_RECURRING = f"SELECT {columns(RecurringPlan)} FROM chargehand_recurring ORDER BY name"
_CREWS = (
    f"SELECT {columns(CrewRow, limit='allowed', limit_per_key='allowed_per_key')} FROM chargehand_crew ORDER BY name"
)
_PAUSES = f"""
SELECT {columns(Pause, left_ms="until_ms - ?1")} FROM chargehand_pause
WHERE until_ms IS NULL OR until_ms > ?1 ORDER BY scope
"""
_HEALTH = f"""
SELECT {columns(HealthRow, age_ms="?1 - last_heartbeat_ms")} FROM chargehand_health ORDER BY node, component
"""
_CRASHES = f"SELECT {columns(CrashRecord, age_ms='?1 - at_ms')} FROM chargehand_crash"
_GIVEN_UP = f"SELECT {columns(GivenUpMark)} FROM chargehand_given_up ORDER BY component"
_KEYS = f"SELECT {columns(ApiKey)} FROM chargehand_key ORDER BY created_ms, id"
_SESSIONS = f"SELECT {columns(Session)} FROM chargehand_session WHERE expires_ms > ?"
_OPERATIONS = f"SELECT {columns(Operation)} FROM chargehand_operation"
_SNAPSHOTS = f"""
SELECT {columns(Snapshot)} FROM chargehand_history WHERE timestamp_ms >= ? ORDER BY timestamp_ms LIMIT ?
"""
# From queue to queue, a step in the index each: nothing here walks over the jobs of one. What has fallen due is among
# the future ones until somebody claims from the queue; nobody may ever do, and just then this is asked.
_WAITING = """
WITH RECURSIVE
  ready(queue) AS (
    SELECT min(queue) FROM chargehand_job INDEXED BY chargehand_job_ready
    WHERE state = 'queued' AND waits_for IS NULL
    UNION ALL
    SELECT (SELECT min(queue) FROM chargehand_job INDEXED BY chargehand_job_ready
            WHERE state = 'queued' AND waits_for IS NULL AND queue > ready.queue)
    FROM ready WHERE queue IS NOT NULL),
  future(queue) AS (
    SELECT min(queue) FROM chargehand_job INDEXED BY chargehand_job_future
    WHERE state = 'queued' AND waits_for = 'time'
    UNION ALL
    SELECT (SELECT min(queue) FROM chargehand_job INDEXED BY chargehand_job_future
            WHERE state = 'queued' AND waits_for = 'time' AND queue > future.queue)
    FROM future WHERE queue IS NOT NULL),
  due(queue, since_ms) AS (
    SELECT queue, min(?1, (SELECT run_at_ms FROM chargehand_job INDEXED BY chargehand_job_ready
                           WHERE queue = ready.queue AND state = 'queued' AND waits_for IS NULL
                           ORDER BY priority DESC, seq LIMIT 1))
    FROM ready WHERE queue IS NOT NULL
    UNION ALL
    SELECT queue, (SELECT min(run_at_ms) FROM chargehand_job INDEXED BY chargehand_job_future
                   WHERE queue = future.queue AND state = 'queued' AND waits_for = 'time')
    FROM future WHERE queue IS NOT NULL)
SELECT queue, ?1 - min(since_ms) FROM due WHERE since_ms <= ?1 GROUP BY queue ORDER BY queue
"""


class SqliteReading:
    """The part of `chargehand.store.Store` that only reads."""

    def __init__(self, path: Path, now_ms: Callable[[], int]) -> None:
        self.path, self._now_ms = path, now_ms
        self._version = 0
        self._db: Any = None  # apsw's own types need Python 3.12

    def _all(self, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with in_words(self.path):
            return self._db.execute(sql, tuple(bindings)).fetchall()

    def stirred(self) -> bool:
        with in_words(self.path):
            seen, self._version = self._version, int(self._db.pragma("data_version"))
            return seen != self._version

    def job(self, job_id: str) -> JobRecord | None:
        return next(iter(records(JobRecord, self._all(f"{_JOBS} WHERE id = ?", (job_id,)))), None)

    def jobs(self, which: JobFilter) -> list[JobRecord]:
        condition, bindings = where(
            {
                "queue = ?": which.queue,
                "state = ?": which.state and which.state.value,
                "reason = ?": which.reason,
                _SAYS: which.text and readable(which.text),
                "seq < (SELECT seq FROM chargehand_job WHERE id = ?)": which.before,
                "seq < ?": which.below,
            }
        )
        sql = f"{_JOBS} WHERE {condition} ORDER BY seq DESC LIMIT ?"
        return records(JobRecord, self._all(sql, (*bindings, which.limit)))

    def attempts(self, job_id: str) -> list[Attempt]:
        return records(Attempt, self._all(_ATTEMPTS, (job_id,)))

    def counts(self) -> list[Counts]:
        with in_words(self.path):
            return counts_of(self._db)

    def cancelling(self) -> list[tuple[str, int]]:
        return [(str(job_id), int(fence)) for job_id, fence in self._all(_CANCELLING)]

    def claims(self, limit: int = 1000) -> list[ClaimRow]:
        return records(ClaimRow, self._all(_CLAIMS, (limit,)))

    def recurring(self) -> list[RecurringPlan]:
        return records(RecurringPlan, self._all(_RECURRING))

    def now_ms(self) -> int:
        return self._now_ms()

    def waiting(self) -> list[tuple[str, int]]:
        return [(str(queue), int(age)) for queue, age in self._all(_WAITING, (self._now_ms(),))]

    def crews(self) -> list[CrewRow]:
        return records(CrewRow, self._all(_CREWS))

    def pauses(self) -> list[Pause]:
        return records(Pause, self._all(_PAUSES, (self._now_ms(),)))

    def health(self) -> list[HealthRow]:
        return records(HealthRow, self._all(_HEALTH, (self._now_ms(),)))

    def crash(self, crash_id: str) -> CrashRecord | None:
        rows = self._all(f"{_CRASHES} WHERE id = ?", (self._now_ms(), crash_id))
        return next(iter(records(CrashRecord, rows)), None)

    def crashes(self, which: CrashFilter) -> list[CrashRecord]:
        condition, bindings = where(
            {
                "component = ?": which.component,
                "crew = ?": which.crew,
                "job = ?": which.job,
                "(at_ms, seq) < (SELECT at_ms, seq FROM chargehand_crash WHERE id = ?)": which.before,
            }
        )
        sql = f"{_CRASHES} WHERE {condition} ORDER BY at_ms DESC, seq DESC LIMIT ?"
        return records(CrashRecord, self._all(sql, (self._now_ms(), *bindings, which.limit)))

    def given_up(self) -> list[GivenUpMark]:
        return records(GivenUpMark, self._all(_GIVEN_UP))

    def snapshots(self, since_ms: int, limit: int) -> list[Snapshot]:
        return records(Snapshot, self._all(_SNAPSHOTS, (since_ms, limit)))

    def api_keys(self) -> list[ApiKey]:
        return records(ApiKey, self._all(_KEYS))

    def sessions(self) -> list[Session]:
        return records(Session, self._all(_SESSIONS, (self._now_ms(),)))

    def operations(self, which: OperationFilter) -> list[Operation]:
        asked = {"who = ?": which.who, "verb = ?": which.verb, "target = ?": which.target, "id < ?": which.before}
        condition, bindings = where(asked)
        sql = f"{_OPERATIONS} WHERE {condition} ORDER BY id DESC LIMIT ?"
        return records(Operation, self._all(sql, (*bindings, which.limit)))
