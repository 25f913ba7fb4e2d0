"""Maps the words of the models to labels, according to a label file that users can edit.

Pure, except for reading the file. Must not import numpy.
"""

import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from tonearm.errors import LabelFileError
from tonearm.heard import MODELS

Category = Literal["genre", "mood", "instrument", "voice", "era"]
Tier = Literal["strict", "regular", "loose"]
TIERS: tuple[Tier, ...] = ("strict", "regular", "loose")
"""Tiers from strict (few, certain labels) to loose (many labels)."""
SHIPPED = "labels.toml"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requirements of a tier; the label file explains each."""

    score: float
    percentile: float
    floor: float
    sure: float
    most: int


class ByTier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A separate threshold of a label for each tier."""

    strict: float
    regular: float
    loose: float


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The words that make up a label."""

    MTT_musicnn: tuple[str, ...] = ()
    MSD_musicnn: tuple[str, ...] = ()
    score: ByTier | None = None

    def words(self, model: str) -> tuple[str, ...]:
        """Returns the words of the label in the vocabulary of a model."""
        return getattr(self, model)


class Exclusion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Labels that exclude each other."""

    labels: tuple[str, ...]


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a label file."""

    tiers: dict[Tier, Limits]
    labels: dict[Category, dict[str, Source]]
    exclusive: tuple[Exclusion, ...] = ()
    lead: float = 0.10


class Label(msgspec.Struct, frozen=True):
    """A label with its category and the indexes of its words in each model's scores."""

    name: str
    category: Category
    places: dict[str, tuple[int, ...]]
    score: ByTier | None = None


class Book(msgspec.Struct, frozen=True):
    """A validated label file."""

    labels: dict[str, Label]
    tiers: dict[Tier, Limits]
    exclusive: tuple[frozenset[str], ...]
    lead: float
    """The difference from which a score counts as clearly higher than another of the same category."""
    fingerprint: str
    """Fingerprint of everything that scores depend on. Calibrations with different fingerprints are not comparable."""

    def threshold(self, label: Label, tier: Tier) -> float:
        """Returns the minimum score of a label for a tier, without calibration."""
        return self.tiers[tier].score if label.score is None else getattr(label.score, tier)

    def exclude_each_other(self, one: str, other: str) -> bool:
        """Returns whether a track can have only one of the two labels."""
        return one != other and any(one in group and other in group for group in self.exclusive)


def merge(book: Book, scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Returns the score of every label: the maximum of a model's words, averaged over the models."""
    merged: dict[str, float] = {}
    for name, label in book.labels.items():
        heard = [max(scores[model][at] for at in places) for model, places in label.places.items() if model in scores]
        if heard:
            merged[name] = sum(heard) / len(heard)
    return merged


def shipped() -> str:
    """Returns the text of the label file that is included in Tonearm."""
    return resources.files("tonearm").joinpath(SHIPPED).read_text("utf-8")


def load(file: Path | None = None) -> Book:
    """Loads a label file, or the included one. Raises LabelFileError."""
    try:
        return parse(shipped() if file is None else file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise LabelFileError(f"cannot read {file}: {error}") from error
    except LabelFileError as error:
        raise LabelFileError(f"{file or SHIPPED}: {error}") from error


def parse(text: str) -> Book:
    """Parses and validates a label file. Raises LabelFileError."""
    try:
        written = msgspec.toml.decode(text, type=File)
    except msgspec.DecodeError as error:  # invalid TOML, or a wrong structure
        raise LabelFileError(str(error)) from error
    _check_tiers(written.tiers)
    if not 0 <= written.lead <= 1:
        raise LabelFileError(f"lead must be between 0 and 1: {written.lead}")
    labels: dict[str, Label] = {}
    for category, sources in written.labels.items():
        for name, source in sources.items():
            if name in labels:
                raise LabelFileError(f"label {name!r} is defined twice: in {labels[name].category} and in {category}")
            labels[name] = _label(name, category, source)
    for exclusion in written.exclusive:
        for name in exclusion.labels:
            if name not in labels:
                raise LabelFileError(f"exclusive contains {name!r}, which is not a label")
    made_of = msgspec.json.encode(sorted((label.name, sorted(label.places.items())) for label in labels.values()))
    return Book(
        labels,
        written.tiers,
        tuple(frozenset(exclusion.labels) for exclusion in written.exclusive),
        written.lead,
        hashlib.sha256(made_of).hexdigest()[:16],
    )


def _label(name: str, category: Category, source: Source) -> Label:
    places: dict[str, tuple[int, ...]] = {}
    for model, vocabulary in MODELS.items():
        for word in source.words(model):
            if word not in vocabulary:
                raise LabelFileError(f"{category}.{name}: {model} has no word {word!r}")
        if words := source.words(model):
            places[model] = tuple(vocabulary.index(word) for word in words)
    if not places:
        raise LabelFileError(f"{category}.{name} has no words")
    if source.score is not None:
        _check_order(f"{category}.{name}: score", [getattr(source.score, tier) for tier in TIERS])
    return Label(name, category, places, source.score)


def _check_tiers(tiers: dict[Tier, Limits]) -> None:
    """Checks that no tier requires more than the stricter one, so that strict ⊂ regular ⊂ loose."""
    if missing := [tier for tier in TIERS if tier not in tiers]:
        raise LabelFileError(f"tiers: {missing[0]} is missing")
    for field in ("score", "percentile", "floor", "sure"):
        _check_order(f"tiers: {field}", [getattr(tiers[tier], field) for tier in TIERS])
    most = [tiers[tier].most for tier in TIERS]
    if most[0] < 0 or any(earlier > later for earlier, later in pairwise(most)):
        raise LabelFileError(f"tiers: most must not decrease from strict to loose: {most}")


def _check_order(what: str, values: list[float]) -> None:
    if not all(0 <= value <= 1 for value in values):
        raise LabelFileError(f"{what} must be between 0 and 1: {values}")
    if any(earlier < later for earlier, later in pairwise(values)):
        raise LabelFileError(f"{what} must not increase from strict to loose: {values}")
