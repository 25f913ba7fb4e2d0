"""Generates the songs of the demo: `python -m tonearm.demo.songs FOLDER COUNT`. Imports numpy; runs as its own process.

The instruments are simple, but the networks recognise them: a flute is labelled as a flute.
"""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from tonearm.demo.story import SONGS

RATE = 22050
Floats = NDArray[np.float64]
Note = tuple[float, float, Floats]
"""A note: its start, its volume and its sound."""
Chance = np.random.Generator


def pitch(note: int) -> float:
    """Returns the frequency of a note; 69 is the A above middle C."""
    return 440.0 * 2 ** ((note - 69) / 12)


def times(seconds: float) -> Floats:
    """Returns the sample times of a sound of this duration."""
    return np.arange(int(seconds * RATE)) / RATE


def noise(seconds: float, seed: int) -> Floats:
    """Returns white noise, reproducible by seed."""
    return np.random.default_rng(seed).normal(0, 1, int(seconds * RATE))


def swelling(sound: Floats, begin: float, end: float) -> Floats:
    """Applies fade-in and fade-out."""
    at = np.arange(sound.size) / RATE
    return sound * np.minimum(1, at / begin) * np.minimum(1, (at[-1] - at) / end)


def wavering(note: int, seconds: float, depth: float, speed: float) -> Floats:
    """Returns the phase of a note with vibrato."""
    at = times(seconds)
    return 2 * np.pi * pitch(note) * (at + np.cumsum(depth * np.sin(2 * np.pi * speed * at)) / RATE)


# instruments; a tune has few distinct notes, so each is generated once


@cache
def piano(note: int, seconds: float) -> Floats:
    """A struck string: inharmonic overtones, of which the high ones decay first, and the knock of the hammer."""
    at, low = times(seconds), pitch(note)
    struck = 0.05 * noise(seconds, 7) * np.exp(-120 * at)
    for overtone in range(1, int(min(16, 8000 / low))):
        high = low * overtone * np.sqrt(1 + 0.0004 * overtone**2)
        decay = np.exp(-at * (1.2 + 0.5 * overtone) * (low / 262) ** 0.4)
        struck += decay * np.sin(2 * np.pi * high * at) / overtone**1.1
    return struck * np.minimum(1, at / 0.003)


@cache
def violin(note: int, seconds: float) -> Floats:
    """A bowed string: many overtones with vibrato, shaped by two resonances of the body."""
    chance = np.random.default_rng(note)
    phase = (1 + chance.normal(0, 0.002)) * wavering(note, seconds, 0.004, 5 + chance.random())
    bowed = np.zeros(int(seconds * RATE))
    for overtone in range(1, int(min(24, 5000 / pitch(note)))):
        high = overtone * pitch(note)
        body = 1 / (1 + ((high - 500) / 1200) ** 2) + 0.3 / (1 + ((high - 2500) / 800) ** 2)
        bowed += body / overtone * np.sin(overtone * phase + 6 * chance.random())
    return swelling(bowed, 0.12, 0.18)


@cache
def flute(note: int, seconds: float) -> Floats:
    """A sine tone with some breath noise."""
    phase = wavering(note, seconds, 0.006, 5.0)
    tone = np.sin(phase) + 0.25 * np.sin(2 * phase) + 0.08 * np.sin(3 * phase)
    breath = np.convolve(noise(seconds, note), np.ones(4) / 4, "same")
    return swelling(tone + 0.06 * breath, 0.06, 0.1)


@cache
def voices(note: int, seconds: float) -> Floats:
    """Three voices on one note, with the formants of an open vowel."""
    mouth = ((700, 110, 1.0), (1100, 120, 0.6), (2600, 160, 0.25))
    sung = np.zeros(int(seconds * RATE))
    for apart in (-0.006, 0.0, 0.005):
        phase = (1 + apart) * wavering(note, seconds, 0.012, 5.2 + 40 * apart)
        for overtone in range(1, int(4500 / pitch(note))):
            high = overtone * pitch(note)
            loud = 0.02 + sum(share * np.exp(-0.5 * ((high - at) / width) ** 2) for at, width, share in mouth)
            sung += loud / overtone**0.3 * np.sin(overtone * phase)
    return swelling(sung, 0.15, 0.25)


@cache
def synthesizer(note: int, seconds: float, decay: float) -> Floats:
    """A decaying sawtooth."""
    at = times(seconds)
    waves = [np.sin(2 * np.pi * pitch(note) * n * at) / n for n in range(1, int(min(20, RATE / 2 / pitch(note))))]
    return np.sum(waves, axis=0) * np.exp(-decay * at)


@cache
def drum(kind: str) -> Floats:
    """A kick drum, hi-hat or clap."""
    if kind == "kick":
        at = times(0.35)
        return np.sin(2 * np.pi * (45 * at + 4 * (1 - np.exp(-28 * at)))) * np.exp(-7 * at)
    if kind == "hat":
        return np.diff(noise(0.06, 1), prepend=0) * np.exp(-60 * times(0.06))
    return noise(0.15, 2) * np.exp(-25 * times(0.15))


# music


def piano_music(chance: Chance, seconds: float) -> Iterator[Note]:
    """A melody over broken chords."""
    scale, place = (60, 62, 64, 65, 67, 69, 71, 72, 74, 76, 79), 5
    all_chords = ((48, 52, 55), (45, 48, 52), (41, 45, 48), (43, 47, 50))
    chord = all_chords[0]
    for number, at in enumerate(np.arange(0, seconds, 0.32)):
        place = int(np.clip(place + chance.integers(-2, 3), 0, len(scale) - 1))
        if chance.random() < 0.8:
            yield at, 0.9, piano(scale[place], 1.6)
        if number % 4 == 0:
            chord = all_chords[int(chance.integers(4))]
        yield at, 0.5, piano(chord[number % 3], 1.2)


def violin_music(chance: Chance, seconds: float) -> Iterator[Note]:
    """A melody without accompaniment."""
    scale, place, at = (62, 64, 66, 67, 69, 71, 73, 74, 76, 78), 4, 0.0
    while at < seconds:
        place = int(np.clip(place + chance.integers(-2, 3), 0, len(scale) - 1))
        length = float(chance.choice([0.3, 0.3, 0.6, 0.9]))
        yield at, 1.0, violin(scale[place], length + 0.05)
        at += length


def flute_music(chance: Chance, seconds: float) -> Iterator[Note]:
    """A slow melody."""
    scale, place, at = (69, 71, 72, 74, 76, 79, 81), 3, 0.0
    while at < seconds:
        place = int(np.clip(place + chance.integers(-2, 3), 0, len(scale) - 1))
        length = float(chance.choice([0.4, 0.4, 0.8, 1.2]))
        yield at, 1.0, flute(scale[place], length)
        at += length


def techno_music(chance: Chance, seconds: float) -> Iterator[Note]:
    """A four-on-the-floor beat."""
    beat, bass, key = 60 / 128, (33, 33, 36, 33, 33, 40, 38, 36), int(chance.integers(-2, 3))
    for number, at in enumerate(np.arange(0, seconds, beat)):
        yield at, 1.6, drum("kick")
        yield from ((at + beat * part, loud, drum("hat")) for part, loud in ((0.5, 0.35), (0.25, 0.12), (0.75, 0.12)))
        if number % 2:
            yield at, 0.4, drum("clap")
        for quarter in range(4):
            note = bass[(4 * number + quarter) % 8] + key
            yield at + quarter * beat / 4, 0.5, synthesizer(note, beat / 5, 9.0)
        if number % 4 == 0:
            yield from ((at + beat / 2, 0.15, synthesizer(note + key, beat, 6.0)) for note in (57, 60, 64))


def chords(play: Callable[[int, float], Floats], length: float) -> Callable[[Chance, float], Iterator[Note]]:
    """A sequence of chords."""
    all_chords = ((48, 60, 64, 67), (53, 57, 60, 65), (55, 59, 62, 67), (45, 57, 60, 64))

    def music(chance: Chance, seconds: float) -> Iterator[Note]:
        for at in np.arange(0, seconds, length):
            yield from ((at, 0.3, play(note, 1.1 * length)) for note in all_chords[int(chance.integers(4))])

    return music


STYLES: dict[str, tuple[Callable[[Chance, float], Iterator[Note]], float, float]] = {
    # styles; duration of the reverberation, and its share in the mix
    "piano": (piano_music, 1.2, 0.15),
    "flute": (flute_music, 1.8, 0.4),
    "techno": (techno_music, 0.3, 0.02),
    "violin": (violin_music, 2.5, 0.4),
    "choir": (chords(voices, 2.1), 3.0, 0.5),
}


def in_a_room(sound: Floats, seconds: float, share: float) -> Floats:
    """Returns the sound with reverberation."""
    walls = noise(seconds, 3) * np.exp(-6 * times(seconds) / seconds)
    size = 1 << (sound.size + walls.size).bit_length()
    back = np.fft.irfft(np.fft.rfft(sound, size) * np.fft.rfft(walls / np.linalg.norm(walls), size), size)
    return (1 - share) * sound + share * back[: sound.size]


def song(style: str, seconds: float, seed: int) -> Floats:
    """Returns a tune of a style, reproducible by seed."""
    music, ringing, share = STYLES[style]
    out = np.zeros(int((seconds + 4) * RATE))
    for at, loud, sound in music(np.random.default_rng(seed), seconds):
        start = int(at * RATE)
        out[start : start + sound.size] += loud * sound
    whole = in_a_room(out[: int(seconds * RATE)], ringing, share)
    return whole / max(1e-9, float(np.abs(whole).max())) * 0.8


FORMATS: dict[str, dict[str, Any]] = {
    ".mp3": {"format": "MP3"},
    ".flac": {"format": "FLAC"},
    ".ogg": {"format": "OGG", "subtype": "VORBIS"},
    ".wav": {"format": "WAV", "subtype": "PCM_16"},
    ".aiff": {"format": "AIFF", "subtype": "PCM_16"},
}


def main(folder: Path, count: int) -> None:
    """Writes the first songs of the list into a folder."""
    for seed, (name, style, seconds) in enumerate(SONGS[:count]):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(file, song(style, seconds, seed), RATE, **FORMATS[file.suffix])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
