"""Finds the caller of a key or a session cookie; keys and sessions are read from the store and cached for a second."""

import asyncio
import hmac
from typing import TYPE_CHECKING

import msgspec

from chargehand import clock, log
from chargehand.errors import ChargehandError
from chargehand.host import keys
from chargehand.model.access import SCOPES, SESSION_MS, USED_EVERY_MS, ApiKey, Scope, Session
from chargehand.settings import ADMIN_KEY as ADMIN
from chargehand.web.threads import Cached, ThreadPool

if TYPE_CHECKING:
    from chargehand.app import Chargehand

MAX_AGE = 1.0
"""Seconds after which a revoked key is rejected, at most."""
SESSION_PREFIX = "cs_"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated caller and its scopes."""

    name: str
    kind: str
    """`key`, `admin` (the key from the environment) or `local` (no key exists yet)."""
    scopes: tuple[Scope, ...] = SCOPES
    csrf: str | None = None
    """The CSRF token that requests with a session cookie must send to change something."""
    expires_ms: int | None = None


class StoredKeys(msgspec.Struct, frozen=True):
    """The keys and sessions in the store."""

    keys: tuple[ApiKey, ...]
    sessions: dict[str, Session]


class Keyring:
    """Authenticates callers by key or session cookie."""

    def __init__(self, hand: "Chargehand", in_thread: ThreadPool) -> None:
        self._hand, self._in_thread = hand, in_thread
        self._found = Cached(lambda: in_thread(self._read), MAX_AGE / 2, clock.monotonic)
        self._admin = admin_key(hand)
        self._used: dict[str, int] = {}
        self._notes: set[asyncio.Task[None]] = set()

    def _read(self) -> StoredKeys:
        found, sessions = self._hand.internal.keys.with_sessions()
        return StoredKeys(tuple(found), {session.digest: session for session in sessions})

    def forget(self) -> None:
        """Invalidates the cache after a change of keys or sessions."""
        self._found.forget()

    async def empty(self) -> bool:
        """Returns whether no key was ever created, not even one that is now revoked or expired."""
        found: StoredKeys = await self._found.get()
        return self._admin is None and not found.keys

    async def by_key(self, secret: str) -> Caller | str:
        """Returns the caller with this key, or the reason why it is rejected."""
        found: StoredKeys = await self._found.get()
        digest = keys.digest(secret)
        if self._admin is not None and hmac.compare_digest(self._admin.digest, digest):
            return Caller(name=ADMIN, kind="admin")
        # All keys are compared, so that the duration does not depend on the match.
        match = [key for key in found.keys if hmac.compare_digest(key.digest, digest)]
        return self._caller(match[0]) if match else "the key is not known"

    async def by_cookie(self, secret: str) -> Caller | str:
        """Returns the caller with this cookie, or the reason why it is rejected."""
        found: StoredKeys = await self._found.get()
        digest = keys.digest(secret)
        session = found.sessions.get(digest)
        if session is None or session.expires_ms <= clock.now_ms():
            return "the session has ended"
        key = self._key(found, session.key)
        caller = self._caller(key) if key is not None else "the key of this session no longer exists"
        if isinstance(caller, str):
            return caller
        return msgspec.structs.replace(caller, csrf=csrf_of(secret), expires_ms=session.expires_ms)

    def _key(self, found: StoredKeys, key_id: str) -> ApiKey | None:
        if self._admin is not None and key_id == self._admin.id:
            return self._admin
        return next((key for key in found.keys if key.id == key_id), None)

    def _caller(self, key: ApiKey) -> Caller | str:
        now = clock.now_ms()
        why_not = key.why_not(now)
        if why_not is not None:
            return why_not
        if key is not self._admin and now - max(key.used_ms or 0, self._used.get(key.id, 0)) >= USED_EVERY_MS:
            self._used[key.id] = now
            note = asyncio.create_task(self._note(key.id, now))
            self._notes.add(note)
            note.add_done_callback(self._notes.discard)
        kind = "admin" if key is self._admin else "key"
        return Caller(name=key.name, kind=kind, scopes=key.scopes, expires_ms=key.expires_ms)

    async def _note(self, key_id: str, now: int) -> None:
        """Stores when a key was last used; the request does not wait for it."""
        try:
            await self._in_thread(lambda: self._hand.internal.keys.touch([(key_id, now)]))
        except ChargehandError as error:
            log.warning("the last use of a key could not be stored", why=error)

    async def sign_in(self, secret: str) -> tuple[str, Caller] | str:
        """Starts a session. Returns its cookie and the caller, or the reason why the key is rejected."""
        caller = await self.by_key(secret)
        if isinstance(caller, str):
            return caller
        found: StoredKeys = await self._found.get()
        digest = keys.digest(secret)
        holders = (*found.keys, *([self._admin] if self._admin else []))
        key = next(key for key in holders if hmac.compare_digest(key.digest, digest))
        cookie, now = keys.new_secret(SESSION_PREFIX), clock.now_ms()
        expires = min(now + SESSION_MS, key.expires_ms or now + SESSION_MS)
        session = Session(digest=keys.digest(cookie), key=key.id, created_ms=now, expires_ms=expires)
        await self._in_thread(lambda: self._hand.internal.keys.sign_in(session))
        self.forget()
        return cookie, msgspec.structs.replace(caller, csrf=csrf_of(cookie), expires_ms=expires)

    async def sign_out(self, cookie: str) -> None:
        """Ends a session."""
        await self._in_thread(lambda: self._hand.internal.keys.sign_out(keys.digest(cookie)))
        self.forget()


def csrf_of(cookie: str) -> str:
    """Returns the CSRF token of a session; it cannot be computed without the cookie."""
    return keys.digest(f"csrf {cookie}")[:43]


def admin_key(hand: "Chargehand") -> ApiKey | None:
    """Returns the key from the settings; None if there is none."""
    given = hand.settings.admin_key
    if given is None:
        return None
    return ApiKey(id="admin", name=ADMIN, digest=keys.digest(given.value), scopes=SCOPES, created_ms=0)
