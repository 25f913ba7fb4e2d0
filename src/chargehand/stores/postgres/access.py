"""Writes API keys, sessions, the operator log and remembered answers to PostgreSQL.

Part of a transaction: it neither begins nor ends one.
"""

import json
from collections.abc import Sequence

import msgspec

from chargehand.errors import Conflict
from chargehand.model.access import (
    MOST_SESSIONS,
    REMEMBERED_MS,
    SHARED_ID,
    TOKEN_ID,
    ApiKey,
    Deed,
    Remembered,
    Session,
)
from chargehand.stores.postgres import session, statements
from chargehand.stores.rows import clean, readable, records

_SQL = statements.load("access")


class PostgresAccess:
    """Implements `chargehand.store.AccessWriting`."""

    def __init__(self, db: session.Session, now: int | None) -> None:
        self._db, self._now = db, now

    def add_key(self, key: ApiKey) -> None:
        scopes = json.dumps([scope.value for scope in key.scopes])
        row = (key.id, key.name, key.digest, scopes, key.created_ms, key.expires_ms, key.used_ms, key.revoked_ms)
        if not self._db.rows(_SQL["add_key"], row):
            raise Conflict(f"there is a key {key.name!r} already: choose another name, or revoke that one")
        self._end_sessions([TOKEN_ID, SHARED_ID])

    def revoke_key(self, name: str) -> bool:
        gone = [str(key_id) for (key_id,) in self._db.rows(_SQL["revoke_key"], (self._now, clean(name)))]
        self._end_sessions(gone)
        return bool(gone)

    def _end_sessions(self, key_ids: Sequence[str]) -> None:
        self._db.send(_SQL["end_sessions"], (list(key_ids),))

    def touch_keys(self, used: Sequence[tuple[str, int]]) -> None:
        for key_id, at_ms in used:
            self._db.send(_SQL["touch_key"], (key_id, at_ms))

    def sign_in(self, session: Session) -> None:
        self._db.send(_SQL["sign_in"], (session.digest, session.key, session.created_ms, session.expires_ms))
        self._db.send(_SQL["too_many"], (session.key, MOST_SESSIONS))

    def sign_out(self, digests: Sequence[str]) -> None:
        self._db.send(_SQL["sign_out"], (list(digests),))

    def log(self, deeds: Sequence[Deed]) -> None:
        rows = [
            {
                "who": readable(deed.who), "verb": deed.verb, "target": readable(deed.target),
                "detail": readable(deed.detail), "origin": readable(deed.origin),
            }
            for deed in deeds
        ]  # fmt: skip
        if rows:
            self._db.send(_SQL["log"], (self._now, msgspec.json.encode(rows).decode()))

    def remember(self, answer: Remembered) -> None:
        row = (self._now, answer.caller, answer.key, answer.digest, answer.status, answer.body)
        self._db.send(_SQL["remember"], row)

    def remembered(self, caller: str, key: str) -> Remembered | None:
        self._db.rows(_SQL["one_request"], (caller, key))
        rows = self._db.rows(_SQL["remembered"], (self._now, caller, key, REMEMBERED_MS))
        return next(iter(records(Remembered, rows)), None)
