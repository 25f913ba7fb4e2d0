"""Crews and references to jobs, as those see them who give work and wait for it."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack

from chargehand import clock, codec
from chargehand.errors import JobCancelled, JobFailed, JobNotFound, PayloadError, summary
from chargehand.host.calls import NoNode, follow
from chargehand.ids import new_ids
from chargehand.model.job import FINISHED, Attempt, JobRecord, NewJob, State
from chargehand.model.topic import RESYNC, has_ended, job_topic, parse
from chargehand.settings.plan import CrewPlan, milliseconds, new_job, with_payload
from chargehand.store import Transaction

if TYPE_CHECKING:
    from starlette.responses import Response

    from chargehand.app import Chargehand

Payload = TypeVar("Payload")
Result = TypeVar("Result")

POLL = 0.25
"""Seconds between looks at a job when no node says that it has ended."""


class JobOptions(TypedDict, total=False):
    """What a job may have of its own; otherwise it gets its crew's."""

    label: str
    key: str
    priority: int
    delay: float
    run_at: datetime
    max_attempts: int
    timeout: float | None
    limit_key: str


_OPTIONS = frozenset(JobOptions.__annotations__)


class Ref(Generic[Result]):
    """A job by its id: what became of it, and what came out."""

    def __init__(self, hand: "Chargehand", job_id: str, gives: Any = None, *, created: bool = True) -> None:
        self._hand, self._gives = hand, gives
        self.id = job_id
        self.created = created
        """False if this job was there already: its id or its unique key was known."""

    def __repr__(self) -> str:
        return f"Ref({self.id!r})"

    def job(self) -> JobRecord:
        """The job as it stands now; JobNotFound if it never was, or was pruned."""
        return self._hand.job(self.id)

    def attempts(self) -> list[Attempt]:
        """Every attempt so far, oldest first."""
        return self._hand.attempts(self.id)

    def cancel(self) -> str:
        """Cancel the job; what will happen, in words."""
        return self._hand.cancel(self.id)[0].text

    def retry(self) -> str:
        """Queue the job again, if it has failed or was cancelled; what will happen, in words."""
        return self._hand.retry(self.id)[0].text

    def wait(self, timeout: float | None = None) -> Result:
        """Wait for the result. JobFailed, JobCancelled, or TimeoutError after so many seconds."""
        limit = None if timeout is None else milliseconds("timeout", timeout) / 1000
        until = None if limit is None else clock.monotonic() + limit
        while True:
            with suppress(NoNode, TimeoutError):
                self._hand.calls.wait(self.id, lambda: self.job().state in FINISHED, until)
            job = self.job()
            if job.state in FINISHED:
                return self._outcome(job)
            if until is not None and clock.monotonic() >= until:
                raise self._late(timeout, job)
            clock.sleep(POLL)

    async def result(self, timeout: float | None = None) -> Result:
        """Wait for the result without blocking the event loop. The same errors as `wait`."""
        limit = None if timeout is None else milliseconds("timeout", timeout) / 1000
        try:
            async with asyncio.timeout(limit):
                return await self._result()
        except TimeoutError:
            raise await asyncio.to_thread(lambda: self._late(timeout, self.job())) from None

    def _late(self, timeout: float | None, job: JobRecord) -> TimeoutError:
        """That it did not end in time; and why, if it waits and nobody will take it."""
        why = self._hand.why_waiting(job.queue) if job.state is State.QUEUED else None
        state = job.state.value + ("" if why is None else f", and nobody will do it: {summary(why)}")
        return TimeoutError(f"job {self.id} did not end within {timeout or 0:g} s; it is {state}")

    async def _result(self) -> Result:
        async with follow(self._hand.location.socket, self.id) as news:
            while True:
                job = await asyncio.to_thread(self.job)
                if job.state in FINISHED:
                    return self._outcome(job)
                await news(POLL)

    async def events(self) -> AsyncGenerator[dict[str, Any]]:
        """This job's events, its present state first, until it has ended. JobNotFound if there is none of that id."""
        async with self._hand.feed().watch(parse((job_topic(self.id),))) as watcher:
            async for event in watcher.events():
                if event["type"] != RESYNC:
                    if event.get("removed"):
                        raise JobNotFound(f"there is no job {self.id!r}, or no more")
                    yield event
                    if has_ended(event):
                        return

    def sse(self) -> "Response":
        """The same as server-sent events, for a route of your own, behind your own authorisation."""
        from chargehand.web.sse import of_job  # only who serves HTTP needs it

        return of_job(self._hand, self.id)

    def _outcome(self, job: JobRecord) -> Result:
        match job.state:
            case State.DONE:
                return codec.from_json(bytes(job.result or b"null"), self._gives, f"the result of job {self.id}")
            case State.CANCELLED:
                raise JobCancelled(f"job {self.id} was cancelled")
            case _:
                raise JobFailed(self.id, job.reason or "failed", job.error)


class Crew(Generic[Payload, Result]):
    """A named group of identical workers, as those see it who give it work."""

    def __init__(self, hand: "Chargehand", plan: CrewPlan, takes: Any, gives: Any) -> None:
        self._hand, self.plan, self.takes, self.gives = hand, plan, takes, gives

    @property
    def name(self) -> str:
        return self.plan.name

    def new_job(self, payload: Payload, *, id: str | None = None, **options: Unpack[JobOptions]) -> NewJob:
        """A checked job for this crew, not enqueued yet. PayloadError if it is not what the crew takes."""
        text = codec.encode_typed(payload, self.takes, f"the payload for crew {self.name!r}")
        return _new_job(self.plan, text, id, options)

    def enqueue(
        self, payload: Payload, *, within: Transaction | None = None, **options: Unpack[JobOptions]
    ) -> Ref[Result]:
        """Enqueue a job; it is durable when this returns. `within` a transaction, it is so when that commits."""
        (done,) = self._hand.enqueue_jobs([self.new_job(payload, **options)], within)
        return Ref(self._hand, done.id, self.gives, created=done.created)

    async def enqueue_async(self, payload: Payload, **options: Unpack[JobOptions]) -> Ref[Result]:
        """`enqueue` without blocking the event loop."""
        job = self.new_job(payload, **options)
        (done,) = await asyncio.to_thread(self._hand.enqueue_jobs, [job], None)
        return Ref(self._hand, done.id, self.gives, created=done.created)

    def enqueue_many(
        self, payloads: Iterable[Payload], *, within: Transaction | None = None, **options: Unpack[JobOptions]
    ) -> list[Ref[Result]]:
        """Enqueue many jobs in one transaction: all of them or none."""
        if "key" in options:
            raise PayloadError("many jobs cannot share one key: enqueue them one by one with keys of their own")
        many = list(payloads)
        model = _new_job(self.plan, "null", None, options)
        what = f"the payload for crew {self.name!r}"
        texts = (codec.encode_typed(payload, self.takes, what) for payload in many)
        jobs = [with_payload(model, job_id, text) for job_id, text in zip(new_ids(len(many)), texts, strict=True)]
        done = self._hand.enqueue_jobs(jobs, within)
        return [Ref(self._hand, each.id, self.gives, created=each.created) for each in done]

    def ref(self, job_id: str) -> Ref[Result]:
        """A job of this crew by its id."""
        return Ref(self._hand, job_id, self.gives)


def _new_job(plan: CrewPlan, text: str, job_id: str | None, options: JobOptions) -> NewJob:
    unknown = options.keys() - _OPTIONS
    if unknown:
        raise PayloadError(f"unknown option {', '.join(sorted(unknown))}; there are: {', '.join(sorted(_OPTIONS))}")
    rest: dict[str, Any] = dict(options)
    run_at = rest.pop("run_at", None)
    if run_at is not None:
        if not isinstance(run_at, datetime) or run_at.tzinfo is None:
            raise PayloadError(f"run_at is {run_at!r}; expected a datetime with a time zone")
        rest["run_at_ms"] = int(run_at.timestamp() * 1000)
    return new_job(plan, text, id=job_id, **rest)
