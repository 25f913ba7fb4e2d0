"""Jobs: their states and transitions, their records, claims, and the outcomes of an attempt.

Pure: the effect of an outcome is decided here, from the claim's counters and the outcome; the stores only write it.
"""

import re
from enum import StrEnum
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec

from chargehand import codec
from chargehand.errors import PayloadError, summary
from chargehand.model import trace
from chargehand.model.error_line import with_cause

PAYLOAD_LIMIT = 1 << 20
RESULT_LIMIT = 1 << 20
TEXT_LIMIT = 64 * 1024
"""The maximum length of a stored error text in characters."""
MOST_TAGS = 20
TAG_LIMIT = 100
NAME_LIMIT = 200
ITEM_LIMIT = 1000
PRIORITY_LIMIT = 1_000_000
LONGEST_DELAY_MS = 100 * 365 * 86_400_000
LATEST_MS = 2 * LONGEST_DELAY_MS
"""The latest time for which a job can be scheduled: about the year 2170."""
DEFAULT_TIMEOUT_MS = 3_600_000
DEFAULT_MAX_ATTEMPTS = 3
MOST_PREDECESSORS = 10_000
IF_FAILED = ("fail", "run")
META_LIMIT = 4096
"""The maximum size of `meta` in bytes of JSON."""
KEPT_LIMIT = 64 * 1024
"""The maximum size of a checkpoint in bytes of JSON."""
PREDECESSOR = "predecessor"
"""The reason of a job that failed because a predecessor failed or was cancelled."""
EXPIRED = "expired"
"""The reason of a job that was cancelled because it had not been started in time."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""What would break a line, or control a terminal."""


class State(StrEnum):
    """The state of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINISHED = frozenset({State.DONE, State.FAILED, State.CANCELLED})
TRANSITIONS: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.RUNNING, State.CANCELLED, State.FAILED}),  # failed: only by a predecessor
    State.RUNNING: frozenset({State.DONE, State.FAILED, State.CANCELLED, State.QUEUED}),
    State.DONE: frozenset(),
    State.FAILED: frozenset({State.QUEUED}),
    State.CANCELLED: frozenset({State.QUEUED}),
}


def _text(description: str, allowed: tuple[str, ...] = ()) -> msgspec.Meta:
    return msgspec.Meta(description=description, extra={"low": 1, "high": NAME_LIMIT, "allowed": allowed})


def _flag(description: str) -> msgspec.Meta:
    return msgspec.Meta(description=description, extra={"low": 0, "high": 1})


def _object(description: str) -> msgspec.Meta:
    return msgspec.Meta(description=description, extra={"low": 0, "high": META_LIMIT})


def _number(description: str, low: int, high: int) -> msgspec.Meta:
    return msgspec.Meta(description=description, extra={"low": low, "high": high})


AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class JobPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When a job is quarantined, how long it waits between attempts, and when its worker is suspect. Times are
    seconds."""

    poison_crashes: AtLeastOne = 3
    """A job that was running at this many crashes of workers, or of the node, fails as `poison`."""
    first_retry: float = 2.0
    """The delay after the first failed attempt; doubled with every further one."""
    longest_retry: float = 600.0
    """The maximum delay between two attempts."""
    suspect_after: AtLeastOne = 3
    """A worker that fails this many different jobs in a row is suspect; it is replaced if others can do them."""
    most_in_hand: AtLeastOne = 64
    """The maximum number of short jobs that a worker is handed at a time; it performs them one after the other."""
    seconds_in_hand: float = 0.005
    """A worker is handed as many jobs as take this long by the duration of recent ones."""


DEFAULT_POLICY = JobPolicy()
Backoff = float | tuple[float, ...]
"""The delays between the attempts of a crew's jobs, in seconds: the first one, which is doubled with every further
attempt; or each of them, of which the last is repeated."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a job. This is the only list of them: add an option here.

    Derived from it: NewJob, the checks, the defaults from the crew (a field that CrewPlan has, too), the request body
    and its description in OpenAPI, and the dashboard's types. Not derived:
    - `crew.JobOptions` (durations in seconds) and `client.NewJobOptions`, which type checkers need spelled out;
      tests/settings/test_options.py compares them;
    - a new type of option: `Option.check` here, and `_field` in web/requests.py;
    - the stores: a migration for each; the column in `adding` and `reading` of both, and in the lists of stores/moving;
      `_MADE_FROM` in stores/rows.py if it needs decoding (CONTRIBUTING.md has every place);
    - what readers see: JobRecord and Claim here, JobBody in live/bodies.py, job.tsx in the dashboard, docs/events.md;
    - a flag of `chargehand jobs enqueue` in cli/jobs.py, if wanted.
    """

    label: Annotated[str | None, _text("A text that is shown with the job.")] = None
    key: Annotated[
        str | None, _text("A unique key: while a job with it is queued or running, no other is created.")
    ] = None
    priority: Annotated[int, _number("Jobs with a higher priority run first.", -PRIORITY_LIMIT, PRIORITY_LIMIT)] = 0
    delay_ms: Annotated[int, _number("Milliseconds until the job is due.", 0, LONGEST_DELAY_MS)] = 0
    run_at_ms: Annotated[
        int | None, _number("The time at which the job is due, in milliseconds since 1970.", 0, LATEST_MS)
    ] = None
    max_attempts: Annotated[int, _number("The number of attempts after which the job fails.", 1, 1_000_000)] = (
        DEFAULT_MAX_ATTEMPTS
    )
    timeout_ms: Annotated[
        int | None, _number("Milliseconds that one attempt may take; null: no limit.", 1, LONGEST_DELAY_MS)
    ] = DEFAULT_TIMEOUT_MS
    limit_key: Annotated[str | None, _text("Jobs of a queue with the same key share the queue's limit per key.")] = None
    tags: Annotated[tuple[str, ...], _number("Short texts by which jobs can be filtered.", 0, MOST_TAGS)] = ()
    after: Annotated[
        tuple[str, ...], _number("The ids of jobs that must end before this one is started.", 0, MOST_PREDECESSORS)
    ] = ()
    if_failed: Annotated[
        str, _text("What happens if a job of `after` fails or is cancelled: `fail`, or `run` all the same.", IF_FAILED)
    ] = "fail"
    flow: Annotated[str | None, _text("The id of the flow that the job belongs to.")] = None
    share: Annotated[
        str | None, _text("Waiting jobs of a queue with different shares take turns, within a priority.")
    ] = None
    sequence: Annotated[
        str | None, _text("Jobs of a queue with the same sequence run one after the other, in the order of enqueuing.")
    ] = None
    unique_for_ms: Annotated[
        int | None,
        _number("Milliseconds for which no other job with the same key is created.", 1, LONGEST_DELAY_MS),
    ] = None
    replace: Annotated[bool, _flag("Whether the payload replaces that of a waiting job with the same key.")] = False
    expires_ms: Annotated[
        int | None,
        _number("Milliseconds after which the job is cancelled unless it was started.", 1, LONGEST_DELAY_MS),
    ] = None
    meta: Annotated[
        dict[str, Any] | None, _object("A small JSON object that is shown with the job and given to its handler.")
    ] = None
    traceparent: Annotated[
        str | None, _text("The trace that the job belongs to, as in the header of this name (W3C Trace Context).")
    ] = None


class Option(msgspec.Struct, frozen=True):
    """One option of a job: its type, its bounds (of the length, for a text or several), and whether it may be None."""

    name: str
    kind: type[str] | type[int] | type[bool] | type[tuple[str, ...]] | type[dict[str, Any]]
    optional: bool
    default: Any
    low: int
    high: int
    description: str
    allowed: tuple[str, ...] = ()
    """The only values of a text; none: any text."""

    def check(self, value: Any) -> None:
        """Raises PayloadError if the option cannot have this value."""
        if value is None and self.optional:
            return
        if self.kind is bool:
            if not isinstance(value, bool):
                raise PayloadError(f"{self.name} is {value!r}; must be true or false")
            return
        if self.allowed and value not in self.allowed:
            raise PayloadError(f"{self.name} is {value!r}; must be {' or '.join(map(repr, self.allowed))}")
        if self.kind is tuple:
            self._check_texts(value)
            return
        if self.kind is dict:
            self._check_object(value)
            return
        if self.name == "traceparent" and trace.trace_id(value) is None:
            raise PayloadError(f"traceparent is {value!r}; {trace.EXPECTED}")
        if not isinstance(value, self.kind) or isinstance(value, bool):
            raise PayloadError(
                f"{self.name} is {value!r}; must be a {'string' if self.kind is str else 'whole number'}"
            )
        if isinstance(value, str):
            check_text(self.name, value)
        elif isinstance(value, int):
            name = self.name.removesuffix("_ms")
            _within(name, value, self.low, self.high, "" if name == self.name else "ms")

    def _check_texts(self, value: Any) -> None:
        if not isinstance(value, tuple):
            raise PayloadError(f"{self.name} is {value!r}; must be a list of strings")
        what = "the number of tags" if self.name == "tags" else f"the number of jobs in {self.name}"
        _within(what, len(cast(tuple[Any, ...], value)), self.low, self.high, "")
        for text in cast(tuple[Any, ...], value):
            most = TAG_LIMIT if self.name == "tags" else NAME_LIMIT
            if not isinstance(text, str) or not 0 < len(codec.restore(text)) <= most:
                raise PayloadError(f"{self.name} contains {text!r}; each must be a string of 1 to {most} characters")
            check_text(self.name, text)

    def _check_object(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise PayloadError(f"{self.name} is {value!r}; must be an object: a dict with strings as keys")
        size = len(codec.to_json(value, self.name).encode())
        if size > self.high:
            raise PayloadError(f"{self.name} has {size:,} bytes of JSON; the maximum is {self.high:,}")


def _options() -> tuple[Option, ...]:
    found: list[Option] = []
    for name, hint in get_type_hints(JobSpec, include_extras=True).items():
        annotated, meta = get_args(hint)
        origin = get_origin(annotated)
        kinds = (origin,) if origin is tuple else get_args(annotated) or (annotated,)
        kind = get_origin(kinds[0]) or kinds[0]
        default = next(field.default for field in msgspec.structs.fields(JobSpec) if field.name == name)
        optional = type(None) in kinds
        found.append(Option(name, kind, optional, default, **meta.extra, description=meta.description))
    return tuple(found)


OPTIONS = _options()
"""The options of a job, in the order of `JobSpec`."""


class NewJob(JobSpec, frozen=True, kw_only=True, omit_defaults=True):
    """A job to be enqueued. The caller creates the id, so that a repeated request enqueues one job."""

    id: str
    queue: str
    payload: str = "null"
    child: bool = False
    """Whether a handler spawned the job: followers of the handler's own job wait for it, too."""


class Enqueued(msgspec.Struct, frozen=True):
    """The result of enqueuing a NewJob: `created` is false if the id or the unique key already existed."""

    id: str
    created: bool
    replaced: bool = False
    """Whether the payload replaced that of the existing job."""


class Claim(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A job that this node has claimed; every statement that ends the claim compares its number."""

    id: str
    seq: int
    number: int
    queue: str
    payload: str
    label: str | None
    priority: int
    failures: int
    max_attempts: int
    crashes: int
    timeout_ms: int | None
    first: bool = False
    """Whether the job was never claimed before."""
    item: str | None = None
    tags: tuple[str, ...] | None = None
    waited_ms: int = 0
    """How long the job had been due when it was claimed."""
    failed_in: str | None = None
    """In which worker process the job has failed so far, as JSON (`model/trust.py`); None if in none."""
    flow: str | None = None
    """The id of the flow that the job belongs to."""
    kept: str | None = None
    """The checkpoint that an earlier attempt left, as JSON; None if none did."""
    expired: bool = False
    """Whether the job should have been started earlier: it is cancelled instead of performed."""
    meta: str | None = None
    """As JSON."""
    traceparent: str | None = None
    suspect: bool = False
    """Whether a node died unasked while it had this job: no other suspect is claimed before this claim has ended."""

    @property
    def last_attempt(self) -> bool:
        """Whether the job fails for good if this attempt fails."""
        return self.failures + 1 >= self.max_attempts

    @property
    def extra_attempt(self) -> bool:
        """Whether this is the attempt that a job gets because no failure before was credible."""
        return self.failures >= self.max_attempts


def same_count(job: Any) -> None:
    """Give `failures` and `attempts` of a struct the same value: a node of version 0.1.0 sends only `attempts`."""
    if job.failures != job.attempts:
        count = max(job.failures, job.attempts)
        msgspec.structs.force_setattr(job, "failures", count)
        msgspec.structs.force_setattr(job, "attempts", count)


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One job as it is stored."""

    id: str
    queue: str
    label: str | None
    payload: msgspec.Raw
    state: State
    priority: int
    run_at_ms: int
    failures: int = 0
    """The attempts in which the handler raised or timed out, since the job was enqueued or retried by a person."""
    attempts: int = 0
    """Deprecated: the same as `failures`. JSON has both names in this version."""
    max_attempts: int
    crashes: int
    interruptions: int
    timeout_ms: int | None
    key: str | None
    progress: Any
    result: Any
    """JSON as `msgspec.Raw`, or None; plain data when read over HTTP (msgspec cannot decode "Raw or None")."""
    error: str | None
    cause: str | None = None
    """The error in one line: the exception's own line of a traceback."""
    cause_code: str | None = None
    """The name of the exception's class, or null if the error is a sentence."""
    reason: str | None
    created_ms: int
    started_ms: int | None
    finished_ms: int | None
    claim: str | None
    """The number of the claim that holds or ended the job, as text: JavaScript rounds numbers of 64 bits."""
    node: str | None
    worker: str | None
    limit_key: str | None
    item: str | None
    """The item's key in the application's own tables, if `discover` returned it."""
    cancel_ms: int | None
    """When cancellation was requested while the job was running."""
    tags: tuple[str, ...] | None = None
    """Short texts by which jobs can be filtered; None if the job has none."""
    seq: int = 0
    """The job's position in the order of arrival."""
    flow: str | None = None
    """The id of the flow that the job belongs to."""
    parent: str | None = None
    """The id of the job that spawned this one."""
    waits_for: int = 0
    """How many predecessors a queued job waits for."""
    share: str | None = None
    sequence: str | None = None
    expires_at_ms: int | None = None
    """When the job is cancelled unless it was started."""
    meta: dict[str, Any] | None = None
    """The object that was given with the job."""
    traceparent: str | None = None
    """The trace that the job belongs to (W3C Trace Context)."""

    def __post_init__(self) -> None:
        same_count(self)
        with_cause(self)

    @property
    def summary(self) -> str:
        """The error in one line: the exception's message of a traceback."""
        return summary(self.error)


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a job: when, where, how long, and its outcome."""

    claim: str
    """The number of the claim."""
    node: str
    worker: str | None
    pid: int | None
    started_ms: int
    duration_ms: int
    outcome: str
    error: str | None
    cause: str | None = None
    """The error in one line."""
    cause_code: str | None = None

    def __post_init__(self) -> None:
        with_cause(self)


# The outcomes of an attempt: what happened. `settle` decides what follows.


class Done(msgspec.Struct, frozen=True):
    """The handler returned. `result` is JSON text."""

    result: str = "null"
    follow: tuple[NewJob, ...] = ()


class Settled(msgspec.Struct, frozen=True):
    """The handler settled the job in its own transaction; the store is already up to date."""


class Raised(msgspec.Struct, frozen=True):
    """The handler raised an exception; `error` is the traceback."""

    error: str


class RetryLater(msgspec.Struct, frozen=True):
    """The handler requested a retry."""

    after_ms: int
    error: str


class GaveUp(msgspec.Struct, frozen=True):
    """The handler declared that the job can never succeed."""

    error: str


class TimedOut(msgspec.Struct, frozen=True):
    """The job exceeded its timeout; `error` contains the stack traces."""

    error: str


class Stopped(msgspec.Struct, frozen=True):
    """The job ended because it was cancelled."""

    error: str = ""


class Crashed(msgspec.Struct, frozen=True):
    """The worker died while it performed the job."""

    error: str


class Interrupted(msgspec.Struct, frozen=True):
    """The job was interrupted through no fault of its own, by a stop, a drain or the node's death."""

    error: str


class Returned(msgspec.Struct, frozen=True):
    """The job was claimed but never sent to a worker."""


Outcome = Done | Settled | Raised | RetryLater | GaveUp | TimedOut | Stopped | Crashed | Interrupted | Returned


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An item that needs work, as `discover` returned it."""

    item: str
    payload: str = "null"
    label: str | None = None


ClaimName = tuple[str, int]
"""The id of a job, and the number of one of its claims: a batch may settle two claims of the same job."""


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """What the store writes if, and only if, the claim is still valid."""

    id: str
    seq: int
    claim: int
    queue: str
    state: State
    outcome: str | None
    delay_ms: int = 0
    result: str | None = None
    error: str | None = None
    reason: str | None = None
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    failed_in: str | None = None
    """As in Claim; None: unchanged."""
    follow: tuple[NewJob, ...] = ()
    """The jobs that the handler or a hook enqueues; they exist only if this outcome is accepted."""
    kept: str | None = None
    """The checkpoint for the next attempt, as JSON; None: unchanged. It is deleted when the job is done."""
    worker: str | None = None
    pid: int | None = None
    duration_ms: int = 0
    item: str | None = None
    """For the log; the store has it."""
    flow: str | None = None
    """The flow of the job, if there is one. Required if the job is done: the flow may have ended."""

    @property
    def claim_name(self) -> ClaimName:
        """What identifies the claim that it ends."""
        return self.id, self.claim


def settle(
    claim: Claim,
    outcome: Outcome,
    *,
    jitter: float = 0.0,
    worker: str | None = None,
    pid: int | None = None,
    duration_ms: int = 0,
    credible: bool = True,
    failed_in: str | None = None,
    policy: JobPolicy = DEFAULT_POLICY,
    kept: str | None = None,
    backoff: Backoff | None = None,
) -> Settlement | None:
    """Returns what an outcome makes of a job; None if there is nothing to write.

    An exception that is not `credible` may be the worker's fault: a job with several attempts then gets one more.
    `kept` is the checkpoint that the attempt leaves, `backoff` the crew's own delays between attempts.
    """
    if isinstance(outcome, Done):  # the most frequent case, handled first for speed
        return Settlement(
            id=claim.id, seq=claim.seq, claim=claim.number, queue=claim.queue, state=State.DONE, outcome="done",
            result=outcome.result, follow=outcome.follow, worker=worker, pid=pid, duration_ms=duration_ms,
            flow=claim.flow,
        )  # fmt: skip
    base: dict[str, Any] = {
        "id": claim.id, "seq": claim.seq, "claim": claim.number, "queue": claim.queue, "worker": worker, "pid": pid,
        "duration_ms": duration_ms, "item": claim.item, "kept": kept, "flow": claim.flow,
    }  # fmt: skip
    match outcome:
        case Settled():
            return None
        case Raised(error) | TimedOut(error):
            how = "raised" if isinstance(outcome, Raised) else "timed out"
            base |= {"outcome": how, "error": cut(error), "failures": 1, "failed_in": failed_in}
            if claim.last_attempt and (credible or claim.max_attempts == 1 or claim.extra_attempt):
                return Settlement(state=State.FAILED, reason=how, **base)
            delay_ms = retry_delay_ms(claim.failures + 1, jitter, policy, backoff)
            return Settlement(state=State.QUEUED, delay_ms=delay_ms, **base)
        case RetryLater(after_ms, error):
            base |= {"outcome": "retry", "error": cut(error), "failures": 1}
            if claim.failures + 1 >= claim.max_attempts:
                return Settlement(state=State.FAILED, reason="retries used up", **base)
            return Settlement(state=State.QUEUED, delay_ms=min(max(0, after_ms), LONGEST_DELAY_MS), **base)
        case GaveUp(error):
            base |= {"outcome": "gave up", "error": cut(error), "failures": 1}
            return Settlement(state=State.FAILED, reason="gave up", **base)
        case Stopped(error):
            base |= {"outcome": "cancelled", "error": cut(error) or None}
            return Settlement(state=State.CANCELLED, reason="cancelled", **base)
        case Crashed(error):
            base |= {"outcome": "crashed", "error": cut(error), "crashes": 1}
            crashes = claim.crashes + 1
            if crashes >= policy.poison_crashes:
                return Settlement(state=State.FAILED, reason="poison", **base)
            delay = 0 if crashes == 1 else retry_delay_ms(crashes - 1, jitter, policy)
            return Settlement(state=State.QUEUED, delay_ms=delay, **base)
        case Interrupted(error):
            base |= {"outcome": "interrupted", "error": cut(error), "interruptions": 1}
            return Settlement(state=State.QUEUED, **base)
        case Returned():
            return Settlement(state=State.QUEUED, outcome=None, **base)


def expired(claim: Claim) -> Settlement:
    """Returns the settlement of a job that should have been started earlier: it is cancelled without an attempt."""
    return Settlement(
        id=claim.id, seq=claim.seq, claim=claim.number, queue=claim.queue, state=State.CANCELLED, outcome=None,
        reason=EXPIRED, item=claim.item,
    )  # fmt: skip


def retry_delay_ms(
    failures: int, jitter: float, policy: JobPolicy = DEFAULT_POLICY, backoff: Backoff | None = None
) -> int:
    """Returns the exponential backoff: 2 s after the first failure, up to 10 minutes, plus up to 10 % jitter.

    A crew's own `backoff` replaces the first delay, or all of them; a first one above 10 minutes is not doubled.
    """
    if isinstance(backoff, tuple):
        delay = backoff[min(failures, len(backoff)) - 1]
    else:
        first = policy.first_retry if backoff is None else backoff
        most = policy.longest_retry if backoff is None else max(backoff, policy.longest_retry)
        delay = min(first * 2 ** min(failures - 1, 60), most)
    return int(delay * 1000 * (1 + jitter / 10))


def cut(text: str, limit: int = TEXT_LIMIT) -> str:
    """Shortens a text to `limit` characters; keeps its beginning and its end."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n… {len(text) - limit} characters left out …\n{text[-limit // 2 :]}"


Texts = TypeVar("Texts", bound=msgspec.Struct)
_TEXTS = ("label", "key", "limit_key", "item", "tags", "share", "sequence")


def restored(record: Texts) -> Texts:
    """Returns a job or a claim with the application's own texts, which records hold escaped."""
    texts = {name: getattr(record, name, None) for name in _TEXTS if name in record.__struct_fields__}
    changed = {name: text for name, text in texts.items() if text and any(codec.MARK in part for part in text)}
    meta = getattr(record, "meta", None)
    own = {} if meta is None else {"meta": codec.restored(meta, "meta")}
    if not changed and own.get("meta") is meta:
        return record
    return msgspec.structs.replace(record, **{name: _restored(text) for name, text in changed.items()}, **own)


def _restored(text: Any) -> Any:
    return codec.restore(text) if isinstance(text, str) else tuple(codec.restore(each) for each in text)


def check(job: NewJob) -> NewJob:
    """Returns the job. Raises PayloadError if it cannot be stored."""
    check_payload(job.payload)
    check_name("queue", job.queue)
    check_name("id", job.id)
    for option in OPTIONS:
        value = getattr(job, option.name)
        if value is not option.default:  # most are, and this is done for every job
            try:
                option.check(value)
            except PayloadError as error:
                error.option = option.name
                raise
    if job.after and job.id in job.after:
        raise _wrong("after", f"after contains the job itself, {job.id!r}")
    if job.key is None and job.replace:
        raise _wrong("replace", "replace needs a key: pass key=")
    if job.key is None and job.unique_for_ms is not None:
        raise _wrong("unique_for_ms", "unique_for needs a key: pass key=")
    if job.expires_ms is not None and job.expires_ms <= job.delay_ms:
        raise _wrong(
            "expires_ms",
            f"expires is {job.expires_ms / 1000:g} s and delay {job.delay_ms / 1000:g} s; both count from now, so the "
            "job would never run: expires must be longer than delay",
        )
    return job


def _wrong(option: str, text: str) -> PayloadError:
    """Returns the error for an option that does not go with the others."""
    error = PayloadError(text)
    error.option = option
    return error


def check_name(name: str, text: str) -> None:
    """Raises PayloadError if a short text has a wrong length or contains control characters."""
    if not 1 <= len(text) <= NAME_LIMIT:
        raise PayloadError(f"{name} has {len(text)} characters; must have 1 to {NAME_LIMIT}")
    if not text.isprintable():
        raise PayloadError(f"{name} {text!r} contains control characters")


def check_text(name: str, text: str) -> None:
    """Raises PayloadError if a short text of the application, escaped, has a wrong length or control characters."""
    length = len(codec.restore(text))
    if not 1 <= length <= NAME_LIMIT:
        raise PayloadError(f"{name} has {length} characters; must have 1 to {NAME_LIMIT}")
    if not is_printable(text):
        raise PayloadError(f"{name} {codec.restore(text)!r} contains control characters")


def is_printable(text: str) -> bool:
    """Whether an escaped text has no control characters; it may be the name of a file that is not UTF-8.

    `str.isprintable` alone would refuse what names of files have: spaces that do not break, the joiners of Persian and
    of emojis, and characters that are newer than this Python.
    """
    return text.isprintable() or (codec.clean(text) == text and not _CONTROL.search(codec.restore(text)))


def check_payload(text: str) -> str:
    """Returns the payload. Raises PayloadError unless it is one line of JSON and within the limits."""
    codec.check_limits(text, "the payload")
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"the payload is not JSON: {error}") from error
    if "\n" in text:
        raise PayloadError("the payload contains a line break outside a string: encode it as compact JSON")
    return check_size(text)


def check_size(text: str) -> str:
    """Returns the payload. Raises PayloadError if it is too large."""
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise PayloadError(f"the payload is not valid Unicode: {error}") from error
    if size > PAYLOAD_LIMIT:
        raise PayloadError(
            f"the payload has {size:,} bytes of JSON; the maximum is {PAYLOAD_LIMIT:,}: "
            "store the data elsewhere and enqueue a reference to it"
        )
    return text


def _within(name: str, value: int, low: int, high: int, unit: str = "") -> None:
    if not low <= value <= high:
        raise PayloadError(f"{name} is {value}{unit and ' '}{unit}; must be {low} to {high}{unit and ' '}{unit}")
