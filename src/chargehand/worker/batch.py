"""Several jobs performed at once, in a worker whose crew is declared with `batch=`: each has its own end."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

from chargehand import codec, errors
from chargehand.handler import Job
from chargehand.worker import outcome

if TYPE_CHECKING:
    from chargehand.worker.main import Worker

Fatal = errors.ConfigurationError | errors.UnrecoverableError


class Seat:
    """One job of several: what it can ask of the worker, for itself alone, and how it ended."""

    def __init__(self, worker: "Worker", body: dict[str, Any]) -> None:
        self._worker, self.id = worker, str(body["id"])
        self._about = {"id": self.id, "fence": body["fence"]}
        self._follow: list[dict[str, Any]] = []

    def progress(self, done: float | None, total: float | None, stage: str | None, detail: str | None) -> None:
        self._worker.said(self.id, done, total, stage, detail)
        if self.is_cancelled():
            raise errors.Cancelled(f"job {self.id} was cancelled")

    def is_cancelled(self) -> bool:
        return (self.id, self._about["fence"]) in self._worker.cancelled

    def enqueue(self, crew: Any, payload: Any, options: dict[str, Any]) -> str:
        self._follow.append(self._worker.new_job(crew, payload, options))
        return self._follow[-1]["id"]

    def settle(self, result: Any) -> AbstractContextManager[Any]:
        return self._worker.settle(result)  # which refuses: crews with batches are not transactional

    def again(self) -> None:
        """The job is performed from the beginning: it has enqueued nothing yet."""
        self._follow.clear()

    def ended(self, result: Any) -> bytes:
        """The frame for a result, or for an exception in its place."""
        if isinstance(result, BaseException):
            if self.is_cancelled() and outcome.is_cancellation(result):
                return outcome.cancelled(self._about, result)
            self._worker.errors += 1
            return outcome.failure(self._about, result)
        try:
            frame = outcome.done(self._about, result, self._follow, self._worker.gives)
        except BaseException as error:
            return self.ended(error)
        self._worker.done += 1
        return frame


def attempt(worker: "Worker", bodies: list[dict[str, Any]], takes: Any) -> tuple[list[bytes], Fatal | None]:
    """The outcome of each job, and why the process must end, if it must: jobs without an outcome go back unharmed.

    What has ended while others are performed again is said at once: whoever cancelled it waits, and so does the node.
    """
    frames: list[bytes] = []
    left: list[tuple[Seat, Job[Any]]] = []
    for body in bodies:
        seat = Seat(worker, body)
        try:
            payload = codec.as_type(body["payload"], takes, f"the payload of job {seat.id}")
        except BaseException as error:
            frames.append(seat.ended(error))
            continue
        job: Job[Any] = Job(
            id=seat.id, queue=body["queue"], payload=payload, label=body.get("label"),
            attempt=body["attempts"] + 1, crashes=body["crashes"], item=body.get("item"), desk=seat,
        )  # fmt: skip
        left.append((seat, job))
    fatal: Fatal | None = None
    while left:
        results, again = _perform(worker, left)
        for (seat, _), result in zip(left, results, strict=True):
            if isinstance(result, Fatal):
                fatal = result
            elif seat not in again:
                frames.append(seat.ended(result))
        left = [(seat, job) for seat, job in left if seat in again]
        if left and frames:
            worker.some_ended(b"".join(frames))
            frames.clear()
    return frames, fatal


def _perform(worker: "Worker", left: list[tuple[Seat, Job[Any]]]) -> tuple[list[Any], set[Seat]]:
    """What came of each job; and those that must be performed again, because another's cancelling stopped them."""
    assert worker.handler is not None
    try:
        results: Any = worker.finish(worker.handler.perform_batch([job for _, job in left]))
        return _one_for_each(results, len(left)), set()
    except BaseException as error:  # sys.exit(), too, is the jobs' own failure
        stopped = {seat for seat, _ in left if seat.is_cancelled()} if outcome.is_cancellation(error) else set[Seat]()
        again = {seat for seat, _ in left} - stopped if stopped else set[Seat]()
        for seat in again:
            seat.again()
        return [error] * len(left), again


def _one_for_each(results: Any, count: int) -> list[Any]:
    kind = cast(type[Any], type(results))
    if issubclass(kind, str | bytes | Mapping | set | frozenset) or not hasattr(kind, "__len__"):
        raise TypeError(f"perform_batch returned a {kind.__name__}; expected the results in the jobs' order")
    if len(results) != count:
        raise ValueError(f"perform_batch returned {len(results)} results for {count} jobs; expected one for each")
    return list(results)
