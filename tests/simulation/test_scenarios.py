"""The histories that are told on purpose."""

from collections.abc import Iterator

import pytest
from scenarios import SCENARIOS
from stage import Stage


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_history_ends_as_it_must(
    name: str, stage: Stage
) -> None:  # spec: WK-6 WK-8 WK-10 WK-18 SV-3 SV-6 SV-7 RP-3 RP-4 RP-6 PD-1 MN-2 MN-5
    SCENARIOS[name](stage)
