"""API keys, the token, the sessions of signed-in browsers, and the operator log.

A key is shown once, when it is created; the store keeps only its digest. The token takes the place of a key while none
exists: a file beside the store holds it, which only the user of the store may read.
"""

import hashlib
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from chargehand import clock
from chargehand.errors import ConfigurationError, StoreError
from chargehand.host.actor import log_deeds
from chargehand.host.pool import StorePool
from chargehand.ids import new_id
from chargehand.model.access import (
    SESSION_MS,
    SHARED_ID,
    ApiKey,
    Deed,
    Operation,
    OperationFilter,
    Scope,
    Session,
    StoredAccess,
)
from chargehand.model.job import NAME_LIMIT
from chargehand.settings.plan import milliseconds
from chargehand.stores import notes
from chargehand.stores.location import Location

if TYPE_CHECKING:
    from pathlib import Path

PREFIX, TOKEN_PREFIX = "ch_", "ct_"
_TOKEN = re.compile(TOKEN_PREFIX + r"[A-Za-z0-9_-]{43}\n")


def new_secret(prefix: str = PREFIX) -> str:
    """Returns 256 random bits as text."""
    return prefix + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """Returns the digest that is stored. Without salt or stretching: 256 random bits cannot be guessed."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Keys:
    """Reads and writes API keys, sessions and the operator log of one store."""

    def __init__(self, stores: StorePool, location: Location) -> None:
        self._stores, self._location = stores, location

    def create(self, name: str, scopes: Sequence[Scope], *, seconds: float | None = None) -> tuple[str, ApiKey]:
        """Creates a key. Returns its secret, which is not stored, and what the store keeps of it."""
        if not 1 <= len(name) <= NAME_LIMIT or not name.isprintable():
            raise ConfigurationError(f"key {name!r}: allowed are 1 to {NAME_LIMIT} printable characters")
        given: Any = scopes
        unknown = [given] if isinstance(given, str) else [each for each in given if each not in tuple(Scope)]
        if unknown:
            raise ConfigurationError(f"key {name!r}: the scopes are {given!r}; must be a list of: {', '.join(Scope)}")
        if not scopes:
            raise ConfigurationError(f"key {name!r}: at least one scope is required: {', '.join(Scope)}")
        lifetime = None if seconds is None else milliseconds("the lifetime of the key", seconds)
        if lifetime is not None and lifetime <= 0:
            raise ConfigurationError(f"key {name!r}: its lifetime is {seconds:g} s; allowed is more than 0")
        secret, now = new_secret(), clock.now_ms()
        ordered = tuple(scope for scope in Scope if scope in scopes)
        key = ApiKey(
            id=new_id(), name=name, digest=digest(secret), scopes=ordered, created_ms=now,
            expires_ms=None if lifetime is None else now + lifetime,
        )  # fmt: skip
        with self._stores.use() as store, store.transaction() as tx:
            tx.access.add_key(key)
            log_deeds(tx, "create key", [f"key:{name}"], ", ".join(ordered))
        notes.remove(self._location.token)  # void from the commit on
        return secret, key

    def revoke(self, name: str) -> None:
        """Revokes a key by its name or id. Raises ConfigurationError if no such key is in use."""
        with self._stores.use(create=False) as store, store.transaction() as tx:
            if not tx.access.revoke_key(name):
                raise ConfigurationError(
                    f"there is no key {name!r} in use in {self._location}; `chargehand keys list` shows all keys"
                )
            log_deeds(tx, "revoke key", [f"key:{name}"])

    def all(self) -> list[ApiKey]:
        """Returns every key, oldest first, including revoked and expired ones."""
        with self._stores.use() as store:
            return store.access.api_keys()

    def access(self) -> StoredAccess:
        """Returns all keys and sessions, and the digests of the tokens while no key exists."""
        with self._stores.use() as store:
            keys, sessions = store.access.api_keys(), store.access.sessions()
        try:
            token = None if keys else self._read_token()
        except StoreError:  # a file that others may read is no token; `make_token` says so
            token = None
        own = () if token is None else (digest(token),)
        shared = {session.digest: session.expires_ms for session in sessions if session.key == SHARED_ID}
        if own and self._location.server is not None:
            self._share(*own, shared.get(*own))
        return StoredAccess(
            keys=tuple(keys),
            sessions={session.digest: session for session in sessions if session.key != SHARED_ID},
            tokens=() if keys else tuple(dict.fromkeys((*own, *shared))),
        )

    def _share(self, token: str, until_ms: int | None) -> None:
        """Makes the digest of this machine's token known to the servers of other machines, for half a day."""
        now = clock.now_ms()
        if until_ms is not None and until_ms - now > SESSION_MS // 2:
            return
        session = Session(digest=token, key=SHARED_ID, created_ms=now, expires_ms=now + SESSION_MS)
        # On this machine the token counts in any case; the next look tries again to make it known.
        with suppress(StoreError), self._stores.use() as store, store.transaction() as tx:
            tx.access.sign_in(session)

    # the token

    @property
    def token_file(self) -> "Path":
        """The file that holds the token."""
        return self._location.token

    def token(self) -> str | None:
        """Returns the token; None if a key exists, or if no server has made a token yet."""
        return None if self._location.exists() and self.all() else self._read_token()

    def make_token(self) -> str | None:
        """Returns the token, and makes it if there is none; None if a key exists."""
        if self.all():
            self.end_token()
            return None
        return notes.keep(self._location.token, _is_token, lambda: f"{new_secret(TOKEN_PREFIX)}\n").strip()

    def end_token(self) -> None:
        """Deletes the token; its sessions end with it."""
        notes.remove(self._location.token)

    def _read_token(self) -> str | None:
        found = notes.read(self._location.token)
        return found.strip() if found is not None and _is_token(found) else None

    def touch(self, used: Sequence[tuple[str, int]]) -> None:
        """Records when keys, by their ids, were last used."""
        with self._stores.use() as store, store.transaction() as tx:
            tx.access.touch_keys(used)

    def sign_in(self, session: Session, name: str) -> None:
        """Stores a session of the key of this name."""
        with self._stores.use() as store, store.transaction() as tx:
            tx.access.sign_in(session)
            log_deeds(tx, "sign in", [f"key:{name}"])

    def sign_out(self, digests: Sequence[str], name: str) -> None:
        """Ends the sessions with these digests."""
        with self._stores.use() as store, store.transaction() as tx:
            tx.access.sign_out(digests)
            log_deeds(tx, "sign out", [f"key:{name}"])

    def log(self, deeds: Sequence[Deed]) -> None:
        """Appends to the operator log."""
        with self._stores.use() as store, store.transaction() as tx:
            tx.access.log(deeds)

    def operations(self, which: OperationFilter | None = None) -> list[Operation]:
        """Returns entries of the operator log, newest first."""
        with self._stores.use() as store:
            return store.access.operations(which or OperationFilter())


def _is_token(content: str) -> bool:
    return _TOKEN.fullmatch(content) is not None
