"""The store thread: it makes every store call of a node, one batch at a time, and never delays the main thread.

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
from chargehand.model.records import CrewRow, GivenUpMark, Holder, Retention
from chargehand.store import Store
from chargehand.stores.turn import pauses_of

PRUNE_EVERY = 60.0
PRUNE_AT_ONCE = 500
RECOVER_AGAIN = 0.5


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The store is open: what people and earlier lives left in it. `fingerprints`: of each crew's code and settings."""

    pauses: tuple[tuple[str, int | None], ...]
    given_up: tuple[GivenUpMark, ...]
    scaled: dict[str, int]
    fingerprints: dict[str, str]


class Recovered(msgspec.Struct, frozen=True):
    """What earlier lives held is back in the queue: these jobs."""

    jobs: tuple[str, ...]


class Recover(msgspec.Struct, frozen=True):
    """Take back what earlier lives held, but for these workers of theirs."""

    spare: tuple[str, ...]


class Failure(msgspec.Struct, frozen=True):
    """A batch was not committed. Everything in it may be tried again."""

    why: str


class Unusable(msgspec.Struct, frozen=True):
    """The store could not be opened at all."""

    why: str


News = Opened | Recovered | Result | Failure | Unusable


class StoreThread(threading.Thread):
    """Owns the node's store. `submit` and `take` are for the main thread; `ready` becomes readable with news."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        holder: Holder,
        crews: Sequence[CrewRow],
        about: dict[str, Any],
        retention: Retention,
        spare: tuple[str, ...],
        fingerprints: Callable[[], dict[str, str]],
    ) -> None:
        super().__init__(name="store", daemon=True)
        self._open, self._holder, self._crews, self._about = open_store, holder, crews, about
        self._retention, self._fingerprints = retention, fingerprints
        self._inbox: SimpleQueue[Batch | Recover | None] = SimpleQueue()
        self._inbox.put(Recover(spare))
        self._outbox: deque[News] = deque()
        self.ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.busy_since: float | None = None
        """Since when the present batch has been under way; the main thread shows it."""
        self._prune_at = clock.monotonic() + PRUNE_EVERY

    def submit(self, batch: Batch) -> None:
        """Have this batch executed; its result will come as news."""
        self.busy_since = clock.monotonic()
        self._inbox.put(batch)

    def recover(self, spare: tuple[str, ...]) -> None:
        """Take back what earlier lives held, now that some of them are gone; what comes of it will come as news."""
        self._inbox.put(Recover(spare))

    def take(self) -> list[News]:
        """All news so far."""
        try:
            os.eventfd_read(self.ready)
        except BlockingIOError:
            return []
        news: list[News] = []
        while self._outbox:
            news.append(self._outbox.popleft())
        return news

    def stop(self) -> None:
        """End the thread after what was submitted."""
        self._inbox.put(None)

    def _tell(self, news: News) -> None:
        self.busy_since = None
        self._outbox.append(news)
        os.eventfd_write(self.ready, 1)

    def run(self) -> None:
        try:
            store = self._open()
            with store.transaction() as tx:
                tx.fleet.register(self._holder, self._crews, self._about)
            self._tell(self._opened(store))
        except Exception as error:
            if not isinstance(error, ChargehandError):
                log.error("the store cannot be opened, for an unforeseen reason", trace=True)
            self._tell(Unusable(str(error) if isinstance(error, ChargehandError) else repr(error)))
            return
        while (todo := self._next(store)) is not None:
            if isinstance(todo, Recover):
                self._recover(store, todo)
                continue
            try:
                self._tell(store.turn(todo, self._holder))
            except StoreError as error:
                self._tell(Failure(str(error)))
            except Exception as error:
                log.error("a store call failed in an unforeseen way", trace=True)
                self._tell(Failure(f"{type(error).__name__}: {error}"))
        store.close()

    def _opened(self, store: Store) -> Opened:
        return Opened(
            pauses=pauses_of(store),
            given_up=tuple(store.fleet.given_up()),
            scaled={crew.name: crew.scaled for crew in store.fleet.crews() if crew.scaled is not None},
            fingerprints=self._fingerprints(),
        )

    def _recover(self, store: Store, todo: Recover) -> None:
        try:
            with store.transaction() as tx:
                recovered = tx.jobs.recover(self._holder, "the node ended while the job was running", todo.spare)
            self._tell(Recovered(tuple(recovered)))
        except Exception as error:
            log.error("what an earlier node held cannot be taken back yet", why=error)
            clock.sleep(RECOVER_AGAIN)
            self._inbox.put(todo)

    def _next(self, store: Store) -> Batch | Recover | None:
        """The next batch; old jobs are pruned, a few at a time, while there is none."""
        while True:
            try:
                return self._inbox.get(timeout=max(0.0, self._prune_at - clock.monotonic()))
            except Empty:
                self._prune(store)

    def _prune(self, store: Store) -> None:
        again = PRUNE_EVERY
        try:
            if store.prune(self._retention, PRUNE_AT_ONCE) == PRUNE_AT_ONCE or store.pruning:
                again = 0.05
        except Exception as error:
            log.warning("finished jobs could not be pruned", why=error)
        self._prune_at = clock.monotonic() + again
