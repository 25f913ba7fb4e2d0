"""When a process notifies the nodes of a store of what it has written, and when a notified node looks for jobs. Pure.

A notification is only a hint. One that is lost delays a job by the interval of polling, and nothing depends on it.
Times are monotonic seconds of one process: clocks of different processes are not compared.
"""

from collections.abc import Mapping
from enum import StrEnum

NOTIFY_EVERY, LONGEST_SILENCE = 0.005, 0.02
"""A process reports jobs at most once in so many seconds: the former, and the latter if it goes on adding jobs. What it
commits in between is not reported."""
LOOK_AGAIN, LAST_LOOK = NOTIFY_EVERY + 0.001, LONGEST_SILENCE + 0.001
"""Seconds after a notification at which a node looks once more, for what was committed in between."""
LOOK_EVERY, LONGEST_PACE = NOTIFY_EVERY, 0.1
"""The interval of looks: it grows while they cost much, or find jobs that then cannot be claimed."""
COST = 3
"""A look that takes long is repeated only after so many times as long."""
AFTER_FAILURE = 1.0
"""Seconds without a notification after one that failed."""
POLL_UNNOTIFIED = 0.25
"""The interval of checks for writes of others while no notifications arrive."""
OPEN_EVERY, OPEN_FOR = 0.25, 60.0
"""The longest interval of looks for jobs in transactions of callers, and for how long a node looks for them."""


class Wakeup(StrEnum):
    """What a notification reports."""

    JOBS = "jobs"
    """There are jobs to claim."""
    ORDERS = "orders"
    """There are requests to nodes, cancel requests, or changed pauses."""
    OPEN = "open"
    """There will be jobs to claim when a caller commits a transaction of its own."""


class Debounce:
    """Limits how often a process reports jobs."""

    def __init__(self) -> None:
        self.next_at = 0.0
        """When jobs may be reported again."""
        self._silence = NOTIFY_EVERY

    def begin(self, now: float) -> bool:
        """Returns whether jobs may be reported now; if so, they are being reported.

        Whatever commits until `next_at` is found by a later look of the nodes, because they receive the notification
        later than now.
        """
        if now < self.next_at:
            return False
        goes_on = now - self.next_at < self._silence
        self._silence = min(2 * self._silence, LONGEST_SILENCE) if goes_on else NOTIFY_EVERY
        self.next_at = now + self._silence
        return True

    def undo(self) -> None:
        """Records that what was being reported is not: its transaction has failed."""
        self.next_at = 0.0

    def failed(self, now: float) -> None:
        """Records that a notification failed."""
        self.next_at = now + AFTER_FAILURE


def overflows(added: Mapping[str, int], room: Mapping[str, int], elsewhere: frozenset[str]) -> bool:
    """Returns whether other nodes should be notified of jobs that this node adds: some of them are more than its own
    idle workers can take, and other nodes serve their queue. All by queue."""
    return any(count > room.get(queue, 0) and queue in elsewhere for queue, count in added.items())


class Looks:
    """When a notified node looks whether its queues have jobs.

    After a notification of jobs: at once, after LOOK_AGAIN, and after LAST_LOOK. After one of an open transaction,
    whose end nobody reports: at intervals that grow with the time that has passed.
    """

    def __init__(self) -> None:
        self._wanted = False
        self._again_at: float | None = None
        self._jobs_at = -LAST_LOOK
        self._open_at, self._open_until = 0.0, 0.0
        self._next_at = 0.0
        self._began = 0.0
        self._looking = False
        self._fruitless = 0
        """The number of looks in a row that found jobs of which none could be claimed."""
        self._expects = False

    def notified(self, what: Wakeup, now: float) -> None:
        """Records a notification of jobs, or of an open transaction."""
        self._wanted |= what is Wakeup.JOBS
        self._again_at = now + LOOK_AGAIN
        if what is Wakeup.OPEN:
            self._open_at, self._open_until = now, now + OPEN_FOR
        else:
            self._jobs_at = now

    def due(self) -> float | None:
        """Returns when the next look is due; None if none is, or one is under way."""
        if self._looking or not (self._wanted or self._again_at):
            return None
        return self._next_at if self._wanted else max(self._again_at or 0.0, self._next_at)

    def begin(self, now: float) -> None:
        """Records that a look begins."""
        self._looking, self._began, self._wanted = True, now, False
        if self._again_at is not None and self._again_at <= now:
            self._again_at = self._following(now)

    def _following(self, now: float) -> float | None:
        """Returns when to look after a look that begins now."""
        if now < self._jobs_at + LAST_LOOK:
            return self._jobs_at + LAST_LOOK
        if now < self._open_until:
            return now + min(max(now - self._open_at, LOOK_AGAIN), OPEN_EVERY)
        return None

    def ended(self, *, found: bool, took: float = 0.0) -> None:
        """Records the end of a look, whether it found jobs, and how many seconds the store took for it."""
        self._looking, self._expects = False, found
        pace = max(LOOK_EVERY * 2**self._fruitless, COST * took)
        self._next_at = self._began + min(pace, LONGEST_PACE)

    def claimed(self, *, any_job: bool) -> None:
        """Records a claim, and whether it got jobs."""
        if any_job:
            self._fruitless = 0
        elif self._expects:
            self._fruitless = min(self._fruitless + 1, 8)
        self._expects = False
