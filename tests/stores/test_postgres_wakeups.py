"""Tests for notifications of the PostgreSQL store: what is reported, when, and that nothing depends on it."""

import select
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import DIRECT, ME, job, put, register, roll_back, state

import pgserver
from chargehand import Chargehand
from chargehand.errors import StoreError
from chargehand.model.batch import Batch, Request, Want
from chargehand.model.job import Done, State, settle
from chargehand.model.records import NodeRequest
from chargehand.model.wakeups import NOTIFY_EVERY, Wakeup
from chargehand.stores.postgres.address import parse
from chargehand.testing import eventually

if (packages := pgserver.missing()) is not None:
    pytest.skip(f"notifications are NOT tested: pip install {packages}", allow_module_level=True)

import psycopg

from chargehand.node.listening import Listening
from chargehand.stores import open_listener
from chargehand.stores.postgres import driver, listening, session
from chargehand.stores.postgres.listening import PostgresListener
from chargehand.stores.postgres.store import PostgresStore

pytestmark = DIRECT  # notifications need a session

# spec: ST-3 (all tests of this file)
JOBS, ORDERS, OPEN = {Wakeup.JOBS}, {Wakeup.ORDERS}, {Wakeup.OPEN}


class Clock:
    """The clock of the sessions: it stands still unless a test sets it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(session, "clock", made)
    return made


@pytest.fixture
def url(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    return pgserver.new_store()


@pytest.fixture
def open_one(url: str) -> Iterator[Callable[..., PostgresStore]]:
    opened: list[PostgresStore] = []

    def make(**options: Any) -> PostgresStore:
        opened.append(PostgresStore(parse(url), **options))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def store(open_one: Callable[..., PostgresStore]) -> PostgresStore:
    return open_one()


@pytest.fixture
def node(store: PostgresStore, open_one: Callable[..., PostgresStore]) -> PostgresStore:
    made = open_one(node=True)
    register(made)
    return made


@contextmanager
def listener(url: str, stale: Callable[[], None] = lambda: None) -> Generator[PostgresListener]:
    made = PostgresListener(parse(url), stale)
    try:
        yield made
    finally:
        made.close()


def received(by: PostgresListener, seconds: float = 5.0) -> set[Wakeup]:
    """Waits for a notification, and returns what is reported."""
    poller = select.poll()
    poller.register(by, select.POLLIN)
    poller.poll(seconds * 1000)
    return by.receive()


def nothing(url: str, by: PostgresListener) -> bool:
    """Returns whether there was no notification before one that is sent now."""
    with psycopg.connect(pgserver.url(), autocommit=True) as connection:
        ((channel,),) = connection.execute(
            "SELECT 'chargehand_' || %s::regclass::oid::text", (f"{parse(url).schema}.chargehand_live",)
        ).fetchall()
        connection.execute("SELECT pg_notify(%s, 'open')", (channel,))
    return received(by) == OPEN


def test_writers_report_what_concerns_nodes_after_their_commit(url: str, store: PostgresStore, stopped: Clock) -> None:
    with listener(url) as by:
        with store.transaction() as tx:
            tx.jobs.enqueue([job("one")])
            assert nothing(url, by), "before the commit"
        assert received(by) == JOBS
        writes: list[Callable[[Any], Any]] = [
            lambda tx: tx.jobs.cancel(["one"]),
            lambda tx: tx.fleet.pause("do", "me", None),
            lambda tx: tx.fleet.resume("do"),
            lambda tx: tx.fleet.ask([NodeRequest(id="r", life="x", kind="ORDER", body="{}")]),
        ]
        for write in writes:
            with store.transaction() as tx:
                write(tx)
            assert received(by) == ORDERS
        stopped.now += 1
        with store.transaction() as tx:
            assert tx.jobs.retry(["one"])
        assert received(by) == JOBS
        roll_back(store, lambda tx: tx.jobs.enqueue([job()]))
        stopped.now += 1
        with store.transaction() as tx:
            tx.jobs.delete(["nobody"])
        assert nothing(url, by), "what was rolled back, or concerns no node"


def test_of_many_commits_in_a_moment_one_is_reported(
    url: str, open_one: Callable[..., PostgresStore], stopped: Clock
) -> None:
    one, two = open_one(), open_one()
    with listener(url) as by:
        put(one, job())
        assert received(by) == JOBS
        for each in (one, two, one):
            put(each, job())
        assert nothing(url, by), "all stores of a process count together"
        stopped.now += NOTIFY_EVERY
        put(two, job())
        assert received(by) == JOBS


def test_a_commit_that_takes_long_is_reported_all_the_same(
    url: str, store: PostgresStore, stopped: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes look only for what is committed within a moment after the last notification."""
    with listener(url) as by:
        put(store, job())
        assert received(by) == JOBS
        usual = store.session.send

        def slow(sql: bytes, args: Any = ()) -> Any:
            if sql == b"COMMIT":
                stopped.now += NOTIFY_EVERY
            return usual(sql, args)

        monkeypatch.setattr(store.session, "send", slow)
        put(store, job())
        assert received(by) == JOBS


def spoilt(store: PostgresStore) -> None:
    """Enqueues in a transaction that the server refuses to commit."""
    with store.transaction() as tx:
        tx.jobs.enqueue([job()])
        tx.execute("INSERT INTO song VALUES (1), (1)")


def test_a_commit_that_fails_reports_nothing_and_the_next_one_is_reported(
    url: str, store: PostgresStore, stopped: Clock
) -> None:
    with store.transaction() as tx:
        tx.execute("CREATE TABLE song (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    with listener(url) as by:
        with pytest.raises(StoreError):
            spoilt(store)
        assert nothing(url, by)
        put(store, job())
        assert received(by) == JOBS


def test_stores_in_one_database_do_not_wake_each_other(url: str, store: PostgresStore) -> None:
    other = PostgresStore(parse(pgserver.new_store()))
    with listener(url) as by:
        put(other, job())
        assert nothing(url, by)
    other.close()


def test_a_node_reports_only_what_its_ledger_says(url: str, node: PostgresStore) -> None:
    with listener(url) as by:
        node.turn(Batch(poll=True), ME)
        node.turn(Batch(requests=(Request("t", (job("one"),)),)), ME)
        assert nothing(url, by)
        node.turn(Batch(requests=(Request("t", (job("two"),)),), wakeups=frozenset(JOBS)), ME)
        assert received(by) == JOBS


@pytest.mark.alone  # whatever other tests write to the server counts as written by others
def test_a_node_s_own_notifications_are_no_writes_of_others(url: str, node: PostgresStore) -> None:
    with listener(url) as by:
        node.turn(Batch(poll=True), ME)
        node.turn(Batch(poll=True, wakeups=frozenset({Wakeup.JOBS, Wakeup.ORDERS})), ME)
        assert received(by) == JOBS | ORDERS
        assert not node.changed()


def test_a_caller_s_transaction_is_reported_while_it_is_open(url: str, folder: Path, store: PostgresStore) -> None:
    hand = Chargehand(url, folder=folder)
    crew = hand.crew("q", "nowhere:Nothing")
    with listener(url) as by, psycopg.connect(pgserver.url()) as connection:
        crew.enqueue(1, within=connection)
        assert received(by) == OPEN
        connection.commit()
        assert store.look(["q", "other"]) == ["q"]
    hand.close()


def test_a_notification_that_fails_changes_nothing(
    url: str, store: PostgresStore, node: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(session._SQL, "notify", b"SELECT 1/0, $1")  # pyright: ignore[reportPrivateUsage]
    assert put(store, job("one"))[0].created
    assert state(store, "one") is State.QUEUED
    claimed = node.turn(Batch(wants=(Want("q", "q", 1),), wakeups=frozenset(JOBS)), ME).grants[0].claims
    assert [claim.id for claim in claimed] == ["one"]
    done = settle(claimed[0], Done("1"))
    assert done is not None
    result = node.turn(Batch(settlements=(done,), wakeups=frozenset(ORDERS)), ME)
    assert result.lost == ()
    assert state(store, "one") is State.DONE
    assert node.session.number == 1, "the connection is good"
    with psycopg.connect(pgserver.url()) as connection:
        hand = Chargehand(url)
        hand.crew("q", "nowhere:Nothing").enqueue(1, within=connection)
        hand.close()


def test_behind_a_pooler_writers_notify_but_nobody_listens(
    url: str, open_one: Callable[..., PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = driver.connect

    def pooled(address: Any, settings: dict[str, str], **options: Any) -> driver.Opened:
        opened = real(address, settings, **options)
        opened.connection.execute(b"SET search_path = pg_catalog", prepare=False)
        text = msgspec.json.encode({**settings, "search_path": address.schema}).decode()
        return msgspec.structs.replace(opened, backend=None, settings=text)

    open_one()
    with listener(url) as by:
        monkeypatch.setattr(driver, "connect", pooled)
        behind = open_one()
        put(behind, job())
        assert received(by) == JOBS
    with pytest.raises(StoreError, match="pooler") as caught:
        PostgresListener(parse(url), lambda: None)
    assert caught.value.code == "no-listen"


# cause: no-listen
def test_if_listen_is_refused_the_error_says_so(
    url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(listening._SQL, "channel", b"SELECT 'a b'")  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(StoreError, match="LISTEN is refused") as caught:
        PostgresListener(parse(url), lambda: None)
    assert caught.value.code == "no-listen"


# spec: MN-6
def test_the_connection_for_notifications_follows_the_others_and_they_follow_it(url: str, store: PostgresStore) -> None:
    told: list[bool] = []
    with listener(url, lambda: told.append(True)) as by:
        pgserver.admin(f"SELECT pg_terminate_backend({store.session.backend}, 5000)")
        put(store, job())
        assert told == [True]
        with pytest.raises(StoreError, match="was lost, or replaced"):
            by.receive()
    with listener(url) as by:
        backend = by._connection.info.backend_pid  # pyright: ignore[reportPrivateUsage]
        pgserver.admin(f"SELECT pg_terminate_backend({backend}, 5000)")
        with pytest.raises(StoreError):
            eventually(lambda: received(by), what="the end of the connection")
    put(store, job())
    assert store.session.number == 3


def test_a_thread_of_the_node_listens_again_after_the_connection_was_lost(url: str, store: PostgresStore) -> None:
    backends: list[int] = []

    def opened(stale: Callable[[], None]) -> PostgresListener:
        if len(backends) == 1:
            backends.append(0)
            raise StoreError("the server is away", "server-gone")
        made = open_listener(parse(url), stale)
        assert isinstance(made, PostgresListener)
        backends.append(made._connection.info.backend_pid)  # pyright: ignore[reportPrivateUsage]
        return made

    thread = Listening(opened)
    thread.start()
    eventually(lambda: thread.connected, what="a connection")
    assert eventually(thread.take, what="what was missed") == {Wakeup.JOBS, Wakeup.ORDERS}
    put(store, job())
    assert eventually(thread.take, what="a notification") == JOBS
    pgserver.admin(f"SELECT pg_terminate_backend({backends[0]}, 5000)")
    eventually(lambda: len(backends) == 3 and thread.connected, what="another connection")
    assert thread.why is None
    thread.stop()
    eventually(lambda: not thread.connected, what="the end of the thread")


def test_a_look_finds_jobs_that_can_be_claimed_or_soon_will_be(store: PostgresStore) -> None:
    put(store, job(queue="now"), job(queue="soon", delay_ms=900), job(queue="later", delay_ms=5000))
    assert sorted(store.look(["now", "soon", "later", "none"])) == ["now", "soon"]
    with store.transaction() as tx:
        tx.jobs.claim([Want("now", "now", 1)], ME)
    assert store.look(["now"]) == []
