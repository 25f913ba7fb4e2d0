"""Routes of jobs: create, list, show, retry, cancel, delete."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import Path, Query, Request, Response

from chargehand.errors import Conflict
from chargehand.model.error_line import own_frames
from chargehand.model.fleet.orders import Answer, AnswerCode
from chargehand.model.job import FINISHED, LONGEST_DELAY_MS, JobRecord, State
from chargehand.model.records import CrashFilter, JobFilter
from chargehand.web import examples
from chargehand.web.answers import Changed, JobDetail, JobPage, Made, MadeMany, cursor
from chargehand.web.deps import CONTROL, ENQUEUE, PAGE, READ, After, Here, Limit, Text, act, place_of, router
from chargehand.web.documents import answers, respond
from chargehand.web.incoming import MANY, read_many
from chargehand.web.making import JobsMaking, Once, make
from chargehand.web.problems import Fault, Problem
from chargehand.web.requests import JobIn

if TYPE_CHECKING:
    from chargehand.app import Chargehand

MOST_REPORTS = 20
"""The maximum number of crash reports in the response for a job; `crashes?job=` returns all of them."""
routes = router("jobs")
Id = Annotated[str, Path(min_length=1, max_length=200)]
Older = Annotated[
    int | None, Query(ge=0, le=LONGEST_DELAY_MS, description="Only jobs that finished at least so many ms ago.")
]


@routes.post(
    "/api/v1/jobs",
    status_code=201,
    dependencies=ENQUEUE,
    responses=answers(Made, examples.MADE, 404, 409, status=201, also=200),
)
async def create_job(request: Request, job: JobIn, once: Once = None) -> Response:
    """Enqueues a job, which is durable once this returns. Returns 200 instead of 201 if its unique key is taken.

    Returns 404 if a job of `after`, or the flow, does not exist, and 409 if the flow has ended."""

    def answer_of(made: list[Made]) -> tuple[int, Any]:
        return 201 if made[0].created else 200, made[0]

    status, body, replayed = await make(request, once, lambda hand: JobsMaking(hand, [job], answer_of))
    made = msgspec.json.decode(body, type=Made)
    headers = {"Location": f"{request.scope.get('root_path', '')}/api/v1/jobs/{made.id}", **replayed}
    return Response(body, status, headers, "application/json")


@routes.post(
    "/api/v1/jobs/bulk",
    status_code=201,
    dependencies=ENQUEUE,
    responses=answers(MadeMany, examples.MADE_MANY, 404, 409, status=201),
    openapi_extra=MANY,
)
async def create_jobs(request: Request, once: Once = None) -> Response:
    """Enqueues up to 10,000 jobs in one transaction: all of them or none."""

    def answer_of(made: list[Made]) -> tuple[int, Any]:
        return 201, MadeMany(tuple(made))

    read = read_many(request, await request.body())
    # Decoded and checked in a thread: so many jobs would block the event loop.
    status, body, replayed = await make(request, once, lambda hand: JobsMaking(hand, read(), answer_of))
    return Response(body, status, replayed, "application/json")


@routes.get("/api/v1/jobs", dependencies=READ, responses=answers(JobPage, examples.JOB_PAGE))
async def list_jobs(
    site: Here,
    queue: Text = None,
    state: State | None = None,
    reason: Text = None,
    tag: Text = None,
    text: Text = None,
    flow: Text = None,
    older_ms: Older = None,
    limit: Limit = PAGE,
    after: After = None,
) -> Response:
    """Returns jobs, newest first; `text` is searched in id, label, key, item and error."""
    place = place_of(after, int)
    which = JobFilter(
        queue=queue, state=state, reason=reason, tag=tag, text=text or None, flow=flow, older_ms=older_ms,
        below=place[0] if place else None,
    )  # fmt: skip
    return respond(await site.in_thread(lambda: page_of(site.hand, which, limit)))


def page_of(hand: "Chargehand", which: JobFilter, limit: int) -> JobPage:
    """Returns a page of jobs that match, newest first."""
    found = hand.internal.jobs(msgspec.structs.replace(which, limit=limit + 1))
    following = cursor(found[limit - 1].seq) if len(found) > limit else None
    return JobPage(tuple(found[:limit]), following)


@routes.delete("/api/v1/jobs", dependencies=CONTROL, responses=answers(Changed, examples.CHANGED, 409))
async def clear_jobs(
    request: Request,
    site: Here,
    queue: Text = None,
    state: State | None = None,
    reason: Text = None,
    tag: Text = None,
    text: Text = None,
    older_ms: Older = None,
    every: Annotated[bool, Query(alias="all", description="Needed to delete all finished jobs.")] = False,
) -> Response:
    """Deletes the finished jobs that match all parameters, up to 10,000 at a time."""
    which = JobFilter(queue=queue, state=state, reason=reason, tag=tag, text=text or None, older_ms=older_ms)
    if not every and which == JobFilter():
        detail = "no jobs are selected: give a filter, or all=true"
        raise Problem(422, "invalid-request", detail, faults=[Fault("query", detail)])
    if state is not None and state not in FINISHED:
        raise Conflict(f"jobs that are {state.value} cannot be deleted: cancel them first")
    return respond(Changed(*await act(request, lambda: site.hand.clear(which))))


@routes.delete("/api/v1/jobs/{id}", dependencies=CONTROL, responses=answers(Answer, examples.DELETED, 404, 409))
async def delete_job(request: Request, site: Here, id: Id) -> Response:
    """Deletes a job that is done, failed or cancelled, with its attempts."""

    def delete() -> Answer:
        (answer,) = site.hand.delete(id)
        if answer.code == AnswerCode.DELETED:
            return answer
        site.hand.job(id)  # raises JobNotFound
        raise Conflict(f"job {id} {answer.text}")

    return respond(await act(request, delete))


@routes.get("/api/v1/jobs/{id}", dependencies=READ, responses=answers(JobDetail, examples.JOB_DETAIL, 404))
async def show_job(site: Here, id: Id) -> Response:
    """Returns one job: payload, progress, result, error, all attempts, the crash reports of workers that ran it, and
    the first 100 of the jobs that it waits for, that wait for it, and that it spawned."""

    def read() -> JobDetail:
        inside = site.hand.internal
        job = inside.job(id)
        reports = site.hand.crashes(CrashFilter(job=id, limit=MOST_REPORTS))
        own: dict[str, Any] = {name: getattr(job, name) for name in JobRecord.__struct_fields__}
        return JobDetail(
            **own,
            own_frames=own_frames(job.error),
            attempt_history=tuple(site.hand.attempts(id)),
            crash_reports=tuple(reports),
            **msgspec.structs.asdict(inside.relations(job.id)),
        )

    return respond(await site.in_thread(read))


@routes.post("/api/v1/jobs/{id}/retry", dependencies=CONTROL, responses=answers(Answer, examples.RETRIED, 404, 409))
async def retry_job(request: Request, site: Here, id: Id) -> Response:
    """Queues a failed or cancelled job again, and clears its counters."""

    def retry() -> Answer:
        job = site.hand.job(id)
        (answer,) = site.hand.retry(id)
        if answer.code != AnswerCode.QUEUED:
            raise Conflict(f"job {id} is {job.state.value}: only failed and cancelled jobs can be queued again")
        return answer

    return respond(await act(request, retry))


@routes.post("/api/v1/jobs/{id}/cancel", dependencies=CONTROL, responses=answers(Answer, examples.CANCELLED, 404, 409))
async def cancel_job(request: Request, site: Here, id: Id) -> Response:
    """Cancels a job: at once if queued. A running job is asked to stop; if it does not, its worker is replaced."""

    def cancel() -> Answer:
        (answer,) = site.hand.cancel(id)
        if answer.code != AnswerCode.NOT_CANCELLED:
            return answer
        job = site.hand.job(id)
        if job.state is State.CANCELLED:
            return Answer(id, "is already cancelled", AnswerCode.NOT_CANCELLED)
        raise Conflict(f"job {id} is {job.state.value}: it has ended and cannot be cancelled")

    return respond(await act(request, cancel))
