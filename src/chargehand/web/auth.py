"""Authentication and authorisation: every route declares a scope; a route without one denies all requests.

Nothing here depends on the URL of a request, only on the dependencies of its route.
"""

import hmac
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.responses import Response

from chargehand.errors import ChargehandError
from chargehand.model.access import Scope
from chargehand.web.bodies import LimitedRequest, model_of
from chargehand.web.gate import host_of
from chargehand.web.keyring import Caller
from chargehand.web.problems import Problem

if TYPE_CHECKING:
    from chargehand.web.site import Site

Need = Literal["read", "enqueue", "control"]
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF = "X-CSRF-Token"
FORWARDED = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"})
"""Headers that proxies set, besides X-Forwarded-*: behind a proxy, a loopback address does not mean a local caller."""
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="chargehand"'}
CREATE_A_KEY = "create one with `chargehand keys create NAME --scope read`, and send it as `Authorization: Bearer ch_…`"


def requires(scope: Need) -> Callable[[Request], Awaitable[Caller]]:
    """Returns a dependency that raises Problem unless the caller has the scope: `[Depends(requires("read"))]`."""
    needed = Scope(scope)

    async def check(request: Request) -> Caller:
        """Returns the caller. Raises Problem if it does not have the scope."""
        caller = await caller_of(request)
        if needed not in caller.scopes:
            raise Problem(403, "scope", f"the key {caller.name!r} does not have the scope {needed.value!r}")
        return caller

    check.needs = needed.value  # type: ignore[attr-defined]
    return check


async def still_allowed(request: Request, scope: Need) -> bool:
    """Returns whether an accepted request would be accepted now; True if the store cannot be read."""
    before = request.state.caller
    request.state.caller = None
    try:
        await requires(scope)(request)
    except Problem:
        return False
    except ChargehandError:
        request.state.caller = before
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
    """A route that checks the caller before it reads the body, which is limited."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        inner, needs, model = super().get_route_handler(), needs_of(self), model_of(self)

        async def handle(request: Request) -> Response:
            match needs:
                case "read" | "enqueue" | "control":
                    await requires(needs)(request)
                case _:
                    pass
            site: Site = request.app.state.site
            http = site.hand.settings.http
            limit = http.body_size if needs == Scope.ENQUEUE else http.small_body_size
            return await inner(LimitedRequest(request, limit, model))

        return handle


async def caller_of(request: Request) -> Caller:
    """Returns the caller by its key or cookie, or the local caller while no key exists. Raises Problem otherwise."""
    known_already = getattr(request.state, "caller", None)
    if known_already is not None:
        return known_already
    site: Site = request.app.state.site
    header, cookie = request.headers.get("authorization"), request.cookies.get(site.cookie)
    if header is not None:
        caller = await _by_header(site, header)
    elif cookie is not None and not await site.keyring.empty():
        caller = await site.keyring.by_cookie(cookie)
        if isinstance(caller, str):
            raise Problem(401, "signed-out", f"{caller}: sign in again", headers=CHALLENGE)
        check_origin(request)
        check_token(request, caller)
    else:
        caller = await _without_a_key(site, request)
    request.state.caller = caller
    return caller


async def _by_header(site: "Site", header: str) -> Caller:
    kind, _, secret = header.partition(" ")
    if kind.lower() != "bearer" or not secret.strip():
        raise Problem(
            401,
            "key-needed",
            f"the Authorization header is not of the form `Bearer KEY`: {CREATE_A_KEY}",
            headers=CHALLENGE,
        )
    found = await site.keyring.by_key(secret.strip())
    if isinstance(found, str):
        raise Problem(401, "key-unknown", f"{found}: {CREATE_A_KEY}", headers=CHALLENGE)
    return found


async def _without_a_key(site: "Site", request: Request) -> Caller:
    """Returns the local caller, which has all scopes while no key exists. Raises Problem for other callers."""
    if not await site.keyring.empty():
        raise Problem(401, "key-needed", f"an API key is required: {CREATE_A_KEY}", headers=CHALLENGE)
    if not is_local(request):
        raise Problem(
            403,
            "no-key-yet",
            "no key exists yet: only requests from this machine, without a proxy and to a local name, are allowed; "
            f"{CREATE_A_KEY}",
        )
    check_origin(request)
    return Caller(name="local", kind="local")


def is_local(request: Request) -> bool:
    """Returns whether a request comes from this machine without a proxy and, against DNS rebinding, to a local name."""
    if any(name in FORWARDED or name.startswith("x-forwarded") for name in request.headers):
        return False
    return (
        request.client is not None
        and is_loopback(request.client.host)
        and is_local_name(host_of(request.headers.get("host", "")))
    )


def is_loopback(address: str) -> bool:
    """Returns whether an address is a loopback address, also if IPv4-mapped."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def is_local_name(host: str) -> bool:
    """Returns whether a host name always means this machine."""
    return host == "localhost" or host.endswith(".localhost") or is_loopback(host)


def check_origin(request: Request) -> None:
    """Raises Problem if a page of another site sent the request. Clients other than browsers send neither header."""
    site = request.headers.get("sec-fetch-site", "none")
    navigating = request.method in SAFE and request.headers.get("sec-fetch-mode") == "navigate"
    if site not in ("same-origin", "none") and not navigating:
        raise Problem(403, "cross-site", "the request was sent by a page of another site")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        raise Problem(403, "cross-site", "the request was sent by a page of another site")


def check_token(request: Request, caller: Caller) -> None:
    """Raises Problem if a request that changes something and uses a cookie lacks the CSRF token of that cookie."""
    given = request.headers.get(CSRF, "")
    if request.method not in SAFE and not hmac.compare_digest(given.encode(), (caller.csrf or "").encode()):
        raise Problem(403, "csrf", f"the header {CSRF} is missing or wrong: GET api/web/session returns the token")
