"""Routes of browser sessions: sign in with a key or the token for an HttpOnly cookie and a CSRF token; sign out."""

import math

from fastapi import Depends, Request, Response

from chargehand.web import examples
from chargehand.web.answers import Probe, SignedIn
from chargehand.web.auth import CHALLENGE, caller_of, known
from chargehand.web.deps import Here, router
from chargehand.web.documents import answers, problem, respond
from chargehand.web.keyring import Caller
from chargehand.web.problems import Problem
from chargehand.web.requests import SignIn
from chargehand.web.site import TOO_MANY, Site

routes = router("session")
ANY_CALLER = [Depends(known)]
_SIGN_IN = answers(SignedIn, examples.SIGNED_IN) | {429: problem("Too many bad sign-ins; Retry-After says how long.")}


@routes.post("/api/web/session", dependencies=ANY_CALLER, responses=_SIGN_IN)
async def sign_in(request: Request, site: Here, sign: SignIn) -> Response:
    """Signs in with a key or the token: sets an HttpOnly cookie, and returns the CSRF token that changes require."""
    origin = site.origin_of(request)
    wait = site.sign_in_wait(origin)
    # A key of 256 random bits cannot be guessed, and somebody else's bad sign-ins must not lock its holder out.
    found = await site.keyring.sign_in(sign.key, origin, guessable=wait <= 0)
    if isinstance(found, str):
        if wait > 0:
            seconds = {"Retry-After": str(math.ceil(wait))}
            raise Problem(429, "slow-down", f"{TOO_MANY}: try again in {math.ceil(wait)} s", headers=seconds)
        await site.sign_in_failed(origin, found)
        raise Problem(401, "key-unknown", found, headers=CHALLENGE)
    cookie, caller = found
    response = respond(_signed_in(caller))
    response.set_cookie(
        site.cookie, cookie, path=_path(request, site), httponly=True, samesite="strict", secure=_is_https(request)
    )
    return response


@routes.get("/api/web/session", dependencies=ANY_CALLER, responses=answers(SignedIn, examples.SIGNED_IN))
async def session(request: Request) -> Response:
    """Returns the caller, its scopes and its CSRF token. Returns 401 or 403 if the caller is not authenticated."""
    return respond(_signed_in(await caller_of(request)))


@routes.delete("/api/web/session", dependencies=ANY_CALLER, responses=answers(Probe, Probe("signed out")))
async def sign_out(request: Request, site: Here) -> Response:
    """Ends the session and deletes the cookie."""
    caller = await caller_of(request)
    cookie = request.cookies.get(site.cookie)
    if cookie is not None:
        await site.keyring.sign_out(cookie, caller, site.origin_of(request))
    response = respond(Probe("signed out"))
    response.delete_cookie(site.cookie, path=_path(request, site), httponly=True, samesite="strict")
    return response


def _path(request: Request, site: Site) -> str:
    """Returns the path of the cookie: our routes or, if routes of the application use it, too, all of them."""
    root: str = request.scope.get("root_path", "")
    return (root.removesuffix(site.prefix) if site.guards_app else root) or "/"


def _is_https(request: Request) -> bool:
    """Returns whether the browser uses HTTPS: a proxy may not, but the browser names the origin of its page."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")


def _signed_in(caller: Caller) -> SignedIn:
    scopes = tuple(scope.value for scope in caller.scopes)
    return SignedIn(name=caller.name, kind=caller.kind, scopes=scopes, csrf=caller.csrf, expires_ms=caller.expires_ms)
