"""Serves Adreel: its page, the routes of films, diagnostics and the cluster. Must not import a media library.

Everything is behind the door of Chargehand; texts of films are only inserted as text.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib import resources
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adreel import __version__, diagnostics, incoming, live
from adreel.door import doors
from adreel.errors import DISK_FULL, STORAGE, Refused
from adreel.service import MOST, Service
from chargehand import ChargehandError, ConfigurationError, Conflict, NobodyServes, Page, StoreError, UnknownCrew

CHARGEHAND = "/chargehand"
AT_ROOT = ("/api/v1/info", "/api/web/worker/status", "/metrics")
"""Routes of Chargehand that are also served at Adreel's own root, for monitoring; and the probes."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob: data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
PARTS = {
    "adreel.js": "text/javascript", "adreel.css": "text/css", "icon.svg": "image/svg+xml",
}  # fmt: skip
Film = Annotated[str, Path(max_length=100, description="The id of a film.")]
Sought = Annotated[str, Query(max_length=200, pattern=r"^[^\x00]*$", description="Without NUL: PostgreSQL has none.")]
log = logging.getLogger("adreel")
LOOK_EVERY = 0.1
"""Seconds between two looks for the node, at the start."""


def create(service: Service, *, announce: bool = True) -> FastAPI:
    """Returns the application. Chargehand runs for its lifetime and is served under /chargehand.

    Without `announce`, the address with the token is not printed at the start: the caller does it.
    """
    hand, stopping = service.crews.hand, live.Stopping()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        await asyncio.to_thread(_prepare, service)
        telling = asyncio.create_task(_tell_workers(service, stopping))
        with stopping.noticed():
            yield
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)

    app = FastAPI(
        title="Adreel", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )
    needs = doors(hand, is_open=service.settings.open)
    _errors(app)
    _page(app, service)
    _films(app, service, needs, stopping)
    _operations(app, service, needs)
    hand.pages.append(Page("Adreel", "/"))
    hand.attach(app, prefix=CHARGEHAND, probes=True, announce=announce)
    (mount,) = (route for route in app.router.routes if isinstance(route, Mount) and route.path == CHARGEHAND)
    app.router.routes[:0] = [Route(path, mount.app, include_in_schema=False) for path in AT_ROOT]
    if hand.settings.cors_origins:
        app.add_middleware(OwnRoutes, origins=hand.settings.cors_origins)
    app.add_middleware(Guard)
    return app


def _prepare(service: Service) -> None:
    """Logs the settings, and removes what a crash has left."""
    show_log()
    log.info("data folder: %s", service.settings.home)
    try:
        swept = service.sweep()
    except ChargehandError as error:  # requests report it, too; the server must start
        log.warning("files that a crash may have left were not removed: %s", error)
    else:
        if swept:
            log.info("files that belong to no film were removed: %d", len(swept))
    for problem in diagnostics.mapping(service)["problems"]:
        log.warning("%s", problem)
    if not service.crews.hand.settings.embed_workers:
        log.info("embedded workers disabled: jobs wait for `python -m adreel.worker`")
    if service.settings.open:
        log.warning("ADREEL_OPEN is true: everybody who reaches this port may submit, read and delete films")


async def _tell_workers(service: Service, stopping: live.Stopping) -> None:
    """Logs how many workers are active as soon as a node has them: the one of this process, or another."""
    hand = service.crews.hand
    while hand.settings.embed_workers and not stopping.event.is_set():
        status = await asyncio.to_thread(hand.status)
        if status is not None and status["workers"]:
            count = len(status["workers"])
            mine = await asyncio.to_thread(diagnostics.is_child, status["pid"])
            if mine:
                log.info("%d embedded workers active", count)
            else:
                log.info("%d workers active, of another process; this one takes over when that one ends", count)
            return
        await asyncio.sleep(LOOK_EVERY)


def show_log() -> None:
    """Writes the log of Adreel to standard error, unless the application around it has set up logging."""
    if not log.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
        log.addHandler(handler)
        if log.level == logging.NOTSET:
            log.setLevel(logging.INFO)


class Guard:
    """Forbids the page to load anything from other sites. Chargehand protects its own routes."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(f"{CHARGEHAND}/"):
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        await self.app(scope, receive, guarded)


class OwnRoutes:
    """Lets pages of CORS_ORIGINS call Adreel's own routes; those of Chargehand have the same rule themselves."""

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        self._bare = app
        self._cors = CORSMiddleware(
            app, allow_origins=origins, allow_methods=["GET", "POST", "DELETE"], expose_headers=["Location"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
        )  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chargehand = scope["type"] == "http" and scope["path"].startswith(f"{CHARGEHAND}/")
        await (self._bare if chargehand else self._cors)(scope, receive, send)


def respond(body: Any, status: int = 200, **headers: str) -> Response:
    """Returns a response with JSON."""
    return Response(
        msgspec.json.encode(body), status, {"Cache-Control": "no-store", **headers}, media_type="application/json"
    )


def problem(status: int, code: str, text: str, headers: dict[str, str] | None = None) -> Response:
    """Returns a problem document (RFC 9457): `type` is for programs, `detail` for people."""
    body = {
        "type": f"urn:adreel:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": text,
    }
    return Response(msgspec.json.encode(body), status, headers, media_type="application/problem+json")


def _errors(app: FastAPI) -> None:
    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        unread = request.method == "POST" and error.status != 404
        return problem(error.status, error.code, str(error), {"Connection": "close"} if unread else None)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        kind = str(getattr(error, "kind", HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")))
        return problem(error.status_code, kind, str(error.detail), dict(error.headers or {}))

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        texts = [f"{'/'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5]]
        return problem(422, "invalid-request", "; ".join(texts))

    async def conflict(request: Request, error: Exception) -> Response:
        return problem(409, "conflict", str(error))

    async def unserved(request: Request, error: Exception) -> Response:
        return problem(503, "no-node", "no node answers", {"Retry-After": "1"})

    async def away(request: Request, error: Exception) -> Response:
        assert isinstance(error, StoreError)
        log.error("the store cannot be used: %s", error)  # the text has paths
        if error.code == DISK_FULL:
            return problem(
                507, DISK_FULL, "the disk of the server is full: nothing is lost, but nothing can be changed"
            )
        return problem(
            503, "store", "the store cannot be used; the log of the server has the reason", {"Retry-After": "1"}
        )

    async def unreadable(request: Request, error: Exception) -> Response:
        log.error("the data folder cannot be used: %s", error)  # the text has paths
        return problem(503, STORAGE, "the data folder of the server cannot be used; its log has the reason")

    async def unknown(request: Request, error: Exception) -> Response:
        return problem(404, "no-such-node", str(error))

    for kind, handler in (
        (Refused, refused), (HTTPException, http), (RequestValidationError, invalid), (Conflict, conflict),
        (NobodyServes, unserved), (StoreError, away), (UnknownCrew, unknown), (ConfigurationError, unknown),
        (OSError, unreadable),
    ):  # fmt: skip
        app.add_exception_handler(kind, handler)


def _page(app: FastAPI, service: Service) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> Response:
        return Response(_part("index.html"), media_type="text/html")

    @app.get("/page/{name}", include_in_schema=False)
    def part(name: str) -> Response:
        if name not in PARTS:
            raise Refused(404, "no-such-path", "there is nothing at this path")
        return Response(_part(name), media_type=PARTS[name], headers={"Cache-Control": "no-cache"})

    @app.get("/page/about/limits", include_in_schema=False)
    def limits() -> Response:
        """Returns what the page must know before it sends anything; nothing of it is secret."""
        found = service.settings
        return respond({"max_upload": found.max_upload, "open": found.open, "paths": bool(found.roots)})


def _part(name: str) -> bytes:
    return resources.files("adreel").joinpath("page", name).read_bytes()


def _films(app: FastAPI, service: Service, needs: dict[str, Any], stopping: live.Stopping) -> None:
    @app.post("/jobs", dependencies=needs["enqueue"], status_code=202)
    async def submit(request: Request) -> Response:
        """Starts the analysis of films: multipart/form-data with files, one file as the body (`?name=`), or JSON with a
        path below ADREEL_ROOTS. Returns 202 with `status` queued when all is durable."""
        status, body = incoming.answer(await incoming.receive(request, service, stopping))
        one = getattr(body, "id", None)
        return respond(body, status, **({"Location": f"/jobs/{one}"} if one else {}))

    @app.get("/jobs", dependencies=needs["read"])
    def films(
        text: Sought = "",
        status: Annotated[str, Query(pattern="^(queued|running|done|failed|cancelled|deleting|)$")] = "",
        category: Sought = "",
        after: Sought = "",
        limit: Annotated[int, Query(ge=1, le=MOST)] = 50,
    ) -> Response:
        """Returns a page of films, newest first; `next`, if there is more, is passed as `after`."""
        found = service.page(text=text, status=status, category=category, before=after, limit=limit + 1)
        return respond(
            {
                "jobs": found[:limit],
                "next": found[limit - 1].id if len(found) > limit else None,
                "counts": service.films.counts(),
                "categories": service.films.categories(),
            }
        )

    @app.get("/jobs/{film}", dependencies=needs["read"])
    def one(film: Film, result: bool = True) -> Response:
        """Returns a film with its stages and, if it is done, its result; 404 if it does not exist, or no longer."""
        return respond(service.get(film, result=result))

    @app.delete("/jobs/{film}", dependencies=needs["enqueue"], status_code=204)
    def delete(film: Film) -> Response:
        """Deletes a film: 204 when nothing is left of it, 202 while a stage that runs has to stop first."""
        return Response(status_code=204) if service.delete(film) else respond({"id": film, "status": "deleting"}, 202)

    @app.post("/jobs/{film}/retry", dependencies=needs["enqueue"], status_code=202)
    def retry(film: Film) -> Response:
        """Continues a failed analysis with what failed."""
        return respond(service.retry(film), 202)

    @app.post("/jobs/{film}/reanalyse", dependencies=needs["enqueue"], status_code=202)
    def reanalyse(film: Film) -> Response:
        """Classifies a film again with the present categories, without decoding it."""
        return respond(service.reanalyse(film), 202)

    @app.get("/jobs/{film}/events", dependencies=needs["read"])
    def events(film: Film) -> Response:
        """Streams the state of a film after every change, as server-sent events, until it has ended."""
        service.row(film)
        return live.stream(service, film, stopping)

    @app.get("/jobs/{film}/frames/{number}", dependencies=needs["read"])
    def frame(film: Film, number: int) -> Response:
        """Returns a key frame as JPEG."""
        path = service.frame(film, number)
        return FileResponse(path, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    @app.get("/jobs/{film}/chapters.vtt", dependencies=needs["read"])
    def chapters(film: Film) -> Response:
        """Returns the scenes as chapters in WebVTT."""
        return Response(service.chapters(film), media_type="text/vtt")


def _operations(app: FastAPI, service: Service, needs: dict[str, Any]) -> None:
    @app.get("/diagnostics/concurrency", dependencies=needs["read"])
    def concurrency() -> Response:
        """Returns configured and running workers, the threads of a job, and who is at what."""
        return respond(diagnostics.concurrency(service))

    @app.get("/diagnostics/mapping", dependencies=needs["read"])
    def mapping() -> Response:
        """Returns where folders, files, models and the store are, and what is wrong with them."""
        return respond(diagnostics.mapping(service))

    @app.get("/cluster", dependencies=needs["read"])
    def cluster() -> Response:
        """Returns every node with its workers and jobs."""
        return respond(diagnostics.cluster(service))

    @app.post("/cluster/{node:path}/drain", dependencies=needs["control"])
    def drain(node: str, end: bool = False) -> Response:
        """Lets a node finish its jobs and take no more; with `end` it ends then."""
        return respond({"answers": service.crews.hand.drain(f"{node}/*", end=end)})

    @app.post("/cluster/{node:path}/start", dependencies=needs["control"])
    def start(node: str) -> Response:
        """Lets a drained node work again."""
        return respond({"answers": service.crews.hand.start(f"{node}/*")})

    @app.get("/openapi.json", dependencies=needs["read"], include_in_schema=False)
    def document() -> Response:
        """Returns the OpenAPI document."""
        return respond(app.openapi())
