"""Writes nodes, crews, pauses, health, crash reports and marks of given-up workers to PostgreSQL.

Part of a transaction: it neither begins nor ends one.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chargehand.errors import StoreError
from chargehand.model.records import (
    CrashReport,
    CrewRow,
    GivenUpMark,
    HealthNote,
    Holder,
    NodeReply,
    NodeRequest,
    OtherNodes,
    Pause,
    Rescheduling,
    RestartNote,
)
from chargehand.model.succession import name_taken
from chargehand.model.wakeups import Wakeup
from chargehand.stores.postgres import schema, statements
from chargehand.stores.postgres.claiming import set_limits
from chargehand.stores.postgres.reading import living_crews
from chargehand.stores.postgres.session import Session
from chargehand.stores.rows import about_of, clean, hide_text, readable, records

SKEW_MS = 1000
"""How far a time may lie in the future before the clock counts as set back."""

_SQL = statements.load("fleet")
_END = statements.load("settle")


class Registration(msgspec.Struct, frozen=True):
    """A node that was registered, its crews, and what it said about itself."""

    holder: Holder
    crews: tuple[CrewRow, ...]
    about: dict[str, Any]
    former: tuple[str, ...] = ()
    """Lives of this node that have ended. A server that has lost its last commits may still have one of them."""


class PostgresFleet:
    """Implements `chargehand.store.FleetWriting`."""

    def __init__(self, db: Session, now: int | None, registered: Callable[[Registration], None]) -> None:
        self._db, self._now, self._registered = db, now, registered

    # crews

    def register(
        self, holder: Holder, crews: Sequence[CrewRow], about: dict[str, Any], *, after: str | None = None
    ) -> None:
        self._db.send(_SQL["lock_crews"])
        self._add_node(holder, about, after)
        scaled = {(name, workers): count for name, workers, count in self._db.rows(_SQL["scaled"], (holder.node,))}
        rows = [
            {
                "name": c.name, "queue": c.queue, "handler": c.handler, "workers": c.workers,
                "max_attempts": c.max_attempts, "timeout_ms": c.timeout_ms, "priority": c.priority, "allowed": c.limit,
                "allowed_per_key": c.limit_per_key, "rate": c.rate, "rate_per_key": c.rate_per_key,
                "hide": hide_text(c.hide), "scaled": scaled.get((c.name, c.workers)),
            }
            for c in crews
        ]  # fmt: skip
        self._db.send(_SQL["clear_crews"], (holder.node,))
        self._db.send(_SQL["add_crews"], (self._now, holder.node, _json(rows)))
        set_limits(self._db, living_crews(self._db))
        self.project((), holder, complete=True)
        former = () if after is None else (after,)
        self._registered(Registration(holder, tuple(crews), about, former))

    def _add_node(self, holder: Holder, about: dict[str, Any], after: str | None) -> None:
        self._db.send(_SQL["remove_nodes"], ([life for life in (holder.life, after) if life is not None],))
        schema.check(self._db)  # it may have been migrated since the store was opened, or while the node was cut off
        row = (holder.node, holder.life, self._db.backend, json.dumps(about, default=str), len(schema.MIGRATIONS))
        added = self._db.rows(_SQL["add_node"], (self._now, *row))
        if not added:
            ((other,),) = self._db.rows(_SQL["about"], (holder.node,))
            raise StoreError(name_taken(holder.node, about_of(other)))

    def others(self, holder: Holder) -> OtherNodes:
        ((served, gone, now_ms),) = self._db.rows(_SQL["of_others"], (self._now, holder.life))
        return OtherNodes(tuple(served), tuple(gone), now_ms)

    def stopping(self, holder: Holder) -> None:
        self._db.send(_SQL["stopping"], (holder.life,))

    def scale(self, crew: str, count: int | None, holder: Holder) -> None:
        self._db.send(_SQL["scale"], (crew, count, holder.node))

    def pause(self, scope: str, who: str, reason: str | None, for_ms: int | None = None) -> Pause | None:
        self._db.announce(Wakeup.ORDERS)
        stored = clean(scope)
        before = records(Pause, self._db.rows(_SQL["pause_of"], (self._now, stored)))
        self._db.send(_SQL["pause"], (self._now, stored, readable(who), readable(reason), for_ms))
        return next(iter(before), None)

    def resume(self, scope: str) -> bool:
        self._db.announce(Wakeup.ORDERS)
        return any(held for (held,) in self._db.rows(_SQL["resume"], (self._now, clean(scope))))

    def clock_set_back(self, recurring: Sequence[Rescheduling]) -> int:
        for plan in recurring:
            self._db.send(_END["move_on"], (plan.name, plan.due_ms, plan.next_run_ms))
        late = self._db.rows(_END["ends_in_future"], (self._now, SKEW_MS))
        for seq, claim, ahead_ms in late:
            self._db.send(_END["retry_earlier"], (seq, ahead_ms))
            self._db.send(_END["end_now"], (seq, claim, ahead_ms))
        self._db.send(_END["pause_earlier"], (self._now,))
        return len(late)

    # workers

    def project(
        self, notes: Sequence[HealthNote], holder: Holder, *, gone: Sequence[str] = (), complete: bool = False
    ) -> None:
        if complete:
            self._db.send(_SQL["health_clear"], (holder.node,))
        if notes:
            newest = {note.component: note for note in notes}
            rows = [
                msgspec.structs.asdict(note)
                | {
                    "flags": _texts(note.flags), "reason": readable(note.reason),
                    "current_job": clean(note.current_job), "metadata": clean(note.metadata),
                }
                for note in newest.values()
            ]  # fmt: skip
            text = _json(rows)
            self._db.send(_SQL["first_seen"], (self._now, holder.node, text))
            self._db.send(_SQL["health"], (self._now, holder.node, text))
        if gone:
            self._db.send(_SQL["health_gone"], (holder.node, list(gone)))

    def report(self, crashes: Sequence[CrashReport], holder: Holder) -> None:
        rows = [
            msgspec.structs.asdict(crash)
            | {
                "job": clean(crash.job), "follows": readable(crash.follows), "text": readable(crash.text),
                "stacks": readable(crash.stacks), "lines": _texts(crash.lines), "frames": _texts(crash.frames),
            }
            for crash in crashes
        ]  # fmt: skip
        self._db.send(_SQL["crash"], (self._now, holder.node, _json(rows)))

    def mark(self, given_up: Sequence[GivenUpMark], holder: Holder, *, cleared: Sequence[str] = ()) -> None:
        if given_up:
            rows = [msgspec.structs.replace(mark, reason=readable(mark.reason) or "") for mark in given_up]
            self._db.send(_SQL["give_up"], (self._now, holder.node, _json(rows)))
        if cleared:
            self._db.send(_SQL["forgive_workers"], (holder.node, list(cleared)))

    def keep_restarts(self, notes: Sequence[RestartNote], holder: Holder) -> None:
        if notes:
            newest = {note.component: note for note in notes}
            self._db.send(_SQL["restarts"], (self._now, holder.node, _json(list(newest.values()))))

    def snapshot(self) -> None:
        self._db.send(_SQL["snapshot"], (self._now,))

    # other nodes

    def ask(self, requests: Sequence[NodeRequest]) -> None:
        self._db.announce(Wakeup.ORDERS)
        self._db.send(_SQL["ask"], (self._now, _json(list(requests))))

    def withdraw(self, ids: Sequence[str]) -> list[NodeReply]:
        return records(NodeReply, self._db.rows(_SQL["withdraw"], (list(ids),)))

    def answer(self, request: str, answer: str | None) -> None:
        if answer is None:
            self._db.send(_SQL["forget"], (request,))
        else:
            self._db.send(_SQL["answer"], (request, clean(answer)))

    def lead(self, ready: Sequence[str], unready: Sequence[str], holder: Holder) -> list[str]:
        if unready:
            self._db.send(_SQL["follow"], (list(unready), holder.life))
        return [str(crew) for (crew,) in self._db.rows(_SQL["lead"], (list(ready), holder.life))]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _texts(texts: Sequence[str]) -> str:
    return json.dumps([readable(text) for text in texts], ensure_ascii=False)
