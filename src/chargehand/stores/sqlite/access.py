"""Writes API keys, sessions, the operator log and remembered answers to SQLite.

Part of a transaction: it neither begins nor ends one, and takes no lock.
"""

import json
from collections.abc import Sequence
from typing import Any

import apsw

from chargehand.errors import Conflict
from chargehand.model.access import MOST_SESSIONS, REMEMBERED_MS, TOKEN_ID, ApiKey, Deed, Remembered, Session
from chargehand.stores.rows import clean, columns, readable

_KEY = """
INSERT INTO chargehand_key (id, name, digest, scopes, created_ms, expires_ms, used_ms, revoked_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_REVOKE = """
UPDATE chargehand_key SET revoked_ms = ?2 WHERE (name = ?1 OR id = ?1) AND revoked_ms IS NULL RETURNING id
"""
_USED = "UPDATE chargehand_key SET used_ms = max(coalesce(used_ms, 0), ?2) WHERE id = ?1"
_SIGN_IN = "INSERT OR REPLACE INTO chargehand_session (digest, key, created_ms, expires_ms) VALUES (?, ?, ?, ?)"
_TOO_MANY = """
DELETE FROM chargehand_session WHERE digest IN (
  SELECT digest FROM chargehand_session WHERE key = ? ORDER BY created_ms DESC, digest LIMIT -1 OFFSET ?)
"""
_LOG = "INSERT INTO chargehand_operation (at_ms, who, verb, target, detail, origin) VALUES (?, ?, ?, ?, ?, ?)"
_REMEMBER = """
INSERT OR REPLACE INTO chargehand_remembered (caller, key, digest, status, body, at_ms) VALUES (?, ?, ?, ?, ?, ?)
"""
_REMEMBERED = f"""
SELECT {columns(Remembered)} FROM chargehand_remembered WHERE caller = ? AND key = ? AND at_ms > ?
"""


class SqliteAccess:
    """Implements `chargehand.store.AccessWriting`."""

    def __init__(self, db: Any, now_ms: int) -> None:
        self._db, self._now = db, now_ms

    def add_key(self, key: ApiKey) -> None:
        scopes = json.dumps([scope.value for scope in key.scopes])
        row = (key.id, key.name, key.digest, scopes, key.created_ms, key.expires_ms, key.used_ms, key.revoked_ms)
        try:
            self._db.execute(_KEY, row)
        except apsw.ConstraintError:
            raise Conflict(f"there is a key {key.name!r} already: choose another name, or revoke that one") from None
        self._end_sessions(TOKEN_ID)

    def revoke_key(self, name: str) -> bool:
        gone = self._db.execute(_REVOKE, (clean(name), self._now)).fetchall()
        for (key_id,) in gone:
            self._end_sessions(key_id)
        return bool(gone)

    def _end_sessions(self, key_id: str) -> None:
        self._db.execute("DELETE FROM chargehand_session WHERE key = ?", (key_id,))

    def touch_keys(self, used: Sequence[tuple[str, int]]) -> None:
        self._db.executemany(_USED, list(used))

    def sign_in(self, session: Session) -> None:
        self._db.execute(_SIGN_IN, (session.digest, session.key, session.created_ms, session.expires_ms))
        self._db.execute(_TOO_MANY, (session.key, MOST_SESSIONS))

    def sign_out(self, digests: Sequence[str]) -> None:
        self._db.executemany("DELETE FROM chargehand_session WHERE digest = ?", [(digest,) for digest in digests])

    def log(self, deeds: Sequence[Deed]) -> None:
        rows = [
            (self._now, readable(d.who), d.verb, readable(d.target), readable(d.detail), readable(d.origin))
            for d in deeds
        ]
        self._db.executemany(_LOG, rows)

    def remember(self, answer: Remembered) -> None:
        row = (answer.caller, answer.key, answer.digest, answer.status, answer.body, self._now)
        self._db.execute(_REMEMBER, row)

    def remembered(self, caller: str, key: str) -> Remembered | None:
        rows = self._db.execute(_REMEMBERED, (caller, key, self._now - REMEMBERED_MS)).fetchall()
        return Remembered(**dict(zip(Remembered.__struct_fields__, rows[0], strict=True))) if rows else None
