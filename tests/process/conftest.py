"""Fixtures of the process tests."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_app import MADE, chargehand
from world import Started, World

from chargehand import Chargehand


@pytest.fixture(autouse=True)
def everything_closed(nothing_is_left_behind: None) -> Iterator[None]:
    """A reference that is used after its Chargehand was closed opens that again: close what is open at the end."""
    yield
    while MADE:
        MADE.pop().close()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def make_hand(world: World) -> Iterator[Callable[..., Chargehand]]:
    """Chargehands on the world's store; whatever they host is stopped at the end."""
    made: list[Chargehand] = []

    def make(**settings: Any) -> Chargehand:
        made.append(chargehand(world.store, **settings))
        return made[-1]

    yield make
    for hand in made:
        hand.close()


@pytest.fixture
def hand(make_hand: Callable[..., Chargehand]) -> Chargehand:
    """A Chargehand on the world's store with the tests' usual settings."""
    return make_hand()


@pytest.fixture
def work(world: World) -> Iterator[Callable[..., Started]]:
    """Start `chargehand work`; what still runs at the end of the test is stopped in order."""
    all_started: list[Started] = []

    def start(*, typed: bool = False, **environment: str) -> Started:
        all_started.append(Started(world, typed=typed, **environment))
        return all_started[-1]

    yield start
    for started in all_started:
        if started.process.poll() is None:
            started.kill(signal.SIGTERM)
            started.end()
        started.hand.close()
