"""API keys, the sessions of signed-in browsers, and the operator log, as the store keeps them.

A key is shown once, when it is created; the store keeps only its digest.
"""

import hashlib
import secrets
from collections.abc import Sequence

from chargehand import clock
from chargehand.errors import ConfigurationError
from chargehand.host.actor import log_deeds
from chargehand.host.pool import StorePool
from chargehand.ids import new_id
from chargehand.model.access import ApiKey, Operation, OperationFilter, Scope, Session
from chargehand.model.job import NAME_LIMIT
from chargehand.settings.plan import milliseconds
from chargehand.stores.location import Location

PREFIX = "ch_"


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

    def with_sessions(self) -> tuple[list[ApiKey], list[Session]]:
        """Returns every key and every session that has not expired."""
        with self._stores.use() as store:
            return store.access.api_keys(), store.access.sessions()

    def touch(self, used: Sequence[tuple[str, int]]) -> None:
        """Records when keys, by their ids, were last used."""
        with self._stores.use() as store, store.transaction() as tx:
            tx.access.touch_keys(used)

    def sign_in(self, session: Session) -> None:
        """Stores a session."""
        with self._stores.use() as store, store.transaction() as tx:
            tx.access.sign_in(session)

    def sign_out(self, session_digest: str) -> None:
        """Ends a session."""
        with self._stores.use() as store, store.transaction() as tx:
            tx.access.sign_out(session_digest)

    def operations(self, which: OperationFilter | None = None) -> list[Operation]:
        """Returns entries of the operator log, newest first."""
        with self._stores.use() as store:
            return store.access.operations(which or OperationFilter())
