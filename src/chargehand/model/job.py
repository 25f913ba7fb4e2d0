"""Jobs: their states and the only transitions, what is stored of them, claims, and how an attempt ends.

Pure: what a job becomes after an attempt is decided here, from the claim's own counters and the outcome, and only
written by the stores.
"""

from enum import StrEnum
from typing import Any

import msgspec

from chargehand.errors import PayloadError, summary

PAYLOAD_LIMIT = 1 << 20
RESULT_LIMIT = 1 << 20
TEXT_LIMIT = 64 * 1024
"""Of an error kept with a job, in characters."""
NAME_LIMIT = 200
ITEM_LIMIT = 1000
PRIORITY_LIMIT = 1_000_000
LONGEST_DELAY_MS = 100 * 365 * 86_400_000
LATEST_MS = 2 * LONGEST_DELAY_MS
"""The last moment for which a job can be planned: about the year 2170."""
DEFAULT_TIMEOUT_MS = 3_600_000
DEFAULT_MAX_ATTEMPTS = 3
POISON_CRASHES = 3


class State(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINISHED = frozenset({State.DONE, State.FAILED, State.CANCELLED})
TRANSITIONS: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.RUNNING, State.CANCELLED}),
    State.RUNNING: frozenset({State.DONE, State.FAILED, State.CANCELLED, State.QUEUED}),
    State.DONE: frozenset(),
    State.FAILED: frozenset({State.QUEUED}),
    State.CANCELLED: frozenset({State.QUEUED}),
}


class NewJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job on its way into a store. The id is made by whoever enqueues, so that a repeated request is one job."""

    id: str
    queue: str
    payload: str = "null"
    label: str | None = None
    priority: int = 0
    delay_ms: int = 0
    run_at_ms: int | None = None
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout_ms: int | None = DEFAULT_TIMEOUT_MS
    key: str | None = None
    limit_key: str | None = None
    """Jobs of a queue that share it are limited together, by the queue's limit for keys."""


class Enqueued(msgspec.Struct, frozen=True):
    """What became of a NewJob: `created` is false if the id or the unique key was there already."""

    id: str
    created: bool


class Claim(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Proof that this node holds this job: the fence is compared in every statement that ends the claim."""

    id: str
    seq: int
    fence: int
    queue: str
    payload: str
    label: str | None
    priority: int
    attempts: int
    max_attempts: int
    crashes: int
    timeout_ms: int | None
    item: str | None = None
    waited_ms: int = 0
    """How long it had been due when it was claimed."""


IN_WORDS = {"fence": "claim"}
"""In what people read, the fence is the claim's number."""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, rename=IN_WORDS):
    """One job as it stands in the store."""

    id: str
    queue: str
    label: str | None
    payload: msgspec.Raw
    state: State
    priority: int
    run_at_ms: int
    attempts: int
    max_attempts: int
    crashes: int
    interruptions: int
    timeout_ms: int | None
    key: str | None
    progress: Any
    result: Any
    """JSON, as a `msgspec.Raw`, or None; read over HTTP, plain data (msgspec cannot read "Raw or None")."""
    error: str | None
    reason: str | None
    created_ms: int
    started_ms: int | None
    finished_ms: int | None
    fence: int
    node: str | None
    worker: str | None
    limit_key: str | None
    item: str | None
    """What it is in the application's own tables, if it was found there and not enqueued."""
    cancel_ms: int | None
    """When a person asked for its end while it was running."""
    seq: int = 0
    """Its place in the order of arrival."""

    @property
    def summary(self) -> str:
        """What went wrong, in one line: of a traceback the exception's own words."""
        return summary(self.error)


class Attempt(msgspec.Struct, frozen=True, kw_only=True, rename=IN_WORDS):
    """One time that a worker had the job: when, where, how long, and how it ended."""

    fence: int
    node: str
    worker: str | None
    pid: int | None
    started_ms: int
    duration_ms: int
    outcome: str
    error: str | None


# How an attempt ends. Each is what happened, not what follows from it: `settle` decides that.


class Done(msgspec.Struct, frozen=True):
    """The handler returned. `result` is JSON text."""

    result: str = "null"
    follow: tuple[NewJob, ...] = ()


class Settled(msgspec.Struct, frozen=True):
    """The handler settled the job in a transaction of its own; the store knows already."""


class Raised(msgspec.Struct, frozen=True):
    """The handler raised; the text is the traceback."""

    error: str


class RetryLater(msgspec.Struct, frozen=True):
    """The handler asked for another try."""

    after_ms: int
    error: str


class GaveUp(msgspec.Struct, frozen=True):
    """The handler said that the job can never succeed."""

    error: str


class TimedOut(msgspec.Struct, frozen=True):
    """The job took longer than it may; the text says where it stood."""

    error: str


class Stopped(msgspec.Struct, frozen=True):
    """A person cancelled the job, and it has ended because of that."""

    error: str = ""


class Crashed(msgspec.Struct, frozen=True):
    """The worker died with the job in hand."""

    error: str


class Interrupted(msgspec.Struct, frozen=True):
    """The job was taken back through no fault of its own: a stop, a drain, the node's death."""

    error: str


class Returned(msgspec.Struct, frozen=True):
    """The job was claimed but never handed to a worker: nothing happened to it."""


Outcome = Done | Settled | Raised | RetryLater | GaveUp | TimedOut | Stopped | Crashed | Interrupted | Returned


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Something in the application's own tables that needs work, as `discover` named it."""

    item: str
    payload: str = "null"
    label: str | None = None


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """What the store is to write if, and only if, the claim still holds."""

    id: str
    seq: int
    fence: int
    queue: str
    state: State
    outcome: str | None
    delay_ms: int = 0
    result: str | None = None
    error: str | None = None
    reason: str | None = None
    attempts: int = 0
    crashes: int = 0
    interruptions: int = 0
    follow: tuple[NewJob, ...] = ()
    worker: str | None = None
    pid: int | None = None
    duration_ms: int = 0


def settle(
    claim: Claim,
    outcome: Outcome,
    *,
    jitter: float = 0.0,
    worker: str | None = None,
    pid: int | None = None,
    duration_ms: int = 0,
) -> Settlement | None:
    """What an outcome makes of a job. None if there is nothing to write."""
    if isinstance(outcome, Done):  # the common case, without detours
        return Settlement(
            id=claim.id, seq=claim.seq, fence=claim.fence, queue=claim.queue, state=State.DONE, outcome="done",
            result=outcome.result, follow=outcome.follow, worker=worker, pid=pid, duration_ms=duration_ms,
        )  # fmt: skip
    base: dict[str, Any] = {
        "id": claim.id, "seq": claim.seq, "fence": claim.fence, "queue": claim.queue, "worker": worker, "pid": pid,
        "duration_ms": duration_ms,
    }  # fmt: skip
    match outcome:
        case Settled():
            return None
        case Raised(error) | TimedOut(error):
            how = "raised" if isinstance(outcome, Raised) else "timed out"
            base |= {"outcome": how, "error": cut(error), "attempts": 1}
            if claim.attempts + 1 >= claim.max_attempts:
                return Settlement(state=State.FAILED, reason=how, **base)
            return Settlement(state=State.QUEUED, delay_ms=retry_delay_ms(claim.attempts + 1, jitter), **base)
        case RetryLater(after_ms, error):
            base |= {"outcome": "retry", "error": cut(error), "attempts": 1}
            if claim.attempts + 1 >= claim.max_attempts:
                return Settlement(state=State.FAILED, reason="retries used up", **base)
            return Settlement(state=State.QUEUED, delay_ms=min(max(0, after_ms), LONGEST_DELAY_MS), **base)
        case GaveUp(error):
            base |= {"outcome": "gave up", "error": cut(error), "attempts": 1}
            return Settlement(state=State.FAILED, reason="gave up", **base)
        case Stopped(error):
            base |= {"outcome": "cancelled", "error": cut(error) or None}
            return Settlement(state=State.CANCELLED, reason="cancelled", **base)
        case Crashed(error):
            base |= {"outcome": "crashed", "error": cut(error), "crashes": 1}
            crashes = claim.crashes + 1
            if crashes >= POISON_CRASHES:
                return Settlement(state=State.FAILED, reason="poison", **base)
            delay = 0 if crashes == 1 else retry_delay_ms(crashes - 1, jitter)
            return Settlement(state=State.QUEUED, delay_ms=delay, **base)
        case Interrupted(error):
            base |= {"outcome": "interrupted", "error": cut(error), "interruptions": 1}
            return Settlement(state=State.QUEUED, **base)
        case Returned():
            return Settlement(state=State.QUEUED, outcome=None, **base)


def retry_delay_ms(failures: int, jitter: float) -> int:
    """Exponential backoff, 2 s after the first failure up to 10 minutes, plus up to a tenth of jitter."""
    return int(min(2**failures, 600) * 1000 * (1 + jitter / 10))


def cut(text: str, limit: int = TEXT_LIMIT) -> str:
    """The text, or its beginning and its end: of a traceback both matter."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n… {len(text) - limit} characters left out …\n{text[-limit // 2 :]}"


def check(job: NewJob) -> NewJob:
    """The job, if it may enter a store; a PayloadError that says what is wrong with it otherwise."""
    check_payload(job.payload)
    texts = job.queue, job.label, job.key, job.limit_key, job.id
    for name, text in zip(("queue", "label", "key", "limit_key", "id"), texts, strict=True):
        if text is None:
            continue
        if not 1 <= len(text) <= NAME_LIMIT:
            raise PayloadError(f"{name} has {len(text)} characters; must have 1 to {NAME_LIMIT}")
        if not text.isprintable():
            raise PayloadError(f"{name} {text!r} contains control characters")
    _within("priority", job.priority, -PRIORITY_LIMIT, PRIORITY_LIMIT)
    _within("delay", job.delay_ms, 0, LONGEST_DELAY_MS, "ms")
    if job.run_at_ms is not None:
        _within("run_at", job.run_at_ms, 0, LATEST_MS, "ms")
    _within("max_attempts", job.max_attempts, 1, 1_000_000)
    if job.timeout_ms is not None:
        _within("timeout", job.timeout_ms, 1, LONGEST_DELAY_MS, "ms")
    return job


def check_payload(text: str) -> str:
    """The payload, if it is one line of JSON and not too large."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"the payload is not JSON: {error}") from error
    if "\n" in text:
        raise PayloadError("the payload has a line break outside a string: write it as compact JSON")
    return check_size(text)


def check_size(text: str) -> str:
    """The payload, unless it is too large."""
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise PayloadError(f"the payload is no text: {error}") from error
    if size > PAYLOAD_LIMIT:
        raise PayloadError(
            f"the payload has {size:,} bytes of JSON, more than the {PAYLOAD_LIMIT:,} allowed: "
            "store the data elsewhere and enqueue its name"
        )
    return text


def _within(name: str, value: int, low: int, high: int, unit: str = "") -> None:
    if not low <= value <= high:
        raise PayloadError(f"{name} is {value}{unit and ' '}{unit}; must be {low} to {high}{unit and ' '}{unit}")
