"""Keys and what they allow, sign-ins, what people did, and answers kept for repeated requests. Pure."""

from enum import StrEnum

import msgspec

SESSION_MS = 12 * 3_600_000
"""How long a sign-in lasts."""
MOST_SESSIONS = 1000
"""Sign-ins that are kept at a time; the oldest give way."""
REMEMBERED_MS = 24 * 3_600_000
"""How long the answer to a request with an Idempotency-Key is kept."""
USED_EVERY_MS = 60_000
"""How often, at most, it is written down that a key was used."""


class Scope(StrEnum):
    """What a key can allow; none of them includes another."""

    READ = "read"
    ENQUEUE = "enqueue"
    CONTROL = "control"


SCOPES: tuple[Scope, ...] = tuple(Scope)


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is kept: by its digest. The key itself is shown once, when it is made."""

    id: str
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    created_ms: int
    expires_ms: int | None = None
    used_ms: int | None = None
    """When it was last used, to the minute."""
    revoked_ms: int | None = None

    def why_not(self, now_ms: int) -> str | None:
        """Why it opens nothing any more; None if it does."""
        if self.revoked_ms is not None:
            return f"the key {self.name!r} was revoked"
        if self.expires_ms is not None and now_ms >= self.expires_ms:
            return f"the key {self.name!r} has expired"
        return None


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-in with a key, by the digest of its cookie. It ends with the key, if not before."""

    digest: str
    key: str
    """The key's id."""
    created_ms: int
    expires_ms: int


class Deed(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person did, on its way into the operator log."""

    who: str
    verb: str
    target: str = "*"
    """`*`, a crew, `worker:crew:index`, `job:id`, `queue:name` or `key:name`."""
    detail: str | None = None
    origin: str | None = None
    """From where: `python`, `cli`, or the address of an HTTP caller."""


class Operation(Deed, frozen=True, kw_only=True):
    """An entry of the operator log."""

    id: int
    at_ms: int


class OperationFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries to list, newest first; `before` is the id of the last one on the page before."""

    who: str | None = None
    verb: str | None = None
    target: str | None = None
    before: int | None = None
    limit: int = 50


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered to a request that carried an Idempotency-Key."""

    caller: str
    key: str
    digest: str
    """Of the request: another one under the same key is a mistake."""
    status: int
    body: str
