"""The output of decoders: a stream of mono pieces at the sample rate of the file, or an error."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class Broken(Exception):
    """A decoder cannot decode the file; the message gives the reason."""


class Piece(NamedTuple):
    """About a second of audio, averaged over all channels."""

    rate: int
    mono: NDArray[np.float32]


class Stream(Protocol):
    """A file opened by a decoder."""

    @property
    def expected(self) -> float | None:
        """Seconds according to the file."""
        ...

    @property
    def pieces(self) -> Iterator[Piece]:
        """Yields all audio. Raises Broken where decoding fails."""
        ...

    def close(self) -> None:
        """Closes the file."""
        ...
