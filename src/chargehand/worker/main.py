"""What runs in a worker process: the main thread takes a job, performs it, sends the outcome; the pulse reports.

Two sockets lead to the node, one for each flow. Work: jobs in, outcomes out, used by the main thread alone; it may
wait. Pulse: health out, requests in; it never makes the work wait, and of health only the newest matters.
Nothing heavy is imported before the handler asks for it.
"""

import atexit
import faulthandler
import os
import signal
import socket
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from chargehand import clock, codec, errors, handler
from chargehand.handler import Handler, Job
from chargehand.processes.prctl import adopt_orphans, die_with_parent
from chargehand.protocol.frame import WORK_FRAME_LIMIT, Frame, encode
from chargehand.worker import outcome, perform, thread_cap
from chargehand.worker.pulse import REST, Forking, FrameWriter, Inbox, Pulse, catch_signals, kill_own_session

TEXT_LIMIT = 200
"""Characters of a progress text."""
REASON_LIMIT = 4000


class Worker:
    """One life of a worker, and what its jobs can ask of it."""

    def __init__(
        self,
        work: socket.socket,
        pulse: socket.socket,
        inbox: Inbox,
        frames: Iterator[Frame],
        plan: dict[str, Any],
        wake: int,
    ) -> None:
        self._work, self._inbox, self._frames, self._plan, self._wake = work, inbox, frames, plan, wake
        self.outlet = FrameWriter(pulse)
        self._pid = os.getpid()
        self.status = "starting"
        self.paused: bool = plan["paused"]
        self.current: str | None = None
        self.cancelled: set[tuple[str, int]] = set()
        """Jobs, and their fences, that a person cancelled while they were here."""
        self.turns = 0
        """Advanced by the working thread only: the witness that it still works."""
        self.done = 0
        self.errors = 0
        self.memory = 0
        """Bytes resident, read with every beat."""
        self._progress: tuple[str, dict[str, Any]] | None = None
        """How far a job is, and which: of several the one that spoke last."""
        self.unreported = False
        self.reported_at = 0.0
        self._follow: list[dict[str, Any]] = []
        self._settled = False
        self._forwarding = False
        self._began = 0.0
        self._body: dict[str, Any] = {}
        self._store: Any = None
        self._runner: Any = None
        self._task: Any = None
        self.handler: Handler[Any, Any] | None = None
        self.gives: Any = None
        """What the handler says that its results are, if that can be checked."""

    # health

    def changed(self) -> None:
        """Have the newest state sent: at once, or, if that was done a moment ago, by the pulse in another moment."""
        if clock.monotonic() - self.reported_at >= REST:
            self.report()
        elif not self.unreported:
            self.unreported = True
            os.write(self._wake, b"\0")

    def report(self) -> None:
        """Send the newest state."""
        self.unreported, self.reported_at = False, clock.monotonic()
        body: dict[str, Any] = {
            "component_id": self._plan["component"],
            "incarnation": self._plan["life"],
            "status": "paused" if self.paused and self.status == "healthy" else self.status,
            "current_job": self.current,
            "turns": self.turns + self._inbox.turns,
            "done": self.done,
            "errors": self.errors,
            "memory": self.memory,
        }
        if self._progress is not None:
            body["current_job"], body["progress"] = self._progress
        self.outlet.send(encode("HEALTH", body))

    # what a job can ask

    def progress(self, done: float | None, total: float | None, stage: str | None, detail: str | None) -> None:
        self.said(self._body["id"], done, total, stage, detail)
        if self.is_cancelled():
            raise errors.Cancelled(f"job {self.current} was cancelled")

    def said(self, job: str, done: float | None, total: float | None, stage: str | None, detail: str | None) -> None:
        """That job is so far."""
        self.turns += 1
        how_far = {
            "done": perform.number("done", done),
            "total": perform.number("total", total),
            "stage": None if stage is None else str(stage)[:TEXT_LIMIT],
            "detail": None if detail is None else str(detail)[:TEXT_LIMIT],
        }
        self._progress = job, how_far
        self.changed()

    def is_cancelled(self) -> bool:
        return bool(self.cancelled) and (self._body.get("id"), self._body.get("fence")) in self.cancelled

    def cancel(self, job_id: str, fence: int) -> None:
        """The node says that this job is cancelled; called by the pulse. A coroutine is interrupted where it waits,
        unless it has other jobs in hand as well."""
        self.cancelled.add((job_id, fence))
        task, runner = self._task, self._runner
        if self.is_cancelled() and task is not None and runner is not None:
            runner.get_loop().call_soon_threadsafe(task.cancel)

    def enqueue(self, crew: Any, payload: Any, options: dict[str, Any]) -> str:
        if self._settled:
            raise errors.ChargehandError("this job has ended in job.settle(): enqueue inside its block, or before")
        self._follow.append(self.new_job(crew, payload, options))
        return self._follow[-1]["id"]

    def new_job(self, crew: Any, payload: Any, options: dict[str, Any]) -> dict[str, Any]:
        """A job that a handler enqueues, as it goes to the node."""
        import msgspec

        from chargehand.settings.plan import CrewPlan, new_job

        if isinstance(crew, str):
            found = self._plan["crews"].get(crew)
            if found is None:
                known = ", ".join(sorted(self._plan["crews"]))
                raise errors.UnknownCrew(f"there is no crew {crew!r}; there are: {known}")
            job = new_job(msgspec.convert(found, CrewPlan), codec.to_json(payload, "the payload"), **options)
        else:
            job = crew.new_job(payload, **options)
        return msgspec.to_builtins(job)

    @contextmanager
    def settle(self, result: Any) -> Generator[Any]:
        if self._plan.get("store") is None:
            raise errors.ConfigurationError(
                f"crew {self._plan['crew']!r} is not declared transactional=True, so job.settle() cannot be used in it"
            )
        import msgspec

        from chargehand.model.job import NewJob, Settlement, State
        from chargehand.model.records import Holder
        from chargehand.stores import open_store

        text = perform.result_text(result, self.gives)
        if self._store is None:
            self._store = open_store(self._plan["store"], create=False, synchronous=self._plan["synchronous"])
        body = self._body
        took = int((clock.monotonic() - self._began) * 1000)
        with self._store.transaction() as tx:
            settlement = Settlement(
                id=body["id"], seq=body["seq"], fence=body["fence"], queue=body["queue"], state=State.DONE,
                outcome="done", result=text, worker=self._plan["component"], pid=os.getpid(), duration_ms=took,
            )  # fmt: skip
            if tx.jobs.settle([settlement], Holder(self._plan["node"], self._plan["node_life"])):
                raise errors.ClaimLost(f"job {body['id']} was given to another worker; nothing was written")
            yield tx
            tx.jobs.enqueue(msgspec.convert(self._follow, list[NewJob]))
        self._follow = []
        self._settled = True

    # the work

    def serve(self) -> int:
        """Set up, perform until asked to stop, tear down. Returns the exit code."""
        try:
            self.handler = perform.load(self._plan["handler"], self._plan["batch"])()
            self.handler.ask_for_time = self._more_time
            self.handler.threads = self._plan["threads"]
            self._forward_logging()
            self.finish(self.handler.set_up())
        except Exception as error:
            return self._fatal(error, errors.EXIT_SET_UP)
        takes, gives = self.handler.types()
        self.gives = perform.checkable(gives)
        self.status = "healthy"
        self.report()
        self._tell(encode("READY", {}))
        for frame in self._frames:
            if frame.kind == "STOP":
                break
            if frame.kind == "LOOK":
                self._look(frame.read())
            if frame.kind in ("JOB", "JOBS"):
                handle = self._perform if frame.kind == "JOB" else self._perform_batch
                code = handle(frame.read(), takes)
                if code is not None:
                    return code
        self.status = "stopping"
        self.report()
        self.finish(self.handler.tear_down())
        return 0

    def _forward_logging(self) -> None:
        """Have log records carry the job's id, once the handler's code has loaded `logging` and not configured it."""
        if not self._forwarding and "logging" in sys.modules:
            from chargehand.worker.logs import forward

            self._forwarding = forward(lambda: self.current if self._body else None)

    def _more_time(self, seconds: float) -> None:
        self._tell(encode("MORETIME", {"seconds": perform.number("seconds", seconds)}))

    def finish(self, result: Any) -> Any:
        """A plain value as it is, an awaitable's once it has it."""
        if not hasattr(result, "__await__"):
            return result
        import asyncio

        async def waited() -> Any:
            self._task = asyncio.current_task()
            if self.is_cancelled():  # before there was a task to cancel
                raise errors.Cancelled(f"job {self.current} was cancelled")
            return await result

        self._runner = self._runner or asyncio.Runner()
        try:
            return self._runner.run(waited())
        finally:
            self._task = None

    def _perform(self, body: dict[str, Any], takes: Any) -> int | None:
        """One job, from hand-over to outcome. An exit code if the process must end."""
        self._begin(body["id"], body)
        code: int | None = None
        try:
            frame = self._attempt(body, takes)
        except (errors.ConfigurationError, errors.UnrecoverableError) as error:
            frame, code = None, self._fatal(error, error.exit_code)
        self._end(frame)
        return code

    def _perform_batch(self, bodies: list[dict[str, Any]], takes: Any) -> int | None:
        """Several jobs at once; otherwise the same."""
        from chargehand.worker.batch import attempt

        self._begin(bodies[0]["id"], bodies[0] if len(bodies) == 1 else {})
        frames, fatal = attempt(self, bodies, takes)
        self._end(b"".join(frames))
        return None if fatal is None else self._fatal(fatal, fatal.exit_code)

    def _begin(self, job: str, body: dict[str, Any]) -> None:
        self.turns += 1
        self.current, self._body, self._settled, self._began = job, body, False, clock.monotonic()
        self._follow, self._progress = [], None
        self._forward_logging()
        self.changed()

    def some_ended(self, frames: bytes) -> None:
        """Some of several jobs are through, and the handler goes on with the others: say so."""
        if os.getpid() != self._pid:
            os._exit(0)  # a process that the handler forked has come back from it; it is no worker
        self.turns += 1
        self._tell(frames)

    def _end(self, frames: bytes | None) -> None:
        """The handler is through: say so."""
        if os.getpid() != self._pid:
            os._exit(0)  # as above
        self.current, self._progress = None, None
        self.cancelled.clear()  # before it is said: what is cancelled after that is of the next
        self.turns += 1
        if frames:
            self._tell(frames)

    def _look(self, body: dict[str, Any]) -> None:
        """Ask the handler what needs work in the application's own tables."""
        self.turns += 1
        assert self.handler is not None
        limit: int = body["limit"]
        try:
            found = self.finish(self.handler.discover(body["after"], limit))
            items = [perform.item_of(each) for each in found]
            if len(items) > limit:
                raise errors.ConfigurationError(f"discover named {len(items)} items; it was asked for {limit} at most")
            frame = encode("FOUND", {"items": items, "more": len(items) == limit})
            if len(frame) > WORK_FRAME_LIMIT:
                raise errors.PayloadError(f"a page of {len(items)} items has {len(frame):,} bytes: make it smaller")
        except Exception as error:
            import traceback

            self.errors += 1
            frame = encode("FOUND", {"error": outcome.cut("".join(traceback.format_exception(error)))})
        self.turns += 1
        self._tell(frame)

    def _attempt(self, body: dict[str, Any], takes: Any) -> bytes:
        performer = self.handler
        assert performer is not None
        about = {"id": body["id"], "fence": body["fence"]}
        try:
            payload = codec.as_type(body["payload"], takes, f"the payload of job {body['id']}")
            job: Job[Any] = Job(
                id=body["id"], queue=body["queue"], payload=payload, label=body.get("label"),
                attempt=body["attempts"] + 1, crashes=body["crashes"], item=body.get("item"), desk=self,
            )  # fmt: skip
            result = self.finish(performer.perform(job))
            if self._settled:
                return encode("SETTLED", about)
            frame = outcome.done(about, result, self._follow, self.gives)
            self.done += 1
            return frame
        except (errors.ConfigurationError, errors.UnrecoverableError):
            raise
        except BaseException as error:  # sys.exit() and a CancelledError that got away, too, are the job's own failure
            if self._settled:
                return encode("SETTLED", about)
            if self.is_cancelled() and outcome.is_cancellation(error):
                return outcome.cancelled(about, error)
            self.errors += 1
            return outcome.failure(about, error)

    def _fatal(self, error: Exception, otherwise: int) -> int:
        """Tell the node why this process ends, in words; the code for it."""
        import traceback

        known = isinstance(error, errors.ConfigurationError | errors.UnrecoverableError)
        code = error.exit_code if known else otherwise
        why = str(error) if known else "".join(traceback.format_exception(error))
        self._tell(encode("FATAL", {"code": code, "why": why[-REASON_LIMIT:]}))
        return code

    def _tell(self, frame: bytes) -> None:
        """Send on the work socket, in order, waiting if need be."""
        try:
            self._work.sendall(frame)
        except (BrokenPipeError, ConnectionResetError):
            kill_own_session()  # the node is gone: so are we


def main(work_fd: int, pulse_fd: int, stacks_fd: int, parent: int) -> None:
    """The whole life of a worker process."""
    die_with_parent(parent)
    _say_where_we_stand(stacks_fd)
    adopt_orphans()  # so that what a job leaves behind stays below this worker, and ends with it
    work, pulse = socket.socket(fileno=work_fd), socket.socket(fileno=pulse_fd)
    for sock in (work, pulse):
        sock.setblocking(True)
        sock.set_inheritable(False)
    inbox = Inbox(work)
    frames = iter(inbox)
    plan = next(frames).read()  # the node sends INIT before anything else
    inbox.turn_every(plan["turn"])
    sys.path[:] = plan["python_path"]
    handler.inside_worker = True
    thread_cap.cap(plan["threads"])
    reading, writing = catch_signals()
    worker = Worker(work, pulse, inbox, frames, plan, writing)
    Forking(work, pulse, reading, writing)
    Pulse(worker, pulse, reading, plan["beat"], plan["grace"]).start()
    _leave(_serve(worker))


def _say_where_we_stand(stacks_fd: int) -> None:
    """Write the stacks of all threads, when we crash in C code or are asked to, where the node can read them."""
    os.set_inheritable(stacks_fd, False)
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.reconfigure(line_buffering=True)  # what is printed must not die with us
    faulthandler.enable(stacks_fd, all_threads=True)
    faulthandler.register(signal.SIGUSR1, stacks_fd, all_threads=True, chain=False)


def _serve(worker: Worker) -> int:
    """The exit code, however the work ends."""
    try:
        return worker.serve()
    except SystemExit as left:  # a handler called sys.exit
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        sys.stderr.write(f"{left.code}\n")
        return errors.EXIT_ERROR
    except BaseException:
        import traceback

        traceback.print_exc()
        return errors.EXIT_ERROR


def _leave(code: int) -> NoReturn:
    """End now. Threads that a handler left running are not waited for: they would beat on as a worker that is none."""
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] (there is no public way that leaves threads alone)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code & 0xFF)
