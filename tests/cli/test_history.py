"""`chargehand history` and `chargehand migrate`."""

import json
import sqlite3

from typer.testing import CliRunner, Result

from chargehand import Chargehand
from chargehand.cli.main import app
from chargehand.model.records import HealthNote, Holder
from chargehand.stores.sqlite import schema

ME = Holder("node", "life")


def run(*words: str) -> Result:
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    return told


def record(hand: Chargehand, count: int) -> list[int]:
    """Makes snapshots, one millisecond apart, and returns their times."""
    notes = [
        HealthNote(component=name, status="healthy", flags=("stalled",), pid=7, restart_count=2)
        for name in ("app", "worker:tag:0", "worker:tag:1")
    ]
    with hand.transaction() as tx:
        tx.fleet.project(notes, ME)
        tx.fleet.snapshot()
        ((first,),) = tx.execute("SELECT timestamp_ms FROM chargehand_history")
        for number in range(1, count):
            tx.execute(
                "INSERT INTO chargehand_history SELECT timestamp_ms + ?, components FROM chargehand_history "
                "WHERE timestamp_ms = ?",
                (number, first),
            )
    return [first + number for number in range(count)]


def test_history_is_paged_and_filtered(hand: Chargehand) -> None:  # spec: HP-6 CL-3
    assert "CHARGEHAND_HISTORY=true" in run("history").stdout
    times = record(hand, 5)
    lines = run("history", "--limit", "2").stdout.splitlines()
    assert len(lines) == 1 + 2 * 3 + 1
    assert lines[2].split()[-6:] == ["worker:tag:0", "healthy", "stalled", "–", "7", "2"]
    assert lines[-1] == f"more: --after {times[1]}"
    rest = json.loads(run("history", "--after", str(times[1]), "--worker", "tag:1", "--json").stdout)
    assert [entry["timestamp_ms"] for entry in rest] == times[2:]
    assert [[each["component"] for each in entry["components"]] for entry in rest] == [["worker:tag:1"]] * 3


def test_a_store_is_migrated_and_the_versions_are_shown(hand: Chargehand) -> None:  # spec: CL-6 ST-3
    assert sqlite3.sqlite_version  # if it is loaded, a store refuses a file that the process has open elsewhere
    version = len(schema.MIGRATIONS)
    assert json.loads(run("migrate", "--json").stdout) == {"before": version, "after": version, "additions": []}
    assert f"has schema {version} already: nothing to do" in run("migrate").stdout
    name = max(schema.ADDITIONS)
    with hand.transaction() as tx:
        tx.execute("DROP TABLE chargehand_suspect")
        tx.execute("DELETE FROM chargehand_addition WHERE name = '0005_suspects'")
    hand.internal.close()
    assert f"has schema {version}; added: 0005_suspects" in run("migrate").stdout
    assert name in schema.ADDITIONS
    hand.path.unlink()
    told = CliRunner().invoke(app, ["migrate"])
    assert told.exit_code != 0
    assert not hand.path.exists(), "no store is made"
