"""What the tests of decisions share: they start no process."""

import pytest


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> None:
    """Looked at once a module: looking takes longer than most of these tests."""
