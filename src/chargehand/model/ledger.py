"""The node's account of its claims: which are waiting in its memory, which worker has which, what the store must hear.

Pure: it hands out, takes outcomes back and says what the next transaction is to do; `dispatch` does it. One batch is
in flight at a time; what happens meanwhile goes into the next.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from chargehand.model.batch import Batch, Note, Request, Result, Want
from chargehand.model.job import Claim, Outcome, Returned, Settlement, State, settle

MOST_AHEAD = 128
"""Claimed jobs kept in memory for a crew, at most."""
SECONDS_AHEAD = 0.025
"""How much work the memory should hold: enough to bridge a commit, too little to be unfair."""
ENOUGH_OUTCOMES = 32
LONGEST_WAIT = 0.002
"""An outcome is written after so many seconds, or with so many others, whichever comes first."""
NOTE_AFTER = 0.05
"""Who has a job is written once it has had it this long; most small jobs are done before."""
POLL = 1.0
"""How often the store is asked though nobody hinted."""
CHORE_WAIT = 0.1
"""Seconds for which what is written for readers gives way to the work itself."""


class Held(msgspec.Struct):
    """A claim in a worker's hand."""

    claim: Claim
    since: float
    noted: bool = False


class Bench(msgspec.Struct):
    """One crew as the ledger sees it."""

    queue: str
    idle: deque[str] = msgspec.field(default_factory=deque[str])
    ahead: deque[Claim] = msgspec.field(default_factory=deque[Claim])
    hands: set[str] = msgspec.field(default_factory=set[str])
    """Workers that may be handed something: ready, and neither dismissed nor paused by themselves."""
    hungry: bool = True
    """Whether the store may have something for us: a hint came, or the last claim came back full."""
    due_at: float | None = None
    mean: float | None = None
    done: int = 0
    """Jobs that the crew got out of the way: performed, whatever came of it, or quarantined."""
    owed: bool = False
    """There was work for workers that were asleep: the first that comes asks for it."""
    asleep: int = 0
    """Workers that would be started if there were work for them."""
    paused: bool = False

    def let_go(self, worker: str) -> None:
        """The worker is handed nothing more."""
        self.hands.discard(worker)
        if worker in self.idle:
            self.idle.remove(worker)

    @property
    def stranded(self) -> bool:
        """Whether there is something in memory that nobody can be handed."""
        return bool(self.ahead) and not self.hands

    def room(self) -> int:
        """How many more claims could be used now."""
        if self.paused:
            return 0
        ahead = 0 if self.mean is None else int(len(self.hands) * SECONDS_AHEAD / max(self.mean, 1e-5))
        return max(0, len(self.idle) + min(ahead, MOST_AHEAD) - len(self.ahead))


class Ledger:
    """See the module. Times are monotonic seconds."""

    def __init__(self, crews: Iterable[tuple[str, str]], jitter: Callable[[], float], now: float) -> None:
        self.benches = {crew: Bench(queue) for crew, queue in crews}
        self._jitter = jitter
        self.held: dict[str, Held] = {}
        self._crew_of: dict[str, str] = {}
        self._dismissed: set[str] = set()
        self._settlements: list[Settlement] = []
        self._requests: list[Request] = []
        self._chores: list[Any] = []
        self._chores_since: float | None = None
        self._held_back: frozenset[str] = frozenset()
        """Workers that a person has paused by themselves."""
        self._waiting: dict[str, int] = {}
        self._oldest: float | None = None
        self._poll_at = now
        self.in_flight: Batch | None = None
        self._again_at = now
        self.closed = False

    # workers

    def welcome(self, worker: str, crew: str, now: float) -> Claim | None:
        """The worker is ready: the job it gets at once, if there is one in memory."""
        self._crew_of[worker] = crew
        bench = self.benches[crew]
        if worker not in self._held_back and worker not in self._dismissed:
            bench.hands.add(worker)
        bench.hungry |= bench.owed
        bench.owed = False
        return self._next(worker, now)

    def finished(self, worker: str, outcome: Outcome, now: float, pid: int | None) -> Claim | None:
        """The worker's attempt has ended: the job it gets next, if there is one in memory."""
        held = self.held.pop(worker)
        bench = self.benches[self._crew_of[worker]]
        following = self._next(worker, now)
        took = now - held.since
        bench.mean = took if bench.mean is None else bench.mean + (took - bench.mean) / 8
        bench.done += 1
        self._record(held, outcome, now, worker=worker, pid=pid)
        return following

    def gone(self, worker: str, outcome: Outcome, now: float, pid: int | None) -> Claim | None:
        """The worker is no more (or takes nothing more): what it held has this outcome. Returns what it held."""
        self._dismissed.discard(worker)
        crew = self._crew_of.pop(worker, None)
        if crew is None:
            return None
        bench = self.benches[crew]
        bench.let_go(worker)
        if bench.stranded:
            self._give_back(bench, now)
        held = self.held.pop(worker, None)
        if held is None:
            return None
        if self._record(held, outcome, now, worker=worker, pid=pid) is State.FAILED:
            bench.done += 1
        return held.claim

    def _next(self, worker: str, now: float) -> Claim | None:
        bench = self.benches[self._crew_of[worker]]
        if worker in self._dismissed:
            return None
        if worker in self._held_back:
            return None
        if self.closed or not bench.ahead:
            bench.idle.append(worker)
            return None
        claim = bench.ahead.popleft()
        self.held[worker] = Held(claim, now)
        return claim

    def dismiss(self, worker: str) -> None:
        """The worker is stopping: it is handed nothing more; what it has it may still finish."""
        self._dismissed.add(worker)
        crew = self._crew_of.get(worker)
        if crew is not None:
            self.benches[crew].let_go(worker)

    def pause(self, scopes: Collection[str], now: float) -> list[tuple[str, Claim]]:
        """These are paused now and nobody else (`*`, crews, workers). Who, being no longer so, is handed what."""
        handed: list[tuple[str, Claim]] = []
        held_back = frozenset(scope for scope in scopes if scope.startswith("worker:"))
        freed, self._held_back = self._held_back - held_back, held_back
        for crew, bench in self.benches.items():
            paused = "*" in scopes or crew in scopes
            if paused and not bench.paused:
                self._give_back(bench, now)
            bench.hungry |= bench.paused and not paused
            bench.paused = paused
            for worker in bench.hands & held_back:
                bench.let_go(worker)
        for worker in sorted(freed):
            if worker not in self._crew_of or worker in self._dismissed:
                self.benches[worker.split(":")[1]].hungry = True  # it may be asleep, and wanted now
                continue
            self.benches[self._crew_of[worker]].hands.add(worker)
            claim = None if worker in self.held else self._next(worker, now)
            if claim is not None:
                handed.append((worker, claim))
        return handed

    def _record(self, held: Held, outcome: Outcome, now: float, **where: Any) -> State | None:
        settlement = settle(
            held.claim, outcome, jitter=self._jitter(), duration_ms=int((now - held.since) * 1000), **where
        )
        if settlement is None:
            return None
        self._pend(settlement, now)
        return settlement.state

    def _pend(self, settlement: Settlement, now: float) -> None:
        self._settlements.append(settlement)
        if self._oldest is None:
            self._oldest = now
        if settlement.state is State.QUEUED:
            self._stir(settlement.queue, now + settlement.delay_ms / 1000, now)
        for job in settlement.follow:
            self._stir(job.queue, now + job.delay_ms / 1000, now)

    # requests and hints

    def enqueue(self, request: Request, now: float) -> None:
        """Jobs to be written with the next batch."""
        self._requests.append(request)
        for job in request.jobs:
            self._stir(job.queue, now + job.delay_ms / 1000, now)

    def chore(self, chore: Any, now: float) -> None:
        """Something else to be written, soon."""
        self._chores.append(chore)
        if self._chores_since is None:
            self._chores_since = now

    def hint(self, queue: str | None = None) -> None:
        """Somebody says that there is work in this queue (or that any may have some)."""
        for bench in self.benches.values():
            if queue is None or bench.queue == queue:
                bench.hungry = True

    def _stir(self, queue: str, at: float, now: float) -> None:
        for bench in self.benches.values():
            if bench.queue != queue:
                continue
            if at <= now:
                bench.hungry = True
            else:
                bench.due_at = at if bench.due_at is None else min(bench.due_at, at)

    def close(self, now: float) -> None:
        """Take nothing more: what waits in memory goes back to the queue as it came."""
        self.closed = True
        for bench in self.benches.values():
            self._give_back(bench, now)

    def _give_back(self, bench: Bench, now: float) -> None:
        """What the crew has in memory goes back to the queue as it came."""
        while bench.ahead:
            settlement = settle(bench.ahead.popleft(), Returned())
            assert settlement is not None
            self._pend(settlement, now)

    @property
    def settled(self) -> bool:
        """Whether nothing is held and nothing waits to be written."""
        return not (self.held or self._settlements or self._requests or self._chores or self.in_flight)

    # batches

    def batch_due(self, now: float) -> float | None:
        """When the next batch should go; None while one is in flight."""
        if self.in_flight is not None:
            return None
        return max(self._again_at, self._batch_wanted(now))

    def _batch_wanted(self, now: float) -> float:
        if self._requests or len(self._settlements) >= ENOUGH_OUTCOMES:
            return now
        due = now + POLL
        if self._chores_since is not None:
            due = min(due, self._chores_since + (CHORE_WAIT if self._busy else 0))
        if self._oldest is not None:
            # Nobody else is going to join this transaction if nobody is working.
            due = min(due, self._oldest + LONGEST_WAIT if self.held else now)
        for bench in self.benches.values():
            if bench.stranded:
                return now
            if self.closed or not (bench.asleep if not bench.idle else bench.room()) or bench.paused:
                continue
            if bench.hungry:
                return now
            due = min(due, self._poll_at, bench.due_at or self._poll_at)
        unnoted = min((held.since for held in self.held.values() if not held.noted), default=None)
        return due if unnoted is None else min(due, unnoted + NOTE_AFTER)

    @property
    def _busy(self) -> bool:
        """Whether somebody waits for the work in the next batch."""
        return bool(self._settlements or self._requests)

    def next_batch(self, now: float) -> Batch:
        """What the store should do now. It is in flight until `confirm` or `failed`."""
        poll = now >= self._poll_at
        if poll:
            self._poll_at = now + POLL
        hinted = False
        wants: list[Want] = []
        for crew, bench in self.benches.items():
            if bench.stranded:
                self._give_back(bench, now)
            if bench.due_at is not None and bench.due_at <= now:
                bench.due_at, bench.hungry = None, True
            room = 0 if self.closed else bench.room()
            asleep = 0 if self.closed or bench.paused else bench.asleep
            if (room or asleep) and (bench.hungry or poll):
                hinted |= bench.hungry
                bench.hungry = False  # until this claim comes back full, or somebody hints meanwhile
                wants.append(Want(crew, bench.queue, room, asleep))
        notes: list[Note] = []
        for worker, held in self.held.items():
            if not held.noted and now - held.since >= NOTE_AFTER / 2:
                held.noted = True
                age = int((now - held.since) * 1000)
                notes.append(Note(seq=held.claim.seq, fence=held.claim.fence, worker=worker, age_ms=age))
        chores: tuple[Any, ...] = ()
        if self._chores_since is not None and (not self._busy or now - self._chores_since >= CHORE_WAIT):
            chores, self._chores, self._chores_since = tuple(self._chores), [], None
        self.in_flight = Batch(
            settlements=tuple(self._settlements),
            notes=tuple(notes),
            requests=tuple(self._requests),
            chores=chores,
            wants=tuple(wants),
            poll=bool(wants) and not hinted,
        )
        self._settlements, self._requests, self._oldest = [], [], None
        return self.in_flight

    def confirm(self, result: Result, now: float) -> list[tuple[str, Claim]]:
        """The batch is committed: who is to be handed what."""
        batch, self.in_flight = self.in_flight, None
        assert batch is not None
        handed: list[tuple[str, Claim]] = []
        wanted = {want.crew: want.limit for want in batch.wants}
        if result.stirred:
            for crew, bench in self.benches.items():
                bench.hungry |= crew not in wanted
        for grant in result.grants:
            bench = self.benches[grant.crew]
            if grant.waiting:
                self._waiting[grant.crew] = grant.waiting
                bench.owed = True
            if grant.claims and len(grant.claims) >= wanted[grant.crew]:
                bench.hungry = True
            elif grant.next_in_ms is not None:
                due = now + grant.next_in_ms / 1000
                bench.due_at = due if bench.due_at is None else min(bench.due_at, due)
            bench.ahead.extend(grant.claims)
            if self.closed or not bench.hands or bench.paused:
                self._give_back(bench, now)
            while bench.ahead and bench.idle:
                worker = bench.idle.popleft()
                claim = bench.ahead.popleft()
                self.held[worker] = Held(claim, now)
                handed.append((worker, claim))
        return handed

    def failed(self, now: float, pause: float) -> tuple[Request, ...]:
        """The batch was not committed: outcomes are kept for another try after the pause. Returns the requests."""
        batch, self.in_flight = self.in_flight, None
        assert batch is not None
        self._settlements[:0] = batch.settlements
        self._chores[:0] = batch.chores
        if batch.chores and self._chores_since is None:
            self._chores_since = now
        if batch.settlements and self._oldest is None:
            self._oldest = now
        for note in batch.notes:
            held = self.held.get(note.worker)
            if held is not None and held.claim.seq == note.seq:
                held.noted = False
        self.hint()
        self._again_at = now + pause
        return batch.requests

    def waiting(self) -> dict[str, int]:
        """Crews that have work for workers that are asleep, as the store said since this was last asked."""
        found, self._waiting = self._waiting, {}
        return found
