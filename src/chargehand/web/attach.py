"""Mounts Chargehand in an ASGI application: routes under a prefix, and a node for the duration of the lifespan.

To FastAPI and Starlette routes are added, and their own routes take precedence over routes of Chargehand with the same
path. Any other application is wrapped.
"""

import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from fastapi import APIRouter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import ASGIApp, Scope

from chargehand import log
from chargehand.errors import (
    ConfigurationError,
    FlowNotFound,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultTimeout,
    StoreError,
)
from chargehand.model.access import SCOPES
from chargehand.web import auth
from chargehand.web.api import create
from chargehand.web.hosting import hosted
from chargehand.web.keyring import Caller
from chargehand.web.site import Site
from chargehand.web.wrapping import Wrapped

if TYPE_CHECKING:
    from chargehand.app import Chargehand

PROBES = ("/healthz", "/readyz", "/workers/ready")
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_sites: "WeakKeyDictionary[Chargehand, Site]" = WeakKeyDictionary()
_attached: "WeakKeyDictionary[Any, dict[Chargehand, str]]" = WeakKeyDictionary()
"""The prefix of each instance that is attached to an application."""
_guarded: "WeakSet[Chargehand]" = WeakSet()
"""The instances whose keys also protect routes of the application."""


def requires(hand: "Chargehand", scope: auth.Need) -> Callable[[Request], Awaitable[Caller]]:
    """Returns a dependency for routes of the application: it raises an HTTP error unless the caller has the scope."""
    if scope not in SCOPES:
        raise ConfigurationError(f"the scope is {scope!r}; must be one of: {', '.join(SCOPES)}")
    _guarded.add(hand)
    if hand in _sites:
        _sites[hand].guards_app = True

    def where(request: Request) -> Site:
        if hand not in _sites:
            raise ConfigurationError("a route requires a key, and hand.attach(app) was not called")
        return _sites[hand]

    return auth.requires(scope, where)


def attach(hand: "Chargehand", app: Any, prefix: str, *, probes: bool = False, announce: bool = True) -> Any:
    """Mounts the routes and wraps the lifespan. Returns the application to be served: the same one, or a wrapper.

    Raises ConfigurationError if the prefix is malformed, or if this is no ASGI application.
    """
    given: Any = prefix
    if not isinstance(given, str) or not _PREFIX.fullmatch(given):
        raise ConfigurationError(f"prefix is {prefix!r}; must be a path such as '/chargehand' or '/ops/jobs'")
    _check_asgi(app)
    _check_once(hand, app, prefix)
    site = Site(hand, prefix, aloud=announce)
    site.guards_app = hand in _guarded
    _sites[hand] = site
    if not isinstance(app, Starlette):
        return _wrap(app, site, probes=probes)
    _mount(app, site, probes=probes)
    wrap_lifespan(app, site)
    return app


def _check_asgi(app: Any) -> None:
    """Raises ConfigurationError, which says what to attach to instead, unless this is an ASGI application."""
    if isinstance(app, type):
        raise ConfigurationError(f"attach was given the class {app.__name__}; must be an application: {app.__name__}()")
    if isinstance(app, APIRouter):
        raise ConfigurationError("attach was given a router; must be the application that includes it")
    if hasattr(app, "wsgi_app") or _takes(app, 2):
        raise ConfigurationError(
            f"attach was given a WSGI application ({type(app).__module__}.{type(app).__qualname__}), which has neither "
            "event streams nor a lifespan: enqueue in it, and run `chargehand serve APP` or `chargehand work APP` "
            "beside its server"
        )
    if not _takes(app, 3):
        raise ConfigurationError(f"attach was given {app!r:.200}; must be an ASGI application, such as FastAPI()")


def _takes(app: Any, count: int) -> bool:
    """Returns whether this can be called with so many arguments."""
    try:
        inspect.signature(app).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True


def _check_once(hand: "Chargehand", app: Any, prefix: str) -> None:
    """Raises ConfigurationError if the application already has this instance, or another one at the prefix."""
    try:
        attached = _attached.setdefault(app, {})
    except TypeError:  # an object without a hash, or without weak references
        return
    if hand in attached:
        raise ConfigurationError(f"attach was called twice for this application: it is at {attached[hand]!r} already")
    if prefix in attached.values():
        raise ConfigurationError(f"another Chargehand is attached at {prefix!r}: choose another prefix")
    attached[hand] = prefix


def _mount(app: Starlette, site: Site, *, probes: bool) -> None:
    """Adds the routes to the application, and what its routes answer to errors of Chargehand."""
    prefix, api = site.prefix, create(site)
    routes = app.router.routes
    # First, so that a catch-all route of the application (for its pages, for example) does not hide them.
    routes.insert(0, _PrefixMount(site, api, routes))
    routes.insert(1, _PathRoute(prefix, _to_dashboard(prefix), routes))
    for path in PROBES if probes else ():
        routes.insert(1, _PathRoute(path, api, routes))
    for error, handler in _ANSWERS.items():
        if not any(kind in app.exception_handlers for kind in error.__mro__):
            app.add_exception_handler(error, _unless_theirs(error, handler))


def _wrap(app: ASGIApp, site: Site, *, probes: bool) -> Wrapped:
    """Returns an application that has Chargehand's routes before those of the given one."""
    api = create(site)
    routes: list[BaseRoute] = [Mount(site.prefix, api), Route(site.prefix, _to_dashboard(site.prefix))]
    routes += [Route(path, api) for path in (PROBES if probes else ())]
    return Wrapped(app, routes, lambda: hosted(site), site.check_opened)


def _to_dashboard(prefix: str) -> Callable[[Request], Awaitable[Response]]:
    """Redirects the bare prefix. Otherwise the application would, to the host that the request names."""

    async def redirect(request: Request) -> Response:
        return RedirectResponse(f"{request.scope.get('root_path', '')}{prefix}/dashboard")

    return redirect


async def _no_such_job(request: Request, error: Exception) -> Response:
    """Returns 404 for a JobNotFound that a route of the application raised, without the path of the store."""
    return JSONResponse({"detail": "there is no such job"}, 404)


async def _no_such_flow(request: Request, error: Exception) -> Response:
    """Returns 404 for a FlowNotFound that a route of the application raised."""
    return JSONResponse({"detail": "there is no such flow"}, 404)


async def _store_away(request: Request, error: Exception) -> Response:
    """Returns 503 for a StoreError that a route of the application raised; only the log has its text."""
    log.error("a route of the application failed: the store cannot be used", path=request.url.path, why=error)
    return JSONResponse({"detail": "the job queue is not available"}, 503, {"Retry-After": "1"})


def _unless_theirs(
    error: type[Exception], ours: Callable[[Request, Exception], Awaitable[Response]]
) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Returns our handler, which leaves an error to a handler of the application that was added after `attach`."""

    async def handle(request: Request, raised: Exception) -> Response:
        handlers: dict[Any, Any] = request.app.exception_handlers
        theirs = next((handlers[kind] for kind in error.__mro__[1:] if kind in handlers), None)
        if theirs is None:
            return await ours(request, raised)
        if inspect.iscoroutinefunction(theirs):
            return await theirs(request, raised)
        return await run_in_threadpool(theirs, request, raised)

    return handle


async def _job_failed(request: Request, error: Exception) -> Response:
    """Returns 409 for a job that failed or was cancelled while a route of the application waited for its result.

    The text of the error stays in the log of the job: it may contain what the caller must not see.
    """
    if isinstance(error, JobFailed):
        return JSONResponse({"detail": "the job failed", "job": error.job_id, "reason": error.reason}, 409)
    job = error.job_id if isinstance(error, JobCancelled) else None
    return JSONResponse({"detail": "the job was cancelled", "job": job, "reason": "cancelled"}, 409)


async def _result_late(request: Request, error: Exception) -> Response:
    """Returns 504 for a job that did not end while a route of the application waited for its result."""
    body: dict[str, Any] = {"detail": "the job did not end in time"}
    if isinstance(error, ResultTimeout):
        body |= {"job": error.job_id, "state": error.state}
        if error.why is not None:
            body["detail"] = "the job did not end in time, and no worker takes it"
            log.warning("a route waited for a job that no worker will take", job=error.job_id, why=error.why)
    return JSONResponse(body, 504)


_ANSWERS: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    JobNotFound: _no_such_job,
    FlowNotFound: _no_such_flow,
    StoreError: _store_away,
    JobFailed: _job_failed,
    JobCancelled: _job_failed,
    ResultTimeout: _result_late,
}
"""What routes of the application answer to errors of Chargehand that they do not handle, instead of 500."""


def wrap_lifespan(app: Starlette, site: Site) -> None:
    """Wraps the lifespan of the application: a node runs while it lasts. The state of the lifespan is kept."""
    theirs = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(served: Any) -> AsyncGenerator[Any]:
        async with hosted(site), theirs(served) as state:
            yield state

    app.router.lifespan_context = lifespan


class _PrefixMount(Mount):
    """Mounts an application under a prefix, except for paths that the application around it serves."""

    def __init__(self, site: Site, api: ASGIApp, routes: list[BaseRoute]) -> None:
        super().__init__(site.prefix, api, name="chargehand")
        self._site, self._all = site, routes

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        self._site.check_opened()  # the first route of the application: all requests come here
        found = super().matches(scope)
        return (Match.NONE, {}) if found[0] is Match.FULL and _app_serves(self, self.path, self._all, scope) else found


class _PathRoute(Route):
    """Serves one path, unless the application serves it."""

    def __init__(self, path: str, endpoint: Callable[..., Any], routes: list[BaseRoute]) -> None:
        super().__init__(path, endpoint, name=f"chargehand{path}", include_in_schema=False)
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
