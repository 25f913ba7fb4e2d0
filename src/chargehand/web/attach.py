"""Mounts Chargehand in a FastAPI application: routes under a prefix, and a node for the duration of the lifespan.

Routes of the application take precedence over routes of Chargehand with the same path.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import ASGIApp, Scope

from chargehand.errors import ConfigurationError, JobNotFound
from chargehand.web.api import create
from chargehand.web.hosting import hosted
from chargehand.web.site import Site

if TYPE_CHECKING:
    from chargehand.app import Chargehand

PROBES = ("/healthz", "/readyz", "/workers/ready")
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)+")


def attach(hand: "Chargehand", app: FastAPI, prefix: str, *, probes: bool = False) -> Site:
    """Mounts the routes and wraps the lifespan. Raises ConfigurationError if the prefix is malformed."""
    if not _PREFIX.fullmatch(prefix):
        raise ConfigurationError(f"prefix {prefix!r}; expected a path such as '/chargehand' or '/ops/jobs'")
    site = Site(hand, prefix)
    api = create(site)
    routes = app.router.routes
    # First, so that a catch-all route of the application (for its pages, for example) does not hide them.
    routes.insert(0, _PrefixMount(prefix, api, routes))
    for path in PROBES if probes else ():
        routes.insert(1, _ProbeRoute(path, api, routes))
    if not any(kind in app.exception_handlers for kind in JobNotFound.__mro__):
        app.add_exception_handler(JobNotFound, _no_such_job)
    wrap_lifespan(app, site)
    return site


async def _no_such_job(request: Request, error: Exception) -> Response:
    """Returns 404 for a JobNotFound that a route of the application raised, without the path of the store."""
    return JSONResponse({"detail": "there is no such job"}, 404)


def wrap_lifespan(app: FastAPI, site: Site) -> None:
    """Wraps the lifespan of the application: a node runs while it lasts. The state of the lifespan is kept."""
    theirs = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(served: FastAPI) -> AsyncGenerator[Any]:
        async with hosted(site), theirs(served) as state:
            yield state

    app.router.lifespan_context = lifespan


class _PrefixMount(Mount):
    """Mounts an application under a prefix, except for paths that the application around it serves."""

    def __init__(self, prefix: str, api: ASGIApp, routes: list[BaseRoute]) -> None:
        super().__init__(prefix, api, name="chargehand")
        self._all = routes

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        found = super().matches(scope)
        return (Match.NONE, {}) if found[0] is Match.FULL and _app_serves(self, self.path, self._all, scope) else found


class _ProbeRoute(Route):
    """Serves one path, unless the application serves it."""

    def __init__(self, path: str, api: ASGIApp, routes: list[BaseRoute]) -> None:
        super().__init__(path, api, name=f"chargehand{path}", include_in_schema=False)
        self._all = routes

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        found = super().matches(scope)
        theirs = found[0] is not Match.NONE and _app_serves(self, self.path, self._all, scope)
        return (Match.NONE, {}) if theirs else found


def _app_serves(ours: BaseRoute, prefix: str, routes: list[BaseRoute], scope: Scope) -> bool:
    """Returns whether a route of the application matches this path, and is not a catch-all."""
    elsewhere = dict(scope)
    depth = prefix.count("/")
    rest = scope["path"].removeprefix(scope.get("root_path", "")).removeprefix(prefix)
    elsewhere["path"] = scope.get("root_path", "") + "/\x00" * depth + rest
    return any(
        route.matches(scope)[0] is Match.FULL and route.matches(elsewhere)[0] is Match.NONE
        for route in routes
        if route is not ours
    )
