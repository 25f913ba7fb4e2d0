"""The lease of a node: how long others wait without a beat before they take its jobs. Pure: it reads no clock.

A node tells the others its lease when it registers, so both sides use the same number.
"""

from chargehand.model.fleet.policy import LivenessPolicy
from chargehand.model.records import NodeAbout

SHORT = 1 / 3
"""The part of the lease that others wait if they see that the node's session on the server has ended."""
MARGIN = 0.2
"""The part of the lease that is left when the last job of a crew with `when_cut_off="stop"` has ended."""
LONGEST_CANCEL = 0.6
"""The part of the lease that a cancelled job of such a crew may take to end, until its worker is killed."""


def patience(node: NodeAbout, *, session_ended: bool) -> float:
    """Returns for how many seconds a node may be silent.

    A crew whose jobs stop before the lease is over needs all of it: the node may live, cut off from the server.
    """
    return node.lease * SHORT if session_ended and not node.stops else node.lease


def longest_end(liveness: LivenessPolicy) -> float:
    """Returns the seconds from the cancellation of a job to the SIGKILL for a worker that does not end it."""
    return liveness.cancel + liveness.stacks


class CutOff:
    """Decides when a node that cannot reach its store stops the jobs that must not overlap with those of others.

    Times are monotonic seconds. A beat counts from the moment at which its turn was submitted: others have seen it
    later.
    """

    def __init__(self, lease: float, ends: float, now: float) -> None:
        """`ends`: seconds after which the worker of a cancelled job is killed at the latest."""
        self._after = lease * (1 - MARGIN) - min(ends, lease * LONGEST_CANCEL)
        self._beat_at = now
        self.cut_off = False
        """Whether the node counts as cut off."""

    @property
    def beat_every(self) -> float:
        """The seconds between two beats with which a node that reaches its store never counts as cut off."""
        return self._after / 2

    def due(self) -> float | None:
        """Returns when the node counts as cut off; None if it does."""
        return None if self.cut_off else self._beat_at + self._after

    def is_over(self, now: float) -> bool:
        """Returns whether the node counts as cut off from now on."""
        due = self.due()
        if due is None or now < due:
            return False
        self.cut_off = True
        return True

    def beaten(self, at: float, now: float) -> bool:
        """Records a beat, and returns whether it ends the time in which the node was cut off.

        An answer that took so long that the lease ends soon does not.
        """
        self._beat_at = max(self._beat_at, at)
        if not self.cut_off or now >= self._beat_at + self._after:
            return False
        self.cut_off = False
        return True
