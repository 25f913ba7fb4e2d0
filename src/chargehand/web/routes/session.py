"""Routes of browser sessions: sign in with a key for an HttpOnly cookie and a CSRF token; sign out."""

from fastapi import Depends, Request, Response

from chargehand.web import examples
from chargehand.web.answers import Probe, SignedIn
from chargehand.web.auth import CHALLENGE, caller_of, check_origin, known
from chargehand.web.deps import Here, router
from chargehand.web.documents import answers, respond
from chargehand.web.keyring import Caller
from chargehand.web.problems import Problem
from chargehand.web.requests import SignIn

routes = router("session")
ANY_CALLER = [Depends(known)]


@routes.post("/api/web/session", dependencies=ANY_CALLER, responses=answers(SignedIn, examples.SIGNED_IN))
async def sign_in(request: Request, site: Here, sign: SignIn) -> Response:
    """Signs in with a key: sets an HttpOnly cookie, and returns the CSRF token that requests with changes require."""
    check_origin(request)
    found = await site.keyring.sign_in(sign.key)
    if isinstance(found, str):
        raise Problem(401, "key-unknown", found, headers=CHALLENGE)
    cookie, caller = found
    response = respond(_signed_in(caller))
    response.set_cookie(
        site.cookie, cookie, path=_path(request), httponly=True, samesite="strict",
        secure=request.url.scheme == "https",
    )  # fmt: skip
    return response


@routes.get("/api/web/session", dependencies=ANY_CALLER, responses=answers(SignedIn, examples.SIGNED_IN))
async def session(request: Request) -> Response:
    """Returns the caller, its scopes and its CSRF token. Returns 401 or 403 if the caller is not authenticated."""
    return respond(_signed_in(await caller_of(request)))


@routes.delete("/api/web/session", dependencies=ANY_CALLER, responses=answers(Probe, Probe("signed out")))
async def sign_out(request: Request, site: Here) -> Response:
    """Ends the session and deletes the cookie."""
    await caller_of(request)
    cookie = request.cookies.get(site.cookie)
    if cookie is not None:
        await site.keyring.sign_out(cookie)
    response = respond(Probe("signed out"))
    response.delete_cookie(site.cookie, path=_path(request), httponly=True, samesite="strict")
    return response


def _path(request: Request) -> str:
    return request.scope.get("root_path") or "/"


def _signed_in(caller: Caller) -> SignedIn:
    scopes = tuple(scope.value for scope in caller.scopes)
    return SignedIn(name=caller.name, kind=caller.kind, scopes=scopes, csrf=caller.csrf, expires_ms=caller.expires_ms)
