"""What a user imports: Chargehand, its crews, and references to jobs. It enqueues and asks; it holds no workers.

Nothing that a handler needs is imported here: crews name their handlers by string.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from chargehand import handler, settings
from chargehand.crew import Crew, JobOptions
from chargehand.errors import (
    ChargehandError,
    ConfigurationError,
    JobNotFound,
    UnknownCrew,
)
from chargehand.host import nodelock
from chargehand.host.calls import Calls, NoNode
from chargehand.host.feed import Feed
from chargehand.host.host import Host
from chargehand.host.offline import states
from chargehand.host.operations import Operating
from chargehand.model.fleet.policy import LivenessPolicy, RestartPolicy, StartPolicy
from chargehand.model.job import Attempt, Enqueued, JobRecord, NewJob
from chargehand.model.records import Counts, CrewRow, JobFilter, Retention
from chargehand.model.topic import parse
from chargehand.settings import Declared, Settings
from chargehand.settings.plan import UNSET, CrewPlan, NodePlan, Page, check_crew, check_type, milliseconds, size
from chargehand.settings.schedule import RecurringJob, Schedule
from chargehand.settings.schedule import check as check_schedule
from chargehand.store import Store, Transaction
from chargehand.stores import open_store
from chargehand.stores.location import locate

if TYPE_CHECKING:
    from fastapi import FastAPI

Payload = TypeVar("Payload")
_NONE: Any = None
"""A payload of any type, for those who give none: a crew that takes one refuses it."""
Result = TypeVar("Result")

THROUGH_THE_NODE = 32
"""Up to so many jobs at once go through the node, which joins callers in one commit; more go straight to the store."""
BYTES_THROUGH_THE_NODE = 1 << 18

_inside: ContextVar[bool] = ContextVar("chargehand_inside_transaction", default=False)


class CrewOptions(TypedDict, total=False):
    """What a crew may be given."""

    default: bool
    workers: int
    queue: str
    priority: int
    max_attempts: int
    timeout: float | None
    transactional: bool
    environment: dict[str, str]
    discovers: bool
    limit: int | None
    limit_per_key: int | None
    threads: int
    batch: int
    batch_wait_ms: int
    recycle_jobs: int | None
    recycle_memory: int | str | None
    idle_exit: float | None
    memory: int | str | None
    gpu_memory: int | str | None


class Chargehand(Operating):
    """One store and the crews that work for it: the object that an application makes once, at import."""

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        node: str | None = None,
        restart: RestartPolicy | None = None,
        liveness: LivenessPolicy | None = None,
        starts: StartPolicy | None = None,
        retention: Retention | None = None,
        history: bool | None = None,
        log_level: str | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        """What is given here can be set from outside, too, and that wins: see `chargehand.settings`.

        `folder` is where `chargehand.toml`, `.env` and the default store are: if not given, that of the module that
        calls.
        """
        if folder is None:
            module = sys._getframe(1).f_globals.get("__file__")  # pyright: ignore[reportPrivateUsage]
            folder = Path(module).parent if module else Path.cwd()
        given = {"url": None if url is None else os.fspath(url), "node": node, "history": history}
        given |= {"restart": restart, "liveness": liveness, "starts": starts, "retention": retention}
        self.settings: Settings = settings.read(Path(folder).resolve(), {**given, "log_level": log_level})
        """What was set, in code and from outside; read once."""
        self.location = locate(self.settings.url)
        """Where the store is; `str` gives its address."""
        self.url = self.location.url
        self.node_name, self.log_level = self.settings.node, self.settings.log_level
        self._declared: dict[str, Declared] = {}
        self._crews: dict[str, Crew[Any, Any]] = {}
        self._recurring: dict[str, RecurringJob] = {}
        self._stores: list[Store] = []
        self._pid = os.getpid()
        self._calls = Calls(self.location.socket)
        self._host: Host | None = None
        self._guard = threading.Lock()
        self.pages: list[Page] = []
        """Pages of the application's own, which the dashboard's navigation names."""
        self._feeds: WeakKeyDictionary[asyncio.AbstractEventLoop, Feed] = WeakKeyDictionary()

    # crews

    @overload
    def crew(
        self, name: str, handler: str, *, takes: type[Payload], gives: type[Result], **options: Unpack[CrewOptions]
    ) -> Crew[Payload, Result]: ...
    @overload
    def crew(
        self, name: str, handler: str, *, takes: type[Payload], **options: Unpack[CrewOptions]
    ) -> Crew[Payload, Any]: ...
    @overload
    def crew(self, name: str, handler: str, **options: Unpack[CrewOptions]) -> Crew[Any, Any]: ...
    def crew(
        self, name: str, handler: str, *, takes: Any = None, gives: Any = None, **options: Unpack[CrewOptions]
    ) -> Crew[Any, Any]:
        """Declare a crew. The handler is named as 'module:Class' and imported in the workers only."""
        if name in self._crews:
            raise ConfigurationError(f"there are two crews called {name!r}")
        rest: dict[str, Any] = dict(options)
        unknown = set(rest) - set(CrewOptions.__annotations__)
        if unknown:
            known = ", ".join(sorted(CrewOptions.__annotations__))
            raise ConfigurationError(f"crew {name!r}: unknown option {', '.join(sorted(unknown))}; there are: {known}")
        timeout = rest.pop("timeout", UNSET)
        if timeout is not UNSET:
            rest["timeout_ms"] = None if timeout is None else milliseconds("timeout", timeout)
        for option in ("recycle_memory", "memory", "gpu_memory"):
            rest[option] = size(f"crew {name!r}: {option}", rest.get(option))
        for word, kind in (("takes", takes), ("gives", gives)):
            check_type(name, word, kind)
        rest.setdefault("queue", name)
        rest["threads"] = settings.threads(self.settings, name, rest.get("threads"))
        self._declared[name] = Declared(name, rest.get("workers"), bool(rest.pop("default", False)))
        crew = Crew[Any, Any](self, check_crew(CrewPlan(name=name, handler=handler, **rest)), takes, gives)
        self._crews[name] = crew
        return crew

    def recurring(
        self,
        name: str,
        crew: Crew[Payload, Any],
        payload: Payload = _NONE,
        *,
        cron: str | None = None,
        every: float | None = None,
        zone: str = "UTC",
        **options: Unpack[JobOptions],
    ) -> None:
        """Have a job enqueued again and again: by a cron expression in a time zone, or every so many seconds.

        Each time fires once, however many nodes run; times that nobody was there for are made up for by one, late.
        """
        if name in self._recurring:
            raise ConfigurationError(f"there are two recurring jobs called {name!r}")
        found: Any = crew
        if not isinstance(found, Crew):
            raise ConfigurationError(f"recurring job {name!r}: crew is {found!r}; expected what hand.crew(…) returned")
        every_ms = None if every is None else milliseconds("every", every)
        schedule = check_schedule(name, Schedule(cron=cron, zone=zone, every_ms=every_ms))
        self._recurring[name] = RecurringJob(name=name, schedule=schedule, job=crew.new_job(payload, **options))

    @property
    def crews(self) -> dict[str, Crew[Any, Any]]:
        """The crews by name."""
        return dict(self._crews)

    def find_crew(self, name: str) -> Crew[Any, Any]:
        """The crew of that name, or UnknownCrew with those that there are."""
        if name not in self._crews:
            known = ", ".join(sorted(self._crews)) or "none"
            raise UnknownCrew(f"there is no crew {name!r}; there are: {known}")
        return self._crews[name]

    # the store and the node

    @property
    def path(self) -> Path:
        """The file of an SQLite store. Deprecated: other stores have none; use `location`."""
        return self.location.path

    @property
    def calls(self) -> Calls:
        """Calls to the node. After a fork everything is opened anew: what the parent has open is the parent's."""
        if self._pid != os.getpid():
            self._forked = (self._stores, self._calls, self._host)  # kept, so that nothing of the parent's is closed
            self._stores, self._calls, self._host = [], Calls(self.location.socket), None
            self._pid = os.getpid()
        return self._calls

    @contextmanager
    def _store(self, *, create: bool = True) -> Generator[Store]:
        """A store for this thread alone, kept for the next use."""
        _ = self.calls
        try:
            store = self._stores.pop()
        except IndexError:
            nodelock.check_namespace(self.location)
            store = open_store(self.location, create=create, synchronous=self.settings.synchronous)
        try:
            yield store
        finally:
            self._stores.append(store)

    def open(self) -> None:
        """Open the store now, so that whatever is wrong with it is told at once. Otherwise its first use does."""
        with self._store():
            return

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """A transaction on the store, for the caller's own tables in it and for `enqueue(..., within=tx)`.

        It holds the store's write lock: keep it short, and do not wait for anything in it.
        """
        self._not_inside()
        with self._store() as store:
            token = _inside.set(True)
            try:
                with store.transaction() as tx:
                    yield tx
            finally:
                _inside.reset(token)
        self.calls.hint(None)

    def _not_inside(self) -> None:
        if _inside.get():
            raise ChargehandError(
                "this would wait for the transaction that it is called in: hand the transaction on with within=tx"
            )

    def enqueue_jobs(self, jobs: Sequence[NewJob], within: Transaction | None) -> list[Enqueued]:
        """Enqueue checked jobs. If the node's answer is lost the store is asked: ids make that the same jobs."""
        if within is not None:
            return within.jobs.enqueue(jobs)
        self._not_inside()
        if not jobs:
            return []
        if len(jobs) <= THROUGH_THE_NODE and sum(len(job.payload) for job in jobs) <= BYTES_THROUGH_THE_NODE:
            with suppress(NoNode):
                return self.calls.enqueue(jobs)
        with self._store() as store, store.transaction() as tx:
            done = tx.jobs.enqueue(jobs)
        for queue in {job.queue for job in jobs}:
            self.calls.hint(queue)
        return done

    # asking

    def job(self, job_id: str) -> JobRecord:
        """One job; JobNotFound if it never was, or was pruned."""
        with self._store() as store:
            job = store.jobs.get(job_id)
        if job is None:
            raise JobNotFound(f"there is no job {job_id!r} in {self.location}")
        return job

    def jobs(self, which: JobFilter) -> list[JobRecord]:
        """A page of jobs, newest first."""
        with self._store() as store:
            return store.jobs.find(which)

    def attempts(self, job_id: str) -> list[Attempt]:
        """Every attempt of one job, oldest first."""
        with self._store() as store:
            return store.jobs.attempts(job_id)

    def counts(self) -> list[Counts]:
        """How many jobs every queue has in each state."""
        with self._store() as store:
            return store.jobs.counts()

    def known_crews(self) -> list[CrewRow]:
        """The crews that a node has registered in the store."""
        with self._store() as store:
            return store.fleet.crews()

    def status(self) -> dict[str, Any] | None:
        """What the node shows of itself and its workers; None if there is none, or it does not answer."""
        try:
            return self.calls.status()
        except NoNode:
            return None

    # watching

    def feed(self) -> Feed:
        """Live state for the running event loop: one line to the node, however many watch."""
        loop = asyncio.get_running_loop()
        if loop not in self._feeds:
            self._feeds[loop] = Feed(self.location.socket, partial(states, self))
        return self._feeds[loop]

    def subscribe(self, *topics: str) -> Generator[dict[str, Any]]:
        """Events of these topics, as they come: the full state first, then changes. TopicError if there are none such.

        It goes on until it is closed, through restarts of the node, and without one. In an event loop: `ref.events()`.
        """
        patterns = parse(topics)

        async def events() -> AsyncGenerator[dict[str, Any]]:
            async with self.feed().watch(patterns) as watcher:
                async for event in watcher.events():
                    yield event

        return _one_by_one(events())

    # hosting

    def attach(self, app: "FastAPI", prefix: str = "/chargehand", *, probes: bool = False) -> None:
        """Put Chargehand into a FastAPI application: the node runs while it does, and all is seen under the prefix.

        `probes`: /healthz, /readyz and /workers/ready at the root, too. What the application serves itself goes first.
        """
        from chargehand.web.attach import attach  # only who serves HTTP needs it

        attach(self, app, prefix, probes=probes)

    def plan(self) -> NodePlan:
        """What a node needs to know."""
        told = self.settings
        counts = settings.workers(told, list(self._declared.values()))
        return NodePlan(
            store=self.url,
            node=self.node_name,
            crews=tuple(replace(crew.plan, workers=counts[name]) for name, crew in self._crews.items()),
            python_path=tuple(sys.path),
            restart=told.restart,
            liveness=told.liveness,
            starts=told.starts,
            recurring=tuple(self._recurring.values()),
            retention=told.retention,
            history=told.history,
            log_level=self.log_level,
            log=told.log,
            synchronous=told.synchronous,
        )

    def host(self, *, give_up: bool = False) -> Host:
        """Be the host: start a node with these crews, and keep one running. Returns at once."""
        _ = self.calls
        if handler.inside_worker:
            raise ConfigurationError(
                "a worker was about to host a node while it imported its handler: put what runs the application under "
                "`if __name__ == '__main__':`, or the handler into a module of its own"
            )
        with self._guard:
            if self._host is None or self._host.ended.is_set():
                if not self._crews:
                    raise ConfigurationError("there is no crew: declare one with hand.crew(name, 'module:Class')")
                self._host = Host(self.plan(), give_up=give_up)
                self._host.start()
            return self._host

    def unhost(self, limit: float | None = None) -> None:
        """Stop the node that this process hosts, in order: within the grace, or so many seconds if that is less."""
        host = self._host
        if host is not None:
            if not host.stop(limit):
                host.kill()
                host.stop()
            host.close()

    @contextmanager
    def running(self) -> Generator[Host]:
        """Host a node for the length of the block."""
        already = self._host is not None and self._pid == os.getpid() and not self._host.ended.is_set()
        host = self.host()
        try:
            yield host
        finally:
            if not already:
                self.unhost()

    def close(self) -> None:
        """Let go of connections; the node, if this process hosts one, is stopped first."""
        self.unhost()
        self._calls.close()
        while self._stores:
            self._stores.pop().close()


def _one_by_one(events: AsyncGenerator[dict[str, Any]]) -> Generator[dict[str, Any]]:
    """What comes in an event loop, for those who have none."""
    with asyncio.Runner() as runner:
        try:
            while True:
                yield runner.run(anext(events))
        finally:
            runner.run(events.aclose())
