"""Any music file to mono at 16 kHz, piece by piece: ten hours of audio need no more memory than one minute.

All channels are decoded and averaged, and then resampled by soxr: ffmpeg's own way to mono is 3 dB too loud, which
moves scores. No library opens everything, so there are two, each the other's fallback.
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
"""Sample rates that music has; others are damaged headers, and would ask for any amount of memory."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """A library that decodes."""

    name: str
    open: Callable[[Path], Stream]


SOUNDFILE = Decoder("soundfile", by_soundfile.open_stream)
AV = Decoder("av", by_av.open_stream)
AV_FIRST = {".opus", ".m4a", ".mp4", ".m4b", ".aac", ".wma"}
"""libsndfile has no AAC, and breaks off in the middle of some Opus files; ffmpeg refuses some Ogg Vorbis."""


@dataclass(frozen=True, slots=True)
class Audio:
    """A file being decoded: mono, 16 kHz, float32."""

    decoder: str
    expected: float | None
    """Seconds, as the file itself says; it may be wrong."""
    blocks: Iterator[Floats]


def decode(path: Path, use: Callable[[Audio], Result], decoders: tuple[Decoder, ...] = ()) -> Result:
    """What `use` makes of a file's audio, by the first decoder that gets through all of it.

    When a decoder breaks off in the middle, the next one starts at the beginning: `use` is called again. What `use`
    raises itself is not the file's fault, and passes. Raises Undecodable when no decoder is left.
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
    """Which decoder is tried first."""
    return (AV, SOUNDFILE) if path.suffix.lower() in AV_FIRST else (SOUNDFILE, AV)


def _check(path: Path) -> None:
    """Some reasons are better said in words of one's own."""
    try:
        if not path.is_file():
            raise Undecodable("not a file" if path.exists() else "no such file")
        with path.open("rb") as file:
            if not file.read(1):
                raise Undecodable("the file is empty")
    except OSError as error:
        raise Undecodable(f"cannot be read: {error.strerror}") from error


def _mono16k(pieces: Iterable[Piece]) -> Iterator[Floats]:
    """Resampled, gapless within a rate; a rate that changes on the way starts anew. Raises Broken if nothing comes."""
    rate, resampler, samples = 0, None, 0
    for piece in pieces:
        if piece.rate != rate or resampler is None:
            if resampler is not None:
                yield resampler.resample_chunk(np.zeros(0, np.float32), last=True)
            rate, resampler = piece.rate, _resampler(piece.rate)
        samples += len(piece.mono)
        yield _finite(resampler.resample_chunk(piece.mono))
    if resampler is None or samples == 0:
        raise Broken("there is no audio in it")
    yield resampler.resample_chunk(np.zeros(0, np.float32), last=True)


def _resampler(rate: int) -> soxr.ResampleStream:
    if not SLOWEST <= rate <= FASTEST:
        raise Broken(f"its sample rate is {rate} Hz")
    return soxr.ResampleStream(rate, RATE, 1, dtype="float32", quality="HQ")


def _finite(block: Floats) -> Floats:
    """Files of floating-point samples may hold anything, and one NaN would spoil the whole track's scores."""
    return block if np.isfinite(block).all() else np.nan_to_num(block, nan=0, posinf=0, neginf=0)
