"""The files of the dashboard. They are public, because they contain no data: the dashboard reads it with a key."""

import gzip
import re
from functools import cache
from hashlib import sha256
from pathlib import Path as Folder
from typing import Annotated

import msgspec
from fastapi import Path, Request, Response
from fastapi.responses import RedirectResponse

from chargehand.web.deps import OPEN, router
from chargehand.web.problems import Problem

BUILT = Folder(__file__).parent.parent / "dashboard" / "built"
PAGE = "index.html"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; object-src 'none'; frame-src 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Forbids inline scripts, resources of other origins, and the conversion of text to scripts."""
IMMUTABLE = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"
_HASHED = re.compile(r"-[A-Za-z0-9_-]{8}\.\w+$")
routes = router("dashboard")


class File(msgspec.Struct, frozen=True):
    """A built file with its response headers."""

    body: bytes
    packed: bytes
    etag: str
    kind: str
    caching: str


@cache
def files() -> dict[str, File]:
    """Returns every built file by name; they are read once."""
    found: dict[str, File] = {}
    for path in sorted(BUILT.iterdir()) if BUILT.is_dir() else ():
        kind = KINDS.get(path.suffix)
        if kind is not None:
            body = path.read_bytes()
            caching = IMMUTABLE if _HASHED.search(path.name) else REVALIDATE
            etag = f'"{sha256(body).hexdigest()[:20]}"'
            found[path.name] = File(body, gzip.compress(body, mtime=0), etag, kind, caching)
    return found


def _serve(request: Request, name: str) -> Response:
    file = files().get(name)
    if file is None:
        raise Problem(404, "no-such-path", "there is nothing at this path")
    headers = {
        "ETag": file.etag, "Cache-Control": file.caching, "Vary": "Accept-Encoding",
        "Content-Security-Policy": POLICY, "Content-Type": file.kind,
    }  # fmt: skip
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, headers={**headers, "Content-Encoding": "gzip"})
    return Response(file.body, headers=headers)


@routes.get("/", dependencies=OPEN, include_in_schema=False)
async def home(request: Request) -> Response:
    """Redirects to the dashboard."""
    return RedirectResponse(f"{request.scope.get('root_path', '')}/dashboard")


@routes.get("/dashboard", dependencies=OPEN, include_in_schema=False)
async def page(request: Request) -> Response:
    """Returns the page of the dashboard. Public."""
    return _serve(request, PAGE)


@routes.get("/dashboard/{name}", dependencies=OPEN, include_in_schema=False)
async def asset(request: Request, name: Annotated[str, Path(max_length=200)]) -> Response:
    """Returns a script or style sheet of the dashboard; applications may use `chargehand.css`, too. Public."""
    return _serve(request, name)
