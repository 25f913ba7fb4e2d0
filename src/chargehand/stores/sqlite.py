"""SQLite: one file, one node, any number of processes that enqueue and read.

Every write first takes a `flock` on a file beside the database, which makes writers fair and keeps SQLite's own
"database is locked" away. It must never be used by two threads at once, nor after a fork.
"""

import fcntl
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import apsw

from chargehand import clock
from chargehand.errors import StoreBusy, StoreError
from chargehand.model.job import Attempt, JobRecord
from chargehand.store import Counts, CrewRow, JobFilter, Pause, Retention
from chargehand.stores import ground
from chargehand.stores.sqlite_rows import JOB_COLUMNS, counts_of, job_of, overdue
from chargehand.stores.sqlite_transaction import SqliteTransaction

SAFE_ENGINES = ((3, 51, 3), (3, 50, 7), (3, 44, 6))
"""The first versions, newest line first, without the defect that damages WAL files written by several processes."""
LONGEST_WAIT = 60.0
"""Seconds that we wait for somebody who writes without our lock."""
PAGES_TENDED = 250
PAGES_UNTENDED = 10_000
"""The node checkpoints early and often. Others do only if the log has grown far because no node runs."""

_PRUNE = "DELETE FROM chargehand_job WHERE seq = ? AND state IN ('done', 'failed', 'cancelled') RETURNING seq"

_ours: dict[Path, set[int]] = {}
"""Descriptors that this process has on databases because of us. SQLite may keep them longer than a store is open."""
_opening = threading.Lock()


class SqliteStore:
    """See the module and `chargehand.store.Store`."""

    def __init__(
        self, path: Path, *, create: bool = True, tend: bool = False, now_ms: Callable[[], int] = clock.now_ms
    ) -> None:
        self.path, self._now_ms = path, now_ms
        self._version = 0
        self._db: Any = None  # apsw's own types need Python 3.12
        with _in_words(path), _opening:
            self._check_ground(create)
            self._lock = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._connect(create, PAGES_TENDED if tend else PAGES_UNTENDED)
                self.migrate()
                _ours[path] = ground.descriptors_on(path)
            except BaseException:
                self._let_go()
                raise

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
            raise StoreError(_WORDS[0][1].format(path=path))

    def _connect(self, create: bool, checkpoint_pages: int) -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        self._db = apsw.Connection(str(self.path), flags)
        seen = os.stat(self.path)
        self._file = (seen.st_dev, seen.st_ino)
        self._db.set_busy_handler(_Patience())
        if self._db.pragma("journal_mode") != "wal":
            with self._locked():
                mode = self._db.pragma("journal_mode", "wal")
            if mode != "wal":
                raise StoreError(f"{self.path} cannot be switched to write-ahead logging; is it read-only?")
        # Without this the engine may plan a statement anew for every value that is bound to it: ten times the cost.
        self._db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self._db.pragma("synchronous", "FULL")
        self._db.pragma("temp_store", "MEMORY")
        self._db.wal_autocheckpoint(checkpoint_pages)

    def migrate(self) -> int:
        steps = list(_migrations())
        with _in_words(self.path):
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
        if not self._all(known):
            return 0
        version = self._all("SELECT coalesce(max(version), 0) FROM chargehand_schema")[0][0]
        return int(version)

    # writing

    @contextmanager
    def _locked(self) -> Generator[None]:
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _check_file(self) -> None:
        """What is written into a deleted file is lost: that must not be acknowledged."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._file:
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
        with _in_words(self.path, _ENGINE), self._writing():
            yield SqliteTransaction(self._db, self._now_ms())

    def prune(self, retention: Retention, limit: int) -> int:
        with _in_words(self.path):
            # What to delete is found by reading, beside the writers; the write lock is held for the deletion alone.
            doomed = overdue(self._db, retention, self._now_ms(), limit)
            if not doomed:
                return 0
            with self._writing():
                gone = list(self._db.executemany(_PRUNE, doomed))  # not those that somebody has just retried
                self._db.executemany("DELETE FROM chargehand_attempt WHERE job = ?", gone)
                return len(gone)

    # reading

    def _all(self, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._db.execute(sql, tuple(bindings)).fetchall()

    def stirred(self) -> bool:
        with _in_words(self.path):
            seen, self._version = self._version, int(self._db.pragma("data_version"))
            return seen != self._version

    def job(self, job_id: str) -> JobRecord | None:
        with _in_words(self.path):
            rows = self._all(f"SELECT {JOB_COLUMNS} FROM chargehand_job WHERE id = ?", (job_id,))
            return job_of(rows[0]) if rows else None

    def jobs(self, which: JobFilter) -> list[JobRecord]:
        sql, bindings = [f"SELECT {JOB_COLUMNS} FROM chargehand_job WHERE 1"], list[Any]()
        if which.queue is not None:
            sql.append("AND queue = ?")
            bindings.append(which.queue)
        if which.state is not None:
            sql.append("AND state = ?")
            bindings.append(which.state.value)
        if which.before is not None:
            sql.append("AND seq < (SELECT seq FROM chargehand_job WHERE id = ?)")
            bindings.append(which.before)
        sql.append("ORDER BY seq DESC LIMIT ?")
        with _in_words(self.path):
            return [job_of(row) for row in self._all(" ".join(sql), (*bindings, which.limit))]

    def attempts(self, job_id: str) -> list[Attempt]:
        sql = (
            "SELECT fence, node, worker, pid, started_ms, duration_ms, outcome, error FROM chargehand_attempt "
            "WHERE job = (SELECT seq FROM chargehand_job WHERE id = ?) ORDER BY fence"
        )
        with _in_words(self.path):
            rows = self._all(sql, (job_id,))
        names = Attempt.__struct_fields__
        return [Attempt(**dict(zip(names, row, strict=True))) for row in rows]

    def counts(self) -> list[Counts]:
        with _in_words(self.path):
            return counts_of(self._db)

    def crews(self) -> list[CrewRow]:
        sql = f"SELECT {', '.join(CrewRow.__struct_fields__)} FROM chargehand_crew ORDER BY name"
        with _in_words(self.path):
            rows = self._all(sql)
        names = CrewRow.__struct_fields__
        return [CrewRow(**dict(zip(names, row, strict=True))) for row in rows]

    def pauses(self) -> list[Pause]:
        with _in_words(self.path):
            rows = self._all("SELECT scope, who, reason, since_ms FROM chargehand_pause ORDER BY scope")
        return [Pause(scope=scope, who=who, reason=reason, since_ms=since) for scope, who, reason, since in rows]

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


def _migrations() -> Iterator[tuple[str, str]]:
    folder = resources.files("chargehand.stores") / "sql" / "sqlite"
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".sql"):
            text = file.read_text("utf-8")
            yield text, hashlib.sha256(text.encode()).hexdigest()


_WORDS: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.NotADBError, "{path} is not a database that Chargehand can use: it is no SQLite file. Nothing was changed"),
    (apsw.CorruptError, "{path} is damaged ({error}): restore it from a backup. Nothing was changed"),
    (apsw.ReadOnlyError, "{path} cannot be written: the file, its folder or its disk is read-only"),
    (apsw.CantOpenError, "{path} cannot be opened ({error}): check that folder and file may be read and written"),
    (apsw.FullError, "the disk that holds {path} is full: make room; nothing that was acknowledged is lost"),
    (apsw.BusyError, "{path} has been locked for {wait:g} s by a program that does not take Chargehand's lock first"),
    (apsw.LockedError, "{path} is locked by a reader inside this process"),
    (apsw.IOError, "{path} could not be read or written ({error}): is the disk full, gone or failing?"),
)


_ENGINE = tuple(kind for kind, _ in _WORDS)


@contextmanager
def _in_words(path: Path, kinds: tuple[type[Exception], ...] = (*_ENGINE, OSError)) -> Generator[None]:
    """Turn errors of the engine, and of the system, into ours, with the file and what to do."""
    try:
        yield
    except kinds as error:
        if isinstance(error, OSError):
            raise StoreError(f"{path} cannot be used: {error.strerror or error}") from error
        words = next(words for kind, words in _WORDS if isinstance(error, kind))
        kind = StoreBusy if isinstance(error, apsw.BusyError) else StoreError
        raise kind(words.format(path=path, error=error, wait=LONGEST_WAIT)) from error
