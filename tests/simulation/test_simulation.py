"""A few hundred histories with every run."""

import tempfile
from pathlib import Path

import pytest
from simulator import Stage, simulate

SEEDS, ROUNDS = 40, 5


@pytest.mark.parametrize("round", range(ROUNDS))
def test_the_promises_hold_in_seeded_histories(round: int) -> None:  # spec: WK-4 WK-6 SV-6
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        try:
            for seed in range(round * SEEDS, (round + 1) * SEEDS):
                simulate(seed, stage)
        finally:
            stage.close()
