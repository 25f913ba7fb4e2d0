"""Authentication and authorisation: every route declares a scope; a route without one denies all requests.

Nothing here depends on the URL of a request, only on the dependencies of its route.
"""

import hmac
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.responses import Response

from chargehand.errors import ChargehandError
from chargehand.model.access import SCOPES, Scope
from chargehand.web.bodies import LimitedRequest, model_of
from chargehand.web.keyring import Caller
from chargehand.web.problems import Problem

if TYPE_CHECKING:
    from chargehand.web.site import Site

Need = Literal["read", "enqueue", "control"]
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF = "X-CSRF-Token"
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="chargehand"'}
CREATE_A_KEY = "create one with `chargehand keys create NAME --scope read`, and send it as `Authorization: Bearer ch_…`"
USE_THE_TOKEN = (
    "no key exists yet: `chargehand dashboard` prints the address with the token, `chargehand dashboard --token` the "
    "token, to be sent as `Authorization: Bearer ct_…`"
)
_CALLER = "chargehand.caller"
"""Where the caller of a request is kept in its ASGI scope: `request.state` belongs to the application."""


def site_of(request: Request) -> "Site":
    """Returns the site that serves a request."""
    return request.app.state.site


def requires(scope: Need, where: Callable[[Request], "Site"] = site_of) -> Callable[[Request], Awaitable[Caller]]:
    """Returns a dependency that raises Problem unless the caller has the scope: `[Depends(requires("read"))]`.

    `where` returns the site whose keys count, for a route of the application.
    """
    needed = Scope(scope)

    async def check(request: Request) -> Caller:
        """Returns the caller. Raises Problem if it does not have the scope."""
        caller = await caller_of(request, where(request))
        if needed not in caller.scopes:
            raise Problem(403, "scope", f"the key {caller.name!r} does not have the scope {needed.value!r}")
        return caller

    check.needs = needed.value  # type: ignore[attr-defined]
    return check


async def still_allowed(request: Request, scope: Need) -> bool:
    """Returns whether an accepted request would be accepted now; True if the store cannot be read."""
    before = request.scope.pop(_CALLER, None)
    try:
        await requires(scope)(request)
    except Problem:
        return False
    except ChargehandError:
        request.scope[_CALLER] = before
    return True


async def may(request: Request, scope: Need) -> bool:
    """Returns whether the caller has the scope."""
    try:
        await requires(scope)(request)
    except Problem:
        return False
    return True


async def open_to_all() -> None:
    """A dependency that marks a route as public."""


async def known() -> None:
    """A dependency that marks a route whose function checks the caller itself."""


def needs_of(route: Any) -> str | None:
    """Returns what a route requires: a scope, `open` or `known`; None if it declares nothing."""
    todo: list[Dependant] = [route.dependant] if isinstance(route, APIRoute) else []
    while todo:
        found = todo.pop()
        if found.call is open_to_all:
            return "open"
        if found.call is known:
            return "known"
        needs = getattr(found.call, "needs", None)
        if needs is not None:
            return str(needs)
        todo += found.dependencies
    return None


async def deny_undeclared(request: Request) -> None:
    """A dependency of every route. Raises Problem if the route does not declare what it requires."""
    if needs_of(request.scope.get("route")) is None:
        raise Problem(403, "shut", "this route does not declare a scope, and denies all requests")


class Guarded(APIRoute):
    """A route that checks the caller before it reads the body, which is limited.

    Its OpenAPI description names what it requires.
    """

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        needs = needs_of(self)
        scopes = [str(needs)] if needs in SCOPES else []
        signing_in = needs == "known" and "POST" in (self.methods or ())
        schemes: list[dict[str, list[str]]] = [{"key": scopes}, {"cookie": scopes}]
        security = [] if needs == "open" or signing_in else schemes
        self.openapi_extra = {**(self.openapi_extra or {}), "security": security}

    def get_route_handler(self) -> Callable[[Request], Any]:
        inner, needs, model = super().get_route_handler(), needs_of(self), model_of(self)

        async def handle(request: Request) -> Response:
            match needs:
                case "read" | "enqueue" | "control":
                    await requires(needs)(request)
                case "known" if request.method == "POST":
                    check_origin(request)
                case _:
                    pass
            site: Site = request.app.state.site
            http = site.hand.settings.http
            limit = http.body_size if needs == Scope.ENQUEUE else http.small_body_size
            return await inner(LimitedRequest(request, limit, model))

        return handle


async def caller_of(request: Request, site: "Site | None" = None) -> Caller:
    """Returns the caller by its key, token or cookie. Raises Problem if it has none that is valid."""
    site = site or site_of(request)
    kept = cast("tuple[Site, Caller] | None", request.scope.get(_CALLER))
    if kept is not None and kept[0] is site:
        return kept[1]
    header, cookie = request.headers.get("authorization"), request.cookies.get(site.cookie)
    if header is not None:
        caller = await _by_header(request, site, header)
    elif cookie is not None:
        caller = await site.keyring.by_cookie(cookie)
        if isinstance(caller, str):
            raise Problem(401, "signed-out", f"{caller}: sign in again", headers=CHALLENGE)
        check_origin(request)
        check_csrf(request, caller)
    else:
        raise Problem(401, "key-needed", f"the request has no API key: {await _remedy(site)}", headers=CHALLENGE)
    request.scope[_CALLER] = (site, caller)
    return caller


async def _remedy(site: "Site") -> str:
    return USE_THE_TOKEN if await site.keyring.empty() else CREATE_A_KEY


async def _by_header(request: Request, site: "Site", header: str) -> Caller:
    kind, _, secret = header.partition(" ")
    if kind.lower() != "bearer" or not secret.strip():
        raise Problem(
            401,
            "key-needed",
            f"the Authorization header is not of the form `Bearer KEY`: {await _remedy(site)}",
            headers=CHALLENGE,
        )
    found = await site.keyring.by_key(secret.strip())
    if isinstance(found, str):
        await site.key_refused(site.origin_of(request), found)
        raise Problem(401, "key-unknown", f"{found}: {await _remedy(site)}", headers=CHALLENGE)
    return found


def check_origin(request: Request) -> None:
    """Raises Problem if a page of another site sent the request. Clients other than browsers send neither header.

    A browser that sends Sec-Fetch-Site knows whether the page is of this site, also behind a proxy that changes Host.
    """
    site = request.headers.get("sec-fetch-site", "none")
    navigating = request.method in SAFE and request.headers.get("sec-fetch-mode") == "navigate"
    if site not in ("same-origin", "none") and not navigating:
        raise Problem(403, "cross-site", "the request was sent by a page of another site")
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    if origin is not None and site != "same-origin" and urlsplit(origin).netloc.lower() != host.lower():
        raise Problem(
            403,
            "cross-site",
            f"the request was sent by a page of another site, or by a page of this one through a proxy that changes "
            f"the Host header: Origin is {origin[:200]!r}, Host is {host[:200]!r}; a proxy must pass Host on (nginx: "
            "`proxy_set_header Host $http_host;`)",
        )


def check_csrf(request: Request, caller: Caller) -> None:
    """Raises Problem if a request that changes something and uses a cookie lacks the CSRF token of that cookie."""
    given = request.headers.get(CSRF, "")
    if request.method not in SAFE and not hmac.compare_digest(given.encode(), (caller.csrf or "").encode()):
        raise Problem(403, "csrf", f"the header {CSRF} is missing or wrong: GET api/web/session returns the token")
