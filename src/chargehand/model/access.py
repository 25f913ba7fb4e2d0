"""API keys and their scopes, sessions, the operator log, and stored responses for repeated requests. Pure."""

from enum import StrEnum

import msgspec

SESSION_MS = 12 * 3_600_000
"""The lifetime of a session."""
MOST_SESSIONS = 100
"""The maximum number of sessions of one key; its oldest are deleted, and never those of other keys."""
REMEMBERED_MS = 24 * 3_600_000
"""How long the response to a request with an Idempotency-Key is kept."""
USED_EVERY_MS = 60_000
"""The minimum interval at which a key's last use is recorded."""


class Scope(StrEnum):
    """The scopes of a key; no scope includes another."""

    READ = "read"
    ENQUEUE = "enqueue"
    CONTROL = "control"


SCOPES: tuple[Scope, ...] = tuple(Scope)


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key, stored by its digest; the key itself is shown once, when it is created."""

    id: str
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    created_ms: int
    expires_ms: int | None = None
    used_ms: int | None = None
    """When the key was last used, to the minute."""
    revoked_ms: int | None = None

    def why_not(self, now_ms: int) -> str | None:
        """Returns why the key is not valid; None if it is."""
        if self.revoked_ms is not None:
            return f"the key {self.name!r} was revoked"
        if self.expires_ms is not None and now_ms >= self.expires_ms:
            return f"the key {self.name!r} has expired"
        return None


ADMIN_ID, TOKEN_ID = "admin", "token"
"""The ids of the key from the environment and of the token, which are not among the stored keys."""
SHARED_ID = "shared token"
"""In a store for several machines, the token of each is among the sessions, as one of this key, so that all accept it.
It is renewed while a server runs there, and is not accepted as a cookie."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was opened with a key, stored by a digest of its cookie; it ends with the key at the latest."""

    digest: str
    key: str
    """The id of the key; `admin` or `token` for the key from the environment and the token."""
    created_ms: int
    expires_ms: int


class StoredAccess(msgspec.Struct, frozen=True, kw_only=True):
    """All keys, the sessions that have not expired, by digest, and the digests of the tokens while no key exists."""

    keys: tuple[ApiKey, ...]
    sessions: dict[str, Session]
    tokens: tuple[str, ...] = ()
    """That of this machine first."""


class Deed(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's action that is to be recorded in the operator log."""

    who: str
    verb: str
    target: str = "*"
    """`*`, a crew, `worker:crew:index`, `job:id`, `queue:name` or `key:name`."""
    detail: str | None = None
    origin: str | None = None
    """Where the action came from: `python`, `cli`, or the address of an HTTP client."""


class Operation(Deed, frozen=True, kw_only=True):
    """An entry of the operator log."""

    id: int
    at_ms: int


class OperationFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects entries of the operator log, newest first; `before` is the id of the last entry of the previous page."""

    who: str | None = None
    verb: str | None = None
    target: str | None = None
    before: int | None = None
    limit: int = 50


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """The stored response to a request with an Idempotency-Key."""

    caller: str
    key: str
    digest: str
    """The digest of the request; a different request with the same key is an error."""
    status: int
    body: str
