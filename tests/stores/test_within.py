"""Tests for jobs in the caller's own transaction on PostgreSQL: `hand.transaction()`, and `within=` a connection."""

import asyncio
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from builders import DIRECT

import pgserver
from chargehand import Chargehand
from chargehand.crew import Crew
from chargehand.errors import ChargehandError, StoreError
from chargehand.model.job import State
from chargehand.model.records import JobFilter

if (packages := pgserver.missing()) is not None:
    pytest.skip(f"the PostgreSQL store is NOT tested: pip install {packages}", allow_module_level=True)

import psycopg
import sqlalchemy
from psycopg.rows import dict_row
from psycopg.types.string import TextLoader
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from chargehand.stores.postgres.statements import in_transaction_of_caller

Connection = psycopg.Connection[Any]
OPEN = ExitStack()
"""What a connection is in the middle of; the test closes it."""


class Shouting(TextLoader):
    """Gives texts in a form that nobody else expects."""

    def load(self, data: Any) -> Any:
        return ("loaded", bytes(data).upper())


@pytest.fixture(scope="module")
def url() -> str:
    return pgserver.new_store()


@pytest.fixture
def hand(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chargehand]:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    made = Chargehand(url, folder=folder)
    yield made
    made.close()


@pytest.fixture
def crew(hand: Chargehand) -> Crew[Any, Any]:
    return hand.crew("q", "nowhere:Nothing")


@pytest.fixture
def connect() -> Iterator[Callable[..., Connection]]:
    """Opens connections to the database of the store; their search path does not lead to its tables."""
    with ExitStack() as opened:

        def connect(**options: Any) -> Connection:
            return opened.enter_context(psycopg.connect(pgserver.url(), **options))

        yield connect


@pytest.fixture
def engine() -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(pgserver.url()))
    yield made
    made.dispose()


def known(hand: Chargehand, *refs: Any) -> list[bool]:
    found = {job.id for job in hand.jobs(JobFilter(limit=1000))}
    return [ref.id in found for ref in refs]


def plain(_: Connection) -> AbstractContextManager[Any]:
    return nullcontext()


def in_transaction(connection: Connection) -> AbstractContextManager[Any]:
    return connection.transaction()


def in_savepoint(connection: Connection) -> AbstractContextManager[Any]:
    stack = ExitStack()
    stack.enter_context(connection.transaction())
    stack.enter_context(connection.transaction())
    return stack


def in_pipeline(connection: Connection) -> AbstractContextManager[Any]:
    stack = ExitStack()
    stack.enter_context(connection.transaction())
    stack.enter_context(connection.pipeline())
    connection.execute("SELECT 1")
    return stack


# spec: ST-4
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    ("options", "inside"),
    [
        ({}, plain),
        ({"row_factory": dict_row}, plain),
        ({"prepare_threshold": 0}, plain),
        ({"cursor_factory": psycopg.ClientCursor}, plain),
        pytest.param({"options": "-c search_path=nowhere"}, plain, marks=DIRECT),
        pytest.param({"options": "-c default_transaction_isolation=serializable"}, plain, marks=DIRECT),
        ({"autocommit": True}, in_transaction),
        ({"autocommit": True}, in_savepoint),
        ({}, in_savepoint),
        ({}, in_pipeline),
    ],
)
def test_jobs_commit_or_roll_back_with_the_rows_of_a_psycopg_connection(
    hand: Chargehand,
    crew: Crew[Any, Any],
    connect: Callable[..., Connection],
    options: dict[str, Any],
    inside: Callable[[Connection], AbstractContextManager[Any]],
    fails: bool,
) -> None:
    crew.enqueue("held", key="held")
    connection = connect(**options)
    refs: list[Any] = []
    try:
        with inside(connection):
            refs.append(crew.enqueue({"text": "schön"}, within=connection, tags=["a"]))
            refs += crew.enqueue_many(["one", "two"], within=connection)
            refs.append(crew.enqueue("keyed", key="new", within=connection))
            assert not crew.enqueue("again", key="new", within=connection).created
            assert not crew.enqueue("again", key="held", within=connection).created
            assert known(hand, *refs) == [False] * 4
            if fails:
                raise ZeroDivisionError
        connection.commit()
    except ZeroDivisionError:
        connection.rollback()
    assert known(hand, *refs) == [not fails] * 4
    assert connection.autocommit is options.get("autocommit", False)
    if not fails:
        assert (refs[0].job().tags, refs[3].job().key) == (("a",), "new")
        hand.cancel(*(ref.id for ref in refs))


# spec: ST-4
def test_a_savepoint_takes_back_only_its_own_job(
    hand: Chargehand, crew: Crew[Any, Any], connect: Callable[..., Connection]
) -> None:
    connection = connect()
    before = crew.enqueue(1, within=connection)
    with connection.transaction(force_rollback=True):
        undone = crew.enqueue(2, within=connection)
    after = crew.enqueue(3, within=connection)
    connection.commit()
    assert known(hand, before, undone, after) == [True, False, True]


def test_the_adapters_of_the_connection_do_not_matter(
    hand: Chargehand, crew: Crew[Any, Any], connect: Callable[..., Connection]
) -> None:
    connection = connect()
    connection.adapters.register_loader("text", Shouting)
    refs = [crew.enqueue(number, key="k", within=connection) for number in range(2)]
    connection.commit()
    assert refs[0].id == refs[1].id
    assert known(hand, *refs) == [True, True]
    hand.cancel(refs[0].id)


def test_the_time_of_a_job_is_that_of_its_statement(
    hand: Chargehand, crew: Crew[Any, Any], connect: Callable[..., Connection]
) -> None:
    connection = connect()
    connection.execute("SELECT pg_sleep(0.05)")
    row = connection.execute("SELECT (extract(epoch FROM now()) * 1000)::bigint").fetchone()
    assert row is not None
    ref = crew.enqueue(1, within=connection)
    connection.commit()
    assert ref.job().created_ms >= row[0] + 50


# SQLAlchemy


# spec: ST-4
@pytest.mark.parametrize("fails", [False, True])
def test_jobs_commit_or_roll_back_with_sqlalchemy(
    hand: Chargehand, crew: Crew[Any, Any], engine: sqlalchemy.Engine, fails: bool
) -> None:
    refs: list[Any] = []

    def end(it: Any) -> None:
        it.rollback() if fails else it.commit()

    with engine.connect() as connection:
        refs.append(crew.enqueue("first in its transaction", within=connection))
        end(connection)
        connection.execute(sqlalchemy.text("SELECT 1"))
        refs.append(crew.enqueue(2, within=connection))
        end(connection)
    with Session(engine) as session:
        refs.append(crew.enqueue("first in its transaction", within=session))
        with session.begin_nested():
            refs.append(crew.enqueue(4, within=session))
        end(session)
    scoped = scoped_session(sessionmaker(engine))
    refs += crew.enqueue_many([5, 6], within=scoped)
    end(scoped)
    scoped.remove()
    assert known(hand, *refs) == [not fails] * 6


def test_sqlalchemy_is_not_imported(
    hand: Chargehand, crew: Crew[Any, Any], connect: Callable[..., Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "sqlalchemy"]:
        monkeypatch.delitem(sys.modules, name)
    crew.enqueue(1, within=connect())
    assert "sqlalchemy" not in sys.modules


# refusals


def closed(connect: Callable[..., Connection]) -> Any:
    connection = connect()
    connection.close()
    return connection


def failed(connect: Callable[..., Connection]) -> Any:
    connection = connect()
    with pytest.raises(psycopg.Error):
        connection.execute("no SQL")
    return connection


def elsewhere(connect: Callable[..., Connection]) -> Any:
    return connect(dbname="template1")


def of_alchemy(url: str, **options: Any) -> Callable[[Any], Any]:
    return lambda connect: sqlalchemy.create_engine(url, creator=lambda: connect(**options)).connect()


def closed_alchemy(connect: Callable[..., Connection]) -> Any:
    connection = of_alchemy("postgresql+psycopg://")(connect)
    connection.close()
    return connection


def autocommit_alchemy(connect: Callable[..., Connection]) -> Any:
    return of_alchemy("postgresql+psycopg://")(connect).execution_options(isolation_level="AUTOCOMMIT")


def sqlite_alchemy(_: Callable[..., Connection]) -> Any:
    return sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.StaticPool).connect()


def busy(connect: Callable[..., Connection]) -> Any:
    connection = connect()
    connection.pgconn.send_query(b"SELECT 1")
    return connection


def asynchronous(_: Callable[..., Connection]) -> Any:
    return asyncio.run(psycopg.AsyncConnection.connect(pgserver.url()))


def piping(connect: Callable[..., Connection]) -> Any:
    connection = connect(autocommit=True)
    OPEN.enter_context(connection.pipeline())
    connection.execute("SELECT 1")
    return connection


# spec: ST-2
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda connect: object(), "accepts what hand.transaction.*a Connection of psycopg 3.*builtins.object"),
        (lambda connect: connect().cursor(), "this is psycopg.Cursor"),
        (lambda connect: sqlite3.connect(":memory:"), "this is sqlite3.Connection"),
        (lambda connect: AsyncSession(), "AsyncSession, which is asynchronous"),
        (asynchronous, "psycopg.AsyncConnection, which is asynchronous"),
        (sqlite_alchemy, "sqlalchemy.engine.base.Connection with the driver's sqlite3.Connection"),
        (closed, "is closed"),
        (closed_alchemy, "is closed"),
        (failed, "has a transaction that has failed"),
        (lambda connect: connect(autocommit=True), "is in autocommit mode and has no transaction"),
        (autocommit_alchemy, "is in autocommit mode and has no transaction"),
        (piping, "in a pipeline, so that it is unknown"),
        (busy, "is busy with another command"),
        (lambda connect: connect(client_encoding="LATIN1"), "uses the encoding iso8859-1"),
        (elsewhere, "leads to another database than postgresql:"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(
    crew: Crew[Any, Any],
    connect: Callable[..., Connection],
    make: Callable[[Callable[..., Connection]], Any],
    says: str,
) -> None:
    given = make(connect)
    with pytest.raises(ChargehandError, match=says):
        crew.enqueue(1, within=given)
    OPEN.close()
    if isinstance(given, sqlite3.Connection | sqlalchemy.Connection | psycopg.Connection):
        given.close()
    if isinstance(given, AsyncSession | psycopg.AsyncConnection):
        asyncio.run(given.close())


# spec: ST-2
def test_a_statement_that_fails_says_that_the_transaction_has_failed(
    crew: Crew[Any, Any], connect: Callable[..., Connection]
) -> None:
    connection = connect()
    connection.read_only = True
    with pytest.raises(StoreError, match=r"read-only.*given as within= has failed: roll it back"):
        crew.enqueue(1, within=connection)
    connection.rollback()


# spec: ST-2
def test_an_sqlite_store_accepts_only_its_own_transactions(folder: Path, connect: Callable[..., Connection]) -> None:
    hand = Chargehand(folder / "store.db", folder=folder)
    try:
        crew = hand.crew("q", "nowhere:Nothing")
        with pytest.raises(ChargehandError, match=r"accepts what hand\.transaction.*this is psycopg\.Connection"):
            crew.enqueue(1, within=connect())
        with hand.transaction() as tx:
            ref = crew.enqueue(1, within=tx)
        assert ref.job().state is State.QUEUED
    finally:
        hand.close()


# hand.transaction()


@pytest.fixture
def song(connect: Callable[..., Connection]) -> Iterator[str]:
    """The name of a table of the application, in another schema than the store."""
    connection, name = connect(autocommit=True), f"song_{os.getpid()}"
    connection.execute(f"CREATE TABLE {name} (title text UNIQUE, length int)".encode())
    yield name
    connection.execute(f"DROP TABLE {name}".encode())


# spec: ST-4
def test_a_transaction_of_the_store_reaches_the_tables_of_the_application(
    hand: Chargehand, crew: Crew[Any, Any], song: str
) -> None:
    with hand.transaction() as tx:
        tx.execute(f"INSERT INTO {song} VALUES (%s, %s)", ("a", 1))
        assert tx.execute(f"SELECT substr(title, %s), '%%' FROM {song}", (1,)) == [("a", "%")]
        ref = crew.enqueue(1, key="song", within=tx)
        tx.execute(f"DELETE FROM {song}; INSERT INTO {song} VALUES ('b')")
    assert known(hand, ref) == [True]
    hand.cancel(ref.id)
    with suppress(ZeroDivisionError), hand.transaction() as tx:
        tx.execute(f"DELETE FROM {song}")
        ref = crew.enqueue(2, within=tx)
        raise ZeroDivisionError
    with hand.transaction() as tx:
        assert tx.execute(f"SELECT title FROM {song}") == [("b",)]
    assert known(hand, ref) == [False]


# spec: ST-4
def test_a_transaction_with_an_error_is_never_taken_for_committed(
    hand: Chargehand, crew: Crew[Any, Any], song: str
) -> None:
    refs: list[Any] = []
    twice = f"INSERT INTO {song} VALUES ('a'), ('a')"

    def enqueue_and(sql: str, caught: type[Exception] | tuple[()] = (), before: str = "", after: str = "") -> None:
        with hand.transaction() as tx:
            refs.append(crew.enqueue(1, within=tx))
            try:
                tx.execute(f"{before}; {sql}")
            except caught:
                if after:
                    tx.execute(after)

    with pytest.raises(psycopg.errors.UniqueViolation):
        enqueue_and(twice)
    with pytest.raises(psycopg.errors.UndefinedTable):
        enqueue_and("SELECT * FROM no_table")
    with pytest.raises(StoreError, match="was ended by a statement inside its block"):
        enqueue_and("ROLLBACK")
    with pytest.raises(StoreError, match="has failed, so all of it was rolled back"):
        enqueue_and(twice, psycopg.errors.UniqueViolation)
    assert known(hand, *refs) == [False] * 4
    enqueue_and(twice, psycopg.errors.UniqueViolation, before="SAVEPOINT mine", after="ROLLBACK TO mine")
    assert known(hand, refs[-1]) == [True]


# spec: FL-4 ST-4
@pytest.mark.parametrize("fails", [False, True])
def test_a_flow_commits_or_rolls_back_with_the_rows_of_a_connection(
    hand: Chargehand, crew: Crew[Any, Any], connect: Callable[..., Connection], fails: bool
) -> None:
    connection = connect(options="-c search_path=nowhere")
    with hand.flow("within", within=connection) as flow:
        first = flow.enqueue(crew, 1)
        flow.enqueue(crew, 2, after=first)
    assert flow.id not in {each.id for each in hand.flows()}
    if fails:
        connection.rollback()
        assert flow.id not in {each.id for each in hand.flows()}
        assert known(hand, first) == [False]
    else:
        connection.commit()
        counts = flow.status().counts
        assert (counts.queued, counts.following) == (2, 1)


# spec: ST-4
def test_statements_name_the_schema_of_tables_and_sequences() -> None:
    made = in_transaction_of_caller(b"SELECT nextval('chargehand_job_seq_seq') FROM chargehand_job", "\"Our 'jobs'\"")
    assert made == b"""SELECT nextval('"Our ''jobs''".chargehand_job_seq_seq') FROM "Our 'jobs'".chargehand_job"""
