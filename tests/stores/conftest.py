"""The stores that the conformance suite runs against. To add a store, add an entry to STORES."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders import Wall

from chargehand.store import Store
from chargehand.stores.sqlite.store import SqliteStore

StoreFactory = Callable[[], Store]


def sqlite(folder: Path, wall: Wall) -> StoreFactory:
    return lambda: SqliteStore(folder / "store.db", now_ms=wall)


STORES: dict[str, Callable[[Path, Wall], StoreFactory]] = {"sqlite": sqlite}


MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""A folder in memory: these tests commit thousands of times, and a disk would only slow them down."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="chargehand-test-", dir=MEMORY) as name:
        yield Path(name)


@pytest.fixture
def wall() -> Wall:
    """The clock of every store in the test."""
    return Wall()


@pytest.fixture(params=sorted(STORES))
def store_factory(request: pytest.FixtureRequest, folder: Path, wall: Wall) -> Iterator[StoreFactory]:
    """Returns a function that opens the same store each time, as another process would; at first it is empty."""
    opened: list[Store] = []
    factory = STORES[request.param](folder, wall)

    def open_one() -> Store:
        opened.append(factory())
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(store_factory: StoreFactory) -> Store:
    return store_factory()
