"""Routes of jobs: create, list, show, retry, cancel, delete."""

from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, Any

import msgspec
from fastapi import Header, Path, Query, Request, Response

from chargehand.errors import Conflict
from chargehand.host.actor import enqueue_deeds
from chargehand.model.access import Remembered
from chargehand.model.fleet.orders import Answer, AnswerCode
from chargehand.model.job import FINISHED, LONGEST_DELAY_MS, JobRecord, NewJob, State
from chargehand.model.records import CrashFilter, JobFilter
from chargehand.web import examples
from chargehand.web.answers import Changed, JobDetail, JobPage, Made, MadeMany, cursor
from chargehand.web.auth import caller_of
from chargehand.web.deps import CONTROL, ENQUEUE, PAGE, READ, After, Here, Limit, Text, act, place_of, router
from chargehand.web.documents import answers, respond
from chargehand.web.incoming import MANY, jobs_of, read_many
from chargehand.web.problems import Fault, Problem
from chargehand.web.requests import JobIn

MOST_REPORTS = 20
"""The maximum number of crash reports in the response for a job; `crashes?job=` returns all of them."""
routes = router("jobs")
Id = Annotated[str, Path(min_length=1, max_length=200)]
Older = Annotated[
    int | None, Query(ge=0, le=LONGEST_DELAY_MS, description="Only jobs that finished at least so many ms ago.")
]
Once = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="If the request is repeated within 24 hours, it returns the first response and creates no job.",
    ),
]


@routes.post(
    "/api/v1/jobs",
    status_code=201,
    dependencies=ENQUEUE,
    responses=answers(Made, examples.MADE, status=201, also=200),
)
async def create_job(request: Request, job: JobIn, once: Once = None) -> Response:
    """Enqueues a job, which is durable once this returns. Returns 200 instead of 201 if its unique key is taken."""

    def answer_of(made: list[Made]) -> tuple[int, Any]:
        return 201 if made[0].created else 200, made[0]

    status, body, replayed = await _make(request, lambda: [job], once, answer_of)
    made = msgspec.json.decode(body, type=Made)
    headers = {"Location": f"{request.scope.get('root_path', '')}/api/v1/jobs/{made.id}", **replayed}
    return Response(body, status, headers, "application/json")


@routes.post(
    "/api/v1/jobs/bulk",
    status_code=201,
    dependencies=ENQUEUE,
    responses=answers(MadeMany, examples.MADE_MANY, status=201),
    openapi_extra=MANY,
)
async def create_jobs(request: Request, once: Once = None) -> Response:
    """Enqueues up to 10,000 jobs in one transaction: all of them or none."""

    def answer_of(made: list[Made]) -> tuple[int, Any]:
        return 201, MadeMany(tuple(made))

    # Decoded and checked in a thread: so many jobs would block the event loop.
    status, body, replayed = await _make(request, read_many(request, await request.body()), once, answer_of)
    return Response(body, status, replayed, "application/json")


Reply = tuple[int, bytes, dict[str, str]]
"""Status, body and headers of a response."""


async def _make(
    request: Request,
    wanted: Callable[[], list[JobIn]],
    once: str | None,
    answer_of: Callable[[list[Made]], tuple[int, Any]],
) -> Reply:
    """Enqueues the jobs and returns the response. With an Idempotency-Key it is stored in the same transaction."""
    hand = request.app.state.site.hand
    caller = await caller_of(request)
    digest = sha256(request.scope["route"].path.encode() + b"\n" + await request.body()).hexdigest()

    def make() -> Reply:
        jobs = jobs_of(hand, wanted())
        if once is None:
            status, answer = answer_of(_made(jobs, hand.internal.enqueue(jobs)))
            return status, msgspec.json.encode(answer), {}
        with hand.transaction() as tx:
            before = tx.access.remembered(caller.name, once)
            if before is not None:
                if before.digest != digest:
                    raise Problem(422, "idempotency-key-reused", "this Idempotency-Key was used for another request")
                return before.status, before.body.encode(), {"Idempotency-Replayed": "true"}
            done = tx.jobs.enqueue(jobs)
            tx.access.log(enqueue_deeds(jobs, done))
            status, answer = answer_of(_made(jobs, done))
            body = msgspec.json.encode(answer)
            tx.access.remember(
                Remembered(caller=caller.name, key=once, digest=digest, status=status, body=body.decode())
            )
        return status, body, {}

    return await act(request, make)


def _made(jobs: list[NewJob], done: Any) -> list[Made]:
    return [Made(id=each.id, queue=job.queue, created=each.created) for job, each in zip(jobs, done, strict=True)]


@routes.get("/api/v1/jobs", dependencies=READ, responses=answers(JobPage, examples.JOB_PAGE))
async def list_jobs(
    site: Here,
    queue: Text = None,
    state: State | None = None,
    reason: Text = None,
    tag: Text = None,
    text: Text = None,
    older_ms: Older = None,
    limit: Limit = PAGE,
    after: After = None,
) -> Response:
    """Returns jobs, newest first; `text` is searched in id, label, key, item and error."""
    place = place_of(after, int)
    which = JobFilter(
        queue=queue, state=state, reason=reason, tag=tag, text=text or None, older_ms=older_ms, limit=limit + 1,
        below=place[0] if place else None,
    )  # fmt: skip
    found = await site.in_thread(lambda: site.hand.internal.jobs(which))
    following = cursor(found[limit - 1].seq) if len(found) > limit else None
    return respond(JobPage(tuple(found[:limit]), following))


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
    """Returns one job: payload, progress, result, error, all attempts, and the crash reports of workers that ran it."""

    def read() -> JobDetail:
        job = site.hand.internal.job(id)
        reports = site.hand.crashes(CrashFilter(job=id, limit=MOST_REPORTS))
        own: dict[str, Any] = {name: getattr(job, name) for name in JobRecord.__struct_fields__}
        return JobDetail(**own, attempt_history=tuple(site.hand.attempts(id)), crash_reports=tuple(reports))

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
