"""A typed client for the HTTP API, with the operations of `Chargehand` for a remote server.

It escapes what it sends. What it returns is as the server sends it: names that are not UTF-8 stay escaped.
"""

from collections.abc import Generator, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack
from urllib.parse import quote

import msgspec

from chargehand import clock, codec, errors
from chargehand.errors import ChargehandError
from chargehand.host.readings import Failures
from chargehand.live.bodies import NodeBody
from chargehand.model.access import Operation
from chargehand.model.bulk import BulkVerb
from chargehand.model.fleet.orders import Answer
from chargehand.model.fleet.stacks import WorkerStacks
from chargehand.model.flows import FlowState
from chargehand.model.job import JobRecord, State
from chargehand.model.records import ClaimRow, CrashRecord, CrewRow, Pause, Recurrence, Sort, Tally
from chargehand.system.extras import required
from chargehand.web import answers

with required("cli", "chargehand.client"):
    import httpx

RECONNECT_AFTER = 1.0
"""Seconds before an event stream that has ended is opened again."""
LONGEST_SILENCE = 40.0
"""Seconds without data after which a stream is considered closed; the server sends a comment every 15."""

T = TypeVar("T")
_PROBLEMS: dict[str, type[ChargehandError]] = {
    "job-not-found": errors.JobNotFound,
    "ambiguous-id": errors.AmbiguousId,
    "flow-not-found": errors.FlowNotFound,
    "recurring-not-found": errors.RecurringNotFound,
    "crash-not-found": errors.CrashNotFound,
    "unknown-crew": errors.UnknownCrew,
    "no-such-topic": errors.TopicError,
    "flow-ended": errors.FlowEnded,
    "conflict": errors.Conflict,
    "payload": errors.PayloadError,
    "invalid-request": errors.ConfigurationError,
    "store-unusable": errors.StoreError,
    "no-node": errors.NobodyServes,
}
"""The exceptions for the problem types of the server."""


class Refused(ChargehandError):
    """The server refused a request: the HTTP status, the problem type, and the request id in the log of the server."""

    code = "refused"  # unless the server's answer has another

    def __init__(self, text: str, status: int = 0, kind: str = "", request_id: str = "") -> None:
        super().__init__(text)
        self.status, self.kind, self.request_id = status, kind, request_id
        self.code = kind or self.code


class Unreachable(ChargehandError):
    """No server answered at the address in time."""

    code = "unreachable"


class NewJobOptions(TypedDict, total=False):
    """The options of a job, as listed by `model.job.JobSpec`; they default to those of the crew."""

    label: str
    key: str
    priority: int
    delay_ms: int
    run_at_ms: int
    max_attempts: int
    timeout_ms: int | None
    limit_key: str
    tags: list[str]
    after: list[str]
    if_failed: str
    flow: str | None
    share: str | None
    sequence: str | None
    unique_for_ms: int | None
    replace: bool
    expires_ms: int | None
    meta: dict[str, Any] | None
    traceparent: str | None


class Client:
    """Calls to a server at `http://host:port` or `http://host:port/chargehand`. Every method sends one request."""

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
            raise errors.ConfigurationError(f"{url!r} is not an address such as http://host:8356")
        try:
            self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout, transport=transport)
        except (httpx.InvalidURL, ValueError) as error:
            raise errors.ConfigurationError(f"{url!r} is not an address such as http://host:8356: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; the end of a `with` block does so, too."""
        self._http.close()

    # one request

    def _send(self, method: str, path: str, expected: Sequence[int] = (200, 201), **options: Any) -> bytes:
        try:
            answer = self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.url} does not answer: {type(error).__name__}: {error}") from error
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise errors.ConfigurationError(f"{self.url}{path} is not an address: {error}") from None
        if answer.status_code in expected:
            return answer.content
        raise _refusal(answer)

    def _get(self, path: str, kind: type[T], **query: Any) -> T:
        asked = {name: _text(value) for name, value in query.items() if value is not None}
        return _read(self._send("GET", path, params=asked), kind)

    def _post(self, path: str, kind: type[T], body: Any = None, headers: dict[str, str] | None = None) -> T:
        if body is None:
            return _read(self._send("POST", path, headers=headers), kind)
        sent = {"Content-Type": "application/json", **(headers or {})}
        try:
            plain = msgspec.to_builtins(body)
        except RecursionError:
            raise codec.too_deep("the request") from None
        text = codec.to_json(plain, "the request", codec.REQUEST_DEPTH)
        return _read(self._send("POST", path, content=text.encode(), headers=sent), kind)

    def subscribe(self, *topics: str) -> Generator[dict[str, Any]]:
        """Yields events of these topics: the full state first, then changes. Reconnects if the server restarts."""
        last: str | None = None
        while True:
            try:
                for event_id, event in self._listen(topics, last):
                    last = event_id
                    yield event
            except httpx.HTTPError as error:
                if last is None:
                    raise Unreachable(f"{self.url} does not answer: {type(error).__name__}: {error}") from error
            clock.sleep(RECONNECT_AFTER)

    def _listen(self, topics: Sequence[str], last: str | None) -> Generator[tuple[str, dict[str, Any]]]:
        """Yields the events of one stream with their ids."""
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

    # status

    def info(self) -> answers.Info:
        """Returns the versions, the node, crews and queues."""
        return self._get("/api/v1/info", answers.Info)

    def status(self) -> dict[str, Any] | None:
        """Returns the status of the node and its workers; None if no node answers."""
        return self._get("/api/v1/status", dict[str, Any])["node"]

    def nodes(self) -> tuple[NodeBody, ...]:
        """Returns every node that shares the store, also those that are gone."""
        return self._get("/api/v1/nodes", answers.Nodes).nodes

    def health(self, status: str | None = None) -> answers.Health:
        """Returns the verdict and every component, optionally only those of one status."""
        return self._get("/api/v1/health", answers.Health, status=status)

    def component(self, name: str, max_age: float | None = None) -> answers.ComponentHealth:
        """Returns one component, and whether it is healthy by a heartbeat at most `max_age` seconds old."""
        return self._get(f"/api/v1/health/{quote(name, safe='')}", answers.ComponentHealth, max_age=max_age)

    def workers(self) -> list[answers.WorkerStatus]:
        """Returns every worker."""
        return self._get("/api/web/worker/status", list[answers.WorkerStatus])

    def crews(self) -> tuple[CrewRow, ...]:
        """Returns every crew that a node has registered."""
        return self._get("/api/v1/crews", answers.Crews).crews

    def pauses(self) -> tuple[Pause, ...]:
        """Returns the pauses in effect."""
        return self._get("/api/v1/pauses", answers.Pauses).pauses

    def recurring(self) -> tuple[Recurrence, ...]:
        """Returns every recurring job."""
        return self._get("/api/v1/recurring", answers.Recurring).recurring

    def run_recurring(self, name: str) -> Answer:
        """Enqueues a recurring job now, besides its schedule; the answer has the id of the job as its component."""
        return self._post("/api/v1/recurring/run", Answer, {"name": name})

    def pause_recurring(self, name: str, reason: str | None = None) -> Answer:
        """Makes a recurring job skip its times until it is resumed."""
        return self._post("/api/v1/recurring/pause", Answer, {"name": name, "reason": reason})

    def resume_recurring(self, name: str) -> Answer:
        """Ends the pause of a recurring job."""
        return self._post("/api/v1/recurring/resume", Answer, {"name": name})

    def doctor(self) -> answers.Diagnosed:
        """Returns the findings of the doctor, each with its remedy."""
        return self._get("/api/v1/doctor", answers.Diagnosed)

    def logs(
        self, scope: str | None = None, *, job: str | None = None, limit: int | None = None
    ) -> tuple[answers.LogLine, ...]:
        """Returns the last log lines of the node, a crew, a worker or a job."""
        return self._get("/api/v1/logs", answers.LogLines, scope=scope, job=job, limit=limit).lines

    def concurrency(self) -> answers.Concurrency:
        """Returns how many jobs run at the same time, and with how many threads."""
        return self._get("/diagnostics/concurrency", answers.Concurrency)

    def alive(self) -> bool:
        """Returns whether the server answers."""
        return _read(self._send("GET", "/healthz"), answers.Probe).status == "ok"

    def ready(self) -> answers.Probe:
        """Returns whether the server accepts jobs."""
        return _read(self._send("GET", "/readyz", (200, 503)), answers.Probe)

    def worker_history(self, component: str) -> answers.WorkerHistory:
        """Returns the last states and jobs of a worker, and its memory in the last hour."""
        return self._get(f"/api/v1/workers/{quote(component, safe='')}/history", answers.WorkerHistory)

    def stack(self, worker: str) -> WorkerStacks:
        """Returns what a worker is doing now: the Python stacks of its threads."""
        return self._get(f"/api/v1/workers/{quote(worker, safe='')}/stack", WorkerStacks)

    def history(self, since_ms: int = 0, *, limit: int | None = None, after: str | None = None) -> answers.HistoryPage:
        """Returns a page of the snapshots of health, oldest first, if the history is switched on."""
        return self._get("/api/v1/history", answers.HistoryPage, since_ms=since_ms, limit=limit, after=after)

    def workers_ready(self) -> answers.Readiness:
        """Returns whether workers process jobs, for each crew."""
        return _read(self._send("GET", "/workers/ready", (200, 503)), answers.Readiness)

    def metrics(self) -> str:
        """Returns the metrics in the text format of Prometheus."""
        return self._send("GET", "/metrics").decode()

    # orders

    def _order(self, verb: str, scope: str | None, **more: Any) -> list[Answer]:
        body = {"scope": scope, **{name: value for name, value in more.items() if value is not None}}
        return list(self._post(f"/api/web/worker/{verb}", answers.Answers, body).answers)

    def start(self, scope: str | None = None) -> list[Answer]:
        """Starts stopped workers: all, those of a crew, or one (`worker:crew:0`)."""
        return self._order("start", scope)

    def stop(self, scope: str | None = None) -> list[Answer]:
        """Stops workers within the grace period."""
        return self._order("stop", scope)

    def drain(self, scope: str | None = None, *, end: bool = False) -> list[Answer]:
        """Stops workers after their current jobs, without a time limit; with `end`, a node (`node/*`) ends then."""
        return self._order("drain", scope, end=end or None)

    def restart(self, scope: str | None = None) -> list[Answer]:
        """Replaces workers within the grace period, including those that were given up."""
        return self._order("restart", scope)

    def reset(self, scope: str | None = None) -> list[Answer]:
        """Clears crash histories, and starts workers that were given up."""
        return self._order("reset", scope)

    def scale(self, crew: str, count: int) -> list[Answer]:
        """Changes the number of workers of a crew."""
        return self._order("scale", crew, count=count)

    def pause(
        self, scope: str | None = None, *, reason: str | None = None, seconds: float | None = None
    ) -> list[Answer]:
        """Pauses all workers, those of a crew, or one: running jobs finish, and no new job starts."""
        return self._order("pause", scope, reason=reason, for_s=seconds)

    def resume(self, scope: str | None = None) -> list[Answer]:
        """Clears a pause."""
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
        """Enqueues a job for a crew or a queue. `once` is an Idempotency-Key: a repetition creates no second job."""
        body = {"crew": crew, "queue": queue, "payload": payload, **options}
        return self._post("/api/v1/jobs", answers.Made, body, _once(once))

    def enqueue_many(self, jobs: Sequence[dict[str, Any]], *, once: str | None = None) -> list[answers.Made]:
        """Enqueues jobs, each with the fields of `enqueue`, in one transaction: all of them or none."""
        return list(self._post("/api/v1/jobs/bulk", answers.MadeMany, {"jobs": jobs}, _once(once)).jobs)

    def jobs(
        self,
        *,
        queue: str | None = None,
        state: State | str | None = None,
        reason: str | None = None,
        tag: str | None = None,
        text: str | None = None,
        flow: str | None = None,
        older_ms: int | None = None,
        filter: str | None = None,
        sort: Sort | str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> answers.JobPage:
        """Returns a page of jobs, newest first unless `sort` says otherwise; `older_ms`: only those that finished at
        least so long ago; `filter`: in the filter language, such as `state:failed error:"CUDA" since:1h`."""
        asked = {"queue": queue, "state": state and str(state), "reason": reason, "tag": tag, "text": text}
        asked |= {"flow": flow, "filter": filter, "sort": sort and str(sort)}
        return self._get("/api/v1/jobs", answers.JobPage, **asked, older_ms=older_ms, limit=limit, after=after)

    def count_jobs(self, filter: str = "") -> Tally:
        """Returns how many jobs match, by state, as far as it is known within a second."""
        return self._get("/api/v1/jobs/counts", Tally, filter=filter)

    def failures(self, filter: str = "") -> Failures:
        """Returns the failed jobs that match, grouped by their causes."""
        return self._get("/api/v1/jobs/failures", Failures, filter=filter)

    def change_jobs(
        self,
        verb: BulkVerb | Literal["retry", "cancel", "delete"],
        filter: str | None = None,
        *,
        ids: Sequence[str] | None = None,
        every: bool = False,
        dry_run: bool = False,
        after: str | None = None,
    ) -> answers.BulkChanged:
        """Retries, cancels or deletes the jobs that match, or a part of them: repeat it with `next` as `after` until
        `next` is None. `every` is needed if there is neither a filter nor ids."""
        body = {"filter": filter, "ids": ids, "all": every, "dry_run": dry_run, "after": after}
        return self._post(f"/api/v1/jobs/{BulkVerb(verb).value}", answers.BulkChanged, body)

    def all_jobs(self, **which: Any) -> Iterator[JobRecord]:
        """Yields all jobs that match, in pages of 500."""
        after: str | None = None
        while True:
            page = self.jobs(**which, limit=500, after=after)
            yield from page.jobs
            after = page.next
            if after is None:
                return

    def job(self, job_id: str) -> answers.JobDetail:
        """Returns one job with its attempts, its crash reports and the jobs that it is related to.

        Raises JobNotFound.
        """
        return self._get(f"/api/v1/jobs/{quote(job_id, safe='')}", answers.JobDetail)

    def retry(self, job_id: str) -> Answer:
        """Queues a failed or cancelled job again. Raises Conflict if it is neither, or if its unique key is taken."""
        return self._post(f"/api/v1/jobs/{quote(job_id, safe='')}/retry", Answer)

    def cancel(self, job_id: str) -> Answer:
        """Cancels a job. Raises Conflict if it has ended."""
        return self._post(f"/api/v1/jobs/{quote(job_id, safe='')}/cancel", Answer)

    def delete(self, job_id: str) -> Answer:
        """Deletes a finished job. Raises Conflict if it is queued or running."""
        return _read(self._send("DELETE", f"/api/v1/jobs/{quote(job_id, safe='')}"), Answer)

    def clear(
        self,
        *,
        queue: str | None = None,
        state: State | str | None = None,
        reason: str | None = None,
        tag: str | None = None,
        text: str | None = None,
        flow: str | None = None,
        older_ms: int | None = None,
        filter: str | None = None,
        every: bool = False,
    ) -> answers.Changed:
        """Deletes finished jobs that match, up to 10,000; `every` is needed if there is no filter."""
        asked = {"queue": queue, "state": state and str(state), "reason": reason, "tag": tag, "text": text}
        params = {**asked, "flow": flow, "filter": filter, "older_ms": older_ms, "all": "true" if every else None}
        chosen = {name: _text(value) for name, value in params.items() if value is not None}
        return _read(self._send("DELETE", "/api/v1/jobs", params=chosen), answers.Changed)

    # flows

    def create_flow(
        self,
        name: str,
        jobs: Sequence[dict[str, Any]],
        *,
        on_end: dict[str, Any] | None = None,
        order: Literal["flow", "arrival"] = "flow",
        once: str | None = None,
    ) -> answers.FlowMade:
        """Creates a flow with its first jobs, each with the fields of `enqueue`, in one transaction: all or none.

        `after` of a job contains positions of earlier jobs in the list, their `ref`s, or ids of jobs that exist.
        `on_end` is the job that is enqueued when the flow has ended. `once` is an Idempotency-Key.
        """
        body = {"name": name, "jobs": jobs, "order": order, **({} if on_end is None else {"on_end": on_end})}
        return self._post("/api/v1/flows", answers.FlowMade, body, _once(once))

    def flows(
        self,
        *,
        state: FlowState | None = None,
        text: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> answers.FlowPage:
        """Returns a page of flows, newest first; `text` is part of the id or the name."""
        return self._get("/api/v1/flows", answers.FlowPage, state=state, text=text, limit=limit, after=after)

    def flow(self, flow_id: str) -> answers.FlowDetail:
        """Returns one flow with its jobs by queue. Raises FlowNotFound."""
        return self._get(_flow(flow_id), answers.FlowDetail)

    def flow_jobs(
        self,
        flow_id: str,
        *,
        queue: str | None = None,
        state: State | str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> answers.JobPage:
        """Returns a page of the jobs of a flow, newest first. Raises FlowNotFound."""
        asked = {"queue": queue, "state": state and str(state)}
        return self._get(f"{_flow(flow_id)}/jobs", answers.JobPage, **asked, limit=limit, after=after)

    def cancel_flow(self, flow_id: str) -> Answer:
        """Cancels all jobs of a flow. Raises FlowNotFound, and Conflict if it has ended."""
        return self._post(f"{_flow(flow_id)}/cancel", Answer)

    def retry_flow(self, flow_id: str) -> Answer:
        """Queues the failed and cancelled jobs of a flow again. Raises FlowNotFound, and Conflict if there are none."""
        return self._post(f"{_flow(flow_id)}/retry", Answer)

    def delete_flow(self, flow_id: str) -> Answer:
        """Deletes a flow that has ended, with its jobs. Raises FlowNotFound, and Conflict if it has not ended."""
        return _read(self._send("DELETE", _flow(flow_id)), Answer)

    # queues, claims, crashes, operations

    def queues(self) -> tuple[answers.Queue, ...]:
        """Returns every queue."""
        return self._get("/api/v1/queues", answers.Queues).queues

    def queue_history(self) -> tuple[answers.QueueHistory, ...]:
        """Returns the throughput of each queue in the last two hours."""
        return self._get("/api/v1/queues/history", answers.QueueHistories).queues

    def retry_failed(self, queue: str) -> answers.Changed:
        """Queues the failed jobs of a queue again."""
        return self._post(f"/api/v1/queues/{quote(queue, safe='')}/retry-failed", answers.Changed)

    def clear_failed(self, queue: str) -> answers.Changed:
        """Deletes the failed jobs of a queue."""
        return self._post(f"/api/v1/queues/{quote(queue, safe='')}/clear-failed", answers.Changed)

    def wake(self, crew: str) -> Answer:
        """Makes a discovering crew search for work at once."""
        return self._post(f"/api/v1/crews/{quote(crew, safe='')}/wake", Answer)

    def claims(self, limit: int | None = None, after: str | None = None) -> answers.Claims:
        """Returns a page of claims, oldest first."""
        return self._get("/api/v1/claims", answers.Claims, limit=limit, after=after)

    def all_claims(self) -> Iterator[ClaimRow]:
        """Yields every claim."""
        after: str | None = None
        while True:
            page = self.claims(500, after)
            yield from page.claims
            after = page.next
            if after is None:
                return

    def release(self, job_id: str, claim: str) -> Answer:
        """Releases a claim. Raises Conflict if the job is no longer running under this claim."""
        return self._post(f"/api/v1/claims/{quote(job_id, safe='')}/release", Answer, {"claim": claim})

    def crashes(
        self,
        *,
        component: str | None = None,
        crew: str | None = None,
        job: str | None = None,
        node: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> answers.CrashPage:
        """Returns a page of crash reports, newest first."""
        asked = {"component": component, "crew": crew, "job": job, "node": node}
        return self._get("/api/v1/crashes", answers.CrashPage, **asked, limit=limit, after=after)

    def crash(self, crash_id: str) -> CrashRecord:
        """Returns one crash report. Raises CrashNotFound."""
        return self._get(f"/api/v1/crashes/{quote(crash_id, safe='')}", CrashRecord)

    def operations(self, *, limit: int | None = None, after: str | None = None, **which: str) -> answers.OperationPage:
        """Returns a page of the operator log, newest first; `who`, `verb` and `target` filter it."""
        return self._get("/api/v1/operations", answers.OperationPage, limit=limit, after=after, **which)

    def all_operations(self, **which: str) -> Iterator[Operation]:
        """Yields the whole operator log."""
        after: str | None = None
        while True:
            page = self.operations(limit=500, after=after, **which)
            yield from page.operations
            after = page.next
            if after is None:
                return

    def who(self) -> answers.SignedIn:
        """Returns the name and the scopes of the caller."""
        return self._get("/api/web/session", answers.SignedIn)


def _text(value: Any) -> Any:
    """Returns a parameter of a query in a form that a URL can hold."""
    return codec.clean(value) if isinstance(value, str) else value


def _flow(flow_id: str) -> str:
    return f"/api/v1/flows/{quote(flow_id, safe='')}"


def _once(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": key}


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise Refused(f"the answer does not match this version of Chargehand: {error}") from error


def _refusal(answer: httpx.Response) -> ChargehandError:
    try:
        found = msgspec.json.decode(answer.content, type=dict[str, Any])
    except msgspec.DecodeError:
        found = {}
    kind = str(found.get("type", "")).rpartition(":")[2]
    text = str(
        found.get("detail") or f"HTTP {answer.status_code} without a reason; is {answer.url} a Chargehand server?"
    )
    if kind in _PROBLEMS:
        return _PROBLEMS[kind](text)
    if answer.status_code == 404 and kind in ("", "no-such-path"):
        text = (
            f"there is no Chargehand at {answer.url}: `chargehand serve` listens at http://host:8356; the address of "
            "an application includes its prefix: http://host:8000/chargehand"
        )
    return Refused(text, answer.status_code, kind, str(found.get("request_id", "")))
