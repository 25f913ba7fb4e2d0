"""The node's account of its claims: which are waiting in its memory, which worker has which, what the store must hear.

Pure: it hands out, takes outcomes back and says what the next transaction is to do; `dispatch` does it. One batch is
in flight at a time; what happens meanwhile goes into the next.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping

import msgspec

from chargehand.model.batch import Batch, Note, Request, Result, Want
from chargehand.model.chores import Chore
from chargehand.model.held import Held, Pool
from chargehand.model.job import Claim, Interrupted, Outcome, Returned, Settlement, State, Stopped, settle
from chargehand.model.search import Look, Search
from chargehand.model.tally import Tally

ENOUGH_OUTCOMES = 128
LONGEST_WAIT, AWAITED_WAIT = 0.010, 0.002
"""An outcome is written after so many seconds, sooner if somebody waits for it, or with so many others, whichever
comes first. Every transaction takes the interpreter from the main thread some dozen times."""
NOTE_AFTER = 0.05
"""Who has a job is written once it has had it this long; most small jobs are done before."""
POLL = 1.0
"""How often the store is asked though nobody hinted; earlier, after half the time, with a batch that goes anyway."""
BLIND_AFTER = 2
"""Looks for work that fail in a row, after which that is more than a slip."""
CHORE_WAIT = 0.1
"""Seconds for which what is written for readers gives way to the work itself."""


Todo = Claim | list[Claim] | Look
"""What a worker can be handed; several only in crews that take several at once."""


class Ledger:
    """See the module. Times are monotonic seconds."""

    def __init__(
        self,
        crews: Iterable[tuple[str, str]],
        jitter: Callable[[], float],
        now: float,
        discovering: Collection[str] = (),
        batching: Mapping[str, tuple[int, float]] | None = None,
        limited: Collection[str] = (),
        awaited: Container[str] = (),
    ) -> None:
        """`batching`: crews that take several jobs at once: how many, and how many seconds they wait for them.

        `limited`: queues in which every end may make room for another job. `awaited`: jobs whose end somebody awaits.
        """
        self._awaited = awaited
        self._limited = frozenset(limited)
        self.searches = {crew: Search(crew, look_at=now) for crew in discovering}
        self.pools = {crew: Pool(queue) for crew, queue in crews}
        for crew, (most, wait) in (batching or {}).items():
            self.pools[crew].batch, self.pools[crew].batch_wait = most, wait
        self._gathering = [pool for pool in self.pools.values() if pool.batch > 1]
        self._jitter = jitter
        self.tally = Tally({pool.queue for pool in self.pools.values()})
        """What is counted for those who watch."""
        self.held: dict[str, Held] = {}
        self._crew_of: dict[str, str] = {}
        self._dismissed: set[str] = set()
        self._settlements: list[Settlement] = []
        self._requests: list[Request] = []
        self._chores: list[Chore] = []
        self._chores_since: float | None = None
        self._paused_workers: frozenset[str] = frozenset()
        """Workers that a person has paused by themselves."""
        self._waiting: dict[str, int] = {}
        self._write_at: float | None = None
        """When the outcomes so far are to be written."""
        self._poll_at = now
        self._unsure = False
        """A look at what others have written failed, and the store takes it for done."""
        self.in_flight: Batch | None = None
        self._again_at = now
        self.closed = False

    # workers

    def welcome(self, worker: str, crew: str, now: float) -> Todo | None:
        """The worker is ready: the job it gets at once, if there is one in memory."""
        self._crew_of[worker] = crew
        pool = self.pools[crew]
        if worker not in self._paused_workers and worker not in self._dismissed:
            pool.available.add(worker)
        pool.check_store |= pool.owed
        pool.owed = False
        return self._next(worker, now)

    def finished(
        self, worker: str, outcome: Outcome, now: float, pid: int | None, job: str | None = None
    ) -> Todo | None:
        """The worker's attempt (of several: at this job) has ended: what it gets next, if that was all it had."""
        held = self.held[worker]
        pool = self.pools[self._crew_of[worker]]
        if held.others:
            claim, following = held.take(job), None
        else:
            del self.held[worker]
            claim, following = held.claim, self._next(worker, now)
        pool.record_duration(now - held.since)
        pool.done += 1
        self._record(claim, held.since, outcome, now, worker=worker, pid=pid)
        return following

    def progress(self, worker: str, progress: str, now: float, job: str | None = None) -> None:
        """How far the worker is with its job, or with this one of several."""
        held = self.held.get(worker)
        if held is not None and (job is None or held.find(job)):
            held.set_progress(job or held.claim.id, progress)
            held.progress_at = max(held.progress_at, now)

    def cancelled(self, jobs: Collection[str], now: float) -> list[tuple[str, str]]:
        """These running jobs are cancelled: what waits in memory ends here; who has which of the others in hand."""
        for pool in self.pools.values():
            for claim in [claim for claim in pool.prefetched if claim.id in jobs]:
                pool.prefetched.remove(claim)
                settlement = settle(claim, Stopped())
                assert settlement is not None
                self._add_settlement(msgspec.structs.replace(settlement, outcome=None), now)  # nobody has attempted it
        return [(worker, job) for worker, held in self.held.items() for job in held.claims if job in jobs]

    def gone(
        self, worker: str, outcome: Outcome, now: float, pid: int | None, cancelled: Collection[str] | None = None
    ) -> list[Claim]:
        """The worker is no more (or takes nothing more): what it held has this outcome. Returns what it held.

        `cancelled`: it was replaced because of these jobs of a batch, which have the outcome; the others have done
        nothing, and are interrupted.
        """
        self._dismissed.discard(worker)
        crew = self._crew_of.pop(worker, None)
        if crew is None:
            return []
        pool = self.pools[crew]
        search = self.searches.get(crew)
        if search is not None and search.asked == worker:
            search.failed(f"{worker} ended while it was looking", now)
        pool.remove(worker)
        if pool.stranded:
            self._give_back(pool, now)
        held = self.held.pop(worker, None)
        if held is None:
            return []
        for job, claim in held.claims.items():
            meant = cancelled is None or job in cancelled
            its = outcome if meant else Interrupted(f"{worker} was replaced, for another job of its batch")
            if self._record(claim, held.since, its, now, worker=worker, pid=pid) is State.FAILED:
                pool.done += 1
        return list(held.claims.values())

    def _next(self, worker: str, now: float) -> Todo | None:
        pool = self.pools[self._crew_of[worker]]
        if worker in self._dismissed or worker in self._paused_workers:
            return None
        search = self.searches.get(self._crew_of[worker])
        if search is not None and self._should_look(search, pool, now):
            return search.begin(worker, now)
        todo = None if self.closed or not pool.prefetched else self._take(worker, pool, now)
        if todo is None:
            pool.idle.append(worker)
        return todo

    def _take(self, worker: str, pool: Pool, now: float) -> Claim | list[Claim] | None:
        """Of what waits in memory, what this worker has in hand from now on."""
        if pool.batch == 1:
            claim = pool.prefetched.popleft()
            self.held[worker] = Held(claim, now)
            return claim
        claims = pool.gather(now)
        if not claims:
            return None
        self.held[worker] = Held(claims[0], now, {claim.id: claim for claim in claims[1:]})
        return claims

    def gathered(self, now: float) -> list[tuple[str, Todo]]:
        """Who, being idle, is handed what has waited for others long enough."""
        return [each for pool in self._gathering for each in self._assign(pool, now)]

    def _assign(self, pool: Pool, now: float) -> list[tuple[str, Todo]]:
        """Who, being idle, is handed what."""
        handed: list[tuple[str, Todo]] = []
        while pool.prefetched and pool.idle:
            todo = self._take(pool.idle[0], pool, now)
            if todo is None:
                break
            handed.append((pool.idle.popleft(), todo))
        return handed

    def gathered_due(self) -> float | None:
        """When that is."""
        if not self._gathering:
            return None
        due = [pool.gather_until for pool in self._gathering if pool.idle and pool.prefetched]
        return min((moment for moment in due if moment is not None), default=None)

    def _should_look(self, search: Search, pool: Pool, now: float) -> bool:
        due = search.due()
        return due is not None and due <= now and not self.closed and not pool.paused

    def looks(self, now: float) -> list[tuple[str, Look]]:
        """Who, being idle, should look for work now."""
        found: list[tuple[str, Look]] = []
        for crew, search in self.searches.items():
            pool = self.pools[crew]
            if pool.idle and self._should_look(search, pool, now):
                worker = pool.idle.popleft()
                found.append((worker, search.begin(worker, now)))
        return found

    def looks_due(self) -> float | None:
        """When an idle worker should look; None while none may."""
        if not self.searches or self.closed:
            return None
        pools = ((self.pools[crew], search) for crew, search in self.searches.items())
        due = [search.due() for pool, search in pools if pool.idle and not pool.paused]
        return min((moment for moment in due if moment is not None), default=None)

    @property
    def blind(self) -> dict[str, str]:
        """Crews whose looks fail, again and again, each with why the last one did."""
        failing = (search for search in self.searches.values() if search.failures >= BLIND_AFTER)
        return {search.crew: search.error or "" for search in failing}

    def looked(self, worker: str, now: float) -> Todo | None:
        """A worker has looked: what it gets next."""
        return self._next(worker, now)

    def dismiss(self, worker: str) -> None:
        """The worker is stopping: it is handed nothing more; what it has it may still finish."""
        self._dismissed.add(worker)
        crew = self._crew_of.get(worker)
        if crew is not None:
            self.pools[crew].remove(worker)

    def pause(self, scopes: Collection[str], now: float) -> list[tuple[str, Todo]]:
        """These are paused now and nobody else (`*`, crews, workers). Who, being no longer so, is handed what."""
        handed: list[tuple[str, Todo]] = []
        paused_workers = frozenset(scope for scope in scopes if scope.startswith("worker:"))
        freed, self._paused_workers = self._paused_workers - paused_workers, paused_workers
        for crew, pool in self.pools.items():
            paused = "*" in scopes or crew in scopes
            if paused and not pool.paused:
                self._give_back(pool, now)
            if pool.paused and not paused:
                pool.check_store = True
                self._search_soon(crew, now)
            pool.paused = paused
            for worker in pool.available & paused_workers:
                pool.remove(worker)
        for worker in sorted(freed):
            if worker not in self._crew_of or worker in self._dismissed:
                crew = worker.split(":")[1]
                self.pools[crew].check_store = True  # it may be asleep, and wanted now
                self._search_soon(crew, now)
                continue
            self.pools[self._crew_of[worker]].available.add(worker)
            search = self.searches.get(self._crew_of[worker])
            busy = worker in self.held or (search is not None and search.asked == worker)
            claim = None if busy else self._next(worker, now)
            if claim is not None:
                handed.append((worker, claim))
        return handed

    def _search_soon(self, crew: str, now: float) -> None:
        if crew in self.searches:
            self.searches[crew].rouse(now)

    def _record(
        self,
        claim: Claim,
        since: float,
        outcome: Outcome,
        now: float,
        worker: str | None = None,
        pid: int | None = None,
    ) -> State | None:
        duration = int((now - since) * 1000)
        self.tally.ended(claim.queue, outcome, now - since)
        settlement = settle(claim, outcome, jitter=self._jitter(), worker=worker, pid=pid, duration_ms=duration)
        if settlement is None:
            return None
        self._add_settlement(settlement, now)
        return settlement.state

    def _add_settlement(self, settlement: Settlement, now: float) -> None:
        self._settlements.append(settlement)
        if self._write_at is None:
            self._write_at = now + LONGEST_WAIT
            self.tally.pending(now)
        if settlement.id in self._awaited:
            self.hurry(now)
        if settlement.state is State.QUEUED:
            self._expect_jobs(settlement.queue, now + settlement.delay_ms / 1000, now)
        elif settlement.queue in self._limited:
            self._expect_jobs(settlement.queue, now, now)  # its slot is free for another
        for job in settlement.follow:
            self._expect_jobs(job.queue, now + job.delay_ms / 1000, now)

    # requests and hints

    def enqueue(self, request: Request, now: float) -> None:
        """Jobs to be written with the next batch."""
        self._requests.append(request)
        for job in request.jobs:
            self._expect_jobs(job.queue, now + job.delay_ms / 1000, now)

    def chore(self, chore: Chore, now: float, *, urgent: bool = False) -> None:
        """Something else to be written: soon, or with the next batch."""
        self._chores.append(chore)
        if urgent or self._chores_since is None:
            self._chores_since = now - CHORE_WAIT if urgent else now

    def hint(self, queue: str | None = None) -> None:
        """Somebody says that there is work in this queue (or that any may have some)."""
        for pool in self.pools.values():
            if queue is None or pool.queue == queue:
                pool.check_store = True

    def hurry(self, now: float) -> None:
        """Somebody has come to wait for a job, which may have ended a moment ago: what is not written yet hurries."""
        if self._write_at is not None:
            self._write_at = min(self._write_at, now + AWAITED_WAIT)

    def _expect_jobs(self, queue: str, at: float, now: float) -> None:
        for pool in self.pools.values():
            if pool.queue != queue:
                continue
            if at <= now:
                pool.check_store = True
            else:
                pool.due_at = at if pool.due_at is None else min(pool.due_at, at)

    def close(self, now: float) -> None:
        """Take nothing more: what waits in memory goes back to the queue as it came."""
        self.closed = True
        for pool in self.pools.values():
            self._give_back(pool, now)

    def _give_back(self, pool: Pool, now: float, keep: int = 0) -> None:
        """What the crew has in memory, but for the first so many, goes back to the queue as it came."""
        returned = list(pool.prefetched)[keep:]
        for claim in returned:
            pool.prefetched.pop()
            settlement = settle(claim, Returned())
            assert settlement is not None
            self._add_settlement(settlement, now)

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
        due = self._poll_at if not self.closed else now + POLL
        if self._chores_since is not None:
            due = min(due, self._chores_since + (CHORE_WAIT if self._busy else 0))
        if self._write_at is not None:
            # Nobody else is going to join this transaction if nobody is working.
            due = min(due, self._write_at if self.held else now)
        for pool in self.pools.values():
            if pool.stranded:
                return now
            if self.closed or not (pool.asleep if not pool.idle else pool.room()) or pool.paused:
                continue
            if pool.check_store:
                return now
            due = min(due, self._poll_at, pool.due_at or self._poll_at)
        for held in self.held.values():
            if not held.noted:
                moment = held.since + NOTE_AFTER
            elif held.progress is not None:
                moment = held.progress_at
            else:
                continue
            if moment < due:
                due = moment
        return due

    @property
    def _busy(self) -> bool:
        """Whether somebody waits for the work in the next batch."""
        return bool(self._settlements or self._requests)

    def next_batch(self, now: float) -> Batch:
        """What the store should do now. It is in flight until `confirm` or `failed`."""
        poll = now >= self._poll_at - POLL / 2
        if poll:
            self._poll_at = now + POLL
        notes = self._notes(now)
        hinted = False
        wants: list[Want] = []
        for crew, pool in self.pools.items():
            if pool.stranded:
                self._give_back(pool, now)
            if pool.due_at is not None and pool.due_at <= now:
                pool.due_at, pool.check_store = None, True
            room = 0 if self.closed else pool.room()
            asleep = 0 if self.closed or pool.paused else pool.asleep
            if (room or asleep) and (pool.check_store or poll):
                hinted |= pool.check_store
                pool.check_store = False  # until this claim comes back full, or somebody hints meanwhile
                wants.append(Want(crew, pool.queue, room, asleep))
        chores: tuple[Chore, ...] = ()
        if self._chores_since is not None and (not self._busy or now - self._chores_since >= CHORE_WAIT):
            chores, self._chores, self._chores_since = tuple(self._chores), [], None
        self.in_flight = Batch(
            settlements=tuple(self._settlements),
            notes=tuple(notes),
            requests=tuple(self._requests),
            chores=chores,
            wants=tuple(wants),
            poll=poll and not self.closed,
            unsure=poll and self._unsure,
            hinted=hinted,
        )
        self._settlements, self._requests, self._write_at = [], [], None
        self.tally.sent(now)
        return self.in_flight

    def _notes(self, now: float) -> list[Note]:
        """Who has had what for a while. What was claimed for a crew whose jobs seemed shorter goes back: it would wait
        in memory, behind a long job and before whatever is more urgent."""
        notes: list[Note] = []
        for worker, held in self.held.items():
            new = not held.noted and now - held.since >= NOTE_AFTER / 2
            if new or (held.noted and held.progress is not None and held.progress_at <= now):
                notes += held.notes(worker, now)
            if new:
                pool = self.pools[self._crew_of[worker]]
                pool.raise_mean(now - held.since)
                self._give_back(pool, now, keep=pool.useful())
        return notes

    def confirm(self, result: Result, now: float) -> list[tuple[str, Todo]]:
        """The batch is committed: who is to be handed what."""
        batch, self.in_flight = self.in_flight, None
        assert batch is not None
        self._unsure &= not batch.poll
        self.tally.committed(now, settled=bool(batch.settlements), claimed=bool(result.grants))
        handed: list[tuple[str, Todo]] = []
        wanted = {want.crew: want.limit for want in batch.wants}
        if result.stirred:
            for crew, pool in self.pools.items():
                pool.check_store |= crew not in wanted
        for grant in result.grants:
            pool = self.pools[grant.crew]
            self.tally.claimed(pool.queue, grant.claims)
            if grant.crew in self.searches:
                new = sum(claim.fence == 1 and claim.item is not None for claim in grant.claims)
                short = len(grant.claims) < wanted[grant.crew] and not grant.limited
                self.searches[grant.crew].taken(new, short=short)
            if grant.waiting:
                self._waiting[grant.crew] = grant.waiting
                pool.owed = True
            if grant.claims and len(grant.claims) >= wanted[grant.crew]:
                pool.check_store = True
            elif grant.next_in_ms is not None:
                due = now + grant.next_in_ms / 1000
                pool.due_at = due if pool.due_at is None else min(pool.due_at, due)
            if not pool.prefetched:
                pool.gather_until = None  # what waited is gone, and these have not waited
            pool.prefetched.extend(grant.claims)
            if self.closed or not pool.available or pool.paused:
                self._give_back(pool, now)
            handed += self._assign(pool, now)
        for crew, search in self.searches.items():
            pool, due = self.pools[crew], search.due_asleep()
            asleep = pool.asleep and not pool.available and not pool.paused and not self.closed
            if asleep and due is not None and due <= now:
                self._waiting.setdefault(crew, 1)  # nobody is awake to look, and there may be work
        return handed

    def failed(self, now: float, pause: float) -> tuple[Request, ...]:
        """The batch was not committed: outcomes are kept for another try after the pause. Returns the requests."""
        batch, self.in_flight = self.in_flight, None
        assert batch is not None
        self._unsure |= batch.poll
        self.tally.failed()
        self._settlements[:0] = batch.settlements
        self._chores[:0] = batch.chores
        if batch.chores and self._chores_since is None:
            self._chores_since = now
        if batch.settlements and self._write_at is None:
            self._write_at = now
        lost = {note.seq: note for note in batch.notes}
        for held in self.held.values() if lost else ():
            held.not_written(lost)
        self.hint()
        self._again_at = now + pause
        return batch.requests

    def waiting(self) -> dict[str, int]:
        """Crews that have work for workers that are asleep, as the store said since this was last asked."""
        found, self._waiting = self._waiting, {}
        return found
