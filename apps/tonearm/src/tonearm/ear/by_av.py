"""Decodes with ffmpeg's libraries (PyAV): best for AAC and Opus, and supports nearly every other format."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import av
import av.error
import numpy as np
from av.audio.frame import AudioFrame
from numpy.typing import NDArray

from tonearm.ear.pieces import Broken, Piece

SECONDS = 4
DAMAGED = 0.05
"""The accepted share of damaged packets, which are skipped as players do."""

OPTIONS = {
    # A file named .mp3 can be a playlist with other files and URLs: open only audio formats.
    "format_whitelist": "aac,aiff,ape,asf,caf,flac,matroska,mov,mp3,mpc,mpc8,ogg,tta,w64,wav,wv",
    "protocol_whitelist": "file",
}

_SCALES = {"u8": 1 / 128, "s16": 1 / 32768, "s32": 1 / 2**31, "s64": 1 / 2**63, "flt": 1, "dbl": 1}


def open_stream(path: Path) -> "AvStream":
    """Opens a file. Raises Broken if ffmpeg cannot open it, or finds no audio stream."""
    # An absolute file URL, so that "Artist: Title.mp3" is not taken for a protocol. Surrogates stand for invalid bytes.
    name = "file:" + os.path.abspath(path)
    try:
        container = av.open(name, metadata_errors="ignore", container_options=OPTIONS)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise Broken(_reason(error)) from error
    if not container.streams.audio:
        container.close()
        raise Broken("the file has no audio stream")
    return AvStream(container)


class Kind(NamedTuple):
    """The sample format of a frame; it may change within a file."""

    rate: int
    channels: int
    samples: str

    @classmethod
    def of(cls, frame: AudioFrame) -> "Kind":
        """Returns the format of a frame."""
        return cls(frame.sample_rate, frame.layout.nb_channels, frame.format.name)

    def piece(self, frames: list[NDArray[Any]]) -> Piece:
        """Returns frames of this format as one piece, averaged over all channels."""
        planar, plain = self.samples.endswith("p"), self.samples.removesuffix("p")
        if plain not in _SCALES:
            raise Broken(f"unknown sample format: {self.samples}")
        values = np.concatenate(frames, axis=1)
        channels = values if planar else values.reshape(-1, self.channels).T
        mono = channels.mean(axis=0, dtype=np.float32)
        if plain == "u8":
            mono -= 128
        mono *= np.float32(_SCALES[plain])
        return Piece(self.rate, mono)


class AvStream:
    """A file opened by ffmpeg."""

    def __init__(self, container: Any) -> None:
        self.container = container
        self.stream = container.streams.audio[0]
        self.stream.thread_count = 1  # the crew controls the number of threads
        length, base = self.stream.duration, self.stream.time_base
        if length and base and length > 0:
            self.expected: float | None = float(length * base)
        else:
            whole = container.duration
            self.expected = whole / av.time_base if whole and whole > 0 else None

    @property
    def pieces(self) -> Iterator[Piece]:
        """Yields joined frames: a single frame of a fortieth of a second is too short for efficient processing."""
        held: list[NDArray[Any]] = []
        kind, size = None, 0
        for frame in self._frames():
            if kind is not None and (kind != Kind.of(frame) or size >= SECONDS * kind.rate):
                yield kind.piece(held)
                held, size = [], 0
            kind = Kind.of(frame)
            held.append(frame.to_ndarray())
            size += frame.samples
        if kind is not None and held:
            yield kind.piece(held)

    def _frames(self) -> Iterator[AudioFrame]:
        packets, damaged, last = 0, 0, ""
        try:
            for packet in self.container.demux(self.stream):
                packets += 1
                try:
                    yield from packet.decode()
                except av.error.FFmpegError as error:
                    damaged, last = damaged + 1, _reason(error)
        except (av.error.FFmpegError, OSError) as error:
            raise Broken(_reason(error)) from error
        if damaged > packets * DAMAGED:
            raise Broken(f"{last} ({damaged} of {packets} packets are damaged)")

    def close(self) -> None:
        self.container.close()


def _reason(error: Exception) -> str:
    said = error.strerror if isinstance(error, av.error.FFmpegError) else str(error)
    return (said or type(error).__name__).strip().rstrip(".")
