"""Derives the labels of a track from its scores. Pure; must not import numpy.

The tier of a label is the strictest that it reaches: strict labels are also regular, and regular labels also loose.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from tonearm.calibration import Calibration
from tonearm.labels import TIERS, Book, Category, Tier


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """A label of a track."""

    name: str
    category: str
    tier: Tier
    """The strictest tier of the label."""
    by: Literal["model", "person"] = "model"
    score: float | None = None
    percentile: float | None = None
    """The share of tracks with a lower score, from 0 to 1; None without calibration."""


class Corrections(msgspec.Struct, frozen=True):
    """User corrections of a track. They survive new analyses, label files and calibrations."""

    added: dict[str, str] = {}
    """Labels with their categories; the label file need not contain them."""
    removed: frozenset[str] = frozenset()

    def add(self, name: str, category: Category) -> "Corrections":
        """Returns corrections in which the track has that label."""
        return Corrections({**self.added, name: category}, self.removed - {name})

    def remove(self, name: str) -> "Corrections":
        """Returns corrections in which the track does not have that label."""
        return Corrections({key: value for key, value in self.added.items() if key != name}, self.removed | {name})

    def forget(self, name: str) -> "Corrections":
        """Returns corrections without an entry for that label."""
        kept = {key: value for key, value in self.added.items() if key != name}
        return Corrections(kept, self.removed - {name})


NONE = Corrections()


class Candidate(msgspec.Struct, frozen=True):
    """A label that reaches a tier by its score."""

    tier: Tier
    score: float
    name: str
    percentile: float | None


def judge(
    book: Book,
    scores: Mapping[str, float],
    calibration: Calibration | None = None,
    corrections: Corrections = NONE,
) -> list[Given]:
    """Returns the labels of a track from its merged scores: strictest first, then by score.

    A calibration of another label file, or of too few tracks, is ignored.
    """
    used = calibration if calibration is not None and calibration.fits(book.fingerprint) else None
    given = [
        Given(name=name, category=category, tier="strict", by="person", score=scores.get(name))
        for name, category in sorted(corrections.added.items())
    ]
    room = _room(book)
    candidates = [found for name in scores if (found := _candidate(book, name, scores[name], used)) is not None]
    for found in sorted(candidates, key=lambda found: (TIERS.index(found.tier), -found.score, found.name)):
        if found.name in corrections.added or found.name in corrections.removed:
            continue
        if any(book.exclude_each_other(found.name, other.name) for other in given):
            continue
        category = book.labels[found.name].category
        if (tier := _with_room(room, found.tier, category)) is not None:
            given.append(
                Given(name=found.name, category=category, tier=tier, score=found.score, percentile=found.percentile)
            )
    return sorted(given, key=lambda label: (TIERS.index(label.tier), label.by == "model"))


def within(given: Iterable[Given], tier: Tier) -> list[Given]:
    """Returns the labels of a tier, including those of stricter tiers."""
    return [label for label in given if TIERS.index(label.tier) <= TIERS.index(tier)]


def _candidate(book: Book, name: str, score: float, calibration: Calibration | None) -> Candidate | None:
    label = book.labels[name]
    percentile = None if calibration is None else calibration.percentile(name, score)
    for tier in TIERS:
        limits = book.tiers[tier]
        if percentile is None:
            reached = score >= book.threshold(label, tier)
        else:
            common = score >= limits.floor and percentile >= limits.percentile
            reached = common or score >= max(limits.sure, book.threshold(label, tier))
        if reached:
            return Candidate(tier, score, name, percentile)
    return None


def _with_room(room: dict[Tier, dict[Category, int]], reached: Tier, category: Category) -> Tier | None:
    """Returns the strictest tier, from the reached one on, with room in the category, and uses that room."""
    for tier in TIERS[TIERS.index(reached) :]:
        if room[tier][category] > 0:
            for wider in TIERS[TIERS.index(tier) :]:
                room[wider][category] -= 1
            return tier
    return None


def _room(book: Book) -> dict[Tier, dict[Category, int]]:
    """Returns how many labels each tier may still have in each category."""
    categories: set[Category] = {label.category for label in book.labels.values()}
    return {tier: dict.fromkeys(categories, book.tiers[tier].most) for tier in TIERS}
