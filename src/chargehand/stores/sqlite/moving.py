"""Reads and writes all rows of an SQLite store, for a move. `stores.moving` decides what is moved."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import apsw
import msgspec

from chargehand import clock
from chargehand.errors import StoreError
from chargehand.stores import moving
from chargehand.stores.location import Location
from chargehand.stores.moving import ATTEMPT, COUNTED, JOBS, MARK, TRIED, Key, Part, Progress, Row
from chargehand.stores.sqlite import files
from chargehand.stores.sqlite.database import Database
from chargehand.stores.sqlite.errors import NO_DATABASE, NO_STORE, store_errors
from chargehand.stores.sqlite.schema import ADDITIONS, MIGRATIONS
from chargehand.stores.sqlite.store import SqliteStore, opening

BUSY_MS = 10_000
"""How long a statement waits for a process that has locked readers out."""
# A job over the limit of its key is set aside by a claim: it may be claimed in the target, which decides anew.
_READ = {
    "job": {
        "waits": "iif(waits_for IN ('time', 'jobs'), waits_for, NULL)",
        "place": "iif(state IN ('queued', 'running'), nullif(place, seq), NULL)",
        "share": "nullif(share, '')",
        "claim": "nullif(fence, 0)",
    }
}
"""The columns that this store has under another name or in another form."""
_SIZE_OF_ATTEMPTS = """
+ (SELECT ifnull(sum(octet_length(a.error)), 0) FROM chargehand_attempt AS a WHERE a.job = seq)
"""
_ATTEMPTS = """
SELECT job, fence, node, worker, pid, started_ms, duration_ms, outcome, error FROM chargehand_attempt
WHERE job BETWEEN ? AND ? ORDER BY job, fence
"""
_WRITTEN = {"waits": "waits_for", "claim": "fence"}
_NOT_WRITTEN = ("node", "worker")
"""Columns that only running jobs have."""
_INSERT_ATTEMPTS = """
INSERT INTO chargehand_attempt (job, fence, node, worker, pid, started_ms, duration_ms, outcome, error)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
  value ->> 8
FROM json_each(?)
"""
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'chargehand_%'"
_ADDITIONS = "SELECT name FROM chargehand_addition"
_VERSION = "SELECT max(version) FROM chargehand_schema"
_COUNTER = """
SELECT max(ifnull((SELECT max({column}) FROM {table}), 0),
  ifnull((SELECT seq FROM sqlite_sequence WHERE name = '{table}'), 0))
"""
_SET_COUNTER = "UPDATE sqlite_sequence SET seq = max(seq, ?2) WHERE name = ?1 RETURNING name"
_ADD_COUNTER = "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)"


class SqliteReader:
    """Implements `chargehand.stores.moving.Reader`, with a connection that cannot write.

    Raises StoreError for a store of another schema version, which would have to be changed first.
    """

    def __init__(self, location: Location, *, target: bool = False) -> None:
        path = location.path
        self.shown = str(location)
        with store_errors(path):
            location.check()
            if not path.exists():
                raise StoreError(f"there is no store at {path}")
            if not target and files.beginning_of(path) not in (b"", files.MAGIC):
                raise StoreError(NO_DATABASE.format(path=path))
            with opening(path):
                connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOFOLLOW)
            connection.set_busy_timeout(BUSY_MS)
        self._db = Database(path, connection, clock.now_ms, nullcontext())
        try:
            self._check(path, target)
        except BaseException:
            self.close()
            raise

    def _check(self, path: Path, target: bool) -> None:
        tables = {str(name) for (name,) in self._db.all(_TABLES)}
        if "chargehand_schema" not in tables:
            raise StoreError(NO_STORE.format(path=path))
        if MARK in tables and not target:
            raise StoreError(moving.UNFINISHED.format(store=path))
        rows = self._db.all(_ADDITIONS) if "chargehand_addition" in tables else []
        additions = {str(name) for (name,) in rows}
        if self._db.all(_VERSION) != [(len(MIGRATIONS),)] or not ADDITIONS.keys() <= additions:
            raise StoreError(moving.OTHER_SCHEMA.format(store=path))

    def page(self, part: Part, after: Key | None) -> list[Row]:
        keys, table = ", ".join(part.key), f"chargehand_{part.name}"
        marks = ", ".join("?" * len(part.key))
        beyond, bindings = (f"({keys}) > ({marks})", after) if after is not None else ("1 = 1", [])
        size = " + ".join(["0", *(f"ifnull(octet_length({column}), 0)" for column in part.long)])
        if part is JOBS:
            size += _SIZE_OF_ATTEMPTS
        sql = f"SELECT {keys}, {size} FROM {table} WHERE {beyond} ORDER BY {keys} LIMIT ?"
        last = moving.cut([(list(key), size) for *key, size in self._db.all(sql, (*bindings, moving.PAGE_ROWS))])
        if last is None:
            return []
        columns = ", ".join(_READ.get(part.name, {}).get(column, column) for column in part.columns)
        sql = f"SELECT {columns} FROM {table} WHERE {beyond} AND ({keys}) <= ({marks}) ORDER BY {keys}"
        rows = [dict(zip(part.columns, row, strict=True)) for row in self._db.all(sql, (*bindings, *last))]
        if rows and part is JOBS:
            moving.join_attempts(rows, self._db.all(_ATTEMPTS, (rows[0]["seq"], rows[-1]["seq"])))
        return rows

    def count(self, part: Part) -> int:
        return int(self._db.all(f"SELECT count(*) FROM chargehand_{part.name}")[0][0])

    def counters(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, column in COUNTED.items():
            sql = _COUNTER.format(column=column, table=f"chargehand_{name}")
            found[name] = int(self._db.all(sql)[0][0])
        return found

    def node(self) -> str:
        return next((str(name) for (name,) in self._db.all("SELECT name FROM chargehand_node")), "")

    def running(self) -> list[str]:
        return []  # one node uses the file, and that has the lock beside it

    def close(self) -> None:
        self._db.connection.close()


class SqliteWriter:
    """Implements `chargehand.stores.moving.Writer`."""

    def __init__(self, location: Location) -> None:
        self._store = SqliteStore(location.path, moving=True)

    def progress(self) -> Progress | None:
        with self._store.transaction() as tx:
            if not tx.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (MARK,)):
                return None
            ((source, part, after),) = tx.execute(f"SELECT source, part, after FROM {MARK}")
        return Progress(source, part, None if after is None else msgspec.json.decode(after))

    def begin(self, progress: Progress) -> None:
        with self._store.transaction() as tx:
            tx.execute(moving.MAKE_MARK)
            tx.execute(f"INSERT INTO {MARK} VALUES (?, ?, NULL)", (progress.source, progress.part))

    def write(self, part: Part, rows: Sequence[Row], progress: Progress, node: str) -> None:
        with self._store.transaction() as tx:
            if part is JOBS:
                self._write_jobs(tx, rows)
            else:
                self._insert(tx, f"chargehand_{part.name}", part.columns, rows)
            self._note(tx, progress)

    def _write_jobs(self, tx: Any, rows: Sequence[Row]) -> None:
        columns = [column for column in JOBS.columns if column not in _NOT_WRITTEN]
        jobs = [{**row, "claim": _fence(row)} for row in rows]
        self._insert(tx, "chargehand_job", columns, jobs)
        attempts = [[row["seq"], *(attempt[name] for name in ATTEMPT)] for row in rows for attempt in row[TRIED]]
        tx.execute(_INSERT_ATTEMPTS, (moving.as_json(attempts),))

    def _insert(self, tx: Any, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Inserts all rows with one statement, which takes them as one JSON text."""
        names = ", ".join(_WRITTEN.get(column, column) for column in columns)
        values = ", ".join(f"value ->> {at}" for at in range(len(columns)))
        text = moving.as_json([[row[column] for column in columns] for row in rows])
        tx.execute(f"INSERT INTO {table} ({names}) SELECT {values} FROM json_each(?)", (text,))

    def _note(self, tx: Any, progress: Progress) -> None:
        after = None if progress.after is None else moving.as_json(progress.after)
        tx.execute(f"UPDATE {MARK} SET part = ?, after = ?", (progress.part, after))

    def clear(self, progress: Progress) -> None:
        with self._store.transaction() as tx:
            for part in moving.PARTS:
                tx.execute(f"DELETE FROM chargehand_{part.name}")
            tx.execute("DELETE FROM chargehand_attempt")
            self._note(tx, progress)

    def finish(self, counters: dict[str, int]) -> None:
        with self._store.transaction() as tx:
            for name, value in counters.items():
                table = f"chargehand_{name}"
                if not tx.execute(_SET_COUNTER, (table, value)):
                    tx.execute(_ADD_COUNTER, (table, value))
            tx.execute(f"DROP TABLE {MARK}")

    def close(self) -> None:
        self._store.close()


def _fence(row: Row) -> int:
    """Returns the number of the job's last claim; 0 if it was never claimed."""
    if row["claim"] is not None or row["state"] != "queued":
        return row["claim"] or 0
    last = row[TRIED][-1]["claim"] if row[TRIED] else 0
    return last or int(row["started_ms"] is not None)
