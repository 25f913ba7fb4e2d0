"""Decides how many jobs of a queue, or of a key in it, may be started within a period. Pure: times are parameters.

A claim counts as a start, at the time of the store. Of every period that ends now, all starts count, so that no
period, wherever it begins, has more than the rate allows.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

UNITS = {"s": 1000, "min": 60_000, "h": 3_600_000, "day": 86_400_000}
"""The periods of rates, in milliseconds."""
MOST_STARTS = 1_000_000
"""The highest number of starts in a period: each may be a row of the store."""
LONGEST_PERIOD_MS = max(UNITS.values())
ANY_KEY = ""
"""Stands for the queue itself, where keys are named: no job has an empty key."""
_TEXT = re.compile(r"([0-9]{1,9})\s*/\s*([a-z]+)")
_SEPARATOR = ", "


class Rate(msgspec.Struct, frozen=True):
    """At most `count` starts within any `period_ms`."""

    count: int
    period_ms: int

    def __str__(self) -> str:
        unit = next(unit for unit, length in UNITS.items() if length == self.period_ms)
        return f"{self.count}/{unit}"

    def implies(self, other: "Rate") -> bool:
        """Whether the other rate cannot be exceeded as long as this one is not."""
        periods = -(-other.period_ms // self.period_ms)
        return periods * self.count <= other.count


Rates = tuple[Rate, ...]
"""Rates that hold together."""


def parse(text: str) -> Rate:
    """Returns a rate from a text such as '600/min'. Raises ValueError, which says what it must be."""
    found = _TEXT.fullmatch(text.strip())
    if found is None or found[2] not in UNITS or not 1 <= int(found[1]) <= MOST_STARTS:
        raise ValueError(
            f"must be a number of jobs (1 to {MOST_STARTS}), a slash and one of {', '.join(UNITS)}, such as '600/min'"
        )
    return Rate(int(found[1]), UNITS[found[2]])


@lru_cache(maxsize=1024)
def from_text(text: str | None) -> Rates:
    """Returns the rates that `to_text` has written."""
    return tuple(parse(part) for part in text.split(_SEPARATOR)) if text else ()


def to_text(rates: Rates) -> str | None:
    """Returns rates as a text for the store; None if there are none."""
    return _SEPARATOR.join(map(str, rates)) or None


def together(rates: Iterable[Rate]) -> Rates:
    """Returns the rates that hold if all of these do, without those that another one implies."""
    left: list[Rate] = []
    for rate in sorted(set(rates), key=lambda each: (each.period_ms, each.count)):
        if not any(known.implies(rate) for known in left):
            left = [known for known in left if not rate.implies(known)] + [rate]
    return tuple(left)


def longest(*rates: Rates) -> int:
    """Returns the longest period of these rates in ms: older starts count no more."""
    return max((rate.period_ms for each in rates for rate in each), default=0)


class Standing(msgspec.Struct, frozen=True):
    """What has been started of a queue or a key within the period of one rate."""

    rate: Rate
    started: int
    frees_ms: int | None
    """The time of the start whose age decides when another job may be started, if no room is left: the oldest one that
    counts, or a later one if there are more than the rate allows. None if none counts."""


def room(standings: Iterable[Standing]) -> int | None:
    """Returns how many jobs may be started now; None: any number."""
    return min((max(0, each.rate.count - each.started) for each in standings), default=None)


def opens_in(standings: Iterable[Standing], taken: int, now_ms: int) -> int:
    """Returns in how many ms one more job may be started, if so many are started now; 0: now."""
    waits = [0]
    for each in standings:
        if each.started + taken >= each.rate.count:
            # A start in the future is one by a clock that was ahead: it counts as one of now.
            oldest = now_ms if each.frees_ms is None else min(each.frees_ms, now_ms)
            waits.append(oldest + each.rate.period_ms - now_ms)
    return max(waits)


def next_ms(standings: Sequence[Standing], opens_ms: int | None, now_ms: int) -> int | None:
    """Returns when the next job of a queue may be started, for readers; None if no rate prevents it now.

    `opens_ms` is when the first key with jobs that wait for its rate has room.
    """
    return now_ms + opens_in(standings, 0, now_ms) if room(standings) == 0 else opens_ms


class Reopened(msgspec.Struct, frozen=True):
    """What to do with a key whose jobs were set aside, now that its rate may admit some."""

    key: str
    back: int
    """How many of its jobs can be claimed again."""
    opens_ms: int
    """When the next ones can, if there are more."""


def reopen(by_key: Mapping[str, Sequence[Standing]], at_once: int, now_ms: int) -> list[Reopened]:
    """Decides how many jobs of each key can be claimed again, `at_once` at most."""
    found: list[Reopened] = []
    for key, standings in by_key.items():
        free = room(standings) or 0
        back = min(free, at_once)
        # Those that come back take the room, so the others wait until it grows.
        opens = now_ms if back < free else now_ms + opens_in(standings, back, now_ms)
        found.append(Reopened(key, back, opens))
    return found


def closed(
    by_key: Mapping[str, Sequence[Standing]], fit: Mapping[str, int], late: Collection[str], now_ms: int
) -> dict[str, int]:
    """Returns when each of the keys in `late`, which have no room left, admits another job. `fit` counts the jobs of
    each key that have taken room."""
    return {key: now_ms + opens_in(by_key[key], fit.get(key, 0), now_ms) for key in late}
