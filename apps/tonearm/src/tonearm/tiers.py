"""Derives the labels of a track from its scores. Pure; must not import numpy.

The tier of a label is the strictest that it reaches: strict labels are also regular, and regular labels also loose.
Within a category, no label is in a stricter tier than a label with a clearly higher score.
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

SHOWN: Tier = "regular"
"""The widest tier whose labels are certain enough to be shown."""
UNREACHED = len(TIERS)
"""The rank of a label that reaches no tier; the rank of others is the index of their tier."""


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
    for found in _candidates(book, _open(book, scores, corrections), used):
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


def certainty(book: Book, calibration: Calibration | None) -> str:
    """Returns, for people, which scores are certain enough for a label to be shown."""
    shown, strict = book.tiers[SHOWN], book.tiers["strict"]
    if calibration is None or not calibration.fits(book.fingerprint):
        needs = f"a score of {shown.score:.2f} (bold: {strict.score:.2f})"
    else:
        top, bold = f"top {1 - shown.percentile:.0%}", f"{strict.floor:.2f} in the top {1 - strict.percentile:.0%}"
        needs = (
            f"a score of {shown.sure:.2f} (bold: {strict.sure:.2f}), "
            f"or {shown.floor:.2f} in the {top} of this library (bold: {bold})"
        )
    return f"A label needs {needs}; if none is that certain, none is shown."


def _open(book: Book, scores: Mapping[str, float], corrections: Corrections) -> dict[str, float]:
    """Returns the scores that the user has not decided about: neither corrected labels nor those that they exclude."""
    return {
        name: score
        for name, score in scores.items()
        if name not in corrections.added
        and name not in corrections.removed
        and not any(book.exclude_each_other(name, added) for added in corrections.added)
    }


def _candidates(book: Book, scores: Mapping[str, float], calibration: Calibration | None) -> list[Candidate]:
    """Returns the labels that reach a tier: strictest first, then by score."""
    by_category: dict[Category, list[tuple[float, str]]] = {}
    for name, score in scores.items():
        by_category.setdefault(book.labels[name].category, []).append((score, name))
    found: list[Candidate] = []
    for members in by_category.values():
        ranked: list[tuple[float, int]] = []  # the score and rank of every label so far, the highest score first
        limit, passed = 0, 0  # the lowest rank of a clearly higher score; how many scores are clearly higher
        for score, name in sorted(members, key=lambda pair: (-pair[0], pair[1])):
            percentile = None if calibration is None else calibration.percentile(name, score)
            while passed < len(ranked) and ranked[passed][0] >= score + book.lead:
                limit = max(limit, ranked[passed][1])
                passed += 1
            rank = max(limit, _rank(book, name, score, percentile))
            ranked.append((score, rank))
            if rank < UNREACHED:
                found.append(Candidate(TIERS[rank], score, name, percentile))
    return sorted(found, key=lambda each: (TIERS.index(each.tier), -each.score, each.name))


def _rank(book: Book, name: str, score: float, percentile: float | None) -> int:
    """Returns the rank that a label reaches by itself."""
    for rank, tier in enumerate(TIERS):
        limits, threshold = book.tiers[tier], book.threshold(book.labels[name], tier)
        if percentile is None:
            reached = score >= threshold
        else:
            common = score >= limits.floor and percentile >= limits.percentile
            reached = common or score >= max(limits.sure, threshold)
        if reached:
            return rank
    return UNREACHED


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
