"""A Chargehand server elsewhere, over its HTTP interface, as the `Service` that commands use."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, NamedTuple, NoReturn

import msgspec

from chargehand import clock, codec
from chargehand.client import Client
from chargehand.errors import ChargehandError, Conflict, JobNotFound
from chargehand.host.operations import cancel_answer, delete_answer, retry_answer
from chargehand.host.readings import Failures
from chargehand.host.restart_plan import RestartPlan
from chargehand.live.bodies import NodeBody
from chargehand.live.components import Component
from chargehand.model.access import Scope
from chargehand.model.bulk import BulkDone, BulkPlace, BulkVerb
from chargehand.model.fleet.orders import Answer, AnswerCode
from chargehand.model.fleet.stacks import WorkerStacks
from chargehand.model.flows import FlowFilter, FlowRecord, FlowStage, Relations
from chargehand.model.health import Findings
from chargehand.model.job import Attempt, Enqueued, JobRecord, NewJob, State, restored
from chargehand.model.job_query import text_of
from chargehand.model.records import (
    ClaimRow,
    Counts,
    CrashFilter,
    CrashRecord,
    CrewRow,
    JobFilter,
    JobsFound,
    Pause,
    Recurrence,
    SearchPlace,
    Snapshot,
    Sort,
    Tally,
)
from chargehand.model.topic import RESYNC, Patterns
from chargehand.web.answers import Diagnosed, LogLine, cursor, place

KEY = "CHARGEHAND_KEY"
MOST_LINES = 2000
"""Log lines that one request returns at most."""
LOOK_EVERY = 1.0
"""Seconds between two requests for a log that is followed."""
PATIENCE = 5.0
"""Seconds that `top` waits for the full state before it shows what has arrived."""


class ReceivedEvent(NamedTuple):
    """An event as the server sent it."""

    event: dict[str, Any]

    def read(self, topic: str) -> dict[str, Any]:
        return self.event


class RemoteWatcher:
    """Receives events in a thread, and passes them to the event loop that waits in `next`."""

    def __init__(self, client: Client) -> None:
        self._client, self._loop = client, asyncio.get_running_loop()
        self._news = asyncio.Event()
        self.node_there = False
        self._received: list[dict[str, Any]] = []
        self._error: ChargehandError | None = None

    def _receive(self) -> None:
        """Receives events until the process ends; runs in the thread."""
        with suppress(RuntimeError):  # the event loop is closed: the command has ended
            try:
                for event in self._client.subscribe():
                    self._loop.call_soon_threadsafe(self._add, event)
            except ChargehandError as error:
                self._loop.call_soon_threadsafe(self._fail, error)

    def _add(self, event: dict[str, Any]) -> None:
        self._received.append(event)
        self._news.set()

    def _fail(self, error: ChargehandError) -> None:
        self._error = error
        self._news.set()

    async def start(self) -> None:
        """Receives events from now on, and waits until the state of every worker and queue has arrived, for PATIENCE
        seconds at most."""
        # A refused client is closed at once; closed while the thread connects, it would leave that connection open.
        self.node_there = await asyncio.to_thread(self._client.status) is not None
        wanted = {"system:health", *(f"{w.component}:status" for w in await asyncio.to_thread(self._client.workers))}
        wanted |= {f"queue:{queue.queue}:status" for queue in await asyncio.to_thread(self._client.queues)}
        threading.Thread(target=self._receive, daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while self._error is None and wanted - {event["topic"] for event in self._received}:
                    await self._news.wait()
                    self._news.clear()
        self._news.set()

    async def next(self, timeout: float | None = None) -> tuple[bool, list[tuple[ReceivedEvent, str]]]:
        try:
            async with asyncio.timeout(timeout):
                await self._news.wait()
        except TimeoutError:
            return False, []
        self._news.clear()
        if self._error is not None:
            raise self._error
        events, self._received = self._received, []
        last = max((at for at, event in enumerate(events) if event["type"] == RESYNC), default=None)
        newer_than = 0 if last is None else last + 1
        return last is not None, [(ReceivedEvent(event), event["topic"]) for event in events[newer_than:]]

    def interrupt(self) -> None:
        self._news.set()


class RemoteFeed:
    """The live state of a server: everything but single jobs."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @asynccontextmanager
    async def watch(self, patterns: Patterns) -> AsyncGenerator[RemoteWatcher]:
        watcher = RemoteWatcher(self._client)
        await watcher.start()
        yield watcher


class Remote:
    """A `Service` over HTTP. What the HTTP interface does not offer raises ChargehandError."""

    def __init__(self, url: str, key: str | None) -> None:
        self._client = Client(url, key)

    @property
    def address(self) -> str:
        return self._client.url

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def doctor(self) -> Diagnosed:
        """Returns the findings of the doctor on the server."""
        return self._client.doctor()

    # workers

    def start(self, scope: str | None = None) -> list[Answer]:
        return self._client.start(scope)

    def stop(self, scope: str | None = None) -> list[Answer]:
        return self._client.stop(scope)

    def drain(self, scope: str | None = None, *, end: bool = False) -> list[Answer]:
        return self._client.drain(scope, end=end)

    def restart(self, scope: str | None = None) -> list[Answer]:
        return self._client.restart(scope)

    def reset(self, scope: str | None = None) -> list[Answer]:
        return self._client.reset(scope)

    def scale(self, crew: str, count: int) -> list[Answer]:
        return self._client.scale(crew, count)

    def pause(
        self, scope: str | None = None, *, reason: str | None = None, seconds: float | None = None
    ) -> list[Answer]:
        return self._client.pause(scope, reason=reason, seconds=seconds)

    def resume(self, scope: str | None = None) -> list[Answer]:
        return self._client.resume(scope)

    def wake(self, crew: str) -> None:
        self._client.wake(crew)

    def stack(self, worker: str) -> WorkerStacks:
        return self._client.stack(worker)

    def status(self) -> dict[str, Any] | None:
        return self._client.status()

    def nodes(self) -> list[NodeBody]:
        try:
            return list(self._client.nodes())
        except ChargehandError as error:
            if getattr(error, "status", None) == HTTPStatus.NOT_FOUND:
                return []  # a server of an earlier version
            raise

    def health(self) -> list[Component]:
        return list(self._client.health().components)

    def verdict(self) -> Findings:
        found = self._client.health()
        return Findings(found.status, found.reasons)

    def silent_node(self) -> dict[str, Any] | None:
        """Returns None: the HTTP interface does not say whether a node runs that does not answer."""

    def next_node(self) -> RestartPlan | None:
        """Returns None: the HTTP interface does not say whether a host waits to start a node."""

    def history(self, since_ms: int = 0, limit: int = 1000) -> list[Snapshot]:
        found: list[Snapshot] = []
        after: str | None = None
        while len(found) < limit:
            page = self._client.history(since_ms, limit=min(500, limit - len(found)), after=after)
            found += page.snapshots
            after = page.next
            if after is None:
                break
        return found

    def known_crews(self) -> list[CrewRow]:
        return list(self._client.crews())

    def pauses(self) -> list[Pause]:
        return list(self._client.pauses())

    def crash(self, crash_id: str) -> CrashRecord:
        return self._client.crash(crash_id)

    def crashes(self, which: CrashFilter | None = None) -> list[CrashRecord]:
        wanted = which or CrashFilter()
        after = None if wanted.before is None else cursor(wanted.before)
        asked = {"component": wanted.component, "crew": wanted.crew, "job": wanted.job, "node": wanted.node}
        return list(self._client.crashes(**asked, limit=min(500, wanted.limit), after=after).crashes)

    def logs(
        self, scope: str | None = None, *, job: str | None = None, count: int = 100, follow: bool = False
    ) -> Iterator[dict[str, Any]]:
        shown: tuple[LogLine, ...] = ()
        if count or follow:
            shown = self._client.logs(scope, job=job, limit=MOST_LINES)
            yield from (msgspec.to_builtins(line) for line in shown[-count:] if count)
        while follow:
            clock.sleep(LOOK_EVERY)
            found = self._client.logs(scope, job=job, limit=MOST_LINES)
            yield from (msgspec.to_builtins(line) for line in found[len(found) - newer(shown, found) :])
            shown = found

    # jobs

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        sent: list[dict[str, Any]] = []
        for job in jobs:
            fields = msgspec.structs.asdict(restored(job))
            del fields["id"], fields["child"]
            sent.append({**fields, "payload": codec.from_json(job.payload, None, "the payload")})
        return [Enqueued(made.id, made.created, made.replaced) for made in self._client.enqueue_many(sent)]

    def cancel(self, *ids: str) -> list[Answer]:
        return [self._cancel(job_id) for job_id in ids]

    def _cancel(self, job_id: str) -> Answer:
        with suppress(JobNotFound, Conflict):
            answer = self._client.cancel(job_id)
            if answer.code != AnswerCode.NOT_CANCELLED:
                return _with_code(answer, AnswerCode.CANCELLED)
        return cancel_answer(job_id, None)

    def retry(self, *ids: str) -> list[Answer]:
        return [self._retry(job_id) for job_id in ids]

    def _retry(self, job_id: str) -> Answer:
        try:
            return _with_code(self._client.retry(job_id), AnswerCode.QUEUED)
        except JobNotFound:
            return retry_answer(job_id, queued=False)
        except Conflict as error:
            if self.job(job_id).state not in (State.FAILED, State.CANCELLED):
                return retry_answer(job_id, queued=False)
            return Answer(job_id, str(error).removeprefix(f"job {job_id} "), AnswerCode.CONFLICT)

    def delete(self, *ids: str) -> list[Answer]:
        return [self._delete(job_id) for job_id in ids]

    def _delete(self, job_id: str) -> Answer:
        try:
            return self._client.delete(job_id)
        except JobNotFound:
            return delete_answer(job_id, None, deleted=False)
        except Conflict:
            return delete_answer(job_id, self.job(job_id), deleted=False)

    def clear(self, which: JobFilter) -> tuple[int, bool]:
        changed = self._client.clear(every=True, **_asked(which))
        return changed.count, changed.more

    def release(self, job_id: str, claim: str) -> bool:
        with suppress(Conflict):
            self._client.release(job_id, claim)
            return True
        return False

    def job(self, job_id: str) -> JobRecord:
        found = self._client.job(job_id)
        result = None if found.result is None else msgspec.Raw(msgspec.json.encode(found.result))
        return msgspec.structs.replace(found, result=result)  # in the form in which a store returns it

    def shown(self, jobs: Sequence[JobRecord]) -> list[JobRecord]:
        return list(jobs)  # the server has hidden what is hidden

    def jobs(self, which: JobFilter) -> list[JobRecord]:
        below = which.below if which.before is None else self.job(which.before).seq
        after = None if below is None else cursor(below)
        found: list[JobRecord] = []
        while len(found) < which.limit:
            page = self._client.jobs(**_asked(which), limit=min(500, which.limit - len(found)), after=after)
            found += page.jobs
            after = page.next
            if after is None:
                break
        return found

    def search(self, which: JobFilter, sort: Sort = Sort.NEWEST, after: SearchPlace | None = None) -> JobsFound:
        """A page over HTTP has 500 jobs at most."""
        arrival = sort in (Sort.NEWEST, Sort.OLDEST)
        where = None if after is None else cursor(after.seq) if arrival else cursor(after.value, after.seq)
        page = self._client.jobs(filter=text_of(which), sort=sort, limit=min(which.limit, 500), after=where)
        found = [int(each) for each in place(page.next or "")]
        following = SearchPlace(0 if arrival else found[0], found[-1]) if found else None
        return JobsFound(jobs=page.jobs, next=following, searched_ms=page.searched_ms)

    def tally(self, which: JobFilter) -> Tally:
        return self._client.count_jobs(text_of(which))

    def failures(self, which: JobFilter) -> Failures:
        return self._client.failures(text_of(which))

    def change(self, verb: BulkVerb, which: JobFilter, after: BulkPlace | None = None) -> BulkDone:
        sent = None if after is None else cursor(after.state, after.below)
        done = self._client.change_jobs(verb, text_of(which), every=True, after=sent)
        found = [] if done.next is None else place(done.next)
        following = BulkPlace(int(found[0]), int(found[1])) if found else None
        return BulkDone(count=done.count, refused=done.refused, next=following)

    def attempts(self, job_id: str) -> list[Attempt]:
        return list(self._client.job(job_id).attempt_history)

    def counts(self) -> list[Counts]:
        names = Counts.__struct_fields__
        return [Counts(**{name: getattr(queue, name) for name in names}) for queue in self._client.queues()]

    def claims(self) -> list[ClaimRow]:
        return list(self._client.all_claims())

    def recurrences(self) -> list[Recurrence]:
        return list(self._client.recurring())

    def run_recurring(self, name: str) -> str:
        return self._client.run_recurring(name).component

    def pause_recurring(self, name: str, reason: str | None = None) -> None:
        self._client.pause_recurring(name, reason)

    def resume_recurring(self, name: str) -> bool:
        return self._client.resume_recurring(name).code == AnswerCode.RESUMED

    def why_waiting(self, queue: str) -> str | None:
        return next((each.unserved for each in self._client.queues() if each.queue == queue), None)

    def await_end(self, job_id: str, until: float | None) -> None:
        """Returns at once: the HTTP interface does not report the end of a job without a subscription."""

    def relations(self, job_id: str) -> Relations:
        found = self._client.job(job_id)
        return Relations(**{name: getattr(found, name) for name in Relations.__struct_fields__})

    # flows

    def flow(self, flow_id: str) -> FlowRecord:
        return self._client.flow(flow_id)

    def flows(self, which: FlowFilter) -> list[FlowRecord]:
        found: list[FlowRecord] = []
        after = None if which.before is None else cursor(which.before)
        while len(found) < which.limit:
            page = self._client.flows(
                state=which.state, text=which.text, limit=min(500, which.limit - len(found)), after=after
            )
            found += page.flows
            after = page.next
            if after is None:
                break
        return found

    def stages(self, flow_id: str) -> list[FlowStage]:
        return list(self._client.flow(flow_id).stages)

    def cancel_flow(self, flow_id: str) -> Answer:
        try:
            return self._client.cancel_flow(flow_id)
        except Conflict as error:
            return Answer(flow_id, _about(flow_id, error), AnswerCode.NOT_CANCELLED)

    def retry_flow(self, flow_id: str) -> Answer:
        try:
            return self._client.retry_flow(flow_id)
        except Conflict as error:
            return Answer(flow_id, _about(flow_id, error), AnswerCode.NOT_RETRIED)

    def delete_flow(self, flow_id: str) -> Answer:
        return self._client.delete_flow(flow_id)

    # live state

    def feed(self) -> RemoteFeed:
        return RemoteFeed(self._client)

    def subscribe(self, *topics: str) -> Generator[dict[str, Any]]:
        return self._client.subscribe(*topics)

    # keys

    def make_key(self, name: str, scopes: Sequence[Scope], *, seconds: float | None = None) -> NoReturn:
        self._not_offered()

    def revoke_key(self, name: str) -> NoReturn:
        self._not_offered()

    def api_keys(self) -> NoReturn:
        self._not_offered()

    def token(self) -> NoReturn:
        self._not_offered()

    def dashboard(self) -> str:
        return f"{self.address.rstrip('/')}/dashboard"

    def _not_offered(self) -> NoReturn:
        raise ChargehandError(
            f"this command does not work over HTTP ({self.address}): run it on the machine of the node"
        )


def _about(flow_id: str, error: Conflict) -> str:
    return str(error).removeprefix(f"flow {flow_id} ")


def _asked(which: JobFilter) -> dict[str, Any]:
    """Returns the filter of jobs as the HTTP interface has it."""
    names = ("queue", "state", "reason", "tag", "text", "flow", "older_ms")
    asked = {name: getattr(which, name) for name in names if getattr(which, name) is not None}
    further = text_of(JobFilter(since_ms=which.since_ms, until_ms=which.until_ms, matches=which.matches))
    return {**asked, "filter": further} if further else asked  # an older server refuses what it does not know


def _with_code(answer: Answer, code: AnswerCode) -> Answer:
    """Returns the answer with a code; a server of version 0.1.0 sends none."""
    return answer if answer.code else msgspec.structs.replace(answer, code=code)


def newer(before: Sequence[LogLine], now: Sequence[LogLine]) -> int:
    """Returns how many lines at the end of `now` follow the end of `before`."""
    for count in range(len(now)):
        known = len(now) - count
        if known <= len(before) and before[len(before) - known :] == now[:known]:
            return count
    return len(now)
