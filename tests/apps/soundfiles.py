"""Music files of every format, made for the tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import soundfile
from numpy.typing import NDArray

FORMATS: dict[str, dict[str, Any]] = {
    "mp3": {"format": "MP3"},
    "flac": {"format": "FLAC"},
    "ogg": {"format": "OGG", "subtype": "VORBIS"},
    "opus": {"format": "OGG", "subtype": "OPUS"},
    "wav": {"format": "WAV", "subtype": "PCM_16"},
    "aiff": {"format": "AIFF", "subtype": "PCM_16"},
}
EVERY = [*FORMATS, "m4a"]


def tone(seconds: float, rate: int, channels: int = 2) -> NDArray[np.float32]:
    """A tone of amplitude 0.5 in the first channel, silence in the others: their mean is 0.5 / channels."""
    out = np.zeros((round(seconds * rate), channels), np.float32)
    out[:, 0] = 0.5 * np.sin(2 * np.pi * 440 * np.arange(len(out)) / rate)
    return out


def write(path: Path, audio: NDArray[np.float32], rate: int, kind: str | None = None) -> Path:
    """A file of the format that its name (or `kind`) says."""
    kind = kind or path.suffix[1:]
    if kind == "m4a":
        _write_aac(path, audio, rate)
    else:
        soundfile.write(path, audio, rate, **FORMATS[kind])
    return path


def _write_aac(path: Path, audio: NDArray[np.float32], rate: int) -> None:
    with av.open(str(path), "w", format="ipod") as container:
        stream = container.add_stream("aac", rate=rate, layout="stereo")
        for frame in (*_frames(audio, rate), None):
            container.mux(stream.encode(frame))


def _frames(audio: NDArray[np.float32], rate: int) -> Iterator[av.AudioFrame]:
    for at in range(0, len(audio), 1024):
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(audio[at : at + 1024].T), format="fltp", layout="stereo"
        )
        frame.sample_rate, frame.pts = rate, at
        yield frame
