"""Everything under the prefix, as an application of its own: routes, errors, documentation."""

from fastapi import APIRouter, Depends, FastAPI, Response
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from chargehand import __version__
from chargehand.web import problems, reference
from chargehand.web.auth import CSRF, shut
from chargehand.web.deps import READ, router
from chargehand.web.documents import REFUSALS, describe, problem, respond
from chargehand.web.gate import Gate
from chargehand.web.routes import dashboard, events, jobs, probes, queues, session, system, workers
from chargehand.web.site import Site

DESCRIPTION = """
Durable background work, done by supervised worker processes.

Send a key as `Authorization: Bearer ch_…`; `chargehand keys create NAME --scope read` makes one. Each route needs one
scope: `read` to look, `enqueue` to make jobs, `control` to change anything else. While no key exists, callers on the
machine itself need none. Errors are problem documents (RFC 9457). Lists are paged: give `next` of a page as `after`.
Times are milliseconds since 1970.
"""


def create(site: Site) -> FastAPI:
    """The application that is mounted under the prefix, or served alone."""
    settings = site.hand.settings
    gates = [Middleware(Gate, hosts=settings.allowed_hosts)]
    if settings.cors_origins:
        allowed = ["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "X-Request-ID", CSRF]
        cors = Middleware(
            CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=["GET", "POST", "DELETE"],
            allow_headers=allowed, expose_headers=["X-Request-ID", "Location"],
        )  # fmt: skip
        gates.append(cors)
    api = FastAPI(
        title="Chargehand",
        version=__version__,
        middleware=gates,
        dependencies=[Depends(shut)],
        responses={status: problem(text) for status, text in REFUSALS.items()},
        docs_url=None,  # its pages would load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,
    )
    api.state.site = site
    problems.install(api)
    describe(api, DESCRIPTION)
    for each in (jobs, queues, workers, system, session, probes, dashboard):
        api.include_router(each.routes)
    api.include_router(_document(api))
    events.include(api, site)
    return api


def _document(api: FastAPI) -> APIRouter:
    documents = router("system")

    @documents.get("/openapi.json", dependencies=READ, include_in_schema=False)
    async def openapi() -> Response:  # pyright: ignore[reportUnusedFunction]
        """This description."""
        return respond(api.openapi())

    @documents.get("/docs", dependencies=READ, include_in_schema=False)
    async def docs() -> Response:  # pyright: ignore[reportUnusedFunction]
        """The same, to be read."""
        text = reference.page(api.openapi())
        return Response(text, media_type="text/html", headers={"Content-Security-Policy": reference.POLICY})

    return documents
