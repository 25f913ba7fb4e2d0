"""Decides whether a node may take its name, which an earlier life of it, or another node, has. Pure: it reads no clock.

Pids are compared only on the same machine, since the same boot, in the same pid namespace.
"""

from collections.abc import Callable
from enum import Enum, auto

from chargehand.model.lease import patience
from chargehand.model.records import LastLife, NodeAbout


class Fate(Enum):
    """What is known of the node that has the name."""

    DEAD = auto()
    LIVES = auto()
    UNKNOWN = auto()
    """Only time can tell: its lease runs."""


class Succession:
    """Watches the node that has the name of this one."""

    def __init__(self, own: NodeAbout, alive: Callable[[int, int], bool]) -> None:
        """`alive` returns whether the process with this pid and start time exists on this machine."""
        self._own, self._alive = own, alive
        self._seen: LastLife | None = None
        self._since = 0.0

    def judge(self, last: LastLife, now: float) -> Fate:
        """Returns what is known of the node by its row, which was read at this monotonic time."""
        if last.beat is None:
            return Fate.DEAD  # the lock of the store, which this node has, is the proof
        if is_here(last.about, self._own):
            assert last.about.pid is not None
            assert last.about.start is not None
            return Fate.LIVES if self._alive(last.about.pid, last.about.start) else Fate.DEAD
        before, self._seen = self._seen, last
        if before is None or before.life != last.life:
            self._since = now
            return Fate.UNKNOWN
        if before.beat != last.beat:
            return Fate.LIVES
        silent = now - self._since
        return Fate.DEAD if silent >= patience(last.about, session_ended=last.session_ended) else Fate.UNKNOWN

    def forget(self) -> None:
        """Begins the observation anew: the server was away, and the node could not have beaten."""
        self._seen = None


def is_here(node: NodeAbout, own: NodeAbout) -> bool:
    """Returns whether the pid of a node means the same process here as there."""
    known = None not in (node.pid, node.start, node.boot, node.pid_namespace)
    return known and (node.boot, node.pid_namespace) == (own.boot, own.pid_namespace)


def name_taken(name: str, node: NodeAbout) -> str:
    """Returns why a node cannot be registered, and what to do."""
    where = f" (pid {node.pid} on {node.machine or 'another machine'})" if node.pid is not None else ""
    return (
        f"another node with the name {name!r}{where} uses this store: give each node a name of its own, "
        "with CHARGEHAND_NODE or Chargehand(node=...)"
    )
