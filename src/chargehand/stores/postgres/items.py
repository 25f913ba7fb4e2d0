"""Writes the jobs of discovered items to PostgreSQL; `model.items` decides which. Part of a transaction."""

from collections import Counter
from itertools import groupby
from typing import Any

import msgspec

from chargehand.ids import NewIds
from chargehand.model.items import PastJob, Verdict, jobs_needed, judge_page, no_progress_error
from chargehand.model.job import Found, State
from chargehand.model.records import Discovered, Discovery
from chargehand.stores.postgres import statements
from chargehand.stores.postgres.session import Session

_SQL = statements.load("enqueue")
_STORE = statements.load("store")


def discover(db: Session, page: Discovery, now: int | None, new_ids: NewIds) -> Discovered:
    """Queues the new items of a page, in its order, and returns what became of all of them."""
    found = [each.item for each in page.found]
    pasts: dict[int, list[PastJob]] = {}
    asked = (page.queue, _json(found), jobs_needed(page))
    for nr, state, finished_ms, retried_ms in db.rows(_SQL["newest"], asked):
        pasts.setdefault(nr, []).append(PastJob(State(state), finished_ms, retried_ms))
    ((now_ms,),) = db.rows(_STORE["now"], (now,))
    verdicts = judge_page(page, found, [pasts.get(nr, []) for nr in range(1, len(found) + 1)], now_ms)
    with_ids = list(zip(page.found, new_ids(len(found)), verdicts, strict=True))
    number: Counter[Verdict] = Counter(verdicts)
    made = 0
    # A statement for each run of the same verdict keeps the order of the page; nearly always there is one.
    for verdict, run in groupby(with_ids, lambda each: each[2]):
        text = _json([_row(page, each, job_id) for each, job_id, _ in run])
        if verdict == "queued":
            made += len(db.rows(_SQL["enqueue"], (now, text)))
            db.send(_SQL["tidy"], (text,))
        elif verdict == "no progress":
            db.send(_SQL["stuck"], (now, text, no_progress_error(page)))
    taken = number["queued"] - made  # an application enqueued a job under the key of an item
    return Discovered(
        queued=number["queued"] - taken,
        held=number["held"] + taken,
        set_aside=number["set aside"],
        no_progress=tuple(each.item for each, _, verdict in with_ids if verdict == "no progress"),
    )


def key_of(item: str) -> str:
    """Returns the key of the jobs of an item."""
    return f"item:{item}"


def _row(page: Discovery, found: Found, job_id: str) -> dict[str, Any]:
    # The limit of a key's length does not apply: the store makes this key, so that an item never has two live jobs.
    return {
        "id": job_id, "queue": page.queue, "rank": -page.priority, "delay_ms": 0, "max_attempts": page.max_attempts,
        "timeout_ms": page.timeout_ms, "key": key_of(found.item), "item": found.item, "label": found.label,
        "payload": found.payload,
    }  # fmt: skip


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
