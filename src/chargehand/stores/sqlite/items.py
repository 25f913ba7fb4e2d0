"""What `discover` found in the application's own tables, and what becomes of each in an SQLite store.

Only the newest job of an item can be anything but done: none is made beside one that waits or runs, nor after one that
failed or was cancelled. So the few newest say all there is to know.
"""

import json
from collections import Counter
from typing import Any, Literal

import msgspec

from chargehand.ids import NewIds
from chargehand.model.job import Found, State
from chargehand.model.records import Discovered, Discovery

Verdict = Literal["queued", "held", "set aside", "no progress"]

_SAME_AGAIN: dict[Verdict, Verdict] = {
    "queued": "held", "held": "held", "set aside": "set aside", "no progress": "set aside",
}  # fmt: skip
"""What an item is when it stands in the page once more."""

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


class ItemPast(msgspec.Struct, frozen=True, array_like=True):
    """A job that the item has had."""

    state: State
    finished_ms: int | None
    retried_ms: int | None


_pasts = msgspec.json.Decoder(list[list[ItemPast]])


def discover(db: Any, page: Discovery, now_ms: int, new_ids: NewIds) -> Discovered:
    """Queue what is new in a page, in its order, and say what became of all of it."""
    items = [_text(found.item) for found in page.found]
    ((pasts,),) = db.execute(_NEWEST, (page.queue, json.dumps(items), max(1, page.most_done)))
    number: Counter[Verdict] = Counter()
    stuck: list[str] = []
    rows: list[tuple[Any, ...]] = []
    again: dict[str, Verdict] = {}
    for found, item, job_id, past in zip(page.found, items, new_ids(len(items)), _pasts.decode(pasts), strict=True):
        verdict = again.get(item) or judge(past, page.most_done, now_ms - page.window_ms, now_ms - page.age_ms)
        again[item] = _SAME_AGAIN[verdict]
        number[verdict] += 1
        if verdict == "no progress":
            stuck.append(found.item)
        if verdict in ("queued", "no progress"):
            rows.append(_row(page, found, item, job_id, verdict == "no progress", now_ms))
    before = db.total_changes()
    db.executemany(_INSERT, rows)
    taken = len(rows) - (db.total_changes() - before)  # somebody enqueued a job under the key of an item
    return Discovered(
        queued=number["queued"] - taken,
        held=number["held"] + taken,
        set_aside=number["set aside"],
        no_progress=tuple(stuck),
    )


def judge(newest: list[ItemPast], most_done: int, since_ms: int, looked_ms: int) -> Verdict:
    """What is to become of an item with these jobs, newest first."""
    if newest and newest[0].state in (State.QUEUED, State.RUNNING):
        return "held"
    if newest and newest[0].state is not State.DONE:
        return "set aside"
    if newest and (newest[0].finished_ms or 0) > looked_ms:
        return "held"  # when the look read it, it was still in hand
    done = 0
    for job in newest:
        done += job.state is State.DONE and (job.finished_ms or 0) >= since_ms
        if job.retried_ms is not None:
            break
    return "no progress" if newest and done >= most_done else "queued"


def _row(page: Discovery, found: Found, item: str, job_id: str, stuck: bool, now_ms: int) -> tuple[Any, ...]:
    state, finished, reason, error = State.QUEUED, None, None, None
    if stuck:
        state, finished, reason = State.FAILED, now_ms, "no progress"
        error = f"done {page.most_done} times within {page.window_ms / 1000:g} s, and found again each time"
    # Not held back by the length of names: the key is the store's own, so that no two jobs of an item can be held.
    key = f"item:{item}"
    return (
        job_id, page.queue, state.value, page.priority, now_ms, page.max_attempts, page.timeout_ms, key, now_ms,
        None if found.label is None else _text(found.label), _text(found.payload), item, finished, reason, error,
    )  # fmt: skip


def _text(said: str) -> str:
    """The name of a file may be no Unicode. It stays a name of its own, and fails nothing."""
    return said.encode(errors="backslashreplace").decode()
