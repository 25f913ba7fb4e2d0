"""Turns errors of PostgreSQL and of its driver into StoreError, in words: which store, what failed, and the remedy.

Decides by the class of an error or by its SQLSTATE, never by the text of a message, which servers translate. A text
never contains a password. A code is one of the causes of `chargehand doctor`.
"""

import os
import re
import select
import socket
import struct

import msgspec
import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from chargehand import clock
from chargehand.errors import StoreBusy, StoreError
from chargehand.stores.postgres.address import Address


class Cause(msgspec.Struct, frozen=True):
    """The cause of an error as a code, and its remedy."""

    code: str
    remedy: str


_CAUSES = {
    "25006": Cause(
        "server-read-only",
        "the server is read-only: a standby, or default_transaction_read_only is set; name the primary, or several "
        "hosts in the URL",
    ),
    "28000": Cause("bad-login", "the server refuses this user or host; check the user, and pg_hba.conf on the server"),
    "28P01": Cause(
        "bad-login", "the user or the password is wrong; check the URL (CHARGEHAND_URL), PGPASSWORD or ~/.pgpass"
    ),
    "3D000": Cause("no-database", "there is no such database: create it (createdb), or name another in the URL"),
    "3F000": Cause("no-rights", "this user may not use the schema of the tables: grant USAGE and CREATE on it"),
    "42501": Cause("no-rights", "this user has no right to it; grant it (for the first start: CREATE on the schema)"),
    "42P01": Cause("no-store", "the tables are missing: run `chargehand migrate`"),
    "42703": Cause(
        "schema-old", "the tables are of another version: run `chargehand migrate`, and one version of the package"
    ),
    "53100": Cause("disk-full", "the server's disk is full: free space; nothing that was acknowledged is lost"),
    "53200": Cause("store-failing", "the server is out of memory"),
    "53300": Cause(
        "no-connections", "the server has no connection left; raise max_connections, or run fewer processes"
    ),
    "55P03": Cause("store-locked", "another transaction holds a lock for too long"),
    "57014": Cause("store-slow", "the statement took too long and was cancelled"),
    "57P01": Cause("server-gone", "the server was stopped or ended the connection"),
    "57P03": Cause("server-starting", "the server is starting up or shutting down"),
}
"""By SQLSTATE."""
_BUSY = {"55P03", "57014", "40P01", "40001"}
"""Another transaction was in the way: the same is worth trying again."""
_BROKEN = ("08", "25006", "25P03", "25P04", "57P")
"""By the beginning of SQLSTATE: the connection is of no use any more, even if it is still open."""
_REFUSED = Cause(
    "server-refuses",
    "the server answers, but refuses the connection: check user, password and database in the URL (CHARGEHAND_URL), "
    "pg_hba.conf and max_connections on the server, and that it is no read-only standby",
)
_NO_PASSWORD = Cause("bad-login", "the server asks for a password: give it in the URL, PGPASSWORD or ~/.pgpass")
_GONE = Cause(
    "server-gone", "no server answers there: check host and port in the URL (CHARGEHAND_URL), and that it runs"
)
_MALFORMED = Cause("bad-address", "the URL is malformed")
_GREETINGS = {None: _GONE, "57P03": _CAUSES["57P03"], "53300": _CAUSES["53300"]}
"""By the answer to the beginning of a connection."""
_PROTOCOL = struct.pack("!I", 3 << 16)
_ERROR = re.compile(rb"E.{4}(?:[^C\0][^\0]*\0)*C([0-9A-Z]{5})\0", re.DOTALL)
_ASKED = 3
"""Seconds in which a server must refuse a second attempt to connect."""
_TRACES = 140000
"""The first libpq whose trace is a text."""
_MOST_KNOWN = 100
_known: dict[tuple[str, str], Cause] = {}
"""The causes of earlier refusals, by address and by the whole text: a server that repeats a text means the same."""
_STATE = re.compile(rb'\tErrorResponse\t[^\n]*? C "([0-9A-Z]{5})"')
"""The SQLSTATE of an error in the trace of libpq."""
_READY = b"\tReadyForQuery\t"


def is_busy(error: psycopg.Error) -> bool:
    """Returns whether another transaction was in the way."""
    return error.sqlstate in _BUSY


def unusable(error: psycopg.Error, connection_broken: bool) -> bool:
    """Returns whether the connection must be replaced after this error."""
    return connection_broken or (error.sqlstate or "").startswith(_BROKEN)


def described(error: psycopg.Error, address: Address) -> StoreError:
    """Returns the error of a statement as a StoreError."""
    state = error.sqlstate
    kind = StoreBusy if is_busy(error) else StoreError
    said = _said(error)
    if state is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return kind(f"the connection to {address.shown} was lost: {said}", "server-gone")
    cause = _CAUSES.get(state or "")
    remedy = f"; {cause.remedy}" if cause else ""
    number = f" [{state}]" if state else ""
    return kind(f"the store {address.shown} cannot be used: {said}{remedy}{number}", cause and cause.code)


def refused(error: psycopg.Error, address: Address) -> StoreError:
    """Returns the error of an attempt to connect as a StoreError."""
    cause = _cause_of_refusal(error, address)
    return StoreError(f"cannot connect to {address.shown}: {_said(error)}; {cause.remedy}", cause.code)


def _cause_of_refusal(error: psycopg.Error, address: Address) -> Cause:
    """Returns why there is no connection. The driver reports no SQLSTATE for it, so the server is asked again."""
    connection = error.pgconn
    if isinstance(error, psycopg.ProgrammingError):
        return _MALFORMED
    if connection is None or isinstance(error, psycopg.errors.ConnectionTimeout):  # no host of that name, or silence
        return _GONE
    if connection.needs_password:
        return _NO_PASSWORD
    greeting = _greeting(connection)
    if greeting in _GREETINGS:
        return _GREETINGS[greeting]
    refusal = (address.shown, str(error))
    if refusal not in _known:
        state = _state_of_refusal(address)
        if state is None:
            return _REFUSED
        if not state and connection.used_password:  # an error after the login would be in the trace
            state = "28P01"
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[refusal] = _CAUSES.get(state, _REFUSED)
    return _known[refusal]


def _greeting(connection: "pq.abc.PGconn") -> str | None:
    """Returns what the server of a failed attempt answers to a new one, before any login.

    An SQLSTATE, an empty text for anything else, and None if it answers nothing.
    """
    names = (b"user", connection.user, b"database", connection.db, b"")
    start = b"".join((_PROTOCOL, *(name + b"\0" for name in names)))
    try:
        with _line(connection) as line:
            line.sendall(struct.pack("!I", len(start) + 4) + start)
            answer = line.recv(1000)
    except (OSError, ValueError):
        return None
    found = _ERROR.match(answer)
    return found[1].decode() if found else "" if answer else None


def _line(connection: "pq.abc.PGconn") -> socket.socket:
    """Returns a new connection to the server of a failed attempt. Raises OSError."""
    host, port = connection.hostaddr.decode() or connection.host.decode(), connection.port.decode()
    if not host.startswith("/"):
        return socket.create_connection((host, int(port)), _ASKED)
    line = socket.socket(socket.AF_UNIX)
    try:
        line.settimeout(_ASKED)
        line.connect(f"{host}/.s.PGSQL.{port}")
    except BaseException:
        line.close()
        raise
    return line


def _state_of_refusal(address: Address) -> str | None:
    """Returns the SQLSTATE with which the server refuses a connection after the login; empty if it is not known.

    None if it does not refuse it any more. Only the trace of libpq has it, from version 18 on also that of a refusal
    before the login. Each trace leaves some kilobytes behind in the driver, so a refusal is traced once.
    """
    if pq.version() < _TRACES:
        return ""
    conninfo = make_conninfo(address.conninfo, target_session_attrs="read-write").encode()
    trace = os.memfd_create("chargehand")
    try:
        connection = pq.PGconn.connect_start(conninfo)
        try:
            connection.trace(trace)
            connected = _connect(connection)
        finally:
            connection.untrace()
            connection.finish()
        text = os.pread(trace, 1 << 20, 0)
    finally:
        os.close(trace)
    if connected:
        return None
    if _READY in text:  # libpq was admitted, and left because the server is read-only
        return "25006"
    found = _STATE.findall(text)
    return found[-1].decode() if found else ""


def _connect(connection: "pq.abc.PGconn") -> bool:
    """Waits until an attempt to connect has succeeded or failed, for _ASKED seconds. Returns whether it succeeded."""
    until = clock.monotonic() + _ASKED
    ready = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}
    while connection.status != pq.ConnStatus.BAD and (left := until - clock.monotonic()) > 0:
        wanted = ready.get(pq.PollingStatus(connection.connect_poll()))
        if wanted is None:
            break
        poller = select.poll()
        poller.register(connection.socket, wanted)
        poller.poll(left * 1000)
    return connection.status == pq.ConnStatus.OK


def _said(error: psycopg.Error) -> str:
    """Returns what the server said, in one line."""
    text = error.diag.message_primary or str(error)
    return " ".join(text.split()) or type(error).__name__
