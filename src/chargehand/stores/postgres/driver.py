"""Opens connections to PostgreSQL with psycopg: settings, the checks of the server, and the detection of a pooler."""

import logging
import os
from typing import Any

import msgspec
import psycopg
from psycopg import pq, sql
from psycopg.abc import RV, PQGen
from psycopg.types.numeric import Int8Dumper

from chargehand import clock, log
from chargehand.errors import StoreError
from chargehand.stores.postgres import statements
from chargehand.stores.postgres.address import Address
from chargehand.stores.postgres.errors import described, refused

OLDEST_SERVER = 150000
"""The oldest supported server: the tests run on no older one."""

_SQL = statements.load("store")
# A cut line is noticed after 5 to 7 seconds; without these it would be minutes. A server that is read-only is refused.
_LIBPQ: dict[str, Any] = {
    "connect_timeout": 3, "keepalives": 1, "keepalives_idle": 4, "keepalives_interval": 2, "keepalives_count": 3,
    "tcp_user_timeout": 6000, "target_session_attrs": "read-write", "client_encoding": "UTF8",
}  # fmt: skip
# Without generic plans every claim would be planned again; without the settings of scans and joins, a plan made
# while a table was empty would stay in use when it is full. Up to version 17, a scan that is switched off and used all
# the same has so high a cost that the server would compile the plan, which takes longer than running it.
_PLANS = {
    "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off",
    "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off",
}  # fmt: skip
# The server ends the session of a client that it cannot reach any more: otherwise the rows which that has locked would
# stay locked for hours, and other nodes could not take over its jobs. It finds this out after 25 s at most, which is
# less than a lease; of a node, whose transactions never wait for anything, after 10 s, also where a pooler is between.
_REACHABLE = {
    "tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
    "tcp_user_timeout": "25000",
}  # fmt: skip
NODE_SETTINGS = {
    **_PLANS, **_REACHABLE, "statement_timeout": "5s", "lock_timeout": "1s",
    "idle_in_transaction_session_timeout": "10s",
}  # fmt: skip
OTHER_SETTINGS = {**_REACHABLE, "statement_timeout": "30s"}
# A move reads page by page, by primary keys: the planner must not read whole tables for each page.
MOVE_SETTINGS = {
    **NODE_SETTINGS, "plan_cache_mode": "auto", "statement_timeout": "0", "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "0",
}  # fmt: skip

SILENCE = 10.0
"""For how many seconds beyond the limit of a statement a server may send nothing.

The server or a pooler may hang while the line is good: then nobody else would notice.
"""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is closed if its server has sent nothing for too long after it was asked something."""

    silence: float | None = SILENCE
    """The limit in seconds; None: none."""

    def wait(self, gen: PQGen[RV], *args: Any, **options: Any) -> RV:
        return super().wait(self._limited(gen), *args, **options)

    def _limited(self, steps: PQGen[RV]) -> PQGen[RV]:
        """Takes the steps of an operation. Raises OperationalError if the next one is not possible in time."""
        try:
            wanted = next(steps)
            since = clock.monotonic()
            while True:
                ready = yield wanted
                now = clock.monotonic()
                if ready:
                    since = now
                elif self.silence is not None and now - since >= self.silence:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"the server has not answered for {now - since:.0f} s")
                wanted = steps.send(ready)
        except StopIteration as end:
            return end.value


class Opened(msgspec.Struct, frozen=True):
    """A connection, and what is known of its server."""

    connection: Connection
    backend: int | None
    """The server process of this connection; None behind a pooler."""
    settings: str
    """JSON: what must be set at the beginning of each transaction; empty if it is set for the session."""
    search_path: str
    """The path for statements of the application: the schema of the store, then the user's own search path."""

    @property
    def pooled(self) -> bool:
        """Whether a pooler may give each transaction another server connection."""
        return self.backend is None


def check_driver() -> None:
    """Warns about the implementation of psycopg in pure Python, which takes ten times the time of the node's turns."""
    if pq.__impl__ == "python":
        log.warning(
            "psycopg runs without its C extension, which makes the store several times slower",
            remedy="pip install 'psycopg[binary]'",
        )
    # psycopg warns about each pipeline that breaks with its connection; the error itself is reported.
    logging.getLogger("psycopg").setLevel(logging.ERROR)


def connect(address: Address, settings: dict[str, str], *, name: str = "chargehand") -> Opened:
    """Returns a new connection in autocommit mode. Raises StoreError in words if there is none to be had."""
    connection = attach(address, name=name)
    try:
        return _prepared(connection, address, settings)
    except psycopg.Error as error:
        connection.close()
        raise described(error, address) from error
    except BaseException:
        connection.close()
        raise


def attach(address: Address, *, name: str, **instead: Any) -> Connection:
    """Returns a new connection in autocommit mode, without checks of the server. Raises StoreError in words.

    `instead`: parameters of libpq that replace those of the URL and of this module.
    """
    ours = {key: value for key, value in _LIBPQ.items() if f"{key}=" not in address.conninfo}
    try:
        return Connection.connect(
            address.conninfo, autocommit=True, cursor_factory=psycopg.RawCursor, prepare_threshold=None,
            application_name=f"{name} {os.getpid()}", **(ours | instead),
        )  # fmt: skip
    except psycopg.Error as error:
        raise refused(error, address) from None


def _prepared(connection: Connection, address: Address, settings: dict[str, str]) -> Opened:
    ((backend, version, standby, schema, path),) = connection.execute(_SQL["server"]).fetchall()
    if version < OLDEST_SERVER:
        raise StoreError(
            f"the server of {address.shown} is PostgreSQL {version // 10000}; the oldest supported version is "
            f"{OLDEST_SERVER // 10000}: upgrade the server",
            "server-old",
        )
    if standby:
        raise StoreError(
            f"the server of {address.shown} is a read-only standby: name the primary in the URL", "server-read-only"
        )
    if address.schema is None and schema is None:
        raise StoreError(
            f"the user's search path in {address.shown} has no schema: name one in the URL (?schema=chargehand)"
        )
    pooled = backend != connection.info.backend_pid
    if address.schema is not None:
        settings = {**settings, "search_path": address.schema}
        path = ", ".join(filter(None, (address.schema, path)))
    connection.silence = _silence(settings.get("statement_timeout", "0"))
    text = msgspec.json.encode(settings).decode()
    # By magnitude of the value psycopg would send an int as one of three types, and prepare a statement for each.
    connection.adapters.register_dumper(int, Int8Dumper)
    if pooled:
        return Opened(connection, None, text, path)
    connection.execute(_SQL["settings"], (text, False))
    connection.prepare_threshold = 0
    return Opened(connection, backend, "", path)


def _silence(statement_timeout: str) -> float | None:
    seconds = int(statement_timeout.removesuffix("s"))
    return seconds + SILENCE if seconds else None


def make_schema(opened: Opened, address: Address) -> None:
    """Creates the schema that the URL names, if there is none."""
    if address.schema is not None:
        known = opened.connection.execute(b"SELECT to_regnamespace($1) IS NOT NULL", (address.schema,)).fetchone()
        if known != (True,):
            # Two that do this at once may collide although it says IF NOT EXISTS: the caller holds the lock.
            opened.connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(address.schema)))
