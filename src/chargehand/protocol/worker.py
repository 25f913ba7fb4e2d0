"""What node and worker tell each other, as the node reads and writes it. The worker's side is plain JSON."""

from collections.abc import Sequence

import msgspec

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
    check,
    check_payload,
)


class JobFrame(msgspec.Struct, frozen=True):
    """A job on its way to a worker."""

    id: str
    seq: int
    fence: int
    queue: str
    label: str | None
    attempts: int
    crashes: int
    payload: msgspec.Raw
    item: str | None = None


class FoundItem(msgspec.Struct, frozen=True):
    """One item that a look found."""

    item: str
    payload: msgspec.Raw = msgspec.Raw(b"null")
    label: str | None = None


class FoundFrame(msgspec.Struct, frozen=True):
    """What came of a look: the items, in order, and whether there may be more; or why it failed."""

    items: tuple[FoundItem, ...] = ()
    more: bool = False
    error: str | None = None


class OutcomeFrame(msgspec.Struct, frozen=True):
    """An attempt's end on its way from a worker; which fields matter depends on the kind."""

    id: str
    fence: int
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    after_ms: int = 0
    follow: tuple[NewJob, ...] = ()


class ProgressFrame(msgspec.Struct, frozen=True):
    """How far a job is."""

    done: float | None = None
    total: float | None = None
    stage: str | None = None
    detail: str | None = None


class HealthFrame(msgspec.Struct, frozen=True):
    """A worker's newest state."""

    component_id: str
    incarnation: str
    status: str
    current_job: str | None = None
    turns: int = 0
    done: int = 0
    errors: int = 0
    memory: int = 0
    progress: ProgressFrame | None = None


class MoreTimeFrame(msgspec.Struct, frozen=True):
    """A worker that is loading asks for so many seconds from now."""

    seconds: float


class FatalFrame(msgspec.Struct, frozen=True):
    """Why a worker is about to end by its own decision."""

    code: int
    why: str


founds = msgspec.json.Decoder(FoundFrame)
outcomes = msgspec.json.Decoder(OutcomeFrame)
healths = msgspec.json.Decoder(HealthFrame)
fatals = msgspec.json.Decoder(FatalFrame)
more_times = msgspec.json.Decoder(MoreTimeFrame)
_encoder = msgspec.json.Encoder()


def job_frame(claim: Claim) -> bytes:
    """The line that hands a job over."""
    body = JobFrame(
        claim.id, claim.seq, claim.fence, claim.queue, claim.label, claim.attempts, claim.crashes,
        msgspec.Raw(claim.payload.encode()), claim.item,
    )  # fmt: skip
    return b"JOB|%b\n" % _encoder.encode(body)


def batch_frame(claims: Sequence[Claim]) -> bytes:
    """The line that hands several over together."""
    return b"JOBS|[%b]\n" % b",".join(job_frame(claim)[4:-1] for claim in claims)


def found_of(frame: FoundFrame) -> tuple[Found, ...]:
    """The items, checked as jobs are."""
    items: list[Found] = []
    for each in frame.items:
        if not 1 <= len(each.item) <= ITEM_LIMIT:
            raise ValueError(f"an item of {len(each.item)} characters; allowed are 1 to {ITEM_LIMIT}")
        payload = check_payload(bytes(each.payload).decode())
        items.append(Found(item=each.item, payload=payload, label=each.label and each.label[:NAME_LIMIT]))
    return tuple(items)


def outcome_of(kind: str, body: OutcomeFrame) -> Outcome:
    """What the worker says became of its job; a ValueError if that is nothing that can be said."""
    match kind:
        case "DONE":
            follow = tuple(check(job) for job in body.follow) if body.follow else ()
            return Done(bytes(body.result).decode(), follow)
        case "SETTLED":
            return Settled()
        case "RAISED":
            return Raised(body.error)
        case "RETRY":
            return RetryLater(body.after_ms, body.error)
        case "GAVEUP":
            return GaveUp(body.error)
        case "CANCELLED":
            return Stopped(body.error)
        case _:
            raise ValueError(f"unknown kind {kind}")
