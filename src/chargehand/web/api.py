"""Creates the FastAPI application with all routes, error handlers and the API documentation."""

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from chargehand import __version__
from chargehand.web import problems, reference
from chargehand.web.auth import CSRF, deny_undeclared
from chargehand.web.deps import READ, router
from chargehand.web.documents import REFUSALS, describe, problem, respond
from chargehand.web.gate import Gate
from chargehand.web.methods import Heads
from chargehand.web.routes import dashboard, events, flows, jobs, keys, probes, queues, session, system, workers
from chargehand.web.site import Site

DESCRIPTION = """
Durable background jobs, run by supervised worker processes.

Send an API key as `Authorization: Bearer ch_…`; `chargehand keys create NAME --scope read` creates one. Each route
requires one scope: `read` to read, `enqueue` to create jobs, `control` to change anything else. While no key exists,
`chargehand dashboard --token` prints a token that allows everything. Errors are problem documents (RFC 9457). Lists are
paged: pass `next` of a page as `after`. Times are milliseconds since 1970.
"""


def create(site: Site) -> FastAPI:
    """Returns the application, to be mounted under a prefix or served alone."""
    settings = site.hand.settings
    gates = [Middleware(Gate, hosts=settings.allowed_hosts, limit=settings.http.header_size)]
    if settings.cors_origins:
        allowed = ["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "X-Request-ID", CSRF]
        cors = Middleware(
            CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=["GET", "POST", "DELETE"],
            allow_headers=allowed, expose_headers=["X-Request-ID", "Location"],
        )  # fmt: skip
        gates.append(cors)
    gates.append(Middleware(Heads))
    api = FastAPI(
        title="Chargehand",
        version=__version__,
        middleware=gates,
        dependencies=[Depends(deny_undeclared)],
        responses={status: problem(text) for status, text in REFUSALS.items()},
        redirect_slashes=False,  # Starlette redirects to the host that the request names
        docs_url=None,  # FastAPI's pages load scripts from a CDN
        redoc_url=None,
        openapi_url=None,
    )
    api.state.site = site
    problems.install(api)
    describe(api, DESCRIPTION)
    for each in (jobs, flows, queues, workers, system, keys, session, probes, dashboard):
        api.include_router(each.routes)
    api.include_router(_document(api))
    events.include(api, site)
    return api


def _document(api: FastAPI) -> APIRouter:
    documents = router("system")

    @documents.get("/openapi.json", dependencies=READ, include_in_schema=False)
    async def openapi(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        """Returns the OpenAPI document."""
        return respond({**api.openapi(), "servers": [{"url": request.scope.get("root_path") or "/"}]})

    @documents.get("/docs", dependencies=READ, include_in_schema=False)
    async def docs() -> Response:  # pyright: ignore[reportUnusedFunction]
        """Returns the OpenAPI document as an HTML page."""
        text = reference.page(api.openapi())
        return Response(text, media_type="text/html", headers={"Content-Security-Policy": reference.POLICY})

    return documents
