"""Opens Tonearm's own database and stores folders and settings. Must not import numpy or a decoder.

The database is one file next to Chargehand's store. Many processes may read it; a writer holds a lock file.
"""

import fcntl
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

import apsw
import msgspec

from tonearm.errors import LabelFileError, TonearmError
from tonearm.labels import SHIPPED, Book, Tier, load
from tonearm.tags import Mode, Settings, parse_ontos

FILE = "tonearm.db"
WORK = "chargehand.db"
SCHEMA = 1
PATIENCE_MS = 30_000

Db: TypeAlias = Any
"""A connection in a transaction. Type checkers do not know the types of apsw."""


def home(given: Path | None = None) -> Path:
    """Returns the data directory: the given one, TONEARM_HOME, or `tonearm` in the user's data directory."""
    if given is not None:
        return given.expanduser().resolve()
    if named := os.environ.get("TONEARM_HOME"):
        return Path(named).expanduser().resolve()
    data = os.environ.get("XDG_DATA_HOME", "")
    return (Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share") / "tonearm"


def shown(path: bytes) -> str:
    """Returns a printable form of a path with any bytes and control characters."""
    text = path.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def joined(root: bytes, path: bytes) -> bytes:
    """Returns the path of a file in a folder."""
    return os.path.join(root, path)


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of the library and the settings for writing its files."""

    id: int
    root: bytes
    mode: Mode = "none"
    onto: tuple[str, ...] = ()
    tier: Tier = "regular"
    keep_mtime: bool = False
    hard_links: bool = False
    scan: int = 0
    scanned_ms: int | None = None

    @property
    def path(self) -> Path:
        """Returns the path of the folder."""
        return Path(os.fsdecode(self.root))

    def settings(self) -> Settings:
        """Returns the settings for writing files of this folder."""
        return Settings(self.mode, parse_ontos(self.onto), self.keep_mtime, self.hard_links)


class Library:
    """An open database. Threads may share it; they are serialised."""

    def __init__(self, where: Path, *, create: bool = True) -> None:
        self.home = where
        self.path = where / FILE
        if create:
            where.mkdir(parents=True, exist_ok=True)
        elif not self.path.exists():
            raise TonearmError(
                f"{where} contains no library: start with `tonearm serve FOLDER` or `tonearm scan FOLDER`"
            )
        self._turn = threading.RLock()
        self._lock = os.open(f"{self.path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._db: Db = apsw.Connection(str(self.path))
        self._db.set_busy_timeout(PATIENCE_MS)
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", "FULL")
        self._db.pragma("foreign_keys", True)
        self._migrate()

    def close(self) -> None:
        """Closes the database."""
        self._db.close()
        os.close(self._lock)

    @contextmanager
    def writing(self) -> Generator[Db]:
        """A write transaction, durable when the block ends."""
        with self._turn:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield self._db
                    self._db.execute("COMMIT")
                finally:
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Returns all rows of a query."""
        with self._turn:
            return self._db.execute(query, values).fetchall()

    def one(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        """Returns the first row of a query, or None."""
        return next(iter(self.rows(query, *values)), None)

    def number(self, query: str, *values: Any) -> int:
        """Returns the number that a query selects, or 0."""
        found = self.one(query, *values)
        return int(found[0] or 0) if found else 0

    def _migrate(self) -> None:
        version = self._db.pragma("user_version")
        if version == SCHEMA:
            return
        if version > SCHEMA:
            raise TonearmError(f"{self.path} has schema {version} of a newer Tonearm: upgrade the package")
        with self.writing() as db:
            if db.pragma("user_version") == 0:  # check again: another process may have migrated
                db.execute(resources.files("tonearm").joinpath("schema.sql").read_text("utf-8"))
                db.execute(f"PRAGMA user_version = {SCHEMA}")

    # folders and settings

    def add_folder(self, path: Path) -> Folder:
        """Adds a folder if it is new and returns it. Raises TonearmError if it overlaps with another one."""
        real = os.path.realpath(os.fsencode(path.expanduser()))
        if not os.path.isdir(real):
            raise TonearmError(f"{shown(real)} is not a folder: give a folder with music")
        for other in self.folders():
            if other.root == real:
                return other
            if os.path.commonpath((other.root, real)) in (other.root, real):
                raise TonearmError(f"{shown(real)} overlaps with {shown(other.root)}, which is already in the library")
        with self.writing() as db:
            db.execute("INSERT INTO folder (root) VALUES (?) ON CONFLICT DO NOTHING", (real,))
        return next(folder for folder in self.folders() if folder.root == real)

    def folders(self) -> list[Folder]:
        """Returns all folders in the order of their addition."""
        columns = ", ".join(Folder.__struct_fields__)
        return [_folder(row) for row in self.rows(f"SELECT {columns} FROM folder ORDER BY id")]

    def folder(self, number: int) -> Folder | None:
        """Returns a folder by its number, or None."""
        return next((folder for folder in self.folders() if folder.id == number), None)

    def change_folder(self, folder: Folder) -> None:
        """Stores the settings for writing files of a folder."""
        settings = (folder.mode, msgspec.json.encode(folder.onto).decode(), folder.tier, folder.keep_mtime)
        with self.writing() as db:
            db.execute(
                "UPDATE folder SET mode = ?, onto = ?, tier = ?, keep_mtime = ?, hard_links = ? WHERE id = ?",
                (*settings, folder.hard_links, folder.id),
            )

    def setting(self, name: str) -> str | None:
        """Returns a setting, or None."""
        found = self.one("SELECT value FROM setting WHERE name = ?", name)
        return None if found is None else str(found[0])

    def set(self, name: str, value: str | None) -> None:
        """Stores a setting, or deletes it (None)."""
        with self.writing() as db:
            if value is None:
                db.execute("DELETE FROM setting WHERE name = ?", (name,))
            else:
                db.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, value))

    def book(self) -> Book:
        """Loads `labels.toml` next to the database, or the included label file."""
        own = self.home / SHIPPED
        return load(own if own.is_file() else None)

    def book_trouble(self) -> str | None:
        """Returns the error in the label file, or None."""
        try:
            self.book()
        except LabelFileError as error:
            return str(error)
        return None


def _folder(row: tuple[Any, ...]) -> Folder:
    fields = dict(zip(Folder.__struct_fields__, row, strict=True))
    fields["onto"] = tuple(msgspec.json.decode(fields["onto"], type=list[str]))
    fields["keep_mtime"], fields["hard_links"] = bool(fields["keep_mtime"]), bool(fields["hard_links"])
    return Folder(**fields)
