"""The drain of a node: it takes no more jobs, finishes those that it has, and is drained then. Pure."""

from collections.abc import Iterable
from enum import StrEnum

from chargehand.model.fleet.place import Place
from chargehand.model.health import will_work


class DrainState(StrEnum):
    """How far the drain of a node has come."""

    DRAINING = "draining"
    DRAINED = "drained"


class Drain:
    """The drain of one node, from the order until workers are started again."""

    def __init__(self) -> None:
        self.state: DrainState | None = None
        """None while the node works."""
        self.ends = False
        """Whether the node ends when it is drained."""

    def order(self, *, end: bool) -> None:
        """Begins the drain. An order that does not ask for the end does not take back one that did."""
        if self.state is None or (end and not self.ends):
            self.state = DrainState.DRAINING
        self.ends |= end

    def lift(self) -> None:
        """Ends the drain, because an operator starts workers."""
        self.state, self.ends = None, False

    def check(self, places: Iterable[Place], *, settled: bool) -> bool:
        """Returns whether the node is drained from now on: no worker runs or will run, and every outcome is written."""
        if self.state is not DrainState.DRAINING or not settled:
            return False
        if any(place.alive or will_work(place) for place in places):
            return False
        self.state = DrainState.DRAINED
        return True
