"""What a node repeats when its store is served by another server, or by one that has lost its last commits. Pure.

A standby that is promoted while it lags behind lacks the last commits: outcomes, claims, new jobs. Each node keeps the
outcomes of the last minute, and writes those again whose claims the new server still holds. The number of a claim is
never used twice, so an outcome ends the claim that it belongs to, or nothing.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from enum import Enum

import msgspec

from chargehand.model.job import Settlement, State

KEPT_SECONDS = 60.0
MOST_ENDS = 10_000
MOST_BYTES = 32 << 20
_OVERHEAD = 500
"""Bytes of a settlement without its texts, roughly."""
LOST_END = "the server of the store has lost how the job ended"

Key = tuple[int, int]
"""The seq of a job, and the number of its claim."""


class Server(msgspec.Struct, frozen=True):
    """Identifies a server and the history of its data."""

    system: str
    """The identifier of the database cluster, which a primary and its standbys share."""
    timeline: int
    """Higher after every promotion."""
    started: str
    """When its main process was started."""


class Change(Enum):
    """What the server of a new connection is, compared with that of the last one."""

    SAME = "same"
    """No other server, as far as it identifies itself; it may have been restarted."""
    REPLACED = "replaced"
    OUTDATED = "outdated"
    """A former primary: what was committed since its replacement is not there."""


def judge(before: Server | None, found: Server | None) -> Change:
    """Returns what has changed; None stands for a server that does not identify itself."""
    if before is None or found is None:
        return Change.SAME
    if before.system != found.system or before.timeline < found.timeline:
        return Change.REPLACED
    return Change.OUTDATED if found.timeline < before.timeline else Change.SAME


class ServerClaim(msgspec.Struct, frozen=True):
    """A claim of the node, as the server has it."""

    id: str
    seq: int
    number: int
    queue: str

    @property
    def key(self) -> Key:
        """What identifies the claim."""
        return self.seq, self.number


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What a node and its server have of the node's claims."""

    replaced: bool
    """Whether the server is another one than before."""
    claims: tuple[ServerClaim, ...]
    """All claims of the node that the server knows."""
    repeat: tuple[Settlement, ...]
    """Outcomes that the server has lost, and that are to be written again."""
    unknown: int
    """The number of outcomes that the server has lost together with their claims: these jobs run again."""


def compare(
    ends: Iterable[Settlement], claims: Sequence[ServerClaim], recorded: Collection[Key], *, replaced: bool
) -> Comparison:
    """Returns what to repeat. `ends` are recent outcomes, `recorded` those of them that the server knows as ended."""
    held = {claim.key for claim in claims}
    recent = {(end.seq, end.claim): end for end in ends}
    # A claim that was given back unused leaves no trace: nobody can tell whether the server knows of it.
    unknown = sum(key not in held and key not in recorded and end.outcome is not None for key, end in recent.items())
    repeat = tuple(end for key, end in recent.items() if key in held)
    return Comparison(replaced=replaced, claims=tuple(claims), repeat=repeat, unknown=unknown)


def released(claim: ServerClaim) -> Settlement:
    """Returns the settlement for a claim that the server knows and the node does not: the job is queued again."""
    return Settlement(
        id=claim.id, seq=claim.seq, claim=claim.number, queue=claim.queue, state=State.QUEUED, outcome="interrupted",
        error=LOST_END, interruptions=1,
    )  # fmt: skip


class Ends:
    """The outcomes of the last minute that a server has accepted, within limits. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, int, Settlement]] = deque()
        self._bytes = 0

    def add(self, settlements: Iterable[Settlement], now: float) -> None:
        """Keeps these outcomes, and forgets the oldest ones beyond the limits."""
        for settlement in settlements:
            size = _size(settlement)
            self._kept.append((now, size, settlement))
            self._bytes += size
        self._forget(now)

    def recent(self, now: float) -> list[Settlement]:
        """Returns the outcomes that are kept, oldest first."""
        self._forget(now)
        return [settlement for _, _, settlement in self._kept]

    def _forget(self, now: float) -> None:
        kept = self._kept
        while kept and (kept[0][0] < now - KEPT_SECONDS or len(kept) > MOST_ENDS or self._bytes > MOST_BYTES):
            _, size, _ = kept.popleft()
            self._bytes -= size


def _size(settlement: Settlement) -> int:
    """Returns about how many bytes of memory a settlement takes."""
    size = _OVERHEAD + _length(settlement.result) + _length(settlement.error)
    for job in settlement.follow:
        size += _OVERHEAD + _length(job.payload)
    return size


def _length(text: str | None) -> int:
    return 0 if text is None else len(text) if text.isascii() else 4 * len(text)
