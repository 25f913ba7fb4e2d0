"""A node elsewhere, by its HTTP interface: the same methods as `Chargehand` has, as far as commands need them."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, NoReturn

import msgspec

from chargehand import clock
from chargehand.client import Client
from chargehand.errors import ChargehandError, Conflict, JobNotFound
from chargehand.host.calls import NoNode
from chargehand.host.operations import NOT_RETRIED, cancelling
from chargehand.model.fleet.orders import Answer
from chargehand.model.job import Attempt, Enqueued, JobRecord, NewJob
from chargehand.model.records import (
    ClaimRow,
    Counts,
    CrashFilter,
    CrashRecord,
    CrewRow,
    JobFilter,
    Pause,
    RecurringPlan,
)
from chargehand.model.topic import RESYNC, Patterns
from chargehand.web.answers import Diagnosed, JobDetail, LogLine, cursor

KEY = "CHARGEHAND_KEY"
MOST_LINES = 2000
"""Lines of a log that can be asked for at a time."""
LOOK_EVERY = 1.0
"""Seconds between two looks at a log that is followed."""
PATIENCE = 5.0
"""Seconds for the full state to be told; then what is known is shown."""


class Heard(NamedTuple):
    """An event that came as plain data."""

    event: dict[str, Any]

    def read(self, topic: str) -> dict[str, Any]:
        return self.event


class AwayWatcher:
    """`next` gives what is new, when there is something. A thread listens; everything else is the loop's."""

    def __init__(self, client: Client) -> None:
        self._client, self._loop = client, asyncio.get_running_loop()
        self.news = asyncio.Event()
        self.node_there = False
        self._heard: list[dict[str, Any]] = []
        self._error: ChargehandError | None = None

    def listen(self) -> None:
        """Hear until the process ends; runs in the thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody watches any more
            try:
                for event in self._client.subscribe():
                    self._loop.call_soon_threadsafe(self._hear, event)
            except ChargehandError as error:
                self._loop.call_soon_threadsafe(self._fail, error)

    def _hear(self, event: dict[str, Any]) -> None:
        self._heard.append(event)
        self.news.set()

    def _fail(self, error: ChargehandError) -> None:
        self._error = error
        self.news.set()

    async def complete(self) -> None:
        """Wait until the state of everything that is there has been told."""
        self.node_there = await asyncio.to_thread(self._client.status) is not None
        wanted = {"system:health", *(f"{w.component}:status" for w in await asyncio.to_thread(self._client.workers))}
        wanted |= {f"queue:{queue.queue}:status" for queue in await asyncio.to_thread(self._client.queues)}
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while self._error is None and wanted - {event["topic"] for event in self._heard}:
                    await self.news.wait()
                    self.news.clear()
        self.news.set()

    async def next(self, timeout: float | None = None) -> tuple[bool, list[tuple[Heard, str]]]:
        """The next events, none after so many seconds; and whether everything told before is void."""
        try:
            async with asyncio.timeout(timeout):
                await self.news.wait()
        except TimeoutError:
            return False, []
        self.news.clear()
        if self._error is not None:
            raise self._error
        heard, self._heard = self._heard, []
        last = max((at for at, event in enumerate(heard) if event["type"] == RESYNC), default=None)
        return last is not None, [(Heard(event), event["topic"]) for event in heard[0 if last is None else last + 1 :]]


class AwayFeed:
    """Stands for a `Feed`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @asynccontextmanager
    async def watch(self, patterns: Patterns) -> AsyncGenerator[AwayWatcher]:
        """Watch for the length of the block, whatever the patterns: everything but the jobs."""
        watcher = AwayWatcher(self._client)
        threading.Thread(target=watcher.listen, daemon=True).start()
        await watcher.complete()
        yield watcher


class Remote:
    """What commands are given instead of a Chargehand when they are about a node elsewhere."""

    def __init__(self, url: str, key: str | None) -> None:
        self._client = Client(url, key)
        self.location = self._client.url
        self.crews: dict[str, Any] = {}  # what an application declares is known over there
        verbs = (
            "start",
            "stop",
            "drain",
            "restart",
            "reset",
            "resume",
            "scale",
            "pause",
            "status",
            "crash",
            "subscribe",
        )
        for verb in verbs:
            setattr(self, verb, getattr(self._client, verb))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ChargehandError(f"this cannot be done over HTTP ({self.location}): run it on the machine of the node")

    def close(self) -> None:
        self._client.close()

    # questions

    def doctor(self) -> Diagnosed:
        return self._client.doctor()

    def feed(self) -> AwayFeed:
        return AwayFeed(self._client)

    def counts(self) -> list[Counts]:
        names = Counts.__struct_fields__
        return [Counts(**{name: getattr(queue, name) for name in names}) for queue in self._client.queues()]

    def pauses(self) -> list[Pause]:
        return list(self._client.pauses())

    def known_crews(self) -> list[CrewRow]:
        return list(self._client.crews())

    def recurrences(self) -> list[RecurringPlan]:
        return list(self._client.recurring())

    def claims(self) -> list[ClaimRow]:
        return list(self._client.all_claims())

    def job(self, job_id: str) -> JobDetail:
        found = self._client.job(job_id)
        result = None if found.result is None else msgspec.Raw(msgspec.json.encode(found.result))
        return msgspec.structs.replace(found, result=result)  # as the store has it

    @property
    def calls(self) -> NoReturn:
        """Nobody tells us of a job's end: whoever waits for one asks again and again."""
        raise NoNode(f"{self.location} is asked over HTTP")

    def why_waiting(self, queue: str) -> str | None:
        return next((each.unserved for each in self._client.queues() if each.queue == queue), None)

    def attempts(self, job_id: str) -> list[Attempt]:
        return list(self._client.job(job_id).attempt_history)

    def jobs(self, which: JobFilter) -> list[JobRecord]:
        after = None if which.before is None else cursor(self.job(which.before).seq)
        asked = {"queue": which.queue, "state": which.state, "reason": which.reason, "text": which.text}
        found: list[JobRecord] = []
        while len(found) < which.limit:
            page = self._client.jobs(**asked, limit=min(500, which.limit - len(found)), after=after)
            found += page.jobs
            after = page.next
            if after is None:
                break
        return found

    def crashes(self, which: CrashFilter | None = None) -> list[CrashRecord]:
        wanted = which or CrashFilter()
        after = None if wanted.before is None else cursor(wanted.before)
        asked = {"component": wanted.component, "crew": wanted.crew, "job": wanted.job}
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

    # orders

    def wake(self, crew: str) -> None:
        self._client.wake(crew)

    def enqueue_jobs(self, jobs: Sequence[NewJob], within: None) -> list[Enqueued]:
        sent: list[dict[str, Any]] = []
        for job in jobs:
            fields = msgspec.structs.asdict(job)
            del fields["id"]
            sent.append({**fields, "payload": msgspec.json.decode(job.payload)})
        return [Enqueued(made.id, made.created) for made in self._client.enqueue_many(sent)]

    def cancel(self, *ids: str) -> list[Answer]:
        answers: list[Answer] = []
        for job_id in ids:
            try:
                answer = self._client.cancel(job_id)
            except (JobNotFound, Conflict):
                answer = None
            if answer is None or answer.text == "is cancelled already":
                answer = Answer(job_id, cancelling(None))
            answers.append(answer)
        return answers

    def retry(self, *ids: str) -> list[Answer]:
        answers: list[Answer] = []
        for job_id in ids:
            try:
                answers.append(self._client.retry(job_id))
            except JobNotFound:
                answers.append(Answer(job_id, NOT_RETRIED))
            except Conflict as error:
                text = str(error)
                answers.append(
                    Answer(job_id, text.removeprefix(f"job {job_id} ") if "its key" in text else NOT_RETRIED)
                )
        return answers

    def release(self, job_id: str, fence: int) -> bool:
        with suppress(Conflict):
            self._client.release(job_id, fence)
            return True
        return False


def newer(before: Sequence[LogLine], now: Sequence[LogLine]) -> int:
    """How many lines at the end of a log have come since it ended as it did before."""
    for count in range(len(now)):
        known = len(now) - count
        if known <= len(before) and before[len(before) - known :] == now[:known]:
            return count
    return len(now)
