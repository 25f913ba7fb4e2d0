"""Every route and what it needs; and that a route that does not say so denies all requests."""

from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import APIRouter, FastAPI
from webworld import Web, problem

from chargehand.web.auth import needs_of

NEEDS = {
    "GET /": "open",
    "GET /dashboard": "open",
    "GET /dashboard/{name}": "open",
    "GET /healthz": "open",
    "GET /readyz": "open",
    "GET /api/web/session": "known",
    "POST /api/web/session": "known",
    "DELETE /api/web/session": "known",
    "GET /openapi.json": "read",
    "GET /docs": "read",
    "GET /api/events": "read",
    "GET /workers/ready": "read",
    "GET /metrics": "read",
    "GET /diagnostics/concurrency": "read",
    "GET /api/v1/info": "read",
    "GET /api/v1/doctor": "read",
    "GET /api/v1/logs": "read",
    "GET /api/v1/status": "read",
    "GET /api/v1/health": "read",
    "GET /api/v1/health/{component}": "read",
    "GET /api/v1/workers/{component}/history": "read",
    "GET /api/v1/crews": "read",
    "GET /api/v1/pauses": "read",
    "GET /api/v1/recurring": "read",
    "GET /api/v1/jobs": "read",
    "GET /api/v1/jobs/{id}": "read",
    "GET /api/v1/queues": "read",
    "GET /api/v1/queues/history": "read",
    "GET /api/v1/claims": "read",
    "GET /api/v1/crashes": "read",
    "GET /api/v1/crashes/{id}": "read",
    "GET /api/v1/operations": "read",
    "GET /api/web/worker/status": "read",
    "POST /api/v1/jobs": "enqueue",
    "POST /api/v1/jobs/bulk": "enqueue",
    "DELETE /api/v1/jobs": "control",
    "DELETE /api/v1/jobs/{id}": "control",
    "POST /api/v1/jobs/{id}/retry": "control",
    "POST /api/v1/jobs/{id}/cancel": "control",
    "POST /api/v1/queues/{queue}/retry-failed": "control",
    "POST /api/v1/queues/{queue}/clear-failed": "control",
    "POST /api/v1/crews/{crew}/wake": "control",
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
        f"{method} {route.path}": needs_of(route)
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


def path_of(name: str) -> tuple[str, str]:
    method, path = name.split()
    for part, given in {"{id}": "x", "{queue}": "tagging", "{component}": "app", "{name}": "chargehand.css"}.items():
        path = path.replace(part, given)
    return method, path


def test_without_a_key_only_what_is_open_answers(web: Web) -> None:  # spec: SE-1 SE-2
    web.key("read")
    for name, needs in NEEDS.items():
        method, path = path_of(name)
        answer = web.ask(method, path, content=b"{" if method == "POST" else None)  # nothing of the body is read
        if needs == "open":
            assert answer.status_code == (307 if name == "GET /" else 200), name
        elif name == "POST /api/web/session":
            problem(answer, 422, "invalid-request")
        else:
            assert problem(answer, 401, "key-needed"), name
            assert answer.headers["www-authenticate"].startswith("Bearer"), name


def test_every_route_refuses_keys_without_its_scope(web: Web) -> None:  # spec: SE-2
    scopes = ("read", "enqueue", "control")
    keys = {scope: web.key(*(other for other in scopes if other != scope)) for scope in scopes}
    before = web.hand.operations()
    for name, needs in NEEDS.items():
        if needs in scopes:
            method, path = path_of(name)
            answer = web.ask(method, path, key=keys[str(needs)], content=b"{" if method == "POST" else None)
            assert f"'{needs}'" in problem(answer, 403, "scope")["detail"], name
    assert web.hand.operations() == before


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


def test_the_description_can_be_read_as_a_page(still: Web) -> None:  # spec: HT-3 SE-4
    answer = still.ask("GET", "/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "<script" not in answer.text
    for path in still.api.openapi()["paths"]:
        assert f" {path}</code>" in answer.text
    assert "&quot;path&quot;: &quot;a.flac&quot;" in answer.text
