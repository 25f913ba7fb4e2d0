"""A typed client for the HTTP interface: the same questions and orders as `Chargehand` has, for a node elsewhere."""

from collections.abc import Generator, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack
from urllib.parse import quote

import httpx
import msgspec

from chargehand import clock, errors
from chargehand.errors import ChargehandError
from chargehand.model.access import Operation
from chargehand.model.fleet.orders import Answer
from chargehand.model.job import JobRecord, State
from chargehand.model.records import ClaimRow, CrashRecord, CrewRow, Pause, RecurringPlan
from chargehand.web import answers

LISTEN_AGAIN = 1.0
"""Seconds until a stream of events that ended is begun again."""
LONGEST_SILENCE = 40.0
"""Seconds without even a comment after which it has ended, though nobody said so."""

T = TypeVar("T")
_PROBLEMS: dict[str, type[ChargehandError]] = {
    "job-not-found": errors.JobNotFound,
    "crash-not-found": errors.CrashNotFound,
    "unknown-crew": errors.UnknownCrew,
    "no-such-topic": errors.TopicError,
    "conflict": errors.Conflict,
    "payload": errors.PayloadError,
    "invalid-request": errors.ConfigurationError,
    "store-unusable": errors.StoreError,
    "no-node": errors.NobodyServes,
}
"""Errors of ours that come over HTTP and are raised here as what they were there."""


class Refused(ChargehandError):
    """The server refused a request: its status, which problem it is, and the request's id in the server's log."""

    def __init__(self, text: str, status: int = 0, kind: str = "", request_id: str = "") -> None:
        super().__init__(text)
        self.status, self.kind, self.request_id = status, kind, request_id


class Unreachable(ChargehandError):
    """Nobody answers at that address, or not in time."""


class NewJobOptions(TypedDict, total=False):
    """What a job may have of its own; otherwise it gets its crew's. Lengths are milliseconds."""

    label: str
    key: str
    priority: int
    delay_ms: int
    run_at_ms: int
    max_attempts: int
    timeout_ms: int | None
    limit_key: str


class Client:
    """Calls to a server, at `http://host:port` or `http://host:port/chargehand`. Every method is one request."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 15.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        self.url = url.rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise errors.ConfigurationError(f"{url!r} is no address such as http://host:8356")
        try:
            self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout, transport=transport)
        except (httpx.InvalidURL, ValueError) as error:
            raise errors.ConfigurationError(f"{url!r} is no address such as http://host:8356: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # one request

    def _send(self, method: str, path: str, expected: Sequence[int] = (200, 201), **options: Any) -> bytes:
        try:
            answer = self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.url} does not answer: {type(error).__name__}: {error}") from error
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise errors.ConfigurationError(f"{self.url}{path} is no address: {error}") from None
        if answer.status_code in expected:
            return answer.content
        raise _refusal(answer)

    def _get(self, path: str, kind: type[T], **query: Any) -> T:
        asked = {name: value for name, value in query.items() if value is not None}
        return _read(self._send("GET", path, params=asked), kind)

    def _post(self, path: str, kind: type[T], body: Any = None, headers: dict[str, str] | None = None) -> T:
        if body is None:
            return _read(self._send("POST", path, headers=headers), kind)
        sent = {"Content-Type": "application/json", **(headers or {})}
        return _read(self._send("POST", path, content=msgspec.json.encode(body), headers=sent), kind)

    def subscribe(self, *topics: str) -> Generator[dict[str, Any]]:
        """Events of these topics, as they come: the full state first, then changes; through restarts of the server."""
        last: str | None = None
        while True:
            try:
                for event_id, event in self._listen(topics, last):
                    last = event_id
                    yield event
            except httpx.HTTPError as error:
                if last is None:
                    raise Unreachable(f"{self.url} does not answer: {type(error).__name__}: {error}") from error
            clock.sleep(LISTEN_AGAIN)

    def _listen(self, topics: Sequence[str], last: str | None) -> Generator[tuple[str, dict[str, Any]]]:
        """One stream, to its end."""
        headers = {"Last-Event-ID": last} if last is not None else {}
        asked = {"topics": ",".join(topics)} if topics else {}
        event_id = ""
        with self._http.stream("GET", "/api/events", params=asked, headers=headers, timeout=LONGEST_SILENCE) as answer:
            if answer.status_code != 200:
                answer.read()
                raise _refusal(answer)
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    event_id = line[4:]
                elif line.startswith("data: "):
                    yield event_id, msgspec.json.decode(line[6:])

    # what runs

    def info(self) -> answers.Info:
        """Versions, the node, crews and queues."""
        return self._get("/api/v1/info", answers.Info)

    def status(self) -> dict[str, Any] | None:
        """What the node shows of itself and its workers; None if there is none, or it does not answer."""
        return self._get("/api/v1/status", dict[str, Any])["node"]

    def health(self, status: str | None = None) -> answers.Health:
        """The verdict on everything, and every component; of one status, if that is given."""
        return self._get("/api/v1/health", answers.Health, status=status)

    def component(self, name: str, max_age: float | None = None) -> answers.ComponentHealth:
        """One component, and whether it is well by a beat no older than so many seconds."""
        return self._get(f"/api/v1/health/{quote(name, safe='')}", answers.ComponentHealth, max_age=max_age)

    def workers(self) -> list[answers.WorkerStatus]:
        """Every worker."""
        return self._get("/api/web/worker/status", list[answers.WorkerStatus])

    def crews(self) -> tuple[CrewRow, ...]:
        """Every crew that a node has registered."""
        return self._get("/api/v1/crews", answers.Crews).crews

    def pauses(self) -> tuple[Pause, ...]:
        """What is paused, by whom, why and until when."""
        return self._get("/api/v1/pauses", answers.Pauses).pauses

    def recurring(self) -> tuple[RecurringPlan, ...]:
        """Every recurring job."""
        return self._get("/api/v1/recurring", answers.Recurring).recurring

    def doctor(self) -> answers.Diagnosed:
        """Why nothing is happening, each cause with what mends it."""
        return self._get("/api/v1/doctor", answers.Diagnosed)

    def logs(
        self, scope: str | None = None, *, job: str | None = None, limit: int | None = None
    ) -> tuple[answers.LogLine, ...]:
        """The node's last log lines, of a crew, a worker or a job."""
        return self._get("/api/v1/logs", answers.LogLines, scope=scope, job=job, limit=limit).lines

    def concurrency(self) -> answers.Concurrency:
        """How much is done at the same time."""
        return self._get("/diagnostics/concurrency", answers.Concurrency)

    def alive(self) -> bool:
        """Whether the server answers."""
        return _read(self._send("GET", "/healthz"), answers.Probe).status == "ok"

    def ready(self) -> answers.Probe:
        """Whether it accepts work."""
        return _read(self._send("GET", "/readyz", (200, 503)), answers.Probe)

    def worker_history(self, component: str) -> answers.WorkerHistory:
        """A worker's last states and jobs, and its memory over the last hour, as far as its node saw them."""
        return self._get(f"/api/v1/workers/{quote(component, safe='')}/history", answers.WorkerHistory)

    def workers_ready(self) -> answers.Readiness:
        """Whether work gets done, crew by crew."""
        return _read(self._send("GET", "/workers/ready", (200, 503)), answers.Readiness)

    def metrics(self) -> str:
        """Prometheus's text."""
        return self._send("GET", "/metrics").decode()

    # orders

    def _order(self, verb: str, scope: str | None, **more: Any) -> list[Answer]:
        body = {"scope": scope, **{name: value for name, value in more.items() if value is not None}}
        return list(self._post(f"/api/web/worker/{verb}", answers.Answers, body).answers)

    def start(self, scope: str | None = None) -> list[Answer]:
        """Start stopped workers: all, a crew's, or one (`worker:crew:0`)."""
        return self._order("start", scope)

    def stop(self, scope: str | None = None) -> list[Answer]:
        """Stop workers within the grace."""
        return self._order("stop", scope)

    def drain(self, scope: str | None = None) -> list[Answer]:
        """Let workers finish what they have, however long that takes, and stop them."""
        return self._order("drain", scope)

    def restart(self, scope: str | None = None) -> list[Answer]:
        """Replace workers within the grace, given-up ones too."""
        return self._order("restart", scope)

    def reset(self, scope: str | None = None) -> list[Answer]:
        """Clear crash histories, and start those that were given up."""
        return self._order("reset", scope)

    def scale(self, crew: str, count: int) -> list[Answer]:
        """Change how many workers a crew has."""
        return self._order("scale", crew, count=count)

    def pause(
        self, scope: str | None = None, *, reason: str | None = None, seconds: float | None = None
    ) -> list[Answer]:
        """Take nothing new: all, a crew or one worker."""
        return self._order("pause", scope, reason=reason, for_s=seconds)

    def resume(self, scope: str | None = None) -> list[Answer]:
        """Clear a pause."""
        return self._order("resume", scope)

    # jobs

    def enqueue(
        self,
        crew: str | None = None,
        payload: Any = None,
        *,
        queue: str | None = None,
        once: str | None = None,
        **options: Unpack[NewJobOptions],
    ) -> answers.Made:
        """Enqueue a job for a crew or a queue; `once` is an Idempotency-Key: a repetition is the same job."""
        body = {"crew": crew, "queue": queue, "payload": payload, **options}
        return self._post("/api/v1/jobs", answers.Made, body, _once(once))

    def enqueue_many(self, jobs: Sequence[dict[str, Any]], *, once: str | None = None) -> list[answers.Made]:
        """Enqueue many, each as `enqueue`'s fields, in one transaction: all of them or none."""
        return list(self._post("/api/v1/jobs/bulk", answers.MadeMany, {"jobs": jobs}, _once(once)).jobs)

    def jobs(
        self,
        *,
        queue: str | None = None,
        state: State | str | None = None,
        reason: str | None = None,
        text: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> answers.JobPage:
        """A page of jobs, newest first."""
        asked = {"queue": queue, "state": state and str(state), "reason": reason, "text": text}
        return self._get("/api/v1/jobs", answers.JobPage, **asked, limit=limit, after=after)

    def all_jobs(self, **which: Any) -> Iterator[JobRecord]:
        """All jobs that match, page by page as they are needed."""
        after: str | None = None
        while True:
            page = self.jobs(**which, limit=500, after=after)
            yield from page.jobs
            after = page.next
            if after is None:
                return

    def job(self, job_id: str) -> answers.JobDetail:
        """One job with its attempts and crash reports."""
        return self._get(f"/api/v1/jobs/{quote(job_id, safe='')}", answers.JobDetail)

    def retry(self, job_id: str) -> Answer:
        """Queue a failed or cancelled job again."""
        return self._post(f"/api/v1/jobs/{quote(job_id, safe='')}/retry", Answer)

    def cancel(self, job_id: str) -> Answer:
        """Cancel a job."""
        return self._post(f"/api/v1/jobs/{quote(job_id, safe='')}/cancel", Answer)

    # queues and the rest

    def queues(self) -> tuple[answers.Queue, ...]:
        """Every queue."""
        return self._get("/api/v1/queues", answers.Queues).queues

    def queue_history(self) -> tuple[answers.QueueHistory, ...]:
        """How each queue fared over the last two hours, as far as the node saw it."""
        return self._get("/api/v1/queues/history", answers.QueueHistories).queues

    def retry_failed(self, queue: str) -> answers.Changed:
        """Queue the failed jobs of a queue again."""
        return self._post(f"/api/v1/queues/{quote(queue, safe='')}/retry-failed", answers.Changed)

    def clear_failed(self, queue: str) -> answers.Changed:
        """Delete the failed jobs of a queue."""
        return self._post(f"/api/v1/queues/{quote(queue, safe='')}/clear-failed", answers.Changed)

    def wake(self, crew: str) -> Answer:
        """Have a discovering crew look for work at once."""
        return self._post(f"/api/v1/crews/{quote(crew, safe='')}/wake", Answer)

    def claims(self, limit: int | None = None, after: str | None = None) -> answers.Claims:
        """A page of claims, oldest first."""
        return self._get("/api/v1/claims", answers.Claims, limit=limit, after=after)

    def all_claims(self) -> Iterator[ClaimRow]:
        """Every claim."""
        after: str | None = None
        while True:
            page = self.claims(500, after)
            yield from page.claims
            after = page.next
            if after is None:
                return

    def release(self, job_id: str, claim: int) -> Answer:
        """Take a claim back by hand, if it is still that one; Conflict if not."""
        return self._post(f"/api/v1/claims/{quote(job_id, safe='')}/release", Answer, {"claim": claim})

    def crashes(
        self,
        *,
        component: str | None = None,
        crew: str | None = None,
        job: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> answers.CrashPage:
        """A page of crash reports, newest first."""
        asked = {"component": component, "crew": crew, "job": job}
        return self._get("/api/v1/crashes", answers.CrashPage, **asked, limit=limit, after=after)

    def crash(self, crash_id: str) -> CrashRecord:
        """One crash report."""
        return self._get(f"/api/v1/crashes/{quote(crash_id, safe='')}", CrashRecord)

    def operations(self, *, limit: int | None = None, after: str | None = None, **which: str) -> answers.OperationPage:
        """A page of the operator log, newest first; `who`, `verb` and `target` filter it."""
        return self._get("/api/v1/operations", answers.OperationPage, limit=limit, after=after, **which)

    def all_operations(self, **which: str) -> Iterator[Operation]:
        """The whole operator log."""
        after: str | None = None
        while True:
            page = self.operations(limit=500, after=after, **which)
            yield from page.operations
            after = page.next
            if after is None:
                return

    def who(self) -> answers.SignedIn:
        """Who we are to the server, and what we may do."""
        return self._get("/api/web/session", answers.SignedIn)


def _once(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": key}


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise Refused(f"the answer is not what a Chargehand of this version says: {error}") from error


def _refusal(answer: httpx.Response) -> ChargehandError:
    try:
        found = msgspec.json.decode(answer.content, type=dict[str, Any])
    except msgspec.DecodeError:
        found = {}
    kind = str(found.get("type", "")).rpartition(":")[2]
    text = str(found.get("detail") or f"HTTP {answer.status_code} without a reason; is {answer.url} a Chargehand?")
    if kind in _PROBLEMS:
        return _PROBLEMS[kind](text)
    if answer.status_code == 404 and kind in ("", "no-such-path"):
        text = (
            f"there is no Chargehand at {answer.url}: `chargehand serve` answers at http://host:8356, an application "
            "that it is attached to under its prefix, http://host:8000/chargehand"
        )
    return Refused(text, answer.status_code, kind, str(found.get("request_id", "")))
