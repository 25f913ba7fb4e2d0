"""Tests without processes: perform one job in this process, or let a function perform a crew's jobs."""

import inspect
import os
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

import msgspec

from chargehand import clock, codec, errors
from chargehand.app import Chargehand
from chargehand.crew import Crew, Ref, outcome
from chargehand.handler import Handler
from chargehand.host.operations import Operations
from chargehand.ids import new_id
from chargehand.model.job import Attempt, JobRecord, NewJob, State, restored
from chargehand.worker.foreground import Foreground, LocalContext
from chargehand.worker.perform import check_parameters, has_own, make, result_text

Payload = TypeVar("Payload")
Result = TypeVar("Result")


def perform(
    handler: type[Handler[Payload, Result]] | Handler[Payload, Result],
    payload: Payload | None = None,
    *,
    item: str | None = None,
    attempt: int = 1,
    enqueued: list[NewJob] | None = None,
    hand: Chargehand | None = None,
    kept: Any = None,
    results: Mapping[str, Sequence[Any]] | None = None,
) -> Result:
    """Performs one job in this process and returns its result, as a caller would receive it. Exceptions are raised
    unchanged.

    A handler class is set up and torn down; a handler object is used as it is, which lets tests share a model. The jobs
    that the job enqueues or spawns are appended to `enqueued`. With `hand`, `job.settle` writes to its store and
    `job.enqueue` enqueues. `kept` is the checkpoint of an earlier attempt. `results` are those of predecessors, by the
    names of their queues; JobFailed or JobCancelled stands for one that has no result. `job.folder` and `job.scratch`
    are temporary.
    """
    whole = isinstance(handler, type)
    if isinstance(handler, str):
        raise TypeError(
            f"perform() takes the class of a handler, not its name: import it from the module of {handler!r}"
        )
    given: Any = handler
    if hasattr(given, "plan"):
        raise TypeError(
            f"perform() takes the class of a handler, not a crew: import the class that {given.plan.handler!r} names; "
            "run_all(hand) performs what is enqueued"
        )
    kind: Any = handler if whole else type(handler)
    if not (isinstance(kind, type) and issubclass(kind, Handler)):
        raise TypeError(f"perform() takes the class of a handler, derived from chargehand.Handler, not {handler!r}")
    here = Foreground(_made(handler) if isinstance(handler, type) else handler)
    crews = None if hand is None else {name: crew.plan for name, crew in hand.crews.items()}
    context = LocalContext(hand, crews=crews, commit=hand is not None, results=results)
    what = f"the payload for {type(here.handler).__qualname__}"
    try:
        if whole:
            here.set_up()
        try:
            taken = here.payload_of(codec.to_json(payload, what), what)
            text = here.perform(taken, context, id=new_id(), queue="test", item=item, attempt=attempt, kept=kept)
        finally:
            if whole:
                here.tear_down()
    finally:
        here.close()
        context.close()
        if enqueued is not None:
            enqueued += [restored(job) for job in context.enqueued]
    return codec.from_json(text, here.handler.types()[1], "the result")


def _made(kind: type[Handler[Any, Any]]) -> Handler[Any, Any]:
    """Creates a handler. Raises ConfigurationError if a worker could not use it."""
    method = "perform" if has_own(kind, "perform") else "perform_batch"
    check_parameters(kind.__qualname__, kind, method, "job" if method == "perform" else "jobs")
    return make(kind.__qualname__, kind)


class _FakeRef(Ref[Any]):
    """A job that was performed when it was enqueued."""

    def __init__(self, operations: Operations, job_id: str, gives: Any, records: dict[str, JobRecord]) -> None:
        super().__init__(operations, job_id, gives)
        self._records = records

    def job(self) -> JobRecord:
        if self.id not in self._records:
            raise errors.JobNotFound(f"there is no job {self.id!r}: it was not enqueued in this fake crew")
        return restored(self._records[self.id])

    def attempts(self) -> list[Attempt]:
        job = self.job()
        outcome = "done" if job.state is State.DONE else str(job.reason)
        return [
            Attempt(
                claim="1", node="fake", worker=None, pid=os.getpid(), started_ms=job.created_ms, duration_ms=0,
                outcome=outcome, error=job.error,
            )
        ]  # fmt: skip

    def cancel(self) -> str:
        self.job()
        return "has ended already"

    def retry(self) -> str:
        raise errors.ChargehandError("a fake job is performed once, when it is enqueued; enqueue it again instead")

    def wait(self, timeout: float | None = None) -> Any:
        return outcome(self.job(), self._gives)

    async def result(self, timeout: float | None = None) -> Any:
        return outcome(self.job(), self._gives)


@contextmanager
def fake(crew: Crew[Payload, Result], function: Callable[[Payload], Result]) -> Generator[list[Payload]]:
    """Lets a function perform the crew's jobs within the block, at once and in this process: no store, no node, no
    handler.

    The function receives the payload as a handler would; `wait` and `result` of the Ref return its result or raise its
    exception. An AssertionError is the test's own and is raised at once. Delays are ignored, and so is a rollback of
    the transaction in which a job was enqueued; the store does not contain these jobs. Yields the list of payloads.
    """
    if not hasattr(crew, "new_job"):
        raise TypeError(f"fake() takes what hand.crew(…) returned, not {crew!r}")
    stand_in: Any = function
    if isinstance(stand_in, type) and issubclass(stand_in, Handler):
        raise TypeError(
            f"fake() needs a function in place of the handler: lambda payload: perform({stand_in.__name__}, payload), "
            "or one that returns a result"
        )
    if not callable(function):
        raise TypeError(f"fake() needs a function that performs the jobs, such as lambda payload: {function!r}")
    if inspect.iscoroutinefunction(function):
        raise TypeError("fake() needs a plain function, not a coroutine function")
    operations = crew._operations  # pyright: ignore[reportPrivateUsage]
    given: list[Payload] = []
    records: dict[str, JobRecord] = {}

    def ref(job_id: str) -> Any:
        return _FakeRef(operations, job_id, crew.gives, records)

    def enqueue(payload: Payload, *, within: Any = None, **options: Any) -> Any:
        job = crew.new_job(payload, **options)
        taken: Payload = codec.from_json(job.payload, crew.takes, f"the payload for crew {crew.name!r}")
        given.append(taken)
        records[job.id] = _record(job, *_done(function, taken, crew.gives))
        return ref(job.id)

    async def enqueue_async(payload: Payload, **options: Any) -> Any:
        return enqueue(payload, **options)

    def enqueue_many(payloads: Iterable[Payload], *, within: Any = None, **options: Any) -> list[Any]:
        if "key" in options:
            raise errors.PayloadError(
                "several jobs cannot share one key: enqueue them one by one, each with its own key"
            )
        many = list(payloads)
        for payload in many:
            crew.new_job(payload, **options)  # check all payloads before the first job is performed
        return [enqueue(payload, **options) for payload in many]

    patched: dict[str, Any] = {"enqueue": enqueue, "enqueue_async": enqueue_async, "enqueue_many": enqueue_many}
    with mock.patch.multiple(crew, ref=ref, **patched):
        yield given


def _done(function: Callable[[Any], Any], payload: Any, gives: Any) -> tuple[State, str | None, str, str | None]:
    """Calls the function and returns the job's state, reason, result as JSON, and error."""
    try:
        text = result_text(function(payload))
    except AssertionError:
        raise
    except errors.Cancelled:
        return State.CANCELLED, "cancelled", "null", None
    except errors.GiveUp as error:
        return State.FAILED, "gave up", "null", str(error.reason)
    except Exception as error:
        return State.FAILED, "raised", "null", "".join(traceback.format_exception(error))
    codec.from_json(text, gives, "the fake's result")  # the fake must return what a handler may return
    return State.DONE, None, text, None


def _record(job: NewJob, state: State, reason: str | None, result: str, error: str | None) -> JobRecord:
    now = clock.now_ms()
    return JobRecord(
        id=job.id, queue=job.queue, label=job.label, payload=msgspec.Raw(job.payload.encode()), state=state,
        priority=job.priority, run_at_ms=now, failures=int(state is State.FAILED), max_attempts=job.max_attempts,
        crashes=0, interruptions=0, timeout_ms=job.timeout_ms, key=job.key, progress=None,
        result=msgspec.Raw(result.encode()) if state is State.DONE else None, error=error, reason=reason,
        created_ms=now, started_ms=now, finished_ms=now, claim="1", node=None, worker=None, limit_key=job.limit_key,
        item=None, cancel_ms=None, tags=job.tags or None,
    )  # fmt: skip
