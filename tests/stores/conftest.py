"""The stores that the conformance suite runs against. To add a store, add an entry to STORES."""

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders import Wall

import pgserver
from chargehand.store import Store
from chargehand.stores.sqlite.store import SqliteStore

StoreFactory = Callable[[], Store]


def sqlite(folder: Path, wall: Wall) -> StoreFactory:
    return lambda: SqliteStore(folder / "store.db", now_ms=wall)


def postgres(_: Path, wall: Wall) -> StoreFactory:
    if (packages := pgserver.missing()) is not None:
        pytest.skip(f"the PostgreSQL store is NOT tested: pip install {packages}")
    from chargehand.stores.postgres import address
    from chargehand.stores.postgres.store import PostgresStore

    at = address.parse(postgres_url())
    pgserver.empty(at.conninfo, str(at.schema))
    return lambda: PostgresStore(at, now_ms=wall)


@cache
def postgres_url() -> str:
    """Returns the URL of a store that only this process uses: its tests empty it, which is faster than a new one."""
    from chargehand.stores.postgres import address
    from chargehand.stores.postgres.store import PostgresStore

    url = f"{pgserver.url()}&schema=test_{os.getpid()}"
    PostgresStore(address.parse(url)).close()
    return url


STORES: dict[str, Callable[[Path, Wall], StoreFactory]] = {"sqlite": sqlite, "postgres": postgres}


EXHAUSTIVE = {"test_limiting", "test_settle", "test_transitions"}
"""Files with hundreds of cases: on a server, `make check` runs them after `make test`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem in EXHAUSTIVE and item.path.parent == Path(__file__).parent and "postgres" in item.name:
            item.add_marker(pytest.mark.full)


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
