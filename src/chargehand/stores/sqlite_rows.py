"""SQLite rows into records, and the reading questions that take more than one statement."""

from typing import Any

import msgspec

from chargehand.model.job import FINISHED, JobRecord, State
from chargehand.store import Counts, Retention

JOB_COLUMNS = ", ".join(JobRecord.__struct_fields__)
_RAW = ("payload", "progress", "result")
_AT = {name: JobRecord.__struct_fields__.index(name) for name in (*_RAW, "state")}


def job_of(row: tuple[Any, ...]) -> JobRecord:
    """A row of JOB_COLUMNS as a record."""
    values = list(row)
    for name in _RAW:
        text = values[_AT[name]]
        values[_AT[name]] = None if text is None else msgspec.Raw(text.encode())
    values[_AT["state"]] = State(values[_AT["state"]])
    return JobRecord(**dict(zip(JobRecord.__struct_fields__, values, strict=True)))


# Each question is answered from an index alone.
_COUNTS = """
SELECT queue, 'queued', count(*) FROM chargehand_job WHERE state = 'queued' AND waits_for IS NULL GROUP BY queue
UNION ALL
SELECT queue, 'future', count(*) FROM chargehand_job WHERE state = 'queued' AND waits_for = 'time' GROUP BY queue
UNION ALL
SELECT queue, 'limited', count(*) FROM chargehand_job WHERE state = 'queued' AND waits_for = 'limit' GROUP BY queue
UNION ALL
SELECT queue, 'running', count(*) FROM chargehand_job WHERE state = 'running' GROUP BY queue
UNION ALL
SELECT queue, state, count(*) FROM chargehand_job
  WHERE state IN ('done', 'failed', 'cancelled') GROUP BY queue, state
"""


def counts_of(db: Any) -> list[Counts]:
    """Every queue that has jobs, with how many in each state."""
    found: dict[str, dict[str, int]] = {}
    for queue, state, number in db.execute(_COUNTS):
        of_queue = found.setdefault(str(queue), {})
        if state in ("future", "limited"):
            of_queue["queued"] = of_queue.get("queued", 0) + int(number)
        if state != "limited":
            of_queue[str(state)] = of_queue.get(str(state), 0) + int(number)
    return [Counts(queue=queue, **states) for queue, states in sorted(found.items())]


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


def overdue(db: Any, retention: Retention, now_ms: int, limit: int) -> list[tuple[int]]:
    """Up to `limit` finished jobs that are too old, or too many, to be kept."""
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
