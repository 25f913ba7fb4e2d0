"""Tests for the open stores of a process."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from chargehand import clock
from chargehand.host import pool
from chargehand.host.pool import StorePool
from chargehand.store import Store
from chargehand.stores.location import locate


# spec: ST-1
def test_stores_of_a_burst_are_closed_when_they_are_not_used_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    closed: list[Store] = []
    stores = StorePool(locate(str(tmp_path / "chargehand.db")), "full")
    with ExitStack() as burst:
        used = [burst.enter_context(stores.use()) for _ in range(4)]
    for store in used:
        shut = store.close
        monkeypatch.setattr(store, "close", lambda store=store, shut=shut: (closed.append(store), shut()))
    for _ in range(10):
        with stores.use() as store:
            assert store is used[0], "the last one that was returned"
    assert closed == []
    now += pool.KEPT
    for _ in range(10):
        with stores.use() as store:
            assert store is used[0]
    assert (len(closed), used[0] in closed) == (3, False)
    stores.close()
    assert used[0] in closed


# spec: ST-1
def test_a_process_that_is_forked_inside_a_block_closes_nothing_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    stores = StorePool(locate(str(tmp_path / "chargehand.db")), "full")
    with stores.use(), stores.use() as inner:
        pass
    monkeypatch.setattr(inner, "close", lambda: pytest.fail("the parent uses it"))
    with stores.use():
        now += pool.KEPT
        stores._after_fork()  # pyright: ignore[reportPrivateUsage]  # what happens in the child
    stores.close()
