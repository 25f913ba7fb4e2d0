"""Searches of jobs on behalf of people: a page of a filter in any order, numbers by state, and failures.

A search reads the newest jobs first, in ranges that grow while they are read quickly, and ends when its time is over;
it then says how far it came. Filters that an index answers are answered from the index. It knows no engine.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import msgspec

from chargehand.model.job import FINISHED, JobRecord, State
from chargehand.model.records import (
    Counts,
    FailedJob,
    FailuresFound,
    JobFilter,
    JobsFound,
    JobSize,
    SearchPlace,
    SizesFound,
    Sort,
    Tally,
)
from chargehand.stores.rows import records

Job = TypeVar("Job", JobRecord, JobSize)

FIRST_RANGE = 5000
"""The number of positions in the first range."""
QUICK = 0.04
"""Seconds within which a range must be read for the next one to be twice as long."""
FEW = 20_000
"""Up to this many jobs are taken from an index and then compared with the other conditions."""
CLOCK_STEPS_MS = 600_000
"""By how much the clock may have been set back between two jobs; older jobs are not searched for `since`."""
_INDEXED = frozenset({"queue", "state"})
_ID = re.compile("[0-9a-fA-F]{32}")


class Part(msgspec.Struct, frozen=True):
    """The jobs that one statement looks at: a range of positions, or these."""

    low: int = 0
    below: int = 0
    these: tuple[int, ...] | None = None


class Searchable(Protocol):
    """What a store does for a search."""

    def positions(self) -> tuple[int, int]:
        """Returns the first position and the one after the last; equal if there are no jobs."""
        ...

    def created_ms(self, low: int) -> int | None:
        """Returns when the first job from this position on was created."""
        ...

    def page(
        self, which: JobFilter, part: Part, sort: Sort, after: SearchPlace | None, limit: int, *, short: bool = False
    ) -> list[tuple[Any, ...]]:
        """Returns the first rows of the part that match and follow `after`, as records of jobs; `short`: as JobSize."""
        ...

    def numbers(self, which: JobFilter, part: Part) -> list[tuple[Any, ...]]:
        """Returns rows of a state and the number of jobs in the part that match."""
        ...

    def failed(self, which: JobFilter, part: Part, limit: int) -> list[tuple[Any, ...]]:
        """Returns rows of the newest failed jobs in the part that match, as records of FailedJob."""
        ...

    def indexed(self, which: JobFilter, part: Part, *, newest: bool, limit: int) -> list[int] | None:
        """Returns the first positions of jobs in a range that an index has for the filter; None: there is no index
        for it. A job whose position is missing does not match."""
        ...

    def counts(self) -> list[Counts]:
        """Returns the counts of every queue."""
        ...

    def counted(self, state: State, queue: str | None) -> int:
        """Returns how many jobs are in this state, in a queue or in all (None), from indexes alone."""
        ...

    def now_ms(self) -> int:
        """Returns the time of the store's clock."""
        ...


def given(which: JobFilter) -> set[str]:
    """Returns the names of the conditions that the filter has."""
    names = set(JobFilter.__struct_fields__) - {"limit", "before", "below"}
    return {name for name in names if getattr(which, name) not in (None, ())}


def is_indexed(which: JobFilter) -> bool:
    """Returns whether an index alone answers the filter."""
    names = given(which)
    return bool(names) and (names <= _INDEXED or names in ({"tag"}, {"flow"}))


def states_of(which: JobFilter) -> tuple[State, ...] | None:
    """Returns the states in which a job can match, for an index; None: any."""
    if which.state is not None:
        return (which.state,)
    if which.reason is not None:
        return (State.FAILED, State.CANCELLED)
    return tuple(sorted(FINISHED)) if which.older_ms is not None else None


class Search:
    """One search; `monotonic` is the clock of its time limit."""

    def __init__(self, store: Searchable, which: JobFilter, seconds: float, monotonic: Callable[[], float]) -> None:
        self._store, self._which, self._monotonic = store, _with_ids(which), monotonic
        self._until = monotonic() + seconds
        self._searched: int | None = None
        """How far the search came, if its time was over."""
        self._stopped: Part | None = None

    def page(self, sort: Sort, after: SearchPlace | None) -> JobsFound:
        """Returns a page in this order."""
        if sort in (Sort.NEWEST, Sort.OLDEST):
            found, following = self._in_order(JobRecord, sort, after)
        else:
            found, following = self._sorted(sort, after)
        return JobsFound(jobs=tuple(found), next=following, searched_ms=self._searched)

    def sizes(self, after: SearchPlace | None) -> SizesFound:
        """Returns a page of jobs without their texts, newest first."""
        found, following = self._in_order(JobSize, Sort.NEWEST, after)
        return SizesFound(jobs=tuple(found), next=following)

    def _in_order(self, kind: type[Job], sort: Sort, after: SearchPlace | None) -> tuple[list[Job], SearchPlace | None]:
        """Returns a page in the order of arrival, and where the next one begins."""
        limit, newest = self._which.limit, sort is Sort.NEWEST
        found: list[Job] = []
        for part in self._parts(newest, after, limit):
            wanted = limit + 1 - len(found)
            rows = self._store.page(self._which, part, sort, None, wanted, short=kind is not JobRecord)
            found += records(kind, rows)
            if len(found) > limit:
                return found[:limit], SearchPlace(0, found[limit - 1].seq)
        if self._stopped is None:
            return found, None
        return found, SearchPlace(0, self._stopped.low if newest else self._stopped.below - 1)

    def _sorted(self, sort: Sort, after: SearchPlace | None) -> tuple[list[JobRecord], SearchPlace | None]:
        """Returns a page sorted by a value, and where the next one begins."""
        limit, now_ms = self._which.limit, self._store.now_ms()
        found: list[JobRecord] = []
        for part in self._parts(True, None, None):
            found += records(JobRecord, self._store.page(self._which, part, sort, after, limit + 1))
            found = sorted(found, key=lambda job: _place(job, sort, now_ms), reverse=True)[: limit + 1]
        return found[:limit], _place(found[limit - 1], sort, now_ms) if len(found) > limit else None

    def tally(self) -> Tally:
        """Returns how many jobs match, by state."""
        which = self._which
        numbers: dict[str, int] = {}
        if not given(which):
            for counts in self._store.counts():
                for state in State:
                    numbers[state] = numbers.get(state, 0) + int(getattr(counts, state))
            return Tally(**numbers)
        if given(which) <= _INDEXED:
            states = State if which.state is None else (which.state,)
            return Tally(**{state.value: self._store.counted(state, which.queue) for state in states})
        for part in self._parts(True, None, None):
            for state, number in self._store.numbers(which, part):
                numbers[str(state)] = numbers.get(str(state), 0) + int(number)
        return Tally(**numbers, searched_ms=self._searched)

    def failures(self, most: int) -> FailuresFound:
        """Returns the newest failed jobs, up to `most`."""
        if self._which.state not in (None, State.FAILED):
            return FailuresFound(jobs=())
        self._which = msgspec.structs.replace(self._which, state=State.FAILED)
        found: list[FailedJob] = []
        for part in self._parts(True, None, None):
            found += records(FailedJob, self._store.failed(self._which, part, most + 1 - len(found)))
            if len(found) > most:
                return FailuresFound(jobs=tuple(found[:most]), searched_ms=self._store.created_ms(found[most - 1].seq))
        return FailuresFound(jobs=tuple(found), searched_ms=self._searched)

    def _parts(self, newest: bool, after: SearchPlace | None, wanted: int | None) -> Iterator[Part]:
        """Yields what to look at, until all was or the time is over. `wanted`: so many jobs in the order of arrival
        are wanted; None: all."""
        low, below = self._store.positions()
        if after is not None:
            low, below = (low, min(below, after.seq)) if newest else (max(low, after.seq + 1), below)
        width = FIRST_RANGE
        if wanted is None and (these := self._few(Part(low, below), newest)) is not None:
            yield these
            return
        first = True
        while low < below:
            part = Part(max(low, below - width), below) if newest else Part(low, min(below, low + width))
            begun = self._monotonic()
            yield part
            low, below = (low, part.low) if newest else (part.below, below)
            if low >= below or self._is_before(part, newest):
                return
            if first and wanted is not None:
                if is_indexed(self._which):
                    yield self._first(Part(low, below), newest, wanted)
                    return
                if (these := self._few(Part(low, below), newest)) is not None:
                    yield these
                    return
            first, now = False, self._monotonic()
            if now >= self._until:
                self._stopped = part
                self._searched = self._store.created_ms(part.low if newest else part.below - 1)
                return
            width *= 2 if now - begun < QUICK else 1

    def _few(self, part: Part, newest: bool) -> Part | None:
        """Returns the jobs that an index has for the filter, if there are few."""
        these = self._store.indexed(self._which, part, newest=newest, limit=FEW + 1)
        return None if these is None or len(these) > FEW else Part(these=tuple(these))

    def _first(self, part: Part, newest: bool, wanted: int) -> Part:
        """Returns the first jobs that match, and one more, from the index."""
        return Part(these=tuple(self._store.indexed(self._which, part, newest=newest, limit=wanted + 1) or ()))

    def _is_before(self, part: Part, newest: bool) -> bool:
        """Returns whether all jobs before this part are too old for the filter."""
        if self._which.since_ms is None or not newest:
            return False
        created = self._store.created_ms(part.low)
        return created is not None and created < self._store.now_ms() - self._which.since_ms - CLOCK_STEPS_MS


def _with_ids(which: JobFilter) -> JobFilter:
    """Returns the filter with the whole id that it asks for as the only one, which an index has."""
    asked = [match.text.lower() for match in which.matches if match.field == "id" and _ID.fullmatch(match.text)]
    return msgspec.structs.replace(which, ids=(asked[0],)) if asked and which.ids is None else which


def _place(job: JobRecord, sort: Sort, now_ms: int) -> SearchPlace:
    if sort is Sort.LONGEST:
        began = job.started_ms if job.state in FINISHED or job.state is State.RUNNING else None
        return SearchPlace(-1 if began is None else (job.finished_ms or now_ms) - began, job.seq)
    return SearchPlace(job.priority if sort is Sort.PRIORITY else 0, job.seq)
