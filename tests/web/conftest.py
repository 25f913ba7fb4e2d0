"""Fixtures of the web tests."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from webworld import Web

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="chargehand-web-", dir=MEMORY) as name:
        yield Path(name)


@pytest.fixture
def web(folder: Path) -> Iterator[Web]:
    made = Web(folder)
    yield made
    made.close()
