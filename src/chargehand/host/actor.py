"""Who acts, with which keys, and what is kept of it: the part of `Chargehand` that is about people."""

import getpass
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

import msgspec

from chargehand import clock
from chargehand.errors import ConfigurationError
from chargehand.host import keys
from chargehand.ids import new_id
from chargehand.model.access import ApiKey, Deed, Operation, OperationFilter, Scope
from chargehand.model.job import NAME_LIMIT
from chargehand.settings.plan import milliseconds
from chargehand.store import Store, Transaction
from chargehand.stores.location import Location


class Actor(msgspec.Struct, frozen=True):
    """Who acts, and from where: what the operator log says."""

    who: str
    origin: str


_actor: ContextVar[Actor | None] = ContextVar("chargehand_actor", default=None)


@contextmanager
def acting_as(who: str, origin: str) -> Generator[None]:
    """Whatever is ordered in the block is kept in the operator log as this person's deed."""
    token = _actor.set(Actor(who, origin))
    try:
        yield
    finally:
        _actor.reset(token)


def actor() -> Actor:
    """Who acts: whoever was named, or this process's user."""
    return _actor.get() or Actor(user(), "python")


def user() -> str:
    """Whose process this is."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def log_deeds(
    tx: Transaction, verb: str, targets: Sequence[str], detail: str | None = None, who: str | None = None
) -> None:
    """Have the operator log say that whoever acts did this to each of these."""
    by = actor()
    tx.access.log(
        [Deed(who=who or by.who, origin=by.origin, verb=verb, target=each, detail=detail) for each in targets]
    )


class People:
    """Keys and the operator log. `Chargehand` has all of this."""

    location: Location
    _store: Callable[..., AbstractContextManager[Store]]

    def make_key(self, name: str, scopes: Sequence[Scope], *, seconds: float | None = None) -> tuple[str, ApiKey]:
        """Make a key with these scopes: the key itself, which is shown this once, and what is kept of it."""
        if not 1 <= len(name) <= NAME_LIMIT or not name.isprintable():
            raise ConfigurationError(f"key {name!r}: allowed are 1 to {NAME_LIMIT} printable characters")
        if not scopes:
            raise ConfigurationError(f"key {name!r}: give it at least one scope: {', '.join(Scope)}")
        life = None if seconds is None else milliseconds("the life of the key", seconds)
        if life is not None and life <= 0:
            raise ConfigurationError(f"key {name!r}: its life is {seconds:g} s; allowed is more than 0")
        secret, now = keys.new_secret(), clock.now_ms()
        ordered = tuple(scope for scope in Scope if scope in scopes)
        key = ApiKey(
            id=new_id(), name=name, digest=keys.digest(secret), scopes=ordered, created_ms=now,
            expires_ms=None if life is None else now + life,
        )  # fmt: skip
        with self._store() as store, store.transaction() as tx:
            tx.access.add_key(key)
            log_deeds(tx, "create key", [f"key:{name}"], ", ".join(ordered))
        return secret, key

    def revoke_key(self, name: str) -> None:
        """End a key, by its name or id: within a second it opens nothing any more."""
        with self._store(create=False) as store, store.transaction() as tx:
            if not tx.access.revoke_key(name):
                raise ConfigurationError(f"there is no key {name!r} in use in {self.location}; `chargehand keys list`")
            log_deeds(tx, "revoke key", [f"key:{name}"])

    def api_keys(self) -> list[ApiKey]:
        """Every key, oldest first; revoked and expired ones, too."""
        with self._store() as store:
            return store.access.api_keys()

    def operations(self, which: OperationFilter | None = None) -> list[Operation]:
        """What people did, newest first."""
        with self._store() as store:
            return store.access.operations(which or OperationFilter())
