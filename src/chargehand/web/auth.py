"""Who calls and what they may do: every route names the scope that it needs, and a route that names none is shut.

Nothing here looks at the request's URL: a route is known by what it declares.
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
from chargehand.web.gate import host_of
from chargehand.web.keyring import Caller
from chargehand.web.problems import Problem

if TYPE_CHECKING:
    from chargehand.web.site import Site

Need = Literal["read", "enqueue", "control"]
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF = "X-CSRF-Token"
FORWARDED = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"})
"""Headers that only a proxy sets, beside all of X-Forwarded-*: behind one, a loopback address says nothing."""
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="chargehand"'}
MAKE_A_KEY = "make one with `chargehand keys create NAME --scope read`, and send it as `Authorization: Bearer ch_…`"


def requires(scope: Need) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency that lets only those pass who have this scope: `dependencies=[Depends(requires("read"))]`."""
    needed = Scope(scope)

    async def check(request: Request) -> Caller:
        """The caller, who has the scope."""
        caller = await caller_of(request)
        if needed not in caller.scopes:
            raise Problem(403, "scope", f"the key {caller.name!r} does not have the scope {needed.value!r}")
        return caller

    check.needs = needed.value  # type: ignore[attr-defined]
    return check


async def still_welcome(request: Request, scope: Need) -> bool:
    """Whether somebody who was let in would be let in again; while the store cannot tell, nobody is sent away."""
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
    """A dependency that says that a route is for everybody."""


async def known() -> None:
    """A dependency for routes that look at the caller themselves, whoever it is."""


def needs_of(route: Any) -> str | None:
    """What a route needs: a scope, `open`, `known`; None if it says nothing."""
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


async def shut(request: Request) -> None:
    """A dependency of every route: whoever forgot to say what a route needs has shut it."""
    if needs_of(request.scope.get("route")) is None:
        raise Problem(403, "shut", "this route does not say what it needs, and is shut")


class Guarded(APIRoute):
    """A route whose caller is checked before a byte of the body is read."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        inner, needs = super().get_route_handler(), needs_of(self)

        async def handle(request: Request) -> Response:
            match needs:
                case "read" | "enqueue" | "control":
                    await requires(needs)(request)
                case _:
                    pass
            return await inner(request)

        return handle


async def caller_of(request: Request) -> Caller:
    """Who calls, by key, by cookie, or as nobody has made a key yet; a Problem that says what to do otherwise."""
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
            f"the Authorization header is not of the form `Bearer KEY`: {MAKE_A_KEY}",
            headers=CHALLENGE,
        )
    found = await site.keyring.by_key(secret.strip())
    if isinstance(found, str):
        raise Problem(401, "key-unknown", f"{found}: {MAKE_A_KEY}", headers=CHALLENGE)
    return found


async def _without_a_key(site: "Site", request: Request) -> Caller:
    """While nobody has made a key, whoever sits at this machine may do everything, and nobody else anything."""
    if not await site.keyring.empty():
        raise Problem(401, "key-needed", f"a key is needed: {MAKE_A_KEY}", headers=CHALLENGE)
    if not is_local(request):
        raise Problem(
            403,
            "no-key-yet",
            "no key exists yet, so only callers on this machine are answered, directly and by a local name: "
            f"{MAKE_A_KEY}",
        )
    check_origin(request)
    return Caller(name="local", kind="local")


def is_local(request: Request) -> bool:
    """Whether the call comes from this machine, through no proxy, and asks for a local name (no rebound DNS)."""
    if any(name in FORWARDED or name.startswith("x-forwarded") for name in request.headers):
        return False
    return (
        request.client is not None
        and is_loopback(request.client.host)
        and is_local_name(host_of(request.headers.get("host", "")))
    )


def is_loopback(address: str) -> bool:
    """Whether that is an address of this machine that nobody else can use."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def is_local_name(host: str) -> bool:
    """Whether a name can only mean this machine."""
    return host == "localhost" or host.endswith(".localhost") or is_loopback(host)


def check_origin(request: Request) -> None:
    """Refuse what another site's page had the browser send. Who is no browser sends neither header."""
    site = request.headers.get("sec-fetch-site", "none")
    navigating = request.method in SAFE and request.headers.get("sec-fetch-mode") == "navigate"
    if site not in ("same-origin", "none") and not navigating:
        raise Problem(403, "cross-site", "the request comes from another site's page")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        raise Problem(403, "cross-site", "the request comes from another site's page")


def check_token(request: Request, caller: Caller) -> None:
    """Whoever signed in with a cookie repeats its token where something is changed."""
    given = request.headers.get(CSRF, "")
    if request.method not in SAFE and not hmac.compare_digest(given.encode(), (caller.csrf or "").encode()):
        raise Problem(403, "csrf", f"the header {CSRF} is missing or wrong: GET api/web/session tells it")
