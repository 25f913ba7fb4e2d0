"""One connection to PostgreSQL, opened on first use and replaced after it broke. It knows no table.

A session serves one thread at a time. After a fork, the child opens a connection of its own.
"""

import json
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import psycopg
from psycopg import pq
from psycopg.types.numeric import IntDumper

from chargehand import clock, log
from chargehand.errors import StoreError
from chargehand.model.failover import Server
from chargehand.model.wakeups import Debounce, Wakeup
from chargehand.stores.postgres import driver, statements
from chargehand.stores.postgres.address import Address
from chargehand.stores.postgres.driver import Connection, Opened
from chargehand.stores.postgres.errors import described, is_busy, unusable
from chargehand.system.forks import in_child

Cursor = psycopg.Cursor[tuple[Any, ...]]

PLAN_AGAIN = 2.0
"""Seconds after which statements are planned again, on connections of processes that are no nodes."""

_SQL = statements.load("store")
_OF_THE_APPLICATION = (psycopg.DataError, psycopg.IntegrityError, psycopg.NotSupportedError, psycopg.ProgrammingError)
"""Errors that are about the statement, and not about the server."""


class Line:
    """How often the server of an address was lost, counted for all sessions of this process.

    A server that is lost to one connection may have been replaced, and may go on to serve the others as a read-only
    one: they are dropped, too.
    """

    def __init__(self) -> None:
        self.losses = 0
        self.watchers: list[Callable[[], None]] = []
        """Called in the thread that lost the server, for connections that wait for the server alone."""

    def lost(self) -> None:
        """Records that a connection has lost the server."""
        self.losses += 1
        for watcher in self.watchers:
            watcher()


_lines: dict[str, Line] = {}
"""By address."""
_debounces: dict[str, tuple[Debounce, Debounce]] = {}
"""By the URL of the store: limits the notifications of this process, of jobs and of open transactions."""
_reported: set[Address] = set()
"""The stores for which a failed notification was logged."""


def line_of(address: Address) -> Line:
    """Returns the line to the server of this address."""
    return _lines.setdefault(address.conninfo, Line())


class Statements(Protocol):
    """Runs statements in a transaction that has begun."""

    def rows(self, sql: bytes, args: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Returns the rows of a statement."""
        ...

    def send(self, sql: bytes, args: Sequence[Any] = ()) -> Cursor:
        """Sends a statement. Its rows may be fetched after the next one was sent."""
        ...


class Watch:
    """Decides from the server's snapshots whether others have written. Own transactions do not count."""

    def __init__(self) -> None:
        self._expected: str | None = None

    @property
    def active(self) -> bool:
        """Whether anybody has asked so far."""
        return self._expected is not None

    def changed(self, snapshot: str, *, again: bool = False) -> bool:
        """Returns whether this snapshot is not the one that follows if nobody else has written.

        `again`: the next call compares with the same snapshot as this one.
        """
        expected = self._expected
        if not again:
            self._expected = snapshot
        return snapshot != expected

    def doubt(self) -> None:
        """Forgets what was seen: the next question is answered with True."""
        self._expected = None

    def committed(self, snapshot: str, own: str | None) -> None:
        """Notes an own transaction by its number and its last snapshot."""
        if own is not None and snapshot == self._expected == f"{own}:{own}:":
            self._expected = f"{int(own) + 1}:{int(own) + 1}:"


class Polled:
    """Whether others had written before a pipeline began."""

    changed = False


class Session:
    """Runs statements, singly, in a transaction, or many in one round trip."""

    def __init__(
        self,
        address: Address,
        settings: dict[str, str],
        now_ms: Callable[[], int] | None = None,
        *,
        announces: bool = False,
    ) -> None:
        """`announces`: nodes are notified of what others write with `announce`."""
        self.address, self._settings, self._now_ms = address, settings, now_ms
        self.announces = announces
        self._wakeups: set[Wakeup] = set()
        """What the nodes are notified of when the present transaction has committed."""
        self._debounce, self._expecting = _debounces.setdefault(address.url, (Debounce(), Debounce()))
        self._opened: Opened | None = None
        self._line = line_of(address)
        self._losses = 0
        self._in_transaction = False
        self._pipeline: psycopg.Pipeline | None = None
        self._raised: psycopg.Error | None = None
        """An error in a statement of the application: it is raised as it is."""
        self._widened = False
        self._planned_at = 0.0
        self.watch = Watch()
        self.number = 0
        """How many connections were opened: it identifies the present one."""
        self.last_backend: int | None = None
        """The server process of the last connection, also after that was dropped."""
        in_child(self.forked)

    @property
    def now(self) -> int | None:
        """The first parameter of statements that use the time: None, for the server's clock, except in tests."""
        return None if self._now_ms is None else self._now_ms()

    def open(self) -> Opened:
        """Returns the connection; opens it if there is none. Raises StoreError if the server refuses."""
        opened = self._opened
        if opened is not None and (opened.connection.closed or (self._is_stale and not self._in_transaction)):
            self.drop()
        if self._opened is None:
            self._losses = self._line.losses
            self._opened = driver.connect(self.address, self._settings)
            self.number += 1
            self.last_backend = self._opened.backend
            self._planned_at = clock.monotonic()
        return self._opened

    @property
    def _is_stale(self) -> bool:
        """Whether another session has lost the server since the connection was opened."""
        return self._losses != self._line.losses

    @property
    def connection(self) -> Connection:
        """The connection itself."""
        return self.open().connection

    @property
    def connected(self) -> bool:
        """Whether there is a connection that has not been found broken."""
        return self._opened is not None

    @property
    def backend(self) -> int | None:
        """The server process of the present connection; None if there is no connection, or a pooler."""
        return None if self._opened is None else self._opened.backend

    def server(self) -> Server | None:
        """Returns the server of the connection; None if it does not identify itself to this user."""
        try:
            ((system, file, started),) = self.rows(_SQL["identity"])
        except StoreError as error:
            if isinstance(error.__cause__, _OF_THE_APPLICATION):
                return None
            raise
        return Server(system, int(file[:8], 16), started)

    def drop(self) -> None:
        """Closes the connection. The next use opens another one."""
        opened, self._opened = self._opened, None
        self._in_transaction = False
        if opened is not None:
            opened.connection.close()

    def forked(self) -> None:
        """Gives up the connection, which belongs to the parent process: nothing may be sent on its socket, not even the
        end of the session."""
        opened, self._opened = self._opened, None
        if opened is not None and not opened.connection.closed:
            nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(nowhere, opened.connection.fileno(), inheritable=False)
            os.close(nowhere)
        if self._in_transaction:
            self._in_transaction = False
            self._opened = None

    # single statements

    def rows(self, sql: bytes, args: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Returns the rows of a statement. Outside a transaction it must only read: it may be sent twice."""
        if self._in_transaction:
            return self.send(sql, args).fetchall()
        stale = self._opened is not None
        try:
            return self._alone(sql, args)
        except psycopg.Error as error:
            if not (self._lost(error) and stale):
                raise described(error, self.address) from error
        try:
            return self._alone(sql, args)
        except psycopg.Error as error:
            self._lost(error)
            raise described(error, self.address) from error

    def _alone(self, sql: bytes, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        opened = self.open()
        if not opened.pooled:
            self._plan_again()
            return opened.connection.execute(sql, args).fetchall()
        with opened.connection.pipeline():
            self.set_up()
            found = opened.connection.execute(sql, args)
        return found.fetchall()

    def send(self, sql: bytes, args: Sequence[Any] = ()) -> Cursor:
        """Sends a statement, inside a transaction or a pipeline; in a pipeline, its rows may be fetched at the end."""
        return self.connection.execute(sql, args)

    def script(self, text: str) -> None:
        """Runs a script of several statements, inside a transaction."""
        self.connection.execute(text.encode(), prepare=False)

    def set_up(self) -> None:
        """Sends, behind a pooler, the settings for the transaction that begins."""
        opened = self.open()
        if opened.pooled:
            opened.connection.execute(_SQL["settings"], (opened.settings, True))

    def _plan_again(self) -> None:
        """Lets the server plan its prepared statements again if it has done that a while ago.

        A plan that was made while a table was small reads all of it. By itself the server would make a new one only
        after it has analyzed the table. The plans of nodes do not depend on what it knows of tables.
        """
        opened, now = self.open(), clock.monotonic()
        if self.announces and not opened.pooled and now >= self._planned_at + PLAN_AGAIN:
            self._planned_at = now
            opened.connection.execute(b"DISCARD PLANS", prepare=False)

    def _lost(self, error: psycopg.Error) -> bool:
        """Drops the connection if it is of no use after this error. Returns whether it did."""
        broken = self._opened is None or self._opened.connection.closed or self._opened.connection.broken
        if unusable(error, broken):
            self._line.lost()
            self.drop()
            return True
        return False

    # transactions

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Commits at the end of the block; rolls back if the block raises."""
        if self._in_transaction:
            raise StoreError("a transaction of this store is open already: use it, or end it first")
        with self.errors():
            self._begin()
            opened = self._opened
            try:
                yield
                if opened is not self._opened or opened is None:
                    raise StoreError(f"the connection to {self.address.shown} was lost inside the transaction")
                _check_open(opened.connection)
                self._commit()
            except BaseException:
                self._roll_back(opened)
                raise
            finally:
                self._in_transaction = False

    def _begin(self) -> None:
        stale = self._opened is not None
        try:
            self._plan_again()
            self.send(b"BEGIN")
        except psycopg.Error as error:
            if not (self._lost(error) and stale):
                raise
            self.send(b"BEGIN")
        self._in_transaction, self._widened = True, False
        self._wakeups = set()
        self.set_up()

    def _commit(self) -> None:
        late = self._put_off()
        if not (self.watch.active or self._wakeups):
            self.send(b"COMMIT")
        else:
            seen = committed = None
            sent: list[Cursor] = []
            try:
                with self.connection.pipeline():
                    seen = self.send(_SQL["snapshot"]) if self.watch.active else None
                    committed = self.send(b"COMMIT")
                    sent = self._notify()
            except psycopg.Error as error:
                self._not_notified(committed, error)
            self._note_own(seen, sent)
        if late and self._debounce.begin(clock.monotonic()):
            self._send_now(Wakeup.JOBS)  # the commit took so long that no node will look again for these

    # wake-ups: sent in the same round trip as a COMMIT, but as a transaction of their own. Inside the transaction, a
    # NOTIFY would keep all others that notify from committing until this one has reached the disk.

    def announce(self, what: Wakeup) -> None:
        """Notifies the nodes when the present transaction has committed; a node itself decides with `wake`."""
        if self.announces:
            self._wakeups.add(what)

    def wake(self, what: Wakeup) -> None:
        """Notifies the other nodes when the present transaction has committed."""
        self._wakeups.add(what)

    def expect(self) -> None:
        """Notifies the nodes that a caller may soon commit jobs on a connection of its own."""
        if self.announces and not self._in_transaction and self._expecting.begin(clock.monotonic()):
            self._send_now(Wakeup.OPEN)

    def tell(self, what: Wakeup) -> None:
        """Notifies the other nodes now, unless that was done a moment ago."""
        if not self._in_transaction and self._debounce.begin(clock.monotonic()):
            self._send_now(what)

    def _put_off(self) -> bool:
        """Forgets to report jobs if they were reported a moment ago. Returns whether it did."""
        late = Wakeup.JOBS in self._wakeups and self.announces and not self._debounce.begin(clock.monotonic())
        if late:
            self._wakeups.discard(Wakeup.JOBS)
        return late

    def _notify(self) -> list[Cursor]:
        """Sends the notifications of a transaction for whose end it has asked."""
        wakeups, self._wakeups = self._wakeups, set()
        if wakeups:
            self.set_up()
        return [self.send(_SQL["notify"], (str(what),)) for what in sorted(wakeups)]

    def _send_now(self, what: Wakeup) -> None:
        """Sends a notification, outside a transaction."""
        self._wakeups = {what}
        try:
            with self.connection.pipeline():
                self._notify()
        except (psycopg.Error, StoreError) as error:
            self._note_failure(error)

    def _not_notified(self, committed: Cursor | None, error: psycopg.Error) -> None:
        """Raises the error, unless the transaction has committed, and only its notifications have failed."""
        if committed is None or committed.statusmessage is None:
            self._debounce.undo()
            raise error
        self._note_failure(error)

    def _note_failure(self, error: psycopg.Error | StoreError) -> None:
        now = clock.monotonic()
        self._debounce.failed(now)
        self._expecting.failed(now)
        if self.address not in _reported:
            _reported.add(self.address)
            log.warning("nodes could not be notified; they find what was written by polling", why=error)
        if isinstance(error, psycopg.Error):
            self._lost(error)

    def _note_own(self, seen: Cursor | None, sent: Sequence[Cursor]) -> None:
        """Notes that the last transactions were own ones."""
        for cursor in (seen, *sent):
            if cursor is not None and cursor.description is not None:
                self.watch.committed(*cursor.fetchall()[0][:2])

    @contextmanager
    def pipeline(self, *, poll: bool = False) -> Generator[Polled]:
        """Sends the statements of the block as one transaction in one round trip, unless the block fetches rows.

        `poll`: after the block, the result says whether others had written before.
        """
        polled = Polled()
        with self.errors():
            opened = self.open()
            self._in_transaction, self._wakeups = True, set()
            seen = committed = before = None
            sent: list[Cursor] = []
            try:
                with opened.connection.pipeline() as self._pipeline:
                    self.send(b"BEGIN")
                    self.set_up()
                    before = self.send(_SQL["snapshot"]) if poll else None
                    yield polled
                    seen = self.send(_SQL["snapshot"])
                    committed = self.send(b"COMMIT")
                    sent = self._notify()
            except psycopg.Error as error:
                if committed is None or committed.statusmessage is None:
                    self._roll_back(opened)
                self._not_notified(committed, error)
            except BaseException:
                self._roll_back(opened)
                raise
            finally:
                self._in_transaction, self._pipeline = False, None
            if before is not None:
                polled.changed = self.watch.changed(before.fetchall()[0][0])
            self._note_own(seen, sent)

    @contextmanager
    def patience(self) -> Generator[None]:
        """Waits without a limit for the answers to the statements of the block, inside a transaction."""
        connection = self.connection
        usual, connection.silence = connection.silence, None
        try:
            yield
        finally:
            connection.silence = usual

    @contextmanager
    def unhurried(self) -> Generator[None]:
        """Sets no limit for the duration of the statements of the block, inside a transaction."""
        with self.patience():
            self._set_locally("statement_timeout", "0")
            yield
            self._set_locally("statement_timeout", self._settings.get("statement_timeout", "0"))

    @contextmanager
    def attempt(self, patience_ms: int) -> Generator[None]:
        """Waits only so long for locks in the block, inside a transaction or a pipeline.

        Raises StoreBusy if a lock was not free. Then the block has changed nothing, and the transaction may go on.
        """
        connection, pipeline = self.connection, self._pipeline
        usual = self._settings.get("lock_timeout", "0")
        begun = self.send(b"SAVEPOINT attempt")
        self._set_locally("lock_timeout", f"{patience_ms}ms")
        try:
            yield
            self._set_locally("lock_timeout", usual)
            self.send(b"RELEASE SAVEPOINT attempt")
            if pipeline is not None:
                pipeline.sync()
        except psycopg.Error as error:
            if not is_busy(error):
                raise
            if pipeline is not None:
                _resume(connection, pipeline)
            if begun.statusmessage is None:
                raise  # it was a statement before the block
            self.send(b"ROLLBACK TO SAVEPOINT attempt")
            # When psycopg learns of a rollback, it deallocates all prepared statements after the next statement.
            if pipeline is not None:
                pipeline.sync()
            connection.execute(b"RELEASE SAVEPOINT attempt", prepare=False)
            raise described(error, self.address) from error

    def _set_locally(self, name: str, value: str) -> None:
        self.send(_SQL["settings"], (as_setting(name, value), True))

    def _roll_back(self, opened: Opened | None) -> None:
        if opened is None or opened is not self._opened or opened.connection.closed:
            return
        try:
            opened.connection.execute(b"ROLLBACK")
        except psycopg.Error:
            self.drop()

    @contextmanager
    def errors(self) -> Generator[None]:
        """Raises StoreError instead of the driver's errors, and drops a connection that broke."""
        try:
            yield
        except psycopg.Error as error:
            lost, raised, self._raised = self._lost(error), self._raised, None
            if error is raised and not lost:
                raise
            raise described(error, self.address) from error

    def run(self, sql: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Runs a statement of the application, inside a transaction. Its errors leave the transaction as they are."""
        if not self._widened:
            self._widened = True  # the tables of the application may be in other schemas than the store
            self.send(_SQL["settings"], (as_setting("search_path", self.open().search_path), True))
        cursor = psycopg.Cursor(self.connection)
        cursor.adapters.register_dumper(int, IntDumper)
        try:
            with self.patience():  # the application may have set another limit for its statements
                cursor.execute(sql.encode(), tuple(args) or None, prepare=False)
        except _OF_THE_APPLICATION as error:
            self._raised = error
            raise
        return cursor.fetchall() if cursor.description is not None else []

    def close(self) -> None:
        """Closes the connection."""
        self.drop()


def _check_open(connection: Connection) -> None:
    """Raises StoreError unless the transaction can be committed; the server would take a COMMIT for a ROLLBACK."""
    match connection.info.transaction_status:
        case pq.TransactionStatus.INERROR:
            raise StoreError("a statement of the transaction has failed, so all of it was rolled back")
        case pq.TransactionStatus.IDLE:
            raise StoreError("the transaction was ended by a statement inside its block")
        case _:
            pass


def _resume(connection: Connection, pipeline: psycopg.Pipeline) -> None:
    """Makes a pipeline usable again after an error: reads the answers to all that was sent."""
    while True:
        try:
            pipeline.sync()
            return
        except psycopg.Error:
            if connection.closed:
                raise


def as_setting(name: str, value: str) -> str:
    """Returns one setting as the statement `settings` takes it."""
    return json.dumps({name: value})


def numbers(values: Sequence[int]) -> str:
    """Returns numbers for a parameter of type bigint[]; written out, because psycopg needs microseconds for each."""
    return f"{{{','.join(map(str, values))}}}"
