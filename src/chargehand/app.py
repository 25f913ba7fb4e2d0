"""The object that an application creates: its crews, its recurring jobs, and the node that it hosts.

It imports no handler: crews name their handlers by string, and only workers import them.
"""

import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, cast, overload

from msgspec.structs import replace

from chargehand import codec, handler, log
from chargehand.crew import Crew, JobOptions, Ref, Within, receiving_job
from chargehand.errors import ChargehandError, ConfigurationError, PayloadError, UnknownCrew
from chargehand.flow import Flow, new_flow, shown
from chargehand.handler import type_name
from chargehand.host.brief import Brief, brief_of
from chargehand.host.host import Host
from chargehand.host.operations import AT_MOST, Operations
from chargehand.live.components import Component
from chargehand.model.access import ApiKey, Operation, OperationFilter, Scope
from chargehand.model.fleet.orders import Answer
from chargehand.model.fleet.policy import LivenessPolicy, RestartPolicy, StartPolicy
from chargehand.model.fleet.stacks import WorkerStacks
from chargehand.model.flows import FlowEnd, FlowFilter, FlowRecord
from chargehand.model.health import FRESH_MS, Findings
from chargehand.model.hooks import NO_HOOKS, HookEvent
from chargehand.model.job import NAME_LIMIT, Attempt, JobPolicy, JobRecord, restored
from chargehand.model.records import (
    ClaimRow,
    Counts,
    CrashFilter,
    CrashRecord,
    CrewRow,
    JobFilter,
    Pause,
    Recurrence,
    Retention,
    Snapshot,
)
from chargehand.model.search import DiscoveryPolicy
from chargehand.model.spelling import nearest, unknown_attribute, unknown_option
from chargehand.settings import staffing
from chargehand.settings.hooks import check_hook
from chargehand.settings.known import Settings
from chargehand.settings.layers import argument_meant
from chargehand.settings.layers import read as read_settings
from chargehand.settings.plan import (
    UNSET,
    CrewPlan,
    ExceptionTypes,
    NodePlan,
    Page,
    WhenCutOff,
    check_crew,
    check_node,
    check_type,
    duration,
    exception_names,
    size,
)
from chargehand.settings.schedule import RecurringJob, Schedule
from chargehand.settings.schedule import check as check_schedule
from chargehand.settings.staffing import Declared
from chargehand.store import Transaction
from chargehand.stores.location import locate
from chargehand.system import callers, extras, forks

Payload = TypeVar("Payload")
Result = TypeVar("Result")
Application = TypeVar("Application")
Filter = TypeVar("Filter", JobFilter, CrashFilter, FlowFilter, OperationFilter)
_NONE: Any = None
"""The payload of a call that gives none; a crew that takes a payload rejects it."""


class CrewOptions(TypedDict, total=False):
    """The options of `Chargehand.crew`."""

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
    rate: str | None
    rate_per_key: str | None
    threads: int
    batch: int
    batch_wait_ms: int
    concurrency: int
    recycle_jobs: int | None
    recycle_memory: int | str | None
    idle_exit: float | None
    memory: int | str | None
    gpu_memory: int | str | None
    gpus: int
    when_cut_off: WhenCutOff
    retry_on: ExceptionTypes
    give_up_on: ExceptionTypes
    backoff: float | Sequence[float]
    hide: Sequence[str]


def _check_ids(method: str, *ids: Any) -> None:
    """Raises PayloadError unless all of these are ids of jobs."""
    for each in ids:
        if isinstance(each, Ref):
            raise PayloadError(f"hand.{method} takes the id of a job, not {each!r}: pass ref.id")
        if isinstance(each, list | tuple):
            raise PayloadError(f"hand.{method} takes ids one by one, not in a list: hand.{method}(*ids)")
        if not isinstance(each, str):
            raise PayloadError(f"hand.{method} takes the id of a job, a string, not {each!r}")


def _scope(given: Any) -> Any:
    """Returns the scope of an order. Raises ConfigurationError unless it is the name of a crew or worker, or None."""
    if isinstance(given, Crew):
        raise ConfigurationError(
            f"the scope is a crew object; must be its name: {cast('Crew[Any, Any]', given).name!r}"
        )
    if given is not None and not isinstance(given, str):
        raise ConfigurationError(
            f"the scope is {given!r}; must be the name of a crew, 'worker:crew:0', or None for all"
        )
    return given


def _checked(kind: type[Filter], which: Any) -> Filter:
    """Returns the filter; one without conditions if none is given. Raises PayloadError if it is something else."""
    if which is None:
        return kind()
    if not isinstance(which, kind):
        raise PayloadError(f"the filter is {which!r}; must be a {kind.__name__}, such as {_EXAMPLES[kind]}")
    return which


_EXAMPLES: dict[type[Any], str] = {
    JobFilter: "JobFilter(queue='tag', state=State.FAILED)",
    CrashFilter: "CrashFilter(component='worker:tag:0')",
    FlowFilter: "FlowFilter(text='import')",
    OperationFilter: "OperationFilter(verb='pause')",
}
_FILTERED = {kind: f"conditions are those of a filter: {example}" for kind, example in _EXAMPLES.items()}


class Chargehand:
    """One store and the crews that work on it. An application creates one object at import."""

    if not TYPE_CHECKING:  # a type checker knows all arguments

        def __new__(cls, *arguments: Any, **options: Any) -> Any:
            known = cls.__init__.__annotations__.keys() - {"return"}
            unknown = sorted(options.keys() - known)
            if unknown and cls is Chargehand:
                error = TypeError(f"Chargehand() has no argument {unknown[0]!r}{argument_meant(unknown[0], known)}")
                callers.note(error, sys._getframe(1))
                raise error
            return super().__new__(cls)

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        node: str | None = None,
        restart: RestartPolicy | None = None,
        liveness: LivenessPolicy | None = None,
        starts: StartPolicy | None = None,
        retention: Retention | None = None,
        jobs: JobPolicy | None = None,
        discovery: DiscoveryPolicy | None = None,
        history: bool | None = None,
        log_level: str | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        """Reads the settings: the environment, `.env` and `chargehand.toml` take precedence over these arguments.

        `folder` contains `chargehand.toml`, `.env` and the default store; by default it is the folder of the calling
        module. The two files in the current folder take precedence over those.
        """
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        if folder is None:
            module = caller.f_globals.get("__file__")
            folder = Path(module).parent if module else Path.cwd()
        given = {"url": url, "node": node, "history": history, "log_level": log_level}
        given |= {"restart": restart, "liveness": liveness, "starts": starts, "retention": retention}
        given |= {"jobs": jobs, "discovery": discovery}
        try:
            self.settings: Settings = read_settings(Path(folder).resolve(), given)
            """The settings, read once: arguments, `chargehand.toml`, `.env` and environment."""
            self.location = locate(self.settings.url, self.settings.node)
        except ConfigurationError as error:
            callers.note(error, caller)
            raise
        """Where the store is; `str` gives its address."""
        self.url = self.location.url
        self.node_name, self.log_level = self.settings.node, self.settings.log_level
        self._declared: dict[str, Declared] = {}
        self._crews: dict[str, Crew[Any, Any]] = {}
        self._recurring: dict[str, RecurringJob] = {}
        self._hooks = NO_HOOKS
        self.internal = Operations(self.location, synchronous=self.settings.synchronous)
        """For the packages of Chargehand itself: the web interface, the command line and the test kit."""
        self._host: Host | None = None
        self._guard = threading.Lock()
        forks.in_child(self._after_fork)
        self.pages: list[Page] = []
        """Pages of the application, for the navigation of the dashboard."""

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
    @callers.used_as("a crew has a name and a handler: hand.crew('tag', 'handlers:Tag')")
    def crew(
        self, name: str, handler: str, *, takes: Any = None, gives: Any = None, **options: Unpack[CrewOptions]
    ) -> Crew[Any, Any]:
        """Declares a crew. The handler is named as 'module:Class' and imported only in the workers."""
        given: Any = name
        if not isinstance(given, str):
            raise ConfigurationError(f"crew name is {given!r}; must be a string: hand.crew('tag', 'handlers:Tag')")
        if name in self._crews:
            raise ConfigurationError(f"there are two crews called {name!r}")
        rest: dict[str, Any] = dict(options)
        unknown = set(rest) - set(CrewOptions.__annotations__)
        if unknown:
            raise ConfigurationError(
                f"crew {name!r}: {unknown_option(unknown, [*CrewOptions.__annotations__, 'takes', 'gives'])}"
            )
        timeout = rest.pop("timeout", UNSET)
        if timeout is not UNSET:
            rest["timeout_ms"] = None if timeout is None else duration(f"crew {name!r}", "timeout", timeout)
        for option in ("retry_on", "give_up_on"):
            if option in rest:
                rest[option] = exception_names(f"crew {name!r}: {option}", rest[option])
        for option in ("backoff", "hide"):
            if isinstance(rest.get(option), list):
                rest[option] = tuple(rest[option])
        for option in ("recycle_memory", "memory", "gpu_memory"):
            rest[option] = size(f"crew {name!r}: {option}", rest.get(option))
        for word, kind in (("takes", takes), ("gives", gives)):
            check_type(name, word, kind)
        rest.setdefault("queue", name)
        rest["threads"] = staffing.threads(self.settings, name, rest.get("threads"))
        rest["takes"], rest["gives"] = type_name(takes), type_name(gives)
        default: Any = rest.pop("default", False)
        if not isinstance(default, bool):
            raise ConfigurationError(f"crew {name!r}: default is {default!r}; must be True or False")
        self._declared[name] = Declared(name, rest.get("workers"), default)
        crew = Crew[Any, Any](self.internal, check_crew(CrewPlan(name=name, handler=handler, **rest)), takes, gives)
        self._crews[name] = crew
        self.internal.hide(crew.plan.queue, crew.plan.hide)
        return crew

    @callers.located
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
        """Declares a recurring job: by a cron expression in a time zone, or every so many seconds.

        Each time enqueues one job, however many nodes run. Its label is the name, unless another is given. If no node
        ran at one or more of these times, one job is enqueued when a node starts.
        """
        if name in self._recurring:
            raise ConfigurationError(f"there are two recurring jobs called {name!r}")
        unknown = options.keys() - JobOptions.__annotations__
        if unknown:
            known = (JobOptions.__annotations__.keys() | {"cron", "every", "zone"}) - {"after", "flow"}
            raise ConfigurationError(f"recurring job {name!r}: {unknown_option(unknown, known)}")
        if options.get("after") or options.get("flow") is not None:
            raise ConfigurationError(
                f"recurring job {name!r}: it cannot have after or flow, which name one job or flow"
            )
        found: Any = crew
        if not isinstance(found, Crew):
            raise ConfigurationError(f"recurring job {name!r}: crew is {found!r}; expected what hand.crew(…) returned")
        if crew.location != self.location:
            raise ConfigurationError(
                f"recurring job {name!r}: crew {crew.name!r} is of another store, {crew.location}: declare the "
                "recurring job with the Chargehand object of that crew"
            )
        every_ms = None if every is None else duration(f"recurring job {name!r}", "every", every)
        schedule = check_schedule(name, Schedule(cron=cron, zone=zone, every_ms=every_ms))
        if 1 <= len(name) <= NAME_LIMIT and name.isprintable():  # names have no such limits, labels do
            options.setdefault("label", name)
        options.setdefault("traceparent", None)  # not that of whatever imports the application
        self._recurring[name] = RecurringJob(name=name, schedule=schedule, job=crew.new_job(payload, **options))

    @callers.located
    def hooks(
        self,
        *,
        on_start: str | None = None,
        on_end: str | None = None,
        on_failure: str | None = None,
        on_failed: Crew[HookEvent, Any] | None = None,
        on_crash: Crew[HookEvent, Any] | None = None,
        on_given_up: Crew[HookEvent, Any] | None = None,
    ) -> None:
        """Declares what is called around jobs, and which crews are told of failures.

        Workers call the functions, each named as 'module:function', around every attempt: `on_start(job)`,
        `on_failure(job, error)` and `on_end(job)`. What they raise is logged and changes nothing. The crews receive a
        HookEvent, in a job that is committed with what it tells of: `on_failed` when a job has failed for good,
        `on_crash` when a worker has crashed, `on_given_up` when a worker is not started any more. What happens in a
        crew that receives them triggers no hook.
        """
        functions = {"on_start": on_start, "on_end": on_end, "on_failure": on_failure}
        receivers = {"on_failed": on_failed, "on_crash": on_crash, "on_given_up": on_given_up}
        given: dict[str, Any] = {name: check_hook(name, each) for name, each in functions.items() if each is not None}
        given |= {name: receiving_job(name, crew) for name, crew in receivers.items() if crew is not None}
        for name in given:
            if getattr(self._hooks, name) is not None:
                raise ConfigurationError(f"there are two hooks {name}: declare it once, with hand.hooks(...)")
        self._hooks = replace(self._hooks, **given)

    if not TYPE_CHECKING:  # a type checker knows all attributes

        def __getattr__(self, name: str) -> Any:
            raise unknown_attribute("Chargehand", name, dir(Chargehand))

    @property
    def crews(self) -> dict[str, Crew[Any, Any]]:
        """The declared crews by name."""
        return dict(self._crews)

    def find_crew(self, name: str) -> Crew[Any, Any]:
        """Returns the crew of that name. Raises UnknownCrew."""
        if name not in self._crews:
            known = ", ".join(sorted(self._crews)) or "none"
            raise UnknownCrew(f"there is no crew {name!r}; there are: {known}{nearest(str(name), self._crews)}")
        return self._crews[name]

    # the store

    @property
    def path(self) -> Path:
        """The file of an SQLite store. Deprecated: other stores have none; use `location`."""
        return self.location.path

    def open(self) -> None:
        """Opens the store now, so that an error in it is raised here; otherwise the first use opens it."""
        with self.internal.stores.use():
            return

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Opens a transaction on the store, for the caller's own tables in it and for `enqueue(..., within=tx)`.

        With SQLite it holds the write lock of the store: keep it short, and wait for nothing in it.
        """
        return self.internal.transaction()

    # jobs

    def job(self, job_id: str) -> JobRecord:
        """Returns one job. Raises JobNotFound if it never existed or was pruned."""
        _check_ids("job", job_id)
        return restored(self.internal.job(job_id))

    @callers.used_as(_FILTERED[JobFilter])
    def jobs(self, which: JobFilter | None = None) -> list[JobRecord]:
        """Returns a page of jobs, newest first."""
        return [restored(job) for job in self.internal.jobs(_checked(JobFilter, which))]

    def attempts(self, job_id: str) -> list[Attempt]:
        """Returns every attempt of a job, oldest first."""
        _check_ids("attempts", job_id)
        return self.internal.attempts(job_id)

    def counts(self) -> list[Counts]:
        """Returns the number of jobs in each state, for each queue."""
        return self.internal.counts()

    def cancel(self, *ids: str) -> list[Answer]:
        """Cancels jobs: queued ones at once; running ones are asked to stop, and their workers replaced if needed."""
        _check_ids("cancel", *ids)
        return self.internal.cancel(*ids)

    def retry(self, *ids: str) -> list[Answer]:
        """Queues failed or cancelled jobs again, with cleared counters. Raises Conflict if a unique key is taken."""
        _check_ids("retry", *ids)
        return self.internal.retry(*ids)

    def retry_failed(self, queue: str, most: int = AT_MOST) -> tuple[int, bool]:
        """Queues failed jobs of a queue again, newest first. Returns how many, and whether there may be more.

        A job whose unique key is taken stays failed.
        """
        return self.internal.retry_failed(queue, most)

    def clear_failed(self, queue: str, most: int = AT_MOST) -> tuple[int, bool]:
        """Deletes failed jobs of a queue, oldest first. Returns how many, and whether there may be more."""
        return self.internal.clear_failed(queue, most)

    def delete(self, *ids: str) -> list[Answer]:
        """Deletes finished jobs with their attempts. A job that is queued or running stays, and the answer says so."""
        _check_ids("delete", *ids)
        return self.internal.delete(*ids)

    @callers.used_as(_FILTERED[JobFilter])
    def clear(self, which: JobFilter, most: int = AT_MOST) -> tuple[int, bool]:
        """Deletes finished jobs that match, newest first. Returns how many, and whether there may be more.

        Without a state in the filter, all that are done, failed or cancelled. The store's write lock is released after
        at most 500 jobs or 8 MiB.
        """
        return self.internal.clear(_checked(JobFilter, which), most)

    # flows

    def flow(
        self,
        name: str,
        *,
        on_end: Crew[FlowEnd, Any] | None = None,
        order: Literal["flow", "arrival"] = "flow",
        within: Within = None,
    ) -> Flow:
        """Returns a new flow, which is made with its first jobs at the end of a block: `with hand.flow(name) as flow:`.

        Whenever the flow has ended, a job for the crew `on_end` is enqueued, however the flow ended; its payload is a
        FlowEnd. Jobs that follow others, or that jobs of the flow enqueue, take the flow's place in their queues, so
        that flows are finished before others are begun; with `order="arrival"` they take their own. `within` is a
        transaction, as for `enqueue`.
        """
        return new_flow(self.internal, name, on_end, order, within)

    def find_flow(self, flow_id: str) -> Flow:
        """Returns the flow with this id. Raises FlowNotFound if it never existed or was pruned."""
        given: Any = flow_id
        if not isinstance(given, str):
            instead = f": pass {given.id!r}" if isinstance(given, Flow | FlowRecord) else ""
            raise PayloadError(f"hand.find_flow takes the id of a flow, a string, not {given!r}{instead}")
        return Flow(self.internal, flow_id, shown(self.internal.flow(flow_id)).name)

    @callers.used_as(_FILTERED[FlowFilter])
    def flows(self, which: FlowFilter | None = None) -> list[FlowRecord]:
        """Returns a page of flows, newest first."""
        return [shown(record) for record in self.internal.flows(_checked(FlowFilter, which))]

    def claims(self, limit: int = 1000) -> list[ClaimRow]:
        """Returns which worker holds which job, oldest claim first."""
        return [restored(claim) for claim in self.internal.claims(limit)]

    def release(self, job_id: str, claim: str) -> bool:
        """Ends a claim by hand, for a worker that cannot be reached. Returns False if the claim is another by now."""
        return self.internal.release(job_id, claim)

    def recurrences(self) -> list[Recurrence]:
        """Returns the recurring jobs by name, with the next time, the newest jobs and the pause of each."""
        return self.internal.recurrences()

    def run_recurring(self, name: str) -> str:
        """Enqueues a recurring job now, besides its schedule and also while it is paused. Returns the id of the job.

        Raises RecurringNotFound.
        """
        return self.internal.run_recurring(name)

    def pause_recurring(self, name: str, reason: str | None = None) -> None:
        """Makes a recurring job skip its times until it is resumed. The pause survives restarts.

        Raises RecurringNotFound.
        """
        self.internal.pause_recurring(name, reason)

    def resume_recurring(self, name: str) -> bool:
        """Ends the pause of a recurring job; returns whether it was paused. Times that have passed stay skipped.

        Raises RecurringNotFound.
        """
        return self.internal.resume_recurring(name)

    def known_crews(self) -> list[CrewRow]:
        """Returns the crews that a node has registered in the store."""
        return self.internal.known_crews()

    # workers

    def start(self, scope: str | None = None) -> list[Answer]:
        """Starts stopped workers: all, those of a crew, or one (`worker:crew:0`). Returns the effect on each."""
        return self.internal.start(_scope(scope))

    def stop(self, scope: str | None = None) -> list[Answer]:
        """Stops workers within the grace period. They stay stopped until `start`, or until the node restarts."""
        return self.internal.stop(_scope(scope))

    def drain(self, scope: str | None = None, *, end: bool = False) -> list[Answer]:
        """Stops workers after their current jobs, without a time limit.

        A node (`node/*`, or all without a scope) that has nothing more to do is `drained` in its status; with `end` it
        ends then, and its host starts no other.
        """
        return self.internal.drain(_scope(scope), end=end)

    def restart(self, scope: str | None = None) -> list[Answer]:
        """Replaces workers within the grace period, including those that were given up. Counts as no crash."""
        return self.internal.restart(_scope(scope))

    def reset(self, scope: str | None = None) -> list[Answer]:
        """Clears crash histories, and starts workers that were given up, wait for a restart, or are stopped."""
        return self.internal.reset(_scope(scope))

    def scale(self, crew: str, count: int) -> list[Answer]:
        """Changes the number of workers of a crew, until the configured number changes."""
        return self.internal.scale(_scope(crew), count)

    def pause(
        self,
        scope: str | None = None,
        *,
        reason: str | None = None,
        seconds: float | None = None,
        who: str | None = None,
    ) -> list[Answer]:
        """Stops the assignment of new jobs to all workers, to those of a crew, or to one.

        The pause is kept in the store: it works without a node and survives restarts.
        """
        return self.internal.pause(_scope(scope), reason=reason, seconds=seconds, who=who, declared=self._crews)

    def resume(self, scope: str | None = None) -> list[Answer]:
        """Clears a pause. Workers that were given up stay given up; the answers name them."""
        return self.internal.resume(_scope(scope))

    def pauses(self) -> list[Pause]:
        """Returns the pauses in effect: by whom, why and until when."""
        return self.internal.pauses()

    def wake(self, crew: str) -> None:
        """Makes a discovering crew look for work at once, if a node runs.

        Raises UnknownCrew if there is no such crew, ConfigurationError if the crew does not discover.
        """
        self.internal.wake(_scope(crew), self._crews)

    def stack(self, worker: str) -> WorkerStacks:
        """Returns what a worker (`worker:crew:0` or `crew:0`) is doing now: the Python stacks of its threads.

        The worker goes on. If it cannot write its stacks, `code` and `text` say why.
        """
        return self.internal.stack(worker)

    # health

    def status(self) -> dict[str, Any] | None:
        """Returns the status of the node and its workers; None if no node answers."""
        return self.internal.status()

    def health(self, status: str | None = None) -> list[Component]:
        """Returns the node (`app`) and its workers as the store has them, optionally only those of one status."""
        return self.internal.health(status)

    def component(self, name: str) -> Component | None:
        """Returns one component, by its name or, where several nodes have one, as `node/tag:0`; `app` is a node."""
        return self.internal.component(name)

    def is_healthy(self, name: str, max_age: float = FRESH_MS / 1000) -> bool:
        """Returns whether a component is healthy by a heartbeat that is at most `max_age` seconds old."""
        return self.internal.is_healthy(name, max_age)

    def verdict(self) -> Findings:
        """Returns the state of the whole system (healthy, degraded or error) with reasons, from the store alone."""
        return self.internal.verdict()

    def history(self, since_ms: int = 0, limit: int = 1000) -> list[Snapshot]:
        """Returns the snapshots of health from `since_ms` on, oldest first, if the history is switched on."""
        return self.internal.history(since_ms, limit)

    def queue_history(self) -> list[dict[str, Any]]:
        """Returns the throughput of each queue in the last two hours; empty if no node answers."""
        return self.internal.queue_history()

    def worker_history(self, component: str) -> dict[str, Any] | None:
        """Returns the last states and jobs of a worker, and its memory in the last hour.

        None if no node answers, or if it does not know the worker.
        """
        return self.internal.worker_history(component)

    @callers.used_as(_FILTERED[CrashFilter])
    def crashes(self, which: CrashFilter | None = None) -> list[CrashRecord]:
        """Returns crash reports, newest first."""
        return self.internal.crashes(_checked(CrashFilter, which))

    def crash(self, crash_id: str) -> CrashRecord:
        """Returns one crash report. Raises CrashNotFound."""
        return self.internal.crash(crash_id)

    def logs(
        self, scope: str | None = None, *, job: str | None = None, count: int = 100, follow: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yields the last log lines of the node, a crew, a worker or a job; with `follow`, new ones as they come."""
        return self.internal.logs(scope, job=job, count=count, follow=follow)

    def subscribe(self, *topics: str) -> Generator[dict[str, Any]]:
        """Yields events of these topics: the full state first, then changes. Raises TopicError for an unknown topic.

        It continues until it is closed, through restarts of the node and without one. In an event loop use
        `ref.events()`.
        """
        return self.internal.subscribe(*topics)

    # keys

    def make_key(self, name: str, scopes: Sequence[Scope], *, seconds: float | None = None) -> tuple[str, ApiKey]:
        """Creates an API key. Returns its secret, which is shown only here, and what the store keeps of it."""
        return self.internal.make_key(name, scopes, seconds=seconds)

    def revoke_key(self, name: str) -> None:
        """Revokes an API key by its name or id; it is refused within a second."""
        self.internal.revoke_key(name)

    def api_keys(self) -> list[ApiKey]:
        """Returns every API key, oldest first, including revoked and expired ones."""
        return self.internal.api_keys()

    @callers.used_as(_FILTERED[OperationFilter])
    def operations(self, which: OperationFilter | None = None) -> list[Operation]:
        """Returns entries of the operator log, newest first."""
        return self.internal.keys.operations(_checked(OperationFilter, which))

    # hosting

    @callers.located
    def attach(
        self, app: Application, prefix: str = "/chargehand", *, probes: bool = False, announce: bool = True
    ) -> Application:
        """Adds Chargehand to an ASGI application: its routes under the prefix, and its node for as long as it runs.

        Returns the application to be served. FastAPI and Starlette applications are changed and returned; any other is
        wrapped: serve what this returns, `app = hand.attach(app)`.

        `probes` adds /healthz, /readyz and /workers/ready at the root. Routes of the application take precedence.
        Without `announce` the address of the dashboard is not printed at the start: the application does it.
        """
        with extras.required("web", "hand.attach"):
            from chargehand.web.attach import attach  # only a server needs the web package

        return attach(self, app, prefix, probes=probes, announce=announce)

    @callers.located
    def requires(self, scope: Literal["read", "enqueue", "control"]) -> Callable[..., Any]:
        """Returns a FastAPI dependency that lets only callers with this scope use a route of the application.

        `@app.get("/songs", dependencies=[Depends(hand.requires("read"))])`. Callers are known by a key, the token, or
        the session of the dashboard.
        """
        with extras.required("web", "hand.requires"):
            from chargehand.web.attach import requires

        return requires(self, scope)

    def with_token(self, url: str) -> str:
        """Returns the URL of a page with the token as its fragment; without it if a key exists.

        The result is a secret: print it on a terminal, and log it nowhere.
        """
        token = None if self.settings.admin_key is not None else self.internal.keys.make_token()
        return url if token is None else f"{url}#token={token}"

    def check_settings(self) -> None:
        """Raises ConfigurationError if the settings do not fit the crews."""
        self._node_plan()

    def log_start(self, *, embed_workers: bool) -> None:
        """Logs the store, the files of settings, and the workers that this process starts."""
        counts = {crew.name: crew.workers for crew in self._node_plan().crews}
        log.info("store", path=self.location)
        log.info(
            "settings",
            event=log.Event.SETTINGS,
            files=self.settings.read_from or "none",
            embed_workers=embed_workers,
            workers=[f"{name}: {count}" for name, count in counts.items()] or "none",
        )
        if not embed_workers:
            log.info(
                "no workers are started here",
                event=log.Event.NO_WORKERS_HERE,
                why=self.settings.origins.get("embed_workers", "EMBED_WORKERS is false"),
                remedy="chargehand work APP",
            )

    def _node_plan(self) -> NodePlan:
        found = self.settings
        counts = staffing.workers(found, list(self._declared.values()))
        plan = NodePlan(
            store=self.url,
            node=self.node_name,
            crews=tuple(replace(crew.plan.sendable(), workers=counts[name]) for name, crew in self._crews.items()),
            python_path=tuple(map(codec.escape, sys.path)),
            restart=found.restart,
            liveness=found.liveness,
            starts=found.starts,
            recurring=tuple(self._recurring.values()),
            hooks=self._hooks,
            retention=found.retention,
            jobs=found.jobs,
            discovery=found.discovery,
            history=found.history,
            log_level=self.log_level,
            log=found.log,
            synchronous=found.synchronous,
            nvidia_smi=found.nvidia_smi,
            files=self.location.job_files(found.files),
            files_limit=found.files_limit,
        )
        return check_node(plan)

    def brief(self) -> Brief:
        """Returns what a host must know to start a node with these crews."""
        return brief_of(self._node_plan())

    def host(self, *, give_up: bool = False) -> Host:
        """Starts a node with these crews, and another whenever it ends. Returns at once.

        With `give_up` the host ends if the node cannot start.
        """
        if handler.ready:  # not a ConfigurationError, after which a worker ends for good
            raise ChargehandError(
                "a job starts a node: workers cannot; leave `with hand.running()` out, since the node of this worker "
                "performs what a job enqueues"
            )
        if handler.inside_worker:
            raise ConfigurationError(
                "the import of a handler in a worker starts a node: put what runs the application under "
                "`if __name__ == '__main__':`, or the handler into a module of its own"
            )
        with self._guard:
            if not self._hosts():
                if not self._crews:
                    raise ConfigurationError("there is no crew: declare one with hand.crew(name, 'module:Class')")
                self._host = Host(self.brief(), give_up=give_up)
                self._host.start()
            assert self._host is not None
            return self._host

    def _after_fork(self) -> None:
        self._guard, self._host = threading.Lock(), None

    def _hosts(self) -> bool:
        """Returns whether this process hosts a node."""
        return self._host is not None and not self._host.ended.is_set()

    def unhost(self, limit: float | None = None) -> None:
        """Stops the node that this process hosts: within the grace period, or `limit` seconds if that is less."""
        host = self._host
        if host is not None:
            if not host.stop(limit):
                host.kill()
                host.stop()
            host.close()

    @contextmanager
    def running(self) -> Generator[Host]:
        """Hosts a node for the length of the block."""
        already = self._hosts()
        host = self.host()
        try:
            yield host
        finally:
            if not already:
                self.unhost()

    def close(self) -> None:
        """Stops the node, if this process hosts one, and closes all connections."""
        self.unhost()
        self.internal.close()
