"""Performs one job in this process, without a node: for `chargehand run`, where a debugger works, and for tests.

Payload and result pass through JSON and the same checks as in a worker.
"""

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from chargehand import codec, errors
from chargehand.handler import Handler, Item, Job, ResultPages, check_key
from chargehand.model.job import NewJob
from chargehand.settings.plan import CrewPlan
from chargehand.system.job_files import JobFiles
from chargehand.worker import perform
from chargehand.worker.context import known_crew, new_jobs, with_flow

if TYPE_CHECKING:
    from chargehand.app import Chargehand

PAGE = 500
"""The page size when `discover` is searched for one item."""


class _Undone(Exception):
    """Rolls back a transaction that succeeded."""


def _discard(text: str) -> None:
    """Ignores a message."""


class GivenResults:
    """The results of predecessors that a test gives, as one page. Implements `handler.ResultPages`."""

    def __init__(self, results: Iterable[Any]) -> None:
        self._ends = [_end(number, result) for number, result in enumerate(results)]

    def page(self, after: tuple[int, int] | None) -> list[dict[str, Any]]:
        return self._ends if after is None else []

    async def page_async(self, after: tuple[int, int] | None) -> list[dict[str, Any]]:
        return self.page(after)


def _end(number: int, result: Any) -> dict[str, Any]:
    """Returns how a predecessor has ended: with this result, or with this exception in its place."""
    end: dict[str, Any] = {"id": f"predecessor-{number}", "nr": number, "seq": number, "state": "done"}
    match result:
        case errors.JobCancelled():
            return {**end, "id": result.job_id or end["id"], "state": "cancelled"}
        case errors.JobFailed():
            return {**end, "id": result.job_id, "state": "failed", "reason": result.reason, "error": result.error}
        case _:
            text = codec.to_json(result, "the result of a predecessor")
            return {**end, "result": codec.from_json(text, None, "the result of a predecessor")}


class LocalFiles(JobFiles):
    """The folders of jobs below a temporary folder, which `close` removes."""

    def __init__(self) -> None:
        self._top = tempfile.mkdtemp(prefix="chargehand-")
        super().__init__(self._top)

    def close(self) -> None:
        shutil.rmtree(self._top, ignore_errors=True)


class LocalContext:
    """The operations that a job calls, when no worker performs it."""

    def __init__(
        self,
        hand: "Chargehand | None" = None,
        *,
        crew: CrewPlan | None = None,
        crews: Mapping[str, CrewPlan] | None = None,
        commit: bool = False,
        report: Callable[[str], None] = _discard,
        report_progress: Callable[[str], None] = _discard,
        results: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """`results` are those of predecessors, by their queues."""
        self._hand, self._crew, self._crews, self._commit = hand, crew, crews, commit
        self._report, self._report_progress = report, report_progress
        self._results = results or {}
        self._files: JobFiles | None = None
        self.job: Job[Any] | None = None
        """The job that is performed."""
        self.kept: str | None = None
        """The last checkpoint, as JSON."""
        self.enqueued: list[NewJob] = []
        self.settled: str | None = None
        """The result passed to `job.settle`, as JSON."""

    def progress(self, done: float | None, total: float | None, stage: str | None, detail: str | None) -> None:
        share = perform.number("done", done), perform.number("total", total)
        numbers = "/".join(f"{each:g}" for each in share if each is not None)
        self._report_progress(f"progress: {' '.join(str(part) for part in (numbers, stage, detail) if part)}")

    def is_cancelled(self) -> bool:
        return False

    def enqueue(self, crew: Any, payload: Any, options: dict[str, Any]) -> str:
        (job_id,) = self._follow(crew, "job.enqueue()", [payload], options)
        return job_id

    def spawn(self, crew: Any, payloads: Iterable[Any], options: dict[str, Any]) -> list[str]:
        return self._follow(crew, "job.spawn()", check_key(payloads, options), options, child=True)

    def _follow(
        self, crew: Any, what: str, payloads: Iterable[Any], options: dict[str, Any], *, child: bool = False
    ) -> list[str]:
        if self.settled is not None:
            raise errors.ChargehandError(f"job.settle() has ended this job: call {what} inside its block, or before it")
        flow = None if self.job is None else self.job.flow
        jobs = new_jobs(self._known(crew), crew, payloads, with_flow(options, flow))
        if child:
            jobs = [msgspec.structs.replace(job, child=True) for job in jobs]
        verb = "spawn" if child else "enqueue"
        for job in jobs:
            self._report(f"{f'{verb}s' if self._commit else f'would {verb}'} in queue {job.queue}: {job.payload}")
        self.enqueued += jobs
        return [job.id for job in jobs]

    def _known(self, crew: Any) -> dict[str, Any]:
        """Returns the crews by name; without an application any crew that is named exists."""
        if self._crews is None:
            return {crew: {"name": crew, "queue": crew, "handler": ""}} if isinstance(crew, str) else {}
        return {name: msgspec.to_builtins(plan) for name, plan in self._crews.items()}

    def results(self, crew: Any) -> ResultPages:
        return GivenResults(self._results.get(self.queue_of(crew), ()))

    def queue_of(self, crew: Any) -> str:
        """Returns the queue of a crew, which may be given by its name. Raises UnknownCrew."""
        return known_crew(self._known(crew), crew)["queue"] if isinstance(crew, str) else crew.plan.queue

    def keep(self, state: Any) -> None:
        self.kept = perform.kept_text(state)

    def folder(self) -> Path:
        assert self.job is not None
        return self._job_files().folder(self.job.flow, self.job.id)

    def scratch(self) -> Path:
        assert self.job is not None
        return self._job_files().scratch(self.job.id, 0)

    def _job_files(self) -> JobFiles:
        if self._files is None:
            self._files = LocalFiles()
        return self._files

    def close(self) -> None:
        """Removes the files of the job, if it has made any."""
        if isinstance(self._files, LocalFiles):
            self._files.close()
        self._files = None

    @contextmanager
    def settle(self, result: Any) -> Generator[Any]:
        if self._hand is None:
            raise errors.ConfigurationError("job.settle() needs a store: call perform(…, hand=hand)")
        if self._crew is not None and not self._crew.transactional:
            raise self.not_transactional()
        text = perform.result_text(result)
        try:
            with self._hand.transaction() as tx:
                yield tx
                if not self._commit:
                    raise _Undone
                tx.jobs.enqueue(self.enqueued)
        except _Undone:
            self._report("job.settle: succeeded, and was rolled back")
        self.settled = text

    def not_transactional(self) -> errors.ConfigurationError:
        """Returns the error of a crew whose jobs cannot call `settle`."""
        name = "" if self._crew is None else self._crew.name
        return errors.ConfigurationError(
            f"crew {name!r} is not declared transactional=True, so job.settle() cannot be used in it"
        )

    def finish(self) -> None:
        """Enqueues what the job enqueued, after it has succeeded, unless `settle` has already done so."""
        if self._commit and self.settled is None and self._hand is not None and self.enqueued:
            self._hand.internal.enqueue(self.enqueued)


class Foreground:
    """Runs a handler in this process: set up, perform, tear down; each may be async."""

    def __init__(self, handler: Handler[Any, Any]) -> None:
        self.handler = handler
        self._runner: Any = None

    def set_up(self) -> None:
        self._resolve(self.handler.set_up())

    def payload_of(self, text: str, what: str) -> Any:
        """Converts a JSON payload to the handler's payload type."""
        return codec.from_json(text, self.handler.types()[0], what)

    def perform(
        self,
        payload: Any,
        context: LocalContext,
        *,
        id: str,
        queue: str,
        label: str | None = None,
        item: str | None = None,
        attempt: int = 1,
        flow: str | None = None,
        kept: Any = None,
        meta: dict[str, Any] | None = None,
        traceparent: str | None = None,
    ) -> str:
        """Performs one job and returns its result as JSON. Exceptions of the handler are raised unchanged."""
        job: Job[Any] = Job(
            id=id, queue=queue, payload=payload, label=label, attempt=attempt, crashes=0, item=item, context=context,
            flow=flow, kept=kept, meta=meta, traceparent=traceparent,
        )  # fmt: skip
        context.job = job
        if perform.has_own(type(self.handler), "perform"):
            result = self._resolve(self.handler.perform(job))
        else:
            (result,) = self._resolve(self.handler.perform_batch([job]))
            if isinstance(result, Exception):
                raise result
        gives = perform.checkable(self.handler.types()[1])
        text = perform.result_text(result, gives) if context.settled is None else context.settled
        context.finish()
        return text

    def find(self, key: str) -> tuple[Item, str] | None:
        """Searches the pages of `discover` for an item; returns it with its payload as JSON, or None."""
        after: str | None = None
        while True:
            found: Any = self._resolve(self.handler.discover(after, PAGE))
            items = [perform.checked_item(each) for each in islice(found, PAGE)]
            for item, payload in items:
                if item.key == key:
                    return item, payload
            if len(items) < PAGE or items[-1][0].key == after:
                return None
            after = items[-1][0].key

    def tear_down(self) -> None:
        try:
            self._resolve(self.handler.tear_down())
        finally:
            self.close()

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _resolve(self, result: Any) -> Any:
        """Returns a plain value unchanged, and the result of an awaitable."""
        if not hasattr(result, "__await__"):
            return result
        import asyncio

        if asyncio._get_running_loop() is not None:
            if hasattr(result, "close"):
                result.close()  # it is not awaited
            raise RuntimeError(
                "an async handler is run in an event loop of its own: call perform() or run_all() in a plain function, "
                "or `await asyncio.to_thread(perform, …)`"
            )

        async def waited() -> Any:
            return await result

        self._runner = self._runner or asyncio.Runner()
        return self._runner.run(waited())
