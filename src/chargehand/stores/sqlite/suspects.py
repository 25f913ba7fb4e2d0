"""Reads and writes the suspects in SQLite: jobs that a node had when it died; `model.suspects` decides.

Part of a transaction. Suspects are few and seldom: a claim asks only whether there are any.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any

from chargehand.model import suspects
from chargehand.model.job import Claim, JobPolicy, Settlement, State
from chargehand.model.records import Holder
from chargehand.model.suspects import Orphan, Suspect

_SUSPECTS = """
SELECT suspect.job, state, queue, priority, waits_for IS NULL, life = ?1
FROM chargehand_suspect AS suspect LEFT JOIN chargehand_job ON seq = suspect.job
"""
_ORPHANS = """
SELECT id, seq, fence, queue, crashes, node, life, worker, started_ms,
  seq IN (SELECT job FROM chargehand_suspect)
FROM chargehand_job
WHERE state = 'running' AND life <> ?1
  AND (?2 = '[]' OR worker IS NOT NULL AND worker NOT IN (SELECT value FROM json_each(?2)))
"""


class Suspects:
    """The suspects, as one transaction sees them."""

    def __init__(self, db: Any, now_ms: int) -> None:
        self._db, self._now = db, now_ms

    def blocked(self, queue: str, holder: Holder) -> tuple[list[int], set[int]]:
        """Returns the jobs that a claim from this queue must leave, and all suspects; forgets finished ones."""
        found = [
            Suspect(
                seq=seq, state=None if state is None else State(state), queue=of, priority=priority,
                ready=bool(ready), here=bool(here),
            )
            for seq, state, of, priority, ready, here in self._db.execute(_SUSPECTS, (holder.life,)).fetchall()
        ]  # fmt: skip
        gone = suspects.finished(found)
        self._db.executemany("DELETE FROM chargehand_suspect WHERE job = ?", [(seq,) for seq in gone])
        return suspects.blocked(found, queue), {each.seq for each in found}

    def forgive(self, ids: Sequence[str]) -> None:
        """Forgets that these jobs, which had finished and are retried, were suspects."""
        sql = "DELETE FROM chargehand_suspect WHERE job = (SELECT seq FROM chargehand_job WHERE id = ?)"
        self._db.executemany(sql, [(job_id,) for job_id in ids])

    def release(
        self, holder: Holder, spare: Sequence[str], died: Collection[str], why: str, policy: JobPolicy
    ) -> list[tuple[str, Settlement]]:
        """Returns how the claims of earlier lives end, each with the node that had it, and keeps new suspects."""
        rows = self._db.execute(_ORPHANS, (holder.life, json.dumps(list(spare)))).fetchall()
        orphans = [
            Orphan(
                claim=Claim(
                    id=job_id, seq=seq, number=number, queue=queue, payload="null", label=None, priority=0, failures=0,
                    max_attempts=1, crashes=crashes, timeout_ms=None,
                ),
                node=node, life=life, worker=worker, duration_ms=max(0, self._now - started_ms), suspect=bool(suspect),
            )
            for job_id, seq, number, queue, crashes, node, life, worker, started_ms, suspect in rows
        ]  # fmt: skip
        settlements, new = suspects.release(orphans, died, why, policy)
        sql = "INSERT OR IGNORE INTO chargehand_suspect (job, since_ms) VALUES (?, ?)"
        self._db.executemany(sql, [(orphan.claim.seq, self._now) for orphan in new])
        return [(orphan.node, settlement) for orphan, settlement in zip(orphans, settlements, strict=True)]
