"""Performs one job in this process, without a node: for `chargehand run`, where a debugger works, and for tests.

Payload and result pass through JSON and the same checks as in a worker.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from chargehand import codec, errors
from chargehand.handler import Handler, Item, Job
from chargehand.model.job import NewJob
from chargehand.settings.plan import CrewPlan, new_job
from chargehand.worker import perform

if TYPE_CHECKING:
    from chargehand.app import Chargehand

PAGE = 500
"""The page size when `discover` is searched for one item."""


class _Undone(Exception):
    """Rolls back a transaction that succeeded."""


def _discard(text: str) -> None:
    """Ignores a message."""


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
    ) -> None:
        self._hand, self._crew, self._crews, self._commit = hand, crew, crews, commit
        self._report, self._report_progress = report, report_progress
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
        if self.settled is not None:
            raise errors.ChargehandError("job.settle() has ended this job: enqueue inside its block, or before it")
        if isinstance(crew, str):
            job = new_job(self._plan_of(crew), codec.to_json(payload, "the payload"), **options)
        else:
            job = crew.new_job(payload, **options)
        self.enqueued.append(job)
        self._report(f"{'enqueues' if self._commit else 'would enqueue'} in queue {job.queue}: {job.payload}")
        return job.id

    def _plan_of(self, crew: str) -> CrewPlan:
        """Returns the plan of the crew with this name. Raises UnknownCrew."""
        if self._crews is None:  # a handler without an application: the crews are not known
            return CrewPlan(name=crew, queue=crew, handler="")
        if crew not in self._crews:
            raise errors.UnknownCrew(f"there is no crew {crew!r}; there are: {', '.join(sorted(self._crews))}")
        return self._crews[crew]

    @contextmanager
    def settle(self, result: Any) -> Generator[Any]:
        if self._hand is None:
            raise errors.ConfigurationError("job.settle() needs a store: call perform(…, hand=hand)")
        if self._crew is not None and not self._crew.transactional:
            raise errors.ConfigurationError(
                f"crew {self._crew.name!r} is not declared transactional=True, so job.settle() cannot be used in it"
            )
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
    ) -> str:
        """Performs one job and returns its result as JSON. Exceptions of the handler are raised unchanged."""
        job: Job[Any] = Job(
            id=id, queue=queue, payload=payload, label=label, attempt=attempt, crashes=0, item=item, context=context
        )
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
            items = [perform.checked_item(each) for each in found]
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

        async def waited() -> Any:
            return await result

        self._runner = self._runner or asyncio.Runner()
        return self._runner.run(waited())
