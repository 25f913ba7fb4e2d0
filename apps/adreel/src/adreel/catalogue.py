"""The table of films, in the store of Chargehand: a film and its flow are written in one transaction.

The row holds what must outlive the jobs of a film: its name, its files, the wish to delete it, and how it ended.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import msgspec

from adreel import clock, names
from chargehand import Chargehand, Transaction

_TABLE = """CREATE TABLE IF NOT EXISTS adreel_film (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, source TEXT, uploaded INTEGER NOT NULL, size BIGINT NOT NULL,
    submitted_ms BIGINT NOT NULL, flow TEXT NOT NULL UNIQUE, earlier TEXT NOT NULL, state TEXT NOT NULL,
    ends INTEGER NOT NULL, ended_ms BIGINT, category TEXT, error TEXT, outcome TEXT, deleting_ms BIGINT, words TEXT)"""
_INDEX = "CREATE INDEX IF NOT EXISTS adreel_film_by_state ON adreel_film (state, submitted_ms)"
_WISHES = "CREATE INDEX IF NOT EXISTS adreel_film_deleting ON adreel_film (deleting_ms) WHERE deleting_ms IS NOT NULL"
_COLUMNS = (
    "id, name, source, uploaded, size, submitted_ms, flow, earlier, state, ends, ended_ms, category, error, "
    "outcome, deleting_ms"
)

_WORDS = "COALESCE(words, LOWER(name || ' ' || id))"
"""What is searched; `words` is null in a row that a version wrote that did not know this column."""
_NAME = re.compile(r"\badreel_film\b(?=[^_]|$)")

State = Literal["open", "done", "failed", "cancelled"]
"""How a film has ended; `open`: its flow knows its state."""


class FilmRow(msgspec.Struct, frozen=True, kw_only=True):
    """One film as the table has it."""

    id: str
    name: str
    source: str | None
    """The path of the file; None after it has expired."""
    uploaded: bool
    """Whether the file belongs to Adreel, and is removed with the film."""
    size: int
    submitted_ms: int
    flow: str
    """The id of its flow."""
    earlier: tuple[str, ...] = ()
    """The ids of the flows of earlier analyses."""
    state: State
    ends: int
    """The number of the end of the flow that the row describes; 0 if it has not ended yet."""
    ended_ms: int | None
    category: str | None
    error: str | None
    outcome: str | None
    """JSON that is shown after the end: stages, figures."""
    deleting_ms: int | None


class Catalogue:
    """Reads and writes the table of films."""

    def __init__(self, hand: Chargehand) -> None:
        self._hand = hand
        self._mark = "%s" if hand.url.startswith("postgres") else "?"
        self._table = _in_schema(hand.url)
        self._known = False

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """Opens a transaction in which the table exists. Flows can be made within it."""
        if not self._known:
            self._create()
        with self._hand.transaction() as tx:
            yield tx

    def _create(self) -> None:
        with self._hand.transaction() as tx:
            if self._mark == "%s":  # two processes that start at the same time must not both create it
                tx.execute("SELECT pg_advisory_xact_lock(7311884405)")
            for statement in (_TABLE, _INDEX, _WISHES):
                self._run(tx, statement)
            self._add_words(tx)
        self._known = True

    def _add_words(self, tx: Transaction) -> None:
        """Adds the column `words` to the table of an older version."""
        if self._mark == "%s":
            self._run(tx, "ALTER TABLE adreel_film ADD COLUMN IF NOT EXISTS words TEXT")
        elif not tx.execute("SELECT 1 FROM pragma_table_info('adreel_film') WHERE name = 'words'"):
            tx.execute("ALTER TABLE adreel_film ADD COLUMN words TEXT")

    def _run(self, tx: Transaction, sql: str, *bindings: Any) -> list[tuple[Any, ...]]:
        return tx.execute(_NAME.sub(self._table, sql).replace("?", self._mark), bindings)

    def add(self, tx: Transaction, film: FilmRow) -> None:
        """Adds a film."""
        values = (
            film.id, film.name, film.source, int(film.uploaded), film.size, film.submitted_ms, film.flow,
            " ".join(film.earlier), film.state, film.ends, film.ended_ms, film.category, film.error, film.outcome,
            film.deleting_ms, words_of(film),
        )  # fmt: skip
        self._run(tx, f"INSERT INTO adreel_film ({_COLUMNS}, words) VALUES ({', '.join('?' * len(values))})", *values)

    def get(self, film: str) -> FilmRow | None:
        """Returns one film."""
        with self.transaction() as tx:
            return self.within(tx, film)

    def within(self, tx: Transaction, film: str) -> FilmRow | None:
        """Returns one film, inside a transaction; other nodes cannot change it before the end of the transaction."""
        lock = " FOR UPDATE" if self._mark == "%s" else ""
        found = self._run(tx, f"SELECT {_COLUMNS} FROM adreel_film WHERE id = ?{lock}", film)
        return _row(found[0]) if found else None

    def of_flow(self, flow: str) -> FilmRow | None:
        """Returns the film whose present flow this is."""
        with self.transaction() as tx:
            found = self._run(tx, f"SELECT {_COLUMNS} FROM adreel_film WHERE flow = ?", flow)
        return _row(found[0]) if found else None

    def find(
        self, *, text: str = "", state: State | None = None, category: str = "", before: str = "", limit: int = 50,
        deleting: bool = False,
    ) -> list[FilmRow]:  # fmt: skip
        """Returns a page of films, newest first; `before` is the id of the last one of the previous page.

        `text` is searched in names, ids and brands, in any case.
        With `deleting`, only films that are to be deleted.
        """
        where, values = ["1 = 1"], list[Any]()
        if text:
            where.append(f"{_WORDS} LIKE ? ESCAPE '!'")
            values.append(f"%{_escaped(names.folded(text))}%")
        for column, value in (("state", state), ("category", category)):
            if value:
                where.append(f"{column} = ?")
                values.append(value)
        if deleting:
            where.append("deleting_ms IS NOT NULL")
        if before:
            where.append("id < ?")
            values.append(before)
        sql = f"SELECT {_COLUMNS} FROM adreel_film WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT {int(limit)}"
        with self.transaction() as tx:
            return [_row(each) for each in self._run(tx, sql, *values)]

    def counts(self) -> dict[str, int]:
        """Returns how many films are in each state of the table; those that are being deleted are counted apart."""
        sql = (
            "SELECT CASE WHEN deleting_ms IS NOT NULL THEN 'deleting' ELSE state END, COUNT(*) FROM adreel_film "
            "GROUP BY 1"
        )
        with self.transaction() as tx:
            return {str(state): int(count) for state, count in self._run(tx, sql)}

    def categories(self) -> dict[str, int]:
        """Returns how many films have each category."""
        sql = "SELECT category, COUNT(*) FROM adreel_film WHERE category IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1"
        with self.transaction() as tx:
            return {str(name): int(count) for name, count in self._run(tx, sql)}

    def settle(self, film: FilmRow) -> bool:
        """Writes how a film ended. Returns False if a later end is known, or if it has another flow by now."""
        sql = (
            "UPDATE adreel_film SET state = ?, ends = ?, ended_ms = ?, category = ?, error = ?, outcome = ?, "
            "words = ? WHERE id = ? AND flow = ? AND ends < ? RETURNING id"
        )
        values = (film.state, film.ends, film.ended_ms, film.category, film.error, film.outcome, words_of(film))
        with self.transaction() as tx:
            return bool(self._run(tx, sql, *values, film.id, film.flow, film.ends))

    def reopen(self, tx: Transaction, film: str) -> None:
        """Records that the analysis of a film goes on."""
        self._run(tx, "UPDATE adreel_film SET state = 'open', ended_ms = NULL, error = NULL WHERE id = ?", film)

    def begin_again(self, tx: Transaction, film: FilmRow, flow: str) -> None:
        """Records that the film is analysed again, by another flow."""
        earlier = " ".join((*film.earlier, film.flow))
        self._run(tx, "UPDATE adreel_film SET flow = ?, earlier = ?, ends = 0 WHERE id = ?", flow, earlier, film.id)
        self.reopen(tx, film.id)

    def wish(self, film: str) -> FilmRow | None:
        """Records that the film is to be deleted, and returns it; None if there is none."""
        sql = "UPDATE adreel_film SET deleting_ms = COALESCE(deleting_ms, ?) WHERE id = ?"
        with self.transaction() as tx:
            self._run(tx, sql, clock.now_ms(), film)
            return self.within(tx, film)

    def wished(self, limit: int = 1000) -> list[FilmRow]:
        """Returns films that are to be deleted, the oldest wish first."""
        sql = (
            f"SELECT {_COLUMNS} FROM adreel_film WHERE deleting_ms IS NOT NULL ORDER BY deleting_ms LIMIT {int(limit)}"
        )
        with self.transaction() as tx:
            return [_row(each) for each in self._run(tx, sql)]

    def ended_before(self, ms: int, *, with_upload: bool = False, limit: int = 1000) -> list[FilmRow]:
        """Returns films that ended before this time; `with_upload`: only those whose uploaded file is still there."""
        also = " AND source IS NOT NULL AND uploaded = 1" if with_upload else ""
        sql = (
            f"SELECT {_COLUMNS} FROM adreel_film WHERE state <> 'open' AND ended_ms < ? AND deleting_ms IS NULL{also} "
            f"ORDER BY ended_ms LIMIT {int(limit)}"
        )
        with self.transaction() as tx:
            return [_row(each) for each in self._run(tx, sql, ms)]

    def unsettled(self, limit: int = 200) -> list[FilmRow]:
        """Returns films whose end is not recorded yet, the oldest first."""
        sql = f"SELECT {_COLUMNS} FROM adreel_film WHERE state = 'open' ORDER BY submitted_ms LIMIT {int(limit)}"
        with self.transaction() as tx:
            return [_row(each) for each in self._run(tx, sql)]

    def lose_source(self, film: str) -> None:
        """Records that the file of a film has expired."""
        with self.transaction() as tx:
            self._run(tx, "UPDATE adreel_film SET source = NULL WHERE id = ?", film)

    def remove(self, film: str) -> None:
        """Removes the row of a film."""
        with self.transaction() as tx:
            self._run(tx, "DELETE FROM adreel_film WHERE id = ?", film)


def words_of(film: FilmRow) -> str:
    """Returns what a search finds a film by: its name, id and brands."""
    outcome: dict[str, Any] = msgspec.json.decode(film.outcome) if film.outcome else {}
    return names.folded("\n".join((film.name, film.id, *outcome.get("brands", ()))))


def _row(values: tuple[Any, ...]) -> FilmRow:
    found = dict(zip(_COLUMNS.split(", "), values, strict=True))
    return msgspec.convert({**found, "uploaded": bool(found["uploaded"]), "earlier": found["earlier"].split()}, FilmRow)


def _in_schema(url: str) -> str:
    """Returns the name of the table; on PostgreSQL in the schema of the store, of which a database may have several."""
    schema = parse_qs(urlsplit(url).query).get("schema", [""])[0] if url.startswith("postgres") else ""
    return f'"{schema.replace(chr(34), chr(34) * 2)}".adreel_film' if schema else "adreel_film"


def _escaped(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
