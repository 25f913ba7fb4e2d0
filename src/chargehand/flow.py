"""Flows, for callers that enqueue jobs which belong together, and wait for all of them."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack

from msgspec.structs import replace

from chargehand import codec
from chargehand.errors import (
    ChargehandError,
    ConfigurationError,
    FlowCancelled,
    FlowFailed,
    FlowNotFound,
    PayloadError,
    ResultTimeout,
)
from chargehand.host.calls import follow, looks
from chargehand.host.operations import Operations
from chargehand.host.waiting import as_seconds, until_ended, warn_in_loop
from chargehand.ids import new_id
from chargehand.model.flows import FlowCounts, FlowEnd, FlowRecord, NewFlow, check_flow
from chargehand.model.job import PREDECESSOR, JobRecord, NewJob, State, restored
from chargehand.model.records import JobFilter, Sort
from chargehand.model.spelling import unknown_attribute
from chargehand.model.topic import RESYNC, flow_topic, has_ended, parse
from chargehand.stores.location import Location
from chargehand.system import extras

if TYPE_CHECKING:
    from starlette.responses import Response

    from chargehand.crew import Crew, JobOptions, Ref, Within

Payload = TypeVar("Payload")
Result = TypeVar("Result")
Order = Literal["flow", "arrival"]

MOST_NAMED = 100
"""How many of its failed jobs the error of a flow names."""


class Flow:
    """Jobs that belong together: made by `with hand.flow(name) as flow:`, or found by `hand.find_flow(id)`.

    Inside the block, jobs are collected. They are enqueued at its end in one transaction, together with the flow; if
    the block raises, nothing is. Afterwards jobs can be added until the flow has ended.
    """

    def __init__(
        self, operations: Operations, flow_id: str, name: str, *, new: NewFlow | None = None, within: "Within" = None
    ) -> None:
        self._operations, self._new, self._within = operations, new, within
        self.id, self.name = flow_id, name
        self._jobs: list[NewJob] | None = None
        """The jobs that were collected, inside the block."""
        self._refs: list[Ref[Any]] = []

    if not TYPE_CHECKING:  # a type checker knows all attributes

        def __getattr__(self, name: str) -> Any:
            raise unknown_attribute("Flow", name, dir(Flow))

    def __repr__(self) -> str:
        return f"Flow({self.id!r}, name={self.name!r})"

    @property
    def location(self) -> Location:
        """Where the store of the flow is."""
        return self._operations.location

    # the block

    def __enter__(self) -> Self:
        if self._new is None or self._jobs is not None:
            raise ChargehandError(f"flow {self.name!r} exists already: `with hand.flow(…) as flow:` makes a new one")
        self._jobs = []
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._commit()
        else:
            self._take()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._take()
            return
        if self._within is not None:  # the transaction belongs to this thread
            self._commit()
        else:
            await asyncio.to_thread(self._commit)

    def _commit(self) -> None:
        assert self._new is not None
        jobs, refs = self._take()
        done = self._operations.begin_flow(self._new, jobs, self._within)
        self._new = None
        for ref, each in zip(refs, done, strict=True):
            ref.id, ref.created, ref.replaced = each.id, each.created, each.replaced

    def _take(self) -> "tuple[list[NewJob], list[Ref[Any]]]":
        """Returns what was collected. From then on nothing is."""
        jobs, refs = self._jobs or [], self._refs
        self._jobs, self._refs = None, []
        return jobs, refs

    @property
    def collects(self) -> bool:
        """Whether jobs are collected, because the block of the flow has not ended."""
        return self._new is not None

    def collect(self, jobs: Sequence[NewJob], refs: "Sequence[Ref[Any]]", within: "Within") -> None:
        """Adds jobs that are enqueued at the end of the block. Raises ChargehandError outside the block."""
        if self._jobs is None:
            raise ChargehandError(f"flow {self.name!r} was not made: enqueue inside `with hand.flow(…) as flow:`")
        if within is not None:
            raise ChargehandError("a flow and its first jobs are written together: pass within= to hand.flow(…)")
        self._jobs += jobs
        self._refs += refs

    # jobs

    def enqueue(
        self, crew: "Crew[Payload, Result]", payload: Payload, **options: "Unpack[JobOptions]"
    ) -> "Ref[Result]":
        """Enqueues a job of the flow; inside the block of the flow, at its end. Raises FlowEnded."""
        options["flow"] = self
        self._check_crew(crew)
        return crew.enqueue(payload, **options)

    async def enqueue_async(
        self, crew: "Crew[Payload, Result]", payload: Payload, **options: "Unpack[JobOptions]"
    ) -> "Ref[Result]":
        """Enqueues a job of the flow without blocking the event loop."""
        options["flow"] = self
        self._check_crew(crew)
        return await crew.enqueue_async(payload, **options)

    def enqueue_many(
        self, crew: "Crew[Payload, Result]", payloads: Iterable[Payload], **options: "Unpack[JobOptions]"
    ) -> "list[Ref[Result]]":
        """Enqueues jobs of the flow in one transaction; inside the block of the flow, at its end. Raises FlowEnded."""
        options["flow"] = self
        self._check_crew(crew)
        return crew.enqueue_many(payloads, **options)

    def _check_crew(self, crew: Any) -> None:
        if not hasattr(crew, "new_job"):
            raise ConfigurationError(
                f"flow {self.name!r}: the first argument is {crew!r}; expected what hand.crew(…) returned, then the "
                "payload"
            )

    def jobs(self, which: JobFilter | None = None) -> list[JobRecord]:
        """Returns a page of the flow's jobs, newest first."""
        found = self._operations.jobs(replace(which or JobFilter(), flow=self._own_id()))
        return [restored(job) for job in found]

    # the whole

    def status(self) -> FlowRecord:
        """Returns the flow in its present state, with the counts of its jobs. Raises FlowNotFound."""
        return shown(self._operations.flow(self._own_id()))

    def wait(self, timeout: float | None = None) -> FlowRecord:
        """Waits until the flow has ended, and returns it.

        Raises FlowFailed if one of its jobs has failed; FlowCancelled, which is a FlowFailed, if none has, but the flow
        or a job was cancelled; ResultTimeout after `timeout` seconds. In an event loop use `await flow.result()`.
        """
        warn_in_loop("flow.wait()", "await flow.result()")
        limit = as_seconds(timeout)
        return self._outcome(
            until_ended(
                lambda until: self._operations.await_flow(self.id, until),
                self._ended,
                limit,
                lambda: self._late(timeout),
            )
        )

    async def result(self, timeout: float | None = None) -> FlowRecord:
        """Waits as `wait` does, without blocking the event loop."""
        try:
            async with asyncio.timeout(as_seconds(timeout)):
                record = await self._until_ended()
        except TimeoutError:
            raise await asyncio.to_thread(self._late, timeout) from None
        return await asyncio.to_thread(self._outcome, record)

    async def _until_ended(self) -> FlowRecord:
        async with follow(self._operations.location, flow_topic(self._own_id())) as news:
            pauses = looks()
            while (record := await asyncio.to_thread(self._ended)) is None:
                await news(next(pauses))
            return record

    def _ended(self) -> FlowRecord | None:
        record = self.status()
        return None if record.ended_ms is None else record

    def _late(self, timeout: float | None) -> ResultTimeout:
        record = self.status()
        counts = record.counts
        text = (
            f"flow {self.name!r} ({self.id}) did not end within {timeout or 0:g} s: {counts.running} jobs are running, "
            f"{counts.queued - counts.following} queued, and {counts.following} wait for other jobs"
        )
        return ResultTimeout(text, self.id, record.state)

    def _outcome(self, record: FlowRecord) -> FlowRecord:
        """Returns a flow that has ended. Raises FlowFailed or FlowCancelled."""
        if record.state == "done":
            return record
        jobs = self._unsuccessful()
        first = next(iter(jobs.items()), None)
        named = "" if first is None else f": {first[0]} ({first[1]})"
        if record.state == "cancelled":
            raise FlowCancelled(f"flow {self.name!r} ({self.id}) was cancelled", record, jobs)
        raise FlowFailed(
            f"flow {self.name!r} ({self.id}) has failed: {record.counts.failed} of its jobs did{named}", record, jobs
        )

    def _unsuccessful(self) -> dict[str, str]:
        """Returns jobs that failed or were cancelled, with their reasons; those that a predecessor failed come last.

        Of many, it returns the oldest: a job is older than its followers, which fail because of it.
        """
        found: list[JobRecord] = []
        for state in (State.FAILED, State.CANCELLED):
            which = JobFilter(flow=self.id, state=state, limit=MOST_NAMED)
            found += self._operations.search(which, Sort.OLDEST).jobs
        found.sort(key=lambda job: (job.reason == PREDECESSOR, job.state is State.CANCELLED, job.seq))
        return {job.id: job.reason or job.state.value for job in found[:MOST_NAMED]}

    def cancel(self) -> str:
        """Cancels the queued jobs of the flow, and asks the running ones to stop. Returns the effect in words.

        What running jobs add to the flow later is cancelled, too. Raises FlowNotFound.
        """
        return self._operations.cancel_flow(self._own_id()).text

    def retry(self) -> str:
        """Queues the failed and cancelled jobs of the flow again; those that wait for others wait again. Returns the
        effect in words. Raises FlowNotFound."""
        return self._operations.retry_flow(self._own_id()).text

    def delete(self) -> str:
        """Deletes the flow with its jobs. Returns the effect in words. Raises Conflict if the flow has not ended,
        FlowNotFound if there is none."""
        return self._operations.delete_flow(self._own_id()).text

    # live state

    async def events(self) -> AsyncGenerator[dict[str, Any]]:
        """Yields the events of this flow, its present state first, until it has ended. Raises FlowNotFound."""
        await asyncio.to_thread(self.status)
        async with self._operations.feed().watch(parse((flow_topic(self.id),))) as watcher:
            async for event in watcher.events():
                if event["type"] != RESYNC:
                    if event.get("removed"):
                        raise FlowNotFound(f"there is no flow {self.id!r}, or no longer")
                    yield event
                    if has_ended(event):
                        return

    def sse(self) -> "Response":
        """Returns the events as server-sent events, for a route of the application with its own authorisation."""
        with extras.required("web", "flow.sse"):
            from chargehand.web.sse import of_flow  # only a server needs the web package

        return of_flow(self._operations, self._own_id())

    def check_made(self) -> None:
        """Raises ChargehandError before the end of the block that makes the flow."""
        if self._new is not None:
            raise ChargehandError(f"flow {self.name!r} does not exist yet: it is made at the end of its block")

    def _own_id(self) -> str:
        self.check_made()
        return self.id


def shown(record: FlowRecord) -> FlowRecord:
    """Returns a flow with the application's own text as its name."""
    return replace(record, name=codec.restore(record.name)) if codec.MARK in record.name else record


def new_flow(
    operations: Operations, name: str, on_end: "Crew[Any, Any] | None", order: Order, within: "Within" = None
) -> Flow:
    """Returns a flow that its block makes. Raises PayloadError if the name or `on_end` cannot be used."""
    words: Any = order
    if words not in ("flow", "arrival"):
        raise PayloadError(f"order is {words!r}; must be 'flow' or 'arrival'")
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PayloadError(f"the name of a flow is {name!r}; must be a string")
    flow_id = new_id()
    end = None if on_end is None else _last_job(on_end, name, operations.location)
    new = check_flow(NewFlow(id=flow_id, name=codec.escape(name), arrival=order == "arrival", on_end=end))
    return Flow(operations, flow_id, name, new=new, within=within)


def sample_end(name: str) -> FlowEnd:
    """Returns a payload such as the job for the end of a flow gets."""
    return FlowEnd(flow=new_id(), name=name, state="done", counts=FlowCounts())


def _last_job(crew: "Crew[Any, Any]", name: str, location: Location) -> NewJob:
    """Returns the job for the end of a flow. Raises ConfigurationError if the crew cannot take a FlowEnd."""
    found: Any = crew
    if not hasattr(found, "new_job"):
        raise ConfigurationError(f"flow {name!r}: on_end is {found!r}; expected what hand.crew(…) returned")
    if crew.location != location:
        raise ConfigurationError(
            f"flow {name!r}: on_end is crew {crew.name!r} of another store, {crew.location}; the flow is of {location}"
        )
    try:
        return crew.new_job(sample_end(name))
    except PayloadError as error:
        raise ConfigurationError(
            f"flow {name!r}: on_end is crew {crew.name!r}, which does not take chargehand.FlowEnd: {error}"
        ) from error
