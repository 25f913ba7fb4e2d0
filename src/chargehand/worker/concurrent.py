"""A worker of a crew with `concurrency`: performs several jobs at the same time, each as a task of one event loop.

The loop runs in the main thread, reads the work socket and starts a task for each job. A timer of the loop advances the
counter of turns: if a job blocks the loop, the heartbeats of the pulse thread show it. Only such workers import this
module, because it imports asyncio.
"""

import asyncio
import threading
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

from chargehand import clock, errors
from chargehand.protocol.frame import Frame, encode
from chargehand.worker import perform
from chargehand.worker.context import Context
from chargehand.worker.failures import message
from chargehand.worker.forked import leave
from chargehand.worker.main import LOOK_EVERY, Worker

PROGRESS_LIMIT = 32 << 10
"""The size in bytes up to which a report contains the progress of jobs; the rest follows with the next report."""
MOST_BYTES = 9
"""The bytes of a report for one character of a text, at most: half of a surrogate pair."""
MOST_CANCELLED = 1000
"""How many cancellations are kept, at most, of jobs that the worker does not have: it may receive them later."""
TURNS_PER_LAG = 4

Claim = tuple[str, int]
"""The id of a job and the number of its claim."""

_NO_JOB: dict[str, Any] = {}
_job: ContextVar[dict[str, Any]] = ContextVar("chargehand job", default=_NO_JOB)
"""The job whose task runs now; threads that the task starts with `asyncio.to_thread` have it as well."""


class Attempt(Context):
    """One of several jobs: the context that the handler's Job uses, and the task that performs it."""

    worker: "ConcurrentWorker"

    def __init__(self, worker: "ConcurrentWorker", body: dict[str, Any]) -> None:
        super().__init__(worker, body)
        self.task: asyncio.Task[None] | None = None
        self.runs = False
        """Whether the task has begun: one that is cancelled before that would never report its outcome."""

    def check_cancelled(self) -> None:
        """Raises Cancelled if the job was cancelled, or has exceeded its timeout."""
        if self.is_cancelled():
            late = self.worker.is_late(self.claim)
            raise errors.Cancelled(f"job {self.id} {'exceeded its timeout' if late else 'was cancelled'}")

    @contextmanager
    def settle(self, result: Any) -> Generator[Any]:
        """Ends the job in a transaction. Its block must not await: another job could begin a transaction meanwhile."""
        worker, went_on = self.worker, list[bool]()
        other = worker.settling_job
        if other is not None:
            raise errors.ChargehandError(
                f"job {other} awaits inside the block of job.settle(), so job {self.id} cannot begin a transaction: "
                "do not await in that block"
            )
        try:
            mark = asyncio.get_running_loop().call_soon(went_on.append, True)
        except RuntimeError:
            raise errors.ChargehandError(
                "in a crew with concurrency, job.settle() works only in the coroutine, not in a thread that it started"
            ) from None
        worker.settling_job = self.id
        try:
            with worker.settling(self, result) as tx:
                yield tx
                if went_on:
                    raise errors.ChargehandError(
                        f"job {self.id} awaited inside the block of job.settle(), and nothing was written: other jobs "
                        "of the worker ran while its transaction was open; await before the block"
                    )
        finally:
            worker.settling_job = None
            mark.cancel()
        self.follow, self.settled = [], True


class ConcurrentWorker(Worker):
    """One incarnation of a worker that performs several jobs at the same time."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._attempts: dict[Claim, Attempt] = {}
        """The jobs in hand, and a call of `discover`."""
        self._late: set[Claim] = set()
        """The ids and claim numbers of jobs that have exceeded their timeouts."""
        self._open_claims: set[Claim] = set()
        self._claims = self._open_claims
        self._reports: dict[str, dict[str, Any]] = {}
        """The progress, by job, that was not reported yet."""
        self._report_lock = threading.Lock()
        self._outcomes: list[bytes] = []
        """Outcomes of tasks that ended in this turn of the loop."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._until: asyncio.Future[int | None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._takes: Any = None
        self._questions: dict[int, asyncio.Future[dict[str, Any]]] = {}
        """The answers that jobs await, by the numbers of their questions."""
        self.settling_job: str | None = None
        """The job inside whose `settle` the main thread is."""

    # health reports

    def keep_progress(self, job: str, how_far: dict[str, Any]) -> None:
        with self._report_lock:
            self._reports.pop(job, None)
            self._reports[job] = how_far
            self._progress = job, how_far

    def progressed(self) -> None:
        """Does nothing: a job that reports progress may block the loop nevertheless."""

    def report(self) -> None:
        self.unreported, self.reported_at = False, clock.monotonic()
        body = self.health()
        with self._report_lock:
            taken = self._take_reports(body)
        if not self.outlet.send(encode("HEALTH", body)):
            with self._report_lock:
                self._reports = {**taken, **self._reports}
        self.flush_kept()

    def _take_reports(self, body: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Adds the progress that was not reported yet to a report, as far as it fits, and returns it."""
        taken: dict[str, dict[str, Any]] = {}
        size = 0
        while self._reports and size < PROGRESS_LIMIT:
            job, how_far = self._reports.popitem()
            taken[job] = how_far
            size += 100 + MOST_BYTES * sum(len(text) for text in (how_far["stage"] or "", how_far["detail"] or ""))
        self.unreported |= bool(self._reports)
        first = body["current_job"] if "progress" in body else None
        others = [{"job": job, "progress": how_far} for job, how_far in taken.items() if job != first]
        if others:
            body["others"] = others
        return taken

    def logging_context(self) -> dict[str, Any]:
        return _job.get()

    # cancellation, called by the pulse thread

    def cancel(self, job_id: str, claim: int) -> None:
        self._link.cancel(job_id, claim)
        self.cancelled.add((job_id, claim))
        self._interrupt_soon((job_id, claim))

    def expire(self, job_id: str, claim: int) -> None:
        self._link.cancel(job_id, claim)
        self._late.add((job_id, claim))
        self._interrupt_soon((job_id, claim))

    def has_cancelled(self, job_id: Any, claim: Any) -> bool:
        return super().has_cancelled(job_id, claim) or (not self.detached and (job_id, claim) in self._late)

    def is_late(self, claim: Claim) -> bool:
        """Returns whether the job is to end because of its timeout, and not because it was cancelled."""
        return claim in self._late and claim not in self.cancelled

    def _interrupt_soon(self, claim: Claim) -> None:
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._interrupt, claim)

    def _interrupt(self, claim: Claim) -> None:
        """Cancels the task of a job; one that has not begun sees it when it begins."""
        attempt = self._attempts.get(claim)
        if attempt is not None and attempt.task is not None and attempt.runs:
            attempt.task.cancel()

    # the work

    def _work_until_stopped(self, takes: Any) -> int | None:
        self._takes = takes
        self._runner = self._runner or asyncio.Runner()
        code = self.run_task(self._runner.get_loop(), self._serve(), copy_context())
        if self.detached:
            leave(None)  # a process that a job forked, and that has left the job's code
        return code

    async def _serve(self) -> int | None:
        """Performs jobs until asked to stop. Returns an exit code if the process must end."""
        loop = self._loop = asyncio.get_running_loop()
        self._until = loop.create_future()
        loop.add_reader(self._work, self._readable)
        self._turn()
        self._handle_received()
        try:
            return await self._until
        finally:
            loop.remove_reader(self._work)
            if self._timer is not None:
                self._timer.cancel()

    def _turn(self) -> None:
        """Advances the counter that shows that the loop runs."""
        if self.detached:
            leave(None)
        assert self._loop is not None
        self.turns += 1
        self._timer = self._loop.call_later(self._turn_every(), self._turn)

    def _turn_every(self) -> float:
        return self.plan["lag"] / TURNS_PER_LAG if self._attempts else self.plan["turn"]

    def _readable(self) -> None:
        if self.detached:
            leave(None)
        try:
            self.inbox.receive()
            self._handle_received()
        except Exception as error:  # the loop would only log it
            self._fail(error)

    def _handle_received(self) -> None:
        for number in [number for number in self.inbox.answers if number in self._questions]:
            asked = self._questions.pop(number)
            answer = self.inbox.answers.pop(number)
            if not asked.done():
                asked.set_result(answer)
        for frame in self.inbox.received():
            self._handle(frame)

    # questions to the node

    def ask(self, context: Context, number: int, question: bytes) -> dict[str, Any]:
        loop = self._loop
        assert loop is not None
        if threading.current_thread() is not threading.main_thread():
            asked = asyncio.run_coroutine_threadsafe(self.ask_async(context, number, question), loop)
            while True:
                try:
                    return asked.result(LOOK_EVERY)
                except TimeoutError:
                    if asked.done():
                        raise
                    context.check_cancelled()
        try:
            return super().ask(context, number, question)
        finally:
            loop.call_soon(self._handle_received)  # what was read besides the answer

    async def ask_async(self, context: Context, number: int, question: bytes) -> dict[str, Any]:
        assert self._loop is not None
        context.check_cancelled()
        asked: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self.inbox.expected.add(number)
        self._questions[number] = asked
        try:
            self._send(question)
            return await asked
        finally:
            self.inbox.expected.discard(number)
            self._questions.pop(number, None)

    def _handle(self, frame: Frame) -> None:
        assert self._loop is not None
        if frame.kind == "STOP":
            self._stopping = True  # the socket is still read: jobs in hand may await answers of the node
            self._perhaps_stop()
        elif frame.kind == "LOOK":
            body = frame.read_restored()
            attempt = Attempt(self, {"id": f"{self.plan['crew']}/?", "fence": 0})
            self._begin_task(attempt, self._look(attempt, body["after"], body["limit"]))
        elif frame.kind == "JOB":
            attempt = Attempt(self, frame.read_restored())
            self._open_claims.add(attempt.claim)
            self.current = self.current or attempt.id
            self.forward_logging()
            self._begin_task(attempt, self._perform_one(attempt))
            self.changed()

    def _begin_task(self, attempt: Attempt, coroutine: Coroutine[Any, Any, bytes]) -> None:
        assert self._loop is not None
        assert self._timer is not None
        self.turns += 1
        self._attempts[attempt.claim] = attempt
        if self._timer.when() - self._loop.time() > self._turn_every():  # nothing was in hand until now
            self._timer.cancel()
            self._turn()
        attempt.task = self._loop.create_task(self._run(attempt, coroutine), name=attempt.id)
        attempt.task.add_done_callback(partial(self._check_task, attempt))

    def _check_task(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        """Ends the process if a task has ended without an outcome: its job would never end.

        A task that its own job cancels counts as cancelled for asyncio, also if the job returns before it awaits again.
        """
        if task.cancelled() and attempt.claim not in self._attempts:
            return
        error = task.exception() if not task.cancelled() else asyncio.CancelledError()
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._until is not None and not self._until.done():
            self._until.set_exception(error)

    async def _run(self, attempt: Attempt, coroutine: Coroutine[Any, Any, bytes]) -> None:
        """Runs the task of a job or of a look, and sends its outcome."""
        attempt.runs = True
        try:
            frame = await coroutine
        except (errors.ConfigurationError, errors.UnrecoverableError) as error:
            self._flush()
            self._stop_with(self._fatal(error, error.exit_code, self.last_kept(attempt), attempt.body.get("payload")))
            return
        except errors.WorkerBroken as error:
            last = attempt.settled_frame() if attempt.settled else self.last_kept(attempt)
            self._leave_broken(error, b"".join(self._outcomes) + last, attempt.body.get("payload"))
        self._ended(attempt, self.last_kept(attempt) + frame)

    def _ended(self, attempt: Attempt, frame: bytes) -> None:
        """Forgets a job, and sends its outcome with those of other jobs that end in this turn of the loop."""
        assert self._loop is not None
        claim = attempt.claim
        del self._attempts[claim]
        self._open_claims.discard(claim)
        with self._report_lock:
            self._reports.pop(attempt.id, None)
            if self._progress is not None and self._progress[0] == attempt.id:
                self._progress = None
        self._forget_cancelled(claim)
        if attempt.id == self.current:
            self.current = next((job for job, _ in self._open_claims), None)
        self.turns += 1
        if not self._outcomes:
            self._loop.call_soon(self._flush)
        self._outcomes.append(frame)

    def _forget_cancelled(self, claim: Claim) -> None:
        for claims in (self.cancelled, self._late):
            claims.discard(claim)
            if len(claims) > MOST_CANCELLED:
                claims.intersection_update(self._open_claims)
        if not self.cancelled and not self._late:
            self._link.clear()

    def _flush(self) -> None:
        """Sends the outcomes of tasks that have ended."""
        frames, self._outcomes = b"".join(self._outcomes), []
        if frames:
            self._send(frames)
        self._perhaps_stop()

    def _perhaps_stop(self) -> None:
        if self._stopping and not self._attempts and not self._outcomes:
            self._stop_with(None)

    def _stop_with(self, code: int | None) -> None:
        if self._until is not None and not self._until.done():
            self._until.set_result(code)

    async def _perform_one(self, attempt: Attempt) -> bytes:
        """Performs one job and returns the frame with its outcome."""
        performer = self.handler
        assert performer is not None
        _job.set(attempt.body)
        try:
            attempt.check_cancelled()
            job = attempt.job(self._takes)
            with self.around(job):
                waited: Any = performer.perform(job)
                result = await waited
                if self.detached:
                    leave(None)
                if attempt.settled:
                    return attempt.settled_frame()
                frame = perform.done_frame(attempt.about, result, attempt.follow, self.gives)
            self.done += 1
            return frame
        except (errors.ConfigurationError, errors.UnrecoverableError):
            raise
        except BaseException as error:  # sys.exit() and a stray CancelledError count as failures of the job, too
            if self.detached:
                leave(error)
            await self._check_sound(attempt, error)
            return self._failure_frame(attempt, error)

    def _failure_frame(self, attempt: Attempt, error: BaseException) -> bytes:
        if attempt.settled:
            return attempt.settled_frame()
        late = self.is_late(attempt.claim)
        if late and (perform.is_cancellation(error) or perform.is_failure(error)):
            return perform.timed_out_frame(attempt.about, error)  # also if what it does when it is cancelled fails
        if attempt.is_cancelled() and perform.is_cancellation(error):
            return perform.cancelled_frame(attempt.about, error)
        self.errors += 1
        return perform.failure_frame(attempt.about, error, self.plan, attempt.body.get("payload"))

    async def _check_sound(self, attempt: Attempt, error: BaseException) -> None:
        """Raises WorkerBroken if the process can do no job after this exception, by its kind or by a self-test."""
        if not self._needs_test(error) or attempt.is_cancelled():
            return
        assert self.handler is not None
        try:
            sound: Any = self.handler.is_sound()
            if hasattr(sound, "__await__"):
                sound = await sound
        except BaseException as unsound:
            if attempt.is_cancelled() and perform.is_cancellation(unsound):
                return  # the job was cancelled meanwhile: this says nothing about the process
            raise errors.WorkerBroken(f"is_sound raised {type(unsound).__name__}: {message(unsound)}") from unsound
        if not sound:
            raise errors.WorkerBroken("is_sound returned False after a failure") from error

    async def _look(self, attempt: Attempt, after: str | None, limit: int) -> bytes:
        """Calls the handler's `discover` and returns the frame with the items."""
        assert self.handler is not None
        try:
            attempt.check_cancelled()
            found: Any = self.handler.discover(after, limit)
            if hasattr(found, "__await__"):
                found = await found
            return self._found_frame(found, limit)
        except BaseException as error:
            if self.detached:
                leave(error)
            if attempt.is_cancelled() and perform.is_cancellation(error):
                error = TimeoutError("discover took longer than its time limit, and was cancelled")
            return self._not_found_frame(error)
