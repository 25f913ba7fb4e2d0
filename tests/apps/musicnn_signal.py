"""The signal of data/musicnn_reference.json: 30 s, 16 kHz, mono, 16 bits; the same bytes wherever it is made."""

import numpy as np
from numpy.typing import NDArray

RATE, SECONDS = 16_000, 30
CHORDS = [220.0, 174.61, 261.63, 196.0] * 4


def signal() -> NDArray[np.int16]:
    t = np.arange(RATE * SECONDS) / RATE
    out = np.zeros_like(t)
    for beat in range(SECONDS * 2):  # a kick every half second
        now = slice(beat * RATE // 2, beat * RATE // 2 + RATE // 2)
        since = t[now] - beat / 2
        kick = np.exp(-9 * since) * np.sin(2 * np.pi * (50 + 60 * np.exp(-30 * since)) * since)
        out[now] += (since < 0.4) * 0.5 * kick
    for bar, root in enumerate(CHORDS):  # another chord every two seconds
        now = slice(bar * RATE * 2, (bar + 1) * RATE * 2)
        for ratio in (1.0, 1.25, 1.5, 2.0):
            out[now] += 0.08 * np.sign(np.sin(2 * np.pi * root * ratio * t[now]))
    noise = (np.arange(out.size, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(1 << 32)
    out += 0.02 * (noise.astype(np.float64) / 2**32 - 0.5)
    return np.round(np.clip(out / np.abs(out).max() * 0.9, -1, 1) * 32767).astype("<i2")
