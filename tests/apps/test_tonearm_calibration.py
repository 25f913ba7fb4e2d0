"""Percentiles over a library: near the truth, in little memory, the same however the tracks come."""

import random
from bisect import bisect_left, bisect_right

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonearm.calibration import BINS, Calibration, Tally, calibrate, drift, is_stale

SCORE = st.floats(0, 1)
MANY = st.lists(SCORE, min_size=1, max_size=150)


def of(scores: list[float]) -> Calibration:
    return calibrate("book", ({"rock": score} for score in scores))


def percentile(calibration: Calibration, score: float) -> float:
    share = calibration.percentile("rock", score)
    assert share is not None
    return share


@settings(max_examples=50)
@given(MANY, SCORE, SCORE)
def test_a_percentile_is_a_share_and_grows_with_the_score(scores: list[float], one: float, other: float) -> None:
    calibration = of(scores)
    low, high = (percentile(calibration, score) for score in sorted((one, other)))
    assert 0 <= low <= high <= 1


@settings(max_examples=30)
@given(st.integers(), st.floats(0.2, 5), st.floats(0.2, 5), st.floats(0.01, 0.99))
def test_a_percentile_is_near_the_truth(seed: int, alpha: float, beta: float, score: float) -> None:  # spec: TA-4
    """As near as scores that share a bin (which are within 3 % of each other) allow."""
    chance = random.Random(seed)
    scores = sorted(chance.betavariate(alpha, beta) for _ in range(300))
    below = bisect_left(scores, score * 0.965) / len(scores)
    above = bisect_right(scores, score * 1.035) / len(scores)
    assert below - 0.01 <= percentile(of(scores), score) <= above + 0.01


def test_evenly_spread_scores_are_their_own_percentiles() -> None:  # spec: TA-4
    calibration = of([at / 10_000 for at in range(10_001)])
    for share in (0.05, 0.5, 0.9, 0.95, 0.99):
        assert percentile(calibration, share) == pytest.approx(share, abs=0.004)


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), SCORE), max_size=10), st.integers(0, 10))
def test_counting_in_parts_is_counting(tracks: list[dict[str, float]], cut: int) -> None:
    one, other = Tally("book"), Tally("book")
    for scores in tracks[:cut]:
        one.add(scores)
    for scores in tracks[cut:]:
        other.add(scores)
    one.join(other)
    assert one.calibration() == calibrate("book", tracks)
    with pytest.raises(ValueError, match="other labels"):
        one.join(Tally("another book"))


def test_memory_does_not_depend_on_the_number_of_tracks() -> None:  # spec: TA-4
    tally = Tally("book")
    for at in range(5_000):
        tally.add({"rock": at / 5_000})
    assert [len(counts) for counts in tally.counts.values()] == [BINS]
    assert len(tally.calibration().quantiles["rock"]) == 201


def test_a_label_that_was_not_counted_has_no_percentile() -> None:
    assert of([0.5]).percentile("jazz", 0.5) is None


@settings(max_examples=30)
@given(MANY)
def test_it_is_stored_as_it_is(scores: list[float]) -> None:
    calibration = of(scores)
    assert msgspec.json.decode(msgspec.json.encode(calibration), type=Calibration) == calibration


@settings(max_examples=30)
@given(MANY, MANY)
def test_drift_is_a_distance(one: list[float], other: list[float]) -> None:  # spec: TA-4
    moved = drift(of(one), of(other))["rock"]
    assert 0 <= moved <= 1
    assert moved == drift(of(other), of(one))["rock"]
    assert drift(of(one), of(one)) == {"rock": 0}


def test_drift_finds_what_moved_and_nothing_else() -> None:  # spec: TA-4
    def both(rock: float) -> list[dict[str, float]]:
        return [{"rock": rock + at / 1000, "jazz": at / 1000} for at in range(200)]

    old, new = calibrate("book", both(0.1)), calibrate("book", both(0.2))
    moved = drift(old, new)
    assert moved["jazz"] == 0
    assert moved["rock"] == pytest.approx(0.5, abs=0.02)  # half of the old lies below the new
    assert drift(calibrate("book", both(0.1)), calibrate("book", both(0.5)))["rock"] == 1
    assert is_stale(old, new)
    assert not is_stale(old, old)
    assert is_stale(old, Calibration(old.tracks, "another book", old.quantiles))
