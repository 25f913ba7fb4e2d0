"""The worker process: the main thread receives a job, performs it and sends the outcome; the pulse thread reports
health.

Two sockets connect it to the node. The work socket carries jobs in and outcomes out; only the main thread uses it, and
it may block. The pulse socket carries health reports out and requests in; it never blocks the work, and only the latest
report matters. Nothing heavy is imported until the handler imports it.
"""

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Set
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from chargehand import clock, codec, errors, handler, tracing
from chargehand.handler import Handler
from chargehand.processes.prctl import adopt_orphans, die_with_parent
from chargehand.protocol.frame import WORK_FRAME_LIMIT, Frame, encode
from chargehand.worker import perform, thread_cap
from chargehand.worker.context import Context
from chargehand.worker.failures import culprit, describe, message, reserve_descriptor, spare_descriptor
from chargehand.worker.forked import ForkGuard, ForkLink, flush_output, leave
from chargehand.worker.hand import Hand
from chargehand.worker.pulse import (
    REPORT_INTERVAL,
    FrameWriter,
    Inbox,
    Pulse,
    StackFile,
    catch_signals,
    kill_own_session,
)

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Coroutine
    from contextvars import Context as CopiedContext

    from chargehand.system.job_files import JobFiles
    from chargehand.worker.hooks import WorkerHooks
    from chargehand.worker.keeping import Keeper

TEXT_LIMIT = 200
"""The maximum length of a progress text in characters."""
REASON_LIMIT = 4000
LOOK_EVERY = 0.1
"""Seconds after which a job that waits for an answer of the node checks whether it was cancelled."""
NO_CLAIMS: frozenset[tuple[str, int]] = frozenset()


class Worker:
    """One incarnation of a worker, and what the contexts of its jobs need of it."""

    def __init__(
        self,
        work: int,
        pulse: int,
        inbox: Inbox,
        frames: Iterator[Frame],
        plan: dict[str, Any],
        wake: int,
        link: ForkLink,
        hand: Hand | None = None,
    ) -> None:
        self._work, self.inbox, self._frames, self.plan, self._wake = work, inbox, frames, plan, wake
        self._writing = threading.Lock()
        """Held while the work socket is written to: a job may ask the node from any of its threads."""
        self._keeper: Keeper | None = None
        self._files: JobFiles | None = None
        self._hand = hand
        self.outlet, self._link = FrameWriter(pulse), link
        self.detached = False
        """Whether this is a process that the handler forked, which must not act as the worker."""
        self.status = "starting"
        self.paused: bool = plan["paused"]
        self.current: str | None = None
        self.cancelled: set[tuple[str, int]] = set()
        """The ids and claim numbers of current jobs that have been cancelled."""
        self.turns = 0
        """Incremented only by the main thread, which proves that it is not stuck."""
        self.done = 0
        self.errors = 0
        self.memory = 0
        """Resident memory in bytes, updated with every heartbeat."""
        self.pulse = 0
        """The id of the pulse thread."""
        self._progress: tuple[str, dict[str, Any]] | None = None
        """The id of a job and its progress; in a batch, that of the job which reported last."""
        self.unreported = False
        self.reported_at = 0.0
        self._claims: Set[tuple[str, int]] = NO_CLAIMS
        """The ids and claim numbers of the current jobs."""
        self._forwarding = False
        self._body: dict[str, Any] = {}
        self._store: Any = None
        self._runner: Any = None
        self._task: Any = None
        self.handler: Handler[Any, Any] | None = None
        self.hooks: WorkerHooks | None = None
        """The application's hooks around attempts, if there are any."""
        self.gives: Any = None
        """The handler's result type, if results can be checked against it."""

    # health reports
    def changed(self) -> None:
        """Reports the new state at once, or within REPORT_INTERVAL if the last report was sent a moment ago."""
        if clock.monotonic() - self.reported_at >= REPORT_INTERVAL:
            self.report()
        elif not self.unreported:
            self.unreported = True
            os.write(self._wake, b"\0")

    def report(self) -> None:
        """Sends the current state to the node."""
        self.unreported, self.reported_at = False, clock.monotonic()
        self.outlet.send(encode("HEALTH", self.health()))
        self.flush_kept()

    def flush_kept(self) -> None:
        """Sends the checkpoints of jobs that are due, without blocking."""
        if self._keeper is not None and self._keeper.flush():
            self.unreported = True  # some are not due yet

    def health(self) -> dict[str, Any]:
        """Returns the current state, as it is sent to the node."""
        body: dict[str, Any] = {
            "component_id": self.plan["component"],
            "incarnation": self.plan["life"],
            "status": "paused" if self.paused and self.status == "healthy" else self.status,
            "current_job": self.current,
            "turns": self.turns + self.inbox.turns,
            "done": self.done,
            "errors": self.errors,
            "memory": self.memory,
            "pulse": self.pulse,
        }
        if self._progress is not None:
            body["current_job"], body["progress"] = self._progress
        return body

    # what jobs report and ask
    def report_progress(
        self, job: str, claim: int, done: float | None, total: float | None, stage: str | None, detail: str | None
    ) -> None:
        """Reports a job's progress."""
        how_far: dict[str, Any] = {
            "done": perform.number("done", done),
            "total": perform.number("total", total),
            "stage": None if stage is None else str(stage)[:TEXT_LIMIT],
            "detail": None if detail is None else str(detail)[:TEXT_LIMIT],
        }
        if self.detached:
            self._link.send(job, claim, how_far)
            return
        self.progressed()
        self.keep_progress(job, how_far)
        self.changed()

    def progressed(self) -> None:
        """Advances the counter of turns, because a job reports progress."""
        self.turns += 1

    def keep_progress(self, job: str, how_far: dict[str, Any]) -> None:
        """Keeps a job's progress for the next report."""
        self._progress = job, how_far

    def relay(self, job_id: str, claim: int, how_far: dict[str, Any]) -> None:
        """Reports progress that a process forked by the job has sent; called by the pulse thread."""
        if self.holds((job_id, claim)):
            self.keep_progress(job_id, how_far)
            self.unreported = True

    def holds(self, claim: tuple[str, int]) -> bool:
        """Returns whether this is a claim on one of the current jobs."""
        return claim in self._claims

    def is_cancelled(self) -> bool:
        return self.has_cancelled(self._body.get("id"), self._body.get("fence"))

    def has_cancelled(self, job_id: Any, claim: Any) -> bool:
        """Returns whether the job was cancelled, also in a process that it forked."""
        if self.detached:
            return self._link.is_cancelled(job_id, claim)
        return bool(self.cancelled) and (job_id, claim) in self.cancelled

    def cancel(self, job_id: str, claim: int) -> None:
        """Marks a job as cancelled and interrupts its coroutine, unless it is in a batch; called by the pulse
        thread."""
        self._link.cancel(job_id, claim)
        self.cancelled.add((job_id, claim))  # last: `_end` clears both if this has an entry
        task, runner = self._task, self._runner
        if self.is_cancelled() and task is not None and runner is not None:
            runner.get_loop().call_soon_threadsafe(task.cancel)

    def expire(self, job_id: str, claim: int) -> None:
        """Ends a job that has exceeded its timeout; sent only to workers that perform several at the same time."""
        self.cancel(job_id, claim)

    def not_detached(self, what: str, instead: str) -> None:
        """Raises ChargehandError in a process that a job forked."""
        if self.detached:
            raise errors.ChargehandError(f"{what} works only in the process that performs the job: {instead}")

    @property
    def keeper(self) -> "Keeper":
        """The checkpoints of the jobs in hand."""
        if self._keeper is None:
            from chargehand.worker.keeping import Keeper

            self._keeper = Keeper(self._send, self._send_now, self._keep_later)
        return self._keeper

    def _keep_later(self) -> None:
        """Makes the pulse thread send checkpoints when they are due."""
        if not self.unreported:
            self.unreported = True
            os.write(self._wake, b"\0")

    def job_files(self) -> "JobFiles":
        """The folders of jobs."""
        if self._files is None:
            from chargehand.system.job_files import JobFiles

            self._files = JobFiles(self.plan.get("files"), self.plan.get("files_limit"), self.plan.get("files_owner"))
        return self._files

    def ask(self, context: Context, number: int, question: bytes) -> dict[str, Any]:
        """Asks the node, and returns its answer to the question of this number. Any thread of the job may call it.

        Raises Cancelled if the job is cancelled meanwhile.
        """
        inbox = self.inbox
        inbox.expected.add(number)
        try:
            self.turns += 1
            self._send(question)
            while number not in inbox.answers:
                context.check_cancelled()
                if not self.holds(context.claim):
                    raise errors.ChargehandError(f"job {context.id} has ended: it cannot ask the node any more")
                if inbox.reading.acquire(timeout=LOOK_EVERY):
                    try:
                        if number not in inbox.answers:
                            inbox.look(LOOK_EVERY)
                    finally:
                        inbox.reading.release()
            return inbox.answers[number]
        finally:
            inbox.expected.discard(number)
            inbox.answers.pop(number, None)

    async def ask_async(self, context: Context, number: int, question: bytes) -> dict[str, Any]:
        """Asks the node without blocking the event loop."""
        import asyncio

        return await asyncio.to_thread(self.ask, context, number, question)

    @contextmanager
    def settling(self, context: Context, result: Any) -> Generator[Any]:
        """Opens a transaction that ends a job with this result and the jobs that it has enqueued."""
        self.not_detached("job.settle()", "call it there, after the processes that it forked have ended")
        if self.plan.get("store") is None:
            raise errors.ConfigurationError(
                f"crew {self.plan['crew']!r} is not declared transactional=True, so job.settle() cannot be used in it"
            )
        import msgspec

        from chargehand.model.job import NewJob, Settlement, State
        from chargehand.model.records import Holder
        from chargehand.stores import open_store

        body = context.body
        text = perform.result_text(result, self.gives)
        if self._store is None:
            self._store = open_store(self.plan["store"], create=False, synchronous=self.plan["synchronous"])
        lost = errors.ClaimLost(f"job {body['id']} was given to another worker; nothing was written")
        with self._store.transaction() as tx:
            if not tx.jobs.holds(body["seq"], body["fence"]):
                raise lost
            yield tx
            took = int((clock.monotonic() - context.began) * 1000)
            settlement = Settlement(
                id=body["id"], seq=body["seq"], claim=body["fence"], queue=body["queue"], state=State.DONE,
                outcome="done", result=text, worker=self.plan["component"], pid=os.getpid(), duration_ms=took,
                follow=msgspec.convert(context.follow, tuple[NewJob, ...]), flow=body.get("flow"),
            )  # fmt: skip
            # At the end, so that a transaction that takes long locks no row of the job, which the node writes as well.
            if tx.jobs.settle([settlement], Holder(self.plan["node"], self.plan["node_life"])):
                raise lost
            ended = tx.ended_flows
        context.ended_flows = tuple(ended)

    # the work

    def serve(self) -> int:
        """Sets up the handler, performs jobs until asked to stop, and tears down. Returns the exit code."""
        try:
            kind = perform.load(self.plan["handler"], self.plan["batch"], self.plan.get("concurrency", 1))
            perform.check_types(self.plan, kind)
            self.handler = perform.make(self.plan["handler"], kind)
            self.handler.ask_for_time = self._more_time
            self.handler.threads = self.plan["threads"]
            self._load_hooks()
            self.forward_logging()
            self.call(self.handler.set_up)
        except Exception as error:
            return self._fatal(error, errors.EXIT_SET_UP)
        except SystemExit as left:
            if left.code is None or isinstance(left.code, int):
                raise  # the process exits with this code, which says whether a restart can help
            return self._fatal(left, errors.EXIT_SET_UP)
        takes, gives = self.handler.types()
        self.gives = perform.checkable(gives)
        self.status = "healthy"
        self.report()
        handler.ready = True
        self._send(encode("READY", {}))
        code = self._work_until_stopped(takes)
        if code is not None:
            return code
        self.status = "stopping"
        self.report()
        self.call(self.handler.tear_down)
        return 0

    def _load_hooks(self) -> None:
        functions = self.plan.get("hooks")  # a node of an earlier version does not send them
        if functions:
            from chargehand.worker.hooks import WorkerHooks

            self.hooks = WorkerHooks(self, functions)

    def around(self, job: Any) -> AbstractContextManager[None]:
        """Returns the context in which a job is performed: its span, and the application's hooks."""
        return tracing.span_of(job) if self.hooks is None else self.hooks.around(job)

    def _work_until_stopped(self, takes: Any) -> int | None:
        """Performs jobs until asked to stop. Returns an exit code if the process must end."""
        for frame in self._frames:
            if frame.kind == "STOP":
                break
            if frame.kind == "LOOK":
                self._discover(frame.read_restored())
            if frame.kind in ("JOB", "AHEAD", "JOBS"):
                handle = self._handlers[frame.kind]
                code = handle(self, frame.read_restored(), takes)
                if code is not None:
                    return code
        return None

    def forward_logging(self) -> None:
        """Sends log records with the job's id, once the handler's code has imported `logging` and not configured it."""
        if not self._forwarding and "logging" in sys.modules:
            # If a handler has used up the descriptors even so, the next job tries again.
            with spare_descriptor(), suppress(ImportError, OSError):
                from chargehand.worker.logs import forward

                self._forwarding = forward(
                    self.logging_context, self.plan.get("log_secret", ""), self.plan.get("hide", ())
                )

    def logging_context(self) -> dict[str, Any]:
        """Returns the job to which a log record belongs that is made now, as its frame has it; nothing if it belongs to
        no single job."""
        return self._body if self.current is not None else {}

    def _more_time(self, seconds: float) -> None:
        self.not_detached("more_time()", "call it there")
        self._send(encode("MORETIME", {"seconds": perform.number("seconds", seconds)}))

    def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a method of the handler and returns its result. A process that the method forked ends here."""
        try:
            result = self._resolve(method(*arguments))
        except BaseException as error:
            if self.detached:
                leave(error)
            raise
        if self.detached:
            leave(None)
        return result

    def _resolve(self, result: Any) -> Any:
        """Returns a plain value unchanged, and the result of an awaitable."""
        if not hasattr(result, "__await__"):
            return result
        import asyncio

        async def waited() -> Any:
            self._task = asyncio.current_task()
            if self.is_cancelled():  # cancelled before the task existed
                raise errors.Cancelled(f"job {self.current} was cancelled")
            return await result

        import contextvars

        self._runner = self._runner or asyncio.Runner()
        try:
            return self.run_task(self._runner.get_loop(), waited(), contextvars.copy_context())
        finally:
            self._task = None

    def run_task(
        self, loop: "AbstractEventLoop", coroutine: "Coroutine[Any, Any, Any]", context: "CopiedContext"
    ) -> Any:
        """Runs the event loop until a task with this coroutine has ended, and returns its result.

        asyncio raises SystemExit and KeyboardInterrupt out of the loop if any task or callback raises them: the loop is
        entered again, as after `loop.stop()`, so that no task of this job is left for the next one.
        """
        task = loop.create_task(coroutine, context=context)
        while True:
            try:
                return loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt, RuntimeError) as error:
                if self.detached:
                    leave(error)
                own = task.done() and not task.cancelled() and task.exception() is error
                if own or loop.is_closed():
                    raise
                loop.call_exception_handler({"message": "a job would have ended the event loop", "exception": error})
                if task.done():  # it ended in the same turn of the loop as what another task or callback raised
                    return task.result()

    def _perform_first(self, body: dict[str, Any], takes: Any) -> int | None:
        """Performs a job that needs no permit: the node knows that this worker begins it at once."""
        if self._hand is not None:
            self._hand.resume()
        return self._perform(body, takes)

    def _perform(self, body: dict[str, Any], takes: Any) -> int | None:
        """Performs one job and sends its outcome. Returns an exit code if the process must end."""
        self._begin(body["id"], body, {(body["id"], body["fence"])})
        context = Context(self, body)
        code: int | None = None
        try:
            frame = self._attempt(context, takes)
        except (errors.ConfigurationError, errors.UnrecoverableError) as error:
            frame, code = None, self._fatal(error, error.exit_code, self.last_kept(context), body.get("payload"))
        except errors.WorkerBroken as error:
            last = context.settled_frame() if context.settled else self.last_kept(context)
            self._leave_broken(error, last, body.get("payload"))
        if self._hand is not None:
            self._hand.ended(well=frame is not None and perform.is_success(frame))
        kept = self.last_kept(context)
        self._end(kept + frame if kept and frame else frame)
        return code

    def last_kept(self, context: Context) -> bytes:
        """Returns the checkpoint of an attempt that has ended, if the node does not have it, and removes the files of
        the attempt."""
        context.remove_scratch()
        return b"" if self._keeper is None else self._keeper.take(context.claim)

    def _perform_ahead(self, body: dict[str, Any], takes: Any) -> int | None:
        """Performs jobs that were sent ahead, one after the other, as far as the node permits it. Returns an exit code
        if the process must end."""
        hand = self._hand
        assert hand is not None
        hand.add(body)
        while (job := hand.next()) is not None:
            code = self._perform(job, takes)
            if code is not None:
                return code
        return None

    def _perform_batch(self, bodies: list[dict[str, Any]], takes: Any) -> int | None:
        """Performs a batch of jobs and sends their outcomes. Returns an exit code if the process must end."""
        with spare_descriptor():
            from chargehand.worker.batch import attempt

        only = bodies[0] if len(bodies) == 1 else {}
        self._begin(bodies[0]["id"], only, {(body["id"], body["fence"]) for body in bodies})
        frames, fatal = attempt(self, bodies, takes)
        payloads = [body.get("payload") for body in bodies]
        if isinstance(fatal, errors.WorkerBroken):
            self._leave_broken(fatal, b"".join(frames), payloads)
        self._end(b"".join(frames))
        return None if fatal is None else self._fatal(fatal, fatal.exit_code, payload=payloads)

    def _begin(self, first: str, only: dict[str, Any], claims: Set[tuple[str, int]]) -> None:
        """Sets the state for a job or a batch: the id of the first job, the body if there is one job, all claims."""
        self.turns += 1
        self.current, self._body, self._claims = first, only, claims
        self._progress = None
        self.forward_logging()
        self.changed()

    def send_early(self, frames: bytes) -> None:
        """Sends the outcomes of some jobs of a batch while the handler continues with the others."""
        self.turns += 1
        self._send(frames)

    def _end(self, frames: bytes | None) -> None:
        """Resets the state after a job or a batch, and sends the outcomes."""
        self._claims = NO_CLAIMS
        self.current, self._progress = None, None
        if self.cancelled:  # cleared before the outcome is sent: later cancellations concern the next job
            self.cancelled.clear()
            self._link.clear()
        self.turns += 1
        if frames:
            self._send(frames)

    _handlers: ClassVar[dict[str, Callable[["Worker", Any, Any], int | None]]] = {
        "JOB": _perform_first, "AHEAD": _perform_ahead, "JOBS": _perform_batch,
    }  # fmt: skip

    def _discover(self, body: dict[str, Any]) -> None:
        """Calls the handler's `discover` and sends the items that it returns."""
        self.turns += 1
        assert self.handler is not None
        limit: int = body["limit"]
        try:
            found = self.call(self.handler.discover, body["after"], limit)
            frame = self._found_frame(found, limit)
        except BaseException as error:  # as with a job, sys.exit() ends the call and not the process
            frame = self._not_found_frame(error)
        self.turns += 1
        self._send(frame)

    def _found_frame(self, found: Any, limit: int) -> bytes:
        """Returns the frame with the items that `discover` returned."""
        items = [perform.item_of(each) for each in islice(found, limit + 1)]
        if len(items) > limit:
            raise errors.ConfigurationError(f"discover returned more items than its limit, which was {limit}")
        frame = encode("FOUND", {"items": items, "more": len(items) == limit})
        if len(frame) > WORK_FRAME_LIMIT:
            raise errors.PayloadError(
                f"a page of {len(items)} items has {len(frame):,} bytes; the maximum is {WORK_FRAME_LIMIT:,}"
            )
        return frame

    def _not_found_frame(self, error: BaseException) -> bytes:
        """Returns the frame that reports an exception of `discover`. Does not return if the process is broken."""
        broken = culprit(error)
        if broken is not None:
            self._leave_broken(broken)
        self.errors += 1
        return encode("FOUND", {"error": perform.truncate(describe(error))})

    def _attempt(self, context: Context, takes: Any) -> bytes:
        """Performs one job and returns the frame with its outcome."""
        performer = self.handler
        assert performer is not None
        try:
            job = context.job(takes)
            with self.around(job):
                result = self.call(performer.perform, job)
                if context.settled:
                    return context.settled_frame()
                seconds = clock.monotonic() - context.began
                frame = perform.done_frame(context.about, result, context.follow, self.gives, seconds)
            self.done += 1
            return frame
        except (errors.ConfigurationError, errors.UnrecoverableError):
            raise
        except BaseException as error:  # sys.exit() and a stray CancelledError count as failures of the job, too
            self.check_sound(error)
            if context.settled:
                return context.settled_frame()
            if self.is_cancelled() and perform.is_cancellation(error):
                return perform.cancelled_frame(context.about, error)
            self.errors += 1
            return perform.failure_frame(context.about, error, self.plan, context.body.get("payload"))

    def check_sound(self, error: BaseException) -> None:
        """Raises WorkerBroken if the process can do no job after this exception, by its kind or by a self-test."""
        if not self._needs_test(error) or self.is_cancelled():
            return
        assert self.handler is not None
        self.turns += 1
        try:
            sound = self.call(self.handler.is_sound)
        except BaseException as unsound:
            if self.is_cancelled() and perform.is_cancellation(unsound):
                return  # the job was cancelled meanwhile: this says nothing about the process
            raise errors.WorkerBroken(f"is_sound raised {type(unsound).__name__}: {message(unsound)}") from unsound
        if not sound:
            raise errors.WorkerBroken("is_sound returned False after a failure") from error

    def _needs_test(self, error: BaseException) -> bool:
        """Returns whether the handler's self-test is to run after this exception. Raises WorkerBroken if its kind shows
        that the process can do no job."""
        broken = culprit(error)
        if isinstance(broken, errors.WorkerBroken):
            raise broken
        if broken is not None:
            raise errors.WorkerBroken("it raised an error after which no job can succeed") from broken
        assert self.handler is not None
        return perform.has_own(type(self.handler), "is_sound") and perform.is_failure(error)

    def _leave_broken(self, error: BaseException, frames: bytes = b"", payload: Any = None) -> NoReturn:
        """Sends outcomes and the report that this process is broken, and exits at once: nothing else in it is safe.

        The report is without the hidden values of the payload of the job in hand.
        """
        shown = error if error.__cause__ is None else culprit(error.__cause__) or error
        why = perform.without_hidden(describe(shown), self.plan, payload)
        self._send(frames + encode("BROKEN", {"why": perform.truncate(why)}))
        flush_output()
        os._exit(errors.EXIT_ERROR)

    def _fatal(self, error: Exception | SystemExit, otherwise: int, frames: bytes = b"", payload: Any = None) -> int:
        """Sends frames and the reason why this process ends, without the hidden values of the payload of the job in
        hand, and returns its exit code."""
        known = isinstance(error, errors.ConfigurationError | errors.UnrecoverableError)
        code = error.exit_code if known else otherwise
        why = perform.without_hidden(message(error) if known else describe(error), self.plan, payload)
        self._send(frames + encode("FATAL", {"code": code, "why": why[-REASON_LIMIT:]}))
        return code

    def _send(self, frame: bytes) -> None:
        """Sends frames on the work socket, in order; may block."""
        if self.detached:
            leave(None)  # forked by code that `call` does not enclose, such as a generator
        with self._writing:
            try:
                sent = os.write(self._work, frame)
                while sent < len(frame):
                    sent += os.write(self._work, frame[sent:])
            except (BrokenPipeError, ConnectionResetError):
                kill_own_session()  # the node has exited

    def _send_now(self, frame: bytes) -> bool:
        """Sends a frame of moderate size on the work socket, and returns True, if that is possible without waiting."""
        if self.detached or not self._writing.acquire(blocking=False):
            return False
        try:
            if not self.inbox.can_send():
                return False
            sent = 0
            while sent < len(frame):
                sent += os.write(self._work, frame[sent:])
        except (BrokenPipeError, ConnectionResetError):
            kill_own_session()
        finally:
            self._writing.release()
        return True


def main(
    work_fd: int,
    pulse_fd: int,
    crash_fd: int,
    parent: int,
    asked_fd: int | None = None,
    permits_fd: int | None = None,
) -> None:
    """Runs a worker process from start to exit. A node of version 0.1.0 has one file for all stacks, and sends nothing
    ahead."""
    die_with_parent(parent)
    asked = StackFile(crash_fd if asked_fd is None else asked_fd)
    _enable_stack_dumps(crash_fd, asked)
    reserve_descriptor()
    adopt_orphans()  # processes that a job leaves behind stay below this worker and end with it
    own = (work_fd, pulse_fd) if permits_fd is None else (work_fd, pulse_fd, permits_fd)
    for descriptor in own:
        os.set_inheritable(descriptor, False)
    os.set_blocking(work_fd, True)
    inbox = Inbox(work_fd)
    frames = iter(inbox)
    plan = next(frames).read()  # the node sends INIT before anything else
    inbox.turn_every(plan["turn"])
    sys.path[:] = map(codec.restore, plan["python_path"])
    handler.inside_worker = True
    thread_cap.cap(plan["threads"])
    reading, writing = catch_signals()
    link = ForkLink()
    hand = None if permits_fd is None else Hand(permits_fd)
    worker = _kind(plan)(work_fd, pulse_fd, inbox, frames, plan, writing, link, hand)
    ForkGuard(worker, link, (*own, reading, writing))
    Pulse(worker, pulse_fd, reading, link, asked, plan["beat"], plan["grace"]).start()
    _exit(_serve(worker))


def _kind(plan: dict[str, Any]) -> type[Worker]:
    """Returns the class of a worker that performs one job, one batch, or several jobs at the same time."""
    if plan.get("concurrency", 1) == 1:  # a node of an earlier version does not send it
        return Worker
    from chargehand.worker.concurrent import ConcurrentWorker

    return ConcurrentWorker


def _enable_stack_dumps(crash_fd: int, asked: StackFile) -> None:
    """Writes the stacks of all threads to files that the node reads, on a crash in C code and on SIGUSR1."""
    for descriptor in (crash_fd, asked.descriptor):
        os.set_inheritable(descriptor, False)
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        # Output must not be lost in a crash, and a file name that is not UTF-8 must not fail the job that prints it.
        stream.reconfigure(line_buffering=True, errors="backslashreplace")
    faulthandler.enable(crash_fd, all_threads=True)
    faulthandler.register(signal.SIGUSR1, asked.descriptor, all_threads=True, chain=False)


def _serve(worker: Worker) -> int:
    """Returns the exit code, however the work ends."""
    try:
        return worker.serve()
    except SystemExit as left:  # a handler called sys.exit
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        sys.stderr.write(f"{left.code}\n")
        return errors.EXIT_ERROR
    except BaseException as error:
        sys.stderr.write(describe(error))
        return errors.EXIT_ERROR


def _exit(code: int) -> NoReturn:
    """Exits without waiting for threads that a handler left running: they would go on as if in a worker."""
    import atexit

    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] (no public function does this without joining threads)
    flush_output()
    os._exit(code & 0xFF)
