"""Findings about the server of a store: its connection, clock, settings and sessions, and the nodes elsewhere. Pure."""

from collections.abc import Iterator

from chargehand.model.doctor.causes import CAUSES, Finding, Severity
from chargehand.model.doctor.facts import Facts
from chargehand.model.doctor.server_facts import Connections, Holding, Peer, ServerFacts, Vacuum
from chargehand.model.doctor.wording import length
from chargehand.model.health import FRESH_MS
from chargehand.model.wakeups import POLL_UNNOTIFIED

OLD_SNAPSHOT = 300.0
"""The age in seconds of a transaction from which on it is reported."""
OLD_TRANSACTIONS = 100_000
"""The number of transactions from which on one is reported whose age in seconds this user may not see."""
DEAD_ROWS = 50_000
"""The number of dead rows from which on they are reported; autovacuum begins at 5,000."""
VACUUM_LATE = 300.0
"""Seconds since the last vacuum from which on it is late."""
NODE_NEEDS = 3
"""The connections of a node: for its turns, for readers, and for notifications."""
SKEW_MS = 5_000
"""The difference of the clocks that is reported."""
LONG_LOCK = 1.0
"""Seconds for which a table must have been locked to be reported."""
MOST_RIGHTS = 4
"""How many missing rights a finding names."""
_WEAK = ("fsync", "full_page_writes", "synchronous_commit")
"""Settings that must not be off: the server could lose what it has acknowledged."""


def server(facts: Facts) -> Iterator[Finding]:
    """Yields the findings about the server."""
    found = facts.server
    if found is None:
        return
    if found.driver == "python":
        yield _found(
            facts, "driver-slow", "psycopg runs without its C extension, which makes the store several times slower",
            "pip install 'psycopg[binary]'", "the driver is slow", Severity.WARNING,
        )  # fmt: skip
    if found.error is not None:
        yield _unreachable(facts, found.error, found.code)
        return
    yield from _use(facts, found)
    yield from _settings(facts, found)
    yield from _sessions(facts, found)
    yield from _nodes(facts, found)


def living(found: ServerFacts) -> list[Peer]:
    """Returns the nodes, on all machines, that are connected or have sent a heartbeat lately."""
    fresh = range(FRESH_MS + 1)
    return [peer for peer in found.peers if peer.connected or peer.heartbeat_ms in fresh]


def _found(facts: Facts, cause: str, text: str, remedy: str, short: str, severity: Severity) -> Finding:
    return Finding(severity=severity, cause=cause, about=facts.path, text=text, remedy=remedy, short=short)


def _unreachable(facts: Facts, error: str, code: str | None) -> Finding:
    cause = code if code in CAUSES else "store-unusable"
    meaning, remedy = CAUSES[cause]
    return _found(facts, cause, error, remedy, f"{meaning[0].lower()}{meaning[1:].rstrip('.')}", Severity.ERROR)


def _use(facts: Facts, found: ServerFacts) -> Iterator[Finding]:
    """Yields why the server cannot be used, although it answers."""
    if found.version is not None and found.version < found.oldest:
        yield _found(
            facts, "server-old",
            f"the server is PostgreSQL {found.version // 10000}; the oldest supported version is "
            f"{found.oldest // 10000}",
            "upgrade the server", f"the server is PostgreSQL {found.version // 10000}", Severity.ERROR,
        )  # fmt: skip
    if found.recovery or found.read_only:
        why = "is a standby (in recovery)" if found.recovery else "has default_transaction_read_only for this user"
        yield _found(
            facts, "server-read-only", f"the server of {facts.path} {why}: nothing can be written",
            "name the primary, or several hosts, in the URL; after a failover, promote a standby"
            if found.recovery
            else f"ALTER ROLE {found.user} RESET default_transaction_read_only, or reset it for the database or server",
            "the server is read-only", Severity.ERROR,
        )  # fmt: skip
    lacks = found.lacks
    if not lacks and not found.may_create and facts.book.schema != facts.book.knows:
        lacks = ("CREATE on the schema, to make the tables",)
    if lacks:
        more = f" and {len(lacks) - MOST_RIGHTS} more" if len(lacks) > MOST_RIGHTS else ""
        yield _found(
            facts, "no-rights", f"the user {found.user} lacks rights: {', '.join(lacks[:MOST_RIGHTS])}{more}",
            f"as the owner of the tables: GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA … TO "
            f"{found.user}; GRANT USAGE ON ALL SEQUENCES IN SCHEMA … TO {found.user}; "
            f"and GRANT USAGE, CREATE ON SCHEMA … TO {found.user}",
            f"{found.user} lacks rights", Severity.ERROR,
        )  # fmt: skip
    lock = found.locked
    if lock is not None and (lock.age_s is None or lock.age_s >= LONG_LOCK):
        who = _who(lock.pid, lock.application, lock.user, lock.state)
        since = "" if lock.age_s is None else f" for {length(lock.age_s)}"
        yield _found(
            facts, "store-locked", f"{who} has locked the table {lock.table}{since}: others wait to write",
            f"end its transaction, or: SELECT pg_terminate_backend({lock.pid})",
            f"pid {lock.pid} has locked {lock.table}", Severity.ERROR,
        )  # fmt: skip


def _settings(facts: Facts, found: ServerFacts) -> Iterator[Finding]:
    """Yields the findings about the clock, the settings, the pooler and the number of connections."""
    if found.skew_ms is not None and abs(found.skew_ms) - found.answered_ms // 2 > SKEW_MS:
        apart = length(abs(found.skew_ms) / 1000)
        side = "ahead of" if found.skew_ms > 0 else "behind"
        yield _found(
            facts, "clock-skew",
            f"the server's clock is {apart} {side} this machine's: jobs are due, and times are shown, by the server's",
            "synchronise the clocks of both machines (NTP, `timedatectl`)", f"the clocks differ by {apart}",
            Severity.WARNING,
        )  # fmt: skip
    weak = [name for name in _WEAK if found.settings.get(name) == "off"]
    if weak:
        yield _found(
            facts, "not-durable",
            f"{' and '.join(weak)} {'is' if len(weak) == 1 else 'are'} off: a crash of the server may undo what was "
            "acknowledged" + ("" if weak == ["synchronous_commit"] else ", or damage the database"),
            f"in the settings of the server: {', '.join(f'{name} = on' for name in weak)}",
            f"{weak[0]} is off", Severity.WARNING,
        )  # fmt: skip
    if found.pooled:
        yield _found(
            facts, "pooler",
            "a pooler is between this machine and the server: prepared statements are not used, nodes that are gone "
            "are noticed after 30 s instead of 10 s, and jobs of other processes are found by polling, every "
            f"{POLL_UNNOTIFIED:g} s",
            "nothing, or give the nodes a URL that leads to the server itself", "there is a pooler", Severity.NOTE,
        )  # fmt: skip
    if found.connections is not None and found.settings:
        yield from _connections(facts, found, found.connections)


def _connections(facts: Facts, found: ServerFacts, open_: Connections) -> Iterator[Finding]:
    reserved = found.number("superuser_reserved_connections") + found.number("reserved_connections")
    most = found.number("max_connections")
    limits = [(most - reserved - open_.used, f"max_connections is {most}, {reserved} of them reserved")]
    if open_.database_limit >= 0:
        limits.append((open_.database_limit - open_.database_used, f"the database allows {open_.database_limit}"))
    if open_.user_limit >= 0:
        limits.append((open_.user_limit - open_.user_used, f"the user {found.user} may have {open_.user_limit}"))
    left, limit = min(limits)
    if left < NODE_NEEDS:
        said = f"{max(0, left)} connection{'' if left == 1 else 's'}"
        yield _found(
            facts, "no-connections", f"{said} left ({limit}); a node needs {NODE_NEEDS}, each API process at least 1",
            "raise the limit, run fewer processes, or put a pooler in transaction mode in front of the server",
            f"{said} left", Severity.WARNING,
        )  # fmt: skip


def _sessions(facts: Facts, found: ServerFacts) -> Iterator[Finding]:
    """Yields the findings about old transactions and dead rows, and says what this user may not see."""
    old = [holding for holding in found.snapshots if _is_old(holding)]
    if old:
        yield _snapshot(facts, old)
    if found.vacuum is not None:
        yield from _vacuum(facts, found, found.vacuum, old)
    if found.hidden:
        yield _found(
            facts, "sessions-hidden",
            f"{found.hidden} session{'' if found.hidden == 1 else 's'} of other users: {found.user} may not see what "
            "they do, nor since when",
            f"to see more: GRANT pg_read_all_stats TO {found.user}", "some sessions are hidden", Severity.NOTE,
        )  # fmt: skip


def _is_old(holding: Holding) -> bool:
    if holding.age_s is not None:
        return holding.age_s >= OLD_SNAPSHOT
    return (holding.transactions or 0) >= OLD_TRANSACTIONS


def _snapshot(facts: Facts, old: list[Holding]) -> Finding:
    first = old[0]
    since = f"{length(first.age_s)} old" if first.age_s is not None else f"{first.transactions or 0:,} transactions old"
    more = f"; {len(old) - 1} more" if len(old) > 1 else ""
    name = first.application or "?"
    match first.kind:
        case "prepared":
            what, remedy = (
                f"the prepared transaction {name}",
                f"COMMIT PREPARED '{name}', or ROLLBACK PREPARED '{name}'",
            )
        case "slot":
            what = f"the replication slot {name}"
            remedy = f"bring its standby back, or: SELECT pg_drop_replication_slot('{name}')"
        case _:
            what = "the transaction of " + _who(first.pid, first.application, first.user, first.state, first.statement)
            remedy = f"end it, or: SELECT pg_terminate_backend({first.pid})"
    return _found(
        facts, "old-snapshot",
        f"{what} is {since}{more}: the server keeps all rows that were deleted since, and tables grow",
        remedy, f"a transaction is {since}", Severity.WARNING,
    )  # fmt: skip


def _vacuum(facts: Facts, found: ServerFacts, vacuum: Vacuum, old: list[Holding]) -> Iterator[Finding]:
    off = [name for name in ("autovacuum", "track_counts") if found.settings.get(name) == "off"]
    where = f"{off[0]} is off" if off else f"autovacuum is switched off for {vacuum.table}"
    if off or vacuum.switched_off:
        yield _found(
            facts, "autovacuum-off", f"{where}: dead rows are never removed, and claims get slower and slower",
            f"{off[0]} = on in the settings of the server" if off
            else f"ALTER TABLE {vacuum.table} RESET (autovacuum_enabled)",
            where, Severity.WARNING,
        )  # fmt: skip
    late = vacuum.vacuumed_s is None or vacuum.vacuumed_s >= VACUUM_LATE
    if vacuum.dead < DEAD_ROWS or vacuum.running or not (late or old):
        return
    last = "never vacuumed" if vacuum.vacuumed_s is None else f"vacuumed {length(vacuum.vacuumed_s)} ago"
    busy = found.number("autovacuum_max_workers")
    if old:
        why, remedy = "an old transaction keeps them", "end it (see old-snapshot)"
    elif busy and vacuum.workers >= busy:
        why = f"all {busy} autovacuum workers are busy with other tables"
        remedy = f"raise autovacuum_max_workers or the cost limit; now: VACUUM {vacuum.table}"
    else:
        why, remedy = "autovacuum does not get to it", f"VACUUM {vacuum.table}, and check the settings of autovacuum"
    yield _found(
        facts, "dead-rows",
        f"{vacuum.table} has {vacuum.dead:,} dead rows beside {vacuum.live:,} live ones, {last}: {why}",
        remedy, f"{vacuum.dead:,} dead rows", Severity.WARNING,
    )  # fmt: skip


def _who(
    pid: int | None, application: str | None, user: str | None, state: str | None, statement: str | None = None
) -> str:
    """Describes a session."""
    known = [application or "no application name", f"user {user}" if user else None]
    known += [state or "what it does is hidden", f"last statement {statement}" if statement else None]
    return f"pid {pid} ({', '.join(word for word in known if word)})"


def _nodes(facts: Facts, found: ServerFacts) -> Iterator[Finding]:
    """Yields the nodes that are gone, and those on other machines, if none runs here: only they know their workers."""
    for peer in found.gone:
        seen = "" if peer.heartbeat_ms is None else f"; its last heartbeat was {length(peer.heartbeat_ms / 1000)} ago"
        yield _found(
            facts, "node-gone",
            f"node {peer.name} disappeared without having been stopped{seen}: its jobs go to other nodes",
            "start it again, or wait: a node that does not come back is forgotten after a day",
            f"node {peer.name} is gone", Severity.WARNING,
        )  # fmt: skip
    peers = living(found)
    if facts.node.held or not peers:
        return
    names = ", ".join(peer.name for peer in peers[:5])
    yield _found(
        facts, "nodes-elsewhere", f"no node runs here, but {len(peers)} elsewhere: {names}",
        "to examine their workers, run `chargehand doctor` there", f"nodes run elsewhere ({names})", Severity.NOTE,
    )  # fmt: skip
