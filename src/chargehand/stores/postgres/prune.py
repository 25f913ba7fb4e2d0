"""Deletes what is past its retention in a PostgreSQL store, in small steps."""

from functools import partial
from typing import Any

from chargehand.model.access import REMEMBERED_MS
from chargehand.model.job import FINISHED
from chargehand.model.records import Retention
from chargehand.stores.postgres import statements
from chargehand.stores.postgres.reading import now_ms
from chargehand.stores.postgres.session import Session, numbers
from chargehand.stores.surplus import LAST, Needed, Surplus

GONE_MS = 86_400_000
"""How long the workers of a node that is gone are shown."""
NODE_MS = 30 * 86_400_000
"""How long the crews, restart budgets and marks of a node are kept that is gone: if it returns, they count."""
LEFT_MS = 60_000
"""How long requests to nodes are kept whose callers have died."""
TEXTS_AT_ONCE = 100
"""How many crash reports or snapshots one transaction deletes, at most."""

_SQL = statements.load("store")
_END = statements.load("settle")
_FLEET = statements.load("fleet")


def prune(db: Session, surplus: Surplus, needed: Needed, retention: Retention, limit: int) -> int:
    """Deletes up to `limit` finished jobs, and some rows of other tables. Returns the number of jobs."""
    expired = _jobs(db, surplus, needed, retention, limit)
    few = min(limit, TEXTS_AT_ONCE)
    gone: list[tuple[Any, ...]] = []
    with db.transaction():
        if expired:
            # Leaves out jobs that were retried meanwhile, or that others follow now.
            gone = db.rows(_END["delete"], (numbers(expired), False))
        now = db.now
        flows = sorted({str(flow) for _, flow in gone if flow is not None})
        db.send(_SQL["prune_flows"], (now, flows, retention.age_ms, few))
        db.send(_SQL["prune_once"], (now, few))
        db.send(_SQL["prune_crashes"], (now, retention.crash_age_ms, retention.crash_count, few))
        db.send(_SQL["prune_history"], (now, retention.history_age_ms, few))
        db.send(_SQL["prune_operations"], (now, retention.operation_age_ms, few))
        db.send(_SQL["prune_remembered"], (now, REMEMBERED_MS, few))
        db.send(_SQL["prune_sessions"], (now, few))
        db.send(_SQL["prune_health"], (now, GONE_MS))
        db.send(_FLEET["prune_requests"], (now, LEFT_MS))
        db.send(_FLEET["prune_nodes"], (now, NODE_MS))
    return len(gone)


def _jobs(db: Session, surplus: Surplus, needed: Needed, retention: Retention, limit: int) -> list[int]:
    def older(*asked: str | int) -> tuple[int, int] | None:
        return next(((int(at), int(seq)) for at, seq in db.rows(_SQL["older"], asked)), None)

    expired: list[int] = []
    aged = now_ms(db) - retention.age_ms - 1, LAST
    queue = ""
    while len(expired) < limit and (found := db.rows(_SQL["next_queue"], (queue,))):
        queue = str(found[0][0])
        for state in sorted(FINISHED):
            until = max(aged, surplus.first(older, queue, state.value, retention.count))
            room = limit - len(expired)
            page = partial(_page, db, queue, state.value, until)
            free, more = needed.free(page, queue, state.value, room)
            if not more:
                surplus.gone(queue, state.value, retention.count)
            expired += free
    return expired


def _page(
    db: Session, queue: str, state: str, until: tuple[int, int], after: tuple[int, int], size: int
) -> list[tuple[int, int, bool]]:
    rows = db.rows(_SQL["oldest"], (queue, state, *until, *after, size))
    return [(int(at), int(seq), bool(unneeded)) for at, seq, unneeded in rows]
