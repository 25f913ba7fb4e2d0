"""Makes and extends the tables. Safe when several processes start at once: an advisory lock admits one at a time.

A schema names the oldest code that may use it, by the schema version which that code knows. A start changes nothing
under nodes of older code that live.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from chargehand import clock, log
from chargehand.errors import StoreBusy, StoreError
from chargehand.model.records import Migrated
from chargehand.stores.moving import UNFINISHED
from chargehand.stores.postgres import driver, statements
from chargehand.stores.postgres.beats import Beats, Seen
from chargehand.stores.postgres.session import Session, as_setting
from chargehand.system.sha256 import sha256

_SQL = statements.load("store")
_FLEET = statements.load("fleet")
_OLDEST = re.compile(r"^-- oldest: (\d+)$", re.MULTILINE)
LOOK_EVERY = 0.25
"""Seconds between two looks at nodes of older code."""
PATIENCE = 60.0
"""For how many seconds a migration is tried again while others hold locks."""
PAUSE = 0.5
"""Seconds between two attempts."""
LOCK_TIMEOUT = "2s"
"""How long a step waits for a table: all statements of the nodes on that table wait behind it."""


class Step(msgspec.Struct, frozen=True):
    """A script that leads from one version of the schema to the next."""

    text: str
    checksum: str
    oldest: int
    """The oldest schema version whose code may use the tables after this step."""


class Version(msgspec.Struct, frozen=True):
    """The version of the tables that were found; 0 if there are none."""

    number: int = 0
    oldest: int = 0
    """The oldest schema version whose code may use them."""


def steps(folder: Path) -> Iterator[Step]:
    """Yields the steps in a folder. One that does not say `-- oldest: N` shuts out all older code."""
    for number, file in enumerate(sorted(folder.glob("*.sql")), 1):
        text = file.read_text("utf-8")
        named = _OLDEST.search(text)
        yield Step(text, sha256(text.encode()).hexdigest(), int(named[1]) if named else number)


MIGRATIONS = list(steps(Path(__file__).parent / "migrations"))
"""The steps from an empty schema to the version that this code knows."""


def version(db: Session) -> Version:
    """Returns the version of the tables."""
    ((exists, _),) = db.rows(_SQL["tables"])
    if not exists:
        return Version()
    ((number, oldest),) = db.rows(_SQL["version"])
    return Version(number, oldest)


def is_unfinished(db: Session) -> bool:
    """Returns whether the store is the target of a move that has not finished."""
    ((_, moving),) = db.rows(_SQL["tables"])
    return bool(moving)


def check_finished(db: Session) -> None:
    """Raises StoreError if the store is the target of a move that has not finished."""
    if is_unfinished(db):
        raise StoreError(UNFINISHED.format(store=db.address.shown))


def check(db: Session) -> None:
    """Raises StoreError if this code cannot use the tables."""
    _check(db, version(db))


def _check(db: Session, found: Version) -> None:
    known = len(MIGRATIONS)
    if found.oldest > known:
        raise StoreError(
            f"{db.address.shown} was made by a newer Chargehand (schema {found.number}, for code that knows schema "
            f"{found.oldest} or newer; this one knows {known}): upgrade the package; nothing was changed",
            "schema-new",
        )
    if found.number < known:
        raise StoreError(
            f"{db.address.shown} has schema {found.number}, this Chargehand needs {known}: run `chargehand migrate`",
            "schema-old",
        )


def migrate(db: Session, *, create: bool, asked: bool = False) -> Migrated:
    """Brings the tables to the version that this code knows. Raises StoreError if this code is too old for them.

    Raises StoreError, too, if nodes of older code live; `asked`: only if they could not go on with the new tables.
    """
    known = len(MIGRATIONS)
    found = version(db)
    if found.number >= known:
        _check(db, found)
        return Migrated(before=found.number, after=found.number)
    if found.number == 0 and db.address.schema is not None:
        _check_usable(db, db.address.schema)
    if found.number == 0 and not create:
        raise StoreError(
            f"there is no store at {db.address.shown}: start a node, or name the right one with CHARGEHAND_URL",
            "no-store",
        )
    needed = max(step.oldest for step in MIGRATIONS) if asked else known
    until = clock.monotonic() + PATIENCE
    while True:
        dead = _dead_nodes(db, needed, patient=asked) if found.number else []
        try:
            return _migrate(db, dead, needed)
        except StoreBusy:
            if clock.monotonic() >= until:
                raise
            clock.sleep(PAUSE)
        found = version(db)


def _check_usable(db: Session, name: str) -> None:
    """Raises StoreError if the user may not see what is in the schema."""
    if db.rows(_SQL["usable"], (name,)) == [(False,)]:
        raise StoreError(
            f"the user may not use the schema {name!r} of {db.address.shown}: grant USAGE on it, and the rights on its "
            "tables (for the first start: CREATE on the schema)",
            "no-rights",
        )


def _dead_nodes(db: Session, needed: int, *, patient: bool) -> list[Seen]:
    """Returns the nodes whose code knows only schemas before `needed`: all are dead. Waits until that is certain.

    Raises StoreError if one of them lives, or may live because it has a session; `patient`: only if it beats.
    """
    beats, first = Beats(), dict[str, int]()
    warned = False
    while True:
        found = [(Seen(*row), known) for *row, known in db.rows(_FLEET["older"], (needed,))]
        rows = [node for node, _ in found]
        living = {node.name for node in rows if first.setdefault(node.incarnation, node.beat) != node.beat}
        living |= {node.name for node, known in found if known and not node.gone and not patient}
        if living:
            raise StoreError(_lives(db, sorted(living)), "schema-old")
        dead = beats.dead(rows, clock.monotonic(), db.number)
        if len(dead) == len(rows):
            return dead
        if not warned:
            warned = True
            log.warning(
                "nodes of an older version may live; the schema is migrated if they do not beat within their leases",
                nodes=[node.name for node in rows],
            )
        clock.sleep(LOOK_EVERY)


def _lives(db: Session, nodes: list[str]) -> str:
    """Returns why nothing is migrated while these nodes live, and what to do."""
    known, oldest = len(MIGRATIONS), max(step.oldest for step in MIGRATIONS)
    rows = db.rows(_FLEET["older"], (oldest,))
    text = (
        f"{db.address.shown} has schema {version(db).number}, this Chargehand needs {known}, and nodes of an older "
        f"version use it ({', '.join(nodes)}): "
    )
    if rows:
        return f"{text}they cannot work with schema {known}; stop them, or upgrade them by one version first"
    return f"{text}run `chargehand migrate`, which they allow, then start this again; or stop them first"


def _migrate(db: Session, dead: list[Seen], needed: int) -> Migrated:
    with db.transaction(), db.patience():
        db.send(_SQL["settings"], ('{"lock_timeout": "60s", "statement_timeout": "0"}', True))
        db.send(_SQL["lock_schema"], (f"chargehand {db.address.schema}",))
        driver.make_schema(db.open(), db.address)
        found = version(db)  # read again: another process may have migrated meanwhile
        if found.number >= len(MIGRATIONS):
            _check(db, found)
            return Migrated(before=found.number, after=found.number)
        if found.number:
            db.send(_FLEET["lock_crews"])  # no node registers meanwhile
            db.send(_FLEET["expire"], (msgspec.json.encode(dead).decode(),))
            if db.rows(_FLEET["older"], (needed,)):
                raise StoreBusy("a node of an older version has started")
        db.send(_SQL["settings"], (as_setting("lock_timeout", LOCK_TIMEOUT), True))
        db.send(_SQL["make_tables"])
        for number, step in enumerate(MIGRATIONS[found.number :], found.number + 1):
            db.script(step.text)
            db.send(_SQL["applied"], (db.now, number, step.checksum, step.oldest))
    return Migrated(before=found.number, after=len(MIGRATIONS))
