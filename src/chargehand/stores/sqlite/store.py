"""SQLite: one file, one node, any number of processes that enqueue and read.

Every write first takes a `flock` on a file beside the database, which makes writers fair and keeps SQLite's own
"database is locked" away. It must never be used by two threads at once, nor after a fork.
"""

import fcntl
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import apsw

from chargehand import clock
from chargehand.errors import StoreError
from chargehand.ids import NewIds, new_ids
from chargehand.model.batch import Batch, Result
from chargehand.model.records import Holder, Retention
from chargehand.stores.location import Location
from chargehand.stores.sqlite import ground
from chargehand.stores.sqlite.database import Database
from chargehand.stores.sqlite.prune import Surplus, overdue
from chargehand.stores.sqlite.reading import SqliteAccessReading, SqliteFleetReading, SqliteJobReading
from chargehand.stores.sqlite.transaction import SqliteTransaction
from chargehand.stores.sqlite.words import ENGINE, LONGEST_WAIT, NO_DATABASE, in_words
from chargehand.stores.turn import turn

SAFE_ENGINES = ((3, 51, 3), (3, 50, 7), (3, 44, 6))
"""The first versions, newest line first, without the defect that damages WAL files written by several processes."""
PAGES_TENDED = 250
PAGES_UNTENDED = 10_000
"""The node checkpoints early and often. Others do only if the log has grown far because no node runs."""

_ours: dict[Path, set[int]] = {}
"""Descriptors that this process has on databases because of us. SQLite may keep them longer than a store is open."""
_opening = threading.Lock()


class SqliteStore:
    """Keeps `chargehand.store.Store`."""

    def __init__(
        self,
        path: Path,
        *,
        create: bool = True,
        tend: bool = False,
        synchronous: str = "full",
        now_ms: Callable[[], int] = clock.now_ms,
        new_ids: NewIds = new_ids,
    ) -> None:
        self.path, self._now_ms = path, now_ms
        self._db: Any = None  # untyped: apsw's own types need Python 3.12
        self._data_version = 0
        self._new_ids = new_ids
        self._synchronous = synchronous
        self._surplus = Surplus()
        with in_words(path), _opening:
            self._check_ground(create)
            self._lock = os.open(Location(path).lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._connect(create, PAGES_TENDED if tend else PAGES_UNTENDED)
                self.migrate()
                _ours[path] = ground.descriptors_on(path)
            except BaseException:
                self._let_go()
                raise
        reading = Database(path, self._db, now_ms)
        self.jobs = SqliteJobReading(reading)
        self.fleet = SqliteFleetReading(reading)
        self.access = SqliteAccessReading(reading)

    # opening

    def _check_ground(self, create: bool) -> None:
        path = self.path
        check_engine(apsw.sqlite_lib_version())
        if not path.exists() and not create:
            raise StoreError(f"there is no store at {path}: start a node, or name the right one with CHARGEHAND_URL")
        if not path.parent.is_dir():
            raise StoreError(f"cannot make a store at {path}: there is no folder {path.parent}")
        if path.is_dir():
            raise StoreError(f"{path} is a folder, not a store: name a file in it")
        network = ground.is_network(path.parent)
        if network is not None:
            raise StoreError(
                f"{path} is on a network file system ({network}), where SQLite loses data: move it to a local disk"
            )
        if "_sqlite3" in sys.modules and ground.descriptors_on(path) - _ours.get(path, set()):
            raise StoreError(
                f"{path} is open in this process through another engine (the standard library's sqlite3?), whose "
                "closing would drop our locks and damage the file: use hand.transaction() for your own tables in it"
            )

        if not ground.descriptors_on(path) and ground.beginning_of(path) not in (b"", b"SQLite format 3\0"):
            raise StoreError(NO_DATABASE.format(path=path))

    def _connect(self, create: bool, checkpoint_pages: int) -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        self._db = apsw.Connection(str(self.path), flags)
        self._file = ground.identity_of(self.path)
        self._db.set_busy_handler(_Patience())
        if self._db.pragma("journal_mode") != "wal":
            with self._locked():
                mode = self._db.pragma("journal_mode", "wal")
            if mode != "wal":
                raise StoreError(f"{self.path} cannot be switched to write-ahead logging; is it read-only?")
        # Without this the engine may plan a statement anew for every value that is bound to it: ten times the cost.
        self._db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self._db.pragma("synchronous", self._synchronous)
        self._db.pragma("temp_store", "MEMORY")
        self._db.wal_autocheckpoint(checkpoint_pages)

    def migrate(self) -> int:
        steps = list(migrations())
        with in_words(self.path):
            if self._schema_version() == len(steps):
                return len(steps)
            with self._writing():
                found = self._schema_version()  # again: another process may have been quicker
                if found > len(steps):
                    raise StoreError(
                        f"{self.path} was made by a newer Chargehand (schema {found}, this one knows {len(steps)}): "
                        "upgrade the package; nothing was changed"
                    )
                if not found:
                    self._db.execute(
                        "CREATE TABLE IF NOT EXISTS chargehand_schema "
                        "(version INTEGER PRIMARY KEY, checksum TEXT NOT NULL, applied_ms INTEGER NOT NULL)"
                    )
                for version, (text, checksum) in enumerate(steps[found:], found + 1):
                    self._db.execute(text)
                    row = (version, checksum, self._now_ms())
                    self._db.execute("INSERT INTO chargehand_schema VALUES (?, ?, ?)", row)
            return len(steps)

    def _schema_version(self) -> int:
        known = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'chargehand_schema'"
        if not self._db.execute(known).fetchall():
            return 0
        ((version,),) = self._db.execute("SELECT coalesce(max(version), 0) FROM chargehand_schema").fetchall()
        return int(version)

    # reading

    def stirred(self) -> bool:
        with in_words(self.path):
            seen, self._data_version = self._data_version, int(self._db.pragma("data_version"))
            return seen != self._data_version

    def now_ms(self) -> int:
        return self._now_ms()

    # writing

    @contextmanager
    def _locked(self) -> Generator[None]:
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _check_file(self) -> None:
        """Raises StoreError if the file was deleted: what is written into it is lost and must not be acknowledged."""
        found = ground.identity_of(self.path)
        if found is None or found != self._file:
            raise StoreError(
                f"{self.path} was deleted or replaced while it was in use: restart everything that uses it"
            )

    @contextmanager
    def _writing(self) -> Generator[None]:
        with self._locked():
            self._check_file()
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def transaction(self) -> Generator[SqliteTransaction]:
        with in_words(self.path, ENGINE), self._writing():
            yield SqliteTransaction(self._db, self._now_ms(), self._new_ids)

    def turn(self, batch: Batch, holder: Holder, monotonic: Callable[[], float] = clock.monotonic) -> Result:
        return turn(self, batch, holder, monotonic)

    def prune(self, retention: Retention, limit: int) -> int:
        with in_words(self.path):
            # What to delete is found by reading, beside the writers; the write lock is held for the deletion alone.
            doomed = overdue(self._db, self._surplus, retention, self._now_ms(), limit)
            if not doomed:
                return 0
            with self._writing():
                return doomed.delete(self._db)

    def probe(self) -> None:
        known = len(list(migrations()))
        with in_words(self.path), self._writing():
            found = self._schema_version()
            if found != known:
                raise StoreError(
                    f"{self.path} has schema {found} and this Chargehand knows {known}: run one version of the package"
                )
            self._db.execute("INSERT OR REPLACE INTO chargehand_probe VALUES (1, ?)", (self._now_ms(),))

    @property
    def pruning(self) -> bool:
        return self._surplus.unfinished

    # closing

    def close(self) -> None:
        with _opening:
            self._let_go()

    def _let_go(self) -> None:
        if self._db is not None:
            self._db.close()
        os.close(self._lock)
        left = ground.descriptors_on(self.path) & _ours.get(self.path, set())
        if left:
            _ours[self.path] = left
        else:
            _ours.pop(self.path, None)


class _Patience:
    """Waits for somebody who writes without our lock, up to a limit."""

    def __init__(self) -> None:
        self._until = 0.0

    def __call__(self, tries: int) -> bool:
        if not tries:
            self._until = clock.monotonic() + LONGEST_WAIT
        clock.sleep(0.005)
        return clock.monotonic() < self._until


def check_engine(version: str) -> None:
    """Refuse an SQLite that damages a write-ahead log written by several processes."""
    found = tuple(int(part) for part in version.split("."))
    for safe in SAFE_ENGINES:
        if found >= safe and (safe is SAFE_ENGINES[0] or found[:2] == safe[:2]):
            return
    raise StoreError(
        f"apsw here uses SQLite {version}, which can damage a database that several processes write "
        f"(mended in {'.'.join(map(str, SAFE_ENGINES[0]))}): install apsw from PyPI, which brings its own"
    )


def migrations() -> Iterator[tuple[str, str]]:
    """The steps from nothing to the present schema, each with its checksum."""
    folder = resources.files("chargehand.stores.sqlite") / "migrations"
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".sql"):
            text = file.read_text("utf-8")
            yield text, hashlib.sha256(text.encode()).hexdigest()
