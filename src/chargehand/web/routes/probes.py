"""Routes for monitoring: probes, metrics, diagnostics.

`/healthz`, `/readyz` and `/workers/ready` are public, because orchestrators have no keys: without a key they return no
more than a status.
"""

from typing import Any

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse

from chargehand import log
from chargehand.errors import ChargehandError, NoDriver, StoreError
from chargehand.model.doctor.causes import CAUSES
from chargehand.processes import proc
from chargehand.web import examples
from chargehand.web.answers import Concurrency, Probe, Readiness
from chargehand.web.auth import may
from chargehand.web.deps import OPEN, READ, Here, router
from chargehand.web.documents import answers, respond
from chargehand.web.metrics import exposition
from chargehand.web.summaries import concurrency_of
from chargehand.web.threads import Overdue

routes = router("probes")
_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "The Prometheus text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@routes.get("/healthz", dependencies=OPEN, responses=answers(Probe, Probe("ok")))
async def healthz() -> Response:
    """Returns 200 if this process is alive. Public."""
    return respond(Probe("ok"))


@routes.get("/readyz", dependencies=OPEN, responses=answers(Probe, Probe("ok"), also=503))
async def readyz(site: Here) -> Response:
    """Returns 200 if jobs are accepted: the store can be written, and has the right schema. Otherwise 503. Public.

    `code` is a cause of `chargehand doctor`, and `reason` its meaning; what it is about is only in the log.
    """
    try:
        await site.probe.get()
    except ChargehandError as error:
        code = not_ready(error)
        log.warning("not ready: the store cannot be written", code=code, why=error)
        return respond(Probe("not ready", f"the store cannot be written: {CAUSES[code][0]}", code), 503)
    return respond(Probe("ok"))


def not_ready(error: ChargehandError) -> str:
    """Returns the cause of an error of the store."""
    match error:
        case Overdue():
            return "store-hung"
        case StoreError() | NoDriver():
            return error.code
        case _:
            return StoreError.code


@routes.get("/workers/ready", dependencies=OPEN, responses=answers(Readiness, examples.READINESS, also=503))
async def workers_ready(request: Request, site: Here) -> Response:
    """Returns 200 if jobs are performed: a node runs, and every crew takes jobs. Otherwise 503. Public.

    Crews and reasons are shown to callers with the scope `read`.
    """
    if await may(request, "read"):
        found = await site.in_thread(site.ready)
    else:
        cached: Readiness = await site.readiness.get()
        found = Readiness(ready=cached.ready, reasons=(), crews=())
    return respond(found, 200 if found.ready else 503)


@routes.get("/metrics", dependencies=READ, response_class=PlainTextResponse, responses=_TEXT)
async def metrics(request: Request, site: Here) -> Response:
    """Returns metrics for Prometheus; its scrape configuration needs `authorization: {credentials: ch_…}`."""
    text, media = exposition(await site.facts.get(), request.headers.get("accept", ""))
    return Response(text, headers={"Content-Type": media, "Vary": "Accept"})


@routes.get("/diagnostics/concurrency", dependencies=READ, responses=answers(Concurrency, examples.CONCURRENCY))
async def concurrency(site: Here) -> Response:
    """Returns, for each crew, the configured, live and busy workers, and the configured and current threads."""

    def read() -> Concurrency:
        status = site.hand.internal.node_status()
        pids = [worker.pid for worker in status.workers if worker.pid] if status is not None else []
        counted = {pid: found.threads for pid in pids if (found := proc.stat(pid)) is not None}
        configured = {crew.name: crew.plan.threads for crew in site.hand.crews.values()}
        return concurrency_of(site.hand.known_crews(), status, configured, counted)

    return respond(await site.in_thread(read))
