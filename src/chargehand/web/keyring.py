"""Finds the caller of a key, a token or a session cookie.

What the store has of them is cached for half a second. A key or session that is not in the cache may have been made
since by another process (`chargehand keys create`, another process of the server), so the store is read again before it
is rejected.
"""

import asyncio
import hmac
from typing import TYPE_CHECKING

import msgspec

from chargehand import clock, log
from chargehand.errors import ChargehandError
from chargehand.host import keys
from chargehand.host.actor import acting_as
from chargehand.model.access import (
    ADMIN_ID,
    SCOPES,
    SESSION_MS,
    TOKEN_ID,
    USED_EVERY_MS,
    ApiKey,
    Scope,
    Session,
    StoredAccess,
)
from chargehand.settings.names import ADMIN_KEY as ADMIN
from chargehand.web.threads import Cached, ThreadPool

if TYPE_CHECKING:
    from chargehand.app import Chargehand

MAX_AGE = 1.0
"""Seconds after which a revoked key is rejected, at most."""
LOOK_AGAIN = 0.1
"""Least pause in seconds between two reads for keys that are not in the cache: unknown ones cost little."""
SESSION_PREFIX = "cs_"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated caller and its scopes."""

    name: str
    kind: str
    """`key`, `admin` (the key from the environment) or `token` (no key exists yet)."""
    scopes: tuple[Scope, ...] = SCOPES
    csrf: str | None = None
    """The CSRF token that requests with a session cookie must send to change something."""
    expires_ms: int | None = None
    key_expires_ms: int | None = None
    """When the key of the caller expires; its session may end earlier."""


class Keyring:
    """Authenticates callers by key, token or session cookie."""

    def __init__(self, hand: "Chargehand", in_thread: ThreadPool) -> None:
        self._hand, self._in_thread = hand, in_thread
        self._found = Cached(lambda: in_thread(hand.internal.keys.access), MAX_AGE / 2, clock.monotonic)
        self._admin = admin_key(hand)
        self._used: dict[str, int] = {}
        self._notes: set[asyncio.Task[None]] = set()

    def forget(self) -> None:
        """Invalidates the cache after a change of keys or sessions."""
        self._found.forget()

    async def empty(self) -> bool:
        """Returns whether no key was ever created, not even one that is now revoked or expired."""
        found: StoredAccess = await self._found.get()
        return self._admin is None and not found.keys

    def _unstored(self, found: StoredAccess) -> tuple[ApiKey, ...]:
        """Returns the keys that are not in the store: the one from the environment or, while no key exists, the tokens
        of this and other machines."""
        if self._admin is not None:
            return (self._admin,)
        tokens = () if found.keys else found.tokens
        return tuple(ApiKey(id=TOKEN_ID, name=TOKEN_ID, digest=each, scopes=SCOPES, created_ms=0) for each in tokens)

    async def _match(self, secret: str) -> ApiKey | None:
        match = self._match_in(await self._found.get(), secret)
        return match or self._match_in(await self._found.get_newer(LOOK_AGAIN), secret)

    def _match_in(self, found: StoredAccess, secret: str) -> ApiKey | None:
        digest, others = keys.digest(secret), self._unstored(found)
        # All keys are compared, so that the duration does not depend on the match.
        match = [key for key in (*found.keys, *others) if hmac.compare_digest(key.digest, digest)]
        return match[0] if match else None

    async def by_key(self, secret: str) -> Caller | str:
        """Returns the caller with this key or token, or the reason why it is rejected."""
        match = await self._match(secret)
        return self._caller(match) if match is not None else "the key is not known"

    async def by_cookie(self, secret: str) -> Caller | str:
        """Returns the caller with this cookie, or the reason why it is rejected."""
        found: StoredAccess = await self._found.get()
        opened = self._session_in(found, secret)
        if opened is None:
            found = await self._found.get_newer(LOOK_AGAIN)
            opened = self._session_in(found, secret)
        if opened is not None:
            session, key = opened
            opened_with = key or next((each for each in found.keys if each.id == session.key), None)
            if opened_with is None:
                return "the key of this session no longer exists"
            caller = self._caller(opened_with)
            if isinstance(caller, str):
                return caller
            return msgspec.structs.replace(caller, csrf=csrf_of(secret), expires_ms=session.expires_ms)
        return "the session has ended"

    def _session_in(self, found: StoredAccess, secret: str) -> tuple[Session, ApiKey | None] | None:
        """Returns the session with this cookie, and the key it was opened with if that is not in the store."""
        for key in (*self._unstored(found), None):
            session = found.sessions.get(_session_digest(secret, key))
            if session is not None and session.expires_ms > clock.now_ms():
                return session, key
        return None

    def _caller(self, key: ApiKey) -> Caller | str:
        now = clock.now_ms()
        why_not = key.why_not(now)
        if why_not is not None:
            return why_not
        kind = key.id if key.id in (ADMIN_ID, TOKEN_ID) else "key"
        if kind == "key" and now - max(key.used_ms or 0, self._used.get(key.id, 0)) >= USED_EVERY_MS:
            self._used[key.id] = now
            note = asyncio.create_task(self._note(key.id, now))
            self._notes.add(note)
            note.add_done_callback(self._notes.discard)
        return Caller(
            name=key.name, kind=kind, scopes=key.scopes, expires_ms=key.expires_ms, key_expires_ms=key.expires_ms
        )  # fmt: skip

    async def _note(self, key_id: str, now: int) -> None:
        """Stores when a key was last used; the request does not wait for it."""
        try:
            await self._in_thread(lambda: self._hand.internal.keys.touch([(key_id, now)]))
        except ChargehandError as error:
            log.warning("the last use of a key could not be stored", why=error)

    async def sign_in(self, secret: str, origin: str, *, guessable: bool = True) -> tuple[str, Caller] | str:
        """Starts a session. Returns its cookie and the caller, or the reason why the key is rejected.

        Without `guessable` the key from the environment is rejected: a person chose it, and others may guess it.
        """
        key = await self._match(secret)
        if key is not None and key.id == ADMIN_ID and not guessable:
            key = None
        caller = self._caller(key) if key is not None else "the key is not known"
        if key is None or isinstance(caller, str):
            return str(caller)
        cookie, now = keys.new_secret(SESSION_PREFIX), clock.now_ms()
        expires = min(now + SESSION_MS, key.expires_ms or now + SESSION_MS)
        digest = _session_digest(cookie, None if caller.kind == "key" else key)
        session = Session(digest=digest, key=key.id, created_ms=now, expires_ms=expires)

        def keep() -> None:
            with acting_as(caller.name, origin):
                self._hand.internal.keys.sign_in(session, caller.name)

        await self._in_thread(keep)
        self.forget()
        return cookie, msgspec.structs.replace(caller, csrf=csrf_of(cookie), expires_ms=expires)

    async def sign_out(self, cookie: str, caller: Caller, origin: str) -> None:
        """Ends a session."""
        others = self._unstored(await self._found.get())
        digests = [_session_digest(cookie, key) for key in (None, *others)]

        def end() -> None:
            with acting_as(caller.name, origin):
                self._hand.internal.keys.sign_out(digests, caller.name)

        await self._in_thread(end)
        self.forget()


def _session_digest(cookie: str, unstored: ApiKey | None) -> str:
    """Returns the digest by which a session is stored.

    A session of a key that is not in the store is found only with that key: when it changes, its sessions end.
    """
    return keys.digest(cookie if unstored is None else f"{cookie} {unstored.id} {unstored.digest}")


def csrf_of(cookie: str) -> str:
    """Returns the CSRF token of a session; it cannot be computed without the cookie."""
    return keys.digest(f"csrf {cookie}")[:43]


def admin_key(hand: "Chargehand") -> ApiKey | None:
    """Returns the key from the settings; None if there is none."""
    given = hand.settings.admin_key
    if given is None:
        return None
    return ApiKey(id=ADMIN_ID, name=ADMIN, digest=keys.digest(given.value), scopes=SCOPES, created_ms=0)
