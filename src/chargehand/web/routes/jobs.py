"""Routes of jobs: create, list, show, retry, cancel, delete."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import Depends, Path, Query, Request, Response

from chargehand.errors import ConfigurationError, Conflict
from chargehand.host.readings import Failures
from chargehand.model.bulk import BulkPlace, BulkVerb, selected
from chargehand.model.error_line import own_frames
from chargehand.model.fleet.orders import Answer, AnswerCode
from chargehand.model.job import FINISHED, LONGEST_DELAY_MS, JobRecord, State
from chargehand.model.job_query import MOST_CHARACTERS, merged, parse
from chargehand.model.records import CrashFilter, JobFilter, SearchPlace, Sort, Tally
from chargehand.web import examples
from chargehand.web.answers import BulkChanged, Changed, JobDetail, JobPage, Made, MadeMany, cursor
from chargehand.web.deps import CONTROL, ENQUEUE, PAGE, READ, After, Here, Limit, Text, act, place_of, router
from chargehand.web.documents import answers, respond
from chargehand.web.incoming import MANY, read_many
from chargehand.web.making import JobsMaking, Once, make
from chargehand.web.problems import Fault, Problem
from chargehand.web.requests import BulkIn, JobIn

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


FilterText = Annotated[
    str | None,
    Query(
        alias="filter",
        max_length=MOST_CHARACTERS,
        description='Words such as `queue:tag state:failed error:"CUDA" since:1h`, and free text.',
    ),
]


def filter_of(
    filter: FilterText = None,
    queue: Text = None,
    state: State | None = None,
    reason: Text = None,
    tag: Text = None,
    text: Text = None,
    flow: Text = None,
    older_ms: Older = None,
) -> JobFilter:
    """Returns the filter that the parameters describe together."""
    one = JobFilter(queue=queue, state=state, reason=reason, tag=tag, text=text or None, flow=flow, older_ms=older_ms)
    return merged(one, _parsed(filter or ""))


def _parsed(text: str) -> JobFilter:
    try:
        return parse(text)
    except ConfigurationError as error:
        raise Problem(422, "invalid-request", str(error), faults=[Fault("filter", str(error))]) from None


Which = Annotated[JobFilter, Depends(filter_of)]
_LIFT = 1 << 60
"""Added to values in cursors, which are not negative."""


@routes.get("/api/v1/jobs", dependencies=READ, responses=answers(JobPage, examples.JOB_PAGE))
async def list_jobs(
    site: Here, which: Which, sort: Sort = Sort.NEWEST, limit: Limit = PAGE, after: After = None
) -> Response:
    """Returns jobs that match all parameters; `text` is searched in id, label, key, item and error.

    A search that no index answers ends after a second, and says how far it came (`searched_ms`).
    """
    arrival = sort in (Sort.NEWEST, Sort.OLDEST)
    found = place_of(after, *((int,) if arrival else (int, int)))
    place = None if found is None else SearchPlace(0, found[0]) if arrival else SearchPlace(found[0] - _LIFT, found[1])

    def search() -> JobPage:
        page = site.hand.internal.search(msgspec.structs.replace(which, limit=limit), sort, place)
        following = None
        if page.next is not None:
            following = cursor(page.next.seq) if arrival else cursor(page.next.value + _LIFT, page.next.seq)
        return JobPage(tuple(site.hand.internal.shown(page.jobs)), following, page.searched_ms)

    return respond(await site.in_thread(search))


@routes.get("/api/v1/jobs/counts", dependencies=READ, responses=answers(Tally, examples.TALLY))
async def count_jobs(site: Here, which: Which) -> Response:
    """Returns how many jobs match, by state, as far as it is known within a second."""
    return respond(await site.in_thread(lambda: site.hand.internal.tally(which)))


@routes.get("/api/v1/jobs/failures", dependencies=READ, responses=answers(Failures, examples.FAILURES))
async def group_failures(site: Here, which: Which) -> Response:
    """Returns the newest 10,000 failed jobs that match, grouped by the exception, or by how and where a worker crashed.

    `filter` of a group selects its jobs.
    """
    return respond(await site.in_thread(lambda: site.hand.internal.failures(which)))


def _bulk_route(verb: BulkVerb, summary: str) -> None:
    """Adds the route that does this to all jobs that match."""

    async def change_jobs(request: Request, site: Here, body: BulkIn) -> Response:
        return respond(await act(request, lambda: _change(site.hand, verb, body)))

    change_jobs.__doc__ = f"""{summary} jobs: those of `ids`, or those that match `filter`, in transactions of at most
    500 jobs.

    Repeat the request with `next` as `after` until `next` is null. The same request again changes nothing more.
    """
    routes.post(
        f"/api/v1/jobs/{verb.value}",
        dependencies=CONTROL,
        responses=answers(BulkChanged, examples.BULK_CHANGED),
        name=f"{verb.value}_jobs",
    )(change_jobs)


_bulk_route(BulkVerb.RETRY, "Queues failed or cancelled")
_bulk_route(BulkVerb.CANCEL, "Cancels queued or running")
_bulk_route(BulkVerb.DELETE, "Deletes finished")


def _change(hand: "Chargehand", verb: BulkVerb, body: BulkIn) -> BulkChanged:
    which = _parsed(body.filter or "")
    if body.ids:
        which = msgspec.structs.replace(which, ids=tuple(hand.internal.meant(body.ids)))
    elif not body.all and which == JobFilter():
        detail = "no jobs are selected: give ids, a filter, or all=true"
        raise Problem(422, "invalid-request", detail, faults=[Fault("body", detail)])
    if body.dry_run:
        counted = [hand.internal.tally(each) for each in selected(verb, which)]
        searched = [each.searched_ms for each in counted if each.searched_ms is not None]
        count = sum(int(getattr(each, state)) for each in counted for state in State)
        return BulkChanged(count=count, searched_ms=max(searched, default=None))
    found = place_of(body.after, int, int)
    done = hand.internal.change(verb, which, None if found is None else BulkPlace(*found))
    following = None if done.next is None else cursor(done.next.state, done.next.below)
    return BulkChanged(count=done.count, refused=done.refused, next=following)


def page_of(hand: "Chargehand", which: JobFilter, limit: int) -> JobPage:
    """Returns a page of jobs that match, newest first."""
    found = hand.internal.jobs(msgspec.structs.replace(which, limit=limit + 1))
    following = cursor(found[limit - 1].seq) if len(found) > limit else None
    return JobPage(tuple(hand.internal.shown(found[:limit])), following)


@routes.delete("/api/v1/jobs", dependencies=CONTROL, responses=answers(Changed, examples.CHANGED, 409))
async def clear_jobs(
    request: Request,
    site: Here,
    which: Which,
    every: Annotated[bool, Query(alias="all", description="Needed to delete all finished jobs.")] = False,
) -> Response:
    """Deletes the finished jobs that match all parameters, up to 10,000 at a time."""
    if not every and which == JobFilter():
        detail = "no jobs are selected: give a filter, or all=true"
        raise Problem(422, "invalid-request", detail, faults=[Fault("query", detail)])
    if which.state is not None and which.state not in FINISHED:
        raise Conflict(f"jobs that are {which.state.value} cannot be deleted: cancel them first")
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


@routes.get("/api/v1/jobs/{id}", dependencies=READ, responses=answers(JobDetail, examples.JOB_DETAIL, 404, 409))
async def show_job(site: Here, id: Id) -> Response:
    """Returns one job, by its id or the end of it (8 characters or more): payload, progress, result, error, all
    attempts, the crash reports of workers that ran it, and the first 100 of the jobs that it waits for, that wait for
    it, and that it spawned."""

    def read() -> JobDetail:
        inside = site.hand.internal
        (job,) = inside.shown([inside.job(id)])
        reports = site.hand.crashes(CrashFilter(job=job.id, limit=MOST_REPORTS))
        own: dict[str, Any] = {name: getattr(job, name) for name in JobRecord.__struct_fields__}
        return JobDetail(
            **own,
            own_frames=own_frames(job.error),
            attempt_history=tuple(site.hand.attempts(job.id)),
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
