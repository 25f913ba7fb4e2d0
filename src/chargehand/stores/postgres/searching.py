"""Searches of jobs in a PostgreSQL store; `stores.searching` decides what is read."""

from collections.abc import Callable, Sequence
from typing import Any

from chargehand.model.job import FINISHED, State
from chargehand.model.records import Counts, FailedJob, JobFilter, SearchPlace, Sort
from chargehand.stores.matching import Condition, Matching, joined
from chargehand.stores.postgres import session
from chargehand.stores.rows import clean, columns
from chargehand.stores.searching import Part, states_of


def _in_payload(steps: Sequence[str]) -> Condition:
    value = "SELECT j.payload::json #> ?::text[] AS v"
    # Objects and arrays are not compared: what they contain may be hidden.
    scalar = "WHEN json_typeof(v) NOT IN ('object', 'array') THEN v::text"
    return f"(SELECT CASE WHEN json_typeof(v) = 'string' THEN v #>> '{{}}' {scalar} END FROM ({value}) AS one)", (
        list(steps),
    )


MATCHING = Matching(
    {
        **{name: f"j.{name}" for name in ("id", "label", "key", "item", "share", "sequence")},
        **{name: f"coalesce(t.{name}, e.{name})" for name in ("error", "node", "worker")},
    },
    "ILIKE",
    "~",
    _in_payload,
    "EXISTS (SELECT FROM chargehand_tag o WHERE o.tag = ? AND o.job = j.seq)",
    "EXISTS (SELECT FROM chargehand_attempt a WHERE a.job = j.seq AND {})",
)
_FAILED = columns(FailedJob, id="j.id", queue="j.queue", error="coalesce(t.error, e.error)", seq="j.seq")


def numbered(sql: str) -> bytes:
    """Returns the statement with `$1`, `$2` and so on in the place of each question mark."""
    first, *parts = sql.split("?")
    return "".join((first, *(f"${nr}{part}" for nr, part in enumerate(parts, 1)))).encode()


class PostgresSearching:
    """Implements `chargehand.stores.searching.Searchable`."""

    def __init__(
        self,
        db: session.Session,
        *,
        fields: str,
        short: str,
        source: str,
        state: str,
        live: dict[State, str],
        conditions: Callable[[JobFilter], list[Condition]],
        counts: Callable[[], list[Counts]],
        now_ms: Callable[[], int],
    ) -> None:
        """`fields`: the columns of a JobRecord; `short`: those of a JobSize; `source`: the joined tables; `state`: the
        column of the state; `live`: the conditions of the states that are not final; `conditions`: those of a filter,
        apart from a tag."""
        self._db, self._fields, self._short = db, fields, short
        self._source, self._state, self._live = source, state, live
        self._conditions, self.counts, self.now_ms = conditions, counts, now_ms

    def positions(self) -> tuple[int, int]:
        ((low, high),) = self._db.rows(b"SELECT min(seq), max(seq) FROM chargehand_job")
        return (0, 0) if low is None else (int(low), int(high) + 1)

    def created_ms(self, low: int) -> int | None:
        rows = self._db.rows(b"SELECT created_ms FROM chargehand_job WHERE seq >= $1 ORDER BY seq LIMIT 1", (low,))
        return int(rows[0][0]) if rows else None

    def page(
        self, which: JobFilter, part: Part, sort: Sort, after: SearchPlace | None, limit: int, *, short: bool = False
    ) -> list[tuple[Any, ...]]:
        conditions = self._within(which, part)
        order = "j.seq" if sort is Sort.OLDEST else "j.seq DESC"
        value = self._sorted_by(sort)
        if value is not None:
            order = f"{value} DESC, j.seq DESC"
            if after is not None:
                conditions.append((f"({value}, j.seq) < (?::bigint, ?::bigint)", (after.value, after.seq)))
        condition, bindings = joined(conditions)
        fields = self._short if short else self._fields
        sql = f"SELECT {fields} FROM {self._source} WHERE {condition} ORDER BY {order} LIMIT ?"
        return self._db.rows(numbered(sql), (*bindings, limit))

    def _sorted_by(self, sort: Sort) -> str | None:
        if sort is Sort.LONGEST:
            took = f"coalesce(e.finished_ms, {self.now_ms()}) - coalesce(t.started_ms, e.started_ms)"
            return f"(CASE WHEN {self._state} = 'queued' THEN -1 ELSE coalesce({took}, -1) END)"
        return "(-j.rank)" if sort is Sort.PRIORITY else None

    def numbers(self, which: JobFilter, part: Part) -> list[tuple[Any, ...]]:
        condition, bindings = joined(self._within(which, part))
        sql = f"SELECT {self._state}, count(*) FROM {self._source} WHERE {condition} GROUP BY 1"
        return self._db.rows(numbered(sql), bindings)

    def failed(self, which: JobFilter, part: Part, limit: int) -> list[tuple[Any, ...]]:
        condition, bindings = joined([*self._within(which, part), ("e.state = 'failed'", ())])
        sql = f"SELECT {_FAILED} FROM {self._source} WHERE {condition} ORDER BY j.seq DESC LIMIT ?"
        return self._db.rows(numbered(sql), (*bindings, limit))

    def _within(self, which: JobFilter, part: Part) -> list[Condition]:
        if part.these is not None:
            found: Condition = ("j.seq = ANY (?::bigint[])", (list(part.these),))
        else:
            found = ("j.seq >= ?::bigint AND j.seq < ?::bigint", (part.low, part.below))
        tag: list[Condition] = [(MATCHING.tagged, (clean(which.tag),))] if which.tag is not None else []
        return [found, *tag, *self._conditions(which)]

    def indexed(self, which: JobFilter, part: Part, *, newest: bool, limit: int) -> list[int] | None:
        order = f"ORDER BY 1 {'DESC' if newest else 'ASC'} LIMIT ?"
        bounds = (part.low, part.below)
        if which.ids is not None:
            of_ids = "id = ANY (?::text[]) AND seq >= ?::bigint AND seq < ?::bigint"
            sql = f"SELECT seq FROM chargehand_job WHERE {of_ids} {order}"
            return self._seqs(sql, ([clean(each) for each in which.ids], *bounds, limit))
        if which.tag is not None:
            sql = f"SELECT job FROM chargehand_tag WHERE tag = ? AND job >= ?::bigint AND job < ?::bigint {order}"
            return self._seqs(sql, (clean(which.tag), *bounds, limit))
        if which.flow is not None:
            sql = f"SELECT seq FROM chargehand_job WHERE flow = ? AND seq >= ?::bigint AND seq < ?::bigint {order}"
            return self._seqs(sql, (clean(which.flow), *bounds, limit))
        states = states_of(which)
        if states is None and which.queue is None:
            return None
        branches: list[str] = []
        bindings: list[Any] = []
        for state in states or (None,):
            for table in self._tables(state):
                branches.append(f"SELECT seq FROM {table} AND seq >= ?::bigint AND seq < ?::bigint")
                bindings += bounds
                if which.queue is not None:
                    branches[-1] += " AND queue = ?"
                    bindings.append(clean(which.queue))
        return self._seqs(f"SELECT seq FROM ({' UNION ALL '.join(branches)}) AS every {order}", (*bindings, limit))

    def counted(self, state: State, queue: str | None) -> int:
        of_queue, bindings = ("", ()) if queue is None else (" AND queue = $1", (clean(queue),))
        (table,) = self._tables(state)
        ((number,),) = self._db.rows(f"SELECT count(*) FROM {table}{of_queue}".encode(), bindings)
        return int(number)

    def _tables(self, state: State | None) -> list[str]:
        ended = "chargehand_end WHERE state"
        if state is None:
            return ["chargehand_live WHERE true", f"{ended} IN ('done', 'failed', 'cancelled')"]
        if state in FINISHED:
            return [f"{ended} = '{state.value}'"]
        return [f"chargehand_live t WHERE {self._live[state]}"]

    def _seqs(self, sql: str, bindings: Sequence[Any]) -> list[int]:
        return [int(seq) for (seq,) in self._db.rows(numbered(sql), bindings)]

    def named(self, ending: str, limit: int) -> list[str]:
        """Returns the ids that end so."""
        sql = b'SELECT id FROM chargehand_job WHERE right(id, length($1)) = $1 ORDER BY id COLLATE "C" DESC LIMIT $2'
        return [str(found) for (found,) in self._db.rows(sql, (clean(ending), limit))]
