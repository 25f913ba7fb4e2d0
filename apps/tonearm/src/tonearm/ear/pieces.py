"""What decoders give: a stream of mono pieces at the file's own rate, or word that the file broke."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class Broken(Exception):
    """A decoder cannot get through the file; the message says why."""


class Piece(NamedTuple):
    """A second or so of audio, all channels averaged."""

    rate: int
    mono: NDArray[np.float32]


class Stream(Protocol):
    """A file that a decoder has opened."""

    @property
    def expected(self) -> float | None:
        """Seconds, as the file itself says."""
        ...

    @property
    def pieces(self) -> Iterator[Piece]:
        """All of its audio; raises Broken where it cannot go on."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...
