"""The store thread makes every store call of a node, one batch at a time, so that the main thread never waits.

It decides nothing: a Batch from the ledger goes in, a Result or a Failure comes out.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from chargehand import clock, log
from chargehand.errors import ChargehandError, StoreBusy, StoreError
from chargehand.model.batch import NOTHING_LEFT, Batch, Finished, Result
from chargehand.model.failover import Comparison
from chargehand.model.job import DEFAULT_POLICY, JobPolicy, Settlement
from chargehand.model.records import (
    CrewRow,
    GivenUpMark,
    Holder,
    LastLife,
    NodeAbout,
    OtherNodes,
    RestartNote,
    Retention,
)
from chargehand.model.succession import Fate, Succession, is_here, name_taken
from chargehand.node.doze import Doze
from chargehand.processes import proc
from chargehand.store import OnFailed, Store, no_jobs
from chargehand.stores.turn import pauses_of

PRUNE_EVERY = 60.0
PRUNE_AT_ONCE = 500
RECOVER_AGAIN = 0.5
LOOK_AGAIN = 0.2
"""Seconds between two looks at a node that may live and has the name of this one."""
SLOW_ANSWER = 2.0
"""Seconds after which the answer of a server means that it may have been away."""
FOLLOWED, MANY = 0.005, 8
"""Seconds within which another turn follows one that has claimed so many short jobs: it does what that one has left."""
WATCH_EVERY = 1.0
"""Seconds between two checks for writes of other processes while there is no batch: the main thread sleeps on if there
were none. A thread that can `doze` checks once, and again this long after the next write."""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The store is open. Holds what people and earlier lives left in it, and the fingerprint of each crew's code."""

    pauses: tuple[tuple[str, int | None], ...]
    given_up: tuple[GivenUpMark, ...]
    restarts: tuple[RestartNote, ...]
    scaled: dict[str, int]
    fingerprints: dict[str, str]
    others: OtherNodes


class Recovered(msgspec.Struct, frozen=True):
    """The claims of earlier lives were released. `died`: because the last of them ended without being asked to."""

    settlements: tuple[Settlement, ...]
    died: bool


class LostClaims(msgspec.Struct, frozen=True):
    """Other nodes had taken this one for dead. It goes on as a new life, and `held` is what it still holds."""

    held: frozenset[tuple[int, int]]
    """The seq of each job, and the number of its claim."""


class Recover(msgspec.Struct, frozen=True):
    """Asks to release the claims of earlier lives, except those of the workers in `spare`."""

    spare: tuple[str, ...]


class Failure(msgspec.Struct, frozen=True):
    """A batch was not committed and may be repeated."""

    why: str
    code: str = StoreError.code
    """The cause, as in StoreError."""
    beaten: bool = False
    """Whether the node has recorded all the same that it lives."""


class Unusable(msgspec.Struct, frozen=True):
    """The store could not be opened."""

    why: str


class OthersWrote(msgspec.Struct, frozen=True):
    """Other processes have written to the store, or it cannot be told."""


class Look(msgspec.Struct, frozen=True):
    """Asks which of these queues have jobs."""

    queues: tuple[str, ...]


class Looked(msgspec.Struct, frozen=True):
    """Reports the queues that have jobs; all that were asked for, if the store did not answer."""

    queues: tuple[str, ...]
    took: float | None
    """How many seconds it took; None if the main thread has not asked."""


class Unanswered(msgspec.Struct, frozen=True):
    """Reports callers whose jobs are durable, and that could not be answered at once."""

    enqueued: tuple[Any, ...]
    """As in Result."""


News = (
    Opened
    | Recovered
    | LostClaims
    | Comparison
    | Result
    | Finished
    | Failure
    | Unusable
    | OthersWrote
    | Looked
    | Unanswered
)


def claimed_many(result: Result) -> bool:
    """Returns whether so many jobs were claimed that another turn follows at once, if they are short."""
    return sum(len(grant.claims) for grant in result.grants) >= MANY


class StoreThread(threading.Thread):
    """Owns the node's store. The main thread calls `submit` and `take`; `ready` becomes readable with a result."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        holder: Holder,
        crews: Sequence[CrewRow],
        about: NodeAbout,
        retention: Retention,
        spare: tuple[str, ...],
        earlier_was_asked: bool,
        fingerprints: Callable[[], dict[str, str]],
        waits: Callable[[Any], bool],
        policy: JobPolicy = DEFAULT_POLICY,
        answer: Callable[[Result], tuple[Any, ...]] = lambda _: (),
        written: Path | None = None,
        on_failed: OnFailed = no_jobs,
    ) -> None:
        """`answer` answers callers after a commit, and returns what the main thread must answer instead. `written` is a
        file that every writer of the store writes to, if there is one. `on_failed` returns the jobs to enqueue because
        of those that failed with an earlier life of the node."""
        super().__init__(name="store", daemon=True)
        self._open, self._holder, self._crews, self._about = open_store, holder, crews, about
        self._retention, self._fingerprints, self._waits = retention, fingerprints, waits
        self._policy, self._answer, self._on_failed = policy, answer, on_failed
        self.doze = None if written is None else Doze(written)
        self._inbox: SimpleQueue[Batch | Recover | Look | None] = SimpleQueue()
        self._spare, self._earlier_was_asked = spare, earlier_was_asked
        self._died: tuple[str, ...] = ()
        """The life of the node before this one, if it ended without having been asked to."""
        self._outbox: deque[News] = deque()
        self.ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.busy_since: float | None = None
        """When the present batch was submitted; the main thread shows it."""
        self.watch_every = WATCH_EVERY
        """Seconds between two checks for writes of others; set by the main thread."""
        self._finish_at: float | None = None
        """When what the last turn has left is done, unless another turn comes before."""
        self._tell_at = 0.0
        """When the main thread is told again that others have written."""
        self._prune_at = clock.monotonic() + PRUNE_EVERY
        self._stopped = threading.Event()

    def submit(self, batch: Batch) -> None:
        """Executes this batch; `take` returns its result later."""
        self.busy_since = clock.monotonic()
        self._put(batch)

    def _put(self, todo: Batch | Recover | Look | None) -> None:
        self._inbox.put(todo)
        if self.doze is not None and self.doze.asleep:
            self.doze.rouse()

    def recover(self, spare: tuple[str, ...]) -> None:
        """Releases the claims of earlier lives, except those of `spare`; `take` returns the result later."""
        self._put(Recover(spare))

    def look(self, queues: Sequence[str]) -> None:
        """Finds out which of these queues have jobs; `take` returns the result later."""
        self._put(Look(tuple(queues)))

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
        self._stopped.set()
        self._put(None)

    def _report(self, news: News) -> None:
        self.busy_since = None
        self._tell(news)

    def _tell(self, news: News) -> None:
        self._outbox.append(news)
        os.eventfd_write(self.ready, 1)

    def run(self) -> None:
        try:
            store = self._open()
            last = self._take_name(store)
            self._died = self._find_died(last)
            with store.transaction() as tx:
                after = None if last is None else last.life
                tx.fleet.register(self._holder, self._crews, msgspec.structs.asdict(self._about), after=after)
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
            if isinstance(todo, Look):
                self._look(store, todo)
                continue
            news = self._turn(store, todo)
            self._follow(store)
            # The main thread wakes up while this one answers; a caller that wakes up may take this one's core.
            self._report(news)
            if isinstance(news, Result):
                if left := self._answer(news):
                    self._tell(Unanswered(left))
                self._finish_at = clock.monotonic() + (FOLLOWED if claimed_many(news) else 0)
        self._leave(store)

    def _turn(self, store: Store, batch: Batch) -> Result | Failure:
        try:
            return store.turn(batch, self._holder, waits=self._waits, finish=False)
        except StoreBusy as error:
            return Failure(str(error), error.code, beaten=True)
        except StoreError as error:
            return Failure(str(error), error.code)
        except Exception as error:
            log.error("a store call failed: unexpected error", trace=True)
            return Failure(f"{type(error).__name__}: {error}")

    def _finish(self, store: Store) -> None:
        """Does what the last turn has left, while the main thread prepares the next one."""
        self._finish_at = None
        try:
            finished = store.finish()
        except StoreError as error:
            log.warning("flows could not be ended; that is tried again within a minute", why=error)
            return
        except Exception:
            log.error("flows could not be ended: unexpected error", trace=True)
            return
        if finished != NOTHING_LEFT:
            self._tell(finished)

    def _follow(self, store: Store) -> None:
        """Reports what the last turn has found out about this node's claims, before its result: claims that the result
        contains are not among those that were found."""
        if (comparison := store.comparison()) is not None:
            self._tell(comparison)
        if (life := store.new_life()) is not None:
            self._holder = life.holder
            self._tell(LostClaims(life.held))

    def _leave(self, store: Store) -> None:
        try:
            store.leave(self._holder)
        except Exception as error:
            log.warning("the end of this node is not recorded: others wait for its lease", why=error)
        store.close()

    def _take_name(self, store: Store) -> LastLife | None:
        """Returns the earlier life of this node, which is dead; waits until that is certain. Raises StoreError if a
        node of this name lives."""
        succession = Succession(self._about, proc.alive)
        waited = False
        while True:
            before = clock.monotonic()
            last = store.fleet.last_life(self._holder.node)
            now = clock.monotonic()
            if now - before > SLOW_ANSWER:
                succession.forget()
            fate = Fate.DEAD if last is None else succession.judge(last, now)
            if last is None or fate is Fate.DEAD:
                return last
            if fate is Fate.LIVES:
                raise StoreError(name_taken(self._holder.node, last.about))
            if not waited:
                waited = True
                log.warning(
                    "a node of this name may live; if it does not beat within its lease, its name is taken over",
                    node=self._holder.node, machine=last.about.machine, pid=last.about.pid, lease=last.about.lease,
                )  # fmt: skip
            if self._stopped.wait(LOOK_AGAIN):
                raise StoreError("the node was stopped while it waited for its name")

    def _opened(self, store: Store) -> Opened:
        crews = store.fleet.crews(self._holder.node)
        with store.transaction() as tx:
            others = tx.fleet.others(self._holder)
        return Opened(
            pauses=pauses_of(store),
            given_up=tuple(store.fleet.given_up(self._holder.node)),
            restarts=tuple(store.fleet.restarts(self._holder.node)),
            scaled={crew.name: crew.scaled for crew in crews if crew.scaled is not None},
            fingerprints=self._fingerprints(),
            others=others,
        )

    def _find_died(self, last: LastLife | None) -> tuple[str, ...]:
        """Returns the last life of the node if it ended without being asked to.

        If its process was on this machine, the record of its processes tells, and the end of the boot does not count.
        Elsewhere it is gone because its lease is over, and the store tells.
        """
        if last is None or last.about.asked:
            return ()
        if last.beat is not None and not is_here(last.about, self._about):
            return (last.life,)
        if self._earlier_was_asked or last.about.boot != self._about.boot:
            return ()
        if last.about.pid_namespace not in (None, self._about.pid_namespace):
            return ()
        pid, start = last.about.pid, last.about.start
        if pid is not None and start is not None and proc.alive(pid, start):
            return ()  # its lock file was deleted: it did not die, it was replaced
        return (last.life,)

    def _recover(self, store: Store, todo: Recover) -> None:
        try:
            with store.transaction() as tx:
                why = "the node ended while the job was running"
                recovered = tx.jobs.recover(self._holder, why, todo.spare, died=self._died, policy=self._policy)
                if told := self._on_failed(recovered):
                    tx.jobs.enqueue(told)
            self._report(Recovered(tuple(recovered), bool(self._died)))
        except Exception as error:
            log.error("the claims of an earlier node could not be released yet", why=error)
            clock.sleep(RECOVER_AGAIN)
            self._put(todo)

    def _look(self, store: Store, look: Look) -> None:
        began = clock.monotonic()
        try:
            found = tuple(store.look(look.queues))
        except StoreError:
            found = look.queues  # the main thread claims, and learns why that fails
        self._tell(Looked(found, clock.monotonic() - began))

    def _next(self, store: Store) -> Batch | Recover | Look | None:
        """Returns the next batch; while there is none, watches for writes of others, and prunes in small steps."""
        watch_at = clock.monotonic() + self.watch_every
        while True:
            next_at = min(watch_at, self._prune_at, self._finish_at or watch_at)
            try:
                return self._inbox.get(timeout=max(0.0, next_at - clock.monotonic()))
            except Empty:
                now = clock.monotonic()
            if self._finish_at is not None and now >= self._finish_at:
                self._finish(store)
                continue
            if now >= watch_at:
                dozes = self.doze is not None and self.doze.begin()
                if not self._watch(store) and dozes:
                    self._sleep()
                watch_at = clock.monotonic() + self.watch_every
            if now >= self._prune_at:
                self._prune(store)

    def _sleep(self) -> None:
        """Sleeps while there is nothing to do and nobody writes to the store."""
        assert self.doze is not None
        self.doze.asleep = True
        if self._inbox.empty():  # what is put from now on rouses this thread
            self.doze.sleep(self._prune_at - clock.monotonic())
        self.doze.asleep = False

    def _watch(self, store: Store) -> bool:
        """Tells the main thread if others have written. Returns whether they have, or may have."""
        now = clock.monotonic()
        try:
            changed = store.changed(again=True)
            if changed and now < self._tell_at:  # jobs are urgent, the rest is not: to poll, the main thread writes
                queues = store.look({crew.queue for crew in self._crews})
                if queues:
                    self._tell(Looked(tuple(queues), took=None))
                return True
        except StoreError:
            changed = True  # the main thread polls, and learns why that fails
        if changed:
            self._tell_at = now + WATCH_EVERY
            self._tell(OthersWrote())
        return changed

    def _prune(self, store: Store) -> None:
        again = PRUNE_EVERY
        try:
            if store.prune(self._retention, PRUNE_AT_ONCE) == PRUNE_AT_ONCE or store.pruning:
                again = 0.05
        except Exception as error:
            log.warning("finished jobs could not be pruned", why=error)
        self._prune_at = clock.monotonic() + again
