"""Computes percentiles of label scores over all tracks of a library, in constant memory.

Pure, and must not import numpy. A calibration is applied to stored scores; no track is analysed again.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import msgspec

ENOUGH = 50
"""Minimum number of tracks for meaningful percentiles."""
STEPS = 200
"""Number of quantiles stored per label: steps of half a percent."""
DRIFTED = 0.1
"""Labels are derived again if the distribution of a label moved by more than this."""

BINS = 1024
REACH = 14.0
"""Scores are counted by log-odds from -14 to 14 (about one in a million), which gives high resolution near 0 and 1."""


class Calibration(msgspec.Struct, frozen=True):
    """Quantiles of each label: the scores that 0 %, 0.5 %, … 100 % of the tracks do not exceed."""

    tracks: int
    book: str
    """The fingerprint of the label file that the calibration was computed with."""
    quantiles: dict[str, list[float]]

    def fits(self, book: str) -> bool:
        """Returns whether the calibration applies to this label file and has enough tracks."""
        return self.book == book and self.tracks >= ENOUGH

    def percentile(self, label: str, score: float) -> float | None:
        """Returns the share of tracks, from 0 to 1, with a lower score, or None for an unknown label."""
        points = self.quantiles.get(label)
        return None if points is None else _share(points, score)


@dataclass(slots=True)
class Tally:
    """Histogram of scores per label; its size does not depend on the number of tracks."""

    book: str
    tracks: int = 0
    counts: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def add(self, scores: Mapping[str, float]) -> None:
        """Adds the scores of one track."""
        self.tracks += 1
        for label, score in scores.items():
            if label not in self.counts:
                self.counts[label] = [0] * BINS
            self.counts[label][_bin(score)] += 1

    def join(self, other: "Tally") -> None:
        """Adds the counts of another tally."""
        if other.book != self.book:
            raise ValueError(f"cannot join a tally of other labels: {other.book} is not {self.book}")
        self.tracks += other.tracks
        for label, counts in other.counts.items():
            own = self.counts.get(label, [0] * BINS)
            self.counts[label] = [one + another for one, another in zip(own, counts, strict=True)]

    def calibration(self) -> Calibration:
        """Returns the percentiles of the tracks added so far."""
        return Calibration(self.tracks, self.book, {label: _quantiles(counts) for label, counts in self.counts.items()})


def calibrate(book: str, tracks: Iterable[Mapping[str, float]]) -> Calibration:
    """Returns a calibration computed from the merged scores of many tracks."""
    tally = Tally(book)
    for scores in tracks:
        tally.add(scores)
    return tally.calibration()


def drift(old: Calibration, new: Calibration) -> dict[str, float]:
    """Returns how far the distribution of each common label moved, from 0 (not at all) to 1 (no overlap)."""
    return {
        label: _apart(old.quantiles[label], new.quantiles[label]) for label in old.quantiles if label in new.quantiles
    }


def is_stale(old: Calibration, new: Calibration) -> bool:
    """Returns whether labels derived with the old calibration should be derived again with the new one."""
    return old.book != new.book or any(moved > DRIFTED for moved in drift(old, new).values())


def _apart(one: list[float], other: list[float]) -> float:
    """Returns the Kolmogorov–Smirnov distance of two distributions."""
    return max(abs(_share(one, score) - _share(other, score)) for score in (*one, *other))


def _share(points: list[float], score: float) -> float:
    """Returns the share of a score among quantiles: interpolated between two, and the middle of equal ones."""
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
    """Returns the quantiles of a histogram, assuming that scores are evenly distributed within a bin."""
    upto = list(accumulate(counts))
    points: list[float] = []
    for step in range(STEPS + 1):
        wanted = upto[-1] * step / STEPS
        at = min(bisect_left(upto, max(wanted, 1e-9)), BINS - 1)
        within = (wanted - (upto[at] - counts[at])) / counts[at] if counts[at] else 0.0
        points.append(
            float(f"{_score(at + min(1.0, max(0.0, within))):.4g}")
        )  # about half a bin of precision, and short to store
    return points


def _bin(score: float) -> int:
    clipped = min(1 - 1e-9, max(1e-9, score))
    place = (math.log(clipped / (1 - clipped)) + REACH) / (2 * REACH)
    return min(BINS - 1, max(0, int(place * BINS)))


def _score(place: float) -> float:
    """Returns the score at a position among the bins."""
    return 1 / (1 + math.exp(REACH - 2 * REACH * place / BINS))
