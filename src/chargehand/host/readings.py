"""What can be read of one store and its node, from any process of the machine, without the handlers of the application.

It starts no node and no worker, and writes nothing into a store that exists but questions to nodes on other machines;
`host/operations.py` adds what does.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from chargehand import clock
from chargehand.errors import (
    AmbiguousId,
    ChargehandError,
    CrashNotFound,
    FlowNotFound,
    JobNotFound,
    NobodyServes,
    StoreError,
    UnknownCrew,
)
from chargehand.host import nodelock, restart_plan
from chargehand.host.calls import Calls, NodeLeft, NoNode
from chargehand.host.feed import Feed
from chargehand.host.keys import Keys
from chargehand.host.offline import states
from chargehand.host.pool import StorePool
from chargehand.host.reach import Reach
from chargehand.host.restart_plan import RestartPlan
from chargehand.ids import is_short
from chargehand.live import hiding, store_view
from chargehand.live.bodies import NodeBody
from chargehand.live.components import (
    Component,
    addressed,
    component_of,
    live_pid,
    member_of_component,
    nodes_of,
)
from chargehand.live.store_view import StoreLook, StoreView
from chargehand.model import address
from chargehand.model.failures import FailureGroup, grouped
from chargehand.model.flows import FlowFilter, FlowRecord, Predecessor, PredecessorFilter
from chargehand.model.health import APP, FRESH_MS, Findings, held_up, is_healthy, judge, paused_on_purpose, unserved
from chargehand.model.job import FINISHED, Attempt, JobRecord
from chargehand.model.records import (
    ClaimRow,
    Counts,
    CrashFilter,
    CrashRecord,
    CrewRow,
    HealthRow,
    JobFilter,
    JobsFound,
    Pause,
    Recurrence,
    RecurringState,
    SearchPlace,
    Snapshot,
    Sort,
    Tally,
)
from chargehand.model.routing import Target
from chargehand.model.status import NodeStatus
from chargehand.model.topic import parse
from chargehand.settings import schedule
from chargehand.store import Store
from chargehand.stores.location import Location
from chargehand.stores.refusal import described, refusals

MOST_LINES = 1000
"""Log lines that one node of several sends at once while its log is followed."""
SEARCH = 1.0
"""Seconds after which a search of jobs says how far it came."""
MOST_FAILURES = 10_000
"""The number of failed jobs that are grouped by their causes."""
MOST_SHORT = 10_000
"""The number of flows and of crash reports, the newest first, that are looked through for the end of an id."""
MOST_NAMED = 5
"""The number of jobs that an error names."""
FOLLOW_EVERY = 1.0
"""Seconds between two looks at the logs of several nodes."""


class Failures(msgspec.Struct, frozen=True):
    """Failed jobs by their causes, the most frequent first."""

    groups: tuple[FailureGroup, ...]
    count: int
    """How many failed jobs were grouped."""
    searched_ms: int | None = None
    """None: all that match. Otherwise there were too many, or time ran out: only those of jobs created since then."""


Found = TypeVar("Found", FlowRecord, CrashRecord)


def found_by_end(store: Store, job_id: str) -> JobRecord | None:
    """Returns a job by its id, an alias of it, or the end of its id. Raises AmbiguousId if several ids end so."""
    job = store.jobs.get(job_id)
    if job is not None or not is_short(job_id):
        return job
    ids = store.jobs.named(job_id, MOST_NAMED + 1)
    if len(ids) > 1:
        more = ", …" if len(ids) > MOST_NAMED else ""
        named = ", ".join(ids[:MOST_NAMED])
        raise AmbiguousId(f"the ids of several jobs end with {job_id!r}: {named}{more}; give more of the one you mean")
    return store.jobs.get(ids[0]) if ids else None


def _only(what: str, end: str, found: Sequence[Found]) -> Found | None:
    """Returns what has an id with this end; None if nothing has. Raises AmbiguousId if several have."""
    if len(found) > 1:
        more = ", …" if len(found) > MOST_NAMED else ""
        named = ", ".join(each.id for each in found[:MOST_NAMED])
        raise AmbiguousId(f"the ids of several {what} end with {end!r}: {named}{more}; give more of the one you mean")
    return found[0] if found else None


class Readings:
    """The open stores and the connections to the node of one store, and everything that is read from them."""

    def __init__(self, location: Location, *, synchronous: str) -> None:
        self.location = location
        self.stores = StorePool(location, synchronous)
        self.calls = Calls(location)
        self.keys = Keys(self.stores, location)
        self.reach = Reach(location, self.stores, self.calls)
        self._hidden: list[tuple[str, tuple[str, ...]]] = []
        self._feeds: WeakKeyDictionary[asyncio.AbstractEventLoop, Feed] = WeakKeyDictionary()

    @property
    def address(self) -> str:
        return str(self.location)

    def close(self) -> None:
        """Closes the connections to the node and the stores that are not in use."""
        self.calls.close()
        self.stores.close()

    # jobs

    def job(self, job_id: str) -> JobRecord:
        with self.stores.use() as store:
            job = found_by_end(store, job_id)
        if job is None:
            raise JobNotFound(f"there is no job {job_id!r} in {self.location}")
        return job

    def jobs(self, which: JobFilter) -> list[JobRecord]:
        with self.stores.use() as store:
            return store.jobs.find(which)

    def hide(self, queue: str, names: tuple[str, ...]) -> None:
        """Notes that the application hides these fields of the queue's jobs, whether a node has registered its crew or
        not."""
        self._hidden.append((queue, names))

    def shown(self, jobs: Sequence[JobRecord]) -> list[JobRecord]:
        if not jobs:
            return []
        hidden = self._fields_hidden()
        return [hiding.shown(job, hidden) for job in jobs]

    def _fields_hidden(self) -> hiding.Hidden:
        return hiding.together(self.known_crews(), self._hidden)

    def _check_search(self, which: JobFilter) -> None:
        """Raises ConfigurationError if the filter compares a value that is hidden."""
        if hiding.compares_payloads(which):
            hiding.check_search(which, self._fields_hidden())

    def search(
        self, which: JobFilter, sort: Sort = Sort.NEWEST, after: SearchPlace | None = None, seconds: float = SEARCH
    ) -> JobsFound:
        self._check_search(which)
        with self.stores.use() as store:
            return store.jobs.search(which, sort, after, seconds)

    def tally(self, which: JobFilter, seconds: float = SEARCH) -> Tally:
        self._check_search(which)
        with self.stores.use() as store:
            return store.jobs.tally(which, seconds)

    def failures(self, which: JobFilter, seconds: float = SEARCH) -> Failures:
        self._check_search(which)
        with self.stores.use() as store:
            found = store.jobs.failures(which, MOST_FAILURES, seconds)
        return Failures(tuple(grouped(found.jobs, which)), len(found.jobs), found.searched_ms)

    def attempts(self, job_id: str) -> list[Attempt]:
        with self.stores.use() as store:
            return store.jobs.attempts(job_id)

    def counts(self) -> list[Counts]:
        with self.stores.use() as store:
            return store.jobs.counts()

    def claims(self, limit: int = 1000) -> list[ClaimRow]:
        with self.stores.use() as store:
            return store.jobs.claims(limit)

    def recurrences(self) -> list[Recurrence]:
        with self.stores.use() as store:
            plans = store.jobs.recurring()
            states = {each.name: each for each in store.jobs.recurring_states()} if plans else {}
            ids = [job_id for plan in plans if plan.name in states for job_id in states[plan.name].runs]
            runs = {run.id: run for run in store.jobs.runs(ids)} if ids else {}
        return [schedule.seen(plan, states.get(plan.name, RecurringState(name=plan.name)), runs) for plan in plans]

    def waiting(self) -> list[tuple[str, int]]:
        """Returns the queues that have due jobs, and for how many ms the next one has been due."""
        with self.stores.use() as store:
            return store.jobs.waiting()

    def await_end(self, job_id: str, until: float | None) -> None:
        with suppress(NoNode, TimeoutError):
            self.calls.wait(job_id, lambda: self.job(job_id).state in FINISHED, until)

    # flows

    def flow(self, flow_id: str) -> FlowRecord:
        with self.stores.use() as store:
            flow = store.flows.get(flow_id)
            if flow is None and is_short(flow_id):
                which = FlowFilter(text=flow_id, limit=MOST_SHORT)
                flow = _only("flows", flow_id, [each for each in store.flows.find(which) if each.id.endswith(flow_id)])
        if flow is None:
            raise FlowNotFound(f"there is no flow {flow_id!r} in {self.location}")
        return flow

    def flows(self, which: FlowFilter) -> list[FlowRecord]:
        with self.stores.use() as store:
            return store.flows.find(which)

    def await_flow(self, flow_id: str, until: float | None) -> None:
        with suppress(NoNode, TimeoutError):
            self.calls.wait(f"flow:{flow_id}", lambda: self.flow(flow_id).ended_ms is not None, until)

    def predecessors(self, which: PredecessorFilter) -> list[Predecessor]:
        """Returns a page of the jobs that a job waits for, or waited for, in order."""
        with self.stores.use() as store:
            return store.jobs.predecessors(which)

    def followers(self, job_id: str, limit: int = 100) -> list[JobRecord]:
        """Returns the jobs that wait for this one, or waited for it, oldest first."""
        with self.stores.use() as store:
            return store.jobs.followers(job_id, limit)

    def children(self, job_id: str, limit: int = 100) -> list[JobRecord]:
        """Returns the jobs that this one spawned, oldest first."""
        with self.stores.use() as store:
            return store.jobs.children(job_id, limit)

    # health

    def known_crews(self, *, living: bool = False) -> list[CrewRow]:
        """Returns the crews that nodes have registered; `living`: those of nodes that live, if one does."""
        with self.stores.use() as store:
            return (store.fleet.crews(living=True) if living else []) or store.fleet.crews()

    def pauses(self) -> list[Pause]:
        with self.stores.use() as store:
            return store.fleet.pauses()

    def status(self) -> dict[str, Any] | None:
        try:
            return self.calls.status()
        except NoNode:
            return None

    def node_status(self) -> NodeStatus | None:
        """Returns the status of the node, decoded; None if no node answers."""
        found = self.status()
        return None if found is None else msgspec.convert(found, NodeStatus)

    def health(self, status: str | None = None) -> list[Component]:
        """Returns the node (`app`) and its workers as the store has them, optionally only those of one status."""
        with self.stores.use() as store:
            found = [component_of(row) for row in store.fleet.health()]
        return [component for component in found if status is None or component.status == status]

    def nodes(self) -> list[NodeBody]:
        """Returns every node that shares the store, with its crews, and those that are gone."""
        with self.stores.use() as store:
            rows, components = store.fleet.nodes(), [component_of(row) for row in store.fleet.health()]
        return nodes_of(rows, components)

    def component(self, name: str) -> Component | None:
        """Returns one component, by its name or its address (`node/tag:0`); `app` is a node that runs, if one does.

        Raises ConfigurationError if several nodes have a worker of this name.
        """
        with self.stores.use() as store:
            rows = _meant(store.fleet.health(), name)
        found = [component_of(row) for row in rows]
        return next((component for component in found if component.pid is not None), next(iter(found), None))

    def is_healthy(self, name: str, max_age: float = FRESH_MS / 1000) -> bool:
        """Returns whether a component is healthy by a heartbeat that is at most `max_age` seconds old."""
        with self.stores.use() as store:
            rows = _meant(store.fleet.health(), name)
        return any(is_healthy(row.status, row.flags, row.age_ms, int(max_age * 1000)) and live_pid(row) for row in rows)

    def elsewhere(self, here: NodeStatus | None) -> list[Component]:
        """Returns the workers of the nodes that run, apart from the one that answers here. Empty in a store for one."""
        if self.location.server is None:
            return []
        found = [component for component in self.health() if here is None or component.node != here.node]
        running = {component.node for component in found if component.component == APP and component.is_healthy}
        return [component for component in found if component.component != APP and component.node in running]

    def verdict(self) -> Findings:
        """Returns the state of the whole system (healthy, degraded or error) with reasons, from the store alone."""
        return self._judged()[0]

    def unserved(self) -> dict[str, str] | None:
        """Returns the queues with due jobs that no worker of any node will take, each with the reason.

        None if no node runs.
        """
        return self._judged()[1]

    def _judged(self) -> tuple[Findings, dict[str, str] | None]:
        with self.stores.use() as store:
            rows = [(row, component_of(row)) for row in store.fleet.health()]
            waiting, crews, pauses = store.jobs.waiting(), store.fleet.crews(living=True), store.fleet.pauses()
        gone = {row.node for row, _ in rows if not row.node_lives}
        if (
            self.location.server is not None
        ):  # a process of this machine that has ended is known before its lease is over
            gone |= {row.node for row, _ in rows if row.component == APP and live_pid(row) is None}
        rows = [each for each in rows if each[0].node not in gone]
        node = any(row.component == APP and is_healthy(row.status, (), row.age_ms) and live_pid(row) for row, _ in rows)
        workers = [shown for row, shown in rows if row.component != APP]
        failing = next((row.reason for row, _ in rows if row.component == APP and row.reason), None)
        queues = {crew.name: crew.queue for crew in crews}
        members = [member_of_component(shown) for row, shown in rows if row.component != APP]
        nobody = unserved(waiting, queues, members, [pause.scope for pause in pauses]) if node else None
        return judge(addressed(workers), nobody or {}, node=node, store_failing=failing, gone=sorted(gone)), nobody

    def waiting_for_nobody(self) -> list[str]:
        """Returns the queues that have due jobs while no node runs."""
        if self.silent_node() is not None or not self.location.exists():
            return []
        if self.location.server is not None and self.unserved() is not None:
            return []  # a node runs elsewhere
        with self.stores.use() as store:
            return sorted(queue for queue, _ in store.jobs.waiting())

    def why_waiting(self, queue: str) -> str | None:
        with self.stores.use() as store:
            rows, crews, pauses = store.fleet.health(), store.fleet.crews(living=True), store.fleet.pauses()
        queues = {crew.name: crew.queue for crew in crews}
        paused = paused_on_purpose(queue, queues, [pause.scope for pause in pauses])
        if paused is not None:
            return paused
        if not any(row.component == APP and live_pid(row) for row in rows):
            return "no node runs: chargehand work APP"
        rows = [row for row in rows if row.node_lives]
        members = [member_of_component(component_of(row)) for row in rows if row.component != APP]
        return held_up(queue, queues, members)

    def silent_node(self) -> dict[str, Any] | None:
        with refusals(self.location.node):
            return nodelock.holder(nodelock.nearest(self.location))

    def next_node(self) -> RestartPlan | None:
        return restart_plan.announced(self.location)

    # the past

    def history(self, since_ms: int = 0, limit: int = 1000) -> list[Snapshot]:
        """Returns the snapshots of health from `since_ms` on, oldest first."""
        with self.stores.use() as store:
            return store.fleet.snapshots(since_ms, limit)

    def queue_history(self) -> list[dict[str, Any]]:
        """Returns the throughput of each queue in the last two hours; empty if no node answers."""
        try:
            return self.calls.past()
        except NoNode:
            return []

    def worker_history(self, component: str) -> dict[str, Any] | None:
        """Returns the last states, jobs and memory of a worker; None if no node that answers has it."""
        node, rest = address.split(component)
        name = address.component_of(rest)
        with suppress(NoNode):
            found = self.calls.diary(name)
            if found is not None and node in (None, found["node"]):
                return found
        if not self.reach.may_be_many:
            return None
        try:
            elsewhere = self.reach.targets(component, question=True)[:1]
        except (NoNode, NobodyServes, UnknownCrew):
            return None
        replies = [reply for _, reply in self.reach.ask("DIARY", elsewhere, id=name)]
        return next((reply["diary"] for reply in replies if not isinstance(reply, ChargehandError)), None)

    def crashes(self, which: CrashFilter | None = None) -> list[CrashRecord]:
        which = which or CrashFilter()
        if which.component is not None and "/" in which.component:
            node, component = address.split(which.component)
            which = msgspec.structs.replace(which, node=node, component=address.component_of(component))
        with self.stores.use() as store:
            return store.fleet.crashes(which)

    def crash(self, crash_id: str) -> CrashRecord:
        with self.stores.use() as store:
            found = store.fleet.crash(crash_id)
            if found is None and is_short(crash_id):
                reports = store.fleet.crashes(CrashFilter(limit=MOST_SHORT))
                found = _only("crash reports", crash_id, [each for each in reports if each.id.endswith(crash_id)])
        if found is None:
            raise CrashNotFound(
                f"there is no crash report {crash_id!r} in {self.location}; `chargehand crashes` lists them"
            )
        return found

    def logs(
        self, scope: str | None = None, *, job: str | None = None, count: int = 100, follow: bool = False
    ) -> Iterator[dict[str, Any]]:
        if "/" in (scope or "") or self.reach.elsewhere():
            yield from self._logs_of_many(scope, job, count, follow)
            return
        try:
            yield from self.calls.logs(scope, job, count, follow)
        except NodeLeft as error:
            raise ChargehandError(
                f"the node at {self.location} ended while its log was read; "
                "`chargehand status` shows whether another runs"
            ) from error
        except NoNode as error:
            if isinstance(error.__cause__, PermissionError):
                raise StoreError(described(error.__cause__, self.location.socket)) from error
            raise ChargehandError(
                f"no logs: no node answers at {self.location}; "
                "`chargehand crashes` has the last lines of crashed workers"
            ) from error

    def _logs_of_many(self, scope: str | None, job: str | None, count: int, follow: bool) -> Iterator[dict[str, Any]]:
        """Yields the last lines of all nodes that the scope concerns, by their time; new ones are read every second."""
        last: dict[str, dict[str, Any]] = {}
        silent: set[str] = set()
        while True:
            try:
                to = self.reach.targets(scope, question=True)
            except NoNode as error:
                raise ChargehandError(f"no logs: {error}; `chargehand crashes` has those of crashed workers") from error
            lines: list[dict[str, Any]] = []
            replies = self.reach.ask("TAIL", to, last, id=job or "", count=count)
            failed = {target.node.name: reply for target, reply in replies if isinstance(reply, ChargehandError)}
            if len(failed) == len(replies):
                raise next(iter(failed.values()))
            for target, reply in replies:
                if not isinstance(reply, ChargehandError):
                    last[target.node.name] = {"last": reply["last"]}
                    lines += [_shown(target, line) for line in reply["lines"]]
            lines = sorted(lines, key=lambda line: line["at_ms"])[-count:] if count else []
            lines += [_silence(name, str(why)) for name, why in failed.items() if name not in silent]
            silent = set(failed)
            yield from lines
            if not follow:
                return
            count = MOST_LINES
            clock.sleep(FOLLOW_EVERY)

    # live state

    def look(self, look: StoreLook) -> StoreView:
        """Reads queues and jobs from the store for readers of live state."""
        with self.stores.use() as store:
            return store_view.take(store, look)

    def feed(self) -> Feed:
        loop = asyncio.get_running_loop()
        if loop not in self._feeds:
            self._feeds[loop] = Feed(self.location, partial(states, self))
        return self._feeds[loop]

    def subscribe(self, *topics: str) -> Generator[dict[str, Any]]:
        patterns = parse(topics)

        async def events() -> AsyncGenerator[dict[str, Any]]:
            async with self.feed().watch(patterns) as watcher:
                async for event in watcher.events():
                    yield event

        return _without_loop(events())


def _shown(target: Target, line: dict[str, Any]) -> dict[str, Any]:
    """Returns a log line; if there are several nodes, its component names the node."""
    return {**line, "component": target.shown(line["component"] or APP)} if target.named else line


def _silence(node: str, why: str) -> dict[str, Any]:
    """Returns the log line that stands for those of a node that does not answer."""
    at_ms = clock.now_ms()
    return {"at_ms": at_ms, "component": f"{node}/{APP}", "event": None, "job": None, "level": "warning", "text": why}


def _meant(rows: Sequence[HealthRow], name: str) -> list[HealthRow]:
    """Returns the row of the component that a name means; of `app` without a node, those of all nodes."""
    if name == APP:
        return [row for row in rows if row.component == APP]
    dead = {row.node for row in rows if row.component == APP and live_pid(row) is None}
    named: tuple[list[address.Named], list[address.Named]] = ([], [])
    for row in rows:
        named[not row.node_lives or row.node in dead].append((row.node, row.component))
    meant = address.meant(name, *named)
    return [row for row in rows if (row.node, row.component) == meant]


def _without_loop(events: AsyncGenerator[dict[str, Any]]) -> Generator[dict[str, Any]]:
    """Yields the events of an async generator to a caller without an event loop."""
    with asyncio.Runner() as runner:
        try:
            while True:
                yield runner.run(anext(events))
        finally:
            runner.run(events.aclose())
