"""How a crew discovers work in the application's own tables: when to search, from which item on, and when to stop.

Pure. One worker of a crew searches at a time, also of many nodes; the items become jobs, which are treated like all
others.

The order of the items is the application's own, such as the collation of its database: keys are compared for equality
alone. A search that goes on must not return to an item that it has passed.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from chargehand import codec
from chargehand.model.job import AtLeastOne

PAGE = 200
"""The number of items per call of `discover`."""
ENOUGH = 100
"""The number of discovered jobs in the queue below which the search continues."""
LONGEST_PAUSE = 60.0
OVERDUE = 5.0
"""Seconds after which a node that has no free worker leaves a search that is due to another node."""
PASS_ON_AFTER = 3
"""The number of consecutive failures after which a node leaves the search to another node, for LONGEST_PAUSE."""
SHOWN = 100
"""The number of characters of a key in an error."""


class DiscoveryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When crews call `discover`, and when an item that is found again and again is set aside. Times are seconds."""

    interval: Annotated[float, msgspec.Meta(ge=0.01)] = 2.0
    """The time between two passes through the application's tables, unless the application calls `wake`."""
    asleep: Annotated[float, msgspec.Meta(ge=0.01)] = 300.0
    """The time between two passes while all workers of the crew sleep; one is started for each pass."""
    timeout: Annotated[float, msgspec.Meta(ge=0.01)] = 30.0
    """The time limit of one call of `discover`."""
    most_done: AtLeastOne = 3
    """An item that was done this often within `window` and is found again makes no progress: its job fails."""
    window: float = 3600.0
    """The time in which `most_done` counts."""


DEFAULT_DISCOVERY = DiscoveryPolicy()


class Look(msgspec.Struct, frozen=True):
    """A request to call `discover` with `after` and `limit`."""

    crew: str
    after: str | None
    limit: int = PAGE


def look_name(crew: str) -> str:
    """Returns what is shown, in place of a job, of a worker that calls `discover`."""
    return f"{crew}/?"


class Search(msgspec.Struct):
    """The state of one crew's search, page by page."""

    crew: str
    policy: DiscoveryPolicy = DEFAULT_DISCOVERY
    after: str | None = None
    asked: str | None = None
    """The worker that is calling `discover`."""
    look_at: float = 0.0
    asleep_at: float = 0.0
    """When the next page is due while all workers of the crew sleep."""
    failures: int = 0
    waiting: int = 0
    """The approximate number of discovered jobs in the queue."""
    storing: bool = False
    """Whether a page is being written to the store."""
    more: bool = False
    woken: bool = False
    """Whether the application called `wake` during a search, which may have been too early to see the new items."""
    looked_at: float = 0.0
    """When the current call began."""
    error: str | None = None
    """The error of the last call, if it failed."""
    pages: int = 0
    """The number of pages of this search so far."""
    failed_at: int = 0
    """The number of pages before the call that failed last."""
    passed: frozenset[str] = frozenset()
    """The items of the last page, and `landmark`: none of them follows `after`."""
    landmark: str | None = None
    """The last item of page 1, 2, 4, 8 and so on: a search that goes in a circle, however long, returns to it."""
    led: bool = True
    """Whether this node searches for the crew; of several nodes, one does."""
    leaves_until: float = 0.0
    """Until when the search is left to other nodes, because it failed here."""

    def due(self) -> float | None:
        """Returns when the next page is due; None during a call, or while enough jobs are queued."""
        return self.look_at if self._may_look else None

    def due_asleep(self) -> float | None:
        """Returns when a sleeping worker should be started to search; None during a call, or while enough is queued."""
        return self.asleep_at if self._may_look else None

    @property
    def _may_look(self) -> bool:
        return self.led and self.asked is None and not self.storing and self.waiting < ENOUGH

    def lead(self, led: bool, now: float) -> None:
        """Records whether this node searches for the crew; one that begins does so at once, from the first item on."""
        if led != self.led:
            self._restart()
            self.waiting = self.failures = self.failed_at = 0
            self.error = None
            self.look_at = self.asleep_at = now
        self.led = led

    def is_stuck(self, now: float) -> bool:
        """Returns whether a search has been due for long: no worker of this node was free for it."""
        due = self.due()
        return due is not None and now - due >= OVERDUE

    def leaves(self, now: float) -> bool:
        """Returns whether the search is left to another node, because it failed here repeatedly."""
        if self.led and self.failures >= PASS_ON_AFTER:
            self.leaves_until = now + LONGEST_PAUSE
        return now < self.leaves_until

    def begin(self, worker: str, now: float) -> Look:
        """Records that this worker calls `discover`, and returns the request."""
        self.asked = worker
        self.looked_at = now
        return Look(self.crew, self.after)

    def found(self, items: Sequence[str], more: bool, now: float) -> str | None:
        """Records a page, and whether there may be more. Returns the error if it contains an item that was passed."""
        again = next((item for item in items if item in self.passed), None)
        if again is not None:
            after, again = (codec.readable(text)[:SHOWN] for text in (self.after or "", again))
            why = (
                f"discover(after='{after}', limit={PAGE}) returned '{again}' again, which does not follow '{after}': "
                "return only items whose keys are greater than `after`, in order"
            )
            self.failed(why, now)
            return why
        if self.pages >= self.failed_at or not more:  # earlier pages prove nothing: the same one may fail again
            self.failures, self.failed_at, self.error = 0, 0, None
        self.asked, self.storing, self.more = None, True, more
        if not more:
            self._restart()
            return None
        self.pages += 1
        self.after = items[-1]
        if self.pages & (self.pages - 1) == 0:
            self.landmark = self.after
        self.passed = frozenset(items) | {self.landmark or self.after}
        return None

    def _restart(self) -> None:
        """Makes the next page the first one."""
        self.after, self.landmark, self.passed, self.pages = None, None, frozenset(), 0

    def stored(self, queued: int, now: float) -> None:
        """Records that the page was stored and how many of its items were enqueued; the others were known."""
        self.storing = False
        self.waiting += queued
        at_once = self.more or self.woken
        policy = self.policy
        self.look_at, self.asleep_at = (now, now) if at_once else (now + policy.interval, now + policy.asleep)
        self.woken &= self.more

    def failed(self, why: str, now: float) -> None:
        """Records that the call failed; the search restarts from the beginning, with backoff."""
        self.asked, self.failed_at = None, self.pages
        self._restart()
        self.failures, self.error = self.failures + 1, why
        pause = min(self.policy.interval * 2 ** min(self.failures, 10), LONGEST_PAUSE)
        self.look_at = self.asleep_at = now if self.woken else now + pause
        self.woken = False

    def taken(self, new: int, *, short: bool) -> None:
        """Records how many discovered jobs were claimed for the first time; `short` if none is left."""
        self.waiting = 0 if short else max(0, self.waiting - new)

    def wake(self, now: float) -> None:
        """Makes the next page due now: the application has new items."""
        self.look_at = min(self.look_at, now)
        self.rouse(now)
        self.woken = self.asked is not None or self.storing

    def rouse(self, now: float) -> None:
        """Makes the next page due now if all workers sleep, for instance after a pause."""
        self.asleep_at = min(self.asleep_at, now)
