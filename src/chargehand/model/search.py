"""How a crew finds its work in the application's own tables: when to look, from where, and when there is enough.

Pure. One worker looks at a time; what it finds becomes jobs, so that everything after that is as for any other job.
"""

import msgspec

PAGE = 200
"""Items asked for at a time."""
ENOUGH = 100
"""Found items that wait in the queue: fewer, and somebody looks for more before it runs dry."""
LOOK_EVERY = 2.0
"""Seconds between two walks through the tables, unless the application says that there is something."""
LOOK_ASLEEP = 300.0
"""The same while all of the crew sleep: each time one of them is started for it."""
LONGEST_LOOK = 30.0
"""Seconds that a look may take."""
LONGEST_PAUSE = 60.0


class Look(msgspec.Struct, frozen=True):
    """Name up to `limit` items after this one; from the beginning, if it is None."""

    crew: str
    after: str | None
    limit: int = PAGE


class Search(msgspec.Struct):
    """One crew's walk, page by page, again and again."""

    crew: str
    after: str | None = None
    asked: str | None = None
    """The worker that is looking."""
    look_at: float = 0.0
    asleep_at: float = 0.0
    """The same, if all of the crew sleep."""
    failures: int = 0
    waiting: int = 0
    """About how many found items are in the queue."""
    storing: bool = False
    """A page is on its way into the store."""
    more: bool = False
    woken: bool = False
    """The application spoke while somebody was looking: that look may have come too early to see it."""
    looked_at: float = 0.0
    """When the present look began."""
    error: str | None = None
    """Why the last look failed."""

    def due(self) -> float | None:
        """When somebody should look; None while somebody does, or while there is enough."""
        return self.look_at if self._may_look else None

    def due_asleep(self) -> float | None:
        """When somebody should be woken to look, if all of the crew sleep; None as above."""
        return self.asleep_at if self._may_look else None

    @property
    def _may_look(self) -> bool:
        return self.asked is None and not self.storing and self.waiting < ENOUGH

    def begin(self, worker: str, now: float) -> Look:
        """This worker looks now."""
        self.asked = worker
        self.looked_at = now
        return Look(self.crew, self.after)

    def found(self, last: str | None, more: bool) -> None:
        """A page came: its last item, and whether there may be more after it."""
        self.asked, self.failures, self.error = None, 0, None
        self.after, self.more, self.storing = (last, True, True) if more else (None, False, True)

    def stored(self, queued: int, now: float) -> None:
        """So many of the page are in the queue; the others are known already."""
        self.storing = False
        self.waiting += queued
        at_once = self.more or self.woken
        self.look_at, self.asleep_at = (now, now) if at_once else (now + LOOK_EVERY, now + LOOK_ASLEEP)
        self.woken &= self.more

    def failed(self, why: str, now: float) -> None:
        """The look came to nothing: later again, from the beginning."""
        self.asked, self.after = None, None
        self.failures, self.error = self.failures + 1, why
        pause = min(LOOK_EVERY * 2 ** min(self.failures, 10), LONGEST_PAUSE)
        self.look_at = self.asleep_at = now if self.woken else now + pause
        self.woken = False

    def taken(self, new: int, *, short: bool) -> None:
        """So many were claimed for the first time. `short`: fewer than wanted were there, so none is left."""
        self.waiting = 0 if short else max(0, self.waiting - new)

    def wake(self, now: float) -> None:
        """The application says that there is something."""
        self.look_at = min(self.look_at, now)
        self.rouse(now)
        self.woken = self.asked is not None or self.storing

    def rouse(self, now: float) -> None:
        """If all of the crew sleep, somebody is to look: nobody did while it was paused."""
        self.asleep_at = min(self.asleep_at, now)
