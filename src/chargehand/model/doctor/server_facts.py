"""The facts about the server of a store: plain data, read by `stores/postgres/peek.py` and judged by `server`.

What could not be read, or may not be seen, is None or empty.
"""

import msgspec


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """A session, a prepared transaction or a replication slot that keeps the server from removing dead rows."""

    kind: str = "session"
    """session, prepared or slot."""
    pid: int | None = None
    application: str | None = None
    """The application of the session, or the name of the prepared transaction or of the slot."""
    user: str | None = None
    state: str | None = None
    """The state of the session as the server names it; None: not visible to this user."""
    statement: str | None = None
    """The first word of its statement."""
    age_s: float | None = None
    transactions: int | None = None
    """How many transactions have begun since."""


class TableLock(msgspec.Struct, frozen=True, kw_only=True):
    """A session that has locked a table of the store against writes."""

    pid: int
    table: str
    application: str | None = None
    user: str | None = None
    state: str | None = None
    age_s: float | None = None


class Vacuum(msgspec.Struct, frozen=True, kw_only=True):
    """The dead rows of the table of queued and running jobs, and its last vacuum."""

    table: str
    live: int = 0
    dead: int = 0
    vacuumed_s: float | None = None
    """How long ago it was vacuumed; None: never, as far as the server knows."""
    switched_off: bool = False
    """Whether autovacuum is switched off for this table."""
    running: bool = False
    workers: int = 0
    """How many autovacuum workers are busy, as far as this user may see them."""


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    """The connections that are open; a limit of -1 is none."""

    used: int = 0
    database_used: int = 0
    database_limit: int = -1
    user_used: int = 0
    user_limit: int = -1


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is registered in the store, on any machine."""

    name: str
    version: str | None = None
    connected: bool = False
    """Whether its session on the server exists; False also behind a pooler."""
    heartbeat_ms: int | None = None
    """The age of its last heartbeat by the server's clock."""


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the server."""

    error: str | None = None
    """Why there is no connection."""
    code: str | None = None
    """The cause of the error."""
    driver: str = ""
    """The implementation of the driver: c, binary or python."""
    version: int | None = None
    """As the server numbers it: 160004."""
    oldest: int = 0
    """The oldest supported version."""
    recovery: bool = False
    read_only: bool = False
    """Whether the server or the user has default_transaction_read_only."""
    user: str = ""
    pooled: bool = False
    skew_ms: int | None = None
    """How far the server's clock is ahead of this machine's."""
    answered_ms: int = 0
    """How long the question for the time took; the skew is uncertain by half of it."""
    settings: dict[str, str] = {}
    connections: Connections | None = None
    snapshots: tuple[Holding, ...] = ()
    """The oldest first."""
    hidden: int = 0
    """How many sessions of other users there are that this user may not see."""
    vacuum: Vacuum | None = None
    lacks: tuple[str, ...] = ()
    """The rights that this user lacks."""
    may_create: bool = True
    """Whether this user may create tables in the schema."""
    locked: TableLock | None = None
    peers: tuple[Peer, ...] = ()
    gone: tuple[Peer, ...] = ()
    """The nodes that have disappeared without having been stopped."""

    def number(self, setting: str) -> int:
        """Returns a setting that is a number; 0 if it is not known."""
        text = self.settings.get(setting, "")
        return int(text) if text.isdecimal() else 0
