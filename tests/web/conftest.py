"""Fixtures of the web tests."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from webworld import Web

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture(autouse=True)
def every_test_ends_its_processes(nothing_is_left_behind: None) -> None: ...


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="chargehand-web-", dir=MEMORY) as name:
        yield Path(name)


@pytest.fixture
def web(folder: Path) -> Iterator[Web]:
    """A world of the test's own."""
    made = Web(folder)
    yield made
    made.close()


@pytest.fixture(scope="module")
def still() -> Iterator[Web]:
    """A world for tests that change nothing: they share it."""
    with TemporaryDirectory(prefix="chargehand-web-", dir=MEMORY) as name:
        made = Web(Path(name))
        yield made
        made.close()
