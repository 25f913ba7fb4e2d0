"""Finds the job that ends its node: decides who is suspect, who may run while others are, and who is charged.

Pure. Every job that a node had when it died unasked is a suspect until it has finished. A node has at most one suspect
at a time, so a suspect that it had at a further such death is the only one that can be to blame.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from chargehand.model.job import (
    DEFAULT_POLICY,
    FINISHED,
    Claim,
    Crashed,
    Interrupted,
    JobPolicy,
    Settlement,
    State,
    settle,
)


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A suspect, as the store has it."""

    seq: int
    state: State | None
    """None if the job was deleted."""
    queue: str | None
    priority: int | None
    ready: bool
    """Whether a claim may take it now."""
    here: bool
    """Whether the present node has it."""


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """A claim of a life that has ended: an earlier one of the node, or one of another node."""

    claim: Claim
    node: str
    life: str
    worker: str | None
    duration_ms: int
    suspect: bool


def finished(suspects: Sequence[Suspect]) -> list[int]:
    """Returns the jobs that are suspects no longer, because they have finished."""
    return [each.seq for each in suspects if each.state is None or each.state in FINISHED]


def blocked(suspects: Sequence[Suspect], queue: str) -> list[int]:
    """Returns the suspects that a claim from this queue must leave: all, or all but the one whose turn it is."""
    left = [each for each in suspects if each.state is State.QUEUED]
    if any(each.here and each.state is State.RUNNING for each in suspects):
        return [each.seq for each in left]
    ready = [each for each in left if each.queue == queue and each.ready]
    first = min(ready, key=lambda each: (-(each.priority or 0), each.seq), default=None)
    return [each.seq for each in left if each is not first]


def release(
    orphans: Sequence[Orphan], died: Collection[str], why: str, policy: JobPolicy = DEFAULT_POLICY
) -> tuple[list[Settlement], list[Orphan]]:
    """Returns how the claims of ended lives end, and which of these jobs are suspects from now on.

    `died` are the lives that ended unasked. Only a suspect that was the only one in such a life is charged.
    """
    there = [orphan for orphan in orphans if orphan.life in died]
    accused = Counter(orphan.life for orphan in there if orphan.suspect)
    settlements: list[Settlement] = []
    for orphan in orphans:
        outcome = _charge(orphan) if orphan.suspect and accused[orphan.life] == 1 else Interrupted(why)
        settlement = settle(orphan.claim, outcome, worker=orphan.worker, duration_ms=orphan.duration_ms, policy=policy)
        assert settlement is not None
        settlements.append(settlement)
    return settlements, there


def _charge(orphan: Orphan) -> Crashed:
    who = orphan.worker or "a worker"
    return Crashed(
        f"the node died while {who} performed the job; it was the only job of the node that had also been running when "
        "a node died before"
    )


def mark(claims: Sequence[Claim], suspects: Collection[int]) -> list[Claim]:
    """Returns the claims with the suspects among them marked."""
    return [msgspec.structs.replace(claim, suspect=True) if claim.seq in suspects else claim for claim in claims]
