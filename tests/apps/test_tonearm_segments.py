"""What the networks are shown: whole patches, the same however the audio comes in pieces, few of them if wished."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonearm.ear.mel import BANDS, FRAMES, HOP, RATE, SEGMENT, STEP, Floats, patch
from tonearm.ear.segments import Choice, segments


def pieces(audio: Floats, size: int) -> list[Floats]:
    return [audio[at : at + size] for at in range(0, len(audio), size)]


@given(length=st.integers(1, 4 * STEP), size=st.integers(1000, 2 * STEP))
def test_every_whole_patch_comes_once_and_in_order(length: int, size: int) -> None:  # spec: TA-3
    audio = np.arange(1, length + 1, dtype=np.float32)
    cut = list(segments(pieces(audio, size)))
    padded = np.concatenate([np.zeros(256, np.float32), audio, np.zeros(256, np.float32)])
    count = (1 + length // HOP) // FRAMES
    assert len(cut) == max(1, count)
    if count:
        for place, segment in enumerate(cut):
            assert np.array_equal(segment, padded[place * STEP : place * STEP + SEGMENT])
    else:
        assert np.array_equal(cut[0], padded[: len(cut[0])])
    assert all(patch(segment).shape == (FRAMES, BANDS) for segment in cut)


def test_a_track_shorter_than_a_patch_is_repeated() -> None:
    audio = np.sin(np.arange(RATE) / 5).astype(np.float32)
    (segment,) = segments([audio])
    frames = 1 + RATE // HOP
    seen = patch(segment)
    assert seen.shape == (FRAMES, BANDS)
    assert np.array_equal(seen[:frames], seen[frames : 2 * frames])


def test_a_tone_is_seen_in_its_band_and_silence_nowhere() -> None:
    t = np.arange(SEGMENT) / RATE
    low, high = (patch(np.sin(2 * np.pi * hz * t).astype(np.float32))[90].argmax() for hz in (200, 4000))
    assert low == 5  # below 1 kHz a band is 32 Hz wide
    assert high > 60
    assert not patch(np.zeros(SEGMENT, np.float32)).any()


def test_loud_sound_does_not_overflow() -> None:
    seen = patch(np.full(SEGMENT, 1, np.float32) * np.sign(np.sin(np.arange(SEGMENT))).astype(np.float32))
    assert seen.dtype == np.float32
    assert np.isfinite(seen).all()


@given(length=st.integers(1, 300), limit=st.integers(2, 40), wanted=st.integers(1, 12))
def test_the_choice_is_bounded_and_spread_over_all(length: int, limit: int, wanted: int) -> None:
    choice = Choice(limit)
    for number in range(length):
        choice.offer(np.array([number], np.float32))
        assert len(choice.kept) <= limit
    chosen = [int(segment[0]) for segment in choice.spread(wanted)]
    assert choice.seen == length
    assert chosen == sorted(set(chosen))
    assert chosen[0] == 0
    assert len(chosen) == min(wanted, len(choice.kept))
    if length <= limit and wanted > 1:  # exact: from the first to the last
        assert chosen == np.linspace(0, length - 1, min(wanted, length)).round().astype(int).tolist()
    if wanted > 1 and len(choice.kept) > 1:
        assert length - chosen[-1] <= 2 * choice.stride


@pytest.mark.parametrize("length", [257, 600, 5000])
def test_a_long_track_is_thinned_evenly(length: int) -> None:
    choice = Choice(256)
    for number in range(length):
        choice.offer(np.array([number], np.float32))
    gaps = np.diff([int(segment[0]) for segment in choice.spread(32)])
    assert gaps.max() - gaps.min() <= choice.stride
