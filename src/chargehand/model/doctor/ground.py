"""Findings about the store: its file, disk, schema and lock. Pure."""

from collections.abc import Iterator

from chargehand.model.doctor.causes import Finding, Severity
from chargehand.model.doctor.facts import Facts, Lock
from chargehand.model.doctor.wording import length, size

LEAST_FREE = 32 << 20
"""Free disk space in bytes below which a warning is given."""
SKEW_MS = 5_000
"""How far a time may lie in the future."""
RESTORE = "stop everything that uses it, and restore a backup; Chargehand neither repairs nor overwrites it"


def ground(facts: Facts) -> Iterator[Finding]:
    """Yields the findings about the file, its disk, its schema and its lock."""
    where, free = facts.ground, facts.ground.free
    if where.network:
        yield Finding(
            severity=Severity.WARNING,
            cause="network",
            about=facts.path,
            short=f"on {where.filesystem}",
            text=f"{facts.path} is on a network file system ({where.filesystem}), where SQLite loses data",
            remedy="stop everything that uses it, move the file to a local disk, and set CHARGEHAND_URL",
        )
    if where.shared:
        yield Finding(
            severity=Severity.NOTE,
            cause="folder-shared",
            about=facts.path,
            short="the group may write to the folder of the store",
            text=f"the group of the folder of {facts.path} may write to it: each of its members can replace the store",
            remedy="chmod g-w the folder, unless every member of its group is trusted",
        )
    if facts.stuck is not None:
        what, check = ("disk", "its disk or mount (`dmesg`, `mount`)")
        if facts.server is not None:
            what, check = ("server", "the machine of the server, and the network")
        yield Finding(
            severity=Severity.ERROR,
            cause="store-hung",
            about=facts.path,
            short="the store does not answer",
            text=f"reading {facts.path} ({facts.stuck}) timed out after {facts.patience:g} s: its {what} hangs",
            remedy=f"check {check}; until then nothing can be read or written",
        )
    elif where.exists is False and not facts.node.held:
        yield no_store(facts, f"there is no store at {facts.path}" + (": it has no tables" if facts.server else ""))
    else:
        yield from _file(facts)
    if free is not None and free < LEAST_FREE:
        full = free < (1 << 20)
        yield Finding(
            severity=Severity.ERROR if full else Severity.WARNING,
            cause="disk-full",
            about=facts.path,
            text=f"the disk that holds {facts.path} {'is full' if full else f'has only {size(free)} left'}",
            remedy="free disk space; until then outcomes wait in the node, and nothing that was acknowledged is lost",
            short="the disk is full" if full else f"{size(free)} of disk left",
        )
    if not facts.unusable:
        yield from _schema(facts)
    if facts.lock is not None and by_others(facts):
        yield _locked(facts, facts.lock)
    if facts.newest_ms is not None and facts.newest_ms > facts.now_ms + SKEW_MS:
        ahead = length((facts.newest_ms - facts.now_ms) / 1000)
        yield Finding(
            severity=Severity.WARNING,
            cause="clock",
            about="clock",
            short=f"the clock is {ahead} behind the store",
            text=f"the store contains times {ahead} in the future: the machine's clock was set back, or is wrong",
            remedy="correct the clock (`timedatectl`); until then jobs due in that time are delayed",
        )
    for what, why in facts.refused.items():
        yield Finding(
            severity=Severity.WARNING,
            cause="unread",
            about=what,
            short=f"{what} could not be read",
            text=f"{what} of {facts.path} could not be read: {why}",
            remedy=facts.command("doctor --bundle doctor.tar.gz") + ", and report it",
        )


def _file(facts: Facts) -> Iterator[Finding]:
    """Yields why the file cannot be used as a store."""
    where, path = facts.ground, facts.path
    if where.error or where.kind != "file":
        what = where.error or f"it is a {where.kind}, not a file"
        remedy = "set the right path, run the command as the owner, or have permission granted"
        yield _unusable(facts, f"{path} cannot be used: {what}", remedy)
    elif where.size == 0:
        text = f"{path} is empty (0 bytes): it was truncated, or never used; the next node makes its tables"
        yield _damaged(facts, text, "if it held jobs, start nothing that uses it, and restore a backup first")
    elif where.expected is not None and where.size is not None and where.size < where.expected and facts.book.error:
        text = f"{path} is truncated: {where.size:,} of {where.expected:,} bytes are left"
        yield _damaged(facts, text, RESTORE)
    elif facts.book.damaged:
        head = f"the header of {path} is damaged" if where.header_damaged else None
        yield _damaged(facts, head or facts.book.error or f"{path} is damaged", RESTORE)
    elif facts.book.error:
        yield _unusable(facts, facts.book.error, "see the error; if the file is damaged, restore a backup")
    elif where.log_damaged:
        text = f"the write-ahead log of {path} ({path}-wal) is damaged: SQLite ignores it, so the last commits are lost"
        yield _damaged(facts, text, f"if these jobs matter: {RESTORE}", Severity.WARNING)


def _damaged(facts: Facts, text: str, remedy: str, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(
        severity=severity, cause="store-damaged", about=facts.path, text=text, remedy=remedy,
        short="the store is damaged" if severity is Severity.ERROR else "the store's log is damaged",
    )  # fmt: skip


def no_store(facts: Facts, text: str) -> Finding:
    """Returns the finding that there is no store."""
    return Finding(
        severity=Severity.ERROR,
        cause="no-store",
        about=facts.path or "store",
        text=text,
        short="no store",
        remedy="start a node, which makes the tables, or name the right database and schema in the URL (?schema=…)"
        if facts.server
        else "change to its folder, set CHARGEHAND_URL, or run: chargehand doctor --store PATH",
    )


def by_others(facts: Facts) -> bool:
    """Whether a process other than the node holds the write lock."""
    held = facts.lock
    return held is not None and (held.holder is None or held.holder.pid != facts.node.pid)


def _unusable(facts: Facts, text: str, remedy: str) -> Finding:
    return Finding(
        severity=Severity.ERROR,
        cause="store-unusable",
        about=facts.path,
        text=text,
        remedy=remedy,
        short="the store cannot be used",
    )


def _schema(facts: Facts) -> Iterator[Finding]:
    found, known = facts.book.schema, facts.book.knows
    if found is None or (facts.book.oldest or found) <= known <= found:
        return
    new = found > known
    yield Finding(
        severity=Severity.ERROR if new else Severity.WARNING,
        cause="schema-new" if new else "schema-old",
        about=facts.path,
        short=f"schema {found}, this version supports {known}",
        text=f"{facts.path} was created by {'a newer' if new else 'an older'} version of Chargehand: its schema is "
        f"{found}, version {facts.version} here supports {known}",
        remedy="pip install --upgrade chargehand" if new else "`chargehand migrate`, or start a node of this version",
    )


def _locked(facts: Facts, lock: Lock) -> Finding:
    holder, view = lock.holder, facts.node.view
    who = "an unknown process" if holder is None else f"pid {holder.pid} ({holder.command or 'no command line'})"
    known_s = max(lock.seconds, (view and view.store.waiting_s) or 0.0)
    which = "SQLite's write lock" if lock.engine else "the write lock"
    end = "end its transaction (COMMIT or ROLLBACK)" if lock.engine else "let it finish"
    return Finding(
        severity=Severity.ERROR,
        cause="store-locked",
        about=facts.path,
        short=f"{who} holds {which}",
        text=f"{who} has held {which} of {facts.path} for more than {length(known_s)}: no other process can write",
        remedy=f"stop it, or {end}" if holder is None else f"{end}, or: kill -TERM {holder.pid}",
    )


def two_stores(facts: Facts) -> Iterator[Finding]:
    """Yields other stores that are configured besides the examined one."""
    for other in facts.others:
        if other.pid is None:
            yield Finding(
                severity=Severity.NOTE,
                cause="two-stores",
                about=other.path,
                short="there are two stores",
                text=f"{other.why} is another store, {other.path}; this diagnosis is about {facts.path}",
                remedy=f"to examine the other one: chargehand doctor --store {other.path}",
            )
