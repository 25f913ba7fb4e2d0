"""Routes of API keys: list, create, revoke.

A caller cannot create a key that allows more than its own, or that lasts longer.
"""

from typing import Annotated, Any

from fastapi import Path, Request, Response

from chargehand import clock
from chargehand.model.access import ApiKey, Scope
from chargehand.model.fleet.orders import Answer, AnswerCode
from chargehand.web import examples
from chargehand.web.answers import ApiKeys, KeyFacts, MadeKey
from chargehand.web.auth import caller_of
from chargehand.web.deps import CONTROL, Here, act, router
from chargehand.web.documents import answers, respond
from chargehand.web.keyring import Caller
from chargehand.web.problems import Problem
from chargehand.web.requests import KeyIn

routes = router("session")
Id = Annotated[str, Path(min_length=1, max_length=200)]
ROUTE = "/api/v1/keys"


@routes.get(ROUTE, dependencies=CONTROL, responses=answers(ApiKeys, examples.KEYS))
async def list_keys(site: Here) -> Response:
    """Returns every API key: its scopes, when it was made and last used, when it expires; never the key itself."""
    found = await site.in_thread(site.hand.api_keys)
    now = clock.now_ms()
    return respond(ApiKeys(tuple(KeyFacts(**_facts(key, now)) for key in found)))


@routes.post(ROUTE, dependencies=CONTROL, responses=answers(MadeKey, examples.MADE_KEY, 409))
async def create_key(request: Request, site: Here, wanted: KeyIn) -> Response:
    """Creates an API key, and returns it: it cannot be shown again. It has at most the scopes of the caller's key, and
    expires when that does, at the latest."""
    caller = await caller_of(request)
    scopes = [Scope(scope) for scope in wanted.scopes]
    beyond = [scope.value for scope in scopes if scope not in caller.scopes]
    if beyond:
        raise Problem(
            403, "scope", f"the key {caller.name!r} does not have the scope {beyond[0]!r}, so that it cannot give it"
        )
    secret, key = await act(request, lambda: site.hand.make_key(wanted.name, scopes, seconds=_seconds(wanted, caller)))
    site.keyring.forget()
    return respond(MadeKey(key=secret, **_facts(key, clock.now_ms())))


def _seconds(wanted: KeyIn, caller: Caller) -> float | None:
    """Returns how long the key may be used; None: without an end."""
    if caller.key_expires_ms is None:
        return wanted.expires_s
    left = max(0.001, (caller.key_expires_ms - clock.now_ms()) / 1000)
    return left if wanted.expires_s is None else min(left, wanted.expires_s)


@routes.delete(ROUTE + "/{id}", dependencies=CONTROL, responses=answers(Answer, examples.KEY_REVOKED, 404))
async def revoke_key(request: Request, site: Here, id: Id) -> Response:
    """Revokes an API key by its id, and ends its sessions. It is refused within a second."""

    def revoke() -> Answer:
        found = next((key for key in site.hand.api_keys() if key.id == id), None)
        if found is None:
            raise Problem(404, "no-such-key", f"there is no key with the id {id!r}; api/v1/keys lists all")
        if found.revoked_ms is not None:
            return Answer(found.name, "was revoked before", AnswerCode.UNCHANGED)
        site.hand.revoke_key(id)
        return Answer(found.name, "is revoked", AnswerCode.DELETED)

    answer = await act(request, revoke)
    site.keyring.forget()
    return respond(answer)


def _facts(key: ApiKey, now_ms: int) -> dict[str, Any]:
    state = "revoked" if key.revoked_ms is not None else "in use" if key.why_not(now_ms) is None else "expired"
    return {
        "id": key.id, "name": key.name, "scopes": tuple(scope.value for scope in key.scopes), "state": state,
        "created_ms": key.created_ms, "expires_ms": key.expires_ms, "used_ms": key.used_ms,
        "revoked_ms": key.revoked_ms,
    }  # fmt: skip
