"""The first 200 seeds of the campaign that `make simulate` runs, and that a seed gives the same history each time."""

import pytest
from profiles import PROFILES
from simulator import simulate
from stage import Stage

from campaign import histories

PARTS, SEEDS = 4, 50


# spec: WK-4 WK-6 WK-7 WK-8 WK-10 SV-3 SV-5 SV-6 SV-7 RP-7
@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.full) for part in range(2, PARTS))])
def test_the_promises_hold_in_seeded_histories(part: int) -> None:
    _, _, broken = histories(range(part * SEEDS, (part + 1) * SEEDS))
    assert broken is None, broken


@pytest.mark.full
def test_a_history_is_told_again_exactly() -> None:
    stage = Stage()
    try:
        for seed in range(len(PROFILES)):
            first = simulate(seed, stage).history
            assert simulate(seed, stage).history == first
    finally:
        stage.close()
