"""Tests for what only the PostgreSQL store does for flows: edges that are due, open transactions of callers, and what a
node that died has left undone."""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from builders import (
    ME,
    begin,
    cancel,
    cancel_flow,
    crew,
    end,
    fan_out,
    flow_of,
    job,
    put,
    record,
    register,
    state,
    take,
    take_named,
)

import pgserver
from chargehand.errors import Conflict
from chargehand.ids import new_id, new_ids
from chargehand.model.batch import Batch, Want
from chargehand.model.flows import NewFlow, PredecessorFilter
from chargehand.model.job import Done, GaveUp, NewJob, State, settle
from chargehand.testing import eventually

if (packages := pgserver.missing()) is not None:
    pytest.skip(f"the PostgreSQL store is NOT tested: pip install {packages}", allow_module_level=True)

import psycopg

from chargehand.stores.postgres import ending
from chargehand.stores.postgres.address import parse
from chargehand.stores.postgres.reading import PostgresJobReading
from chargehand.stores.postgres.session import Session
from chargehand.stores.postgres.store import PostgresStore

MOST = 0.9
"""Seconds within which a turn ends that waits for nobody: a lock would be waited for as long as this."""


@pytest.fixture
def url() -> str:
    return pgserver.new_store()


@pytest.fixture
def node(url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(parse(url), node=True)
    register(store, crew("q"))
    yield store
    store.close()


def turn(store: PostgresStore, *ends: tuple[str, Done | GaveUp], queue: str = "q") -> list[str]:
    """Settles jobs and claims in one turn. Returns what was claimed."""
    made = tuple(settle(take_named(store, name), outcome) for name, outcome in ends)
    began = time.monotonic()
    result = store.turn(Batch(settlements=tuple(s for s in made if s is not None), wants=(Want(queue, queue, 9),)), ME)
    assert time.monotonic() - began < MOST
    return [claim.id for claim in result.grants[0].claims]


# spec: FL-1
@pytest.mark.parametrize("outcome", [Done("1"), GaveUp("x")])
def test_an_open_transaction_of_a_caller_holds_no_predecessor_up(
    url: str, node: PostgresStore, outcome: Done | GaveUp
) -> None:
    begin(node, "w", job("a", queue="r"), job("other", queue="s"))
    at = parse(url)
    with psycopg.connect(at.conninfo) as connection:
        node.within(connection).enqueue([job("f", after=("a",), flow="w")])
        assert turn(node, ("a", outcome)) == [], "nobody sees the follower yet"
        assert turn(node, ("other", Done("1"))) == []
        assert flow_of(node, "w").ended_ms is None, "a job is being added to it"
        connection.commit()
    if isinstance(outcome, Done):
        eventually(lambda: turn(node) == ["f"], 5, what="the follower is claimed")
    else:
        eventually(lambda: turn(node) == [] and state(node, "f") is State.FAILED, 5, what="the follower fails")
        assert flow_of(node, "w").state == "failed"


# spec: FL-4
@pytest.mark.parametrize("ended", ["done", "failed", "cancelled"])
def test_a_flow_ends_with_the_turn_after_that_of_its_last_job(node: PostgresStore, ended: str) -> None:
    begin(node, "w", job("a"), job("b", queue="r"))
    begin(node, "called", NewJob(id="c", queue="q"))
    begin(node, NewFlow(id="calls", name="calls", on_end=NewJob(id="?", queue="hooks")), job("d"))
    if ended == "cancelled":
        cancel(node, "b")
    else:
        end(node, take_named(node, "b"), Done("1") if ended == "done" else GaveUp("no"))
    ends = tuple(filter(None, (settle(claim, Done("1")) for claim in take(node, 5))))
    assert len(ends) == 3
    result = node.turn(Batch(settlements=ends), ME, finish=False)
    assert (result.ended_flows, flow_of(node, "w").ended_ms) == ((), None)
    result = node.turn(Batch(hinted=True), ME, finish=False)
    assert sorted(result.ended_flows) == ["called", "w"]
    found = flow_of(node, "w")
    assert (found.state, found.ends, flow_of(node, "called").state) == (ended, 1, "done")
    assert flow_of(node, "calls").ended_ms is None, "the job for its end is made in a transaction of its own"
    left = node.finish()
    assert (left.ended_flows, left.woken) == (("calls",), frozenset({"hooks"}))
    assert node.turn(Batch(hinted=True), ME, finish=False).ended_flows == ()
    assert flow_of(node, "w").ends == 1


# spec: FL-4
@pytest.mark.parametrize("commits", [True, False])
def test_a_flow_to_which_a_job_is_being_added_does_not_end_with_a_turn(
    url: str, node: PostgresStore, commits: bool
) -> None:
    begin(node, "w", job("a"))
    made = settle(take_named(node, "a"), Done("1"))
    assert made is not None
    node.turn(Batch(settlements=(made,)), ME, finish=False)
    with psycopg.connect(parse(url).conninfo) as connection:
        node.within(connection).enqueue([job("more", flow="w")])
        assert node.turn(Batch(hinted=True), ME, finish=False).ended_flows == ()
        (connection.commit if commits else connection.rollback)()
    if commits:
        assert turn(node) == ["more"]
        assert flow_of(node, "w").state == "running"
        return
    with node.transaction() as tx:
        tx.flows.sweep(100)
    assert flow_of(node, "w").state == "done"


# spec: FL-4
def test_a_flow_that_got_a_job_before_it_could_end_goes_on(node: PostgresStore) -> None:
    begin(node, "w", job("a"))
    made = settle(take_named(node, "a"), Done("1"))
    assert made is not None
    node.turn(Batch(settlements=(made,)), ME, finish=False)
    put(node, job("more", flow="w"))
    assert node.turn(Batch(hinted=True), ME, finish=False).ended_flows == ()
    assert flow_of(node, "w").state == "running"
    end(node, take_named(node, "more"), Done("1"))
    assert (flow_of(node, "w").state, flow_of(node, "w").ends) == ("done", 1)


# spec: FL-3, WK-2
@pytest.mark.parametrize("options", [{}, {"unique_for_ms": 1000}, {"replace": True}])
def test_a_follower_that_no_node_has_looked_at_waits_for_the_job_that_has_the_key_of_a_child(
    url: str, node: PostgresStore, options: dict[str, Any]
) -> None:
    put(node, job("p", queue="r"), job("holder", queue="s", key="k", **options))
    with psycopg.connect(parse(url).conninfo) as connection:
        node.within(connection).enqueue([job("f", after=("p",))])
    assert turn(node, ("p", fan_out(job("c", queue="s", key="k", **options)))) == []
    assert turn(node) == []
    turn(node, ("holder", Done("1")))
    eventually(lambda: turn(node) == ["f"] or state(node, "f") is State.RUNNING, 5)


# spec: ST-3, FL-6
def test_an_open_transaction_that_would_replace_a_running_job_holds_no_outcome_up(
    url: str, node: PostgresStore
) -> None:
    put(node, job("a", queue="r", key="k"), job("b", queue="s"))
    ends = ("a", Done("1")), ("b", Done("1"))
    with psycopg.connect(parse(url).conninfo) as connection:
        claims = {name: take_named(node, name) for name, _ in ends}
        (answer,) = node.within(connection).enqueue([job("n", queue="r", key="k", replace=True)])
        assert (answer.id, answer.replaced) == ("a", False)
        made = tuple(filter(None, (settle(claims[name], outcome) for name, outcome in ends)))
        began = time.monotonic()
        assert node.turn(Batch(settlements=made), ME).lost == ()
        assert time.monotonic() - began < MOST
    assert (state(node, "a"), state(node, "b")) == (State.DONE, State.DONE)


# spec: FL-4
def test_a_flow_does_not_end_while_an_outcome_of_another_adds_a_job_to_it(url: str, node: PostgresStore) -> None:
    begin(node, "w", job("last", queue="r"))
    put(node, job("outside", queue="s"))
    other = PostgresStore(parse(url))
    made = settle(take_named(other, "outside"), Done("1", (job("more", flow="w"),)))
    assert made is not None
    with other.transaction() as tx:
        assert tx.jobs.settle([made], ME) == []
        turn(node, ("last", Done("1")))
        assert flow_of(node, "w").ended_ms is None, "a job is being added to it"
    assert turn(node) == ["more"]
    assert flow_of(node, "w").ended_ms is None
    other.close()


# spec: FL-4
def test_a_flow_does_not_end_whose_job_was_committed_while_it_was_being_locked(
    url: str, node: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(node, "w", job("last", queue="r"))
    at, lock = parse(url), 4711
    slow = ending._SQL["ended"].replace(b"FROM n ", b"FROM (SELECT *, pg_advisory_xact_lock(%d) FROM n) AS n " % lock)
    assert slow != ending._SQL["ended"]
    monkeypatch.setitem(ending._SQL, "ended", slow)
    with psycopg.connect(at.conninfo) as holder, psycopg.connect(at.conninfo) as caller, ThreadPoolExecutor(1) as pool:
        holder.execute(f"SELECT pg_advisory_lock({lock})".encode())
        node.within(caller).enqueue([job("more", flow="w")])
        turning = pool.submit(turn, node, ("last", Done("1")))
        waits = f"SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = {lock} AND NOT granted"
        eventually(lambda: pgserver.admin(waits), what="the flow has no live job, and is about to be locked")
        caller.commit()
        holder.execute(f"SELECT pg_advisory_unlock({lock})".encode())
        turning.result()
    assert flow_of(node, "w").ended_ms is None
    assert turn(node) == ["more"]


# spec: FL-1
def test_a_caller_that_has_locked_the_follower_holds_no_turn_up(url: str, node: PostgresStore) -> None:
    put(node, job("a", queue="r"), job("f", after=("a",), key="k"))
    at = parse(url)
    with psycopg.connect(at.conninfo) as connection:
        node.within(connection).enqueue([job("new", key="k", replace=True, payload="2")])
        assert turn(node, ("a", Done("1"))) == []
        assert turn(node) == []
        connection.commit()
    eventually(lambda: turn(node) == ["f"], 5, what="the follower is claimed")
    assert bytes(record(node, "f").payload) == b"2"


# spec: FL-1
def test_an_outcome_that_waits_for_a_follower_has_locked_none_after_it(url: str, node: PostgresStore) -> None:
    """Otherwise two outcomes with the same followers wait for each other."""
    put(node, job("a", queue="r"), job("b", queue="s"), *(job(f"f{n}", after=("a", "b")) for n in range(3)))
    a, b = take_named(node, "a"), take_named(node, "b")
    at = parse(url)
    stores = [PostgresStore(at) for _ in range(2)]
    lock = f"SELECT FROM {at.schema}.chargehand_live l JOIN {at.schema}.chargehand_job j USING (seq) WHERE j.id = "
    free = " FOR UPDATE OF l SKIP LOCKED"

    def waiting() -> int:
        ((count,),) = pgserver.admin(
            f"SELECT count(*) FROM pg_locks w WHERE NOT granted AND EXISTS (SELECT FROM pg_locks l WHERE l.pid = w.pid "
            f"AND l.relation = '{at.schema}.chargehand_live'::regclass)"
        )
        return int(count)

    with ThreadPoolExecutor(2) as pool, psycopg.connect(at.conninfo) as one, psycopg.connect(at.conninfo) as two:
        assert one.execute(f"{lock}'f1'{free}".encode()).rowcount == 1
        assert two.execute(f"{lock}'f2'{free}".encode()).rowcount == 1
        first = pool.submit(end, stores[0], a, Done("1"))
        eventually(lambda: waiting() == 1, 10, what="the first outcome waits for f1")
        two.commit()
        second = pool.submit(end, stores[1], b, Done("1"))
        eventually(lambda: waiting() == 2, 10, what="the second outcome waits for f0, which the first has locked")
        assert two.execute(f"{lock}'f2'{free}".encode()).rowcount == 1, "nobody has locked f2"
        two.commit()
        one.commit()
        assert (first.result(30), second.result(30)) == ([], [])
    assert turn(node) == ["f0", "f1", "f2"]
    for store in stores:
        store.close()


# spec: FL-2
def test_what_a_node_left_undone_is_found_by_a_sweep(node: PostgresStore) -> None:
    begin(node, "w", job("a", queue="r", flow="w"), job("b", queue="s", flow="w"))
    put(node, job("f", after=("a",)), job("g", after=("b",)), job("h", after=("g",)))
    with node.transaction() as tx:  # as if it had died after the commit of outcomes, before what follows from them
        tx.execute(
            "INSERT INTO chargehand_end (seq, finished_ms, run_at_ms, attempts, crashes, interruptions, queue, state, "
            "flow, error) SELECT seq, 1, 1, 1, 0, 0, queue, CASE queue WHEN 'r' THEN 'done' ELSE 'failed' END, flow, "
            "'x' FROM chargehand_live WHERE queue IN ('r', 's')"
        )
        tx.execute("DELETE FROM chargehand_live WHERE queue IN ('r', 's')")
    with node.transaction() as tx:
        assert tx.flows.sweep(100) > 0
    assert tx.ended_flows == ("w",)
    assert (state(node, "g"), state(node, "h")) == (State.FAILED, State.FAILED)
    assert turn(node) == ["f"]
    with node.transaction() as tx:
        assert tx.flows.sweep(100) == 0


# spec: FL-1, FL-3
def test_the_cost_of_a_fan_in_does_not_grow_while_old_rows_cannot_be_removed(url: str, node: PostgresStore) -> None:
    names = [new_id() for _ in range(3000)]
    put(node, *(NewJob(id=name, queue="r") for name in names), job("f", after=tuple(names)))
    with psycopg.connect(parse(url).conninfo) as old:
        old.execute("SELECT pg_current_xact_id()")  # pins what vacuum may remove
        times: list[float] = []
        while True:
            claims = node.turn(Batch(wants=(Want("r", "r", 100),)), ME).grants[0].claims
            if not claims:
                break
            ends = tuple(made for claim in claims if (made := settle(claim, Done("1"))) is not None)
            began = time.monotonic()
            node.turn(Batch(settlements=ends), ME)
            times.append(time.monotonic() - began)
    assert turn(node) == ["f"]
    assert sorted(times[-10:])[5] < 5 * sorted(times[:10])[5] + 0.02


# spec: FL-2
def test_a_retry_reads_each_job_of_a_chain_a_few_times(node: PostgresStore) -> None:
    names = [new_id() for _ in range(1000)]
    put(node, job("a"), *(NewJob(id=name, queue="r", after=(before,)) for before, name in pairwise(["a", *names])))
    cancel(node, "a")
    with node.transaction() as tx:
        assert tx.jobs.retry(["a"]) == ["a"]
        tables = "'chargehand_edge', 'chargehand_end'"
        read = f"SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables WHERE relname IN ({tables})"
        ((rows,),) = tx.execute(read)
    assert record(node, names[-1]).waits_for == 1
    assert rows < 30 * len(names)


def rows_read(tx: Any) -> int:
    """Returns how many rows statements have read in tables of jobs, of which this connection knows alone so far."""
    tables = "'chargehand_job', 'chargehand_live', 'chargehand_end', 'chargehand_edge'"
    ((rows,),) = tx.execute(
        f"SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables WHERE relname IN ({tables})"
    )
    return int(rows)


# spec: FL-2, FL-6
def test_a_retry_reads_each_job_of_a_sequence_a_few_times(node: PostgresStore) -> None:
    names = [new_id() for _ in range(1000)]
    put(node, *(NewJob(id=name, queue="r", sequence="a") for name in names), job("last", sequence="a"))
    with node.transaction() as tx:
        tx.jobs.cancel(names)
    with node.transaction() as tx:
        before = rows_read(tx)
        assert len(tx.jobs.retry(names)) == len(names)
        read = rows_read(tx) - before
    assert [claim.id for claim in take(node, 9)] == ["last"]
    assert read < 100 * len(names)


# spec: FL-2
@pytest.mark.parametrize("ends", ["fails", "is cancelled"])
def test_a_long_chain_fails_in_a_few_statements(
    node: PostgresStore, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    names = [new_id() for _ in range(1000)]
    begin(node, "w", NewJob(id=names[0], queue="r", flow="w"))
    put(node, *(NewJob(id=name, queue="q", flow="w", after=(before,)) for before, name in pairwise(names)))
    last = job("last", flow="w", after=(names[-1],), if_failed="run")
    put(node, last, job("end", after=(last.id,)))
    sent: list[bytes] = []
    send = Session.send
    monkeypatch.setattr(Session, "send", lambda db, sql, args=(): (sent.append(sql), send(db, sql, args))[1])
    with node.transaction() as tx:
        if ends == "fails":
            made = settle(tx.jobs.claim([Want("r", "r", 1)], ME)[0].claims[0], GaveUp("x"))
            assert made is not None
            assert tx.jobs.settle([made], ME) == []
        else:
            assert [each.at_once for each in tx.jobs.cancel(names[:1])] == [True]
        tables = "'chargehand_edge', 'chargehand_live'"
        read = f"SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables WHERE relname IN ({tables})"
        ((rows,),) = tx.execute(read)
    assert len(sent) < 100
    assert rows < 30 * len(names)
    monkeypatch.undo()
    what = "failed: x" if ends == "fails" else "was cancelled"
    assert record(node, names[1]).error == f"predecessor {names[0]} (r) {what}"
    assert record(node, names[2]).error == f"predecessor {names[1]} (q) failed: predecessor {names[0]} (r) {what}"
    assert (state(node, names[-1]), record(node, names[-1]).reason) == (State.FAILED, "predecessor")
    assert turn(node) == ["last"]
    assert (state(node, "end"), record(node, "end").waits_for) == (State.QUEUED, 1)


# spec: FL-2
def test_a_follower_that_is_locked_deep_in_a_chain_fails_later(url: str, node: PostgresStore) -> None:
    put(node, job("a", queue="r"), *(job(f"f{n}", after=(f"f{n - 1}" if n else "a",), key=f"k{n}") for n in range(5)))
    with psycopg.connect(parse(url).conninfo) as connection:
        node.within(connection).enqueue([job("new", key="k2", replace=True, payload="2")])
        assert turn(node, ("a", GaveUp("x"))) == []
        assert [state(node, f"f{n}") for n in (0, 1)] == [State.FAILED] * 2
        assert [state(node, f"f{n}") for n in (2, 3, 4)] == [State.QUEUED] * 3
        connection.commit()
    eventually(lambda: turn(node) == [] and state(node, "f4") is State.FAILED, 5, what="the last one fails")
    assert state(node, "f2") is State.FAILED


# spec: FL-4
@pytest.mark.parametrize("by", ["spawning", "adding"])
def test_what_is_being_added_to_a_flow_while_it_is_cancelled_is_cancelled(
    url: str, node: PostgresStore, by: str
) -> None:
    """The transaction that adds has looked for the cancel already, and the cancel does not see yet what it adds."""
    begin(node, "w", job("p"))
    claim = take_named(node, "p")
    other = PostgresStore(parse(url))
    with ThreadPoolExecutor() as pool:
        with node.transaction() as tx:
            if by == "adding":
                tx.jobs.enqueue([job("c", flow="w")])
            else:
                done = settle(claim, fan_out(job("c", flow="w")))
                assert done is not None
                tx.jobs.settle([done], ME)
            cancelling = pool.submit(cancel_flow, other, "w")
            eventually(lambda: waiting(url), what="a transaction that waits for a lock")
        cancelled = cancelling.result(timeout=20)
    assert cancelled.at_once == 1
    assert [one.id for one in cancelled.running] == (["p"] if by == "adding" else [])
    assert state(node, "c") is State.CANCELLED
    other.close()


def waiting(url: str) -> bool:
    """Returns whether a session that has read the flows of this store waits for a lock."""
    flows = f"'{parse(url).schema}.chargehand_flow'::regclass"
    return bool(
        pgserver.admin(
            "SELECT FROM pg_locks w WHERE NOT granted AND EXISTS (SELECT FROM pg_locks l WHERE l.pid = w.pid "
            f"AND l.relation = {flows})"
        )
    )


# spec: FL-3
@pytest.mark.parametrize("spawned", [False, True], ids=["named", "spawned"])
def test_a_page_of_results_costs_what_it_has(node: PostgresStore, spawned: bool) -> None:
    names = list(new_ids(2000))
    put(node, job("z"), job("y", after=("z",)))
    with node.transaction() as tx:
        tx.execute("ANALYZE chargehand_job, chargehand_live, chargehand_end, chargehand_edge")  # when they were small
    children = [NewJob(id=name, queue="r") for name in names]
    if spawned:
        put(node, job("p", queue="t"), job("f", after=("p",), if_failed="run"))
        end(node, take_named(node, "p"), fan_out(*children))
    else:
        put(node, *children, job("f", after=tuple(names)))
    cancel(node, *names)
    with node.transaction() as tx:
        before = rows_read(tx)
        reading, after, found = PostgresJobReading(tx._db), None, list[str]()  # pyright: ignore
        while page := reading.predecessors(PredecessorFilter(job="f", queue="r", after=after, limit=20)):
            found += [each.id for each in page]
            after = page[-1].nr, page[-1].ordinal
        read = rows_read(tx) - before
    assert found == names
    assert read < 5 * len(names)


# spec: FL-1
def test_many_followers_of_one_call_cost_a_few_rows_each(node: PostgresStore) -> None:
    put(node, job("z"), job("y", after=("z",)))
    with node.transaction() as tx:
        tx.execute("ANALYZE chargehand_job, chargehand_live, chargehand_end, chargehand_edge")  # when they were small
    followers = [NewJob(id=new_id(), queue="r", after=("a",)) for _ in range(3000)]
    with node.transaction() as tx:
        before = rows_read(tx)
        tx.jobs.enqueue([job("a"), *followers])
        read = rows_read(tx) - before
    assert record(node, followers[-1].id).waits_for == 1
    assert read < 10 * len(followers)


def work_read(store: PostgresStore) -> int:
    """Returns how many rows of jobs and edges, and pages of their indexes, ended transactions have read."""
    tables = "('chargehand_job', 'chargehand_live', 'chargehand_end', 'chargehand_edge')"
    with store.transaction() as tx:  # what a connection has read is counted after its transaction
        tx.execute("SELECT pg_stat_force_next_flush()")
    with store.transaction() as tx:
        ((rows,),) = tx.execute(
            "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_user_tables "
            f"WHERE schemaname = current_schema() AND relname IN {tables}"
        )
        ((pages,),) = tx.execute(
            "SELECT sum(idx_blks_read + idx_blks_hit) FROM pg_statio_user_indexes "
            f"WHERE schemaname = current_schema() AND relname IN {tables}"
        )
    return int(rows + pages)


def work_off_flows(store: PostgresStore, flows: int, at_once: int) -> float:
    """Adds flows of five jobs, one of which has three children, and works them off. Returns what was read for a job."""
    with store.transaction() as tx:
        for _ in range(flows):
            flow = NewFlow(id=new_id(), name="five")
            first = job(new_id(), flow=flow.id, payload="3")
            tx.flows.begin(flow)
            tx.jobs.enqueue([first, job(new_id(), flow=flow.id, after=(first.id,))])
    before, done = work_read(store), 0
    while claims := take(store, at_once):
        ends = [
            settle(claim, fan_out(*(job(new_id(), flow=claim.flow) for _ in range(3 * (claim.payload == "3")))))
            for claim in claims
        ]
        store.turn(Batch(settlements=tuple(filter(None, ends))), ME)
        done += len(claims)
    assert done == 5 * flows
    return (work_read(store) - before) / done


# spec: FL-1
def test_jobs_of_many_flows_cost_no_more_than_those_of_few(node: PostgresStore) -> None:
    work_off_flows(node, 1, 1)  # the statements are planned now, for small tables
    few, many = work_off_flows(node, 200, 200), work_off_flows(node, 1000, 1000)
    assert many < 1.2 * few


# spec: FL-2, FL-4
def test_cancels_and_retries_of_a_dense_graph_by_several_people_do_not_wait_for_each_other(url: str) -> None:
    """Each locks most of the jobs, in an order that what the others do has changed meanwhile."""
    chance = random.Random(1)
    names = [f"j{number}" for number in range(40)]
    store = PostgresStore(parse(url))
    begin(store, "w", *(job(name, after=tuple(chance.sample(names[:at], min(at, 6)))) for at, name in enumerate(names)))

    def person(number: int) -> None:
        chance, own = random.Random(number), PostgresStore(parse(url))
        for _ in range(30):
            some = chance.sample(names, 10)
            with suppress(Conflict), own.transaction() as tx:
                match number:
                    case 0:
                        tx.jobs.cancel(some)
                    case 1:
                        tx.flows.cancel("w")
                    case 2:
                        tx.jobs.retry(some[:1])
                    case _:
                        tx.flows.retry("w")
        own.close()

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(person, number) for number in range(4)]:
            future.result(30)
    with store.transaction() as tx:
        tx.flows.retry("w")
    assert flow_of(store, "w").counts.queued == len(names)
    store.close()
