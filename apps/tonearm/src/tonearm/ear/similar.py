"""Finds similar tracks: the nearest by cosine similarity of their embeddings.

A hundred thousand tracks of 400 numbers take 80 MB as float16; they are compared a few thousand at a time.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tonearm.heard import MODELS

CHUNK = 8192


class Neighbour(NamedTuple):
    """A similar track."""

    id: str
    likeness: float
    """Cosine similarity: 1 for identical, 0 for unrelated."""


def direction(embedding: Mapping[str, Sequence[float]]) -> NDArray[np.float32]:
    """Returns the embeddings of a track as one unit vector, in which every model has the same weight."""
    parts = [np.asarray(embedding[model], np.float32) for model in MODELS]
    lengths = [float(np.linalg.norm(part)) or 1.0 for part in parts]
    whole = np.concatenate([part / length for part, length in zip(parts, lengths, strict=True)])
    return (whole / np.sqrt(len(parts))).astype(np.float32)


class Neighbourhood:
    """All tracks, prepared for comparison."""

    def __init__(self, tracks: Iterable[tuple[str, Mapping[str, Sequence[float]]]]) -> None:
        self.ids: list[str] = []
        self.chunks: list[NDArray[np.float16]] = []
        waiting: list[NDArray[np.float32]] = []
        for track, embedding in tracks:
            self.ids.append(track)
            waiting.append(direction(embedding))
            if len(waiting) == CHUNK:
                self.chunks.append(np.stack(waiting).astype(np.float16))
                waiting = []
        if waiting:
            self.chunks.append(np.stack(waiting).astype(np.float16))

    def nearest(
        self, embedding: Mapping[str, Sequence[float]], count: int = 20, *, but: str | None = None
    ) -> list[Neighbour]:
        """Returns the most similar tracks, most similar first; `but` excludes the track itself."""
        wanted = direction(embedding)
        likeness = np.concatenate([chunk.astype(np.float32) @ wanted for chunk in self.chunks] or [wanted[:0]])
        few = min(len(likeness), count + (but is not None))
        best = np.argpartition(-likeness, few - 1)[:few] if few else np.arange(0)
        ordered = best[np.argsort(-likeness[best], kind="stable")]
        found = [Neighbour(self.ids[at], round(float(likeness[at]), 4)) for at in ordered if self.ids[at] != but]
        return found[:count]
