"""Makes the demonstration's songs: `python -m tonearm.demo.songs FOLDER COUNT`. Heavy (numpy): a process of its own."""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from tonearm.demo.story import SONGS

RATE = 22050
Floats = NDArray[np.float64]


def pitch(note: int) -> float:
    """A note's frequency; 69 is the A above middle C."""
    return 440.0 * 2 ** ((note - 69) / 12)


@cache  # a tune is made of few notes
def tone(note: int, seconds: float, overtones: tuple[float, ...], decay: float) -> Floats:
    """One note: overtones of these strengths, dying away."""
    at = np.arange(int(seconds * RATE)) / RATE
    waves = [s * np.sin(2 * np.pi * pitch(note) * (n + 1) * at) for n, s in enumerate(overtones)]
    return np.sum(waves, axis=0) * np.exp(-decay * at) * np.minimum(1, at * 200)


@cache
def drum(seconds: float, seed: int) -> Floats:
    """A beat: a low thud, and noise on top."""
    at = np.arange(int(seconds * RATE)) / RATE
    noise = np.random.default_rng(seed).normal(0, 1, at.size)
    return 1.2 * np.sin(2 * np.pi * 55 * at) * np.exp(-18 * at) + 0.35 * noise * np.exp(-40 * at)


PLUCKED = (1.0, 0.6, 0.4, 0.25, 0.12)
PIPED = (1.0, 0.05, 0.3, 0.02, 0.12)
BUZZING = tuple(1 / n for n in range(1, 14))
SUNG = (0.4, 1.0, 0.7, 0.2, 0.3, 0.1)
STYLES: dict[str, tuple[tuple[float, ...], float, float, bool, int]] = {
    # overtones, decay, seconds a note, drums, how low
    "guitar": (PLUCKED, 3.0, 0.3, False, 0),
    "flute": (PIPED, 0.4, 0.7, False, 12),
    "techno": (BUZZING, 6.0, 0.23, True, -12),
    "organ": (PIPED, 0.1, 1.6, False, -5),
    "march": (PLUCKED, 5.0, 0.4, True, -7),
    "choir": (SUNG, 0.2, 1.2, False, 3),
}
SCALE = (57, 60, 62, 64, 67, 69, 72, 74)


def song(style: str, seconds: float, seed: int) -> Floats:
    """A tune of that style, the same for the same seed."""
    overtones, decay, step, drums, shift = STYLES[style]
    chance = np.random.default_rng(seed)
    out = np.zeros(int((seconds + 3) * RATE))
    for number in range(int(seconds / step)):
        start = int(number * step * RATE)
        notes = chance.choice(SCALE, size=1 if drums else 2, replace=False)
        sounds = [tone(int(note) + shift, step * 1.8, overtones, decay) for note in notes]
        sounds += [drum(step, number % 4)] if drums else []
        for sound in sounds:
            out[start : start + sound.size] += 0.2 * sound
    return out[: int(seconds * RATE)] / max(1e-9, float(np.abs(out).max())) * 0.8


FORMATS: dict[str, dict[str, Any]] = {
    ".mp3": {"format": "MP3"},
    ".flac": {"format": "FLAC"},
    ".ogg": {"format": "OGG", "subtype": "VORBIS"},
    ".wav": {"format": "WAV", "subtype": "PCM_16"},
    ".aiff": {"format": "AIFF", "subtype": "PCM_16"},
}


def main(folder: Path, count: int, write: Callable[..., None] = soundfile.write) -> None:
    """Make the first so many songs in a folder."""
    for seed, (name, style, seconds) in enumerate(SONGS[:count]):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, song(style, seconds, seed), RATE, **FORMATS[file.suffix])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
