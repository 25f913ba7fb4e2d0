"""Access to Adreel's own routes: by Chargehand's keys, token and sessions, by scope.

With ADREEL_OPEN, everybody who reaches the port may, except for drain. Pages of other sites may not even then: a
browser would lend them its place in the network.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from fastapi import Depends
from fastapi.params import Depends as Dependency
from starlette.requests import Request

from adreel.errors import Refused
from chargehand import Chargehand

SAFE = ("GET", "HEAD", "OPTIONS")


def doors(hand: Chargehand, *, is_open: bool) -> dict[str, list[Dependency]]:
    """Returns the dependencies of routes by the scope that they need."""
    found: dict[str, list[Dependency]] = {}
    scopes: tuple[Literal["read", "enqueue", "control"], ...] = ("read", "enqueue", "control")
    for scope in scopes:
        guarded = not is_open or scope == "control"
        check: Callable[..., Any] = hand.requires(scope) if guarded else own_site(hand.settings.cors_origins)
        found[scope] = [Depends(check)]
    return found


def own_site(allowed: Sequence[str]) -> Callable[[Request], Awaitable[None]]:
    """Returns a dependency that refuses changes by pages of other sites, except those of CORS_ORIGINS."""

    async def check(request: Request) -> None:
        """Raises Refused if a page of another site sent a request that changes something."""
        origin = request.headers.get("origin")
        if request.method in SAFE or (origin is not None and origin in allowed):
            return
        site = request.headers.get("sec-fetch-site", "none")
        foreign = origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower()
        if site not in ("same-origin", "none") or (foreign and site != "same-origin"):
            raise Refused(403, "cross-site", "the request was sent by a page of another site")

    return check
