"""Decides which nodes are dead, from the counters that they increase with every turn. Pure: it reads no clock.

No time of day decides: the clock of a server may jump, and that of a promoted standby is another one. A node is dead if
its counter has stood still for its lease by the monotonic clock of the node that watches it, all of it on one
connection. After a reconnect every observation begins anew, because the server may have been away.
"""

from collections.abc import Iterable

import msgspec

from chargehand.model.lease import patience
from chargehand.stores.rows import about_of

LOOK_EVERY = 1.0


class Seen(msgspec.Struct, frozen=True):
    """The row of a node as it was read."""

    incarnation: str
    name: str
    beat: int
    gone: bool
    """Whether the server process of its connection has ended."""
    about: str = "{}"
    """What the node said about itself, as JSON."""


class Beats:
    """What one node has seen of the others."""

    def __init__(self) -> None:
        self._connection: int | None = None
        self._since: dict[str, tuple[int, float]] = {}
        """By incarnation: the last beat, and when it was seen first."""
        self._look_at = 0.0

    def is_due(self, now: float) -> bool:
        """Returns whether it is time to look at the others again."""
        return now >= self._look_at

    def dead(self, nodes: Iterable[Seen], now: float, connection: int, asked_at: float | None = None) -> list[Seen]:
        """Returns the nodes that are dead. `connection` identifies the connection on which they were read.

        They were read between `asked_at` and now: a beat is as old as the answer says at most, and stands still until
        the question at least.
        """
        if connection != self._connection:
            self._connection, self._since = connection, {}
        self._look_at = now + LOOK_EVERY
        since: dict[str, tuple[int, float]] = {}
        found: list[Seen] = []
        still_at = now if asked_at is None else asked_at
        for node in nodes:
            beat, at = self._since.get(node.incarnation, (None, now))
            since[node.incarnation] = (node.beat, at if beat == node.beat else now)
            if beat == node.beat and still_at - at >= patience(about_of(node.about), session_ended=node.gone):
                found.append(node)
        self._since = since
        return found
