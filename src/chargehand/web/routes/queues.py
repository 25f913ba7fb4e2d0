"""Routes of queues, claims, crash reports, the operator log, pauses, crews and recurring jobs."""

from typing import Annotated

import msgspec
from fastapi import Path, Request, Response

from chargehand.errors import Conflict
from chargehand.host import nodelock
from chargehand.live.components import shares
from chargehand.model.access import OperationFilter
from chargehand.model.error_line import own_frames
from chargehand.model.figures import together
from chargehand.model.fleet.orders import Answer, AnswerCode
from chargehand.model.job import State
from chargehand.model.records import CrashFilter
from chargehand.web import examples
from chargehand.web.answers import (
    Changed,
    Claims,
    CrashDetail,
    CrashPage,
    Crews,
    Info,
    NodeAnswer,
    Nodes,
    OperationPage,
    Pauses,
    QueueHistories,
    QueueHistory,
    Queues,
    Recurring,
    cursor,
)
from chargehand.web.deps import CONTROL, PAGE, READ, After, Here, Limit, Text, act, place_of, router
from chargehand.web.documents import answers, respond
from chargehand.web.problems import Problem
from chargehand.web.requests import PauseRecurringIn, RecurringIn, ReleaseIn
from chargehand.web.site import Site
from chargehand.web.summaries import info_of, queues_of

routes = router("queues")
Name = Annotated[str, Path(min_length=1, max_length=200)]
MOST_CLAIMS = 10_000


@routes.get("/api/v1/info", dependencies=READ, tags=["system"], responses=answers(Info, examples.INFO))
async def info(site: Here) -> Response:
    """Returns the versions, the node, the crews and the queues."""

    def read() -> Info:
        hand = site.hand
        status = hand.internal.node_status()
        holder = None if status is not None else nodelock.holder(nodelock.nearest(hand.location))
        queues = [count.queue for count in hand.counts()]
        embedded, pauses = hand.settings.embed_workers, hand.pauses()
        nodes = hand.internal.nodes() if hand.location.server is not None else ()
        return info_of(
            hand.node_name, embedded, hand.known_crews(), pauses, status, holder, queues, hand.pages, nodes
        )  # fmt: skip

    return respond(await site.in_thread(read))


@routes.get("/api/v1/status", dependencies=READ, tags=["system"], responses=answers(NodeAnswer, examples.NODE_ANSWER))
async def status(site: Here) -> Response:
    """Returns the status of the node: its workers, counters and verdict."""
    return respond(NodeAnswer(await site.in_thread(site.hand.internal.node_status)))


@routes.get("/api/v1/nodes", dependencies=READ, tags=["system"], responses=answers(Nodes, examples.NODES))
async def nodes(site: Here) -> Response:
    """Returns every node that shares the store, also those that are gone: machine, version, last heartbeat, crews."""
    return respond(Nodes(tuple(await site.in_thread(site.hand.internal.nodes))))


@routes.get("/api/v1/queues", dependencies=READ, responses=answers(Queues, examples.QUEUES))
async def queues(site: Here) -> Response:
    """Returns every queue: the number of jobs by state, its crews, and how long the next job has been due."""

    def read() -> Queues:
        hand = site.hand
        status = hand.internal.node_status()
        unserved = status.unserved if status is not None else hand.internal.unserved()
        throughput = {queue: together(each) for queue, each in shares(hand.internal.health()).items()}
        found = queues_of(
            hand.counts(), hand.known_crews(), hand.pauses(), hand.internal.waiting(), unserved, throughput
        )
        return Queues(tuple(found))

    return respond(await site.in_thread(read))


@routes.get("/api/v1/queues/history", dependencies=READ, responses=answers(QueueHistories, examples.QUEUE_HISTORIES))
async def history(site: Here) -> Response:
    """Returns the history of each queue over the last two hours, since the node started."""
    found = await site.in_thread(site.hand.queue_history)
    return respond(QueueHistories(tuple(msgspec.convert(each, QueueHistory) for each in found)))


def _check_queue(site: Site, queue: str) -> None:
    crews = {crew.queue for crew in site.hand.known_crews()} | {crew.plan.queue for crew in site.hand.crews.values()}
    if queue not in crews and queue not in {count.queue for count in site.hand.counts()}:
        raise Problem(404, "no-such-queue", f"there is no queue {queue!r}; api/v1/queues lists all")


@routes.post(
    "/api/v1/queues/{queue}/retry-failed", dependencies=CONTROL, responses=answers(Changed, examples.CHANGED, 404)
)
async def retry_failed(request: Request, site: Here, queue: Name) -> Response:
    """Queues the failed jobs of a queue again, up to 10,000 at a time; jobs whose unique key is taken stay failed."""

    def retry() -> Changed:
        _check_queue(site, queue)
        return Changed(*site.hand.retry_failed(queue))

    return respond(await act(request, retry))


@routes.post(
    "/api/v1/queues/{queue}/clear-failed", dependencies=CONTROL, responses=answers(Changed, examples.CHANGED, 404)
)
async def clear_failed(request: Request, site: Here, queue: Name) -> Response:
    """Deletes the failed jobs of a queue, up to 10,000 at a time."""

    def clear() -> Changed:
        _check_queue(site, queue)
        return Changed(*site.hand.clear_failed(queue))

    return respond(await act(request, clear))


@routes.get("/api/v1/claims", dependencies=READ, tags=["claims"], responses=answers(Claims, examples.CLAIMS))
async def claims(site: Here, limit: Limit = PAGE, after: After = None) -> Response:
    """Returns the claims of running jobs, oldest first."""
    place = place_of(after, int, str)

    def read() -> Claims:
        found = sorted(site.hand.internal.claims(MOST_CLAIMS), key=lambda claim: (claim.started_ms, claim.id))
        rest = [c for c in found if place is None or (c.started_ms, c.id) > (place[0], place[1])]
        last = rest[limit - 1] if len(rest) > limit else None
        return Claims(tuple(rest[:limit]), cursor(last.started_ms, last.id) if last else None)

    return respond(await site.in_thread(read))


@routes.post(
    "/api/v1/claims/{id}/release", dependencies=CONTROL, tags=["claims"],
    responses=answers(Answer, examples.RELEASED, 404, 409),
)  # fmt: skip
async def release(request: Request, site: Here, id: Name, which: ReleaseIn) -> Response:
    """Releases a claim of a worker that cannot be reached, and queues the job again, which may then run twice."""

    def release_claim() -> Answer:
        job = site.hand.job(id)
        if job.state is not State.RUNNING:
            raise Conflict(f"job {id} is not claimed: it is {job.state.value}")
        if not site.hand.release(id, which.claim):
            raise Conflict(f"claim {which.claim} of job {id} is no longer current: nothing was changed")
        return Answer(id, "is queued again", AnswerCode.QUEUED)

    return respond(await act(request, release_claim))


@routes.get("/api/v1/crashes", dependencies=READ, tags=["crashes"], responses=answers(CrashPage, examples.CRASHES))
async def crashes(
    site: Here, component: Text = None, crew: Text = None, job: Text = None, node: Text = None, limit: Limit = PAGE,
    after: After = None,
) -> Response:  # fmt: skip
    """Returns crash reports of workers, newest first."""
    place = place_of(after, str)
    before = place[0] if place else None
    which = CrashFilter(component=component, crew=crew, job=job, node=node, limit=limit + 1, before=before)
    found = await site.in_thread(lambda: site.hand.crashes(which))
    following = cursor(found[limit - 1].id) if len(found) > limit else None
    return respond(CrashPage(tuple(found[:limit]), following))


@routes.get(
    "/api/v1/crashes/{id}",
    dependencies=READ,
    tags=["crashes"],
    responses=answers(CrashDetail, examples.CRASH_DETAIL, 404),
)
async def crash(site: Here, id: Name) -> Response:
    """Returns one crash report: reason, exit code or signal, the running job, stack traces and last log lines."""
    found = await site.in_thread(lambda: site.hand.crash(id))
    own = own_frames(found.text) or own_frames(found.stacks)
    return respond(CrashDetail(**msgspec.structs.asdict(found), own_frames=own))


@routes.get(
    "/api/v1/operations", dependencies=READ, tags=["system"], responses=answers(OperationPage, examples.OPERATIONS)
)
async def operations(
    site: Here, who: Text = None, verb: Text = None, target: Text = None, limit: Limit = PAGE, after: After = None
) -> Response:
    """Returns the operator log, newest first: the caller, the operation, its target, time and origin."""
    place = place_of(after, int)
    which = OperationFilter(who=who, verb=verb, target=target, limit=limit + 1, before=place[0] if place else None)
    found = await site.in_thread(lambda: site.hand.operations(which))
    following = cursor(found[limit - 1].id) if len(found) > limit else None
    return respond(OperationPage(tuple(found[:limit]), following))


@routes.get("/api/v1/pauses", dependencies=READ, tags=["system"], responses=answers(Pauses, examples.PAUSES))
async def pauses(site: Here) -> Response:
    """Returns the current pauses, with the caller, the reason and the end of each."""
    return respond(Pauses(tuple(await site.in_thread(site.hand.pauses))))


@routes.post(
    "/api/v1/crews/{crew}/wake", dependencies=CONTROL, tags=["system"], responses=answers(Answer, examples.WOKEN, 404)
)
async def wake(request: Request, site: Here, crew: Name) -> Response:
    """Makes a discovering crew search for work at once, instead of at its next interval."""

    def wake_crew() -> Answer:
        if crew not in {row.name for row in site.hand.known_crews()} | set(site.hand.crews):
            raise Problem(404, "unknown-crew", f"there is no crew {crew!r}; api/v1/crews lists all")
        site.hand.wake(crew)
        return Answer(crew, "searches for work at once", AnswerCode.WOKEN)

    return respond(await act(request, wake_crew))


@routes.get("/api/v1/crews", dependencies=READ, tags=["system"], responses=answers(Crews, examples.CREWS))
async def crews(site: Here) -> Response:
    """Returns every crew that a node has registered, with its queue, handler and limits."""
    return respond(Crews(tuple(await site.in_thread(site.hand.known_crews))))


@routes.get("/api/v1/recurring", dependencies=READ, tags=["system"], responses=answers(Recurring, examples.RECURRING))
async def recurring(site: Here) -> Response:
    """Returns every recurring job: its schedule, its next time, its newest jobs, and its pause."""
    return respond(Recurring(tuple(await site.in_thread(site.hand.recurrences))))


@routes.post(
    "/api/v1/recurring/run", dependencies=CONTROL, tags=["system"],
    responses=answers(Answer, examples.RECURRING_RUN, 404, 409),
)  # fmt: skip
async def run_recurring(request: Request, site: Here, which: RecurringIn) -> Response:
    """Enqueues a recurring job now, besides its schedule; the answer names the job."""

    def run() -> Answer:
        return Answer(site.hand.run_recurring(which.name), "is queued", AnswerCode.QUEUED)

    return respond(await act(request, run))


@routes.post(
    "/api/v1/recurring/pause", dependencies=CONTROL, tags=["system"],
    responses=answers(Answer, examples.RECURRING_PAUSED, 404),
)  # fmt: skip
async def pause_recurring(request: Request, site: Here, which: PauseRecurringIn) -> Response:
    """Makes a recurring job skip its times until it is resumed."""

    def pause() -> Answer:
        site.hand.pause_recurring(which.name, which.reason)
        return Answer(which.name, "is paused: it skips its times", AnswerCode.PAUSED)

    return respond(await act(request, pause))


@routes.post(
    "/api/v1/recurring/resume", dependencies=CONTROL, tags=["system"],
    responses=answers(Answer, examples.RECURRING_RESUMED, 404),
)  # fmt: skip
async def resume_recurring(request: Request, site: Here, which: RecurringIn) -> Response:
    """Ends the pause of a recurring job."""

    def resume() -> Answer:
        if site.hand.resume_recurring(which.name):
            return Answer(which.name, "is no longer paused", AnswerCode.RESUMED)
        return Answer(which.name, "was not paused", AnswerCode.NOT_PAUSED)

    return respond(await act(request, resume))
