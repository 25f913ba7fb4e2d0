"""Decodes any audio file to mono at 16 kHz, piece by piece, in constant memory.

All channels are decoded, averaged and then resampled by soxr: ffmpeg's own mono mix is 3 dB too loud, which changes
scores. No library decodes every file, so each of two is the fallback of the other.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import soxr
from numpy.typing import NDArray

from tonearm.ear import by_av, by_soundfile
from tonearm.ear.mel import RATE
from tonearm.ear.pieces import Broken, Piece, Stream
from tonearm.errors import Undecodable

Floats = NDArray[np.float32]
Result = TypeVar("Result")

SLOWEST, FASTEST = 1_000, 768_000
"""Plausible sample rates. Others come from damaged headers and would require unlimited memory."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoding library."""

    name: str
    open: Callable[[Path], Stream]


SOUNDFILE = Decoder("soundfile", by_soundfile.open_stream)
AV = Decoder("av", by_av.open_stream)
AV_FIRST = {".opus", ".m4a", ".mp4", ".m4b", ".aac", ".wma"}
"""libsndfile lacks AAC and stops in the middle of some Opus files; ffmpeg rejects some Ogg Vorbis files."""


@dataclass(frozen=True, slots=True)
class Audio:
    """A file during decoding: mono, 16 kHz, float32."""

    decoder: str
    expected: float | None
    """Seconds according to the file, which may be wrong."""
    blocks: Iterator[Floats]


def decode(path: Path, use: Callable[[Audio], Result], decoders: tuple[Decoder, ...] = ()) -> Result:
    """Returns the result of `use` for the audio of a file, with the first decoder that decodes all of it.

    If a decoder stops in the middle, the next one starts at the beginning and `use` is called again. Exceptions raised
    by `use` are passed on. Raises Undecodable when no decoder is left.
    """
    _check(path)
    reasons: list[str] = []
    for decoder in decoders or order(path):
        try:
            with closing(decoder.open(path)) as stream:
                return use(Audio(decoder.name, stream.expected, _mono16k(stream.pieces)))
        except Broken as error:
            reasons.append(f"{decoder.name}: {error}")
    raise Undecodable("; ".join(reasons))


def order(path: Path) -> tuple[Decoder, Decoder]:
    """Returns the order of decoders for a file."""
    return (AV, SOUNDFILE) if path.suffix.lower() in AV_FIRST else (SOUNDFILE, AV)


def _check(path: Path) -> None:
    """Returns a clear reason for common errors that decoders describe badly."""
    try:
        if not path.is_file():
            raise Undecodable("not a file" if path.exists() else "no such file")
        with path.open("rb") as file:
            if not file.read(1):
                raise Undecodable("the file is empty")
    except OSError as error:
        raise Undecodable(f"cannot read the file: {error.strerror}") from error


def _mono16k(pieces: Iterable[Piece]) -> Iterator[Floats]:
    """Yields resampled pieces; a changed sample rate restarts the resampler. Raises Broken if there is no audio."""
    rate, resampler, samples = 0, None, 0
    for piece in pieces:
        if piece.rate != rate or resampler is None:
            if resampler is not None:
                yield resampler.resample_chunk(np.zeros(0, np.float32), last=True)
            rate, resampler = piece.rate, _resampler(piece.rate)
        samples += len(piece.mono)
        yield _finite(resampler.resample_chunk(piece.mono))
    if resampler is None or samples == 0:
        raise Broken("the file contains no audio")
    yield resampler.resample_chunk(np.zeros(0, np.float32), last=True)


def _resampler(rate: int) -> soxr.ResampleStream:
    if not SLOWEST <= rate <= FASTEST:
        raise Broken(f"invalid sample rate: {rate} Hz")
    return soxr.ResampleStream(rate, RATE, 1, dtype="float32", quality="HQ")


def _finite(block: Floats) -> Floats:
    """Replaces non-finite samples: one NaN would invalidate the scores of the whole track."""
    return block if np.isfinite(block).all() else np.nan_to_num(block, nan=0, posinf=0, neginf=0)
