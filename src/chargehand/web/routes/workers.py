"""Routes of workers: their status and history, health, and orders. An order returns its effect on each worker."""

from collections.abc import Callable
from typing import Annotated

import msgspec
from fastapi import Path, Query, Request, Response

from chargehand import clock
from chargehand.model.fleet.orders import Answer, Verb
from chargehand.model.fleet.stacks import WorkerStacks
from chargehand.web import examples
from chargehand.web.answers import (
    Answers,
    ComponentHealth,
    Health,
    HistoryPage,
    WorkerHistory,
    WorkerStatus,
    cursor,
)
from chargehand.web.deps import CONTROL, PAGE, READ, After, Here, Limit, Text, act, place_of, router
from chargehand.web.documents import answers, respond
from chargehand.web.problems import Problem
from chargehand.web.requests import DrainIn, OrderIn, PauseIn, ScaleIn
from chargehand.web.summaries import workers_of

routes = router("workers")
Since = Annotated[int, Query(ge=0, lt=1 << 62, description="Only snapshots from this time on, in ms since 1970.")]
_ANSWERS = answers(Answers, examples.ANSWERS, 404)


@routes.get("/api/web/worker/status", dependencies=READ, responses=answers(WorkerStatus, examples.WORKERS))
async def worker_status(site: Here) -> Response:
    """Returns every worker of every crew; `healthy` only with a heartbeat in the last 30 seconds."""

    def read() -> list[WorkerStatus]:
        return workers_of(site.hand.health(), site.hand.internal.node_status(), clock.now_ms())

    return respond(await site.in_thread(read))


@routes.get("/api/v1/health", dependencies=READ, responses=answers(Health, examples.HEALTH))
async def health(site: Here, status: Text = None) -> Response:
    """Returns the verdict on the system, and every component, optionally only those of one status."""

    def read() -> Health:
        found = site.hand.verdict()
        return Health(status=found.status, reasons=found.reasons, components=tuple(site.hand.health(status)))

    return respond(await site.in_thread(read))


@routes.get("/api/v1/history", dependencies=READ, responses=answers(HistoryPage, examples.HISTORY))
async def health_history(site: Here, since_ms: Since = 0, limit: Limit = PAGE, after: After = None) -> Response:
    """Returns the snapshots of every component's health, oldest first, if the setting `history` is true."""
    place = place_of(after, int)
    since = since_ms if place is None else place[0] + 1
    found = await site.in_thread(lambda: site.hand.history(since, limit + 1))
    following = cursor(found[limit - 1].timestamp_ms) if len(found) > limit else None
    return respond(HistoryPage(tuple(found[:limit]), following))


@routes.get(
    "/api/v1/health/{component:path}", dependencies=READ, responses=answers(ComponentHealth, examples.COMPONENT, 404)
)
async def component_health(
    site: Here,
    component: Annotated[str, Path(max_length=500)],
    max_age: Annotated[float, Query(gt=0, le=86_400, description="Maximum age of the heartbeat in seconds.")] = 30.0,
) -> Response:
    """Returns one component, and whether it is healthy: a worker, or a node (`app`).

    Where several nodes have a worker of this name, `node/tag:0` names one of them.
    """

    def read() -> ComponentHealth:
        found = site.hand.component(component)
        if found is None:
            raise Problem(404, "no-such-component", f"there is no component {component!r}; api/v1/health lists all")
        well = site.hand.is_healthy(component, max_age)
        return ComponentHealth(**msgspec.structs.asdict(found), well=well)

    return respond(await site.in_thread(read))


@routes.get(
    "/api/v1/workers/{component:path}/history",
    dependencies=READ,
    responses=answers(WorkerHistory, examples.WORKER_HISTORY, 404),
)
async def history(site: Here, component: Annotated[str, Path(max_length=500)]) -> Response:
    """Returns the last states and jobs of a worker, and its memory over the last hour, since the node started.

    Empty if the node of the worker does not answer.
    """

    def read() -> WorkerHistory:
        found = site.hand.worker_history(component)
        if found is not None:
            return msgspec.convert(found, WorkerHistory)
        known = site.hand.component(component)
        if known is None:
            raise Problem(404, "no-such-component", f"there is no component {component!r}; api/v1/health lists all")
        return WorkerHistory(component=known.component, at_ms=clock.now_ms())

    return respond(await site.in_thread(read))


@routes.get(
    "/api/v1/workers/{component:path}/stack",
    dependencies=CONTROL,
    responses=answers(WorkerStacks, examples.WORKER_STACKS, 404),
)
async def stack(request: Request, site: Here, component: Annotated[str, Path(max_length=500)]) -> Response:
    """Returns the Python stacks of all threads of a running worker, which goes on, or why there are none (`code`)."""
    return respond(await act(request, lambda: site.hand.stack(component)))


async def _order(request: Request, give: Callable[[], list[Answer]]) -> Response:
    return respond(Answers(tuple(await act(request, give))))


@routes.post("/api/web/worker/pause", dependencies=CONTROL, responses=_ANSWERS)
async def pause(request: Request, site: Here, order: PauseIn | None = None) -> Response:
    """Pauses workers: running jobs finish, no new job starts. A pause survives restarts, and needs no node."""
    wanted = order or PauseIn()
    return await _order(request, lambda: site.hand.pause(wanted.scope, reason=wanted.reason, seconds=wanted.for_s))


@routes.post("/api/web/worker/scale", dependencies=CONTROL, responses=_ANSWERS)
async def scale(request: Request, site: Here, order: ScaleIn) -> Response:
    """Changes the number of workers of a crew; removed workers finish their jobs first."""
    return await _order(request, lambda: site.hand.scale(order.scope, order.count))


@routes.post("/api/web/worker/drain", dependencies=CONTROL, responses=_ANSWERS)
async def drain(request: Request, site: Here, order: DrainIn | None = None) -> Response:
    """Stops workers after their running jobs, without a time limit; no new job starts. A whole node may end then."""
    wanted = order or DrainIn()
    return await _order(request, lambda: site.hand.drain(wanted.scope, end=wanted.end))


_TEXTS = {
    Verb.START: "Starts stopped workers.",
    Verb.STOP: "Stops workers; running jobs that do not finish within the grace period are queued again.",
    Verb.RESUME: "Resumes paused workers. Workers that were given up are not started; the response names them.",
    Verb.RESTART: "Replaces workers within the grace period, including those that were given up.",
    Verb.RESET: "Clears crash histories, and starts workers that were given up.",
}


def _add(verb: Verb, text: str) -> None:
    async def order(request: Request, site: Here, order: OrderIn | None = None) -> Response:
        give: Callable[[str | None], list[Answer]] = getattr(site.hand, verb.value)
        scope = order.scope if order is not None else None
        return await _order(request, lambda: give(scope))

    order.__doc__, order.__name__ = text, verb.value
    routes.post(f"/api/web/worker/{verb.value}", dependencies=CONTROL, responses=_ANSWERS)(order)


for _verb, _text in _TEXTS.items():
    _add(_verb, _text)
