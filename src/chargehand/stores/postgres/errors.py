"""Turns errors of PostgreSQL and of its driver into StoreError, in words: which store, what failed, and the remedy.

Decides by the class of an error, by its SQLSTATE, or by libpq's own test of a server, never by the text of a message,
which servers translate. A text never contains a password.
"""

from collections.abc import Generator
from contextlib import contextmanager

import psycopg
from psycopg import pq

from chargehand.errors import StoreBusy, StoreError
from chargehand.stores.postgres.address import Address

_REMEDIES = {
    "25006": "the server is read-only: a standby, or default_transaction_read_only is set; name the primary, or "
    "several hosts in the URL",
    "28000": "the server refuses this user or host; check the user, and pg_hba.conf on the server",
    "28P01": "the password is wrong; check the URL (CHARGEHAND_URL), PGPASSWORD or ~/.pgpass",
    "3D000": "there is no such database: create it (createdb), or name another in the URL",
    "42501": "this user has no right to it; grant it (for the first start: CREATE on the schema)",
    "42P01": "the tables are missing: run `chargehand migrate`",
    "42703": "the tables are of another version: run `chargehand migrate`, and one version of the package",
    "53100": "the server's disk is full: free space; nothing that was acknowledged is lost",
    "53200": "the server is out of memory",
    "53300": "the server has no connection left; raise max_connections, or run fewer processes",
    "55P03": "another transaction holds a lock for too long",
    "57014": "the statement took too long and was cancelled",
    "57P01": "the server was stopped or ended the connection",
    "57P03": "the server is starting up or shutting down",
}
_BUSY = {"55P03", "57014", "40P01", "40001"}
"""Another transaction was in the way: the same is worth trying again."""
_BROKEN = {"25006", "25P03", "25P04", "57P01", "57P02", "57P03"}
"""The connection is of no use any more, even if it is still open."""
_REACHED = {
    pq.Ping.OK: "the server answers, but refuses the connection: check user, password and database in the URL "
    "(CHARGEHAND_URL), pg_hba.conf and max_connections on the server, and that it is no read-only standby",
    pq.Ping.REJECT: "the server is starting up or shutting down",
    pq.Ping.NO_RESPONSE: "no server answers there: check host and port in the URL (CHARGEHAND_URL), and that it runs",
    pq.Ping.NO_ATTEMPT: "the URL is malformed",
}


def is_busy(error: psycopg.Error) -> bool:
    """Returns whether another transaction was in the way."""
    return error.sqlstate in _BUSY


def unusable(error: psycopg.Error, connection_broken: bool) -> bool:
    """Returns whether the connection must be replaced after this error."""
    return connection_broken or error.sqlstate in _BROKEN


def described(error: psycopg.Error, address: Address) -> StoreError:
    """Returns the error of a statement as a StoreError."""
    code = error.sqlstate
    kind = StoreBusy if is_busy(error) else StoreError
    remedy = _REMEDIES.get(code or "")
    said = _said(error)
    where = f"the store {address.shown} cannot be used"
    if code is None and remedy is None:
        where = f"the connection to {address.shown} was lost"
    return kind(f"{where}: {said}{f'; {remedy}' if remedy else ''}{f' [{code}]' if code else ''}")


def refused(error: psycopg.Error, address: Address) -> StoreError:
    """Returns the error of an attempt to connect as a StoreError."""
    said = _said(error)
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return StoreError(f"cannot connect to {address.shown}: {said}; {_REACHED[pq.Ping.NO_RESPONSE]}")
    try:
        reached = pq.PGconn.ping(address.conninfo.encode())
    except psycopg.Error:
        reached = pq.Ping.NO_ATTEMPT
    return StoreError(f"cannot connect to {address.shown}: {said}; {_REACHED[pq.Ping(reached)]}")


def _said(error: psycopg.Error) -> str:
    """Returns what the server said, in one line."""
    text = error.diag.message_primary or str(error)
    return " ".join(text.split()) or type(error).__name__


@contextmanager
def store_errors(address: Address) -> Generator[None]:
    """Raises StoreError instead of the driver's errors."""
    try:
        yield
    except psycopg.Error as error:
        raise described(error, address) from error
