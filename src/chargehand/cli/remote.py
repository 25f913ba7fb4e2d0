"""A node elsewhere, by its HTTP interface: the same methods as `Chargehand` has, as far as commands need them."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import msgspec

from chargehand import clock
from chargehand.cli.away import AwayFeed
from chargehand.client import Client
from chargehand.errors import ChargehandError, Conflict, JobNotFound
from chargehand.host.calls import NoNode
from chargehand.host.operations import NOT_RETRIED, cancelling
from chargehand.model.fleet.orders import Answer
from chargehand.model.job import Attempt, Enqueued, JobRecord, NewJob
from chargehand.store import ClaimRow, Counts, CrashFilter, CrashRecord, CrewRow, JobFilter, Pause, RecurringPlan
from chargehand.web.answers import Diagnosed, JobDetail, LogLine, cursor

KEY = "CHARGEHAND_KEY"
MOST_LINES = 2000
"""Lines of a log that can be asked for at a time."""
LOOK_EVERY = 1.0
"""Seconds between two looks at a log that is followed."""


class Remote:
    """What commands are given instead of a Chargehand when they are about a node elsewhere."""

    def __init__(self, url: str, key: str | None) -> None:
        self._client = Client(url, key)
        self.path = self._client.url
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
        raise ChargehandError(f"this cannot be done over HTTP ({self.path}): run it on the machine of the node")

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
        raise NoNode(f"{self.path} is asked over HTTP")

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
        with contextlib.suppress(Conflict):
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
