"""The on-call run: the cause and the remedy of each broken system stand on the first screen, and in doctor's output."""

import os
from collections.abc import Callable, Iterator

import pytest
from dashworld import missing

WHY_NOT = missing()
if WHY_NOT is not None:
    pytest.skip(WHY_NOT, allow_module_level=True)

from oncall import SYSTEMS, chromium, examine  # noqa: E402 (Playwright may not be there)
from playwright.sync_api import Browser  # noqa: E402

from chargehand.testing import eventually  # noqa: E402

pytestmark = pytest.mark.full


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_behind(living: Callable[[], list[int]]) -> Iterator[None]:
    """At the end of the module: its tests share a browser."""
    yield
    eventually(lambda: not living(), 15, what="processes left behind")


@pytest.fixture(scope="module")
def browser(nothing_is_left_behind: None) -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize("name", SYSTEMS)
def test_an_operator_finds_cause_and_remedy_at_a_glance(name: str, browser: Browser) -> None:  # spec: DB-6 CL-4
    if name == "disk-full" and os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    assert examine(name, browser).faults == ()
