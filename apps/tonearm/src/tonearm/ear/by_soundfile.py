"""Decoding by libsndfile: MP3, FLAC, Ogg Vorbis, Opus, WAV, AIFF."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from tonearm.ear.pieces import Broken, Piece

SECONDS = 4
SAMPLES = 1 << 22
"""The most in one piece, all channels together: hostile headers claim a thousand channels."""
COMPLETE = 0.98
"""A stream that ends before so much of what its header says broke off: libsndfile does not always say so."""


def open_stream(path: Path) -> "SoundFileStream":
    """Raises Broken if libsndfile does not open it."""
    try:
        name: Any = os.fsencode(path)  # as bytes, which its type hints forget: a name need not be valid text
        return SoundFileStream(soundfile.SoundFile(name))
    except (soundfile.LibsndfileError, OSError, ValueError, TypeError) as error:
        raise Broken(_reason(error)) from error


class SoundFileStream:
    """A file that libsndfile has opened."""

    def __init__(self, file: soundfile.SoundFile) -> None:
        self.file = file
        self.expected = file.frames / file.samplerate if 0 < file.frames < 1 << 62 and file.samplerate > 0 else None

    @property
    def pieces(self) -> Iterator[Piece]:
        file, rate, channels = self.file, self.file.samplerate, self.file.channels
        size = max(1, min(SECONDS * rate, SAMPLES // max(1, channels)))
        room = np.empty((size, channels), np.float32)
        weight = np.full(channels, 1 / channels, np.float32)
        frames = 0
        while True:
            try:
                block: Any = file.read(out=room)
            except (soundfile.LibsndfileError, OSError, RuntimeError) as error:
                raise Broken(f"{_reason(error)} (after {frames / rate:.0f} s)") from error
            if not len(block):
                break
            frames += len(block)
            yield Piece(rate, block @ weight)
        if self.expected is not None and frames / rate < self.expected * COMPLETE:
            raise Broken(f"it ends after {frames / rate:.0f} s of {self.expected:.0f} s")

    def close(self) -> None:
        self.file.close()


def _reason(error: Exception) -> str:
    said = error.error_string if isinstance(error, soundfile.LibsndfileError) else str(error)
    # What it says of MP3 files in which there is no MP3; the file is there, that was looked at before.
    return "Format not recognised" if said.startswith("File does not exist") else said.strip().rstrip(".")
