"""The application that has its work found: its own table, and its own account of who works on which of its items.

Nothing here knows of jobs, claims or stores. What it sees must make sense without them.
"""

from typing import TYPE_CHECKING

import msgspec
from clockwork import Broken

from chargehand.model.job import Claim, Done, Found, Outcome

if TYPE_CHECKING:
    from actors import Worker
    from stage import World


class Row(msgspec.Struct):
    """One item. `kind`: good; bad crashes whoever works on it; endless needs work again whenever it was done."""

    key: str
    crew: str
    kind: str
    needs: bool = True
    done: int = 0
    """How often somebody did it."""
    withdrawn: bool = False
    """That it needs no work was the application's own decision: whoever has found it before cannot know."""


class Application:
    """See the module."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.rows: dict[str, Row] = {}
        self._working: dict[str, Worker] = {}
        self.broken_until = 0.0
        """Its table cannot be read until then."""

    # what the application does

    def add(self, key: str, crew: str, kind: str) -> None:
        """Something new that needs work."""
        self.rows[key] = Row(key, crew, kind)

    def touch(self, key: str) -> None:
        """It needs work again."""
        row = self.rows[key]
        row.needs, row.withdrawn = True, False

    def withdraw(self, key: str) -> None:
        """It needs none after all."""
        row = self.rows[key]
        row.needs, row.withdrawn = False, True

    # what its handler does, in a worker

    def discover(self, crew: str, after: str | None, limit: int) -> list[Found] | None:
        """The next items that need work, by key; None if the table cannot be read."""
        if self._world.now < self.broken_until:
            return None
        keys = sorted(row.key for row in self.rows.values() if row.crew == crew and row.needs)
        return [Found(item=key) for key in keys if after is None or key > after][:limit]

    def begins(self, worker: "Worker", claim: Claim) -> None:
        """A worker begins with an item: nobody else who lives may have it in hand."""
        if claim.item is None:
            return
        other = self._working.get(claim.item)
        if other is not None and other is not worker and other.alive:
            mine = [held for held in other.hand.values() if held.item == claim.item]
            if mine:
                raise Broken(f"item {claim.item} is worked on by {other} and by {worker}")
        self._working[claim.item] = worker

    def ended(self, worker: "Worker", claim: Claim, outcome: Outcome) -> None:
        """A worker is through with an item; if it was done, its row says so before anybody is told."""
        if claim.item is None:
            return
        if self._working.get(claim.item) is worker:
            del self._working[claim.item]
        if isinstance(outcome, Done):
            row = self.rows[claim.item]
            row.done += 1
            if row.needs and row.kind != "endless":
                row.needs, row.withdrawn = False, False

    # what must come of it

    def open(self) -> list[Row]:
        """What still needs work."""
        return [row for row in self.rows.values() if row.needs]
