"""Records the processes that have left their worker's session, so that the next node finds them if this one is killed.

While this node lives, they are its descendants. Afterwards only a mark in their environment would identify them, and
that may be cleared, or unreadable because the process made itself undumpable.
"""

from chargehand import clock
from chargehand.processes import proc
from chargehand.processes.child import Child
from chargehand.processes.record import ProcessRecord

INTERVAL = 0.5
"""The minimum number of seconds between two looks at the processes of a worker."""
IDLE_INTERVAL = 30.0
"""The minimum number of seconds between two looks at a worker that has done nothing since the last one."""


class Strays:
    """The processes of one worker that have left its session."""

    def __init__(self, lives: ProcessRecord, child: Child) -> None:
        self._lives, self._child = lives, child
        self._known: set[tuple[int, int]] = set()
        """The pids and start times that are recorded."""
        self._looked_at = clock.monotonic()
        self._active = True
        """Whether the worker has done something since the last look."""

    def look(self, *, active: bool) -> None:
        """Records what is new and what has ended. Costs a few file reads if the worker has no child process.

        `active`: the worker has a job, or has ended one since the last call.
        """
        self._active |= active
        now = clock.monotonic()
        if now - self._looked_at < (INTERVAL if self._active else IDLE_INTERVAL):
            return
        self._looked_at, self._active = now, False
        below = proc.descendants(self._child.pid)
        self._record({(pid, seen.start) for pid, seen in below.items() if seen.session != self._child.pid})

    def forget(self) -> None:
        """Records that all of them have ended."""
        self._record(set())

    def _record(self, found: set[tuple[int, int]]) -> None:
        if found != self._known:
            self._lives.note(self._child.component, began=found - self._known, ended=self._known - found)
            self._known = found
