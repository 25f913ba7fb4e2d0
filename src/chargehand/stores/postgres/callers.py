"""Enqueues in the transaction of a caller: on a connection of psycopg, or one of SQLAlchemy that uses psycopg.

It never commits or rolls back, changes no setting of the connection, and does not import SQLAlchemy.
"""

import inspect
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast
from weakref import WeakKeyDictionary

import psycopg
from psycopg import pq
from psycopg.rows import tuple_row
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumper, TextLoader

from chargehand.errors import ChargehandError
from chargehand.model.flows import NewFlow
from chargehand.model.job import Enqueued, NewJob
from chargehand.stores.postgres import statements
from chargehand.stores.postgres.adding import Adding, as_json, begin_values
from chargehand.stores.postgres.address import Address
from chargehand.stores.postgres.errors import described
from chargehand.stores.postgres.session import Cursor, Session

ACCEPTED = (
    "within= accepts what hand.transaction() or job.settle() gives, a Connection of psycopg 3, and a Connection or "
    "Session of SQLAlchemy that uses psycopg 3 (postgresql+psycopg://)"
)
_SQL = statements.load("store")
_ADD = statements.load("enqueue")
_FLOWS = statements.load("flows")

Connection = psycopg.Connection[Any]


class Callers:
    """Recognises the connections of callers that lead to the database of one store."""

    def __init__(self, db: Session) -> None:
        self._db = db
        self._databases: WeakKeyDictionary[Connection, str] = WeakKeyDictionary()
        """The database of each connection that was given so far."""
        self._database = ""
        self._statements: dict[str, bytes] = {}

    def within(self, given: Any) -> "Within":
        """Returns what enqueues in the caller's transaction. Raises ChargehandError if that is impossible."""
        connection, begin = _find(given)
        _check(connection)
        begin()
        caller = Caller(connection)
        if connection not in self._databases:
            with failures(self._db.address):
                ((self._databases[connection],),) = caller.rows(_SQL["database"])
        if self._databases[connection] != self._database:
            self._look()  # the store has not been asked yet, or its server was started again
        if self._databases[connection] != self._database:
            raise ChargehandError(
                f"the connection given as within= leads to another database than {self._db.address.shown}, where the "
                "jobs are"
            )
        return Within(caller, self._db, self._statements)

    def _look(self) -> None:
        """Finds out which database the store is in, and in which schema."""
        ((self._database,),) = self._db.rows(_SQL["database"])
        ((schema,),) = self._db.rows(_SQL["schema_of_tables"])
        needed = {**_ADD, "begin": _FLOWS["begin"]}
        self._statements = {name: statements.in_transaction_of_caller(sql, schema) for name, sql in needed.items()}


class Caller:
    """Runs statements on a caller's connection, whatever row factory, cursors and adapters it has."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, sql: bytes, args: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.send(sql, args).fetchall()

    def send(self, sql: bytes, args: Sequence[Any] = ()) -> Cursor:
        cursor = psycopg.RawCursor(self._connection, row_factory=tuple_row)
        cursor.adapters.register_dumper(int, Int8Dumper)
        cursor.adapters.register_dumper(str, StrDumper)
        cursor.adapters.register_loader("text", TextLoader)
        cursor.execute(sql, args, prepare=False)
        return cursor


class Within(Adding):
    """Implements `chargehand.store.Enqueueing`."""

    def __init__(self, caller: Caller, db: Session, sql: dict[str, bytes]) -> None:
        super().__init__(caller, db.now, sql)
        self._db, self._caller = db, caller
        self._begun: set[str] = set()

    def begin(self, flow: NewFlow) -> None:
        with failures(self._db.address):
            self._caller.send(self._sql["begin"], begin_values(flow, self._at))
        self._begun.add(flow.id)

    def enqueue(self, jobs: Sequence[NewJob], *, promised: bool = False) -> list[Enqueued]:
        with failures(self._db.address):
            done = super().enqueue(jobs, promised=promised)
            begun = self._begun & {job.flow for job in jobs if job.flow is not None}
            if begun:
                self._caller.send(self._sql["place_flows"], (as_json(sorted(begun)),))
        # Not in the transaction of the caller: at its commit, a NOTIFY waits for all others that notify.
        self._db.expect()
        return done


@contextmanager
def failures(address: Address) -> Generator[None]:
    """Raises StoreError instead of psycopg's errors, and says that the caller's transaction has failed."""
    try:
        yield
    except psycopg.Error as error:
        found = described(error, address)
        raise type(found)(f"{found}; the transaction given as within= has failed: roll it back") from error


def _find(given: Any) -> tuple[Connection, Callable[[], Any]]:
    """Returns psycopg's connection, and a function that makes SQLAlchemy begin its transaction if it has to."""
    orm, engine = sys.modules.get("sqlalchemy.orm"), sys.modules.get("sqlalchemy.engine")
    found: Any = given
    begin: Callable[[], Any] = _nothing
    if orm is not None and isinstance(found, (orm.Session, orm.scoped_session)):
        found = found.connection()
    if engine is not None and isinstance(found, engine.Connection):
        if found.closed:
            raise ChargehandError("the connection given as within= is closed")
        if not found.in_transaction():
            begin = found.begin  # otherwise its commit() would do nothing
        found = found.connection.driver_connection
    if isinstance(found, psycopg.Connection):
        return cast(Connection, found), begin
    raise ChargehandError(f"{ACCEPTED}; this is {_description(given, found)}")


def _nothing() -> None:
    """Begins nothing: psycopg begins a transaction with the first statement."""


def _description(given: Any, found: Any) -> str:
    named = _name_of(given) if found is given else f"{_name_of(given)} with the driver's {_name_of(found)}"
    if inspect.iscoroutinefunction(getattr(found, "commit", None)):
        return f"{named}, which is asynchronous"
    return named


def _name_of(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _check(connection: Connection) -> None:
    """Raises ChargehandError if the connection has no transaction in which a job can be enqueued."""
    status, pipeline = connection.info.transaction_status, connection.info.pipeline_status
    why = None
    if connection.closed:
        why = "is closed"
    elif status == pq.TransactionStatus.INERROR or pipeline == pq.PipelineStatus.ABORTED:
        why = "has a transaction that has failed: roll it back first"
    elif connection.info.encoding != "utf-8":
        why = f"uses the encoding {connection.info.encoding}, and jobs need UTF-8: SET client_encoding TO 'UTF8'"
    elif status == pq.TransactionStatus.ACTIVE and pipeline == pq.PipelineStatus.OFF:
        why = "is busy with another command: a COPY, a stream, or a statement of another thread"
    elif connection.autocommit and status != pq.TransactionStatus.INTRANS:
        why = "is in autocommit mode and has no transaction: enqueue inside `with connection.transaction():`"
        if pipeline == pq.PipelineStatus.ON:  # what was not sent yet does not count
            why = (
                "is in autocommit mode and in a pipeline, so that it is unknown whether a transaction is open: enqueue "
                "before the pipeline or after it, or switch autocommit off"
            )
    if why is not None:
        raise ChargehandError(f"the connection given as within= {why}")
