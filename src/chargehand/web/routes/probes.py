"""For those who watch: probes, metrics, diagnostics.

`/healthz` and `/readyz` are open to everybody: orchestrators have no keys, and they tell nothing but yes or no, and
that the store cannot be used.
"""

from typing import Any

from fastapi import Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from chargehand import log
from chargehand.errors import ChargehandError
from chargehand.host import nodelock
from chargehand.processes import proc
from chargehand.web import examples
from chargehand.web.answers import Concurrency, Probe, Readiness
from chargehand.web.deps import OPEN, READ, Here, router
from chargehand.web.documents import answers, respond
from chargehand.web.metrics import exposition
from chargehand.web.summaries import concurrency_of, readiness_of

routes = router("probes")
_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Prometheus's text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@routes.get("/healthz", dependencies=OPEN, responses=answers(Probe, Probe("ok")))
async def healthz() -> Response:
    """This process lives. Open to everybody."""
    return respond(Probe("ok"))


@routes.get("/readyz", dependencies=OPEN, responses=answers(Probe, Probe("ok"), also=503))
async def readyz(site: Here) -> Response:
    """Work is accepted: the store was written just now, and its schema is right. Open to everybody."""
    try:
        await site.probe.get()
    except ChargehandError as error:
        log.warning("not ready: the store cannot be written", why=error)
        return respond(Probe("not ready", "the store cannot be written; the log says why"), 503)
    return respond(Probe("ok"))


@routes.get("/workers/ready", dependencies=READ, responses=answers(Readiness, examples.READINESS, also=503))
async def workers_ready(site: Here) -> Response:
    """Work gets done: a node is there, and every crew has somebody who takes its work; 503 with the reasons if not."""

    def read() -> Readiness:
        hand = site.hand
        status = hand.internal.node_status()
        holder = None if status is not None else nodelock.holder(hand.location)
        return readiness_of(hand.known_crews(), status, holder, hand.pauses())

    found = await site.aside(read)
    return respond(found, 200 if found.ready else 503)


@routes.get("/metrics", dependencies=READ, response_class=PlainTextResponse, responses=_TEXT)
async def metrics(site: Here) -> Response:
    """For Prometheus: `authorization: {credentials: ch_…}` in its scrape configuration, with the scope `read`."""
    return Response(exposition(await site.facts.get()), headers={"Content-Type": CONTENT_TYPE_LATEST})


@routes.get("/diagnostics/concurrency", dependencies=READ, responses=answers(Concurrency, examples.CONCURRENCY))
async def concurrency(site: Here) -> Response:
    """Per crew: workers configured, alive and busy; threads as configured, and as the kernel counts them now."""

    def read() -> Concurrency:
        status = site.hand.internal.node_status()
        pids = [worker.pid for worker in status.workers if worker.pid] if status is not None else []
        counted = {pid: found.threads for pid in pids if (found := proc.stat(pid)) is not None}
        configured = {crew.name: crew.plan.threads for crew in site.hand.crews.values()}
        return concurrency_of(site.hand.known_crews(), status, configured, counted)

    return respond(await site.aside(read))
