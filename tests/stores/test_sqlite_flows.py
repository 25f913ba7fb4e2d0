"""Tests for flows in SQLite only: the change of the schema beside other connections, older stores, and the cost."""

import re
import sys
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import apsw
import pytest
from builders import end, job, jobs, put, record, retry, take, take_one
from test_sqlite_cost import plan, statements_of, steps_of

from chargehand.model.flows import NewFlow
from chargehand.model.job import Done, GaveUp, NewJob, State
from chargehand.stores.location import Location
from chargehand.stores.sqlite.peek import Peek
from chargehand.stores.sqlite.store import SqliteStore

BEFORE = "0008_flows"


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(folder / "store.db")
    yield made
    made.close()


@pytest.fixture
def without_sqlite3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the state of a process that never imported the standard library's sqlite3."""
    monkeypatch.delitem(sys.modules, "_sqlite3", raising=False)


def make_store_without_flows(path: Path) -> apsw.Connection:
    """Creates a store as the version before flows made it, with jobs; returns a connection that stays open."""
    folder = resources.files("chargehand.stores.sqlite") / "migrations"
    files = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    added = [file for file in (folder / "additions").iterdir() if file.name.removesuffix(".sql") < BEFORE]
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", "wal")
    db.execute("CREATE TABLE chargehand_schema (version INTEGER PRIMARY KEY, checksum TEXT, applied_ms INTEGER)")
    db.execute("CREATE TABLE chargehand_addition (name TEXT PRIMARY KEY, checksum TEXT, applied_ms INTEGER)")
    for version, file in enumerate(sorted(files, key=lambda file: file.name), 1):
        db.execute(file.read_text("utf-8"))
        db.execute("INSERT INTO chargehand_schema VALUES (?, 'x', 1)", (version,))
    for file in sorted(added, key=lambda file: file.name):
        db.execute(file.read_text("utf-8"))
        db.execute("INSERT INTO chargehand_addition VALUES (?, 'x', 1)", (file.name.removesuffix(".sql"),))
    for number in range(3):
        insert_as_before(db, f"old-{number}")
    return db


def insert_as_before(db: apsw.Connection, job_id: str, waits_for: str | None = None) -> None:
    db.execute(
        "INSERT INTO chargehand_job (id, queue, state, waits_for, run_at_ms, max_attempts, created_ms, payload) "
        "VALUES (?, 'q', 'queued', ?, 5, 3, 5, '1')",
        (job_id, waits_for),
    )


CLAIM_AS_BEFORE = """
SELECT id FROM chargehand_job INDEXED BY chargehand_job_ready
WHERE queue = 'q' AND state = 'queued' AND waits_for IS NULL ORDER BY priority DESC, seq LIMIT 9
"""


# spec: ST-4, FL-1
def test_the_schema_is_changed_beside_an_open_connection_which_goes_on_with_it(
    folder: Path, without_sqlite3: None
) -> None:
    before = make_store_without_flows(folder / "store.db")
    with pytest.raises(apsw.ConstraintError):
        insert_as_before(before, "refused", "jobs")
    store = SqliteStore(folder / "store.db")
    assert BEFORE in store.migrated.additions
    put(store, job("follower", after=("old-0",)))
    assert [job_id for (job_id,) in before.execute(CLAIM_AS_BEFORE)] == ["old-0", "old-1", "old-2"]
    insert_as_before(before, "by older code")
    insert_as_before(before, "allowed", "jobs")  # the connection has read the new CHECK
    with pytest.raises(apsw.ConstraintError):
        insert_as_before(before, "refused", "tea")
    assert before.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert before.pragma("writable_schema") == 0
    before.close()
    store.close()
    with apsw.Connection(str(folder / "store.db")) as fresh:
        assert fresh.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        with pytest.raises(apsw.ConstraintError):
            insert_as_before(fresh, "refused", "tea")


# spec: ST-4, FL-2
def test_what_older_code_has_ended_is_completed_by_a_sweep(folder: Path, without_sqlite3: None) -> None:
    before = make_store_without_flows(folder / "store.db")
    store = SqliteStore(folder / "store.db")
    with store.transaction() as tx:
        tx.flows.begin(NewFlow(id="w", name="w"))
        tx.jobs.enqueue([job("member", flow="w"), job("runs", after=("old-0",)), job("fails", after=("old-1",))])
    end_as_before = "UPDATE chargehand_job SET state = ?, finished_ms = 7 WHERE id = ?"
    before.executemany(end_as_before, [("done", "old-0"), ("cancelled", "old-1"), ("done", "member")])
    assert [claim.id for claim in take(store, 9)] == ["old-2"]
    with store.transaction() as tx:
        assert tx.flows.sweep(100) == 3
        assert (tx.woken, tx.ended_flows) == ({"q"}, ("w",))
    assert take_one(store).id == "runs"
    assert (record(store, "fails").state, record(store, "fails").reason) == (State.FAILED, "predecessor")
    before.close()
    store.close()


# spec: CL-4
def test_doctor_reads_a_store_without_flows(folder: Path) -> None:
    make_store_without_flows(folder / "store.db").close()
    peek = Peek(Location(folder / "store.db"))
    found = peek.jobs.get("old-0")
    assert found is not None
    assert (found.flow, found.waits_for) == (None, 0)
    assert [queue for queue, _ in peek.jobs.waiting()] == ["q"]
    assert peek.jobs.counts()[0].queued == 3
    peek.close()


# cost


def fan_in(store: SqliteStore, count: int) -> None:
    """Creates a job with so many predecessors of which one after the other can be ended."""
    put(store, *(job(f"p{number}", priority=1) for number in range(count)))
    put(store, job("sum", after=tuple(f"p{number}" for number in range(count))))


def end_one(store: SqliteStore) -> int:
    claim = take_one(store)
    return steps_of(store, lambda: end(store, claim, Done()))


# spec: FL-1
def test_ending_a_predecessor_costs_the_same_however_many_others_there_are(folder: Path) -> None:
    steps: list[int] = []
    for count in (20, 4000):
        store = SqliteStore(folder / f"{count}.db")
        fan_in(store, count)
        steps += [end_one(store)]
        for claim in take(store, count - 10):
            end(store, claim, Done())
        steps += [end_one(store)]
        store.close()
    assert min(steps) > 20, "the counter counts"
    assert max(steps) <= min(steps) * 1.2


def spawn(count: int) -> tuple[NewJob, ...]:
    return tuple(job(f"c{number}", flow="w", child=True) for number in range(count))


BULK: dict[str, Callable[[SqliteStore, int], Callable[[], object]]] = {}


def bulk(name: str) -> Callable[[Any], Any]:
    return lambda made: BULK.setdefault(name, made)


@bulk("make children")
def make_children(store: SqliteStore, count: int) -> Callable[[], object]:
    with store.transaction() as tx:
        tx.flows.begin(NewFlow(id="w", name="w"))
        tx.jobs.enqueue([job("p", flow="w"), job("sum", flow="w", after=("p",))])
    claim = take_one(store)
    return lambda: end(store, claim, Done("1", spawn(count)))


@bulk("fail followers")
def fail_followers(store: SqliteStore, count: int) -> Callable[[], object]:
    put(store, job("p", priority=1), *(job(after=("p",)) for _ in range(count)))
    claim = take_one(store)
    return lambda: end(store, claim, GaveUp("x"))


@bulk("release followers")
def release_followers(store: SqliteStore, count: int) -> Callable[[], object]:
    put(store, job("p", priority=1), *(job(after=("p",)) for _ in range(count)))
    claim = take_one(store)
    return lambda: end(store, claim, Done())


@bulk("revive followers")
def revive_followers(store: SqliteStore, count: int) -> Callable[[], object]:
    fail_followers(store, count)()
    return lambda: retry(store, "p")


@bulk("cancel a flow")
def cancel_flow(store: SqliteStore, count: int) -> Callable[[], object]:
    with store.transaction() as tx:
        tx.flows.begin(NewFlow(id="w", name="w"))
        tx.jobs.enqueue([job(flow="w") for _ in range(count)])

    def work() -> None:
        with store.transaction() as tx:
            assert tx.flows.cancel("w").at_once == count

    return work


@bulk("retry a sequence")
def retry_sequence(store: SqliteStore, count: int) -> Callable[[], object]:
    with store.transaction() as tx:
        tx.flows.begin(NewFlow(id="w", name="w"))
        tx.jobs.enqueue([job(flow="w", sequence="a" if nr % 2 else None) for nr in range(count)])
        tx.flows.cancel("w")

    def work() -> None:
        with store.transaction() as tx:
            assert len(tx.flows.retry("w")) == count

    return work


@bulk("wait for many")
def wait_for_many(store: SqliteStore, count: int) -> Callable[[], object]:
    put(store, *(job(f"p{number}") for number in range(count)))
    return lambda: put(store, job("sum", after=tuple(f"p{number}" for number in range(count))))


# spec: FL-1, FL-2, FL-3, FL-4
@pytest.mark.parametrize("name", BULK)
def test_the_cost_of_many_grows_with_their_number_and_no_faster(folder: Path, name: str) -> None:
    steps: list[int] = []
    for count in (200, 2000):
        store = SqliteStore(folder / f"{count}.db")
        work = BULK[name](store, count)
        steps.append(steps_of(store, work))
        store.close()
    few, many = steps
    assert many <= 12 * few
    assert many <= 2000 * 700, "steps for each job"


# spec: FL-1, WK-3, WK-4
def test_jobs_without_flows_pay_one_statement_for_a_transaction(store: SqliteStore) -> None:
    put(store, *jobs(9))
    about = re.compile(r"chargehand_(edge|flow|sequence|once)\b")
    claims = take(store, 3)
    claimed = [sql for sql, _ in statements_of(store, lambda: take(store, 3)) if about.search(sql)]
    settled = [sql for sql, _ in statements_of(store, lambda: end(store, claims[0], Done())) if about.search(sql)]
    enqueued = [sql for sql, _ in statements_of(store, lambda: put(store, *jobs(9))) if about.search(sql)]
    assert (len(claimed), len(settled), len(enqueued)) == (0, 1, 1)


# spec: FL-1, FL-2, FL-6
def test_the_end_of_a_predecessor_searches_indexes(store: SqliteStore) -> None:
    put(store, *jobs(300), job("p", priority=2), job("q", priority=2), *(job(after=("p",)) for _ in range(9)))
    put(store, *(job(after=("q",), sequence="s", share="a") for _ in range(9)))
    first, second = take(store, 2)
    statements = statements_of(store, lambda: (end(store, first, Done()), end(store, second, GaveUp("x"))))
    steps = [step for sql, bindings in statements for step in plan(store, sql, bindings)]
    assert any("chargehand_edge_predecessor" in step for step in steps)
    assert [step for step in steps if re.search(r"SCAN (chargehand_|[efkip]\b)|TEMP B-TREE", step)] == []


# spec: WK-17
def test_a_claim_and_an_enqueue_cost_the_same_with_thousands_of_other_shares(folder: Path) -> None:
    steps: list[int] = []
    for count in (20, 4000):
        store = SqliteStore(folder / f"{count}.db")
        put(store, *jobs(count, share="many"))
        steps.append(steps_of(store, lambda store=store: put(store, job("one", share="few"))))
        steps.append(steps_of(store, lambda store=store: take(store, 2)))
        assert record(store, "one").state is State.RUNNING
        store.close()
    assert steps[2] <= steps[0] * 1.2
    assert steps[3] <= steps[1] * 1.2
