"""Reads and writes all rows of a PostgreSQL store, for a move. `stores.moving` decides what is moved."""

from collections.abc import Sequence
from typing import Any

import msgspec

from chargehand import clock
from chargehand.errors import StoreError
from chargehand.stores import moving
from chargehand.stores.moving import COUNTED, JOBS, PARTS, TRIED, Key, Part, Progress, Row
from chargehand.stores.postgres import driver, schema, statements
from chargehand.stores.postgres.address import Address
from chargehand.stores.postgres.session import Session
from chargehand.stores.postgres.store import PostgresStore

BEATS = 6.0
"""Seconds within which a node that lives increases its counter, even if it is idle."""
SESSION_ENDS = 1.0
"""Seconds within which the server ends the session of a node that has just stopped."""
LOOK_EVERY = 0.1
_SQL = statements.load("moving")
_ENDED = ("done", "failed", "cancelled")
_JOBS = "chargehand_job j LEFT JOIN chargehand_live t ON t.seq = j.seq LEFT JOIN chargehand_end e ON e.seq = j.seq"
_SIZE_OF_JOB = """
octet_length(j.payload) + coalesce(octet_length(e.result), 0) + coalesce(octet_length(coalesce(t.error, e.error)), 0)
+ (SELECT coalesce(sum(octet_length(a.error)), 0) FROM chargehand_attempt a WHERE a.job = j.seq)
"""
# Several nodes may have the same crew and workers, and the target of a move has one node: the newest row is moved.
_NEWEST = "(SELECT DISTINCT ON ({0}) * FROM chargehand_{1} ORDER BY {0}, {2} DESC NULLS LAST, node) AS newest"
_OF_NODES = {
    "crew": _NEWEST.format("name", "crew", "registered_ms"),
    "worker": _NEWEST.format("component", "worker", "written_ms"),
    "given_up": _NEWEST.format("component", "given_up", "at_ms"),
}
_FROM = {"job": _JOBS, **_OF_NODES}
_READ: dict[str, dict[str, str]] = {
    # A job over the limit of its key is set aside by a claim: it may be claimed in the target, which decides anew.
    "job": {
        **{name: f"coalesce(t.{name}, e.{name})" for name in (
            "claim", "started_ms", "cancel_ms", "retried_ms", "failed_in", "progress", "error",
        )},
        **{name: f"coalesce(t.{name}, e.{name}, 0)" for name in ("attempts", "crashes", "interruptions")},
        **{name: f"e.{name}" for name in ("finished_ms", "reason", "result")},
        **{name: f"t.{name}" for name in ("node", "worker")},
        "state": "coalesce(e.state, CASE WHEN t.claim IS NULL THEN 'queued' ELSE 'running' END)",
        "waits": "CASE WHEN t.waits IN ('time', 'jobs') THEN t.waits END",
        "expires_at_ms": "CASE WHEN t.seq IS NULL THEN j.expires_at_ms ELSE t.expires_at_ms END",
        "priority": "-j.rank",
        "place": "nullif(t.place, j.seq)",
        "run_at_ms": "coalesce(t.run_at_ms, e.run_at_ms, j.run_at_ms)",
    },
    "crash": {"charged": "charged::int"},
    "flow": {"arrival": "arrival::int"},
    "edge": {"strict": "strict::int", "open": "open::int"},
}  # fmt: skip
"""The columns that this store has elsewhere or in another form."""
_JOB = moving.names(
    "seq id queue rank run_at_ms max_attempts timeout_ms key limit_key item label tags created_ms payload flow parent "
    "share sequence expires_at_ms meta traceparent"
)
_LIVE = moving.names(
    "seq run_at_ms started_ms cancel_ms retried_ms place rank attempts crashes interruptions waits queue key limit_key "
    "error failed_in flow share expires_at_ms"
)
_END = moving.names(
    "seq claim finished_ms started_ms run_at_ms duration_ms cancel_ms retried_ms attempts crashes interruptions pid "
    "queue flow state node worker reason failed_in progress result error"
)
_OF_LAST_ATTEMPT = ("duration_ms", "pid", "node", "worker")
_ALL = ("live", "end", "attempt", "tag", *(part.name for part in PARTS))


class PostgresReader:
    """Implements `chargehand.stores.moving.Reader`, with a connection that the server lets only read.

    Raises StoreError for a store of another schema version, which would have to be changed first.
    """

    def __init__(self, address: Address, *, target: bool = False) -> None:
        self.shown = address.shown
        self._db = Session(address, {**driver.MOVE_SETTINGS, "default_transaction_read_only": "on"})
        try:
            self._check(target)
        except BaseException:
            self.close()
            raise

    def _check(self, target: bool) -> None:
        if not target:
            schema.check_finished(self._db)
        found = schema.version(self._db).number
        if found == 0:
            raise StoreError(f"there is no store at {self.shown}")
        if found != len(schema.MIGRATIONS):
            raise StoreError(moving.OTHER_SCHEMA.format(store=self.shown))

    def page(self, part: Part, after: Key | None) -> list[Row]:
        table = _FROM.get(part.name, f"chargehand_{part.name}")
        prefix = "j." if part is JOBS else ""
        keys = ", ".join(f"{prefix}{column}" for column in part.key)
        count = len(part.key)
        beyond = "true" if after is None else f"({keys}) > ({_marks(1, count)})"
        known = list(after or ())
        size = _SIZE_OF_JOB if part is JOBS else " + ".join(["0", *(f"octet_length({name})" for name in part.long)])
        sql = f"SELECT {keys}, {size} FROM {table} WHERE {beyond} ORDER BY {keys} LIMIT {moving.PAGE_ROWS}"
        last = moving.cut([(list(key), int(size or 0)) for *key, size in self._db.rows(sql.encode(), known)])
        if last is None:
            return []
        other = _READ.get(part.name, {})
        columns = ", ".join(other.get(column, f"{prefix}{column}") for column in part.columns)
        until = f"({keys}) <= ({_marks(len(known) + 1, count)})"
        sql = f"SELECT {columns} FROM {table} WHERE {beyond} AND {until} ORDER BY {keys}"
        found = self._db.rows(sql.encode(), [*known, *last])
        rows = [dict(zip(part.columns, row, strict=True)) for row in found]
        if rows and part is JOBS:
            moving.join_attempts(rows, self._db.rows(_SQL["attempts"], (rows[0]["seq"], rows[-1]["seq"])))
        return rows

    def count(self, part: Part) -> int:
        table = _OF_NODES.get(part.name, f"chargehand_{part.name}")
        return int(self._db.rows(f"SELECT count(*) FROM {table}".encode())[0][0])

    def counters(self) -> dict[str, int]:
        return {
            name: int(self._db.rows(_SQL["counter"], (f"chargehand_{name}", column))[0][0])
            for name, column in COUNTED.items()
        }

    def node(self) -> str:
        return next((str(name) for (name,) in self._db.rows(_SQL["node"])), "")

    def running(self) -> list[str]:
        since, known = clock.monotonic(), dict[str, int]()
        while True:
            rows = self._db.rows(_SQL["running"])
            if beating := [str(name) for name, life, beat, _ in rows if known.setdefault(life, beat) != beat]:
                return beating
            connected = [str(name) for name, _, _, session in rows if session]
            pooled = any(session is None for *_, session in rows)
            patience = BEATS if pooled else SESSION_ENDS if connected else 0.0
            if clock.monotonic() - since >= patience:
                return connected
            clock.sleep(LOOK_EVERY)

    def close(self) -> None:
        self._db.close()


class PostgresWriter:
    """Implements `chargehand.stores.moving.Writer`."""

    def __init__(self, address: Address) -> None:
        self._store = PostgresStore(address, moving=True)
        self._db = self._store.session

    def progress(self) -> Progress | None:
        if not schema.is_unfinished(self._db):
            return None
        ((source, part, after),) = self._db.rows(_SQL["progress"])
        return Progress(source, part, None if after is None else msgspec.json.decode(after))

    def begin(self, progress: Progress) -> None:
        with self._db.transaction():
            self._db.send(moving.MAKE_MARK.encode())
            self._db.send(_SQL["begin"], (progress.source, progress.part))

    def write(self, part: Part, rows: Sequence[Row], progress: Progress, node: str) -> None:
        with self._db.transaction():
            if part is JOBS:
                self._write_jobs(rows)
            elif part.name in _OF_NODES:
                self._insert(part.name, ("node", *part.columns), [row | {"node": node} for row in rows])
            elif part.name == "start":
                self._db.send(_SQL["add_starts"], (_json(part.columns, rows),))
            elif (
                part.name == "edge"
            ):  # an outcome may have been lost with the claim of a running job: all are looked at
                self._insert(part.name, ("due", *part.columns), [row | {"due": row["open"]} for row in rows])
            elif part.name == "recurring":
                self._insert(part.name, ("nodes", *part.columns), [row | {"nodes": [node]} for row in rows])
            else:
                self._insert(part.name, part.columns, rows)
            self._note(progress)

    def _write_jobs(self, rows: Sequence[Row]) -> None:
        for row in rows:
            row["rank"] = -row["priority"]
        self._insert("job", _JOB, rows)
        self._db.send(_SQL["add_live"], (_json(_LIVE, [row for row in rows if row["state"] == "queued"]),))
        self._insert("end", _END, [_end_of(row) for row in rows if row["state"] in _ENDED])
        attempts = [
            attempt | {"job": row["seq"]} for row in rows for attempt in row[TRIED] if not _is_in_end(row, attempt)
        ]
        self._db.send(_SQL["add_attempts"], (moving.as_json(attempts),))
        tags = [
            {"tag": tag, "job": row["seq"]}
            for row in rows
            if row["tags"] is not None
            for tag in dict.fromkeys(msgspec.json.decode(row["tags"]))
        ]
        if tags:
            self._insert("tag", ("tag", "job"), tags)

    def _insert(self, name: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Inserts all rows with one statement, which takes them as one JSON text."""
        table, listed = f"chargehand_{name}", ", ".join(columns)
        sql = (
            f"INSERT INTO {table} ({listed}) SELECT {listed} FROM json_populate_recordset(NULL::{table}, $1::json)"
        ).encode()
        self._db.send(sql, (_json(columns, rows),))

    def _note(self, progress: Progress) -> None:
        after = None if progress.after is None else moving.as_json(progress.after)
        self._db.send(_SQL["note"], (progress.part, after))

    def clear(self, progress: Progress) -> None:
        with self._db.transaction():
            self._db.send(f"TRUNCATE {', '.join(f'chargehand_{name}' for name in _ALL)}".encode())
            self._note(progress)

    def finish(self, counters: dict[str, int]) -> None:
        with self._db.transaction():
            for name, column in COUNTED.items():
                if counters[name]:
                    self._db.send(_SQL["set_counter"], (f"chargehand_{name}", column, counters[name]))
            self._db.send(_SQL["finish"])

    def close(self) -> None:
        self._store.close()


def _json(columns: Sequence[str], rows: Sequence[Row]) -> str:
    return moving.as_json([{column: row[column] for column in columns} for row in rows])


def _marks(first: int, count: int) -> str:
    return ", ".join(f"${at}" for at in range(first, first + count))


def _last_attempt(row: Row) -> Row | None:
    """Returns the attempt that ended the job; None if it ended without one."""
    tried = row[TRIED]
    return tried[-1] if tried and tried[-1]["claim"] == row["claim"] else None


def _end_of(row: Row) -> dict[str, Any]:
    last = _last_attempt(row) or dict.fromkeys(_OF_LAST_ATTEMPT)
    return row | {name: last[name] for name in _OF_LAST_ATTEMPT}


def _is_in_end(row: Row, attempt: Row) -> bool:
    """Returns whether the end of the job has all of this attempt, so that it needs no row."""
    return (
        attempt is _last_attempt(row)
        and row["state"] == attempt["outcome"] == "done"
        and attempt["error"] is None
        and attempt["started_ms"] + attempt["duration_ms"] == row["finished_ms"]
    )
