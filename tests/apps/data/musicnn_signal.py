"""The test signal of reference.json: 30 s, 16 kHz, mono, 16-bit WAV; the same bytes wherever it runs."""
import wave

import numpy as np

RATE, SECONDS = 16_000, 30


def signal() -> np.ndarray:
    t = np.arange(RATE * SECONDS) / RATE
    out = np.zeros_like(t)
    for beat in range(SECONDS * 2):  # a kick every half second, a chord change every two seconds
        at = beat / 2
        local = t - at
        on = (local >= 0) & (local < 0.4)
        out += on * 0.5 * np.exp(-9 * np.clip(local, 0, None)) * np.sin(2 * np.pi * (50 + 60 * np.exp(-30 * np.clip(local, 0, None))) * local)
    for bar, root in enumerate([220.0, 174.61, 261.63, 196.0] * 4):
        local = t - bar * 2
        on = (local >= 0) & (local < 2)
        for ratio in (1.0, 1.25, 1.5, 2.0):
            out += on * 0.08 * np.sign(np.sin(2 * np.pi * root * ratio * t))
    noise = ((np.arange(out.size, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(1 << 32)).astype(np.float64) / 2**32 - 0.5
    out += 0.02 * noise
    return np.round(np.clip(out / np.abs(out).max() * 0.9, -1, 1) * 32767).astype("<i2")


if __name__ == "__main__":
    with wave.open("signal.wav", "wb") as f:
        f.setnchannels(1); f.setsampwidth(2); f.setframerate(RATE)
        f.writeframes(signal().tobytes())
