"""Reads a PostgreSQL store, and what its server says of itself, for `chargehand doctor`. It writes and decides nothing.

Every statement has a time limit, and none needs the rights of a superuser. A connection that is lost is not replaced.
"""

from typing import Any

import msgspec
import psycopg
from psycopg import pq

from chargehand import clock
from chargehand.errors import StoreError
from chargehand.stores.postgres import driver, schema, statements
from chargehand.stores.postgres.address import Address
from chargehand.stores.postgres.driver import Connection, Opened
from chargehand.stores.postgres.errors import described
from chargehand.stores.postgres.reading import PostgresFleetReading, PostgresFlowReading, PostgresJobReading
from chargehand.stores.postgres.session import Session

SETTINGS = {"statement_timeout": "2s", "lock_timeout": "500ms"}
NAME = "chargehand doctor"
"""The application name of the connection."""

_SQL = statements.load("doctor")
_STORE = statements.load("store")


class _One(Session):
    """A session with one connection, which is never replaced."""

    def __init__(self, address: Address, opened: Opened) -> None:
        super().__init__(address, {})
        self._opened = opened

    def open(self) -> Opened:
        if self._opened is None or self._opened.connection.closed:
            raise StoreError(f"the connection to {self.address.shown} was lost", "server-gone")
        return self._opened


class Peek:
    """Reads a store of any schema version. A method that cannot be answered raises StoreError."""

    def __init__(self, address: Address) -> None:
        connection = _connect(address)
        try:
            ((backend, *_),) = connection.execute(_STORE["server"]).fetchall()
            ((first,),) = connection.execute(_SQL["where"]).fetchall()
            self.pooled: bool = backend != connection.info.backend_pid
            self.schema_name: str = address.schema or first or ""
            path = {} if address.schema is None else {"search_path": address.schema}
            text = msgspec.json.encode({**SETTINGS, **path}).decode()
            if not self.pooled:
                connection.execute(_STORE["settings"], (text, False))
        except psycopg.Error as error:
            connection.close()
            raise described(error, address) from error
        opened = Opened(connection, None, text, "") if self.pooled else Opened(connection, backend, "", "")
        self._db = _One(address, opened)
        ((rated,),) = self._db.rows(_SQL["rated"])  # a version without rates may have made the store
        self.jobs = PostgresJobReading(self._db, rated=rated)
        self.fleet = PostgresFleetReading(self._db, rated=rated, hides=False)
        ((flows,),) = self._db.rows(_SQL["flows"])
        self.flows = PostgresFlowReading(self._db) if flows else None

    # the server

    def state(self) -> dict[str, Any]:
        """Returns the version of the server, whether it accepts writes, and the user."""
        ((version, recovery, read_only, user),) = self._db.rows(_SQL["state"])
        return {
            "version": version, "oldest": driver.OLDEST_SERVER, "recovery": recovery, "read_only": read_only,
            "user": user, "pooled": self.pooled,
        }  # fmt: skip

    def now_ms(self) -> int:
        """Returns the time of the server's clock."""
        return int(self._db.rows(_SQL["time"])[0][0])

    def skew(self) -> dict[str, Any]:
        """Returns how far the server's clock is ahead of this machine's, and how long the question took."""
        before = clock.now_ms()
        there = self.now_ms()
        after = clock.now_ms()
        return {"skew_ms": there - (before + after) // 2, "answered_ms": max(0, after - before)}

    def settings(self) -> dict[str, Any]:
        """Returns the settings of the server that matter to a store."""
        return {"settings": {str(name): str(value) for name, value in self._db.rows(_SQL["settings"])}}

    def connections(self) -> dict[str, Any]:
        """Returns how many connections are open, and the limits of the database and of the user; -1 is no limit."""
        names = ("used", "database_used", "database_limit", "user_used", "user_limit")
        return {"connections": dict(zip(names, self._db.rows(_SQL["connections"])[0], strict=True))}

    def snapshots(self) -> dict[str, Any]:
        """Returns what keeps dead rows from being removed, the oldest first, and how many sessions are hidden."""
        names = ("kind", "pid", "application", "user", "state", "statement", "age_s", "transactions")
        found = [dict(zip(names, row, strict=True)) for row in self._db.rows(_SQL["snapshots"])]
        return {"snapshots": found, "hidden": self._db.rows(_SQL["hidden"])[0][0]}

    def vacuum(self) -> dict[str, Any]:
        """Returns the dead rows of the table of live jobs, and when it was vacuumed."""
        names = ("table", "live", "dead", "vacuumed_s", "switched_off", "running", "workers")
        rows = self._db.rows(_SQL["vacuum"], (self.schema_name,))
        return {"vacuum": dict(zip(names, rows[0], strict=True)) if rows else None}

    def rights(self) -> dict[str, Any]:
        """Returns the rights on the schema and the tables that this user lacks."""
        rows = self._db.rows(_SQL["schema_rights"], (self.schema_name,))
        usable, creatable = rows[0] if rows else (True, True)
        missing = [str(text) for (text,) in self._db.rows(_SQL["missing_rights"], (self.schema_name,))]
        lacks = [] if usable else [f"USAGE on schema {self.schema_name}"]
        return {"lacks": [*lacks, *missing], "may_create": creatable}

    def locks(self) -> dict[str, Any]:
        """Returns the session that keeps all others from writing to a table."""
        names = ("pid", "application", "user", "state", "age_s", "table")
        rows = self._db.rows(_SQL["locks"], (self.schema_name,))
        return {"locked": dict(zip(names, rows[0], strict=True)) if rows else None}

    # the store

    def schema(self) -> int:
        """Returns the version of the schema; 0 if there are no tables, or if they are not visible."""
        return schema.version(self._db).number

    def oldest(self) -> int:
        """Returns the oldest schema version whose code may use the store."""
        return schema.version(self._db).oldest

    def peers(self) -> dict[str, Any]:
        """Returns the nodes of the store on all machines, and those that have disappeared."""
        names = ("name", "version", "connected", "heartbeat_ms")
        return {
            key: [dict(zip(names, row, strict=True)) for row in self._db.rows(_SQL[key])] for key in ("peers", "gone")
        }

    def tables(self) -> str:
        """Returns the columns of the tables, and the statements that create the indexes."""
        found = [*self._db.rows(_SQL["definitions"], (self.schema_name,))]
        found += self._db.rows(_SQL["indexes"], (self.schema_name,))
        return "\n".join(str(text) for (text,) in found)

    def last_done(self, queue: str) -> int | None:
        """Returns when a job of this queue was done last."""
        return self._db.rows(_SQL["last_done"], (queue,))[0][0]

    def poison(self, crashes: int) -> list[dict[str, Any]]:
        """Returns the jobs that crashed this many workers and are not done, those that have not ended first."""
        names = ("id", "queue", "crashes", "state", "label")
        return [dict(zip(names, row, strict=True)) for row in self._db.rows(_SQL["poison"], (crashes,))]

    def failed_since(self, queue: str, since_ms: int) -> int:
        """Returns how many jobs of this queue have failed for good since then."""
        return int(self._db.rows(_SQL["failed_since"], (queue, since_ms))[0][0])

    def last_error(self, queue: str) -> str | None:
        """Returns the error of the job of this queue that failed for good last."""
        rows = self._db.rows(_SQL["last_error"], (queue,))
        return rows[0][0] if rows else None

    def next_run(self) -> dict[str, int]:
        """Returns in how many ms the first scheduled job of each queue is due."""
        return {str(queue): int(left) for queue, left in self._db.rows(_SQL["next_run"], (self._db.now,))}

    def newest_ms(self) -> None:
        """Returns None: all times are of the server's clock, which `skew` compares."""

    def close(self) -> None:
        self._db.close()


def _connect(address: Address) -> Connection:
    """Returns a connection to the server that nodes would use, or else to one that accepts no writes."""
    try:
        return driver.attach(address, name=NAME)
    except StoreError as error:
        if error.code != "server-read-only":
            raise
    return driver.attach(address, name=NAME, target_session_attrs="any")


def driver_facts() -> dict[str, str]:
    """Returns the implementation and the versions of the driver."""
    return {"driver": pq.__impl__, "psycopg": psycopg.__version__, "libpq": str(pq.version())}


def known_schema() -> int:
    """Returns the schema version that this code knows."""
    return len(schema.MIGRATIONS)
