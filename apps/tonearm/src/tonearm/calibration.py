"""How common a score is in this library: percentiles for every label, over any number of tracks, in little memory.

Light and pure. Applying a calibration derives labels again from stored scores; nothing is listened to.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import msgspec

ENOUGH = 50
"""Tracks, below which percentiles are chance."""
STEPS = 200
"""Quantiles kept for each label: half a percent apart."""
DRIFTED = 0.1
"""A label whose distribution moved by so much, at worst: labels should be derived again."""

BINS = 1024
REACH = 14.0
"""Scores are counted by their log-odds, from -14 to 14 (about one in a million), as fine near 0 and 1 as needed."""


class Calibration(msgspec.Struct, frozen=True):
    """For every label, the scores that 0 %, 0.5 %, … 100 % of the tracks do not exceed."""

    tracks: int
    book: str
    """The fingerprint of the labels that were counted."""
    quantiles: dict[str, list[float]]

    def fits(self, book: str) -> bool:
        """Whether it speaks of these labels, and of enough tracks."""
        return self.book == book and self.tracks >= ENOUGH

    def percentile(self, label: str, score: float) -> float | None:
        """Which share of the tracks, from 0 to 1, has a lower score; None for a label that was not counted."""
        points = self.quantiles.get(label)
        return None if points is None else _share(points, score)


@dataclass(slots=True)
class Tally:
    """Scores being counted; its size does not depend on how many."""

    book: str
    tracks: int = 0
    counts: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def add(self, scores: Mapping[str, float]) -> None:
        """One track more."""
        self.tracks += 1
        for label, score in scores.items():
            if label not in self.counts:
                self.counts[label] = [0] * BINS
            self.counts[label][_bin(score)] += 1

    def join(self, other: "Tally") -> None:
        """Tracks that were counted elsewhere."""
        if other.book != self.book:
            raise ValueError(f"a tally of other labels cannot be joined: {other.book} is not {self.book}")
        self.tracks += other.tracks
        for label, counts in other.counts.items():
            own = self.counts.get(label, [0] * BINS)
            self.counts[label] = [one + another for one, another in zip(own, counts, strict=True)]

    def calibration(self) -> Calibration:
        """What was counted so far, as percentiles."""
        return Calibration(self.tracks, self.book, {label: _quantiles(counts) for label, counts in self.counts.items()})


def calibrate(book: str, tracks: Iterable[Mapping[str, float]]) -> Calibration:
    """A calibration from the merged scores of many tracks."""
    tally = Tally(book)
    for scores in tracks:
        tally.add(scores)
    return tally.calibration()


def drift(old: Calibration, new: Calibration) -> dict[str, float]:
    """For every label of both, by how much its distribution moved: from 0 (not at all) to 1 (nothing in common)."""
    return {
        label: _apart(old.quantiles[label], new.quantiles[label]) for label in old.quantiles if label in new.quantiles
    }


def is_stale(old: Calibration, new: Calibration) -> bool:
    """Whether labels derived with the old calibration should be derived again with the new one."""
    return old.book != new.book or any(moved > DRIFTED for moved in drift(old, new).values())


def _apart(one: list[float], other: list[float]) -> float:
    """The widest gap between two distributions' shares, at any score (Kolmogorov and Smirnov's distance)."""
    return max(abs(_share(one, score) - _share(other, score)) for score in (*one, *other))


def _share(points: list[float], score: float) -> float:
    """Where a score stands among quantiles; between two of them, in proportion; on equal ones, in their middle."""
    low, high = bisect_left(points, score), bisect_right(points, score)
    if high > low:
        return (low + high - 1) / 2 / STEPS
    if low == 0:
        return 0.0
    if low == len(points):
        return 1.0
    below, above = points[low - 1], points[low]
    return (low - 1 + (score - below) / (above - below)) / STEPS


def _quantiles(counts: list[int]) -> list[float]:
    """The scores at evenly spaced shares, each bin taken to be spread evenly."""
    upto = list(accumulate(counts))
    points: list[float] = []
    for step in range(STEPS + 1):
        wanted = upto[-1] * step / STEPS
        at = min(bisect_left(upto, max(wanted, 1e-9)), BINS - 1)
        within = (wanted - (upto[at] - counts[at])) / counts[at] if counts[at] else 0.0
        points.append(float(f"{_score(at + min(1.0, max(0.0, within))):.4g}"))  # half a bin, and short to store
    return points


def _bin(score: float) -> int:
    clipped = min(1 - 1e-9, max(1e-9, score))
    place = (math.log(clipped / (1 - clipped)) + REACH) / (2 * REACH)
    return min(BINS - 1, max(0, int(place * BINS)))


def _score(place: float) -> float:
    """The score at a place among the bins."""
    return 1 / (1 + math.exp(REACH - 2 * REACH * place / BINS))
