"""The messages between node and worker, as the node reads and writes them; the worker uses plain JSON."""

from collections.abc import Sequence
from typing import Any

import msgspec

from chargehand import codec
from chargehand.model.flows import Predecessor
from chargehand.model.job import (
    ITEM_LIMIT,
    NAME_LIMIT,
    Claim,
    Done,
    Found,
    GaveUp,
    NewJob,
    Outcome,
    Raised,
    RetryLater,
    Settled,
    Stopped,
    TimedOut,
    check,
    check_payload,
)

PAGE_BYTES = 4 << 20
"""The size of the results in one answer, unless a single one is larger."""
ON_THE_WIRE = {"claim": "fence"}
"""Fields with another name in frames: after an upgrade, a running node of version 0.1.0 starts workers of this one."""


class JobFrame(msgspec.Struct, frozen=True, rename=ON_THE_WIRE, omit_defaults=True):
    """A job that is sent to a worker."""

    id: str
    seq: int
    claim: int
    queue: str
    label: str | None
    attempts: int
    crashes: int
    payload: msgspec.Raw
    item: str | None = None
    flow: str | None = None
    kept: Any = None
    """The checkpoint of an earlier attempt, as `msgspec.Raw`."""
    meta: Any = None
    """As `msgspec.Raw`."""
    traceparent: str | None = None


class FoundItem(msgspec.Struct, frozen=True):
    """One item that `discover` returned."""

    item: str
    payload: msgspec.Raw = msgspec.Raw(b"null")
    label: str | None = None


class FoundFrame(msgspec.Struct, frozen=True):
    """The result of `discover`: the items, in order, and whether there may be more; or the error."""

    items: tuple[FoundItem, ...] = ()
    more: bool = False
    error: str | None = None


class OutcomeFrame(msgspec.Struct, frozen=True, rename=ON_THE_WIRE):
    """The outcome of an attempt, from a worker; which fields are used depends on the kind."""

    id: str
    claim: int
    us: int | None = None
    """How long the attempt took, in microseconds; None from a worker that does not measure it."""
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    after_ms: int = 0
    follow: tuple[NewJob, ...] = ()
    flows: tuple[str, ...] = ()
    """The flows that ended because the handler settled the job."""


class KeepFrame(msgspec.Struct, frozen=True, rename=ON_THE_WIRE):
    """A checkpoint of a job."""

    id: str
    claim: int
    state: msgspec.Raw


class ResultsFrame(msgspec.Struct, frozen=True, rename=ON_THE_WIRE):
    """A job's question for a page of the results of its predecessors."""

    id: str
    claim: int
    number: int
    """Identifies the question to the worker."""
    queue: str
    after: tuple[int, int] | None = None
    """`nr` and `seq` of the last predecessor of the page before."""
    limit: int = 100


class EndOfPredecessor(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a predecessor has ended."""

    id: str
    nr: int
    seq: int
    state: str
    reason: str | None
    result: msgspec.Raw
    error: str | None


class PageFrame(msgspec.Struct, frozen=True):
    """The answer to a ResultsFrame: the ends, or why they could not be read."""

    number: int
    ends: tuple[EndOfPredecessor, ...] = ()
    more: bool = False
    bytes: int = 0
    """The size of the results and errors."""
    why: str | None = None


class ProgressFrame(msgspec.Struct, frozen=True):
    """A job's progress."""

    done: float | None = None
    total: float | None = None
    stage: str | None = None
    detail: str | None = None


class JobProgress(msgspec.Struct, frozen=True):
    """The progress of one of several jobs."""

    job: str
    progress: ProgressFrame


class HealthFrame(msgspec.Struct, frozen=True):
    """A worker's current state."""

    component_id: str
    incarnation: str
    status: str
    current_job: str | None = None
    turns: int = 0
    done: int = 0
    errors: int = 0
    memory: int = 0
    pulse: int = 0
    """The id of the thread that sends heartbeats: its CPU time is no work."""
    progress: ProgressFrame | None = None
    others: tuple[JobProgress, ...] = ()
    """With `concurrency`: the progress of other jobs since the last report."""


class MoreTimeFrame(msgspec.Struct, frozen=True):
    """A starting worker's request to extend its time limit to this many seconds from now."""

    seconds: float


class FatalFrame(msgspec.Struct, frozen=True):
    """The reason why a worker is about to exit."""

    code: int
    why: str


class BrokenFrame(msgspec.Struct, frozen=True):
    """A worker's report that its process is broken, as a traceback; it exits without an outcome for its job."""

    why: str


brokens = msgspec.json.Decoder(BrokenFrame)
founds = msgspec.json.Decoder(FoundFrame)
keeps = msgspec.json.Decoder(KeepFrame)
questions = msgspec.json.Decoder(ResultsFrame)
outcomes = msgspec.json.Decoder(OutcomeFrame)
healths = msgspec.json.Decoder(HealthFrame)
fatals = msgspec.json.Decoder(FatalFrame)
more_times = msgspec.json.Decoder(MoreTimeFrame)
_encoder = msgspec.json.Encoder()


def job_frame(claim: Claim) -> bytes:
    """Encodes the frame that sends a job to a worker."""
    body = JobFrame(
        claim.id, claim.seq, claim.number, claim.queue, claim.label, claim.failures, claim.crashes,
        msgspec.Raw(claim.payload.encode()), claim.item, claim.flow,
        None if claim.kept is None else msgspec.Raw(claim.kept.encode()),
        None if claim.meta is None else msgspec.Raw(claim.meta.encode()), claim.traceparent,
    )  # fmt: skip
    return b"JOB|%b\n" % _encoder.encode(body)


def ahead_frame(number: int, claims: Sequence[Claim], *, first: bool = False) -> bytes:
    """Encodes the frame that sends jobs which the worker begins later, each with a permit: the first has this number,
    and the others follow. `first`: it has no other job, and begins the first one at once."""
    jobs = b",".join(job_frame(claim)[4:-1] for claim in claims)
    return b'AHEAD|{"number":%d,"first":%b,"jobs":[%b]}\n' % (number, b"true" if first else b"false", jobs)


def batch_frame(claims: Sequence[Claim]) -> bytes:
    """Encodes the frame that sends a batch of jobs to a worker."""
    return b"JOBS|[%b]\n" % b",".join(job_frame(claim)[4:-1] for claim in claims)


def page_of(question: ResultsFrame, found: Sequence[Predecessor], *, more: bool) -> bytes:
    """Encodes the answer to a question for results: as many of those that were found as one frame should have."""
    ends: list[EndOfPredecessor] = []
    size = 0
    for each in found:
        result = each.result if each.result is not None else msgspec.Raw(b"null")
        its = len(bytes(result)) + len(each.error or "")
        if ends and size + its > PAGE_BYTES:
            more = True
            break
        size += its
        ends.append(EndOfPredecessor(each.id, each.nr, each.ordinal, each.state.value, each.reason, result, each.error))
    return _page(PageFrame(question.number, tuple(ends), more=more, bytes=size))


def refused_page(question: ResultsFrame, why: str) -> bytes:
    """Encodes the answer that results could not be read."""
    return _page(PageFrame(question.number, why=why))


def _page(body: PageFrame) -> bytes:
    return b"PAGE|%b\n" % _encoder.encode(body)


def found_of(frame: FoundFrame) -> tuple[Found, ...]:
    """Returns the items, checked like jobs. Raises ValueError if one is invalid, or if `discover` failed."""
    if frame.error is not None:
        raise ValueError(codec.readable(frame.error))
    items: list[Found] = []
    for each in frame.items:
        length = len(codec.restore(each.item))
        if not 1 <= length <= ITEM_LIMIT:
            raise ValueError(f"an item of {length} characters; must have 1 to {ITEM_LIMIT}")
        payload = check_payload(bytes(each.payload).decode())
        label = each.label and codec.escape(codec.restore(each.label)[:NAME_LIMIT])
        items.append(Found(item=each.item, payload=payload, label=label))
    return tuple(items)


def outcome_of(kind: str, body: OutcomeFrame) -> Outcome:
    """Converts a frame of this kind to an outcome. Raises ValueError if it is invalid."""
    match kind:
        case "DONE":
            follow = tuple(check(job) for job in body.follow) if body.follow else ()
            result = bytes(body.result).decode()
            if len(result) > codec.ALWAYS_ALLOWED:
                codec.check_limits(result, "the result")
            return Done(result, follow)
        case "SETTLED":
            return Settled()
        case "RAISED":
            return Raised(codec.readable(body.error))
        case "RETRY":
            return RetryLater(body.after_ms, codec.readable(body.error))
        case "GAVEUP":
            return GaveUp(codec.readable(body.error))
        case "CANCELLED":
            return Stopped(codec.readable(body.error))
        case "TIMEDOUT":
            return TimedOut(codec.readable(body.error))
        case _:
            raise ValueError(f"unknown kind {kind}")
