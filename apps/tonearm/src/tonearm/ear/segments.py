"""Splits an audio stream into segments for patches, and selects some of them, spread over the whole track.

At most `KEPT` segments are in memory, regardless of the length of the stream.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from tonearm.ear.mel import EDGE, HOP, SEGMENT, STEP, WINDOW, Floats

KEPT = 256
"""Segments of three seconds: exact selection for tracks up to twelve minutes, approximate for longer ones. 49 MB."""


def segments(blocks: Iterable[Floats]) -> Iterator[Floats]:
    """Yields all whole segments of a stream; for a shorter stream, the stream itself."""
    held = np.zeros(EDGE, np.float32)
    whole = False
    for block in blocks:
        held = np.concatenate([held, block])
        while len(held) >= SEGMENT + EDGE:  # until the end of the stream may be within the segment
            yield held[:SEGMENT]
            held, whole = held[STEP:], True
    held = np.concatenate([held, np.zeros(EDGE, np.float32)])
    if len(held) >= SEGMENT:
        yield held[:SEGMENT]
    elif not whole:
        frames = max(1, 1 + (len(held) - WINDOW) // HOP)
        yield held[: WINDOW + (frames - 1) * HOP]


class Choice:
    """Keeps segments of a stream of unknown length: every one, then every second, every fourth, …"""

    def __init__(self, limit: int = KEPT) -> None:
        self.limit = limit
        self.kept: list[Floats] = []
        self.stride, self.seen = 1, 0

    def offer(self, segment: Floats) -> None:
        """Adds the next segment of the stream."""
        if self.seen % self.stride == 0:
            if len(self.kept) == self.limit:
                del self.kept[1::2]
                self.stride *= 2
            if self.seen % self.stride == 0:
                self.kept.append(segment.copy())  # copied: a view would keep the whole block in memory
        self.seen += 1

    def spread(self, count: int) -> list[Floats]:
        """Returns this number of segments, evenly spaced from first to last; all of them if there are fewer."""
        if len(self.kept) <= count:
            return self.kept
        places = np.linspace(0, len(self.kept) - 1, count).round().astype(int)
        return [self.kept[place] for place in places]
