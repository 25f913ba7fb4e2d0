"""Tests for the cost of statements: by SQLite's query plan and by the steps of its virtual machine, not by a clock."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import HOUR, ME, ask, cancel, crew, end, job, jobs, put, register, release, retry, take

from chargehand import clock
from chargehand.model.batch import Note, Want
from chargehand.model.job import Done, Found, NewJob, Raised, Returned, settle
from chargehand.model.limits import LOOK_AT_ONCE
from chargehand.model.records import CrashReport, Discovery, JobFilter, RecurringPlan, Retention
from chargehand.stores.location import Location
from chargehand.stores.sqlite import reading, suspects
from chargehand.stores.sqlite.peek import Peek
from chargehand.stores.sqlite.store import SqliteStore


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(folder / "store.db")
    yield made
    made.close()


def plan(store: SqliteStore, sql: str, bindings: Sequence[Any]) -> list[str]:
    db: Any = store._db
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]


def statements_of(store: SqliteStore, work: Callable[[], object]) -> list[tuple[str, Sequence[Any]]]:
    """Returns every statement that the work executes, with its bindings."""
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
    """Creates jobs of every kind that a claim must not read, and some that it takes."""
    put(store, *jobs(count), *jobs(count, delay_ms=HOUR), *jobs(count, queue="other"))
    finish(store, count, "q")
    take(store, count // 10)


def finish(store: SqliteStore, count: int, queue: str) -> None:
    with store.transaction() as tx:
        tx.jobs.enqueue([NewJob(id=f"finished-{queue}-{n}", queue=queue, priority=9) for n in range(count)])
        (grant,) = tx.jobs.claim([Want(queue, queue, count)], ME)
        tx.jobs.settle([made for claim in grant.claims if (made := settle(claim, Done()))], ME)


def analyse(store: SqliteStore) -> None:
    with store.transaction() as tx:
        tx.execute("ANALYZE")
        tx.execute("ANALYZE sqlite_schema")  # read the statistics at once


def fall_due(store: SqliteStore) -> None:
    with store.transaction() as tx:
        tx.execute("UPDATE chargehand_job SET run_at_ms = 1 WHERE waits_for = 'time'")  # as if the hour had passed


def note(store: SqliteStore, progress: str | None = None) -> None:
    (claim,) = take(store, 1)
    with store.transaction() as tx:
        tx.jobs.note([Note(seq=claim.seq, claim=claim.number, worker="w", age_ms=1, progress=progress)])


def report(store: SqliteStore, count: int) -> None:
    with store.transaction() as tx:
        tx.fleet.report([crash(number) for number in range(count)], ME)


def crash(number: int) -> CrashReport:
    return CrashReport(
        id=f"c{number}", component="w", crew="c", incarnation="i", pid=1, reason="r", text="t", exit_code=1,
        signal=None, job=None, memory=None, uptime_ms=None, charged=True, follows="f",
    )  # fmt: skip


def snap(store: SqliteStore) -> None:
    with store.transaction() as tx:
        tx.execute("INSERT INTO chargehand_history VALUES (1, '[]')")


def discover(store: SqliteStore, *items: str) -> None:
    found = tuple(Found(item=item) for item in items)
    with store.transaction() as tx:
        tx.jobs.discover([Discovery(queue="q", found=found, priority=0, max_attempts=3, timeout_ms=1)])


def fire(store: SqliteStore) -> None:
    with store.transaction() as tx:
        assert tx.jobs.fire("plan-7", 7, 8, job())


def plan_some(store: SqliteStore, count: int) -> None:
    with store.transaction() as tx:
        plans = [RecurringPlan(name=f"plan-{n}", schedule="s", job="{}", next_run_ms=n) for n in range(count)]
        tx.jobs.recur(plans, ME)


def limited(store: SqliteStore, count: int) -> None:
    """Creates a key with one running job and so many that were set aside, and other keys with one job each."""
    register(store, crew("q", limit=count * 9, limit_per_key=1))
    put(store, *jobs(count, limit_key="k", priority=3))
    take(store, 1)
    while ask(store, 1).next_in_ms == 0:
        pass
    put(store, *(job(limit_key=f"key-{number}") for number in range(20)))


def enqueue_taken(store: SqliteStore) -> None:
    put(store, job("first", key="k"))
    put(store, job("second", key="k"))


def replace_waiting(store: SqliteStore) -> None:
    put(store, job("first", key="k"))
    put(store, job("second", key="k", replace=True))


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
    "replace what waits under a key": (replace_waiting, "chargehand_job_key (queue=? AND key=?)"),
    "note how far it is": (lambda store: note(store, "1"), "PRIMARY KEY"),
    "release": (lambda store: [release(store, claim) for claim in take(store, 1)], "(id=?)"),
    "discover": (lambda store: (discover(store, "a", "b"), discover(store, "a", "c")), "chargehand_job_item (queue=?"),
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


LIMITED: dict[str, tuple[Callable[[SqliteStore], object], str]] = {
    "claim": (lambda store: take(store, 5), "chargehand_job_ready"),
    "count what runs": (lambda store: take(store, 1), "COVERING INDEX chargehand_job_running (queue=?)"),
    "count what runs of a key": (
        lambda store: take(store, 1),
        "COVERING INDEX chargehand_job_running (queue=? AND limit_key>?)",
    ),
    "settle as done": (
        lambda store: [end(store, claim, Done()) for claim in take(store, 3)],
        "INDEX chargehand_job_limited (queue=? AND limit_key=?)",
    ),
    "settle as raised": (
        lambda store: [end(store, claim, Raised("x")) for claim in take(store, 3)],
        "INDEX chargehand_job_limited (queue=? AND limit_key=?)",
    ),
    "cancel": (
        lambda store: (put(store, job("one", limit_key="k")), cancel(store, "one")),
        "INDEX chargehand_job_limited (queue=? AND limit_key=?)",
    ),
    "fire": (fire, "chargehand_recurring USING PRIMARY KEY"),
}


# spec: WK-3, WK-11, WK-13
@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize("name", LIMITED)
def test_limits_search_an_index_and_never_scan_or_sort(store: SqliteStore, name: str, analysed: bool) -> None:
    crowd(store, 200)
    limited(store, 300)
    plan_some(store, 50)
    if analysed:
        analyse(store)
    work, index = LIMITED[name]
    statements = statements_of(store, lambda: work(store))
    steps = [step for sql, bindings in statements for step in plan(store, sql, bindings)]
    assert any(index in step for step in steps), steps
    assert not [step for step in steps if re.search(r"SCAN chargehand_|TEMP B-TREE", step)]


# spec: WK-8
def test_finding_those_to_be_cancelled_looks_at_running_jobs_alone(store: SqliteStore) -> None:
    first, *_ = plan(store, reading._CANCELLING, ())
    assert first.endswith("USING INDEX chargehand_job_running")


# spec: SV-11, WK-3
def test_finding_orphans_looks_at_running_jobs_alone(store: SqliteStore) -> None:
    first, *_ = plan(store, suspects._ORPHANS, ("life", "[]"))
    assert first.endswith("USING INDEX chargehand_job_running")


# spec: DB-2
def test_counting_is_answered_from_the_indexes_alone(store: SqliteStore) -> None:
    scans = [step for step in plan(store, reading._COUNTS, ()) if "SCAN" in step]
    assert scans
    few = "chargehand_job_running"  # a job that the node holds ahead is told apart by its row
    assert [step for step in scans if "COVERING INDEX" not in step and few not in step] == []


def steps_of(store: SqliteStore, work: Callable[[], object]) -> int:
    """Returns how many steps SQLite's virtual machine makes for the work."""
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
    "with items": lambda store, count: discover(store, *(f"item-{number}" for number in range(count))),
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


# spec: WK-3, WK-13
@pytest.mark.parametrize("work", ["claim", "claim in vain", "settle"])
def test_work_takes_as_many_steps_with_thousands_set_aside(folder: Path, work: str) -> None:
    steps: list[int] = []
    for count in (20, 4000):
        store = SqliteStore(folder / f"{count}.db")
        limited(store, count)
        assert store.jobs.counts()[0].limited == count - 1
        if work == "claim in vain":
            assert len(take(store, 100)) == 20
        claims = take(store, 2) if work == "settle" else []
        steps.append(
            steps_of(store, lambda store=store, claims=claims: [end(store, claim, Done()) for claim in claims])
            if claims
            else steps_of(store, lambda store=store: take(store, 2))
        )
        store.close()
    few, many = steps
    assert few > 20, "the counter counts"
    assert many <= few * 1.2


# spec: WK-3, WK-13
def test_thousands_over_their_limit_do_not_make_one_claim_slow(folder: Path) -> None:
    steps: list[int] = []
    for count in (LOOK_AT_ONCE + 10, 4000):
        store = SqliteStore(folder / f"{count}.db")
        register(store, crew("q", limit_per_key=1))
        put(store, *jobs(count, limit_key="k"))
        steps.append(steps_of(store, lambda store=store: take(store, 1)))
        store.close()
    assert steps[1] <= steps[0] * 1.2


# spec: WK-3, WK-13
def test_a_queue_without_a_limit_pays_nothing_for_those_that_have_one(folder: Path) -> None:
    """Only the query for the limit itself is allowed."""
    steps: list[int] = []
    for registered in ([], [crew("other", "other", limit=1, limit_per_key=1)]):
        store = SqliteStore(folder / f"{len(registered)}.db")
        register(store, *registered)
        put(store, *jobs(50, limit_key="k"))

        def work(store: SqliteStore = store) -> None:
            for claim in take(store, 5):
                end(store, claim, Done())

        steps.append(steps_of(store, work))
        statements = [sql for sql, _ in statements_of(store, work)]
        assert not [sql for sql in statements if "waits_for = 'limit'" in sql or "count(*)" in sql]
        store.close()
    assert steps[1] <= steps[0] + 20


# spec: WK-10
@pytest.mark.parametrize("kind", ["done before", "of other items"])
def test_finding_an_item_again_takes_as_many_steps_with_thousands_of_jobs(folder: Path, kind: str) -> None:
    steps: list[int] = []
    for count in (20, 4000):
        store = SqliteStore(folder / f"{count}.db")
        finish(store, count, "q")
        with store.transaction() as tx:
            name = "'again'" if kind == "done before" else "id"
            tx.execute(f"UPDATE chargehand_job SET item = {name}, finished_ms = 1")
        steps.append(steps_of(store, lambda store=store: discover(store, "again")))
        assert store.jobs.counts()[0].queued == 1
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
    steps = plan(store, reading._WAITING, (1,))
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
        steps.append(steps_of(store, store.jobs.waiting))
        assert len(store.jobs.waiting()) >= 2
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
        steps.append(steps_of(store, store.jobs.waiting))
        assert len(store.jobs.waiting()) == count
        store.close()
    assert 5 * steps[0] < steps[1] <= 12 * steps[0]


def test_a_page_of_jobs_with_a_tag_is_read_in_the_order_of_the_tags(store: SqliteStore) -> None:
    put(store, *(job(tags=("all",)) for _ in range(3)))
    ((sql, bindings),) = statements_of(store, lambda: store.jobs.find(JobFilter(tag="all", queue="q")))
    steps = plan(store, sql, bindings)
    assert steps[0].startswith("SEARCH chargehand_tag USING PRIMARY KEY (tag=?)")
    assert steps[1] == "SEARCH chargehand_job USING INTEGER PRIMARY KEY (rowid=?)"
    of_waiting = "SEARCH e USING COVERING INDEX chargehand_edge_open (job=?)"  # how many others a job waits for
    assert (steps[2], steps[-1]) == ("CORRELATED SCALAR SUBQUERY 1", of_waiting)
    assert not [step for step in steps if "ORDER BY" in step]


def rated(store: SqliteStore, count: int) -> None:
    """Creates a queue with so many starts, a key with as many jobs that were set aside, and other keys with one job."""
    register(store, crew("q", rate=f"{count * 9}/day", rate_per_key=f"{count}/day"))
    put(store, *jobs(count, limit_key="k", priority=3))
    for number in range(count):
        with store.transaction() as tx:
            tx.execute("INSERT INTO chargehand_start VALUES ('q', '', ?1, 1, ?1), ('q', 'k', ?1, 1, ?1)", (number + 1,))
    with store.transaction() as tx:  # within the last day, one in each millisecond
        tx.execute("UPDATE chargehand_start SET at_ms = at_ms + ?", (clock.now_ms() - HOUR,))
    while ask(store, 1).next_in_ms == 0:
        pass
    put(store, *(job(limit_key=f"key-{number}") for number in range(20)))


# spec: WK-19
@pytest.mark.parametrize("analysed", [False, True])
def test_a_claim_from_a_queue_with_a_rate_costs_the_same_however_much_waits_and_was_started(
    folder: Path, analysed: bool
) -> None:
    steps: list[int] = []
    for count in (250, 4000):
        store = SqliteStore(folder / f"{count}.db")
        rated(store, count)
        assert store.jobs.counts()[0].limited == count
        if analysed:
            analyse(store)
        steps.append(steps_of(store, lambda store=store: take(store, 2)))
        claim = take(store, 1)[0]
        steps.append(steps_of(store, lambda store=store, claim=claim: end(store, claim, Returned())))
        store.close()
    claimed, given_back, claimed_later, given_back_later = steps
    assert claimed > 20, "the counter counts"
    assert claimed_later <= claimed * 1.2
    assert given_back_later <= given_back * 1.2


# spec: WK-19
def test_queues_without_a_rate_pay_nothing_for_it(store: SqliteStore) -> None:
    register(store, crew("q"), crew("limited", queue="limited", limit=9, limit_per_key=9))
    put(store, *jobs(9), *jobs(9, queue="limited", limit_key="k"))

    def work() -> None:
        for queue in ("q", "limited"):
            first, second = take(store, 2, queue=queue)
            end(store, first, Done())
            end(store, second, Returned())

    about = [sql for sql, _ in statements_of(store, work) if "chargehand_start" in sql or "chargehand_opening" in sql]
    assert about == []


def test_doctor_scans_no_finished_jobs(store: SqliteStore) -> None:  # spec: CL-4
    """Otherwise a diagnosis of a million jobs would use up its time for them."""
    finish(store, 50, "q")
    asked: list[tuple[str, Sequence[Any]]] = []
    peek = Peek(Location(store.path))
    db: Any = peek._db
    read = db.all

    def heard(sql: str, bindings: Sequence[Any] = ()) -> Any:
        asked.append((sql, bindings))
        return read(sql, bindings)

    db.all = heard
    for look in (peek.last_done, peek.last_error):
        look("q")
    peek.failed_since("q", 0)
    peek.poison(2)
    peek.next_run()
    peek.close()
    assert len(asked) == 5
    for sql, bindings in asked:
        steps = plan(store, sql, bindings)
        assert not [step for step in steps if re.match(r"(SCAN|SEARCH) chargehand_job(?! USING)", step)], (sql, steps)
