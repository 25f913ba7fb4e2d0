"""Writes the jobs of discovered items to SQLite; `model.items` decides which. Part of a transaction."""

import json
from collections import Counter
from typing import Any

import msgspec

from chargehand.ids import NewIds
from chargehand.model.items import PastJob, Verdict, jobs_needed, judge_page, no_progress_error
from chargehand.model.job import Found, State
from chargehand.model.records import Discovered, Discovery

# For a whole page, as one JSON text: of each item its newest jobs, newest first.
_NEWEST = """
SELECT json_group_array(json((
  SELECT json_group_array(json_array(state, finished_ms, retried_ms)) FROM (
    SELECT state, finished_ms, retried_ms FROM chargehand_job
    WHERE queue = ?1 AND item = found.value ORDER BY seq DESC LIMIT ?3))))
FROM json_each(?2) AS found
"""
_INSERT = """
INSERT INTO chargehand_job (id, queue, state, priority, run_at_ms, max_attempts, timeout_ms, key, created_ms, label,
                            payload, item, finished_ms, reason, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""

_pasts = msgspec.json.Decoder(list[list[PastJob]])


def discover(db: Any, page: Discovery, now_ms: int, new_ids: NewIds) -> Discovered:
    """Queues the new items of a page, in its order, and returns what became of all of them."""
    items = [found.item for found in page.found]
    ((pasts,),) = db.execute(_NEWEST, (page.queue, json.dumps(items), jobs_needed(page)))
    verdicts = judge_page(page, items, _pasts.decode(pasts), now_ms)
    rows = [
        _row(page, found, item, job_id, verdict == "no progress", now_ms)
        for found, item, job_id, verdict in zip(page.found, items, new_ids(len(items)), verdicts, strict=True)
        if verdict in ("queued", "no progress")
    ]
    before = db.total_changes()
    db.executemany(_INSERT, rows)
    taken = len(rows) - (db.total_changes() - before)  # an application enqueued a job under the key of an item
    number: Counter[Verdict] = Counter(verdicts)
    return Discovered(
        queued=number["queued"] - taken,
        held=number["held"] + taken,
        set_aside=number["set aside"],
        no_progress=tuple(f.item for f, verdict in zip(page.found, verdicts, strict=True) if verdict == "no progress"),
    )


def _row(page: Discovery, found: Found, item: str, job_id: str, stuck: bool, now_ms: int) -> tuple[Any, ...]:
    state, finished, reason, error = State.QUEUED, None, None, None
    if stuck:
        state, finished, reason, error = State.FAILED, now_ms, "no progress", no_progress_error(page)
    # The limit of a key's length does not apply: the store makes this key, so that an item never has two live jobs.
    key = f"item:{item}"
    return (
        job_id, page.queue, state.value, page.priority, now_ms, page.max_attempts, page.timeout_ms, key, now_ms,
        found.label, found.payload, item, finished, reason, error,
    )  # fmt: skip
