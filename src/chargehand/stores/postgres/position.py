"""Where the next claim from a queue begins to look. It runs no statement.

While an old transaction keeps the server from removing dead rows, a claim that begins at the front of a queue steps
over every job that was claimed since. So a claim begins at the first job that the last one took. It begins at the front
again if the last claim found fewer jobs than it was asked for, and from time to time, because jobs may appear before
that position: urgent ones, retries, and those of a transaction that committed late.
"""

from collections.abc import Iterable

import msgspec

from chargehand import clock
from chargehand.model.batch import Want
from chargehand.stores.postgres.claiming import FRONT, Position, Taken
from chargehand.stores.postgres.edges import Ready

SOONEST, LATEST = 0.02, 1.0
"""Seconds between two looks at a whole queue: five times what a look takes, within these bounds."""
TIMES = 5


class _Place(msgspec.Struct):
    position: Position
    whole_at: float
    began: float
    whole: bool


class Positions:
    """The positions of all queues of one node."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}

    def start(self, queue: str) -> Position:
        """Returns where a claim that is sent now begins to look."""
        now = clock.monotonic()
        place = self._places.setdefault(queue, _Place(FRONT, 0.0, now, True))
        place.began, place.whole = now, place.position == FRONT or now >= place.whole_at
        return FRONT if place.whole else place.position

    def took(self, want: Want, taken: Taken) -> None:
        """Notes what the claim found."""
        place = self._places.get(want.queue)
        if place is None:
            return
        now = clock.monotonic()
        if place.whole:
            place.whole_at = now + min(LATEST, max(SOONEST, TIMES * (now - place.began)))
        full = len(taken.grant.claims) == want.limit and taken.first is not None
        place.position = taken.first if full and taken.first is not None else FRONT

    def lower(self, added: Iterable[tuple[str, int]]) -> None:
        """Returns to the front of each queue in which a job of this rank comes before the position."""
        for queue, rank in added:
            place = self._places.get(queue)
            if place is not None and rank < place.position[0]:
                place.position = FRONT

    def released(self, ready: Iterable[Ready]) -> None:
        """Returns to the front of each queue in which one of these jobs comes before the position."""
        for job in ready:
            place = self._places.get(job.queue)
            if place is not None and (job.rank, job.place, job.seq) < place.position:
                place.position = FRONT

    def forget(self, queues: Iterable[str]) -> None:
        """Returns to the front of these queues: jobs were queued again."""
        for queue in queues:
            self._places.pop(queue, None)
