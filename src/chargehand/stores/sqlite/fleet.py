"""Writes crews, pauses, health, crash reports and marks of given-up workers to SQLite.

Part of a transaction: it neither begins nor ends one, and takes no lock.
"""

import json
from collections.abc import Sequence
from typing import Any

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
from chargehand.stores.rows import clean, columns, hide_text, readable, records
from chargehand.stores.sqlite.clock import set_back
from chargehand.stores.sqlite.limits import Limits

_CREW = """
INSERT INTO chargehand_crew (name, queue, handler, workers, max_attempts, timeout_ms, priority, allowed,
  allowed_per_key, rate, rate_per_key, hide, scaled, registered_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_PAUSE = "INSERT OR REPLACE INTO chargehand_pause (scope, who, reason, since_ms, until_ms) VALUES (?, ?, ?, ?, ?)"
_PAUSE_OF = f"""
SELECT {columns(Pause, left_ms="until_ms - ?1")} FROM chargehand_pause
WHERE scope = ?2 AND (until_ms IS NULL OR until_ms > ?1)
"""
_RESUME = "DELETE FROM chargehand_pause WHERE scope = ?1 RETURNING until_ms IS NULL OR until_ms > ?2"
_HEALTH = """
INSERT OR REPLACE INTO chargehand_health (node, component, status, flags, reason, pid, pid_start, incarnation,
  current_job, last_heartbeat_ms, restart_count, last_restart_ms, exit_code, signal, created_at_ms, metadata)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,
  (SELECT created_ms FROM chargehand_worker WHERE component = ?2), ?15)
"""
_FIRST_SEEN = "INSERT OR IGNORE INTO chargehand_worker (component, created_ms) VALUES (?, ?)"
_RESTARTS = """
INSERT INTO chargehand_worker
  (component, created_ms, written_ms, fingerprint, charged, streak, rested_ms, restarts, restarts_total)
VALUES (?1, ?2, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (component) DO UPDATE SET written_ms = ?2, fingerprint = ?3, charged = ?4, streak = ?5, rested_ms = ?6,
  restarts = ?7, restarts_total = ?8
"""
_CRASH = """
INSERT INTO chargehand_crash (id, node, component, crew, job, at_ms, incarnation, pid, reason, exit_code, signal,
  memory, uptime_ms, charged, follows, text, stacks, lines, frames)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING
"""
_GIVE_UP = """
INSERT OR REPLACE INTO chargehand_given_up (component, crew, reason, fingerprint, at_ms) VALUES (?, ?, ?, ?, ?)
"""
_SNAPSHOT = """
INSERT OR REPLACE INTO chargehand_history (timestamp_ms, components)
SELECT ?, json_group_array(json_object('component', component, 'status', status, 'flags', json(flags),
  'current_job', current_job, 'pid', pid, 'restart_count', restart_count) ORDER BY node, component)
FROM chargehand_health
"""


class SqliteFleet:
    """Implements `chargehand.store.FleetWriting`."""

    def __init__(self, db: Any, now_ms: int, limits: Limits) -> None:
        self._db, self._now, self._limits = db, now_ms, limits

    # crews

    def pause(self, scope: str, who: str, reason: str | None, for_ms: int | None = None) -> Pause | None:
        stored = clean(scope)
        before = records(Pause, self._db.execute(_PAUSE_OF, (self._now, stored)).fetchall())
        until = None if for_ms is None else self._now + for_ms
        self._db.execute(_PAUSE, (stored, readable(who), readable(reason), self._now, until))
        return next(iter(before), None)

    def resume(self, scope: str) -> bool:
        return any(held for (held,) in self._db.execute(_RESUME, (clean(scope), self._now)).fetchall())

    def clock_set_back(self, recurring: Sequence[Rescheduling]) -> int:
        return set_back(self._db, self._now, recurring)

    def register(
        self, holder: Holder, crews: Sequence[CrewRow], about: dict[str, Any], *, after: str | None = None
    ) -> None:
        known = self._db.execute("SELECT name, workers, scaled FROM chargehand_crew")
        scaled = {(name, workers): count for name, workers, count in known}
        self._db.execute("DELETE FROM chargehand_crew")
        rows = [
            (
                c.name, c.queue, c.handler, c.workers, c.max_attempts, c.timeout_ms, c.priority,
                c.limit, c.limit_per_key, c.rate, c.rate_per_key, hide_text(c.hide), scaled.get((c.name, c.workers)),
                self._now,
            )
            for c in crews
        ]  # fmt: skip
        self._db.executemany(_CREW, rows)
        self._limits.set(crews)
        sql = "INSERT OR REPLACE INTO chargehand_node (name, life, started_ms, about) VALUES (?, ?, ?, ?)"
        self._db.execute("DELETE FROM chargehand_node")
        self._db.execute(sql, (holder.node, holder.life, self._now, json.dumps(about)))
        self.project((), holder, complete=True)

    def others(self, holder: Holder) -> OtherNodes:
        return OtherNodes()

    def stopping(self, holder: Holder) -> None:
        """Does nothing: the node records it beside the store."""

    def scale(self, crew: str, count: int | None, holder: Holder) -> None:
        self._db.execute("UPDATE chargehand_crew SET scaled = ? WHERE name = ?", (count, crew))

    # workers

    def project(
        self, notes: Sequence[HealthNote], holder: Holder, *, gone: Sequence[str] = (), complete: bool = False
    ) -> None:
        if complete:
            self._db.execute("DELETE FROM chargehand_health WHERE node = ?", (holder.node,))
        rows = [
            (
                holder.node, n.component, n.status, _texts(n.flags), readable(n.reason), n.pid, n.pid_start,
                n.incarnation, clean(n.current_job), self._ago(n.heartbeat_age_ms), n.restart_count,
                self._ago(n.restart_age_ms), n.exit_code, n.signal, clean(n.metadata),
            )
            for n in notes
        ]  # fmt: skip
        self._db.executemany(_FIRST_SEEN, [(n.component, self._now) for n in notes])
        self._db.executemany(_HEALTH, rows)
        sql = "DELETE FROM chargehand_health WHERE node = ? AND component = ?"
        self._db.executemany(sql, [(holder.node, component) for component in gone])

    def _ago(self, age_ms: int | None) -> int | None:
        return None if age_ms is None else self._now - age_ms

    def report(self, crashes: Sequence[CrashReport], holder: Holder) -> None:
        rows = [
            (
                c.id, holder.node, c.component, c.crew, clean(c.job), self._now - c.age_ms, c.incarnation, c.pid,
                c.reason, c.exit_code, c.signal, c.memory, c.uptime_ms, c.charged, readable(c.follows),
                readable(c.text), readable(c.stacks), _texts(c.lines), _texts(c.frames),
            )
            for c in crashes
        ]  # fmt: skip
        self._db.executemany(_CRASH, rows)

    def mark(self, given_up: Sequence[GivenUpMark], holder: Holder, *, cleared: Sequence[str] = ()) -> None:
        rows = [(m.component, m.crew, readable(m.reason), m.fingerprint, self._now) for m in given_up]
        self._db.executemany(_GIVE_UP, rows)
        sql = "DELETE FROM chargehand_given_up WHERE component = ?"
        self._db.executemany(sql, [(component,) for component in cleared])

    def keep_restarts(self, notes: Sequence[RestartNote], holder: Holder) -> None:
        rows = [
            (
                n.component, self._now, n.fingerprint, json.dumps([self._now - age for age in n.charged_age_ms]),
                n.streak, self._ago(n.rested_age_ms), n.restarts, n.restarts_total,
            )
            for n in notes
        ]  # fmt: skip
        self._db.executemany(_RESTARTS, rows)

    def snapshot(self) -> None:
        self._db.execute(_SNAPSHOT, (self._now,))

    # other nodes: there are none

    def ask(self, requests: Sequence[NodeRequest]) -> None:
        raise StoreError("a SQLite store has one node: it is reached through its socket")

    def withdraw(self, ids: Sequence[str]) -> list[NodeReply]:
        return []

    def answer(self, request: str, answer: str | None) -> None:
        pass

    def lead(self, ready: Sequence[str], unready: Sequence[str], holder: Holder) -> list[str]:
        return list(ready)


def _texts(texts: Sequence[str]) -> str:
    return json.dumps([readable(text) for text in texts], ensure_ascii=False)
