"""Listens to a file: decode, cut, spectrogram, networks, and the mean over the track."""

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
"""Told how much is done, of how much, in which stage; what it raises (say, Cancelled) ends the listening."""

PATCHES = 32
"""Of the 71 in a song of three and a half minutes; all of them move no score by more than 0.031."""


def unheeded(done: float, total: float | None, stage: str) -> None:
    """Progress that nobody wants to know of."""


class Ear:
    """Both networks, loaded once, listening to any number of tracks."""

    def __init__(self, *, threads: int = 1, provider: Provider = "auto", cache: Path | None = None) -> None:
        self.provider, self.nets = load_all(weights.fetch(cache), provider, threads)

    def listen(self, path: Path, progress: Progress = unheeded, patches: int | None = PATCHES) -> Heard:
        """What the networks hear in a file, in `patches` pieces spread over it, or (None) in all of it.

        Raises Undecodable.
        """
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
    """A track on its way through, patch by patch, with word of its progress."""

    audio: Audio
    progress: Progress
    samples: int = 0

    def all(self) -> Iterator[Floats]:
        """Every patch, while the file is being decoded."""
        return map(patch, segments(self._blocks()))

    def some(self, count: int) -> Iterator[Floats]:
        """`count` patches spread over the track, once all of it is decoded."""
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
    """What each network hears, on the mean over patches, summed up as they come."""

    nets: dict[str, Net]
    patches: int = 0
    scores: dict[str, NDArray[np.float64]] = field(default_factory=dict[str, NDArray[np.float64]])
    embedding: dict[str, NDArray[np.float64]] = field(default_factory=dict[str, NDArray[np.float64]])

    def add(self, patches: Floats) -> None:
        """Some patches more."""
        for model, net in self.nets.items():
            scores, embedding = net(patches)
            self.scores[model] = self.scores.get(model, 0) + scores.sum(axis=0, dtype=np.float64)
            self.embedding[model] = self.embedding.get(model, 0) + embedding.sum(axis=0, dtype=np.float64)
        self.patches += len(patches)

    def heard(self, *, duration: float, decoder: str) -> Heard:
        """The end of it."""
        return Heard(
            scores=self._means(self.scores),
            embedding=self._means(self.embedding),
            duration=duration,
            decoder=decoder,
            patches=self.patches,
        )

    def _means(self, sums: dict[str, NDArray[np.float64]]) -> dict[str, list[float]]:
        # Six digits: more is noise, and would be stored for every track.
        return {model: np.round(total / self.patches, 6).tolist() for model, total in sums.items()}
