"""A store in SQLite: one file, one node, any number of processes that enqueue and read.

Every write first takes a `flock` on a file beside the database. That makes writers fair and avoids SQLite's error
"database is locked". A store must never be used by two threads at once, nor after a fork (`forks` has the reasons).
"""

import fcntl
import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import apsw

from chargehand import clock
from chargehand.errors import ChargehandError, StoreError
from chargehand.ids import NewIds, new_ids
from chargehand.model.batch import NOTHING_LEFT, Batch, Finished, Result
from chargehand.model.failover import Comparison
from chargehand.model.records import Holder, Migrated, NewLife, Retention
from chargehand.stores.location import Location
from chargehand.stores.moving import MARK, UNFINISHED
from chargehand.stores.sqlite import files, forks, schema
from chargehand.stores.sqlite.database import Database
from chargehand.stores.sqlite.errors import ENGINE, LONGEST_WAIT, NO_DATABASE, NO_STORE, store_errors
from chargehand.stores.sqlite.flows import SqliteFlowReading, SweepPosition
from chargehand.stores.sqlite.prune import find_expired
from chargehand.stores.sqlite.reading import SqliteAccessReading, SqliteFleetReading, SqliteJobReading
from chargehand.stores.sqlite.transaction import SqliteTransaction
from chargehand.stores.surplus import Needed, Surplus
from chargehand.stores.turn import turn
from chargehand.system import private
from chargehand.system.forks import in_child

SAFE_ENGINES = ((3, 51, 3), (3, 50, 7), (3, 44, 6))
"""The first versions, newest branch first, without the bug that damages WAL files that several processes write."""
LONGEST_HOLD = 0.5
"""Seconds for which the write lock is held while another program keeps SQLite's own lock; then others may try."""
HOLD_PAUSE = 0.05
PAGES_TENDED = 250
PAGES_UNTENDED = 10_000
"""The node checkpoints often. Other processes do so only if the log has grown large because no node runs."""

_ours: dict[Path, set[int]] = {}
"""Descriptors on databases that stores of this process opened. SQLite may keep them after a store is closed."""
_opening = threading.Lock()


def _after_fork() -> None:
    global _opening
    _opening = threading.Lock()
    _ours.clear()


in_child(_after_fork)


@contextmanager
def opening(path: Path) -> Generator[None]:
    """Notes that what the block opens on a database is of this engine."""
    with _opening:
        before = files.descriptors_on(path)
        yield
        _ours[path] = _ours.get(path, set()) | (files.descriptors_on(path) - before)


def _has(regular: str, text: str | None) -> bool | None:
    """Returns whether a text has a part that matches a regular expression: `text REGEXP regular` in SQL."""
    return None if text is None else re.search(regular, text) is not None


class SqliteStore:
    """Implements `chargehand.store.Store`."""

    def __init__(
        self,
        path: Path,
        *,
        create: bool = True,
        tend: bool = False,
        moving: bool = False,
        synchronous: str = "full",
        now_ms: Callable[[], int] = clock.now_ms,
        new_ids: NewIds = new_ids,
    ) -> None:
        self.path, self._now_ms = path, now_ms
        self._db: Any = None  # untyped: apsw's own types need Python 3.12
        self._data_version = 0
        self._new_ids = new_ids
        self._synchronous = synchronous
        self._surplus, self._needed = Surplus(), Needed()
        self._swept = SweepPosition()
        self._busy = _BusyHandler()
        self._tx: SqliteTransaction | None = None
        self._lock = -1
        self.use = forks.Use()
        self._reading = Database(path, None, now_ms, self.use)
        forks.check(path)
        forks.watch(self)
        with store_errors(path), _opening:
            self._check_file_system(create)
            lock = Location(path).lock
            try:
                with suppress(FileNotFoundError):
                    self._lock = private.open_file(lock, os.O_RDWR | (os.O_CREAT if create else 0))
                with self.use:
                    self._connect(create)
                    if not create and not self._has_table(_SCHEMA):
                        raise StoreError(NO_STORE.format(path=path))
                    if not moving and self._has_table(MARK):
                        raise StoreError(UNFINISHED.format(store=path))
                Location(path).secure()
                if self._lock == -1:
                    self._lock = private.open_file(lock, os.O_RDWR | os.O_CREAT)
                with self.use:
                    self._configure(PAGES_TENDED if tend else PAGES_UNTENDED)
                self.migrated = self.migrate()
                _ours[path] = files.descriptors_on(path)
            except BaseException:
                self._close()
                raise
        self.jobs = SqliteJobReading(self._reading)
        self.flows = SqliteFlowReading(self._reading)
        self.fleet = SqliteFleetReading(self._reading)
        self.access = SqliteAccessReading(self._reading)

    # opening

    def _check_file_system(self, create: bool) -> None:
        path = self.path
        check_engine(apsw.sqlite_lib_version())
        if not path.exists() and not create:
            raise StoreError(f"there is no store at {path}: start a node, or name the right one with CHARGEHAND_URL")
        if not path.parent.is_dir():
            raise StoreError(f"cannot create a store at {path}: there is no folder {path.parent}")
        if path.is_dir():
            raise StoreError(f"{path} is a folder, not a store: name a file in it")
        network = files.is_network(path.parent)
        if network is not None:
            raise StoreError(
                f"{path} is on a network file system ({network}), where SQLite loses data: move it to a local disk"
            )
        Location(path).check()
        suspect = "_sqlite3" in sys.modules or forks.is_inherited(path)
        if suspect and files.descriptors_on(path) - _ours.get(path, set()):
            raise StoreError(
                f"{path} is open in this process through another engine (the standard library's sqlite3?), which "
                "drops the file's locks when it closes, and so damages it: use hand.transaction() for your own tables"
            )

        if not files.descriptors_on(path) and files.beginning_of(path) not in (b"", files.MAGIC):
            raise StoreError(NO_DATABASE.format(path=path))

    def _connect(self, create: bool) -> None:
        """Opens the file, and changes nothing in one that exists."""
        if create and not os.path.lexists(self.path):
            # SQLite would create it with mode 0644; its other files get the mode of this one.
            os.close(private.open_file(self.path, os.O_RDWR | os.O_CREAT))
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
        self._db = self._reading.connection = apsw.Connection(str(self.path), flags)
        self._file = files.identity_of(self.path)
        self._db.set_busy_handler(self._busy)
        self._db.create_scalar_function("regexp", _has, 2, deterministic=True)

    def _configure(self, checkpoint_pages: int) -> None:
        if self._db.pragma("journal_mode") != "wal":
            with _Locked(self, lambda: self._db.pragma("journal_mode", "wal")):
                mode = self._db.pragma("journal_mode")
            if mode != "wal":
                raise StoreError(f"{self.path} cannot be switched to write-ahead logging; is it read-only?")
        # Otherwise SQLite may plan a statement again for every bound value, at ten times the cost.
        self._db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self._db.pragma("synchronous", self._synchronous)
        self._db.pragma("temp_store", "MEMORY")
        self._db.wal_autocheckpoint(checkpoint_pages)

    def migrate(self) -> Migrated:
        steps, additions = schema.MIGRATIONS, schema.ADDITIONS
        with store_errors(self.path):
            with self.use:
                if self._schema_version() == len(steps) and additions.keys() <= self._additions():
                    return Migrated(before=len(steps), after=len(steps))
            with _Writing(self):
                found = self._schema_version()  # read again: another process may have migrated meanwhile
                if found > len(steps):
                    raise StoreError(
                        f"{self.path} was made by a newer Chargehand (schema {found}, this one knows {len(steps)}): "
                        "upgrade the package; nothing was changed",
                        "schema-new",
                    )
                self._db.execute(_SCHEMA_TABLES)
                for version, (text, checksum) in enumerate(steps[found:], found + 1):
                    self._db.execute(text)
                    row = (version, checksum, self._now_ms())
                    self._db.execute("INSERT INTO chargehand_schema VALUES (?, ?, ?)", row)
                missing = tuple(sorted(additions.keys() - self._additions()))
                for name in missing:
                    text, checksum = additions[name]
                    self._db.execute(text)
                    added = (name, checksum, self._now_ms())
                    self._db.execute("INSERT INTO chargehand_addition VALUES (?, ?, ?)", added)
            return Migrated(before=found, after=len(steps), additions=missing)

    def _additions(self) -> set[str]:
        """Returns the names of the additive migrations that were applied."""
        if not self._has_table("chargehand_addition"):
            return set()
        return {str(name) for (name,) in self._db.execute("SELECT name FROM chargehand_addition").fetchall()}

    def _has_table(self, name: str) -> bool:
        known = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
        return bool(self._db.execute(known, (name,)).fetchall())

    def _schema_version(self) -> int:
        if not self._has_table(_SCHEMA):
            return 0
        ((version,),) = self._db.execute("SELECT coalesce(max(version), 0) FROM chargehand_schema").fetchall()
        return int(version)

    # reading

    def new_life(self) -> NewLife | None:
        return None

    def comparison(self) -> Comparison | None:
        return None

    def leave(self, holder: Holder) -> None:
        """Does nothing: the node lock shows that the node has ended."""

    def changed(self, *, again: bool = False) -> bool:
        with store_errors(self.path), self.use:
            seen, found = self._data_version, int(self._db.pragma("data_version"))
            if not again:
                self._data_version = found
            return seen != found

    def look(self, queues: Collection[str]) -> list[str]:
        return [queue for queue, _ in self.jobs.waiting() if queue in queues]

    def now_ms(self) -> int:
        return self._now_ms()

    # writing

    def take_lock(self, begin: Callable[[], Any]) -> None:
        """Takes the write lock, and then SQLite's own, with `begin`.

        While another program holds SQLite's lock, the write lock is released again and again for other writers.
        """
        until: float | None = None
        while True:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            has_begun = False
            try:
                self.use.__enter__()
                try:
                    has_begun = self._has_begun(begin, until)
                finally:
                    if not has_begun:
                        self.use.__exit__()
            finally:
                if not has_begun:
                    self._unlock()
            if has_begun:
                return
            until = until or clock.monotonic() + LONGEST_WAIT
            clock.sleep(HOLD_PAUSE)

    def release_lock(self) -> None:
        """Releases what `take_lock` has taken."""
        try:
            self.use.__exit__()
        finally:
            self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:  # a process that was forked meanwhile has none: the lock is its parent's
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _has_begun(self, begin: Callable[[], Any], until: float | None) -> bool:
        """Returns False if another program holds SQLite's lock for LONGEST_HOLD. Raises BusyError after `until`."""
        self._busy.limit = LONGEST_HOLD
        try:
            begin()
        except apsw.BusyError:
            if until is not None and clock.monotonic() >= until:
                raise
            return False
        finally:
            self._busy.limit = LONGEST_WAIT
        return True

    def _check_replaced(self) -> None:
        """Raises StoreError if the file was deleted: what is written into it is lost and must not be acknowledged."""
        found = files.identity_of(self.path)
        if found is None or found != self._file:
            raise StoreError(
                f"{self.path} was deleted or replaced while it was in use: restart everything that uses it"
            )

    def begin(self) -> None:
        """Begins a transaction, inside the write lock."""
        self._check_replaced()
        self._db.execute("BEGIN IMMEDIATE")

    def end(self, *, commit: bool) -> None:
        """Ends the transaction."""
        try:
            if commit:
                self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def make_transaction(self) -> SqliteTransaction:
        """Returns the object for the transaction that has begun."""
        self._tx = SqliteTransaction(self._db, str(self.path), self._now_ms(), self._new_ids, self._swept)
        return self._tx

    def end_transaction(self, *, commit: bool) -> None:
        """Completes what that object has written, if it is to be committed, and refuses further use of it."""
        if self._tx is not None:
            try:
                if commit:
                    self._tx.complete()
            finally:
                self._tx.end()
                self._tx = None

    def transaction(self) -> AbstractContextManager[SqliteTransaction]:
        return _Transaction(self)

    def within(self, given: Any) -> NoReturn:
        raise ChargehandError(
            f"within= accepts what hand.transaction() or job.settle() gives, because {self.path} is an SQLite file, "
            f"which only Chargehand may open; this is {type(given).__module__}.{type(given).__qualname__}"
        )

    def turn(
        self,
        batch: Batch,
        holder: Holder,
        monotonic: Callable[[], float] = clock.monotonic,
        waits: Callable[[Any], bool] = lambda _: True,
        *,
        finish: bool = True,
    ) -> Result:
        return turn(self, batch, holder, monotonic, waits)  # flows end in the transaction of their last jobs

    def finish(self) -> Finished:
        return NOTHING_LEFT

    def prune(self, retention: Retention, limit: int) -> int:
        with store_errors(self.path):
            # Reading what to delete needs no lock; the write lock is held only while it is deleted.
            with self.use:
                expired = find_expired(self._db, self._surplus, self._needed, retention, self._now_ms(), limit)
            if not expired:
                return 0
            with _Writing(self):
                return expired.delete(self._db)

    def probe(self) -> None:
        known = len(schema.MIGRATIONS)
        with store_errors(self.path), _Writing(self):
            found = self._schema_version()
            if found != known:
                raise StoreError(
                    f"{self.path} has schema {found} and this Chargehand knows {known}: run one version of the package",
                    "schema-new" if found > known else "schema-old",
                )
            self._db.execute("INSERT OR REPLACE INTO chargehand_probe VALUES (1, ?)", (self._now_ms(),))

    @property
    def pruning(self) -> bool:
        return self._surplus.unfinished or self._needed.unfinished

    # closing

    def close(self) -> None:
        with _opening:
            self._close()

    def _close(self) -> None:
        with self.use:
            if self._db is not None:
                self._db.close()
            forks.unwatch(self)
        self._close_lock()
        left = files.descriptors_on(self.path) & _ours.get(self.path, set())
        if left:
            _ours[self.path] = left
        else:
            _ours.pop(self.path, None)

    def forked(self, usable: bool) -> None:
        """Gives up the connection and the lock, which belong to the parent process."""
        connection = self._db
        self._db = self._reading.connection = forks.Inherited(self.path, os.getppid())
        if self._tx is not None:
            self._tx.end(self._db)
        if usable and connection is not None:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close()
        elif connection is not None:
            forks.leak(connection)
        self._close_lock()

    def _close_lock(self) -> None:
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


class _Locked:
    """Holds the write lock for the block, after `begin` has taken SQLite's own lock.

    Not a generator, here and below: every transaction would pay for it.
    """

    __slots__ = ("_begin", "_store")

    def __init__(self, store: SqliteStore, begin: Callable[[], Any]) -> None:
        self._store, self._begin = store, begin

    def __enter__(self) -> None:
        self._store.take_lock(self._begin)

    def __exit__(self, *_: object) -> None:
        self._store.release_lock()


class _Writing:
    """Runs the block in a transaction, which is rolled back if the block raises."""

    __slots__ = ("_store",)

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def __enter__(self) -> None:
        self._store.take_lock(self._store.begin)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            self._store.end(commit=error is None)
        finally:
            self._store.release_lock()


class _Transaction:
    """As _Writing, with the transaction as an object, and errors of the engine as StoreError."""

    __slots__ = ("_errors", "_store", "_writing")

    def __init__(self, store: SqliteStore) -> None:
        self._store, self._writing, self._errors = store, _Writing(store), store_errors(store.path, ENGINE)

    def __enter__(self) -> SqliteTransaction:
        with self._errors:
            self._writing.__enter__()
            try:
                return self._store.make_transaction()
            except BaseException as error:
                self._writing.__exit__(None, error, None)
                raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._errors:
            try:
                self._store.end_transaction(commit=error is None)
            except BaseException as failure:
                self._writing.__exit__(None, failure, None)
                raise
            self._writing.__exit__(kind, error, trace)
        self._errors.__exit__(kind, error, trace)


class _BusyHandler:
    """Waits, up to a limit, for a program that writes without taking the write lock."""

    def __init__(self) -> None:
        self.limit = LONGEST_WAIT
        self._until = 0.0

    def __call__(self, tries: int) -> bool:
        if not tries:
            self._until = clock.monotonic() + self.limit
        clock.sleep(0.005)
        return clock.monotonic() < self._until


def check_engine(version: str) -> None:
    """Raises StoreError for an SQLite that damages a write-ahead log written by several processes."""
    found = tuple(int(part) for part in version.split("."))
    for safe in SAFE_ENGINES:
        if found >= safe and (safe is SAFE_ENGINES[0] or found[:2] == safe[:2]):
            return
    raise StoreError(
        f"apsw here uses SQLite {version}, which can damage a database that several processes write "
        f"(fixed in {'.'.join(map(str, SAFE_ENGINES[0]))}): install apsw from PyPI, which contains a fixed one"
    )


_SCHEMA = "chargehand_schema"
_SCHEMA_TABLES = """
CREATE TABLE IF NOT EXISTS chargehand_schema \
(version INTEGER PRIMARY KEY, checksum TEXT NOT NULL, applied_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS chargehand_addition (
  name TEXT PRIMARY KEY, checksum TEXT NOT NULL, applied_ms INTEGER NOT NULL) WITHOUT ROWID;
"""
