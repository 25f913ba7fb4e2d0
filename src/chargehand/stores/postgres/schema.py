"""Makes and extends the tables. Safe when several processes start at once: an advisory lock admits one at a time."""

from collections.abc import Iterator
from pathlib import Path

from chargehand.errors import StoreError
from chargehand.model.records import Migrated
from chargehand.stores.moving import UNFINISHED
from chargehand.stores.postgres import driver, statements
from chargehand.stores.postgres.session import Session
from chargehand.system.sha256 import sha256

_SQL = statements.load("store")


def _scripts(*folder: str) -> Iterator[tuple[str, tuple[str, str]]]:
    for file in sorted(Path(__file__).parent.joinpath(*folder).glob("*.sql")):
        text = file.read_text("utf-8")
        yield file.stem, (text, sha256(text.encode()).hexdigest())


MIGRATIONS = [step for _, step in _scripts("migrations")]
"""The steps from an empty schema to the present version, each with its checksum."""
ADDITIONS = dict(_scripts("migrations", "additions"))
"""The steps that older code of the same schema version can ignore, by name, each with its checksum."""


def version(db: Session) -> tuple[int, set[str]]:
    """Returns the version of the tables and the names of the additions; 0 if there are no tables."""
    ((exists, _),) = db.rows(_SQL["tables"])
    if not exists:
        return 0, set()
    ((found, additions),) = db.rows(_SQL["version"])
    return int(found), set(additions)


def is_unfinished(db: Session) -> bool:
    """Returns whether the store is the target of a move that has not finished."""
    ((_, moving),) = db.rows(_SQL["tables"])
    return bool(moving)


def check_finished(db: Session) -> None:
    """Raises StoreError if the store is the target of a move that has not finished."""
    if is_unfinished(db):
        raise StoreError(UNFINISHED.format(store=db.address.shown))


def migrate(db: Session, *, create: bool) -> Migrated:
    """Brings the tables to the version that this code knows. Raises StoreError for a newer one."""
    known = len(MIGRATIONS)
    found, additions = version(db)
    if found == known and ADDITIONS.keys() <= additions:
        return Migrated(before=known, after=known)
    if found == 0 and not create:
        raise StoreError(
            f"there is no store at {db.address.shown}: start a node, or name the right one with CHARGEHAND_URL",
            "no-store",
        )
    with db.transaction(), db.patience():
        db.send(_SQL["settings"], ('{"lock_timeout": "60s", "statement_timeout": "0"}', True))
        db.send(_SQL["lock_schema"], (f"chargehand {db.address.schema}",))
        driver.make_schema(db.open(), db.address)
        found, additions = version(db)  # read again: another process may have migrated meanwhile
        if found > known:
            raise StoreError(
                f"{db.address.shown} was made by a newer Chargehand (schema {found}, this one knows {known}): "
                "upgrade the package; nothing was changed",
                "schema-new",
            )
        db.send(_SQL["make_tables"])
        db.send(_SQL["make_additions"])
        for number, (text, checksum) in enumerate(MIGRATIONS[found:], found + 1):
            db.script(text)
            db.send(_SQL["applied"], (db.now, number, checksum))
        missing = tuple(sorted(ADDITIONS.keys() - additions))
        for name in missing:
            text, checksum = ADDITIONS[name]
            db.script(text)
            db.send(_SQL["added"], (db.now, name, checksum))
    return Migrated(before=found, after=known, additions=missing)
