"""The base class of handlers, and the job object that a handler receives. Workers load it: it imports nothing heavy."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, get_args, get_origin, overload

from chargehand import codec, errors

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self, Unpack

    from chargehand.crew import Crew, JobOptions
    from chargehand.store import Transaction

inside_worker = False
"""Whether this process is a worker; the worker sets it before it imports the handler."""
ready = False
"""Whether this process is a worker that has imported its handler and set it up."""

Payload = TypeVar("Payload")
Result = TypeVar("Result")
Taken = TypeVar("Taken")
Given = TypeVar("Given")


def type_name(kind: Any) -> str | None:
    """Returns the name of a type without its module, such as `list[Song(path, seconds)]`, with the fields of a class
    that has some; None for any type, and for unions and such.

    Processes compare types by it: each may import the module under another name, and JSON has no types.
    """
    origin = get_origin(kind) or kind
    if not isinstance(origin, type) or origin is object or origin.__module__ in ("typing", "types"):
        return None
    inner = [type_name(part) for part in get_args(kind)]
    if inner and None not in inner:
        return f"{origin.__qualname__}[{', '.join(map(str, inner))}]"
    fields = next((found for name in _FIELDS if (found := getattr(origin, name, None)) is not None), None)
    return origin.__qualname__ if fields is None else f"{origin.__qualname__}({', '.join(sorted(fields))})"


_FIELDS = ("__dataclass_fields__", "__struct_fields__", "model_fields")
"""Where dataclasses, msgspec's structs and pydantic's models have their fields."""


def type_faults(kind: "type[Handler[Any, Any]]", takes: str | None, gives: str | None) -> list[str]:
    """Returns how the types of a handler differ from those of its crew, given by their names; None is any type."""
    named = zip(("takes", "gives"), (takes, gives), map(type_name, kind.types()), strict=True)
    return [
        f"the crew {word} {crew}, but the handler {word} {own}"
        for word, crew, own in named
        if crew is not None and own is not None and not _may_be_same(crew, own)
    ]


def _may_be_same(one: str, other: str) -> bool:
    """Returns whether two types may have the same JSON: their names are equal, or their fields are, or one of them is
    a bare list or dict, which says nothing of what is inside."""
    first, second = one.partition("["), other.partition("[")
    if first[1] and second[1]:
        return one == other or (first[0] == second[0] and _may_be_same(first[2][:-1], second[2][:-1]))
    (name, _, fields), (name_there, _, fields_there) = first[0].partition("("), second[0].partition("(")
    is_object = "dict" in (name, name_there) and bool(fields or fields_there)
    return name == name_there or is_object or bool(fields and fields == fields_there)


class ResultPages(Protocol):
    """Reads the ends of predecessors in pages. Each is a dict with `id`, `nr`, `seq`, `state`, `reason`, `result` as
    plain data, and `error`; an empty page is the last."""

    def page(self, after: tuple[int, int] | None) -> "list[dict[str, Any]]":
        """Returns the page that follows the predecessor with this `nr` and `seq`."""
        ...

    async def page_async(self, after: tuple[int, int] | None) -> "list[dict[str, Any]]":
        """Returns the same without blocking the event loop."""
        ...


class Results(Generic[Result]):
    """Iterates over the results of predecessors, with `for` or `async for`; it reads them in pages."""

    def __init__(self, pages: ResultPages, gives: Any) -> None:
        self._pages, self._gives = pages, gives
        self._page: list[dict[str, Any]] = []
        self._after: tuple[int, int] | None = None

    def __iter__(self) -> "Self":
        return self

    def __next__(self) -> Result:
        if not self._page:
            self._turn(self._pages.page(self._after))
            if not self._page:
                raise StopIteration
        return self._next()

    def __aiter__(self) -> "Self":
        return self

    async def __anext__(self) -> Result:
        if not self._page:
            self._turn(await self._pages.page_async(self._after))
            if not self._page:
                raise StopAsyncIteration
        return self._next()

    def _turn(self, page: list[dict[str, Any]]) -> None:
        self._page = page[::-1]
        if page:
            self._after = page[-1]["nr"], page[-1]["seq"]

    def _next(self) -> Any:
        end = self._page.pop()
        if end["state"] == "done":
            return codec.as_type(end["result"], self._gives, f"the result of job {end['id']}")
        if end["state"] == "cancelled":
            return errors.JobCancelled(f"job {end['id']} was cancelled", end["id"])
        return errors.JobFailed(end["id"], end["reason"] or "failed", end["error"])


class JobContext(Protocol):
    """The operations that a worker, or a test, provides to the job that it performs."""

    def progress(self, done: float | None, total: float | None, stage: str | None, detail: str | None) -> None: ...
    def is_cancelled(self) -> bool: ...
    def enqueue(self, crew: "Crew[Any, Any] | str", payload: Any, options: dict[str, Any]) -> str: ...
    def spawn(self, crew: "Crew[Any, Any] | str", payloads: Iterable[Any], options: dict[str, Any]) -> list[str]: ...
    def results(self, crew: "Crew[Any, Any] | str") -> ResultPages: ...
    def keep(self, state: Any) -> None: ...
    def folder(self) -> "Path": ...
    def scratch(self) -> "Path": ...
    def settle(self, result: Any) -> "AbstractContextManager[Transaction]": ...


def check_several(what: str, given: Any) -> None:
    """Raises PayloadError if one payload was given instead of several; a model of pydantic is iterable, too."""
    name, is_model = given.__class__.__name__, hasattr(given, "model_dump")
    if isinstance(given, str | bytes | dict) or is_model or not hasattr(given, "__iter__"):
        raise errors.PayloadError(f"{what} are one {name}; must be several, such as a list: enqueue takes one")


def check_key(payloads: Iterable[Any], options: dict[str, Any]) -> Iterable[Any]:
    """Returns the payloads. Raises PayloadError if they are several and have a key."""
    if options.get("key") is None:
        return payloads
    found = list(payloads)
    if len(found) > 1:
        raise errors.PayloadError("many jobs cannot share one key: spawn them one by one with keys of their own")
    return found


def check_crew(method: str, given: Any) -> None:
    """Raises PayloadError unless this is a crew or a name."""
    if not isinstance(given, str) and not hasattr(given, "plan"):
        raise errors.PayloadError(
            f"the first argument of {method} is {given!r}; expected what hand.crew(…) returned, or the name of a crew"
        )


class Job(Generic[Payload]):
    """A job as its handler receives it: the payload, and methods to report progress and enqueue further jobs."""

    __slots__ = (
        "_context", "attempt", "crashes", "flow", "id", "item", "kept", "label", "meta", "payload", "queue",
        "traceparent",
    )  # fmt: skip

    def __init__(
        self,
        *,
        id: str,
        queue: str,
        payload: Payload,
        label: str | None,
        attempt: int,
        crashes: int,
        context: JobContext,
        item: str | None = None,
        flow: str | None = None,
        kept: Any = None,
        meta: dict[str, Any] | None = None,
        traceparent: str | None = None,
    ) -> None:
        self.id, self.queue, self.payload, self.label = id, queue, payload, label
        self.flow = flow
        """The id of the flow that the job belongs to; None if to none."""
        self.kept = kept
        """What an earlier attempt passed to `keep` last, as plain data; None if none did."""
        self.meta: dict[str, Any] = meta or {}
        """The object that was given with the job as `meta`; empty if none was."""
        self.traceparent = traceparent
        """The trace that the job belongs to (W3C Trace Context); None if to none."""
        self.item = item
        """The item's key in the application's own tables, if `discover` returned it."""
        self.attempt = attempt
        """The number of this attempt, from 1; interruptions are not counted."""
        self.crashes = crashes
        self._context = context

    if not TYPE_CHECKING:  # a type checker knows all attributes

        def __getattr__(self, name: str) -> Any:
            raise _unknown_attribute("Job", name, dir(Job))

    def progress(
        self,
        done: float | None = None,
        total: float | None = None,
        *,
        stage: str | None = None,
        detail: str | None = None,
    ) -> None:
        """Reports the job's progress; cheap enough to call in a loop. Raises Cancelled if the job was cancelled."""
        self._context.progress(done, total, stage, detail)

    @property
    def cancelled(self) -> bool:
        """Whether the job was cancelled, for handlers that check instead of being interrupted by `progress`."""
        return self._context.is_cancelled()

    @overload
    def enqueue(self, crew: "Crew[Taken, Any]", payload: Taken, **options: "Unpack[JobOptions]") -> str: ...
    @overload
    def enqueue(self, crew: str, payload: Any, **options: "Unpack[JobOptions]") -> str: ...
    def enqueue(self, crew: "Crew[Any, Any] | str", payload: Any, **options: "Unpack[JobOptions]") -> str:
        """Enqueues another job in the transaction that makes this one done; nothing is enqueued if this one is not
        done. The job belongs to the same flow, unless `flow` says otherwise.

        Returns an id by which the job can be found from then on. If its `key` is held then, that is the job that holds
        it, whose own id is another.
        """
        check_crew("job.enqueue", crew)
        return self._context.enqueue(crew, payload, dict(options))

    @overload
    def spawn(
        self, crew: "Crew[Taken, Any]", payloads: Iterable[Taken], **options: "Unpack[JobOptions]"
    ) -> list[str]: ...
    @overload
    def spawn(self, crew: str, payloads: Iterable[Any], **options: "Unpack[JobOptions]") -> list[str]: ...
    def spawn(
        self, crew: "Crew[Any, Any] | str", payloads: Iterable[Any], **options: "Unpack[JobOptions]"
    ) -> list[str]:
        """Enqueues children of this job, as `enqueue` does: those that follow this job also wait for its children, and
        `results` gives them the results of the children. Returns their ids."""
        check_crew("job.spawn", crew)
        check_several("the payloads for job.spawn", payloads)
        return self._context.spawn(crew, payloads, dict(options))

    @overload
    def results(self, crew: "Crew[Any, Given]") -> "Results[Given]": ...
    @overload
    def results(self, crew: str) -> "Results[Any]": ...
    def results(self, crew: "Crew[Any, Any] | str") -> "Results[Any]":
        """Iterates over the results of the jobs of this crew that this job followed, in the order of `after`; children
        come after the job that spawned them. They are read in pages; in a coroutine use `async for`.

        If this job was enqueued with `if_failed="run"`, a job that failed or was cancelled yields JobFailed or
        JobCancelled in place of a result.
        """
        check_crew("job.results", crew)
        return Results(self._context.results(crew), getattr(crew, "gives", None))

    def keep(self, state: Any) -> None:
        """Keeps a checkpoint, as JSON of at most 64 KiB: if this attempt ends without the job being done, however it
        ends, the next one finds it in `kept`. Cheap enough to call in a loop. Raises PayloadError if it is too large.
        """
        self._context.keep(state)

    @property
    def folder(self) -> "Path":
        """The folder for files of the job's flow, or of the job if it has none; made on first use. It is removed when
        the flow or the job is deleted or pruned. Raises FolderFull if its files have reached the limit."""
        return self._context.folder()

    @property
    def scratch(self) -> "Path":
        """A folder for this attempt, made on first use and removed at its end. It is on the same file system as
        `folder`: rename finished files from one to the other. Raises FolderFull if its files have reached the limit."""
        return self._context.scratch()

    def settle(self, result: Any = None) -> "AbstractContextManager[Transaction]":
        """Opens a transaction in which the handler writes its own rows and this job becomes done, atomically.

        Only for crews declared `transactional`. Raises ClaimLost, and writes nothing, if the job no longer belongs to
        this worker. Return from the handler after the block; its return value is ignored.
        """
        return self._context.settle(result)


def _unknown_attribute(kind: str, name: str, known: Iterable[str]) -> AttributeError:
    from chargehand.model.spelling import unknown_attribute  # a worker needs it for a mistake only

    return unknown_attribute(kind, name, known)


class Item:
    """An item of the application that needs work, as `discover` returns it: its key, the job's payload, and a label."""

    __slots__ = ("key", "label", "payload")

    def __init__(self, key: str, payload: Any = None, label: str | None = None) -> None:
        self.key, self.payload, self.label = key, payload, label


def _misnamed(kind: type) -> str:
    """Returns a hint if the class has a method in place of `set_up` that nothing calls."""
    found = next((name for name in ("setup", "setUp", "on_start", "startup") if hasattr(kind, name)), None)
    if found is None or any("set_up" in vars(each) for each in kind.__mro__ if each is not Handler):
        return ""
    return f"; workers call set_up(self), not {found}"


def _no_limit(seconds: float) -> None:
    """Does nothing: outside a worker, `set_up` has no time limit."""


class Handler(Generic[Payload, Result]):
    """The base class of handlers: every worker process creates one, sets it up once and performs jobs with it."""

    ask_for_time: Callable[[float], None] = staticmethod(_no_limit)
    threads: int = 1
    """The number of threads a job may use (PIPELINE_THREADS_PER_JOB), for libraries that ignore the environment."""

    if not TYPE_CHECKING:  # a type checker knows all attributes

        def __getattr__(self, name: str) -> Any:
            error = _unknown_attribute("Handler", name, (*dir(type(self)), *vars(self)))
            error.args = (str(error).replace("'Handler'", repr(type(self).__name__), 1) + _misnamed(type(self)),)
            raise error

    def set_up(self) -> "Awaitable[None] | None":
        """Loads what all jobs need, such as a model. May be async."""

    def more_time(self, seconds: float) -> None:
        """Extends the time limit of `set_up` (5 minutes by default) to `seconds` from now."""
        self.ask_for_time(seconds)

    def discover(self, after: str | None, limit: int) -> "Iterable[str | Item] | Awaitable[Iterable[str | Item]]":
        """Returns up to `limit` items that need work, ordered by key, whose keys follow `after` (None: from the start).

        Only for crews declared `discovers=True`. The order is the application's own, such as its database's collation;
        an item that is returned again with a later `after` is an error. Must return within 30 seconds. May be async.
        """
        raise NotImplementedError(f"{type(self).__qualname__} has no discover(after, limit)")

    def perform(self, job: Job[Payload]) -> "Result | Awaitable[Result]":
        """Performs one job and returns its result. May be async."""
        raise NotImplementedError(f"{type(self).__qualname__} has no perform(job)")

    def perform_batch(self, jobs: list[Job[Payload]]) -> "Sequence[Result | Exception] | Awaitable[Any]":
        """Performs several jobs and returns, in the same order, each job's result or the exception that it failed with.

        Only for crews declared with `batch=`; a batch has at most that many jobs, and often fewer. May be async. An
        exception raised by this method counts for every job of the batch; if it is Cancelled, raised by one job's
        `progress`, only that job ends and the others are performed again.
        """
        raise NotImplementedError(f"{type(self).__qualname__} has no perform_batch(jobs)")

    def is_sound(self) -> "bool | Awaitable[bool]":
        """Tests whether this process can still do jobs; called after a job has failed. May be async.

        If it returns False or raises, the worker is replaced, and the job counts as crashed instead of failed.
        """
        return True

    def tear_down(self) -> "Awaitable[None] | None":
        """Releases resources when the worker stops gracefully. May be async."""

    @classmethod
    def types(cls) -> tuple[Any, Any]:
        """Returns the payload type and the result type of `Handler[Payload, Result]`; Any where none is given."""
        for base in cls.__mro__:
            for origin in getattr(base, "__orig_bases__", ()):
                if get_origin(origin) is Handler:
                    taken, given = (Any if isinstance(a, TypeVar) else a for a in get_args(origin))
                    return taken, given
        return Any, Any
