"""Tests for a node that PostgreSQL notifies of what other processes write. It polls far too rarely in these tests."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_app import chargehand
from world import Started, World

import pgserver
from chargehand import Chargehand
from chargehand.stores.postgres.address import parse
from chargehand.testing import eventually
from paths import python_path

if (packages := pgserver.missing()) is not None:
    pytest.skip(f"wake-ups are NOT tested: pip install {packages}", allow_module_level=True)

import psycopg

NEVER = """
import sys
if any("chargehand.node.main" in word for word in sys.orig_argv):
    from chargehand.model import ledger
    from chargehand.node import store_thread
    ledger.POLL = store_thread.WATCH_EVERY = 1000.0
"""
"""Makes a node poll once in 1000 s while it is notified."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    return World(tmp_path, pgserver.new_store())


@pytest.fixture
def hand(world: World) -> Iterator[Chargehand]:
    """A process without a node, as on another machine."""
    (world.folder / "sitecustomize.py").write_text(NEVER)
    node = Started(world, PYTHONPATH=python_path(world.folder), XDG_STATE_HOME=str(world.folder / "node"))
    made = chargehand(world.address)

    def ready() -> bool:
        rows = made.internal.health()
        return len(rows) > 3 and all(row.is_healthy for row in rows)

    eventually(ready, what=f"healthy workers: {node.log.read_text()}")
    listener(world)
    yield made
    node.kill(signal.SIGTERM)
    node.end()
    made.close()


def listener(world: World, other_than: int | None = None) -> int:
    """Waits until a session of the node listens, and returns its server process."""
    table = f"{parse(world.address).schema}.chargehand_live"
    sql = f"SELECT pid FROM pg_stat_activity WHERE query = 'LISTEN chargehand_' || '{table}'::regclass::oid"

    def found() -> list[int]:
        return [pid for (pid,) in pgserver.admin(sql) if pid != other_than]

    return eventually(found, what="a session that listens")[0]


# spec: ST-3
def test_a_node_learns_at_once_what_other_processes_write(hand: Chargehand, world: World) -> None:
    do = hand.crew("do", "scripted_handlers:Doer")
    world.started(world.put(do))
    assert hand.reset("do"), "an order that the node has answered"
    with psycopg.connect(pgserver.url()) as connection:
        later = world.put(do, options={"within": connection})
    world.started(later)
    before = listener(world)
    pgserver.admin(f"SELECT pg_terminate_backend({before})")
    listener(world, other_than=before)
    world.started(world.put(do))
