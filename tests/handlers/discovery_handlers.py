"""Handlers for the tests of discovery, cancel and limits: an application with tables, locks and a ledger of its own.

Workers import this module. Whoever works on something holds a lock that the kernel lets go of when the process dies, so
that two at the same time cannot stay unseen, whoever is killed.
"""

import fcntl
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

import apsw
from scripted_handlers import write

from chargehand import Cancelled, GiveUp, Handler, Item, Job, clock

CONNECT = 10_000
"""Milliseconds that the application waits for its own database."""


class Table:
    """The application's own table, in a database of its own: what needs work, and how often it was done."""

    def __init__(self, path: Path | str) -> None:
        self.db = apsw.Connection(str(path))
        self.db.set_busy_timeout(CONNECT)
        self.db.pragma("journal_mode", "wal")
        self.db.pragma("synchronous", "OFF")
        self.db.execute("CREATE TABLE IF NOT EXISTS row (key TEXT PRIMARY KEY, kind TEXT, done INTEGER DEFAULT 0)")

    def add(self, keys: Iterable[str], kind: str = "plain") -> None:
        self.db.execute("BEGIN IMMEDIATE")
        self.db.executemany("INSERT INTO row (key, kind) VALUES (?, ?)", [(key, kind) for key in keys])
        self.db.execute("COMMIT")

    def needing(self, after: str | None, limit: int) -> list[str]:
        sql = "SELECT key FROM row WHERE done = 0 AND key > ? ORDER BY key LIMIT ?"
        return [str(key) for (key,) in self.db.execute(sql, (after or "", limit))]

    def kind(self, key: str) -> str:
        return self.db.execute("SELECT kind FROM row WHERE key = ?", (key,)).get

    def finish(self, key: str) -> None:
        self.db.execute("UPDATE row SET done = done + 1 WHERE key = ?", (key,))

    def left(self, kind: str = "plain") -> int:
        return self.db.execute("SELECT count(*) FROM row WHERE done = 0 AND kind = ?", (kind,)).get

    def close(self) -> None:
        self.db.close()


class Locks:
    """Numbered locks in one file; they end with their process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def take(self, number: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except OSError:
            return False
        return True

    def let_go(self, number: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number)

    @contextmanager
    def alone(self, number: int, otherwise: Callable[[], None]) -> Generator[None]:
        """Hold it; if somebody else has it, that must be told."""
        if not self.take(number):
            otherwise()
        yield
        self.let_go(number)


def place(name: str) -> str:
    """A file of the application's: its folder is in the environment."""
    return os.path.join(os.environ["APPLICATION"], name)


def number_of(text: str) -> int:
    return crc32(text.encode())


class Rows(Handler[Any, Any]):
    """Finds rows that need work in the application's table, and does them. Keeps `begin` and `end KEY PID MOMENT`."""

    def set_up(self) -> None:
        self.table, self.locks, self.ledger = Table(place("app.db")), Locks(place("locks")), place("ledger")

    def discover(self, after: str | None, limit: int) -> Any:
        write(self.ledger, "look", os.getpid(), clock.monotonic(), after is None)
        return self.table.needing(after, limit)

    def perform(self, job: Job[Any]) -> Any:
        key = job.item
        assert key is not None
        with self.locks.alone(number_of(key), lambda: write(self.ledger, "overlap", key, os.getpid())):
            write(self.ledger, "begin", key, os.getpid(), clock.monotonic())
            match self.table.kind(key):
                case "poison":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "raises":
                    raise GiveUp("as told")
                case "gate":
                    while not os.path.exists(place("gate")):
                        job.progress(1, 2, stage="waiting")
                        clock.sleep(0.002)
                    self.table.finish(key)
                case "never":
                    pass
                case _:
                    self.table.finish(key)
            write(self.ledger, "end", key, os.getpid(), clock.monotonic())
        return key


class SlowlyLooking(Rows):
    """Takes its time between reading and telling, while the file `slowly` is there."""

    def discover(self, after: str | None, limit: int) -> Any:
        found = super().discover(after, limit)
        while found and os.path.exists(place("slowly")):
            write(self.ledger, "read", os.getpid())
            clock.sleep(0.01)
        return found


class AsyncRows(Rows):
    """The same, looking and working asynchronously."""

    async def discover(self, after: str | None, limit: int) -> Any:
        import asyncio

        await asyncio.sleep(0)
        return [Item(key, {"of": key}, f"row {key}") for key in self.table.needing(after, limit)]

    async def perform(self, job: Job[Any]) -> Any:
        import asyncio

        await asyncio.sleep(0)
        assert job.item is not None
        self.table.finish(job.item)
        return [job.item, job.payload, job.label]


class Erring(Handler[Any, Any]):
    """Its `discover` does what the file `look` says, and names what is right once there is none."""

    def discover(self, after: str | None, limit: int) -> Any:
        ledger = place("ledger")
        write(ledger, "look", os.getpid(), clock.monotonic())
        how = ""
        with suppress(FileNotFoundError):
            how = Path(place("look")).read_text()
        found: dict[str, Callable[[], Any]] = {
            "too many": lambda: [str(n) for n in range(limit + 1)],
            "endless": lambda: (f"{number:09}" for number in count()),
            "leaves": lambda: sys.exit(3),
            "numbers": lambda: [1, 2],
            "nothing at all": lambda: None,
            "no text as key": lambda: [Item(5)],  # pyright: ignore[reportArgumentType]
            "no text as label": lambda: [Item("a", None, 5)],  # pyright: ignore[reportArgumentType]
            "empty key": lambda: [""],
            "long key": lambda: ["x" * 1001],
            "payload": lambda: [Item("a", object())],
            "large payload": lambda: [Item("a", "x" * ((1 << 20) + 1))],
            "after ignored": lambda: [f"{number:03}" for number in range(limit)],
            "exit": lambda: os._exit(7),
            "hang": lambda: clock.sleep(600),
        }
        if how == "raise":
            raise RuntimeError("the table is locked")
        if how:
            return found[how]()
        return ["right"] if not os.path.exists(place("done")) else []

    def perform(self, job: Job[Any]) -> Any:
        Path(place("done")).touch()
        return job.item


class Names(Handler[Any, Any]):
    """Names that are hard to write, from a file; each is done when a file with its number is there."""

    def discover(self, after: str | None, limit: int) -> Sequence[Item]:
        open_names = [name for name in HARD_NAMES if not os.path.exists(place(f"named-{HARD_NAMES.index(name)}"))]
        return [Item(name, {name: [name]}, name[:200]) for name in open_names]

    def perform(self, job: Job[Any]) -> Any:
        assert job.item is not None
        assert (job.payload, job.label) == ({job.item: [job.item]}, job.item[:200])
        sys.stdout.write(f"{job.item}\n")
        job.progress(1, 2, stage=job.item, detail=job.item)
        Path(place(f"named-{HARD_NAMES.index(job.item)}")).touch()
        return {job.item: job.item}


HARD_NAMES = [
    "a/b c/ü 💥.flac", "with\nbreak", "tab\tand 'quotes\"", "%_\\*?[x]", "x" * 1000, "-", "null", "0", "\x01\x1f\x7f",
    "\u2028\u200f", "e\u0301", "\u00e9", "{}", "a|b", " ",
    "caf\udce9.mp3", "caf\udce8.mp3", "caf?.mp3", "caf\\xe9.mp3", "\udcff\n\udc80", "nul\0", "\ud83d\ude00", "😀",
    "\U0010fade", "\U0010fadexe9", "\udce9" * 1000,
]  # fmt: skip


class Together(Handler[Any, Any]):
    """Its rows are in the store's own file; a row and the end of its job are one transaction."""

    def discover(self, after: str | None, limit: int) -> Any:
        db = apsw.Connection(os.environ["STORE"], apsw.SQLITE_OPEN_READONLY)
        db.set_busy_timeout(CONNECT)
        try:
            sql = "SELECT key FROM song WHERE done = 0 AND key > ? ORDER BY key LIMIT ?"
            return [str(key) for (key,) in db.execute(sql, (after or "", limit))]
        finally:
            db.close()

    def perform(self, job: Job[Any]) -> Any:
        write(place("ledger"), "begin", job.item, os.getpid())
        with job.settle({"by": os.getpid()}) as tx:
            tx.execute("UPDATE song SET done = done + 1 WHERE key = ?", (job.item,))
            if os.path.exists(place(f"die-{job.item}")):
                os.unlink(place(f"die-{job.item}"))
                os.kill(os.getpid(), signal.SIGKILL)


class Cancellable(Handler[dict[str, Any], Any]):
    """Waits, and hears of a cancel in the way that the payload says."""

    def perform(self, job: Job[dict[str, Any]]) -> Any:
        payload = job.payload
        write(payload["ledger"], "start", job.id, os.getpid())
        match payload.get("how"):
            case "asks":
                while not job.cancelled:
                    clock.sleep(0.002)
                return "asked, and came to a good end"
            case "swallows":
                try:
                    while True:
                        job.progress()
                        clock.sleep(0.002)
                except Cancelled:
                    return "finished all the same"
            case "raises":
                while not job.cancelled:
                    clock.sleep(0.002)
                raise RuntimeError("could not go on")
            case "says":  # when its node does not listen to the pulse for a moment, and then it ends at once
                until = clock.monotonic() + payload.get("seconds", 0)
                while clock.monotonic() < until:
                    pass
                job.progress(payload["done"], 9, stage="said")
                return None
            case _:
                while not os.path.exists(payload.get("gate", "")):
                    clock.sleep(0.002)
        write(payload["ledger"], "end", job.id, os.getpid())
        return payload.get("result")


class AsyncCancellable(Handler[dict[str, Any], Any]):
    async def perform(self, job: Job[dict[str, Any]]) -> Any:
        import asyncio

        write(job.payload["ledger"], "start", job.id, os.getpid())
        try:
            if job.payload.get("end") != "at once":
                await asyncio.sleep(600)
        finally:
            write(job.payload["ledger"], "left", job.id, os.getpid())
        return os.getpid()


class Limited(Handler[dict[str, Any], Any]):
    """Checks by itself that no more than `most` are at work, and nobody else on its key."""

    def set_up(self) -> None:
        self.locks, self.ledger = Locks(place("locks")), place("ledger")

    def perform(self, job: Job[dict[str, Any]]) -> Any:
        payload = job.payload
        slot = next((n for n in range(payload["most"]) if self.locks.take(n)), None)
        if slot is None:
            write(self.ledger, "exceeded", job.id, os.getpid())
        key = 1000 + number_of(payload["key"])
        with self.locks.alone(key, lambda: write(self.ledger, "overlap", payload["key"], os.getpid())):
            write(self.ledger, "start", job.id, os.getpid())
            until = clock.monotonic() + payload.get("seconds", 0.002)
            while clock.monotonic() < until or not os.path.exists(payload.get("gate", "/")):
                clock.sleep(0.001)
            write(self.ledger, "end", job.id, os.getpid())
        if slot is not None:
            self.locks.let_go(slot)
        return slot
