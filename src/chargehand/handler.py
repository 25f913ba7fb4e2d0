"""What a user's handler is, and what it is given. Loaded in every worker, so it imports nothing heavy."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, get_args, get_origin

if TYPE_CHECKING:
    from chargehand.crew import Crew
    from chargehand.store import Transaction

inside_worker = False
"""Whether this process is a worker; set by it before it imports the handler."""

Payload = TypeVar("Payload")
Result = TypeVar("Result")


class Desk(Protocol):
    """What a job can ask of the worker that performs it."""

    def progress(self, done: float | None, total: float | None, stage: str | None, detail: str | None) -> None: ...
    def is_cancelled(self) -> bool: ...
    def enqueue(self, crew: "Crew[Any, Any] | str", payload: Any, options: dict[str, Any]) -> str: ...
    def settle(self, result: Any) -> "AbstractContextManager[Transaction]": ...


class Job(Generic[Payload]):
    """One job in a handler's hands: what is to be done, and the ways to speak of it while doing it."""

    __slots__ = ("_desk", "attempt", "crashes", "id", "item", "label", "payload", "queue")

    def __init__(
        self,
        *,
        id: str,
        queue: str,
        payload: Payload,
        label: str | None,
        attempt: int,
        crashes: int,
        desk: Desk,
        item: str | None = None,
    ) -> None:
        self.id, self.queue, self.payload, self.label = id, queue, payload, label
        self.item = item
        """What it is in the application's own tables, if `discover` named it."""
        self.attempt = attempt
        """1 the first time, and so on; interruptions are not counted."""
        self.crashes = crashes
        self._desk = desk

    def progress(
        self,
        done: float | None = None,
        total: float | None = None,
        *,
        stage: str | None = None,
        detail: str | None = None,
    ) -> None:
        """Say how far the job is. Cheap: call it as often as you like. Raises Cancelled if somebody cancelled it."""
        self._desk.progress(done, total, stage, detail)

    @property
    def cancelled(self) -> bool:
        """Whether somebody cancelled the job: for handlers that would rather ask than be interrupted by `progress`."""
        return self._desk.is_cancelled()

    def enqueue(self, crew: "Crew[Any, Any] | str", payload: Any, **options: Any) -> str:
        """Enqueue another job, to be committed with this one's end; if this one does not end well, it never was."""
        return self._desk.enqueue(crew, payload, options)

    def settle(self, result: Any = None) -> "AbstractContextManager[Transaction]":
        """A transaction in which the handler writes its own rows and this job ends as done, together or not at all.

        For crews declared `transactional`. Raises ClaimLost, and writes nothing, if the job is no longer this
        worker's. Return from the handler after the block; what it returns then is not used.
        """
        return self._desk.settle(result)


class Item:
    """Something that needs work, found by `discover`: its key, what a job for it is given, and a label for people."""

    __slots__ = ("key", "label", "payload")

    def __init__(self, key: str, payload: Any = None, label: str | None = None) -> None:
        self.key, self.payload, self.label = key, payload, label


def _nobody_to_ask(seconds: float) -> None:
    """Outside a worker there is no limit to be moved."""


class Handler(Generic[Payload, Result]):
    """Derive from this: one object a worker process, set up once, then performing one job after the other."""

    ask_for_time: Callable[[float], None] = staticmethod(_nobody_to_ask)
    threads: int = 1
    """How many threads a job may use (PIPELINE_THREADS_PER_JOB), for libraries that do not read the environment."""

    def set_up(self) -> "Awaitable[None] | None":
        """Load what all jobs need. Plain or async."""

    def more_time(self, seconds: float) -> None:
        """For a `set_up` that takes longer than the limit (5 minutes): let it go on for so many seconds from now."""
        self.ask_for_time(seconds)

    def discover(self, after: str | None, limit: int) -> "Iterable[str | Item] | Awaitable[Iterable[str | Item]]":
        """Name up to `limit` items of the application's own that need work, in the order of their keys, those after
        `after` (None: from the beginning). For crews declared `discovers=True`; 30 seconds at most. Plain or async."""
        raise NotImplementedError(f"{type(self).__qualname__} has no discover(after, limit)")

    def perform(self, job: Job[Payload]) -> "Result | Awaitable[Result]":
        """Do one job and return its result. Plain or async."""
        raise NotImplementedError(f"{type(self).__qualname__} has no perform(job)")

    def perform_batch(self, jobs: list[Job[Payload]]) -> "Sequence[Result | Exception] | Awaitable[Any]":
        """Do several jobs at once and return, in their order, the result of each, or the exception that it would have
        raised. For crews declared with `batch=`; up to so many jobs, and often fewer. Plain or async.

        What it raises itself is taken as raised by all of them; but if that is Cancelled, from one job's `progress`,
        that one ends, and the others are performed again without it.
        """
        raise NotImplementedError(f"{type(self).__qualname__} has no perform_batch(jobs)")

    def tear_down(self) -> "Awaitable[None] | None":
        """Let go of it, when the worker stops in order. Plain or async."""

    @classmethod
    def types(cls) -> tuple[Any, Any]:
        """The payload's and the result's type, as given in `Handler[Song, Labels]`; Any where nothing is given."""
        for base in cls.__mro__:
            for origin in getattr(base, "__orig_bases__", ()):
                if get_origin(origin) is Handler:
                    taken, given = (Any if isinstance(a, TypeVar) else a for a in get_args(origin))
                    return taken, given
        return Any, Any
