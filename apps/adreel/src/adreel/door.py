"""Access to Adreel's own routes: by Chargehand's keys, token and sessions, by scope.

With ADREEL_OPEN, everybody who reaches the port may, except for drain. Pages of other sites may not even then: a
browser would lend them its place in the network.
"""

import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

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
        settings = hand.settings
        check: Callable[..., Any] = (
            hand.requires(scope) if guarded else own_site(settings.cors_origins, settings.allowed_hosts)
        )
        found[scope] = [Depends(check)]
    return found


def own_site(allowed: Sequence[str], hosts: Sequence[str] = ()) -> Callable[[Request], Coroutine[Any, Any, None]]:
    """Returns a dependency that refuses changes by pages of other sites, except those of CORS_ORIGINS.

    It also refuses everything under other names than `hosts`, unless that is empty: a site can let its own name lead to
    this address, and a browser then takes this server for the site.
    """

    async def check(request: Request) -> None:
        """Raises Refused if a page of another site sent a request that changes something, or for a wrong host."""
        host = request.headers.get("host", "").lower()
        if hosts and re.sub(r":\d+$", "", host).strip("[]") not in hosts:
            raise Refused(421, "wrong-host", "this server does not serve the requested host")
        origin = request.headers.get("origin")
        if request.method in SAFE or (origin is not None and origin in allowed):
            return
        site = request.headers.get("sec-fetch-site", "none")
        foreign = origin is not None and origin.partition("://")[2].lower() != host
        if site not in ("same-origin", "none") or (foreign and site != "same-origin"):
            raise Refused(403, "cross-site", "the request was sent by a page of another site")

    return check
