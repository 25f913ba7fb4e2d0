"""Computes the input of the networks: patches of 187 frames × 96 mel bands, about three seconds each.

16 kHz, Hann windows of 512 samples every 256, power, Slaney's mel scale and area, log10(1 + 10000 · x). All in float32:
in float16, which the original used, loud passages overflow.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Floats = NDArray[np.float32]

RATE = 16_000
WINDOW, HOP = 512, 256
BANDS, FRAMES = 96, 187
SEGMENT = (FRAMES - 1) * HOP + WINDOW
"""Samples per patch."""
STEP = FRAMES * HOP
"""Samples between the starts of two patches: segments overlap by one hop."""
EDGE = WINDOW // 2
"""Zero samples before the first sample and after the last, so that frames are centred."""


def patch(segment: Floats) -> Floats:
    """Returns the patch of a segment: frames × bands. A segment that is too short is repeated."""
    frames = sliding_window_view(segment, WINDOW)[::HOP]
    spectrum = np.fft.rfft(frames * _HANN, axis=1)
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    seen = np.log10(np.float32(1) + np.float32(10_000) * (power @ _FILTERS))
    return np.resize(seen, (FRAMES, BANDS)) if len(seen) < FRAMES else seen


def _hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    """Slaney's scale: three mels per 200 Hz up to 1 kHz, then 27 mels per factor of 6.4."""
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (mel - 15)))


def _filters() -> Floats:
    """Returns bins × bands: triangles of equal area between the neighbours of each band."""
    top = 15 + 27 * np.log(RATE / 2 / 1000) / np.log(6.4)
    corners = _hz(top / (BANDS + 1) * np.arange(BANDS + 2))
    low, middle, high = corners[:-2], corners[1:-1], corners[2:]
    bins = np.fft.rfftfreq(WINDOW, 1 / RATE)[:, None]
    rise, fall = (bins - low) / (middle - low), (high - bins) / (high - middle)
    return (np.maximum(0, np.minimum(rise, fall)) * 2 / (high - low)).astype(np.float32)


_FILTERS = _filters()
_HANN = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)).astype(np.float32)
