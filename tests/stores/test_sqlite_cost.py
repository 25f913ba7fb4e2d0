"""What SQLite does for a claim: by its own plan, and counted in steps of its machine. No clock is read."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import HOUR, ME, ask, cancel, end, job, jobs, put, retry, take

from chargehand.model.batch import Note, Want
from chargehand.model.job import Done, NewJob, Raised, settle
from chargehand.store import CrashReport, Retention
from chargehand.stores import sqlite_reading, sqlite_rows, sqlite_transaction
from chargehand.stores.sqlite import SqliteStore


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(folder / "store.db")
    yield made
    made.close()


def plan(store: SqliteStore, sql: str, bindings: Sequence[Any]) -> list[str]:
    db: Any = store._db
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]


def statements_of(store: SqliteStore, work: Callable[[], object]) -> list[tuple[str, Sequence[Any]]]:
    """Every statement that the work executes, with what it is given."""
    seen: list[tuple[str, Sequence[Any]]] = []

    def trace(_: object, sql: str, bindings: Sequence[Any] | None) -> bool:
        seen.append((sql, bindings or ()))
        return True

    db: Any = store._db
    db.set_exec_trace(trace)
    try:
        work()
    finally:
        db.set_exec_trace(None)
    return [(sql, bindings) for sql, bindings in seen if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", sql)]


def crowd(store: SqliteStore, count: int) -> None:
    """Jobs of every kind that a claim should not have to look at, and some that it takes."""
    put(store, *jobs(count), *jobs(count, delay_ms=HOUR), *jobs(count, queue="other"))
    finish(store, count, "q")
    take(store, count // 10)


def finish(store: SqliteStore, count: int, queue: str) -> None:
    with store.transaction() as tx:
        tx.enqueue([NewJob(id=f"finished-{queue}-{n}", queue=queue, priority=9) for n in range(count)])
        (grant,) = tx.claim([Want(queue, queue, count)], ME)
        tx.settle([made for claim in grant.claims if (made := settle(claim, Done()))], ME)


def analyse(store: SqliteStore) -> None:
    with store.transaction() as tx:
        tx.execute("ANALYZE")
        tx.execute("ANALYZE sqlite_schema")  # read the statistics at once


def fall_due(store: SqliteStore) -> None:
    with store.transaction() as tx:
        tx.execute("UPDATE chargehand_job SET run_at_ms = 1 WHERE waits_for = 'time'")  # as if the hour had passed


def note(store: SqliteStore) -> None:
    (claim,) = take(store, 1)
    with store.transaction() as tx:
        tx.note([Note(seq=claim.seq, fence=claim.fence, worker="w", age_ms=1)])


def report(store: SqliteStore, count: int) -> None:
    with store.transaction() as tx:
        tx.report([crash(number) for number in range(count)], ME)


def crash(number: int) -> CrashReport:
    return CrashReport(
        id=f"c{number}", component="w", crew="c", incarnation="i", pid=1, reason="r", text="t", exit_code=1,
        signal=None, job=None, memory=None, uptime_ms=None, charged=True, follows="f",
    )  # fmt: skip


def snap(store: SqliteStore) -> None:
    with store.transaction() as tx:
        tx.execute("INSERT INTO chargehand_history VALUES (1, '[]')")


def enqueue_taken(store: SqliteStore) -> None:
    put(store, job("first", key="k"))
    put(store, job("second", key="k"))


WORK: dict[str, tuple[Callable[[SqliteStore], object], str]] = {
    "claim": (lambda store: take(store, 5), "chargehand_job_ready"),
    "claim what has fallen due": (lambda store: (fall_due(store), take(store, 5)), "chargehand_job_future"),
    "claim and learn what is next": (lambda store: take(store, 1000), "COVERING INDEX chargehand_job_future"),
    "look for a pause": (lambda store: take(store, 1), "chargehand_pause USING PRIMARY KEY"),
    "claim and count what more there is": (lambda store: ask(store, 2, asleep=5), "chargehand_job_ready"),
    "settle as done": (lambda store: [end(store, claim, Done()) for claim in take(store, 3)], "PRIMARY KEY"),
    "settle as raised": (lambda store: [end(store, claim, Raised("x")) for claim in take(store, 3)], "PRIMARY KEY"),
    "settle a claim that is lost": (
        lambda store: [end(store, claim, Done()) for claim in take(store, 1) * 2],
        "PRIMARY KEY",
    ),
    "settle with a follow-up": (
        lambda store: [end(store, claim, Done("1", (job(),))) for claim in take(store, 1)],
        "PRIMARY KEY",
    ),
    "note": (note, "PRIMARY KEY"),
    "enqueue under a key that is taken": (enqueue_taken, "chargehand_job_key"),
    "cancel": (lambda store: (put(store, job("one")), cancel(store, "one")), "(id=?)"),
    "retry": (lambda store: (put(store, job("one")), cancel(store, "one"), retry(store, "one")), "(id=?)"),
    "prune": (lambda store: store.prune(Retention(age_ms=-1, count=100), 10), "chargehand_job_finished"),
    "prune reports": (
        lambda store: (report(store, 5), store.prune(Retention(crash_count=2), 10)),
        "COVERING INDEX chargehand_crash_at",
    ),
    "prune history": (
        lambda store: (snap(store), store.prune(Retention(history_age_ms=-HOUR), 10)),
        "chargehand_history USING INTEGER PRIMARY KEY (rowid<?)",
    ),
}


# spec: WK-3, WK-4, WK-12
@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize("name", WORK)
def test_what_is_done_all_day_searches_an_index_and_never_scans_or_sorts(
    store: SqliteStore, name: str, analysed: bool
) -> None:
    crowd(store, 200)
    if analysed:
        analyse(store)
    work, index = WORK[name]
    statements = [
        (sql, bindings)
        for sql, bindings in statements_of(store, lambda: work(store))
        if "run_at_ms = 1 " not in sql  # the test's own
    ]
    steps = [step for sql, bindings in statements for step in plan(store, sql, bindings)]
    assert any(index in step for step in steps), steps
    assert not [step for step in steps if re.search(r"SCAN chargehand_|TEMP B-TREE", step)]


# spec: SV-11, WK-3
def test_finding_orphans_looks_at_running_jobs_alone(store: SqliteStore) -> None:
    first, *_ = plan(store, sqlite_transaction._ORPHANS, ("life", "[]"))
    assert first.endswith("USING INDEX chargehand_job_running")


# spec: DB-2
def test_counting_is_answered_from_the_indexes_alone(store: SqliteStore) -> None:
    scans = [step for step in plan(store, sqlite_rows._COUNTS, ()) if "SCAN" in step]
    assert scans
    assert [step for step in scans if "COVERING INDEX" not in step] == []


def steps_of(store: SqliteStore, work: Callable[[], object]) -> int:
    """How many steps SQLite's machine makes for the work."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    db: Any = store._db
    db.set_progress_handler(count, 1)
    try:
        work()
    finally:
        db.set_progress_handler(None)
    return steps


KINDS: dict[str, Callable[[SqliteStore, int], object]] = {
    "waiting": lambda store, count: put(store, *jobs(count)),
    "future": lambda store, count: put(store, *jobs(count, delay_ms=HOUR)),
    "finished": lambda store, count: finish(store, count, "q"),
    "running": lambda store, count: (put(store, *jobs(count)), take(store, count)),
    "in another queue": lambda store, count: put(store, *jobs(count, queue="other")),
}


# spec: WK-3
@pytest.mark.parametrize("kind", KINDS)
def test_a_claim_takes_as_many_steps_with_thousands_of_other_jobs(folder: Path, kind: str) -> None:
    steps: list[int] = []
    for count in (20, 4000):
        store = SqliteStore(folder / f"{count}.db")
        put(store, *jobs(3, priority=5))
        KINDS[kind](store, count)
        put(store, *jobs(3, priority=5))
        steps.append(steps_of(store, lambda store=store: take(store, 2)))
        store.close()
    few, many = steps
    assert few > 20, "the counter counts"
    assert many <= few * 1.2


# spec: WK-4
def test_settling_takes_as_many_steps_with_thousands_of_other_jobs(folder: Path) -> None:
    steps: list[int] = []
    for count in (20, 4000):
        store = SqliteStore(folder / f"{count}.db")
        crowd(store, count)
        (claim,) = take(store, 1)
        steps.append(steps_of(store, lambda store=store, claim=claim: end(store, claim, Done())))
        store.close()
    assert steps[1] <= steps[0] * 1.2


# spec: WK-3
def test_thousands_that_fall_due_together_do_not_make_one_claim_slow(folder: Path) -> None:
    steps: list[int] = []
    for count in (250, 4000):
        store = SqliteStore(folder / f"{count}.db")
        put(store, *jobs(count, delay_ms=HOUR))
        fall_due(store)
        steps.append(steps_of(store, lambda store=store: take(store, 1)))
        store.close()
    assert steps[1] <= steps[0] * 1.2


# spec: WK-3
def test_counting_what_more_there_is_stops_at_what_was_asked_for(folder: Path) -> None:
    steps: list[int] = []
    for count in (20, 4000):
        store = SqliteStore(folder / f"{count}.db")
        put(store, *jobs(count))
        steps.append(steps_of(store, lambda store=store: ask(store, 0, asleep=5)))
        store.close()
    few, many = steps
    assert few > 20, "the counter counts"
    assert many <= few * 1.2


# spec: SV-12
@pytest.mark.parametrize("analysed", [False, True])
def test_finding_queues_with_waiting_work_searches_indexes_and_never_walks_over_the_jobs(
    store: SqliteStore, analysed: bool
) -> None:
    crowd(store, 200)
    if analysed:
        analyse(store)
    steps = plan(store, sqlite_reading._WAITING, (1,))
    on_jobs = {step for step in steps if "chargehand_job" in step}
    for index in ("chargehand_job_ready", "chargehand_job_future"):
        assert f"SEARCH chargehand_job USING COVERING INDEX {index} (queue>?)" in on_jobs
    assert {step for step in on_jobs if not step.startswith("SEARCH")} == set()


# spec: SV-12
@pytest.mark.parametrize("kind", [*KINDS, "fallen due"])
def test_finding_queues_with_waiting_work_takes_as_many_steps_with_thousands_of_jobs(folder: Path, kind: str) -> None:
    steps: list[int] = []
    for count in (20, 4000):
        store = SqliteStore(folder / f"{count}.db")
        put(store, *jobs(1), *jobs(1, delay_ms=HOUR), *jobs(1, queue="other"), *jobs(1, queue="third"))
        KINDS["future" if kind == "fallen due" else kind](store, count)
        if kind == "fallen due":
            fall_due(store)
        steps.append(steps_of(store, store.waiting))
        assert len(store.waiting()) >= 2
        store.close()
    few, many = steps
    assert few > 20, "the counter counts"
    assert many <= few * 1.2


# spec: SV-12
def test_finding_queues_with_waiting_work_takes_more_steps_with_more_queues_and_no_more_than_that(folder: Path) -> None:
    steps: list[int] = []
    for count in (10, 100):
        store = SqliteStore(folder / f"{count}.db")
        for number in range(count):
            put(store, *jobs(20, queue=f"q{number}"))
        steps.append(steps_of(store, store.waiting))
        assert len(store.waiting()) == count
        store.close()
    assert 5 * steps[0] < steps[1] <= 12 * steps[0]
