"""The diagnosis of a store on a server: from which number on something is a finding, and what is said of it."""

from typing import Any

import pytest
from test_diagnosis import NOW, causes, facts, found_text, moment, worker

from chargehand.model.doctor.causes import Severity
from chargehand.model.doctor.diagnosis import diagnose
from chargehand.model.doctor.facts import Facts

URL = "postgresql://anna@db/app"
FEW = {"max_connections": "100", "superuser_reserved_connections": "3", "reserved_connections": "2"}


def on(**server: Any) -> Facts:
    return facts(worker(), path=URL, server={"user": "anna", **server})


# spec: CL-4
@pytest.mark.parametrize(
    "server",
    [
        {"version": 140000, "oldest": 140000},
        {"skew_ms": 5000},
        {"skew_ms": -5400, "answered_ms": 1000},
        {"snapshots": [{"pid": 9, "age_s": 299.9, "transactions": 1_000_000}, {"pid": 8, "transactions": 99_999}]},
        {"vacuum": {"table": "chargehand_live", "dead": 49_999}},
        {"vacuum": {"table": "chargehand_live", "dead": 500_000, "vacuumed_s": 299.0}},
        {"vacuum": {"table": "chargehand_live", "dead": 500_000, "running": True}},
        {"settings": FEW, "connections": {"used": 92}},
        {"settings": FEW, "connections": {"used": 5, "user_used": 5, "user_limit": 8, "database_limit": -1}},
        {"settings": {"fsync": "on", "synchronous_commit": "remote_apply"}},
        {"locked": {"pid": 9, "table": "chargehand_live", "age_s": 0.9}},
        {"may_create": False},
        {"driver": "binary"},
        {"peers": [{"name": "b", "connected": True}]},
    ],
)
def test_what_is_as_it_should_be_is_no_finding(server: dict[str, Any]) -> None:
    assert causes(on(**server)) == {}


# spec: CL-4, MN-1
def test_a_worker_that_was_replaced_is_named_with_its_node() -> None:
    row = {"node": "b", "component": "worker:tag:0", "crew": "tag", "reason": "suspect", "text": "x", "at_ms": NOW}
    found = facts(worker(), path=URL, server={"user": "anna"}, replaced=[row])
    text, remedy = found_text(found, "replaced")
    assert text.startswith("b/tag:0 was replaced")
    assert remedy.endswith("crashes --worker b/tag:0")


# spec: CL-4, SV-12
def test_a_crew_without_workers_here_is_no_finding_while_another_node_serves_its_queue() -> None:
    crews = [{"name": "tag", "queue": "tag", "workers": 1}, {"name": "gpu", "queue": "gpu"}]
    waits: dict[str, Any] = {"waiting": {"gpu": 5000}, "crews": crews, "path": URL, "server": {"user": "anna"}}
    assert "no-workers" not in causes(facts(worker(), **waits))
    nobody = facts(worker(), view={"unserved": {"gpu": "its crew gpu has no workers"}}, **waits)
    assert causes(nobody)["no-workers"] is Severity.ERROR


# spec: CL-4, SV-12
def test_a_queue_that_no_node_serves_is_found_also_where_none_runs() -> None:
    server = {"user": "anna", "peers": [{"name": "b", "connected": True}]}
    found = facts(
        node={"held": False, "view": None}, path=URL, server=server, crews=[{"name": "tag", "queue": "tag"}],
        waiting={"tag": 1, "typo": 2}, unserved={"tag": "all workers of tag are stopped", "typo": "no crew serves it"},
    )  # fmt: skip
    assert causes(found) == {
        "no-workers": Severity.ERROR, "no-crew": Severity.ERROR, "nodes-elsewhere": Severity.NOTE,
    }  # fmt: skip
    assert "no worker of any node takes: all workers of tag are stopped" in found_text(found, "no-workers")[0]


# spec: CL-4, MN-1
def test_another_node_is_a_remedy_for_a_queue_without_a_crew() -> None:
    found = facts(worker(), path=URL, server={"user": "anna"}, waiting={"typo": 1})
    _, remedy = found_text(found, "no-crew")
    assert "another NODE_NAME" in remedy
    assert "only waits" not in remedy


# spec: CL-4
def test_the_oldest_transaction_is_named_with_what_it_does() -> None:
    psql = {
        "pid": 41, "application": "psql", "user": "bob", "state": "idle in transaction", "statement": "SELECT",
        "age_s": 720.0, "transactions": 9,
    }  # fmt: skip
    text, remedy = found_text(on(snapshots=[psql, {"pid": 42, "age_s": 400.0}]), "old-snapshot")
    assert text == (
        "the transaction of pid 41 (psql, user bob, idle in transaction, last statement SELECT) is 12 minutes old; "
        "1 more: the server keeps all rows that were deleted since, and tables grow"
    )
    assert remedy == "end it, or: SELECT pg_terminate_backend(41)"
    hidden = {"pid": 43, "application": "app", "user": "eve", "transactions": 200_000}
    text, _ = found_text(on(snapshots=[hidden]), "old-snapshot")
    assert "pid 43 (app, user eve, what it does is hidden) is 200,000 transactions old" in text
    prepared = {"kind": "prepared", "application": "tx1", "age_s": 999.0}
    assert found_text(on(snapshots=[prepared]), "old-snapshot")[1].startswith("COMMIT PREPARED 'tx1'")
    slot = {"kind": "slot", "application": "standby1", "transactions": 100_000}
    assert "pg_drop_replication_slot('standby1')" in found_text(on(snapshots=[slot]), "old-snapshot")[1]


# spec: CL-4
@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"snapshots": [{"pid": 9, "age_s": 999.0}]}, "an old transaction keeps them"),
        ({"settings": {"autovacuum_max_workers": "3"}}, "all 3 autovacuum workers are busy"),
        ({"settings": {"autovacuum_max_workers": "4"}}, "autovacuum does not get to it"),
    ],
)
def test_dead_rows_have_a_reason(more: dict[str, Any], why: str) -> None:
    vacuum = {"table": "chargehand_live", "live": 10, "dead": 400_000, "vacuumed_s": 900.0, "workers": 3}
    text, _ = found_text(on(vacuum=vacuum, **more), "dead-rows")
    assert text.startswith("chargehand_live has 400,000 dead rows beside 10 live ones, vacuumed 15 minutes ago: ")
    assert why in text


# spec: CL-4
def test_old_transactions_keep_the_rows_that_a_vacuum_has_just_visited() -> None:
    vacuum = {"table": "chargehand_live", "dead": 400_000, "vacuumed_s": 5.0}
    assert "dead-rows" in causes(on(vacuum=vacuum, snapshots=[{"pid": 9, "age_s": 999.0}]))


# spec: CL-4
@pytest.mark.parametrize(
    ("connections", "text"),
    [
        ({"used": 93}, "2 connections left (max_connections is 100, 5 of them reserved)"),
        ({"used": 94}, "1 connection left (max"),
        ({"used": 99}, "0 connections left (max"),
        ({"user_used": 4, "user_limit": 5}, "1 connection left (the user anna may have 5)"),
        ({"database_used": 5, "database_limit": 5}, "0 connections left (the database allows 5)"),
    ],
)
def test_the_limit_that_is_reached_first_is_named(connections: dict[str, int], text: str) -> None:
    found = on(settings=FEW, connections=connections)
    assert found_text(found, "no-connections")[0].startswith(text)
    assert causes(found)["no-connections"] == Severity.WARNING


# spec: CL-4
def test_a_server_that_cannot_be_reached_is_all_that_is_said() -> None:
    """Neither that no node runs, nor that there is no store: nobody knows."""
    found = facts(
        node={"held": False, "view": None}, path=URL, server={"error": f"cannot connect to {URL}", "code": "bad-login"}
    )
    assert causes(found) == {"bad-login": Severity.ERROR}
    assert diagnose(found, moment).headline.startswith("not working: the server does not accept the user")
    unknown = facts(worker(), path=URL, server={"error": "x", "code": "of a newer version"})
    assert causes(unknown) == {"store-unusable": Severity.ERROR}


# spec: CL-4
def test_a_server_that_hangs() -> None:
    found = facts(node={"held": False, "view": None}, path=URL, server={}, stuck="connection", patience=8.0)
    text, remedy = found_text(found, "store-hung")
    assert text.endswith("(connection) timed out after 8 s: its server hangs")
    assert "network" in remedy


# spec: CL-4 MN-5
def test_nodes_elsewhere_perform_the_jobs() -> None:
    def here(**peer: Any) -> Facts:
        node = {"held": False, "view": None}
        return facts(node=node, path=URL, server={"peers": [{"name": "b", **peer}]}, now_ms=NOW)

    assert causes(here(connected=True)) == {"nodes-elsewhere": Severity.NOTE}
    assert causes(here(heartbeat_ms=30_000)) == {"nodes-elsewhere": Severity.NOTE}, "behind a pooler"
    assert diagnose(here(connected=True), moment).headline == "nodes elsewhere: 1"
    assert "no-node" in causes(here(heartbeat_ms=30_001))
    assert "no-node" in causes(here())


# spec: CL-4
def test_tables_that_are_missing_or_may_not_be_made() -> None:
    node = {"held": False, "view": None}
    none = facts(node=node, path=URL, server={"user": "anna"}, ground={"exists": False}, book={"knows": 3})
    assert causes(none) == {"no-store": Severity.ERROR}
    assert "?schema=" in found_text(none, "no-store")[1]
    refused = on(may_create=False)
    old = facts(worker(), path=URL, server={"user": "anna", "may_create": False}, book={"schema": 2, "knows": 3})
    assert "no-rights" not in causes(refused)
    assert "CREATE on the schema" in found_text(old, "no-rights")[0]


# spec: CL-4, ST-4
def test_a_newer_schema_that_this_code_may_use_is_no_finding() -> None:
    assert "schema-new" not in causes(facts(worker(), book={"schema": 4, "knows": 3, "oldest": 3}))
    assert "schema-new" in causes(facts(worker(), book={"schema": 5, "knows": 3, "oldest": 4}))


# spec: CL-4
def test_a_table_that_somebody_has_locked() -> None:
    lock = {"pid": 5, "table": "chargehand_live", "application": "psql", "user": "bob", "state": "idle", "age_s": 60.0}
    text, remedy = found_text(on(locked=lock), "store-locked")
    assert text.startswith("pid 5 (psql, user bob, idle) has locked the table chargehand_live for 60 seconds")
    assert remedy.endswith("SELECT pg_terminate_backend(5)")


# spec: CL-4 MN-5
def test_a_node_that_is_gone_is_named_wherever_doctor_runs() -> None:
    gone = [{"name": "b", "heartbeat_ms": 90_000}]
    assert causes(on(gone=gone)) == {"node-gone": Severity.WARNING}
    text, remedy = found_text(on(gone=gone), "node-gone")
    assert text.startswith("node b disappeared without having been stopped; its last heartbeat was 90 seconds ago")
    assert remedy.startswith("start it again")
    peers = [{"name": "a", "connected": True}]
    elsewhere = facts(node={"held": False, "view": None}, path=URL, server={"peers": peers, "gone": gone}, now_ms=NOW)
    assert causes(elsewhere) == {"nodes-elsewhere": Severity.NOTE, "node-gone": Severity.WARNING}
