"""Crews and references to jobs, for callers that enqueue jobs and wait for their results."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import _GeneratorContextManager  # pyright: ignore[reportPrivateUsage]
from datetime import datetime
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypedDict, TypeVar, Unpack

from chargehand import clock, codec, handler
from chargehand.errors import (
    ChargehandError,
    ConfigurationError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    PayloadError,
    ResultTimeout,
    summary,
)
from chargehand.flow import Flow
from chargehand.handler import check_several
from chargehand.host import waiting
from chargehand.host.calls import follow, looks
from chargehand.host.operations import Operations
from chargehand.host.waiting import as_seconds, until_ended, warn_in_loop, warn_in_vain
from chargehand.ids import new_ids
from chargehand.model.flows import FlowRecord
from chargehand.model.hooks import HookEvent
from chargehand.model.job import FINISHED, Attempt, JobRecord, NewJob, State, restored
from chargehand.model.spelling import unknown_attribute
from chargehand.model.topic import RESYNC, has_ended, job_topic, parse
from chargehand.settings.plan import CrewPlan, new_job, several, with_payload
from chargehand.store import Transaction
from chargehand.stores.location import Location
from chargehand.system import callers, extras

if TYPE_CHECKING:
    from psycopg import Connection as PsycopgConnection
    from sqlalchemy import Connection as AlchemyConnection
    from sqlalchemy.orm import Session as AlchemySession
    from sqlalchemy.orm import scoped_session
    from starlette.responses import Response

    from chargehand.host.service import Service

Payload = TypeVar("Payload")
Result = TypeVar("Result")

Within: TypeAlias = (
    "Transaction | PsycopgConnection[Any] | AlchemyConnection | AlchemySession | scoped_session[Any] | None"
)
"""Where a job may be enqueued instead of in a transaction of its own."""


class JobOptions(TypedDict, total=False):
    """The options of a job, listed by `model.job.JobSpec`; durations are seconds. Those not given are the crew's."""

    label: str
    key: str
    priority: int
    delay: float
    run_at: datetime
    max_attempts: int
    timeout: float | None
    limit_key: str
    tags: list[str]
    after: "Ref[Any] | str | Sequence[Ref[Any] | str]"
    if_failed: Literal["fail", "run"]
    flow: "Flow | str | None"
    share: str
    sequence: str
    unique_for: float
    replace: bool
    expires: float
    meta: dict[str, Any] | None
    traceparent: str | None


_ONE_PAYLOAD = "a job has one payload: crew.enqueue(Song(path='a')) or crew.enqueue({'path': 'a'})"


class Ref(Generic[Result]):
    """A job by its id: its state, its result, and its events."""

    __slots__ = ("_flow", "_gives", "_operations", "created", "id", "replaced")

    def __init__(
        self,
        operations: Operations,
        job_id: str,
        gives: Any = None,
        *,
        created: bool = True,
        replaced: bool = False,
        flow: Flow | None = None,
    ) -> None:
        self._operations, self._gives, self._flow = operations, gives, flow
        self.id = job_id
        self.created = created
        """False if the job existed already, by its id or its unique key."""
        self.replaced = replaced
        """True if the payload replaced that of the job that existed."""

    def __repr__(self) -> str:
        return f"Ref({self.id!r})"

    if not TYPE_CHECKING:  # a type checker knows all attributes

        def __getattr__(self, name: str) -> Any:
            if name == "keys":  # of dict(ref), which FastAPI tries with what a route returns
                raise TypeError("a Ref cannot be encoded: return ref.id, or what the caller may see of ref.job()")
            raise unknown_attribute("Ref", name, dir(Ref))

        def __await__(self) -> Any:
            raise TypeError(
                "a Ref cannot be awaited: await crew.enqueue_async(payload) enqueues, await ref.result() waits, and a "
                "handler returns ref.id"
            )

    @property
    def location(self) -> Location:
        """Where the store of the job is."""
        return self._operations.location

    def job(self) -> JobRecord:
        """Returns the job in its present state. Raises JobNotFound if it never existed or was pruned."""
        if self._flow is not None:
            self._flow.check_made()
        return restored(self._operations.job(self.id))

    def attempts(self) -> list[Attempt]:
        """Returns every attempt so far, oldest first."""
        return self._operations.attempts(self.id)

    def cancel(self) -> str:
        """Cancels the job. Returns the effect in words."""
        return self._operations.cancel(self.id)[0].text

    def retry(self) -> str:
        """Queues the job again if it has failed or was cancelled. Returns the effect in words."""
        return self._operations.retry(self.id)[0].text

    def wait(self, timeout: float | None = None) -> Result:
        """Waits for the result. Raises JobFailed, JobCancelled, or ResultTimeout after `timeout` seconds.

        A RuntimeWarning says if it waits without a limit for a job that no worker will take; in an event loop another
        one says to use `await ref.result()`.
        """
        warn_in_loop("ref.wait()", "await ref.result()")
        if self._flow is not None:
            self._flow.check_made()
        return outcome(wait_for_end(self._operations, self.id, timeout), self._gives)

    async def result(self, timeout: float | None = None) -> Result:
        """Waits for the result without blocking the event loop. Raises the errors of `wait`."""
        try:
            async with asyncio.timeout(as_seconds(timeout)):
                return await self._result(warn=timeout is None)
        except TimeoutError:
            raise await asyncio.to_thread(lambda: late(self._operations, self.job(), timeout)) from None

    async def _result(self, *, warn: bool) -> Result:
        async with follow(self._operations.location, self.id) as news:
            pauses, until = looks(), clock.monotonic() + waiting.PATIENCE
            while True:
                job = await asyncio.to_thread(self.job)
                if job.state in FINISHED:
                    return outcome(job, self._gives)
                if warn and clock.monotonic() >= until:
                    warn = False
                    warn_in_vain(self.id, await asyncio.to_thread(_in_vain, self._operations, job), 3)
                await news(next(pauses))

    async def events(self) -> AsyncGenerator[dict[str, Any]]:
        """Yields the events of this job, its present state first, until it has ended. Raises JobNotFound."""
        job = await asyncio.to_thread(self.job)  # its own id, if this one is an alias
        async with self._operations.feed().watch(parse((job_topic(job.id),))) as watcher:
            async for event in watcher.events():
                if event["type"] != RESYNC:
                    if event.get("removed"):
                        raise JobNotFound(f"there is no job {self.id!r}, or no longer")
                    yield event
                    if has_ended(event):
                        return

    def sse(self) -> "Response":
        """Returns the events as server-sent events, for a route of the application with its own authorisation."""
        with extras.required("web", "ref.sse"):
            from chargehand.web.sse import of_job  # only a server needs the web package

        return of_job(self._operations, self.id)


def wait_for_end(service: "Service", job_id: str, timeout: float | None) -> JobRecord:
    """Waits until the job has ended, and returns it. Raises ResultTimeout after `timeout` seconds."""

    def ended() -> JobRecord | None:
        job = service.job(job_id)
        return job if job.state in FINISHED else None

    return until_ended(
        lambda until: service.await_end(job_id, until),
        ended,
        as_seconds(timeout),
        lambda: late(service, service.job(job_id), timeout),
        lambda: warn_in_vain(job_id, _in_vain(service, service.job(job_id)), 5),
    )


def late(service: "Service", job: JobRecord, timeout: float | None) -> ResultTimeout:
    """Returns the error for a job that has not ended in time; it says why if no worker will take the job."""
    why = _in_vain(service, job)
    state = job.state.value + ("" if why is None else f", and no worker takes it: {summary(why)}")
    text = f"job {job.id} did not end within {timeout or 0:g} s; it is {state}"
    if handler.ready:  # in a worker
        text += "; a handler that waits occupies its worker: spawn the job, and let another one follow with after="
    return ResultTimeout(text, job.id, job.state.value, why)


def _in_vain(service: "Service", job: JobRecord) -> str | None:
    """Returns why no worker will take the job; None if one will, has or had it."""
    return service.why_waiting(job.queue) if job.state is State.QUEUED else None


def outcome(job: JobRecord, gives: Any) -> Any:
    """Returns the result of a job that has ended, as the type `gives`. Raises JobFailed or JobCancelled."""
    match job.state:
        case State.DONE:
            return codec.from_json(bytes(job.result or b"null"), gives, f"the result of job {job.id}")
        case State.CANCELLED:
            raise JobCancelled(f"job {job.id} was cancelled", job.id)
        case _:
            raise JobFailed(job.id, job.reason or "failed", job.error)


class Crew(Generic[Payload, Result]):
    """A named group of identical workers, for callers that enqueue jobs for it."""

    def __init__(self, operations: Operations, plan: CrewPlan, takes: Any, gives: Any) -> None:
        self._operations, self.plan, self.takes, self.gives = operations, plan, takes, gives

    def __repr__(self) -> str:
        return f"Crew({self.plan.name!r})"

    @property
    def location(self) -> Location:
        """Where the store of the crew is."""
        return self._operations.location

    @property
    def name(self) -> str:
        """The name of the crew."""
        return self.plan.name

    def new_job(self, payload: Payload, *, id: str | None = None, **options: Unpack[JobOptions]) -> NewJob:
        """Returns a checked job for this crew without enqueueing it. Raises PayloadError."""
        self._check_own(options)
        text = codec.encode_typed(payload, self.takes, f"the payload for crew {self.name!r}")
        return new_job(self.plan, text, id=id, **options)

    def _check_own(self, options: JobOptions) -> None:
        """Raises PayloadError if a predecessor is a flow, or if it or the flow belongs to another store."""
        after: list[Any] = several(options.get("after"))
        for each in after:
            if isinstance(each, Flow | FlowRecord):
                raise PayloadError(
                    f"after names flow {each.name!r}; it takes jobs: name those of the flow, or make the flow with "
                    "on_end= to enqueue a job when it has ended"
                )
        for each in [*after, options.get("flow")]:
            if isinstance(each, Ref | Flow) and each.location != self._operations.location:
                what = "waits only for jobs" if isinstance(each, Ref) else "belongs only to flows"
                raise PayloadError(
                    f"{each!r} is of another store, {each.location}: a job of {self._operations.location} {what} of "
                    "its own store"
                )

    if not TYPE_CHECKING:  # a type checker knows all attributes

        def __getattr__(self, name: str) -> Any:
            raise unknown_attribute("Crew", name, dir(Crew))

    @callers.used_as(_ONE_PAYLOAD)
    def enqueue(self, payload: Payload, *, within: Within = None, **options: Unpack[JobOptions]) -> Ref[Result]:
        """Enqueues a job; it is durable when this returns or, `within` a transaction, when that commits.

        `within` is what `hand.transaction()` or `job.settle()` gives. With a PostgreSQL store it may also be a
        Connection of psycopg 3, or a Connection or Session of SQLAlchemy that uses it, to the same database.
        """
        (ref,) = self._enqueue([self.new_job(payload, **options)], within, options.get("flow"))
        return ref

    def enqueue_new(self, job: NewJob, flow: "Flow | str | None" = None) -> Ref[Result]:
        """Enqueues a job that `new_job` returned: checked before, its id known."""
        (ref,) = self._enqueue([job], None, flow)
        return ref

    async def enqueue_async(self, payload: Payload, **options: Unpack[JobOptions]) -> Ref[Result]:
        """Enqueues a job without blocking the event loop."""
        job, flow = self.new_job(payload, **options), options.get("flow")
        if isinstance(flow, Flow) and flow.collects:
            (ref,) = self._enqueue([job], None, flow)
        else:
            (ref,) = await asyncio.to_thread(self._enqueue, [job], None, flow)
        return ref

    @callers.used_as("the payloads are one argument: crew.enqueue_many([Song('a'), Song('b')])")
    def enqueue_many(
        self, payloads: Iterable[Payload], *, within: Within = None, **options: Unpack[JobOptions]
    ) -> list[Ref[Result]]:
        """Enqueues jobs in one transaction: all of them or none."""
        if "key" in options:
            raise PayloadError("many jobs cannot share one key: enqueue them one by one with keys of their own")
        return self._enqueue(self.new_jobs(payloads, **options), within, options.get("flow"))

    def new_jobs(self, payloads: Iterable[Payload], **options: Unpack[JobOptions]) -> list[NewJob]:
        """Returns checked jobs for this crew, with the same options, without enqueueing them. Raises PayloadError."""
        self._check_own(options)
        check_several(f"the payloads for crew {self.name!r}", payloads)
        many = list(payloads)
        model = new_job(self.plan, "null", **options)
        what = f"the payload for crew {self.name!r}"
        made: list[NewJob] = []
        try:
            for job_id, payload in zip(new_ids(len(many)), many, strict=True):
                made.append(with_payload(model, job_id, codec.encode_typed(payload, self.takes, what)))
        except PayloadError as error:
            error.args = (f"{error} (payload {len(made) + 1} of {len(many)})",)
            raise
        return made

    def _enqueue(self, jobs: Sequence[NewJob], within: Within, flow: "Flow | str | None") -> list[Ref[Result]]:
        operations = self._operations
        if isinstance(within, MethodType | _GeneratorContextManager):
            raise ChargehandError(
                "within= is a transaction that has not begun: write `with hand.transaction() as tx:`, and within=tx"
            )
        if isinstance(flow, Flow) and flow.collects:
            refs = [Ref[Result](operations, job.id, self.gives, flow=flow) for job in jobs]
            flow.collect(jobs, refs, within)
            return refs
        done = operations.enqueue(jobs) if within is None else operations.enqueue_within(within, jobs)
        return [Ref(operations, one.id, self.gives, created=one.created, replaced=one.replaced) for one in done]

    def ref(self, job_id: str) -> Ref[Result]:
        """Returns a reference to a job of this crew by its id."""
        found: Any = job_id
        if not isinstance(found, str):
            instead = ": it is a reference already" if isinstance(found, Ref) else ""
            raise PayloadError(f"crew.ref takes the id of a job, a string, not {found!r}{instead}")
        return Ref(self._operations, job_id, self.gives)


def receiving_job(hook: str, crew: Any) -> NewJob:
    """Returns the job by which a crew is told of events, without its payload. Raises ConfigurationError if the crew
    cannot take a HookEvent."""
    if not hasattr(crew, "new_job"):
        raise ConfigurationError(f"hook {hook} is {crew!r}; expected what hand.crew(…) returned")
    found: Crew[Any, Any] = crew
    sample = HookEvent(event="failed", at_ms=0, node="main")
    try:
        return found.new_job(sample, traceparent=None)
    except PayloadError as error:
        raise ConfigurationError(
            f"hook {hook} is crew {found.name!r}, which does not take chargehand.HookEvent: {error}"
        ) from error
