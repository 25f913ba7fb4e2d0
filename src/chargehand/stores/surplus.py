"""Finds where the finished jobs beyond a count begin, and which nothing needs, part by part. It knows no engine."""

from collections.abc import Callable

COUNT_AT_ONCE = 20_000
"""How many finished jobs are counted at a time: the store thread does nothing else meanwhile."""
LAST = (1 << 63) - 1
FIRST = (-1, -1)
LEAST_PAGE, MOST_PAGES = 200, 10
"""How many finished jobs are read at once, at least, and how often for each queue and state, because those that others
still need are left out."""

Older = Callable[[str, str, int, int, int], tuple[int, int] | None]
"""Returns finish time and seq of a finished job: of a queue and a state, older than a time and seq, after an offset."""


class Surplus:
    """Finds where the finished jobs beyond a count begin. It counts from the newest, a part of them with every call."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], tuple[int, int, int]] = {}
        """By queue, state and number to keep: the last job that was counted, and how many were counted."""
        self._known: dict[tuple[str, str, int], tuple[int, int]] = {}

    @property
    def unfinished(self) -> bool:
        """Whether a count is not finished."""
        return bool(self._counts)

    def first(self, older: Older, queue: str, state: str, keep: int) -> tuple[int, int]:
        """Returns finish time and seq of the newest job beyond `keep`; (-1, -1) if none is known yet."""
        which = (queue, state, keep)
        if which in self._known:
            return self._known[which]
        finished_ms, seq, counted = self._counts.pop(which, (LAST, LAST, 0))
        ahead = min(keep - counted, COUNT_AT_ONCE)
        found = older(queue, state, finished_ms, seq, ahead)
        if found is None:
            return (-1, -1)
        if counted + ahead == keep:
            self._known[which] = found
            return found
        self._counts[which] = (*found, counted + ahead + 1)
        return (-1, -1)

    def gone(self, queue: str, state: str, keep: int) -> None:
        """Forgets the result, because those jobs are deleted or will be: the next call counts again."""
        self._known.pop((queue, state, keep), None)


Page = Callable[[tuple[int, int], int], list[tuple[int, int, bool]]]
"""Returns finish time and seq of the next finished jobs after a time and seq, up to a number, and whether nothing needs
them."""


class Needed:
    """Where a look for jobs that can be deleted has stopped, because too many are still needed by others."""

    def __init__(self) -> None:
        self._positions: dict[tuple[str, str], tuple[int, int]] = {}

    @property
    def unfinished(self) -> bool:
        """Whether a look has stopped before its end."""
        return bool(self._positions)

    def free(self, page: Page, queue: str, state: str, room: int) -> tuple[list[int], bool]:
        """Returns up to `room` jobs that can be deleted, and whether there may be more."""
        after = self._positions.pop((queue, state), FIRST)
        free: list[int] = []
        for _ in range(MOST_PAGES):
            size = max(room - len(free), LEAST_PAGE)
            rows = page(after, size) if room > len(free) else []
            free += [int(seq) for _, seq, unneeded in rows if unneeded]
            if len(free) >= room:
                return free[:room], True
            if len(rows) < size:
                return free, False
            after = int(rows[-1][0]), int(rows[-1][1])
        self._positions[queue, state] = after
        return free, True
