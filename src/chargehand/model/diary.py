"""The recent history of each worker: its states, its jobs, its memory. Pure.

Its size is bounded in entries and bytes, and the cost per job is limited when many jobs end at once.
"""

from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from chargehand.model.fleet.lifecycle import Status
from chargehand.model.fleet.place import Place
from chargehand.model.job import ClaimName, Settlement

STATES, JOBS = 20, 40
"""The maximum numbers of states and of jobs per worker; kept apart, so that jobs do not displace states."""
IN_ALL = 8_000
"""The maximum number of states, and of jobs, of all workers; with more than 200 workers each keeps fewer."""
SLOW_MS = 100
"""Jobs that took at least this long, or that did not succeed, take precedence over others."""
SEEN, SLOW_SEEN = 8, 40
"""The maximum numbers of jobs recorded per batch: the last of all, and the last slow or failed ones."""
TEXT = 120
"""The maximum length of a state's text in characters."""
WEIGH_MS, WEIGHED_MS = 60_000, 3_600_000
"""The minimum interval between two memory readings of a worker, and how long they are kept."""
GONE_MS = 3_600_000
"""How long the history of a removed worker is kept."""
REMOVED = "removed"
_WEIGHED = 2 * (WEIGHED_MS // WEIGH_MS)


class _Page:
    """The history of one worker."""

    __slots__ = ("jobs", "memory", "states")

    def __init__(self) -> None:
        self.states: list[tuple[int, str, str | None, int | None]] = []
        """Time, status, text, pid."""
        self.jobs: list[tuple[int, str, str, int]] = []
        """End time, outcome, id, duration in ms."""
        self.memory = array("q")
        """Times and readings, alternating."""

    def cut(self, states: int, jobs: int) -> None:
        """Drops the oldest entries beyond these numbers."""
        if len(self.states) > states:
            del self.states[:-states]
        if len(self.jobs) > jobs:
            del self.jobs[:-jobs]

    def last_ms(self) -> int:
        """Returns the time of the last entry."""
        return max((row[-1][0] for row in (self.states, self.jobs) if row), default=0)


class Diary:
    """The histories of all workers. Times are wall-clock milliseconds."""

    def __init__(self) -> None:
        self._pages: dict[str, _Page] = {}
        self._room = STATES, JOBS

    def _page(self, component: str) -> _Page:
        page = self._pages.get(component)
        if page is None:
            page = self._pages[component] = _Page()
        return page

    # recording
    def changed(self, place: Place, at_ms: int) -> None:
        """Records the worker's status, if it has changed."""
        self._became(place.component, place.status.value, _why(place), place.pid, at_ms)

    def crashed(self, component: str, text: str, pid: int | None, at_ms: int) -> None:
        """Records a crash; the worker may be restarted before its status is read again."""
        self._became(component, "crashed", text, pid, at_ms)

    def removed(self, component: str, at_ms: int) -> None:
        """Records that the worker was removed."""
        if component in self._pages:
            self._became(component, REMOVED, None, None, at_ms)

    def _became(self, component: str, status: str, text: str | None, pid: int | None, at_ms: int) -> None:
        page = self._page(component)
        states = page.states
        if states and states[-1][1] == status and (pid is None or states[-1][3] == pid):
            return
        if text is not None and len(text) > TEXT:
            text = f"{text[: TEXT - 1]}…"
        states.append((at_ms, status, text, pid))
        page.cut(*self._room)

    def ended(self, settlements: Sequence[Settlement], lost: Collection[ClaimName], at_ms: int) -> None:
        """Records jobs that were settled in one transaction, except those whose claim was lost."""
        seen = settlements
        if len(settlements) > SEEN:
            earlier = settlements[:-SEEN]
            slow = [each for each in earlier if each.duration_ms >= SLOW_MS or each.outcome != "done"]
            seen = (*slow[-SLOW_SEEN:], *settlements[-SEEN:])
        for each in seen:
            if each.worker is not None and each.outcome is not None and each.claim_name not in lost:
                self._did(each.worker, (at_ms, each.outcome, each.id, each.duration_ms))

    def done(self, component: str, job: str, duration_ms: int, at_ms: int) -> None:
        """Records a job that the worker settled itself."""
        self._did(component, (at_ms, "done", job, duration_ms))

    def _did(self, component: str, job: tuple[int, str, str, int]) -> None:
        jobs = self._page(component).jobs
        jobs.append(job)
        if len(jobs) > self._room[1]:
            del jobs[0]

    def weigh(self, places: Mapping[str, Place], at_ms: int) -> None:
        """Records the memory of all workers, if due, and drops the history of workers removed long ago."""
        for component, place in places.items():
            if place.alive and place.memory:
                self._weigh(self._page(component).memory, place.memory, at_ms)
        for component in self._pages.keys() - places.keys():
            if at_ms - self._pages[component].last_ms() >= GONE_MS:
                del self._pages[component]
        share = max(1, IN_ALL // max(1, len(self._pages)))
        room = min(STATES, share), min(JOBS, share)
        if room != self._room:
            self._room = room
            for page in self._pages.values():
                page.cut(*room)

    def _weigh(self, row: "array[int]", memory: int, at_ms: int) -> None:
        if row and abs(at_ms - row[-2]) < WEIGH_MS:
            return
        row.extend((at_ms, memory))
        del row[: max(0, len(row) - _WEIGHED)]

    # reading
    def view(self, component: str, now_ms: int) -> dict[str, Any] | None:
        """Returns the worker's history: events newest first, memory oldest first; None if there is none."""
        page = self._pages.get(component)
        if page is None:
            return None
        moments: list[dict[str, Any]] = [
            {"at_ms": at, "kind": "status", "what": status, "text": text, "pid": pid}
            for at, status, text, pid in page.states
        ] + [
            {"at_ms": at, "kind": "job", "what": outcome, "job": job, "duration_ms": took}
            for at, outcome, job, took in page.jobs
        ]
        moments.reverse()
        moments.sort(key=lambda moment: -moment["at_ms"])
        old = 2 * sum(at <= now_ms - WEIGHED_MS for at in page.memory[::2])
        return {
            "moments": moments,
            "memory_at_ms": page.memory[old::2].tolist(),
            "memory": page.memory[old + 1 :: 2].tolist(),
        }


def _why(place: Place) -> str | None:
    """Returns the text for the worker's status; None while it runs."""
    if place.status is Status.STOPPING:
        return place.verdict or place.why_leave
    return None if place.alive else place.text or place.reason
