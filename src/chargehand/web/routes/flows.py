"""Routes of flows: create, list, show, cancel, retry, delete."""

from typing import Annotated

import msgspec
from fastapi import Path, Request, Response

from chargehand.errors import Conflict
from chargehand.model.fleet.orders import Answer, AnswerCode
from chargehand.model.flows import FlowFilter, FlowRecord, FlowState
from chargehand.model.job import State
from chargehand.model.records import JobFilter
from chargehand.web import examples
from chargehand.web.answers import FlowDetail, FlowMade, FlowPage, JobPage, cursor
from chargehand.web.deps import CONTROL, ENQUEUE, PAGE, READ, After, Here, Limit, Text, act, place_of, router
from chargehand.web.documents import answers, respond
from chargehand.web.incoming import FLOW, read_flow
from chargehand.web.making import FlowMaking, Once, make
from chargehand.web.routes.jobs import page_of

routes = router("flows")
Id = Annotated[str, Path(min_length=1, max_length=200)]


@routes.post(
    "/api/v1/flows",
    status_code=201,
    dependencies=ENQUEUE,
    responses=answers(FlowMade, examples.FLOW_MADE, 404, 409, status=201),
    openapi_extra=FLOW,
)
async def create_flow(request: Request, once: Once = None) -> Response:
    """Creates a flow with up to 10,000 first jobs in one transaction: all of them or none. Jobs name the jobs that they
    wait for in `after`: by their position in the request, by their `ref`, or by the id of a job that exists."""
    read = read_flow(request, await request.body())
    # Decoded and checked in a thread: so many jobs would block the event loop.
    status, body, replayed = await make(request, once, lambda hand: FlowMaking(hand, read()))
    made = msgspec.json.decode(body, type=FlowMade)
    headers = {"Location": f"{request.scope.get('root_path', '')}/api/v1/flows/{made.id}", **replayed}
    return Response(body, status, headers, "application/json")


@routes.get("/api/v1/flows", dependencies=READ, responses=answers(FlowPage, examples.FLOW_PAGE))
async def list_flows(
    site: Here, state: FlowState | None = None, text: Text = None, limit: Limit = PAGE, after: After = None
) -> Response:
    """Returns flows, newest first; `text` is searched in id and name."""
    place = place_of(after, str)
    which = FlowFilter(state=state, text=text or None, limit=limit + 1, before=place[0] if place else None)
    found = await site.in_thread(lambda: site.hand.internal.flows(which))
    following = cursor(found[limit - 1].id) if len(found) > limit else None
    return respond(FlowPage(tuple(found[:limit]), following))


@routes.get("/api/v1/flows/{id}", dependencies=READ, responses=answers(FlowDetail, examples.FLOW_DETAIL, 404))
async def show_flow(site: Here, id: Id) -> Response:
    """Returns one flow: its state, the number of its jobs by state, and its jobs by queue."""

    def read() -> FlowDetail:
        flow = site.hand.internal.flow(id)
        own = {name: getattr(flow, name) for name in FlowRecord.__struct_fields__}
        return FlowDetail(**own, stages=tuple(site.hand.internal.stages(flow.id)))

    return respond(await site.in_thread(read))


@routes.get("/api/v1/flows/{id}/jobs", dependencies=READ, responses=answers(JobPage, examples.JOB_PAGE, 404))
async def list_flow_jobs(
    site: Here, id: Id, queue: Text = None, state: State | None = None, limit: Limit = PAGE, after: After = None
) -> Response:
    """Returns the jobs of a flow, newest first."""
    place = place_of(after, int)

    def read() -> JobPage:
        flow = site.hand.internal.flow(id)  # raises FlowNotFound
        which = JobFilter(flow=flow.id, queue=queue, state=state, below=place[0] if place else None)
        return page_of(site.hand, which, limit)

    return respond(await site.in_thread(read))


@routes.post(
    "/api/v1/flows/{id}/cancel", dependencies=CONTROL, responses=answers(Answer, examples.FLOW_CANCELLED, 404, 409)
)
async def cancel_flow(request: Request, site: Here, id: Id) -> Response:
    """Cancels all jobs of a flow: queued ones at once; running ones are asked to stop, as a job is that is cancelled.
    What they add to the flow meanwhile is cancelled, too."""

    def cancel() -> Answer:
        answer = site.hand.internal.cancel_flow(id)
        if answer.code != AnswerCode.NOT_CANCELLED:
            return answer
        state = site.hand.internal.flow(id).state
        if state == "cancelled":
            return Answer(id, "is already cancelled", AnswerCode.NOT_CANCELLED)
        raise Conflict(f"flow {id} is {state}: it has ended and cannot be cancelled")

    return respond(await act(request, cancel))


@routes.post(
    "/api/v1/flows/{id}/retry", dependencies=CONTROL, responses=answers(Answer, examples.FLOW_RETRIED, 404, 409)
)
async def retry_flow(request: Request, site: Here, id: Id) -> Response:
    """Queues the failed and cancelled jobs of a flow again, and clears their counters; jobs that wait for others wait
    again. A flow that has ended goes on."""

    def retry() -> Answer:
        answer = site.hand.internal.retry_flow(id)
        if answer.code != AnswerCode.QUEUED:
            raise Conflict(f"flow {id} {answer.text}")
        return answer

    return respond(await act(request, retry))


@routes.delete("/api/v1/flows/{id}", dependencies=CONTROL, responses=answers(Answer, examples.FLOW_DELETED, 404, 409))
async def delete_flow(request: Request, site: Here, id: Id) -> Response:
    """Deletes a flow that has ended, with its jobs."""
    return respond(await act(request, lambda: site.hand.internal.delete_flow(id)))
