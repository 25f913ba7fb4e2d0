"""Finds the category of a text: its meaning is compared with the phrases of the categories file."""

import hashlib
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from adreel.media.limits import Refused
from adreel.media.minilm import AT_A_TIME, Array, MiniLM
from adreel.records import Code, Guess

BUILT_IN = Path(__file__).parents[1] / "categories.toml"
SHARPNESS = 20.0
CLEAR = 0.4
"""A likeness from which the text is clear enough by itself."""
LONGEST_TEXT = 900
"""Characters of a text that are compared at a time: about 200 tokens."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    categories: dict[str, list[str]]
    nothing: list[str] = []
    least_likeness: float = 0.25
    least_confidence: float = 0.4


@dataclass(frozen=True, slots=True)
class Categories:
    """The contents of a categories file."""

    names: tuple[str, ...]
    phrases: tuple[tuple[int, str], ...]
    """Each phrase with the index of its name."""
    nothing: int
    """The index from which on names stand for text that says nothing about a category."""
    least_likeness: float
    least_confidence: float
    version: str

    @classmethod
    def read(cls, path: Path) -> "Categories":
        """Reads a categories file. Raises Refused with what is wrong, and where."""
        try:
            content = path.read_bytes()
            file = msgspec.convert(tomllib.loads(content.decode()), _File)
        except OSError as error:
            raise Refused(Code.CATEGORIES, f"the categories file {path} cannot be read: {error.strerror}") from error
        except (ValueError, msgspec.ValidationError) as error:
            raise Refused(Code.CATEGORIES, f"the categories file {path} is not valid: {error}") from error
        empty = [name for name, phrases in file.categories.items() if not phrases or not all(map(str.strip, phrases))]
        if empty or not file.categories:
            lack = f"the category {empty[0]!r} has an empty phrase, or none" if empty else "there is no category"
            raise Refused(Code.CATEGORIES, f"the categories file {path} is not valid: {lack}")
        names = [*file.categories, *file.nothing]
        groups = [*file.categories.values(), *([phrase] for phrase in file.nothing)]
        phrases = tuple((index, phrase) for index, group in enumerate(groups) for phrase in group)
        version = hashlib.sha256(content).hexdigest()[:12]
        return cls(tuple(names), phrases, len(file.categories), file.least_likeness, file.least_confidence, version)


class Sorter:
    """Puts texts into categories. Keeps the embedded phrases of the file that was used last."""

    def __init__(self, model: MiniLM) -> None:
        self._model = model
        self._version = ""
        self._embedded: Array = model.embed([])

    def likenesses(self, categories: Categories, texts: Sequence[str], tell: Callable[[int], None]) -> Array:
        """Returns how alike each text is to each category. Calls `tell` with the number of texts done."""
        self._prepare(categories, lambda: tell(0))
        rows: list[Array] = []
        for at in range(0, len(texts), AT_A_TIME):
            rows += [self._likeness(categories, text) for text in texts[at : at + AT_A_TIME]]
            tell(min(len(texts), at + AT_A_TIME))
        return np.array(rows, np.float32).reshape(len(texts), len(categories.names))

    def _prepare(self, categories: Categories, tell: Callable[[], None]) -> None:
        if self._version == categories.version:
            return
        phrases = [phrase for _, phrase in categories.phrases]
        parts: list[Array] = []
        for at in range(0, len(phrases), AT_A_TIME):
            parts.append(self._model.embed(phrases[at : at + AT_A_TIME]))
            tell()
        self._embedded, self._version = np.concatenate(parts), categories.version

    def _likeness(self, categories: Categories, text: str) -> Array:
        parts = split(text)
        if not parts:
            return np.zeros(len(categories.names), np.float32)
        alike = (self._model.embed(parts) @ self._embedded.T).mean(axis=0)
        result = np.zeros(len(categories.names), np.float32)
        for index in range(len(categories.names)):
            best = np.sort(alike[[place for place, (of, _) in enumerate(categories.phrases) if of == index]])[::-1]
            result[index] = 0.7 * best[0] + 0.3 * best[:2].mean()
        return result


def split(text: str) -> list[str]:
    """Returns a text in parts that the model takes whole; of a very long text, eight parts from all of it."""
    parts = [text[at : at + LONGEST_TEXT] for at in range(0, len(text), LONGEST_TEXT)]
    return parts if len(parts) <= 8 else parts[:: -(-len(parts) // 8)]


def guess(categories: Categories, likeness: Array) -> Guess:
    """Returns the category of a text by its likenesses, or "not sure"."""
    order = [int(index) for index in np.argsort(-likeness)]
    best, top = order[0], float(likeness[order[0]])
    shares = np.exp(SHARPNESS * (likeness - top))
    confidence = float(1 / shares.sum()) * min(1.0, max(0.0, top) / CLEAR)
    ranked = [index for index in order if index < categories.nothing]
    names = [categories.names[index] for index in ranked]
    sure = best < categories.nothing and top >= categories.least_likeness
    if sure and confidence >= categories.least_confidence:
        return Guess(names[0], round(confidence, 2), names[1] if len(names) > 1 else None)
    near = names[0] if likeness[ranked[0]] >= categories.least_likeness else None
    return Guess(None, round(confidence if sure else 0.0, 2), near)


def of_film(whole: Array, scenes: Array, seconds: Sequence[float], least: float) -> Array:
    """Returns the likenesses of a film: half from its whole text, half from its scenes, weighted by their lengths.

    Scenes that are not like any category do not count.
    """
    weights = np.array(seconds, np.float32) * (scenes.max(axis=1) >= least) if len(scenes) else np.zeros(0, np.float32)
    if not weights.sum():
        return whole
    return (whole + weights @ scenes / weights.sum()) / 2
