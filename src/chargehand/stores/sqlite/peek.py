"""A look into an SQLite store by somebody who must not change it: no lock, no migration, no wait without an end.

Only for a process of its own, which may be killed: see `chargehand.doctor.__main__`.
"""

import os
import re
import stat
from pathlib import Path

import apsw

from chargehand import clock
from chargehand.errors import StoreError
from chargehand.stores.sqlite import ground
from chargehand.stores.sqlite.database import Database
from chargehand.stores.sqlite.reading import SqliteFleetReading, SqliteJobReading
from chargehand.stores.sqlite.store import migrations
from chargehand.stores.sqlite.words import NO_DATABASE, in_words

BUSY_MS = 1500
"""How long a reader waits for whoever has locked readers out."""
WRITE_BYTE = 120
"""Of the shared-memory file: whoever has locked it is writing."""
ENGINE_ERROR = apsw.Error
"""What reading a damaged file may raise."""
_VERSION = "SELECT coalesce(max(version), 0) FROM chargehand_schema"
_LAST_DONE = "SELECT max(finished_ms) FROM chargehand_job WHERE queue = ? AND state = 'done'"
_NEXT_RUN = """
SELECT queue, min(run_at_ms) - ? FROM chargehand_job WHERE state = 'queued' AND waits_for = 'time' GROUP BY queue
"""
_NEWEST = """
SELECT max(at) FROM (
  SELECT max(created_ms) AS at FROM (SELECT created_ms FROM chargehand_job ORDER BY seq DESC LIMIT 1)
  UNION ALL SELECT max(last_heartbeat_ms) FROM chargehand_health
  UNION ALL SELECT max(at_ms) FROM chargehand_given_up)
"""
_TABLES = "SELECT sql FROM sqlite_schema WHERE tbl_name LIKE 'chargehand_%' AND sql IS NOT NULL ORDER BY rootpage"


class Peek:
    """Reads a store of any schema version; methods that need tables of another version raise the engine's error."""

    def __init__(self, path: Path) -> None:
        with in_words(path):
            if ground.beginning_of(path) not in (b"", b"SQLite format 3\0"):
                raise StoreError(NO_DATABASE.format(path=path))
            connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
            connection.set_busy_timeout(BUSY_MS)
        self._db = Database(path, connection, clock.now_ms)
        self.jobs = SqliteJobReading(self._db)
        self.fleet = SqliteFleetReading(self._db)

    def schema(self) -> int:
        """The version of its schema; 0 if it has none yet."""
        return int(self._db.all(_VERSION)[0][0]) if "chargehand_schema" in self.tables() else 0

    def tables(self) -> str:
        """The statements that would make its tables and indexes."""
        return ";\n".join(str(sql) for (sql,) in self._db.all(_TABLES))

    def last_done(self, queue: str) -> int | None:
        """When a job of that queue was done last."""
        return self._db.all(_LAST_DONE, (queue,))[0][0]

    def next_run(self) -> dict[str, int]:
        """In how many ms the first future job of each queue is due."""
        return {str(queue): int(left) for queue, left in self._db.all(_NEXT_RUN, (self._db.now_ms(),))}

    def newest_ms(self) -> int | None:
        """The newest time that anybody wrote."""
        return self._db.all(_NEWEST)[0][0]

    def close(self) -> None:
        self._db.connection.close()


def engine_versions() -> dict[str, str]:
    """The versions of the engine and of its driver."""
    return {"apsw": apsw.apsw_version(), "sqlite": apsw.sqlite_lib_version()}


def known_schema() -> int:
    """The version that this code knows."""
    return len(list(migrations()))


def kind_of(mode: int) -> str:
    """What a path is, in a word."""
    for test, word in ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISFIFO, "pipe")):
        if test(mode):
            return word
    return "device or socket"


_LOCK = re.compile(
    r"^\d+: (?P<kind>FLOCK|POSIX) +\w+ +(?P<how>READ|WRITE) +(?P<pid>-?\d+) +[0-9a-f]+:[0-9a-f]+:(?P<inode>\d+) "
    r"(?P<first>\d+) (?P<last>\d+|EOF)$",
    re.MULTILINE,
)


def writers(path: Path, locks: str) -> list[int]:
    """The pids that hold a store's write lock, ours or SQLite's own, from the text of /proc/locks."""
    return [*lockers(Path(f"{path}-lock"), locks), *lockers(Path(f"{path}-shm"), locks, WRITE_BYTE)]


def lockers(path: Path, locks: str, byte: int | None = None) -> list[int]:
    """The pids that have locked a file (or, as SQLite does, a byte of it) for writing."""
    try:
        inode = os.stat(path).st_ino
    except OSError:
        return []  # nobody has made it yet
    kind = "FLOCK" if byte is None else "POSIX"
    found: list[int] = []
    for line in _LOCK.finditer(locks):
        if (line["kind"], line["how"], int(line["inode"])) != (kind, "WRITE", inode):
            continue
        last = float("inf") if line["last"] == "EOF" else int(line["last"])
        if byte is None or int(line["first"]) <= byte <= last:
            found.append(int(line["pid"]))
    return found
