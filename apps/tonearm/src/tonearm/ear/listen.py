"""Analyses a file: decode, split, compute spectrograms, run the networks, and average over the track."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tonearm import weights
from tonearm.ear.decode import Audio, decode
from tonearm.ear.mel import RATE, Floats, patch
from tonearm.ear.nets import Provider, load_all
from tonearm.ear.network import Net
from tonearm.ear.segments import Choice, segments
from tonearm.heard import Heard

Progress = Callable[[float, float | None, str], None]
"""Progress callback: done, total, stage. An exception raised by it (for example Cancelled) ends the analysis."""

PATCHES = 32
"""A song of three and a half minutes has 71 pieces; using all of them changes no score by more than 0.031."""


def unheeded(done: float, total: float | None, stage: str) -> None:
    """Ignores progress."""


class Ear:
    """Both networks, loaded once, for any number of tracks."""

    def __init__(self, *, threads: int = 1, provider: Provider = "auto", cache: Path | None = None) -> None:
        self.provider, self.nets = load_all(weights.fetch(cache), provider, threads)

    def listen(self, path: Path, progress: Progress = unheeded, patches: int | None = PATCHES) -> Heard:
        """Analyses a file in `patches` pieces spread over it, or (None) in all of it. Raises Undecodable."""
        return decode(path, lambda audio: self._hear(Track(audio, progress), patches))

    def _hear(self, track: "Track", count: int | None) -> Heard:
        mean = Mean(self.nets)
        seen = track.all() if count is None else track.some(count)
        size = min(net.batch for net in self.nets.values())
        while batch := list(islice(seen, size)):
            mean.add(np.stack(batch))
        return mean.heard(duration=track.samples / RATE, decoder=track.audio.decoder)


@dataclass(slots=True)
class Track:
    """Passes the patches of one track to the networks and reports progress."""

    audio: Audio
    progress: Progress
    samples: int = 0

    def all(self) -> Iterator[Floats]:
        """Analyses every patch during decoding."""
        return map(patch, segments(self._blocks()))

    def some(self, count: int) -> Iterator[Floats]:
        """Analyses `count` patches spread over the track, after decoding all of it."""
        choice = Choice()
        for segment in segments(self._blocks()):
            choice.offer(segment)
        chosen = choice.spread(count)
        for done, segment in enumerate(chosen):
            self.progress(done, len(chosen), "listen")
            yield patch(segment)
        self.progress(len(chosen), len(chosen), "listen")

    def _blocks(self) -> Iterator[Floats]:
        for block in self.audio.blocks:
            self.progress(self.samples / RATE, self.audio.expected, "decode")
            self.samples += len(block)
            yield block


@dataclass(slots=True)
class Mean:
    """Sums scores and embeddings of patches and returns their means."""

    nets: dict[str, Net]
    patches: int = 0
    scores: dict[str, NDArray[np.float64]] = field(default_factory=dict[str, NDArray[np.float64]])
    embedding: dict[str, NDArray[np.float64]] = field(default_factory=dict[str, NDArray[np.float64]])

    def add(self, patches: Floats) -> None:
        """Adds patches."""
        for model, net in self.nets.items():
            scores, embedding = net(patches)
            self.scores[model] = self.scores.get(model, 0) + scores.sum(axis=0, dtype=np.float64)
            self.embedding[model] = self.embedding.get(model, 0) + embedding.sum(axis=0, dtype=np.float64)
        self.patches += len(patches)

    def heard(self, *, duration: float, decoder: str) -> Heard:
        """Returns the means."""
        return Heard(
            scores=self._means(self.scores),
            embedding=self._means(self.embedding),
            duration=duration,
            decoder=decoder,
            patches=self.patches,
        )

    def _means(self, sums: dict[str, NDArray[np.float64]]) -> dict[str, list[float]]:
        # Six digits: more would be noise, stored for every track.
        return {model: np.round(total / self.patches, 6).tolist() for model, total in sums.items()}
