"""Finds what nobody has completed in a PostgreSQL store: edges to jobs that have ended, and flows whose jobs all have.

It remembers between calls how far it has come, so that each costs little however much there is.
"""

from typing import Protocol

from chargehand.stores.postgres import statements
from chargehand.stores.postgres.edges import Effects
from chargehand.stores.postgres.session import Session, numbers

_SQL = statements.load("flows")
EDGES_AT_ONCE = 2000
"""How many open edges one call reads, at most."""


class Completing(Protocol):
    """What a sweep needs of the jobs of its transaction."""

    def look(self, most: int) -> int:
        """Looks at edges that are due. Returns how many it has decided."""
        ...


class Sweeper:
    """Walks over all open edges and all flows that have not ended, a part with each call."""

    def __init__(self, db: Session) -> None:
        self._db = db
        self._edge = (-1, -(1 << 63))
        self._flow = 0

    def sweep(self, jobs: Completing, effects: Effects, limit: int) -> int:
        """Completes up to about `limit` things. Returns how many it has found."""
        self._mark()
        found = jobs.look(limit)
        idle = self._idle(limit)
        effects.flows |= idle
        return found + len(idle)

    def _mark(self) -> None:
        """Marks open edges as due whose predecessors have ended: a node has died before it closed them."""
        rows = self._db.rows(_SQL["forgotten"], (*self._edge, EDGES_AT_ONCE))
        last = len(rows) < EDGES_AT_ONCE
        self._edge = (-1, -(1 << 63)) if last else (int(rows[-1][0]), int(rows[-1][1]))
        left = [(int(job), int(predecessor)) for job, predecessor, forgotten in rows if forgotten]
        if left:
            its = numbers([job for job, _ in left]), numbers([predecessor for _, predecessor in left])
            self._db.send(_SQL["mark_these_due"], its)

    def _idle(self, limit: int) -> set[str]:
        """Returns flows that have not ended although they have no live job."""
        rows = self._db.rows(_SQL["idle_flows"], (self._flow, limit))
        self._flow = int(rows[-1][0]) if len(rows) == limit else 0
        return {str(flow) for _, flow, idle, _ in rows if idle}
