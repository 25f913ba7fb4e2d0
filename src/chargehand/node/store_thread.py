"""The store thread makes every store call of a node, one batch at a time, so that the main thread never waits.

It decides nothing: a Batch from the ledger goes in, a Result or a Failure comes out.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from chargehand import clock, log
from chargehand.errors import ChargehandError, StoreError
from chargehand.model.batch import Batch, Result
from chargehand.model.job import DEFAULT_POLICY, JobPolicy, Settlement
from chargehand.model.records import CrewRow, GivenUpMark, Holder, RestartNote, Retention
from chargehand.processes import proc
from chargehand.store import Store
from chargehand.stores.turn import pauses_of

PRUNE_EVERY = 60.0
PRUNE_AT_ONCE = 500
RECOVER_AGAIN = 0.5
WATCH_EVERY = 1.0
"""Seconds between two checks for writes of other processes while there is no batch: the main thread sleeps on if there
were none."""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The store is open. Holds what people and earlier lives left in it, and the fingerprint of each crew's code."""

    pauses: tuple[tuple[str, int | None], ...]
    given_up: tuple[GivenUpMark, ...]
    restarts: tuple[RestartNote, ...]
    scaled: dict[str, int]
    fingerprints: dict[str, str]


class Recovered(msgspec.Struct, frozen=True):
    """The claims of earlier lives were released. `died`: because the last of them ended without being asked to."""

    settlements: tuple[Settlement, ...]
    died: bool


class Recover(msgspec.Struct, frozen=True):
    """Asks to release the claims of earlier lives, except those of the workers in `spare`."""

    spare: tuple[str, ...]


class Failure(msgspec.Struct, frozen=True):
    """A batch was not committed and may be repeated."""

    why: str


class Unusable(msgspec.Struct, frozen=True):
    """The store could not be opened."""

    why: str


class OthersWrote(msgspec.Struct, frozen=True):
    """Other processes have written to the store, or it cannot be told."""


News = Opened | Recovered | Result | Failure | Unusable | OthersWrote


class StoreThread(threading.Thread):
    """Owns the node's store. The main thread calls `submit` and `take`; `ready` becomes readable with a result."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        holder: Holder,
        crews: Sequence[CrewRow],
        about: dict[str, Any],
        retention: Retention,
        spare: tuple[str, ...],
        earlier_was_asked: bool,
        fingerprints: Callable[[], dict[str, str]],
        waits: Callable[[Any], bool],
        policy: JobPolicy = DEFAULT_POLICY,
    ) -> None:
        super().__init__(name="store", daemon=True)
        self._open, self._holder, self._crews, self._about = open_store, holder, crews, about
        self._retention, self._fingerprints, self._waits = retention, fingerprints, waits
        self._policy = policy
        self._inbox: SimpleQueue[Batch | Recover | None] = SimpleQueue()
        self._spare, self._earlier_was_asked = spare, earlier_was_asked
        self._died: str | None = None
        """The life of the node that ended without having been asked to, if the one before this did."""
        self._outbox: deque[News] = deque()
        self.ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.busy_since: float | None = None
        """When the present batch was submitted; the main thread shows it."""
        self._prune_at = clock.monotonic() + PRUNE_EVERY

    def submit(self, batch: Batch) -> None:
        """Executes this batch; `take` returns its result later."""
        self.busy_since = clock.monotonic()
        self._inbox.put(batch)

    def recover(self, spare: tuple[str, ...]) -> None:
        """Releases the claims of earlier lives, except those of `spare`; `take` returns the result later."""
        self._inbox.put(Recover(spare))

    def take(self) -> list[News]:
        """Returns all results so far."""
        try:
            os.eventfd_read(self.ready)
        except BlockingIOError:
            return []
        news: list[News] = []
        while self._outbox:
            news.append(self._outbox.popleft())
        return news

    def stop(self) -> None:
        """Ends the thread after what was submitted."""
        self._inbox.put(None)

    def _report(self, news: News) -> None:
        self.busy_since = None
        self._tell(news)

    def _tell(self, news: News) -> None:
        self._outbox.append(news)
        os.eventfd_write(self.ready, 1)

    def run(self) -> None:
        try:
            store = self._open()
            self._died = self._find_died(store)
            with store.transaction() as tx:
                tx.fleet.register(self._holder, self._crews, self._about)
            self._report(self._opened(store))
        except Exception as error:
            if not isinstance(error, ChargehandError):
                log.error("the store cannot be opened: unexpected error", trace=True)
            self._report(Unusable(str(error) if isinstance(error, ChargehandError) else repr(error)))
            return
        self._recover(store, Recover(self._spare))
        while (todo := self._next(store)) is not None:
            if isinstance(todo, Recover):
                self._recover(store, todo)
                continue
            try:
                self._report(store.turn(todo, self._holder, waits=self._waits))
            except StoreError as error:
                self._report(Failure(str(error)))
            except Exception as error:
                log.error("a store call failed: unexpected error", trace=True)
                self._report(Failure(f"{type(error).__name__}: {error}"))
        store.close()

    def _opened(self, store: Store) -> Opened:
        return Opened(
            pauses=pauses_of(store),
            given_up=tuple(store.fleet.given_up()),
            restarts=tuple(store.fleet.restarts()),
            scaled={crew.name: crew.scaled for crew in store.fleet.crews() if crew.scaled is not None},
            fingerprints=self._fingerprints(),
        )

    def _find_died(self, store: Store) -> str | None:
        """Returns the last life of the node if it ended without being asked to, other than by the end of the boot."""
        last = store.fleet.last_life()
        if last is None or self._earlier_was_asked or last.boot != self._about.get("boot"):
            return None
        if last.pid is not None and last.start is not None and proc.alive(last.pid, last.start):
            return None  # its lock file was deleted: it did not die, it was replaced
        return last.life

    def _recover(self, store: Store, todo: Recover) -> None:
        try:
            with store.transaction() as tx:
                why = "the node ended while the job was running"
                recovered = tx.jobs.recover(self._holder, why, todo.spare, died=self._died, policy=self._policy)
            self._report(Recovered(tuple(recovered), self._died is not None))
        except Exception as error:
            log.error("the claims of an earlier node could not be released yet", why=error)
            clock.sleep(RECOVER_AGAIN)
            self._inbox.put(todo)

    def _next(self, store: Store) -> Batch | Recover | None:
        """Returns the next batch; while there is none, watches for writes of others, and prunes in small steps."""
        watch_at = clock.monotonic() + WATCH_EVERY
        while True:
            try:
                return self._inbox.get(timeout=max(0.0, min(watch_at, self._prune_at) - clock.monotonic()))
            except Empty:
                now = clock.monotonic()
            if now >= watch_at:
                watch_at = now + WATCH_EVERY
                self._watch(store)
            if now >= self._prune_at:
                self._prune(store)

    def _watch(self, store: Store) -> None:
        try:
            changed = store.changed(again=True)
        except StoreError:
            changed = True  # the main thread polls, and learns why that fails
        if changed:
            self._tell(OthersWrote())

    def _prune(self, store: Store) -> None:
        again = PRUNE_EVERY
        try:
            if store.prune(self._retention, PRUNE_AT_ONCE) == PRUNE_AT_ONCE or store.pruning:
                again = 0.05
        except Exception as error:
            log.warning("finished jobs could not be pruned", why=error)
        self._prune_at = clock.monotonic() + again
