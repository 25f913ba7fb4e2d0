"""Decodes with libsndfile: MP3, FLAC, Ogg Vorbis, Opus, WAV, AIFF."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from tonearm.ear.pieces import Broken, Piece

SECONDS = 4
SAMPLES = 1 << 22
"""Maximum number of samples in one piece over all channels, because hostile headers claim a thousand channels."""
COMPLETE = 0.98
"""A stream shorter than this share of the length in its header is truncated; libsndfile does not always report it."""


def open_stream(path: Path) -> "SoundFileStream":
    """Opens a file. Raises Broken if libsndfile cannot open it."""
    try:
        name: Any = os.fsencode(path)  # as bytes, although the type hints omit it: a file name need not be valid text
        return SoundFileStream(soundfile.SoundFile(name))
    except (soundfile.LibsndfileError, OSError, ValueError, TypeError) as error:
        raise Broken(_reason(error)) from error


class SoundFileStream:
    """A file opened by libsndfile."""

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
            raise Broken(f"the audio ends after {frames / rate:.0f} s of {self.expected:.0f} s")

    def close(self) -> None:
        self.file.close()


def _reason(error: Exception) -> str:
    said = error.error_string if isinstance(error, soundfile.LibsndfileError) else str(error)
    # libsndfile reports this for MP3 files without MP3 data; the existence of the file was checked before.
    return "Format not recognised" if said.startswith("File does not exist") else said.strip().rstrip(".")
