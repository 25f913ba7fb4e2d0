"""Cuts a stream of audio into what patches are made from, and keeps a few of them, spread over the whole track.

Bounded: however long the stream, no more than `KEPT` segments are in memory.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from tonearm.ear.mel import EDGE, HOP, SEGMENT, STEP, WINDOW, Floats

KEPT = 256
"""Segments of three seconds: tracks up to twelve minutes are chosen from exactly, longer ones nearly so. 49 MB."""


def segments(blocks: Iterable[Floats]) -> Iterator[Floats]:
    """All whole segments of a stream, or, of one too short for a segment, what there is."""
    held = np.zeros(EDGE, np.float32)
    whole = False
    for block in blocks:
        held = np.concatenate([held, block])
        while len(held) >= SEGMENT + EDGE:  # as long as the stream's end cannot be within it
            yield held[:SEGMENT]
            held, whole = held[STEP:], True
    held = np.concatenate([held, np.zeros(EDGE, np.float32)])
    if len(held) >= SEGMENT:
        yield held[:SEGMENT]
    elif not whole:
        frames = max(1, 1 + (len(held) - WINDOW) // HOP)
        yield held[: WINDOW + (frames - 1) * HOP]


class Choice:
    """Some segments out of a stream whose length nobody knows: every one, then every second, every fourth, …"""

    def __init__(self, limit: int = KEPT) -> None:
        self.limit = limit
        self.kept: list[Floats] = []
        self.stride, self.seen = 1, 0

    def offer(self, segment: Floats) -> None:
        """Consider the next segment of the stream."""
        if self.seen % self.stride == 0:
            if len(self.kept) == self.limit:
                del self.kept[1::2]
                self.stride *= 2
            if self.seen % self.stride == 0:
                self.kept.append(segment.copy())  # a view would keep the whole block
        self.seen += 1

    def spread(self, count: int) -> list[Floats]:
        """So many of the segments, evenly spaced from the first to the last; all of them if there are fewer."""
        if len(self.kept) <= count:
            return self.kept
        places = np.linspace(0, len(self.kept) - 1, count).round().astype(int)
        return [self.kept[place] for place in places]
