"""Fixtures of the command line's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chargehand import Chargehand


@pytest.fixture
def hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chargehand]:
    """A Chargehand on a store of the test's own, which commands find by CHARGEHAND_URL."""
    monkeypatch.setenv("CHARGEHAND_URL", str(tmp_path / "chargehand.db"))
    made = Chargehand(folder=tmp_path)
    made.open()
    yield made
    made.close()
