"""Corrects times in the store that were computed from a clock which has been set back since."""

from collections.abc import Sequence
from typing import Any

from chargehand.model.records import Rescheduling

MOVE_ON = "UPDATE chargehand_recurring SET next_run_ms = ?3 WHERE name = ?1 AND next_run_ms = ?2 RETURNING name"
SKEW_MS = 1000
"""How far a time may lie in the future before the clock counts as set back."""
# The delay of a retry counts from the end of its last attempt; an end in the future is that of a clock that was ahead.
_ENDS_IN_FUTURE = """
SELECT seq, fence, ended_ms - ?1 FROM (
  SELECT seq, (SELECT max(fence) FROM chargehand_attempt WHERE job = seq) AS fence,
    (SELECT started_ms + duration_ms FROM chargehand_attempt WHERE job = seq ORDER BY fence DESC LIMIT 1) AS ended_ms
  FROM chargehand_job WHERE state = 'queued' AND waits_for = 'time')
WHERE ended_ms > ?1 + ?2
"""
_RETRY_EARLIER = "UPDATE chargehand_job SET run_at_ms = run_at_ms - ?3 WHERE seq = ?1 AND ?2"
_END_NOW = "UPDATE chargehand_attempt SET started_ms = started_ms - ?3 WHERE job = ?1 AND fence = ?2"
_PAUSE_EARLIER = """
UPDATE chargehand_pause SET since_ms = ?1, until_ms = until_ms - (since_ms - ?1) WHERE since_ms > ?1
"""


def set_back(db: Any, now_ms: int, recurring: Sequence[Rescheduling]) -> int:
    """Corrects recurring jobs that are still the same, retries and pauses. Returns how many retries were corrected."""
    for plan in recurring:
        db.execute(MOVE_ON, (plan.name, plan.due_ms, plan.next_run_ms))
    late = db.execute(_ENDS_IN_FUTURE, (now_ms, SKEW_MS)).fetchall()
    db.executemany(_RETRY_EARLIER, late)
    db.executemany(_END_NOW, late)
    db.execute(_PAUSE_EARLIER, (now_ms,))
    return len(late)
