"""The person or program on whose behalf this process acts, as the operator log records it."""

import getpass
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

from chargehand.model.access import Deed
from chargehand.model.job import Enqueued, NewJob
from chargehand.store import Transaction


class Actor(msgspec.Struct, frozen=True):
    """The name of the actor and the interface that was used, as the operator log records them."""

    who: str
    origin: str
    person: bool = False
    """Whether it is known to be a person. Only their jobs are logged: programs create thousands."""


_actor: ContextVar[Actor | None] = ContextVar("chargehand_actor", default=None)


@contextmanager
def acting_as(who: str, origin: str, *, person: bool = False) -> Generator[None]:
    """Records the operations of the block in the operator log under this name."""
    token = _actor.set(Actor(who, origin, person))
    try:
        yield
    finally:
        _actor.reset(token)


def actor() -> Actor:
    """Returns the actor that `acting_as` set; otherwise the user of this process."""
    return _actor.get() or Actor(user(), "python")


def enqueue_deeds(jobs: Sequence[NewJob], done: Sequence[Enqueued]) -> list[Deed]:
    """Returns the entries of the operator log for jobs that a person created: one for each queue."""
    by = _actor.get()
    if by is None or not by.person:
        return []
    created: dict[str, list[str]] = {}
    for job, one in zip(jobs, done, strict=True):
        if one.created:
            created.setdefault(job.queue, []).append(one.id)
    return [
        Deed(who=by.who, origin=by.origin, verb="enqueue", target=f"job:{ids[0]}", detail=f"queue {queue}")
        if len(ids) == 1
        else Deed(who=by.who, origin=by.origin, verb="enqueue", target=f"queue:{queue}", detail=f"{len(ids)} jobs")
        for queue, ids in created.items()
    ]


def user() -> str:
    """Returns the name of the user that runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def log_deeds(
    tx: Transaction, verb: str, targets: Sequence[str], detail: str | None = None, who: str | None = None
) -> None:
    """Writes one entry for each target into the operator log; `who` replaces the name of the actor."""
    by = actor()
    tx.access.log(
        [Deed(who=who or by.who, origin=by.origin, verb=verb, target=each, detail=detail) for each in targets]
    )
