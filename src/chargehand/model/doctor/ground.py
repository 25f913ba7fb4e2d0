"""What can be wrong with the store, its disk, its schema and its lock: pure, facts in, findings out."""

from collections.abc import Iterator

from chargehand.model.doctor.causes import Finding, Severity
from chargehand.model.doctor.facts import Facts, Process
from chargehand.model.doctor.wording import length, size

LEAST_FREE = 32 << 20
"""Bytes of free disk below which writing may soon fail."""
SKEW_MS = 5_000
"""How far a time may lie in the future."""


def ground(facts: Facts) -> Iterator[Finding]:
    """The file, its disk, its schema and its lock."""
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
    if facts.stuck is not None:
        yield Finding(
            severity=Severity.ERROR,
            cause="store-hung",
            about=facts.path,
            short="the store does not answer",
            text=f"looking at {facts.path} ({facts.stuck}) did not end within {facts.patience:g} s: its disk hangs",
            remedy="look at the disk or mount that holds it (`dmesg`, `mount`); nothing can be read or written before",
        )
    elif where.exists is False and not facts.node.held:
        yield no_store(facts, f"there is no store at {facts.path}")
    elif where.error or where.kind != "file":
        what = where.error or f"it is a {where.kind}, not a file"
        yield _unusable(facts, f"{facts.path} cannot be used: {what}", "give the right path, or the right to read it")
    elif facts.book.error:
        yield _unusable(facts, facts.book.error, "do what it says; if it is damaged, restore a backup")
    if free is not None and free < LEAST_FREE:
        full = free < (1 << 20)
        yield Finding(
            severity=Severity.ERROR if full else Severity.WARNING,
            cause="disk-full",
            about=facts.path,
            text=f"the disk that holds {facts.path} {'is full' if full else f'has only {size(free)} left'}",
            remedy="make room on it; outcomes wait in the node meanwhile, and nothing that was acknowledged is lost",
            short="the disk is full" if full else f"{size(free)} of disk left",
        )
    yield from _schema(facts)
    if facts.lock is not None and by_others(facts):
        yield _locked(facts, facts.lock.holder, facts.lock.seconds)
    if facts.newest_ms is not None and facts.newest_ms > facts.now_ms + SKEW_MS:
        ahead = length((facts.newest_ms - facts.now_ms) / 1000)
        yield Finding(
            severity=Severity.WARNING,
            cause="clock",
            about="clock",
            short=f"the clock is {ahead} behind the store",
            text=f"the store has times that lie {ahead} in the future: the machine's clock was set back, or is wrong",
            remedy="set the clock right (`timedatectl`); until then what was due in that time waits for longer",
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


def no_store(facts: Facts, text: str) -> Finding:
    """There is nothing to look at."""
    return Finding(
        severity=Severity.ERROR,
        cause="no-store",
        about=facts.path or "store",
        text=text,
        short="no store",
        remedy="go to its folder, set CHARGEHAND_URL, or name it: chargehand doctor --store PATH",
    )


def by_others(facts: Facts) -> bool:
    """Whether somebody else than the node keeps everybody from writing: what the node holds, it waits for itself."""
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
    if found is None or found == known:
        return
    new = found > known
    yield Finding(
        severity=Severity.ERROR if new else Severity.WARNING,
        cause="schema-new" if new else "schema-old",
        about=facts.path,
        short=f"schema {found}, this version knows {known}",
        text=f"{facts.path} was made by {'a newer' if new else 'an older'} Chargehand: its schema is {found}, and "
        f"version {facts.version} here {'knows only' if new else 'has'} {known}",
        remedy="pip install --upgrade chargehand"
        if new
        else "restart the node with this version, which brings it up to date",
    )


def _locked(facts: Facts, holder: Process | None, seconds: float) -> Finding:
    who = "somebody" if holder is None else f"pid {holder.pid} ({holder.command or 'no command line'})"
    return Finding(
        severity=Severity.ERROR,
        cause="store-locked",
        about=facts.path,
        short=f"{who} holds the write lock",
        text=f"{who} has held the write lock of {facts.path} for more than {length(seconds)}: nobody else can write",
        remedy="end it, or let it end its transaction" if holder is None else f"kill -TERM {holder.pid}",
    )


def two_stores(facts: Facts) -> Iterator[Finding]:
    """Stores that are named beside the one that was looked at."""
    for other in facts.others:
        if other.pid is None:
            yield Finding(
                severity=Severity.NOTE,
                cause="two-stores",
                about=other.path,
                short="there are two stores",
                text=f"{other.why} is another store, {other.path}; this is about {facts.path}",
                remedy=f"to look at that one: chargehand doctor --store {other.path}",
            )
