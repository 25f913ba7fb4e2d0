"""Every route and what it needs; and that a route that does not say so denies all requests."""

import asyncio
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import APIRouter, FastAPI
from starlette.datastructures import Headers
from webworld import Web, problem

from chargehand import Chargehand, clock
from chargehand.testing import eventually
from chargehand.web.auth import needs_of

NEEDS = {
    "GET /": "open",
    "GET /dashboard": "open",
    "GET /dashboard/{name}": "open",
    "GET /healthz": "open",
    "GET /readyz": "open",
    "GET /workers/ready": "open",
    "GET /api/web/session": "known",
    "POST /api/web/session": "known",
    "DELETE /api/web/session": "known",
    "GET /openapi.json": "read",
    "GET /docs": "read",
    "GET /api/events": "read",
    "GET /metrics": "read",
    "GET /diagnostics/concurrency": "read",
    "GET /api/v1/info": "read",
    "GET /api/v1/nodes": "read",
    "GET /api/v1/doctor": "read",
    "GET /api/v1/logs": "read",
    "GET /api/v1/status": "read",
    "GET /api/v1/health": "read",
    "GET /api/v1/health/{component}": "read",
    "GET /api/v1/history": "read",
    "GET /api/v1/workers/{component}/history": "read",
    "GET /api/v1/crews": "read",
    "GET /api/v1/pauses": "read",
    "GET /api/v1/recurring": "read",
    "GET /api/v1/jobs": "read",
    "GET /api/v1/jobs/counts": "read",
    "GET /api/v1/jobs/failures": "read",
    "GET /api/v1/jobs/{id}": "read",
    "GET /api/v1/flows": "read",
    "GET /api/v1/flows/{id}": "read",
    "GET /api/v1/flows/{id}/jobs": "read",
    "GET /api/v1/queues": "read",
    "GET /api/v1/queues/history": "read",
    "GET /api/v1/claims": "read",
    "GET /api/v1/crashes": "read",
    "GET /api/v1/crashes/{id}": "read",
    "GET /api/v1/operations": "read",
    "GET /api/web/worker/status": "read",
    "POST /api/v1/jobs": "enqueue",
    "POST /api/v1/jobs/bulk": "enqueue",
    "POST /api/v1/flows": "enqueue",
    "GET /api/v1/workers/{component}/stack": "control",
    "DELETE /api/v1/jobs": "control",
    "POST /api/v1/jobs/retry": "control",
    "POST /api/v1/jobs/cancel": "control",
    "POST /api/v1/jobs/delete": "control",
    "DELETE /api/v1/jobs/{id}": "control",
    "POST /api/v1/jobs/{id}/retry": "control",
    "POST /api/v1/jobs/{id}/cancel": "control",
    "DELETE /api/v1/flows/{id}": "control",
    "POST /api/v1/flows/{id}/retry": "control",
    "POST /api/v1/flows/{id}/cancel": "control",
    "POST /api/v1/queues/{queue}/retry-failed": "control",
    "POST /api/v1/queues/{queue}/clear-failed": "control",
    "POST /api/v1/crews/{crew}/wake": "control",
    "POST /api/v1/recurring/run": "control",
    "POST /api/v1/recurring/pause": "control",
    "POST /api/v1/recurring/resume": "control",
    "GET /api/v1/keys": "control",
    "POST /api/v1/keys": "control",
    "DELETE /api/v1/keys/{id}": "control",
    "POST /api/v1/claims/{id}/release": "control",
    "POST /api/web/worker/start": "control",
    "POST /api/web/worker/stop": "control",
    "POST /api/web/worker/pause": "control",
    "POST /api/web/worker/resume": "control",
    "POST /api/web/worker/drain": "control",
    "POST /api/web/worker/restart": "control",
    "POST /api/web/worker/reset": "control",
    "POST /api/web/worker/scale": "control",
}
"""Whoever adds a route adds it here: `open` is for everybody, `known` looks at its caller itself."""


def every(routes: Iterable[Any]) -> Iterator[Any]:
    """Each route by itself, also of routers that were included."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        yield from every(inner.routes) if inner is not None else [route]


def found(web: Web) -> dict[str, str | None]:
    return {
        f"{method} {getattr(route, 'path_format', route.path)}": needs_of(route)
        for route in every(web.api.routes)
        for method in getattr(route, "methods", None) or {"?"}
    }


def test_every_route_needs_what_it_should(web: Web) -> None:  # spec: SE-2 HT-1 HT-2 HT-3 HT-5
    assert found(web) == NEEDS


def test_a_route_that_does_not_say_what_it_needs_is_shut(web: Web) -> None:  # spec: SE-2
    forgotten = APIRouter()

    @forgotten.get("/forgotten")
    async def forgot() -> str:  # pyright: ignore[reportUnusedFunction]
        return "secret"

    web.api.include_router(forgotten)
    key = web.key("read", "enqueue", "control")
    for given in (None, key):
        answer = web.ask("GET", "/forgotten", key=given)
        assert "secret" not in problem(answer, 403, "shut")["detail"]


# every route and every kind of caller

SCOPES = ("read", "enqueue", "control")
IN, UNKNOWN, FORBIDDEN = "let in", 401, 403
PROXIES: dict[str, dict[str, str]] = {
    "directly": {},
    "by nginx as it comes": {"Host": "127.0.0.1:8356", "Connection": "close"},
    "by nginx as it is usually set": {
        "Host": "jobs.example", "X-Real-IP": "203.0.113.7", "X-Forwarded-For": "203.0.113.7",
        "X-Forwarded-Proto": "https",
    },
    "by Apache": {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Host": "jobs.example", "X-Forwarded-Server": "a"},
    "by Caddy or Traefik": {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Port": "443", "X-Forwarded-Proto": "https"},
    "by HAProxy": {"Forwarded": "for=203.0.113.7;proto=https", "Via": "1.1 proxy"},
    "with forged headers": {
        "Host": "localhost", "X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1", "Forwarded": "for=127.0.0.1",
        "X-Forwarded-Host": "localhost", "X-Client-IP": "127.0.0.1", "True-Client-IP": "::1",
    },
}  # fmt: skip
"""What common proxies on the same machine add to a request."""


class Kind(NamedTuple):
    """A kind of caller: what it sends, and what it may do."""

    headers: dict[str, str]
    scopes: tuple[str, ...] = ()
    refused: int = UNKNOWN
    """The status for what it may not do."""
    changes: bool = True
    """Whether it may use what it may do for changes."""
    signs_in: bool = True

    def expected(self, name: str, needs: str) -> str | int:
        if needs == "open" or (name == "POST /api/web/session" and self.signs_in):
            return IN
        if name == "POST /api/web/session" or (needs != "known" and needs not in self.scopes):
            return self.refused
        if needs == "known" and not self.scopes:
            return self.refused
        return IN if self.changes or name.startswith("GET ") else FORBIDDEN


def kinds(web: Web) -> Iterator[tuple[str, Kind]]:
    """Every kind of caller of a server; with the first key the token ends."""
    for word, headers in PROXIES.items():
        yield f"nobody, {word}", Kind(headers)
    token = {"Authorization": f"Bearer {web.token}"}
    yield "the token", Kind(token, SCOPES)
    signed = web.ask("POST", "/api/web/session", json={"key": web.token}, key=None)
    yield "a sign-in with the token", Kind(page(web, signed), SCOPES)
    keys = {scope: web.key(scope, name=scope) for scope in SCOPES}
    yield "the token, when a key exists", Kind(token)
    yield "a sign-in with the token, when a key exists", Kind(page(web, signed))
    for scope, key in keys.items():
        yield f"a key with {scope} alone", Kind({"Authorization": f"Bearer {key}"}, (scope,), FORBIDDEN)
        others = tuple(other for other in SCOPES if other != scope)
        yield f"a key without {scope}", Kind({"Authorization": f"Bearer {web.key(*others)}"}, others, FORBIDDEN)
    signed = web.ask("POST", "/api/web/session", json={"key": web.key(*SCOPES, name="all")}, key=None)
    mine = page(web, signed)
    yield "a page that is signed in", Kind(mine, SCOPES)
    without = {name: value for name, value in mine.items() if name != "X-CSRF-Token"}
    yield "a page that is signed in, without its token", Kind(without, SCOPES, changes=False)
    for word, sent in {
        "another site": {"Sec-Fetch-Site": "cross-site"},
        "another subdomain": {"Sec-Fetch-Site": "same-site"},
        "another site in an old browser": {"Origin": "https://evil.example"},
        "a sandbox": {"Origin": "null"},
    }.items():
        yield f"a page of {word}, signed in here", Kind({**mine, **sent}, refused=FORBIDDEN, signs_in=False)
    web.hand.revoke_key("all")
    gone = web.key("read", seconds=0.001)
    eventually(lambda: (web.hand.api_keys()[-1].expires_ms or 0) < clock.now_ms())
    web.site.keyring.forget()
    yield "a sign-in with a revoked key", Kind(mine)
    secrets = {"wrong": "ch_wrong", "expired": gone, "empty": "", "too long": "x" * 9000, "not ASCII": "ch_\xff"}
    for word, secret in secrets.items():
        yield f"a key that is {word}", Kind({"Authorization": f"Bearer {secret}"})
    yield "a name and a password", Kind({"Authorization": "Basic YTpi"})
    yield "a made-up cookie", Kind({"Cookie": f"{web.site.cookie}=cs_made-up"})


def page(web: Web, signed: Any) -> dict[str, str]:
    cookie = signed.cookies[web.site.cookie]
    return {"Cookie": f"{web.site.cookie}={cookie}", "X-CSRF-Token": signed.json()["csrf"]}


def path_of(path: str) -> str:
    """A path of this route, asked in a way that has no effect once it is let in: with a parameter that it lacks."""
    for part, given in {"{name}": "chargehand.css", "{id}": "x", "{component}": "app"}.items():
        path = path.replace(part, given)
    wrong = "?nonsense=1" if path.startswith("/api/") and path != "/api/web/session" else ""
    return re.sub(r"\{\w+\}", "tagging", path) + wrong


async def ask(web: Web, method: str, path: str, headers: dict[str, str]) -> tuple[int, Headers]:
    """One request without a client, which would take most of the time. The body is no JSON."""
    sent = {"Host": "127.0.0.1:8356", **headers}
    where, _, query = path.partition("?")
    scope = {
        "type": "http", "method": method, "path": where, "query_string": query.encode(), "root_path": "",
        "scheme": "http", "http_version": "1.1", "client": ("127.0.0.1", 1234), "server": ("127.0.0.1", 8356),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in sent.items()],
    }  # fmt: skip
    got: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{", "more_body": False}

    async def send(message: Any) -> None:
        got.append(message)

    await web.api(scope, receive, send)
    return got[0]["status"], Headers(raw=got[0]["headers"])


def test_every_route_lets_in_whom_it_should(web: Web) -> None:  # spec: SE-1 SE-2 HT-1 HT-2 HT-3 HT-5
    before, wrong = len(web.hand.operations()), list[str]()

    async def ask_all(word: str, kind: Kind) -> None:
        async def ask_one(name: str) -> None:
            method, path = name.split()
            expected = kind.expected(name, NEEDS.get(name, "no rule"))
            if name == "DELETE /api/web/session" and expected == IN:
                return  # the sign-in is needed
            status, headers = await ask(web, method, path_of(path), kind.headers)
            if (status if status in (401, 403) else IN) != expected:
                wrong.append(f"{word}: {name} answers {status}")
            if status == 401:
                assert headers["www-authenticate"].startswith("Bearer"), name

        # At the same time: a wrong key is answered after a moment, in which another process may have made it.
        await asyncio.gather(*map(ask_one, found(web)))

    for word, kind in kinds(web):
        web.run(ask_all(word, kind))
    assert wrong == []
    verbs = {each.verb for each in web.hand.operations()[: -before or None]}
    assert verbs == {"sign in", "create key", "revoke key", "key refused"}


def test_under_a_prefix_everything_is_under_it(web: Web) -> None:  # spec: HT-1
    theirs = FastAPI()

    @theirs.get("/healthz")
    async def own() -> str:  # pyright: ignore[reportUnusedFunction]
        return "theirs"

    theirs.mount("/chargehand", web.api)
    web.api = theirs
    assert web.get("/healthz") == "theirs"
    assert web.get("/chargehand/healthz") == {"status": "ok"}
    answer = web.ask("POST", "/chargehand/api/v1/jobs", json={"crew": "plain"})
    assert web.get(answer.headers["location"])["queue"] == "plain"
    problem(web.ask("GET", "/chargehand/nothing"), 404, "no-such-path")
    assert web.ask("GET", "/nothing").json() == {"detail": "Not Found"}
    key = web.key("read")
    signed = web.ask("POST", "/chargehand/api/web/session", json={"key": key})
    assert "Path=/chargehand;" in signed.headers["set-cookie"]


def test_no_redirect_repeats_the_host_of_the_request(tmp_path: Path) -> None:  # spec: SE-2
    hand, app = Chargehand(tmp_path / "chargehand.db"), FastAPI()
    hand.attach(app)
    web = Web(tmp_path, hand)
    for prefix, api in (("", web.api), ("/chargehand", app)):
        web.api = api
        for path in ("", "/", "/dashboard/", "/healthz/", "/api/v1/info/"):
            answer = web.ask("GET", f"{prefix}{path}" or "/", base="http://evil.example", key=None)
            assert answer.headers.get("location", f"{prefix}/dashboard") == f"{prefix}/dashboard", path
    web.close()


def test_the_description_says_where_it_is_and_what_each_route_needs(web: Web) -> None:  # spec: HT-3 SE-2
    theirs = FastAPI()
    theirs.mount("/chargehand", web.api)
    alone = web.get("/openapi.json")
    web.api = theirs
    assert [alone["servers"], web.get("/chargehand/openapi.json")["servers"]] == [
        [{"url": "/"}],
        [{"url": "/chargehand"}],
    ]
    assert set(alone["components"]["securitySchemes"]) == {"key", "cookie"}
    for path, operations in alone["paths"].items():
        for method, operation in operations.items():
            needs = NEEDS[f"{method.upper()} {path}"]
            scopes = [needs] if needs in SCOPES else []
            no_caller = needs == "open" or (method, path) == ("post", "/api/web/session")
            assert operation["security"] == ([] if no_caller else [{"key": scopes}, {"cookie": scopes}]), path


def test_without_a_key_only_the_verdict_about_the_workers_is_told(web: Web) -> None:  # spec: SE-1 HT-5
    web.hand.pause(reason="a secret", who="ann")
    for key, told in ((None, False), ("ct_wrong", False), (web.token, True)):
        answer = web.ask("GET", "/workers/ready", key=key)
        assert (answer.status_code, answer.json()["ready"], bool(answer.json()["reasons"])) == (503, False, told)


def test_the_description_can_be_read_as_a_page(still: Web) -> None:  # spec: HT-3 SE-4
    answer = still.ask("GET", "/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "<script" not in answer.text
    for path in still.api.openapi()["paths"]:
        assert f" {path}</code>" in answer.text
    assert "&quot;path&quot;: &quot;a.flac&quot;" in answer.text
