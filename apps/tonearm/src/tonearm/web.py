"""Serves the page and its JSON: progress, workers, labels, tracks, errors. Must not import numpy or a decoder.

Everything is served from this machine; texts from files are only inserted as text.
"""

import sys
from importlib import resources
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Depends, FastAPI, HTTPException, Path, Response
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chargehand import JobFailed, Page
from tonearm import browse, hearing, report
from tonearm.crews import Crews
from tonearm.errors import TonearmError
from tonearm.labels import merge
from tonearm.library import Library
from tonearm.tags import TextError, playlist

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
CHARGEHAND = "/chargehand"
AT_ROOT = ("/api/v1/info", "/api/web/worker/status")
"""Routes of Chargehand that are also served at Tonearm's own root, for monitoring; and `/healthz`."""
PARTS = {"tonearm.js": "text/javascript", "tonearm.css": "text/css", "icon.svg": "image/svg+xml"}
LONGEST_SEARCH = 30.0
Number = Annotated[int, Path(lt=1 << 63, gt=-1 << 63, description="The number of a track; SQLite has no larger ones.")]


def create(crews: Crews, library: Library) -> FastAPI:
    """Returns the application. Chargehand runs for its lifetime and is served under /chargehand.

    Files of the page are public. Everything else requires a key of Chargehand, its token, or a signed-in browser.
    """
    app = FastAPI(title="Tonearm", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    app.add_middleware(Guard)
    _page(app)
    _progress(app, crews, library)
    _tracks(app, crews, library)
    crews.hand.pages.append(Page("Tonearm", "/"))
    crews.hand.attach(app, prefix=CHARGEHAND, probes=True, announce=False)  # the command prints the address
    _at_root(app)
    return app


def address(crews: Crews, url: str) -> str:
    """Returns the address of the page to print: on a terminal with the token that signs the browser in."""
    return crews.hand.with_token(url) if sys.stdout.isatty() else url


def _at_root(app: FastAPI) -> None:
    """Serves some routes of Chargehand at the root too; Chargehand authorises them as under its prefix."""
    (mount,) = (route for route in app.router.routes if isinstance(route, Mount) and route.path == CHARGEHAND)
    app.router.routes[:0] = [Route(path, mount.app, include_in_schema=False) for path in AT_ROOT]


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


def _page(app: FastAPI) -> None:
    @app.get("/")
    def page() -> Response:
        return Response(_part("index.html"), media_type="text/html")

    @app.get("/page/{name}")
    def part(name: str) -> Response:
        if name not in PARTS:
            raise HTTPException(404)
        return Response(_part(name), media_type=PARTS[name])


def _part(name: str) -> bytes:
    return resources.files("tonearm").joinpath("page", name).read_bytes()


def _progress(app: FastAPI, crews: Crews, library: Library) -> None:
    read, control = ([Depends(crews.hand.requires(scope))] for scope in ("read", "control"))

    @app.get("/api/progress", dependencies=read)
    def progress() -> dict[str, Any]:
        report.notice_failures(crews.hand, library)
        now = report.progress(library)
        at_work = report.workers(crews.hand, library)
        listeners = sum(worker["crew"] == "tag" and worker["pid"] is not None for worker in at_work)
        return {
            **msgspec.to_builtins(now),
            "eta": now.eta(listeners or crews.tag.plan.workers),
            "working": bool(at_work),
            "workers": at_work,
            "paused": [pause.reason or pause.who for pause in crews.hand.pauses()],
            "label_file": library.book_trouble(),
            "certainty": hearing.certainty(library),
            "folders": [browse.folder(each) for each in library.folders()],
        }

    @app.get("/api/errors", dependencies=read)
    def errors() -> list[dict[str, Any]]:
        return [msgspec.to_builtins(wrong) for wrong in report.troubles(library)]

    @app.post("/api/errors/retry", dependencies=control)
    def retry() -> dict[str, int]:
        done = report.retry(library)
        crews.hand.wake("tag")
        return {"retried": done}

    @app.get("/api/labels", dependencies=read)
    def labels() -> list[dict[str, Any]]:
        return report.distribution(library)


def _tracks(app: FastAPI, crews: Crews, library: Library) -> None:
    read = [Depends(crews.hand.requires("read"))]

    @app.get("/api/tracks", dependencies=read)
    def tracks(label: str = "", text: str = "", limit: int = 100) -> list[dict[str, Any]]:
        return browse.tracks(library, label=label, text=text, limit=max(1, min(limit, 1000)))

    @app.get("/api/tracks/{number}", dependencies=read)
    def track(number: Number) -> dict[str, Any]:
        found = browse.track(library, number)
        if found is None:
            raise HTTPException(404, f"the library has no track {number}")
        heard = hearing.scores(library, number)
        merged = merge(library.book(), heard) if heard else {}
        strongest = sorted(merged.items(), key=lambda pair: -pair[1])[:20]
        return {**found, "scores": [{"name": name, "score": score} for name, score in strongest]}

    @app.get("/api/tracks/{number}/similar", dependencies=read)
    async def similar(number: Number, count: int = 10) -> list[dict[str, Any]]:
        payload = {"file": number, "count": max(1, min(count, 100))}
        try:
            ref = await crews.likeness.enqueue_async(payload, priority=10)
            near = await ref.result(timeout=LONGEST_SEARCH)
        except JobFailed as error:
            raise HTTPException(409, str(error)) from error
        except TimeoutError as error:
            raise HTTPException(503, "no answer: are the workers running?") from error
        called = report.names(library, [each["id"] for each in near])
        return [{**each, "name": called.get(each["id"], "?")} for each in near]

    @app.get("/api/playlist", dependencies=read)
    def export(rule: str, form: Literal["m3u", "nsp"] = "m3u", name: str = "Tonearm") -> Response:
        try:
            parsed = browse.rule(library, rule)
        except (TextError, TonearmError) as error:  # the rule or the label file is invalid
            raise HTTPException(422, str(error)) from error
        if form == "nsp":
            return _file(playlist.nsp(name, parsed), "tonearm.nsp", "application/json")
        entries = list(browse.matching(library, parsed))
        if not entries:
            raise HTTPException(404, browse.no_match(library, parsed))
        made = playlist.m3u8(name, entries)
        return _file(made.text, "tonearm.m3u8", "audio/x-mpegurl")


def _file(text: str, name: str, kind: str) -> Response:
    return Response(text, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})
