"""Moves all rows of a store into another one, page by page. It knows no database engine: a Reader and a Writer of each
store do.

Both sides describe a store by the same parts and columns (PARTS). A page and the note of how far the move has come are
one transaction of the target, so an interrupted move goes on with the next page. At the end both sides are read and
compared; only then can the target be opened by anything else. Memory is bounded by the size of a page.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from chargehand import codec
from chargehand.errors import StoreError
from chargehand.system.sha256 import sha256

PAGE_ROWS = 1000
PAGE_BYTES = 4 << 20
"""Rows and bytes that are read and written at once; a page has at least one row."""
LONGEST_IN_INDEX = 500
"""The most bytes of a text that an index of every store can hold; of a longer one it has the SHA-256."""
INTERRUPTED = "the store was moved while the job was running"
MARK = "chargehand_moving"
"""The table of a target that is not complete: where its rows come from, and which of them it has."""
MAKE_MARK = f"CREATE TABLE {MARK} (source TEXT NOT NULL, part TEXT NOT NULL, after TEXT)"
UNFINISHED = (
    "{store} is the target of a move that has not finished: run `chargehand migrate --from … --to …` again to continue "
    "it"
)
OTHER_SCHEMA = (
    "{store} was made by another version of Chargehand: migrate it first (`chargehand migrate --store …`). A move does "
    "not do that, because it never changes its source"
)

Row = dict[str, Any]
Key = list[Any]
"""The values of a part's key columns in one row."""


_encoder = msgspec.json.Encoder()


class Part(msgspec.Struct, frozen=True):
    """The rows of one kind: those of the table `chargehand_<name>`, as both stores describe them."""

    name: str
    key: tuple[str, ...]
    """The columns by which the rows are paged."""
    columns: tuple[str, ...]
    long: tuple[str, ...] = ()
    """The columns with long texts, which determine how many rows a page has."""

    def key_of(self, row: Row) -> Key:
        """Returns the key of a row."""
        return [row[column] for column in self.key]


def names(text: str) -> tuple[str, ...]:
    """Returns the words of a text, as names of columns."""
    return tuple(text.split())


def _part(name: str, key: str, columns: str, long: str = "") -> Part:
    return Part(name, names(key), names(columns), names(long))


TRIED = "tried"
"""The field of a job with its attempts, oldest first; they are read and written together."""
ATTEMPT = ("claim", "node", "worker", "pid", "started_ms", "duration_ms", "outcome", "error")
JOBS = _part(
    "job",
    "seq",
    "seq id queue state waits priority place run_at_ms claim attempts max_attempts crashes interruptions timeout_ms "
    "key limit_key node worker created_ms started_ms finished_ms cancel_ms retried_ms label item tags failed_in reason "
    "flow parent share sequence expires_at_ms meta traceparent progress payload result error",
    "payload result error",
)
PARTS = (
    JOBS,
    _part("alias", "id", "id job parent ordinal"),
    _part(
        "flow", "seq", "seq id name created_ms arrival place on_end cancel_ms ends ended_ms state on_end_job", "on_end"
    ),
    _part("edge", "job nr predecessor", "job nr predecessor strict open ordinal"),
    _part("sequence", "queue sequence", "queue sequence job"),
    _part("once", "queue key", "queue key until_ms job"),
    _part("kept", "job", "job state", "state"),
    _part("suspect", "job", "job since_ms"),
    _part("recurring", "name", "name schedule job next_run_ms last_job"),
    _part("recurrence", "name", "name paused_ms paused_by pause_reason runs"),
    _part("pause", "scope", "scope who reason since_ms until_ms"),
    _part("limit", "queue", "queue allowed allowed_per_key"),
    _part("start", "queue key at_ms", "queue key at_ms jobs total"),
    _part(
        "crew",
        "name",
        "name queue handler workers max_attempts timeout_ms priority allowed allowed_per_key rate rate_per_key "
        "hide scaled registered_ms",
    ),
    _part(
        "worker",
        "component",
        "component created_ms written_ms fingerprint charged streak rested_ms restarts restarts_total",
    ),
    _part("given_up", "component", "component crew reason fingerprint at_ms"),
    _part(
        "crash",
        "seq",
        "seq id node component crew job at_ms incarnation pid reason exit_code signal memory uptime_ms charged follows "
        "text stacks lines frames",
        "text stacks lines frames",
    ),
    _part("history", "timestamp_ms", "timestamp_ms components", "components"),
    _part("key", "id", "id name digest scopes created_ms expires_ms used_ms revoked_ms"),
    _part("operation", "id", "id at_ms who verb target detail origin", "detail"),
    _part("remembered", "caller key", "caller key digest status body at_ms", "body"),
)
COUNTED = {"job": "seq", "flow": "seq", "operation": "id", "crash": "seq"}
"""The tables that number their rows, and the column: a number is not given twice, even if its row was deleted."""


class Progress(msgspec.Struct, frozen=True):
    """How far a move has come: all parts before this one, and this one up to a key, are in the target."""

    source: str
    part: str
    after: Key | None = None


class Reader(Protocol):
    """Reads the rows of a store for a move. It writes nothing."""

    shown: str
    """The address of the store, for people."""

    def page(self, part: Part, after: Key | None) -> list[Row]:
        """Returns the next rows after this key, with the columns of the part; none after the last."""
        ...

    def count(self, part: Part) -> int:
        """Returns the number of rows."""
        ...

    def counters(self) -> dict[str, int]:
        """Returns the last number that was given to a row of each table in COUNTED."""
        ...

    def node(self) -> str:
        """Returns the name of the node that registered last; '' if there was none."""
        ...

    def running(self) -> list[str]:
        """Returns the names of the nodes that use the store, as far as the store knows."""
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class Writer(Protocol):
    """Writes the rows of a move into a store. The store is created if there is none."""

    def progress(self) -> Progress | None:
        """Returns how far an earlier, unfinished move has come; None if there is none."""
        ...

    def begin(self, progress: Progress) -> None:
        """Marks the store as the target of a move that has not finished: nothing else can open it from then on."""
        ...

    def write(self, part: Part, rows: Sequence[Row], progress: Progress, node: str) -> None:
        """Adds the rows and replaces the progress, in one transaction. `node` is the node of the crews."""
        ...

    def clear(self, progress: Progress) -> None:
        """Deletes all rows of an unfinished move, and replaces the progress."""
        ...

    def finish(self, counters: dict[str, int]) -> None:
        """Sets the counters and removes the mark: the store can be used."""
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a move."""

    source: str
    target: str
    rows: dict[str, int]
    """How many rows there are of each part."""
    queued_again: int = 0
    """How many jobs were running in the source, and are queued or cancelled in the target."""
    before: bool = False
    """Whether the target was complete already, and nothing was written."""


Report = Callable[[str, str, int, int], None]
"""Receives the progress: what is done (`move` or `compare`), the part, and how many of how many rows are done."""


# rows


def prepared(part: Part, rows: Sequence[Row]) -> Iterator[Row]:
    """Yields the rows in the form in which every store can hold them. Rows in that form stay as they are."""
    for row in rows:
        if part is JOBS:
            _prepare_job(row)
        found = _cleaned(row)
        if part.name in _LOOKED_UP:
            name = _LOOKED_UP[part.name]
            found[name] = _lookup(found[name])
        yield found


_LOOKED_UP = {"sequence": "sequence", "once": "key"}
"""The columns of which a store may hold only a digest, if the text is long."""


def _lookup(text: str) -> str:
    """Returns a text in the form in which every store can have it in an index."""
    data = text.encode()
    return sha256(data).hexdigest() if len(data) > LONGEST_IN_INDEX else text


def _cleaned(row: Row) -> Row:
    """Returns the row with all texts as valid Unicode without NUL."""
    return {name: codec.clean(value) if isinstance(value, str) else value for name, value in row.items()}


def _prepare_job(row: Row) -> None:
    if row["tags"] is not None:
        row["tags"] = json.dumps([codec.clean(tag) for tag in json.loads(row["tags"])], ensure_ascii=False)
    if row["state"] == "running":
        _queue_again(row)
    tried: list[Row] = row[TRIED]
    # The numbers of a job's claims ascend in SQLite, also where a clock was set back between two claims.
    last, numbers = 0, dict[int, int]()
    for attempt in tried:
        last = numbers[attempt["claim"]] = max(last + 1, attempt["claim"])
        attempt["claim"] = last
    if row["state"] == "queued":
        row["claim"] = row["progress"] = row["finished_ms"] = row["reason"] = row["result"] = None
    else:
        # A job that was cancelled while it was queued keeps the number of its last claim, as in SQLite.
        row["claim"] = numbers.get(row["claim"], row["claim"]) or last or None
    row["node"] = row["worker"] = None
    row[TRIED] = [_cleaned(attempt) for attempt in tried]


def _queue_again(row: Row) -> None:
    """Ends the claim of a running job as an interruption, as the next node of the source would have done."""
    attempt = {
        "claim": row["claim"], "node": row["node"], "worker": row["worker"], "pid": None,
        "started_ms": row["started_ms"], "duration_ms": 0, "outcome": "interrupted", "error": INTERRUPTED,
    }  # fmt: skip
    row[TRIED].append(attempt)
    row["interruptions"] += 1
    row["error"], row["waits"] = INTERRUPTED, None
    row["state"] = "queued"
    if row["cancel_ms"] is not None:
        row["state"] = row["reason"] = "cancelled"
        row["finished_ms"] = row["cancel_ms"]


def join_attempts(jobs: Sequence[Row], attempts: Sequence[tuple[Any, ...]]) -> None:
    """Adds attempts, each after the `seq` of its job and in their order, to the jobs."""
    of_job: dict[int, list[Row]] = {}
    for job, *values in attempts:
        of_job.setdefault(job, []).append(dict(zip(ATTEMPT, values, strict=True)))
    for row in jobs:
        row[TRIED] = of_job.get(row["seq"], [])


def as_json(value: Any) -> str:
    """Returns the value as one JSON text, the form in which statements take many rows."""
    return _encoder.encode(value).decode()


class _Sum:
    """The number of rows and their checksum, which does not depend on their order: stores sort texts differently."""

    def __init__(self) -> None:
        self.rows = self.total = 0

    def add(self, row: Row) -> None:
        """Adds a row."""
        found = sha256(_encoder.encode(row)).digest()
        self.total = (self.total + int.from_bytes(found, "big")) % (1 << 256)
        self.rows += 1


def cut(sizes: Sequence[tuple[Key, int]]) -> Key | None:
    """Returns the last key of the next page, from the keys and sizes of the rows that follow; None if none do."""
    last, total = None, 0
    for key, size in sizes:
        total += size
        if last is not None and total > PAGE_BYTES:
            break
        last = key
    return last


def pages(reader: Reader, part: Part, after: Key | None = None) -> Iterator[list[Row]]:
    """Yields all rows after a key in pages."""
    while rows := reader.page(part, after):
        after = part.key_of(rows[-1])
        yield rows


# the move


class Move:
    """The move of one store. `copy` reads the target."""

    def __init__(self, source: Reader, target: Writer, copy: Reader, report: Report) -> None:
        self._source, self._target, self._copy, self._report = source, target, copy, report
        self._rows: dict[str, int] = {}
        self._queued_again = 0

    def run(self, *, start_over: bool = False) -> Moved:
        """Moves everything that the target does not have yet, compares both, and makes the target usable.

        Raises StoreError for a target with other data. `start_over` deletes what an unfinished move has written.
        """
        begin = Progress(self._source.shown, PARTS[0].name)
        progress = self._target.progress()
        if progress is None:
            if any(self._copy.count(part) for part in PARTS):
                return self._compared_with_other_data()
            self._target.begin(begin)
            progress = begin
        elif progress.source != self._source.shown:
            raise StoreError(
                f"{self._copy.shown} has rows of an unfinished move from {progress.source}: finish that one, or name "
                "an empty target"
            )
        elif start_over:
            self._target.clear(begin)
            progress = begin
        self._write(progress)
        different = self._compare()
        if different is not None:
            raise StoreError(
                f"{self._source.shown} and {self._copy.shown} differ in `{different}` after the move: one of them was "
                "written to meanwhile. Stop everything that uses them and run the command again with --start-over"
            )
        self._target.finish(self._source.counters())
        return self._result()

    def _result(self, *, before: bool = False) -> Moved:
        return Moved(
            source=self._source.shown, target=self._copy.shown, rows=self._rows, queued_again=self._queued_again,
            before=before,
        )  # fmt: skip

    def _compared_with_other_data(self) -> Moved:
        """Returns the result of an earlier move of the same rows. Raises StoreError if the target has other ones."""
        if any(self._source.count(part) != self._copy.count(part) for part in PARTS) or self._compare() is not None:
            found = {part.name: count for part in PARTS if (count := self._copy.count(part))}
            held = ", ".join(f"{count:,} of `{name}`" for name, count in found.items())
            raise StoreError(
                f"{self._copy.shown} holds data already ({held}) that is not a copy of {self._source.shown}: name an "
                "empty store as target; nothing was changed"
            )
        return self._result(before=True)

    def _write(self, progress: Progress) -> None:
        node = self._source.node()
        first = next(at for at, part in enumerate(PARTS) if part.name == progress.part)
        for part in PARTS[first:]:
            after = progress.after if part.name == progress.part else None
            total, done = self._source.count(part), self._copy.count(part)
            for rows in pages(self._source, part, after):
                now = Progress(progress.source, part.name, part.key_of(rows[-1]))
                self._target.write(part, list(prepared(part, rows)), now, node)
                done += len(rows)
                self._report("move", part.name, done, total)

    def _compare(self) -> str | None:
        """Returns the first part in which source and target differ; None if there is none.

        The source is read last: the comparison must see what was written to it during the move.
        """
        self._queued_again = 0
        for part in PARTS:
            copied, original = _Sum(), _Sum()
            total = self._copy.count(part) + self._source.count(part)
            for reader, found in ((self._copy, copied), (self._source, original)):
                for rows in pages(reader, part):
                    if part is JOBS:
                        self._queued_again += sum(row["state"] == "running" for row in rows)
                    for row in prepared(part, rows):
                        found.add(row)
                    self._report("compare", part.name, copied.rows + original.rows, total)
            if (copied.rows, copied.total) != (original.rows, original.total):
                return part.name
            self._rows[part.name] = copied.rows
        return None
