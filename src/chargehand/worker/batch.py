"""Performs a batch of jobs in a worker whose crew is declared with `batch=`; every job has its own outcome."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from chargehand import errors
from chargehand.handler import Job
from chargehand.worker import perform
from chargehand.worker.context import Context
from chargehand.worker.failures import culprit

if TYPE_CHECKING:
    from chargehand.worker.main import Worker

Fatal = errors.ConfigurationError | errors.UnrecoverableError | errors.WorkerBroken


class BatchedJob(Context):
    """One job of a batch: the context that the handler's Job uses, and the job's outcome."""

    def reset(self) -> None:
        """Discards the jobs that this job enqueued, before it is performed again."""
        self.follow.clear()

    def outcome_frame(self, result: Any) -> bytes:
        """Returns the frame that reports this result, or this exception in place of a result."""
        return self.worker.last_kept(self) + self._outcome_frame(result)

    def _outcome_frame(self, result: Any) -> bytes:
        if isinstance(result, BaseException):
            if self.is_cancelled() and perform.is_cancellation(result):
                return perform.cancelled_frame(self.about, result)
            self.worker.errors += 1
            return perform.failure_frame(self.about, result, self.worker.plan, self.body.get("payload"))
        try:
            frame = perform.done_frame(self.about, result, self.follow, self.worker.gives)
        except BaseException as error:
            return self._outcome_frame(error)
        self.worker.done += 1
        return frame


def attempt(worker: "Worker", bodies: list[dict[str, Any]], takes: Any) -> tuple[list[bytes], Fatal | None]:
    """Performs the jobs and returns the frames not yet sent, and the error that must end the process, if any.

    Jobs without an outcome are returned to the queue. If some jobs must be performed again, the outcomes of the others
    are sent first, because their callers and the node wait for them.
    """
    frames: list[bytes] = []
    left: list[tuple[BatchedJob, Job[Any]]] = []
    for body in bodies:
        context = BatchedJob(worker, body)
        try:
            job = context.job(takes)
        except BaseException as error:
            frames.append(context.outcome_frame(error))
            continue
        left.append((context, job))
    fatal: Fatal | None = None
    while left:
        results, again = _perform(worker, left)
        broken = _unsound(worker, results)
        for (context, _), result in zip(left, results, strict=True):
            if broken is not None and isinstance(result, BaseException):
                fatal, again = broken, set[BatchedJob]()
                frames.append(worker.last_kept(context))
            elif isinstance(result, Fatal):
                fatal = result
                frames.append(worker.last_kept(context))
            elif context not in again:
                frames.append(context.outcome_frame(result))
        left = [(context, job) for context, job in left if context in again]
        if left and frames:
            worker.send_early(b"".join(frames))
            frames.clear()
    return frames, fatal


def _unsound(worker: "Worker", results: list[Any]) -> errors.WorkerBroken | None:
    """Returns why the process is broken, if the failures among the results show that it is."""
    failures = [result for result in results if isinstance(result, BaseException)]
    try:
        for error in sorted(failures, key=lambda error: culprit(error) is None)[:1]:
            worker.check_sound(error)
    except errors.WorkerBroken as broken:
        return broken
    return None


def _perform(worker: "Worker", left: list[tuple[BatchedJob, Job[Any]]]) -> tuple[list[Any], set[BatchedJob]]:
    """Returns each job's result or exception, and the jobs that another job's cancellation interrupted."""
    hooks = worker.hooks
    if hooks is None:
        return _perform_all(worker, left)
    for _, job in left:
        hooks.begin(job)
    results, again = _perform_all(worker, left)
    for (_, job), result in zip(left, results, strict=True):
        hooks.end(job, result if isinstance(result, BaseException) else None)
    return results, again


def _perform_all(worker: "Worker", left: list[tuple[BatchedJob, Job[Any]]]) -> tuple[list[Any], set[BatchedJob]]:
    assert worker.handler is not None
    try:
        results: Any = worker.call(worker.handler.perform_batch, [job for _, job in left])
        return _one_for_each(results, len(left)), set()
    except BaseException as error:  # sys.exit() counts as a failure of the jobs, too
        stopped = (
            {context for context, _ in left if context.is_cancelled()}
            if perform.is_cancellation(error)
            else set[BatchedJob]()
        )
        again = {context for context, _ in left} - stopped if stopped else set[BatchedJob]()
        for context in again:
            context.reset()
        return [error] * len(left), again


def _one_for_each(results: Any, count: int) -> list[Any]:
    """Returns the results as a list. Raises TypeError or ValueError unless there is exactly one per job."""
    kind = cast(type[Any], type(results))
    if issubclass(kind, str | bytes | Mapping | set | frozenset) or not hasattr(kind, "__len__"):
        raise TypeError(
            f"perform_batch returned a {kind.__name__}; expected a sequence of results in the order of the jobs"
        )
    if len(results) != count:
        raise ValueError(f"perform_batch returned {len(results)} results for {count} jobs; expected one per job")
    return list(results)
