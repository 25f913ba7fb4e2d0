"""Tests that no statement of a node reads a whole table: its plans are made once, while the tables may be empty.

Other processes plan by what is known of the tables, and have to plan again."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import pgserver

if (packages := pgserver.missing()) is not None:
    pytest.skip(f"the PostgreSQL store is NOT tested: pip install {packages}", allow_module_level=True)

from chargehand.stores.postgres import statements
from chargehand.stores.postgres.address import parse
from chargehand.stores.postgres.session import Session
from chargehand.stores.postgres.store import PostgresStore

GROW = {
    f"chargehand_{name}"
    for name in ("job", "live", "end", "edge", "attempt", "tag", "once", "alias", "kept", "flow", "sequence", "opening")
}
"""The tables with as many rows as there are jobs."""
FEW = {
    "chargehand_live_running",  # one row for each running job
    "chargehand_edge_due",  # what the next turn looks at
    "chargehand_opening_at",  # what limits by rate have opened
}
"""Indexes of a small part of such a table."""
FIRST = {
    ("claim", "bring_back"),  # asks whether there is any checkpoint, or any open edge
    ("enqueue", "enqueue"),  # asks whether any job has a share
    ("enqueue", "add_spawned"),  # the same
}
"""Statements that read no more than the first row of an index."""
ONCE = {("settle", "ends_in_future")}
"""Statements that a node executes only when the clock of the server was set back."""


@pytest.fixture
def session() -> Iterator[Session]:
    store = PostgresStore(parse(pgserver.new_store()), node=True)
    opened = store.session.open()
    if opened.connection.info.server_version < 160000 or opened.pooled:
        pytest.skip("generic plans are shown by PostgreSQL 16 and newer, to sessions with settings of their own")
    yield store.session
    store.close()


def read_whole(node: dict[str, Any]) -> Iterator[str]:
    """Yields the tables that a plan reads from the beginning to the end, each by the index that is used for it."""
    by = node.get("Index Name", "no index")
    scans = ("Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Index Scan")
    if node["Node Type"] in scans and node.get("Relation Name") in GROW and "Index Cond" not in node and by not in FEW:
        yield f"{node['Relation Name']} by {by}"
    for below in node.get("Plans", ()):
        yield from read_whole(below)


@pytest.mark.parametrize("topic", ["claim", "settle", "enqueue", "flows", "store", "fleet", "rates"])
def test_no_statement_of_a_node_reads_a_whole_table(session: Session, topic: str) -> None:  # spec: WK-3 ST-3
    found: dict[str, list[str]] = {}
    for name, sql in statements.load(topic).items():
        if (topic, name) in FIRST | ONCE or sql.startswith(b"CREATE"):
            continue
        asked = b"EXPLAIN (GENERIC_PLAN, FORMAT JSON) " + sql
        with session.transaction():
            ((plan,),) = session.connection.execute(asked, prepare=False).fetchall()
        if whole := list(read_whole((plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"])):
            found[name] = whole
    assert found == {}


def test_a_caller_plans_again_when_tables_have_grown(monkeypatch: pytest.MonkeyPatch) -> None:  # spec: WK-3 ST-3
    """A process that is no node has the settings of the server, and plans by what is known of the tables."""
    store = PostgresStore(parse(pgserver.new_store()))
    session = store.session
    if session.open().pooled:
        pytest.skip("behind a pooler, statements are planned each time")
    asked = b"SELECT id FROM chargehand_job WHERE seq = ANY ($1::bigint[])"

    def add(count: int) -> None:
        with session.transaction():
            session.send(
                b"INSERT INTO chargehand_job (id, queue, rank, run_at_ms, max_attempts, created_ms, payload)"
                b" SELECT gen_random_uuid(), 'q', 0, 0, 1, 0, 'null' FROM generate_series(1, $1)",
                (count,),
            )

    def whole() -> list[str]:
        ((name,),) = session.connection.execute(
            b"SELECT name FROM pg_prepared_statements WHERE statement = $1", (asked.decode(),), prepare=False
        ).fetchall()
        explained = f"EXPLAIN (FORMAT JSON) EXECUTE {name} ('{{1}}')".encode()
        ((plan,),) = session.connection.execute(explained, prepare=False).fetchall()
        return list(read_whole(plan[0]["Plan"]))

    monkeypatch.setattr("chargehand.stores.postgres.session.PLAN_AGAIN", float("inf"))
    with session.transaction():
        session.script("ALTER TABLE chargehand_job SET (autovacuum_enabled = off)")
    add(10)
    with session.transaction():
        session.script("ANALYZE chargehand_job")
    for _ in range(10):  # the first plans are made for single values, and are not kept
        session.rows(asked, ("{1}",))
    add(10_000)
    assert whole() == ["chargehand_job by no index"], "the server has kept its plan, as without ANALYZE"
    monkeypatch.setattr("chargehand.stores.postgres.session.PLAN_AGAIN", 0.0)
    session.rows(asked, ("{1}",))
    assert whole() == []
    store.close()
