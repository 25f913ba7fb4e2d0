"""The node's account of its claims: which are prefetched, which worker holds which, and what the store must write.

Pure: it assigns jobs, records outcomes, and says what the next transaction contains; the store thread executes it. One
batch is in flight at a time; what happens meanwhile goes into the next one.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from itertools import islice

import msgspec

from chargehand.model import hands
from chargehand.model.batch import NOTHING, Batch, Note, Request, Result, Want
from chargehand.model.chores import CancelJobs, Chore, KeepGivenUp, KeepReport, QueueFound
from chargehand.model.concurrent import SlotHand, SlotPool, must_be_alone
from chargehand.model.failover import Comparison, released
from chargehand.model.held import Held, Pool
from chargehand.model.job import (
    DEFAULT_POLICY,
    Backoff,
    Claim,
    Done,
    Interrupted,
    JobPolicy,
    NewJob,
    Outcome,
    Raised,
    Returned,
    Settled,
    Settlement,
    State,
    Stopped,
    expired,
    settle,
)
from chargehand.model.search import DEFAULT_DISCOVERY, DiscoveryPolicy, Look, Search
from chargehand.model.tally import Tally
from chargehand.model.trust import Distrust, Trust
from chargehand.model.wakeups import Debounce, Wakeup, overflows

ENOUGH_OUTCOMES = 128
LONGEST_WAIT, AWAITED_WAIT = 0.010, 0.002
"""An outcome is written after this many seconds (AWAITED_WAIT if a caller waits for it), or with ENOUGH_OUTCOMES
others.

Every transaction takes the GIL from the main thread about a dozen times.
"""
NOTE_AFTER = 0.05
"""The worker of a job is written after this many seconds; most small jobs are done before."""
POLL = 1.0
"""The interval of polling the store without a hint; from half of it on, a batch that is sent anyway polls as well."""
UNTOLD = 4.0
"""Seconds after the interval at which a batch is sent only to poll; until then, `others_wrote` reports writes."""
BLIND_AFTER = 2
"""The number of consecutive failures of `discover` after which the crew is reported."""
AWAY_MS = 1000
"""How long a job waits that must not go to the only worker which is free."""
POSTPONE = 0.25
"""Seconds after which the store tries again to write what waits for a transaction of others."""
CHORE_WAIT = 0.1
"""How many seconds writes for readers are delayed in favour of the work itself."""

SUCCESSES = (Done, Settled)
"""Outcomes that show that the worker's process can do jobs; a tuple, because it is checked for every job."""


class Hand(msgspec.Struct, frozen=True):
    """Several short jobs for a worker, which performs them one after the other."""

    first: Claim | None
    """The job that it begins at once; None if it is performing one."""
    ahead: tuple[Claim, ...] = ()
    """Jobs that it begins later, and that can be called back until then."""
    permit: bool = False
    """Whether it needs a permit for the first job, too: it may still have jobs that were called back, and would take
    the permit of a later job for theirs."""

    def with_more(self, more: "Hand | None") -> "Hand":
        """Returns this hand with the jobs of another one behind."""
        return self if more is None else Hand(self.first, (*self.ahead, *more.ahead), self.permit)


Begun = Claim | list[Claim] | Look
"""What a worker begins at once: a job, a batch of jobs, or a call of `discover`."""
Todo = Begun | Hand
"""What a worker can receive: a job, a batch of jobs, short jobs, or a request to call `discover`."""


class Ledger:
    """Assigns claimed jobs to workers and collects what the store must write. Times are monotonic seconds."""

    def __init__(
        self,
        crews: Iterable[tuple[str, str]],
        jitter: Callable[[], float],
        now: float,
        discovering: Collection[str] = (),
        batching: Mapping[str, tuple[int, float]] | None = None,
        limited: Collection[str] = (),
        awaited: Container[str] = (),
        policy: JobPolicy = DEFAULT_POLICY,
        discovery: DiscoveryPolicy = DEFAULT_DISCOVERY,
        rated: Collection[str] = (),
        concurrency: Mapping[str, int] | None = None,
        backoffs: Mapping[str, Backoff] | None = None,
        on_failed: Callable[[Settlement, str | None], NewJob | None] | None = None,
    ) -> None:
        """`batching` maps crews that take batches to their size and the seconds to wait for a full one; `concurrency`
        maps crews whose workers perform several jobs at the same time to their number.

        `limited` are the queues with limits, where the end of a job may admit another. `rated` are those with rates,
        where a claim counts as a start, so that each must be one. `awaited` are the jobs that a caller waits for.
        `backoffs` are the delays between attempts of the queues that have their own. `on_failed` returns the job that
        is enqueued because another one has failed for good, from its settlement and its label.
        """
        self._on_failed = on_failed
        self._backoffs = dict(backoffs or {})
        self._awaited = awaited
        self._freeing = frozenset(limited)
        self._limited = frozenset(limited) | frozenset(rated)
        """The queues with limits or rates."""
        self._policy = policy
        self.searches = {crew: Search(crew, discovery, look_at=now) for crew in discovering}
        many = {crew: most for crew, most in (concurrency or {}).items() if most > 1}
        self.pools = {
            crew: SlotPool(queue, concurrency=many[crew]) if crew in many else Pool(queue) for crew, queue in crews
        }
        for crew, (most, wait) in (batching or {}).items():
            self.pools[crew].batch, self.pools[crew].batch_wait = most, wait
        for pool in self.pools.values():
            pool.one_by_one = pool.queue in self._limited
            if pool.queue in rated:
                pool.prefetches, pool.batch_wait = False, 0.0
        self._gathering = [pool for pool in self.pools.values() if pool.batch > 1]
        self._slots = [pool for pool in self.pools.values() if isinstance(pool, SlotPool)]
        self._jitter = jitter
        self.tally = Tally({pool.queue for pool in self.pools.values()})
        """The counters for metrics."""
        self.held: dict[str, Held] = {}
        self.filling = True
        """Whether workers are handed more than one job: not while hands are called back."""
        self._stale: set[str] = set()
        """Workers that may still have jobs which were called back."""
        self._behind: set[str] = set()
        """Workers that receive nothing until they have read what was sent to them."""
        self._left: dict[str, int] = {}
        """How many jobs a worker may still end before it is replaced, if that is limited."""
        self._crew_of: dict[str, str] = {}
        self._trust = {crew: Trust(policy.suspect_after) for crew in self.pools}
        self.distrusted: list[Distrust] = []
        """Worker processes that are to be replaced; `take_distrusted` empties the list."""
        self._dismissed: set[str] = set()
        self._settlements: list[Settlement] = []
        self._postponed: Batch = NOTHING
        """What the store could not write yet because a transaction of others holds a key; for a later batch."""
        self._postponed_until: float | None = None
        self._requests: list[Request] = []
        self._chores: list[Chore] = []
        self._chores_since: float | None = None
        self._paused_workers: frozenset[str] = frozenset()
        """Workers that are paused individually."""
        self._scopes: Collection[str] = ()
        self._cut_off: frozenset[str] = frozenset()
        """Crews that do no work, because the node is cut off from the store."""
        self._cut_short: set[tuple[int, int]] = set()
        """Claims whose jobs were cancelled for that reason, or because other nodes have taken them, by seq and number:
        they are interrupted."""
        self._suspects: set[str] = set()
        """Claimed jobs that are suspects: when one ends, another may be claimed."""
        self._waiting: dict[str, int] = {}
        self._write_at: float | None = None
        """When the collected outcomes are to be written."""
        self._poll_at = now - UNTOLD
        self.elsewhere: frozenset[str] = frozenset()
        """The queues that other nodes serve, too."""
        self._debounce = Debounce()
        self._overflow = False
        """Whether other nodes are to be notified of jobs that this one has added."""
        self._unsure = False
        """Whether a poll failed that the store believes to have succeeded."""
        self.in_flight: Batch | None = None
        self._again_at = now
        self.closed = False

    # workers

    def welcome(self, worker: str, crew: str, now: float, process: str = "", jobs: int | None = None) -> Todo | None:
        """Registers a worker that is ready, and returns what it receives at once, if anything.

        `process` is never used for another process. `jobs`: the number of jobs after which the worker is replaced.
        """
        if jobs is not None:
            self._left[worker] = jobs
        self._crew_of[worker] = crew
        self._trust[crew].ready(worker, process or worker)
        pool = self.pools[crew]
        if isinstance(pool, SlotPool):
            pool.welcome(worker)
        if worker not in self._paused_workers and worker not in self._dismissed:
            pool.available.add(worker)
        pool.check_store |= pool.owed
        pool.owed = False
        return self._next(worker, now)

    def finished(
        self,
        worker: str,
        outcome: Outcome,
        now: float,
        pid: int | None,
        job: str | None = None,
        seconds: float | None = None,
    ) -> Todo | None:
        """Records the outcome of the worker's job (or of one `job` of a batch); returns what it receives next, if
        anything.

        `seconds`: how long the job took, if the worker has measured it.
        """
        held, crew = self.held[worker], self._crew_of[worker]
        pool = self.pools[crew]
        if isinstance(held, SlotHand):
            return self._finished_one(worker, held, outcome, now, pid, job or held.claim.id)
        took = _bounded(seconds, held, now)
        kept = None if held.kept is None else held.take_kept(job or held.claim.id)
        if held.others:
            claim, last = held.take(job), False
        else:
            claim, last = held.claim, not held.ahead
            self._through(worker, held, pool, 1, now)
        credible, failed_in = True, None
        if isinstance(outcome, SUCCESSES):
            self._trust[crew].succeeded(worker)
        elif isinstance(outcome, Raised):
            credible, failed_in = self._judge(worker, held, claim)
        following = self._next(worker, now) if last else self._more(worker, held, pool, now)
        pool.record_duration(took)
        pool.done += 1
        if isinstance(outcome, Done):  # the most frequent case, without what only failures need
            self._done(claim, outcome, took, now, worker, pid)
        else:
            self._record(
                claim, took, outcome, now, worker=worker, pid=pid, credible=credible, failed_in=failed_in, kept=kept
            )
        return following

    def _finished_one(
        self, worker: str, held: SlotHand, outcome: Outcome, now: float, pid: int | None, job: str
    ) -> None:
        """Records the outcome of one of the jobs that a worker performs at the same time; `gathered` returns what it
        receives next."""
        crew = self._crew_of[worker]
        pool, since = self.pools[crew], held.since_of(job)
        assert isinstance(pool, SlotPool)
        last = not held.others
        kept = held.take_kept(job)
        claim = held.take(job)
        if last:
            del self.held[worker]
        pool.ended(worker, now)
        pool.record_duration(now - since)
        pool.done += 1
        credible, failed_in = True, None
        if isinstance(outcome, SUCCESSES):
            self._trust[crew].succeeded(worker)
        elif isinstance(outcome, Raised):
            credible, failed_in = self._judge(worker, held, claim)
        self._record(
            claim, now - since, outcome, now, worker=worker, pid=pid, credible=credible, failed_in=failed_in, kept=kept
        )

    def finished_all(
        self, worker: str, ends: Sequence[tuple[Done, float | None]], now: float, pid: int | None
    ) -> Todo | None:
        """Records that the worker's first jobs have ended well, in this order, each with the seconds that it took;
        returns what the worker receives next, if anything."""
        held, crew = self.held[worker], self._crew_of[worker]
        pool = self.pools[crew]
        claims = [held.claim, *islice(held.ahead, len(ends) - 1)]
        durations = [_bounded(seconds, held, now) for _, seconds in ends]
        last = len(held.ahead) < len(ends)
        self._through(worker, held, pool, len(ends), now)
        self._trust[crew].succeeded(worker)
        following = self._next(worker, now) if last else self._more(worker, held, pool, now)
        for claim, (outcome, _), took in zip(claims, ends, durations, strict=True):
            pool.record_duration(took)
            self._done(claim, outcome, took, now, worker, pid)
        pool.done += len(ends)
        return following

    def _through(self, worker: str, held: Held, pool: Pool, count: int, now: float) -> None:
        """Records that the worker is through with so many of its jobs: it performs the next one, or holds none."""
        pool.busy.pop(worker, None)
        if held.clears:
            self._stale.discard(worker)
            held.clears = False
        if worker in self._left:
            self._left[worker] -= count
        if len(held.ahead) < count:
            del self.held[worker]
            return
        for _ in range(count):
            held.begin_next(now)
            self.tally.started(pool.queue, held.claim)
        if worker in pool.available:
            pool.busy[worker] = now

    def _done(self, claim: Claim, outcome: Done, took: float, now: float, worker: str | None, pid: int | None) -> None:
        """Settles a claim whose job has ended well."""
        self.tally.ended(claim.queue, outcome, took)
        settlement = settle(claim, outcome, worker=worker, pid=pid, duration_ms=int(took * 1000))
        assert settlement is not None
        self._add_settlement(settlement, now)

    def _judge(self, worker: str, held: Held, claim: Claim) -> tuple[bool, str | None]:
        """Records that a job failed in the worker's process. Returns whether the failure is credible, and where the job
        failed."""
        crew = self._crew_of[worker]
        trust = self._trust[crew]
        trial = trust.judge(worker, claim)
        if not trial.jobs_own:
            trust.failed(worker, held.first or claim.id)
        judged = worker not in self._dismissed if isinstance(held, SlotHand) else worker not in self.held
        distrust = trust.suspect(worker) if judged else None
        last = claim.last_attempt and not claim.extra_attempt and claim.max_attempts > 1
        if distrust is None and last and not trial.credible and self.pools[crew].available <= {worker}:
            distrust = trust.probe(worker, f"job {claim.id} failed {claim.failures + 1} times, each time in it")
        self._replace(distrust)
        return trial.credible, trial.failed_in

    def _replace(self, distrust: Distrust | None) -> None:
        """Gives no more jobs to a worker whose process is to be replaced."""
        if distrust is not None:
            self.distrusted.append(distrust)
            self.dismiss(distrust.worker)

    def take_distrusted(self) -> list[Distrust]:
        """Returns the worker processes that are to be replaced, since the last call."""
        found, self.distrusted = self.distrusted, []
        return found

    def broke(self, worker: str) -> None:
        """Records that a worker reported its process as broken."""
        if worker in self._crew_of:
            self._trust[self._crew_of[worker]].broke(worker)

    def progress(self, worker: str, progress: str, now: float, job: str | None = None) -> None:
        """Records the progress of the worker's job, or of this job of a batch."""
        held = self.held.get(worker)
        if held is not None and (job is None or held.find(job)):
            held.set_progress(job or held.claim.id, progress)
            held.progress_at = max(held.progress_at, now)

    def keep(self, worker: str, job: str, claim: int, state: str, now: float) -> None:
        """Records the checkpoint of a job, if the worker performs it under this claim."""
        held = self.held.get(worker)
        found = held and held.find(job)
        if held is not None and found is not None and found.number == claim:
            held.set_kept(job, state)
            held.progress_at = max(held.progress_at, now)

    def cancelled(self, jobs: Collection[str], now: float) -> list[tuple[str, str]]:
        """Cancels running jobs: settles prefetched ones, and returns the worker and id of those that workers hold."""
        for pool in self.pools.values():
            for claim in [claim for claim in pool.prefetched if claim.id in jobs]:
                pool.prefetched.remove(claim)
                settlement = settle(claim, Stopped())
                assert settlement is not None
                self._add_settlement(msgspec.structs.replace(settlement, outcome=None), now)  # there was no attempt
        return [(worker, job) for worker, held in self.held.items() for job in held.claims if job in jobs]

    def cut_off(self, crews: Collection[str], now: float) -> list[tuple[str, str]]:
        """Stops the work of these crews, because the store cannot be reached. Returns the worker and id of the jobs to
        cancel; they are interrupted, not cancelled for good."""
        self._cut_off = frozenset(crews)
        self.pause(self._scopes, now)
        running = [
            (worker, claim)
            for worker, held in self.held.items()
            if self._crew_of[worker] in crews
            for claim in held.claims.values()
        ]
        return self._cut(running)

    def reconnected(self, now: float) -> None:
        """Lets crews that were cut off work again."""
        self._cut_off = frozenset()
        self.pause(self._scopes, now)

    def keep_only(self, held: Collection[tuple[int, int]]) -> list[tuple[str, str]]:
        """Forgets prefetched claims that are not among these, by seq and number. Returns the worker and id of running
        jobs that are not, to cancel them; they are interrupted, in case the store holds their claims after all."""
        for pool in self.pools.values():
            for claim in [claim for claim in pool.prefetched if (claim.seq, claim.number) not in held]:
                pool.prefetched.remove(claim)
        taken = [
            (worker, claim)
            for worker, each in self.held.items()
            for claim in each.claims.values()
            if (claim.seq, claim.number) not in held
        ]
        return self._cut(taken)

    def _cut(self, running: Sequence[tuple[str, Claim]]) -> list[tuple[str, str]]:
        """Notes that these jobs are cancelled through no fault of their own. Returns the worker and id of each."""
        known = {(claim.seq, claim.number) for held in self.held.values() for claim in held.claims.values()}
        self._cut_short = self._cut_short & known | {(claim.seq, claim.number) for _, claim in running}
        return [(worker, claim.id) for worker, claim in running]

    def compare(self, found: Comparison, now: float) -> tuple[list[tuple[str, str]], int, int]:
        """Adjusts to what the server of the store has: repeats outcomes that it has lost, and queues jobs again whose
        claims nobody here has. Returns the worker and id of jobs to cancel, whose claims are lost; how many outcomes
        were repeated; how many jobs were queued again."""
        known = self._claims()
        repeat = [end for end in found.repeat if (end.seq, end.claim) not in known]
        known |= {(end.seq, end.claim) for end in repeat}
        strays = [claim for claim in found.claims if claim.key not in known]
        for settlement in (*repeat, *map(released, strays)):
            self._add_settlement(settlement, now)
        self.hint()
        running = self.keep_only({claim.key for claim in found.claims})
        # Without a failover, a worker that has settled its job itself may still be about to say so.
        return running if found.replaced else [], len(repeat), len(strays)

    def _claims(self) -> set[tuple[int, int]]:
        """Returns all claims that this node has or is about to end, by seq and number."""
        has = [claim for pool in self.pools.values() for claim in pool.prefetched]
        has += [claim for held in self.held.values() for claim in (*held.claims.values(), *held.ahead)]
        ends = [*self._settlements, *self._postponed.settlements]
        if self.in_flight is not None:
            ends += self.in_flight.settlements
        return {(claim.seq, claim.number) for claim in has} | {(end.seq, end.claim) for end in ends}

    def gone(
        self, worker: str, outcome: Outcome, now: float, pid: int | None, cancelled: Collection[str] | None = None
    ) -> list[Claim]:
        """Unregisters a worker that has exited, settles the jobs it held with this outcome, and returns their claims.

        `cancelled`: the worker was replaced because of these jobs of a batch; only they get the outcome, and the others
        are interrupted.
        """
        self._dismissed.discard(worker)
        crew = self._crew_of.pop(worker, None)
        if crew is None:
            return []
        pool = self.pools[crew]
        self._trust[crew].gone(worker)
        search = self.searches.get(crew)
        if search is not None and search.asked == worker:
            search.failed(f"{worker} ended during discover", now)
        pool.remove(worker)
        if isinstance(pool, SlotPool):
            pool.forget(worker)
        self._left.pop(worker, None)
        self._stale.discard(worker)
        self._behind.discard(worker)
        held = self.held.pop(worker, None)
        if held is None:
            return []
        for claim in held.ahead:  # it performs one after the other: it has not begun these, whoever took their permits
            self._return(claim, now)
        for job, claim in held.claims.items():
            meant = cancelled is None or job in cancelled
            its = outcome if meant else Interrupted(f"{worker} was replaced because of another job that it held")
            took, kept = now - held.since_of(job), held.take_kept(job)
            if self._record(claim, took, its, now, worker=worker, pid=pid, kept=kept) is State.FAILED:
                pool.done += 1
        return list(held.claims.values())

    def _next(self, worker: str, now: float) -> Todo | None:
        """Returns what this worker receives now; None, and the worker becomes idle, if there is nothing."""
        crew = self._crew_of[worker]
        pool = self.pools[crew]
        if worker in self._dismissed or worker in self._paused_workers or worker in self._behind:
            return None
        if isinstance(pool, SlotPool):
            pool.offer(worker)
            return None
        search = self.searches.get(crew)
        if search is not None and self._should_look(search, pool, now):
            return search.begin(worker, now)
        todo = None if self.closed or not pool.prefetched else self._take(worker, pool, now, early=True)
        if todo is None:
            self._rest(worker, pool, now)
            return None
        more = self._more(worker, self.held[worker], pool, now)
        return todo if more is None else _joined(todo, more)

    def _rest(self, worker: str, pool: Pool, now: float) -> None:
        """Makes a worker that receives nothing idle."""
        if worker not in self._dismissed:
            pool.idle.append(worker)
            pool.idle_since = now

    def _more(self, worker: str, held: Held, pool: Pool, now: float) -> Hand | None:
        """Returns the jobs that a worker which holds one is handed in addition; None if there are none."""
        if not pool.prefetched or hands.most(pool, self._policy, now) == 1:  # the most frequent cases, checked first
            return None
        if not self.filling or self.closed or held.others is not None or worker not in pool.available or pool.paused:
            return None
        others = self._hands_of(pool)
        count = hands.room(pool, held, others, self._policy, self._left.get(worker), now)
        if not count:
            return None
        ahead = hands.choose(pool, others, count)
        held.ahead.extend(ahead)
        return Hand(None, tuple(ahead)) if ahead else None

    def _sent_ahead(self, pool: Pool) -> bool:
        """Whether workers of a pool have jobs that they may not have begun."""
        return any(held.ahead for held in self._hands_of(pool))

    def _hands_of(self, pool: Pool) -> list[Held]:
        """Returns what the workers of a pool hold."""
        return [held for worker, held in self.held.items() if worker in pool.available]

    def _take(self, worker: str, pool: Pool, now: float, *, early: bool = False) -> Claim | list[Claim] | Hand | None:
        """Assigns prefetched claims to this worker and returns them; None while a batch waits for more jobs, or if all
        must go to other processes.

        `early`: the claims were held ahead.
        """
        while pool.prefetched[0].failed_in is not None and self._needs_another(worker, pool, pool.prefetched[0]):
            self._return(pool.prefetched.popleft(), now, AWAY_MS)
            if not pool.prefetched or worker in self._dismissed:
                return None
        if pool.batch == 1:
            claim = pool.prefetched.popleft()
            stale = worker in self._stale
            self.held[worker] = Held(claim, now, early=early, received=now, permitted=stale, clears=stale)
            pool.busy[worker] = now
            self.tally.started(pool.queue, claim)
            return Hand(claim, permit=True) if stale else claim
        claims = pool.gather(now)
        if not claims:
            return None
        pool.busy[worker] = now
        others = {claim.id: claim for claim in claims[1:]}
        self.held[worker] = Held(claims[0], now, others, first=claims[0].id, early=True)
        for claim in claims:
            self.tally.started(pool.queue, claim)
        return claims

    def _needs_another(self, worker: str, pool: Pool, claim: Claim) -> bool:
        """Whether this job, which failed only in the worker's process so far, waits for another process.

        If the crew has no other worker, its process is replaced, unless that was tried.
        """
        trust = self._trust[self._crew_of[worker]]
        if not claim.extra_attempt or not trust.failed_in_this(worker, claim):
            return False
        if pool.available - {worker}:
            return True
        distrust = trust.probe(worker, f"job {claim.id} failed {claim.failures} times, each time in it")
        self._replace(distrust)
        return distrust is not None

    def gathered(self, now: float) -> list[tuple[str, Todo]]:
        """Returns the batches to send to idle workers, because they have waited long enough for further jobs, and the
        jobs for workers that perform several at the same time and have ended some."""
        handed = [each for pool in self._gathering for each in self._assign(pool, now)]
        for pool in self._slots:
            pool.tidy(now)
            handed += self._fill_slots(pool, now)
        return handed

    def _fill_slots(self, pool: SlotPool, now: float) -> list[tuple[str, Todo]]:
        """Returns the jobs to send to workers that perform several at the same time."""
        handed: dict[str, list[Claim]] = {}
        while pool.prefetched:
            claim = pool.prefetched[0]
            takers = pool.takers(claim)
            if not takers and not must_be_alone(claim):
                break
            pool.prefetched.popleft()
            if not takers:
                delay = pool.postpone(claim, now)
                self._return(claim, now, int(delay * 1000))
                pool.due_at = now + delay if pool.due_at is None else min(pool.due_at, now + delay)
                continue
            worker = takers[0]
            if claim.failed_in is not None:
                trust = self._trust[self._crew_of[worker]]
                worker = next((each for each in takers if not trust.failed_here(each, claim)), worker)
                if self._needs_another(worker, pool, claim):
                    self._return(claim, now, AWAY_MS)
                    continue
            held = self.held.get(worker)
            if isinstance(held, SlotHand):
                held.add(claim, now)
            else:
                self.held[worker] = SlotHand.of(claim, now)
            pool.began(worker, claim)
            self.tally.started(pool.queue, claim)
            handed.setdefault(worker, []).append(claim)
        return list(handed.items())

    def block(self, worker: str, blocked: bool) -> None:
        """Gives no jobs to a worker whose event loop is blocked, until it runs again."""
        crew = self._crew_of.get(worker)
        pool = None if crew is None else self.pools[crew]
        if isinstance(pool, SlotPool) and (worker in pool.blocked) is not blocked:
            pool.block(worker, blocked)

    def _assign(self, pool: Pool, now: float) -> list[tuple[str, Todo]]:
        """Returns the jobs to send to each idle worker."""
        if isinstance(pool, SlotPool):
            return self._fill_slots(pool, now)
        handed: list[tuple[str, Todo]] = []
        while pool.prefetched and pool.idle:
            worker = self._choose(pool)
            todo = self._take(worker, pool, now)
            if todo is not None:
                pool.idle.remove(worker)
                handed.append((worker, todo))
            elif worker not in self._dismissed:
                break
        return self._fill(pool, handed, now) if pool.prefetched else handed

    def _fill(self, pool: Pool, handed: list[tuple[str, Todo]], now: float) -> list[tuple[str, Todo]]:
        """Adds more short jobs to what workers are handed, and to what others hold."""
        new = dict(handed)
        for worker in [*new, *(worker for worker in pool.busy if worker not in new)]:
            held = self.held.get(worker)
            more = None if held is None else self._more(worker, held, pool, now)
            if more is not None:
                new[worker] = _joined(new.get(worker), more)
        return list(new.items())

    # hands

    def hands(self, crews: Collection[str] | None = None) -> list[str]:
        """Returns the workers (of these crews, None: of all) that have jobs which they may not have begun."""
        return [
            worker
            for worker, held in self.held.items()
            if held.unsure and (crews is None or self._crew_of.get(worker) in crews)
        ]

    def hands_with(self, jobs: Collection[str]) -> list[str]:
        """Returns the workers that have these jobs and may not have begun them."""
        return [worker for worker, held in self.held.items() if any(claim.id in jobs for claim in held.ahead)]

    def overtaken(self, result: Result) -> list[str]:
        """Returns the workers whose jobs are called back before this result is confirmed: others are more urgent."""
        most = {grant.crew: grant.claims[0].priority for grant in result.grants if grant.claims}
        return [
            worker for worker, held in self.held.items()
            if held.ahead and held.ahead[-1].priority < most.get(self._crew_of[worker], held.ahead[-1].priority)
        ]  # fmt: skip

    def recalled(self, worker: str, count: int, now: float, *, behind: bool = False) -> bool:
        """Records that the last `count` jobs of a worker were called back: it has not begun them, and will not.

        `behind`: the worker has not read all that was sent to it. If it has begun nothing, it receives nothing until
        it has: a process that is stopped would be handed the same jobs again and again. Returns whether the worker
        holds nothing now, because it had begun none.
        """
        held = self.held.get(worker)
        crew = self._crew_of.get(worker)
        if held is None or crew is None:
            return False
        pool = self.pools[crew]
        back = [held.ahead.pop() for _ in range(min(count, len(held.ahead)))]
        emptied = held.permitted and count > len(back)
        held.permitted = False
        if count:
            self._stale.add(worker)
            held.clears = False
        if emptied:
            back.append(held.claim)
            del self.held[worker]
            pool.busy.pop(worker, None)
        if self.closed or pool.paused:
            for claim in reversed(back):
                self._return(claim, now)
        else:
            pool.prefetched.extendleft(back)
        if emptied and behind:
            self._behind.add(worker)
        elif emptied and worker in pool.available:
            self._rest(worker, pool, now)
        return emptied

    def has_read(self, worker: str, now: float) -> Todo | None:
        """Records that a worker has read all that was sent to it; returns what it receives, if it waited for that."""
        if worker not in self._behind:
            return None
        self._behind.discard(worker)
        return self._next(worker, now)

    def recalls_due(self) -> float | None:
        """Returns when jobs that workers have not begun are to be called back; None if there are none."""
        due = (hands.recall_at(self.pools[self._crew_of[worker]], self.held[worker]) for worker in self.hands())
        return min((moment for moment in due if moment is not None), default=None)

    def recalls(self, now: float) -> list[str]:
        """Returns the workers whose jobs that they have not begun are to be called back now."""
        found: list[str] = []
        for worker in self.hands():
            due = hands.recall_at(self.pools[self._crew_of[worker]], self.held[worker])
            if due is not None and due <= now:
                found.append(worker)
        return found

    def spread(self, now: float) -> list[tuple[str, Todo]]:
        """Returns what idle workers receive of jobs that were called back from others."""
        return [each for pool in self.pools.values() if pool.prefetched for each in self._assign(pool, now)]

    def speaks(self, worker: str, now: float) -> None:
        """Records that a worker has printed something: its crew is handed one job at a time for a while."""
        self.pools[self._crew_of[worker]].alone_until = now + hands.ALONE

    def _choose(self, pool: Pool) -> str:
        """Returns the idle worker that gets the next job: one in which it has not failed, if there is one."""
        claim = pool.prefetched[0]
        if claim.failed_in is None:
            return pool.idle[0]
        trust = self._trust[self._crew_of[pool.idle[0]]]
        return next((worker for worker in pool.idle if not trust.failed_here(worker, claim)), pool.idle[0])

    def gathered_due(self, now: float) -> float | None:
        """Returns when `gathered` is to be called next; None if nothing waits."""
        if not self._gathering and not self._slots:
            return None
        due = [pool.gather_until for pool in self._gathering if pool.idle and pool.prefetched]
        due += [now if pool.can_fill else pool.line_at(now) for pool in self._slots]
        return min((moment for moment in due if moment is not None), default=None)

    def _should_look(self, search: Search, pool: Pool, now: float) -> bool:
        """Whether a worker should call `discover` now."""
        due = search.due()
        return due is not None and due <= now and not self.closed and not pool.paused

    def looks(self, now: float) -> list[tuple[str, Look]]:
        """Returns the idle workers that should call `discover` now."""
        found: list[tuple[str, Look]] = []
        for crew, search in self.searches.items():
            pool = self.pools[crew]
            if pool.idle and self._should_look(search, pool, now):
                worker = pool.idle.popleft()
                if isinstance(pool, SlotPool):  # it goes on with its jobs, and may receive others
                    pool.idle.append(worker)
                    pool.began(worker)
                found.append((worker, search.begin(worker, now)))
        return found

    def looks_due(self) -> float | None:
        """Returns when an idle worker should call `discover`; None if none may."""
        if not self.searches or self.closed:
            return None
        pools = ((self.pools[crew], search) for crew, search in self.searches.items())
        due = [search.due() for pool, search in pools if pool.idle and not pool.paused]
        return min((moment for moment in due if moment is not None), default=None)

    def leading(
        self, staffed: Collection[str], shared: Collection[str], now: float
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the crews for which this node is ready to call `discover`, and those for which it is not.

        `staffed` are the crews with a worker that works or will work, and `shared` the queues that other nodes serve,
        too. For those a node needs a free worker to begin, and stops if none has been free for a while, or if
        `discover` fails here repeatedly.
        """
        ready: list[str] = []
        for crew, search in self.searches.items():
            pool = self.pools[crew]
            if pool.queue in shared and search.leaves(now):
                continue
            goes_on = pool.queue not in shared or (search.led and not search.is_stuck(now))
            if crew in staffed and not pool.paused and not self.closed and (pool.idle or pool.asleep or goes_on):
                ready.append(crew)
        return tuple(ready), tuple(crew for crew in self.searches if crew not in ready)

    def lead(self, crews: Collection[str], now: float) -> None:
        """Records for which crews this node calls `discover`; other nodes do it for the others."""
        for crew, search in self.searches.items():
            search.lead(crew in crews, now)

    @property
    def blind(self) -> dict[str, str]:
        """Crews whose `discover` fails repeatedly, each with the last error."""
        failing = (search for search in self.searches.values() if search.failures >= BLIND_AFTER)
        return {search.crew: search.error or "" for search in failing}

    def looked(self, worker: str, now: float) -> Todo | None:
        """Returns what a worker receives after a call of `discover`."""
        pool = self.pools[self._crew_of[worker]]
        if isinstance(pool, SlotPool):
            pool.ended(worker, now)
        return self._next(worker, now)

    def dismiss(self, worker: str) -> None:
        """Stops giving jobs to a worker that is stopping; it may finish those it holds."""
        self._dismissed.add(worker)
        crew = self._crew_of.get(worker)
        if crew is not None:
            self.pools[crew].remove(worker)

    def pause(self, scopes: Collection[str], now: float) -> list[tuple[str, Todo]]:
        """Sets the paused scopes (`*`, crews, workers), and returns what workers that are no longer paused receive."""
        self._scopes = tuple(scopes)
        handed: list[tuple[str, Todo]] = []
        paused_workers = frozenset(scope for scope in scopes if scope.startswith("worker:"))
        freed, self._paused_workers = self._paused_workers - paused_workers, paused_workers
        for crew, pool in self.pools.items():
            paused = "*" in scopes or crew in scopes or crew in self._cut_off
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
                self.pools[crew].check_store = True  # the worker may be asleep
                self._search_soon(crew, now)
                continue
            self.pools[self._crew_of[worker]].available.add(worker)
            search = self.searches.get(self._crew_of[worker])
            busy = worker in self.held or (search is not None and search.asked == worker)
            busy = busy and not isinstance(self.pools[self._crew_of[worker]], SlotPool)
            claim = None if busy else self._next(worker, now)
            if claim is not None:
                handed.append((worker, claim))
        return handed

    def _search_soon(self, crew: str, now: float) -> None:
        """Makes a sleeping crew call `discover` soon."""
        if crew in self.searches:
            self.searches[crew].rouse(now)

    def _record(
        self,
        claim: Claim,
        took: float,
        outcome: Outcome,
        now: float,
        worker: str | None = None,
        pid: int | None = None,
        credible: bool = True,
        failed_in: str | None = None,
        kept: str | None = None,
    ) -> State | None:
        """Settles a claim with this outcome, and returns the job's new state; None if there is nothing to write."""
        if isinstance(outcome, Stopped) and (claim.seq, claim.number) in self._cut_short:
            outcome = Interrupted("the node was cut off from the store")
        self.tally.ended(claim.queue, outcome, took)
        settlement = settle(
            claim, outcome, jitter=self._jitter(), worker=worker, pid=pid, duration_ms=int(took * 1000),
            credible=credible, failed_in=failed_in, policy=self._policy, kept=kept,
            backoff=self._backoffs.get(claim.queue),
        )  # fmt: skip
        if settlement is None:
            return None
        if settlement.state is State.FAILED and self._on_failed is not None:
            told = self._on_failed(settlement, claim.label)
            if told is not None:
                settlement = msgspec.structs.replace(settlement, follow=(told,))
        self._add_settlement(settlement, now)
        return settlement.state

    def _add_settlement(self, settlement: Settlement, now: float) -> None:
        """Adds a settlement to the next batch, and notes when queues may have new jobs because of it."""
        self._settlements.append(settlement)
        if self._write_at is None:
            self._write_at = now + LONGEST_WAIT
            self.tally.pending(now)
        if settlement.id in self._awaited:
            self.hurry(now)
        if settlement.id in self._suspects:
            self._suspects.discard(settlement.id)
            self.hint()
        self._expect_from(settlement, now)

    def _expect_from(self, settlement: Settlement, now: float) -> None:
        """Notes when queues may have new jobs because of a settlement that the next batch contains."""
        if settlement.state is State.QUEUED:
            if settlement.outcome is None:
                self._returned(settlement.queue)
            else:
                self._expect_jobs(settlement.queue, now + settlement.delay_ms / 1000, now)
        elif settlement.queue in self._freeing:
            self._expect_jobs(settlement.queue, now, now)  # another job may take its slot
        for job in settlement.follow:
            self._expect_jobs(job.queue, now + job.delay_ms / 1000, now)

    # requests and hints

    def enqueue(self, request: Request, now: float) -> None:
        """Adds jobs to the next batch."""
        self._requests.append(request)
        for job in request.jobs:
            self._expect_jobs(job.queue, now + job.delay_ms / 1000, now)

    def chore(self, chore: Chore, now: float, *, urgent: bool = False) -> None:
        """Adds another write: to the next batch, or after CHORE_WAIT if it is not urgent."""
        self._chores.append(chore)
        if urgent or self._chores_since is None:
            self._chores_since = now - CHORE_WAIT if urgent else now

    def hint(self, queue: str | None = None) -> None:
        """Records a hint that this queue (None: any queue) has jobs."""
        for pool in self.pools.values():
            if queue is None or pool.queue == queue:
                pool.check_store = pool.stirred = True

    def woken(self, queues: Iterable[str], now: float) -> None:
        """Records that jobs of these queues became ready because others ended."""
        for queue in queues:
            self.hint(queue)
            if queue in self.elsewhere and not any(p.queue == queue and p.room(now) for p in self.pools.values()):
                self._overflow = True  # no worker is free here for a job that others made ready

    def others_wrote(self, now: float) -> None:
        """Records that other processes have written to the store: a batch is due, and it polls."""
        self._poll_at = now - UNTOLD

    def notified(self, now: float) -> list[str]:
        """Records that other processes may have added jobs to any queue. Returns the queues to look at: those for which
        a worker is free, or claims are prefetched. The others are looked at when a worker is free."""
        found: list[str] = []
        for pool in self.pools.values():
            if self.closed or pool.paused:
                continue
            room = pool.room(now) if pool.idle else pool.asleep
            if pool.prefetched or (room and not pool.check_store):
                found.append(pool.queue)
            pool.check_store |= not room
        return found

    def hurry(self, now: float) -> None:
        """Writes the collected outcomes sooner, because a caller has started to wait for a job."""
        if self._write_at is not None:
            self._write_at = min(self._write_at, now + AWAITED_WAIT)

    def _expect_jobs(self, queue: str, at: float, now: float) -> None:
        """Notes that the queue has jobs from this time on."""
        for pool in self.pools.values():
            if pool.queue != queue:
                continue
            if at <= now:
                pool.check_store = pool.stirred = True
            else:
                pool.due_at = at if pool.due_at is None else min(pool.due_at, at)

    def _returned(self, queue: str) -> None:
        """Notes that the queue has a job that was claimed before: it is not more urgent than prefetched ones."""
        for pool in self.pools.values():
            pool.check_store |= pool.queue == queue

    def close(self, now: float) -> None:
        """Stops claiming and assigning jobs; returns prefetched ones to the queue unchanged."""
        self.closed = True
        for pool in self.pools.values():
            self._give_back(pool, now)

    def _give_back(self, pool: Pool, now: float, count: int | None = None) -> None:
        """Returns the last `count` prefetched claims (None: all) to the queue unchanged."""
        returned = [pool.prefetched.pop() for _ in range(len(pool.prefetched) if count is None else count)]
        for claim in reversed(returned):
            self._return(claim, now)

    def _return(self, claim: Claim, now: float, delay_ms: int = 0) -> None:
        """Returns a claim to the queue unchanged."""
        settlement = settle(claim, Returned())
        assert settlement is not None
        self._add_settlement(msgspec.structs.replace(settlement, delay_ms=delay_ms), now)

    @property
    def settled(self) -> bool:
        """Whether no worker holds a job and nothing waits to be written."""
        waiting = self._settlements or self._requests or self._chores or self._postponed_until is not None
        return not (self.held or waiting or self.in_flight)

    @property
    def has_nothing(self) -> bool:
        """Whether no worker holds a job, none is prefetched, and every outcome is written."""
        unwritten = self._settlements or self._postponed.settlements or (self.in_flight and self.in_flight.settlements)
        return not (self.held or unwritten or any(pool.prefetched for pool in self.pools.values()))

    # batches

    def batch_due(self, now: float) -> float | None:
        """Returns when the next batch is due; None while one is in flight."""
        if self.in_flight is not None:
            return None
        return max(self._again_at, self._batch_wanted(now))

    def _batch_wanted(self, now: float) -> float:
        if self._requests or len(self._settlements) >= ENOUGH_OUTCOMES:
            return now
        due = self._poll_at + UNTOLD if not self.closed else now + POLL
        due = min(due, self._postponed_until or due)
        if self._overflow:
            due = min(due, self._debounce.next_at)
        if self._chores_since is not None:
            due = min(due, self._chores_since + (CHORE_WAIT if self._busy else 0))
        if self._write_at is not None:
            # While no worker is busy, no further outcome can join this transaction.
            due = min(due, self._write_at if self.held else now)
        for pool in self.pools.values():
            if pool.prefetched:
                if pool.surplus(now):
                    return now
                due = min(due, pool.surplus_at(now) or due)
            if (pool.stirred or pool.due_at is not None) and (pool.prefetched or self._sent_ahead(pool)):
                due = min(due, pool.due_at or due)
                if pool.stirred:
                    due = min(due, now if self._write_at is None else self._write_at)
            if not pool.check_store and pool.due_at is None:  # first what costs least: this runs at every step
                continue
            if self.closed or not (pool.asleep if not pool.idle else pool.room(now)) or pool.paused:
                continue
            if pool.check_store:
                return now
            due = min(due, pool.due_at or due)
        for held in self.held.values():
            if not held.noted:
                moment = held.note_since + NOTE_AFTER
            elif held.progress is not None or held.unkept:
                moment = held.progress_at
            else:
                continue
            if moment < due:
                due = moment
        return due

    @property
    def _busy(self) -> bool:
        """Whether a caller waits for the content of the next batch."""
        return bool(self._settlements or self._requests)

    def next_batch(self, now: float) -> Batch:
        """Returns the next batch; it is in flight until `confirm` or `failed` is called."""
        poll = now >= self._poll_at - POLL / 2
        if poll:
            self._poll_at = now + POLL
        again = NOTHING
        if self._postponed_until is not None and self._postponed_until <= now:
            again, self._postponed, self._postponed_until = self._postponed, NOTHING, None
            for settlement in again.settlements:
                self._expect_from(settlement, now)
        notes = self._notes(now)
        hinted = False
        wants: list[Want] = []
        for crew, pool in self.pools.items():
            self._give_back(pool, now, pool.surplus(now))
            if pool.due_at is not None and pool.due_at <= now:
                pool.due_at, pool.check_store, pool.stirred = None, True, True
            room = 0 if self.closed else pool.room(now)
            asleep = 0 if self.closed or pool.paused else pool.asleep * pool.per_worker
            ahead = len(pool.prefetched) if pool.stirred else 0
            claims = (room or asleep) and (pool.check_store or poll)
            if claims or ahead:
                hinted |= pool.check_store or pool.stirred
                above = pool.prefetched[-1].priority if ahead else 0
                wants.append(Want(crew, pool.queue, room, asleep, ahead, above, pool.early(room)))
            if claims:
                pool.check_store = False  # until this claim is granted in full, or a hint arrives
            pool.stirred = False
        chores: tuple[Chore, ...] = ()
        if self._chores_since is not None and (not self._busy or now - self._chores_since >= CHORE_WAIT):
            chores, self._chores, self._chores_since = tuple(self._chores), [], None
        batch = Batch(
            settlements=(*again.settlements, *self._settlements),
            notes=tuple(notes),
            requests=tuple(self._requests),
            chores=(*again.chores, *chores),
            wants=tuple(wants),
            poll=poll and not self.closed,
            unsure=poll and self._unsure,
            hinted=hinted,
        )
        if self.elsewhere:
            batch = msgspec.structs.replace(batch, wakeups=self._wakeups(batch, now))
        self.in_flight = batch
        self._settlements, self._requests, self._write_at = [], [], None
        self.tally.sent(now)
        return self.in_flight

    def _wakeups(self, batch: Batch, now: float) -> frozenset[Wakeup]:
        """Returns what other nodes are notified of after this batch."""
        added: dict[str, int] = {}
        new = [job for request in batch.requests for job in request.jobs]
        for settlement in batch.settlements:
            new += settlement.follow
            if settlement.state is State.QUEUED and not settlement.delay_ms:
                added[settlement.queue] = added.get(settlement.queue, 0) + 1
        for job in new:
            if not job.delay_ms:
                added[job.queue] = added.get(job.queue, 0) + 1
        for chore in batch.chores:
            if isinstance(chore, KeepReport | KeepGivenUp):
                for job in chore.jobs:
                    added[job.queue] = added.get(job.queue, 0) + 1
            elif isinstance(chore, QueueFound):
                added[chore.page.queue] = added.get(chore.page.queue, 0) + len(chore.page.found)
        room: dict[str, int] = {}
        for want in batch.wants:
            room[want.queue] = room.get(want.queue, 0) + want.limit - want.early
        self._overflow |= overflows(added, room, self.elsewhere)
        found: set[Wakeup] = set()
        if self._overflow and self._debounce.begin(now):
            self._overflow = False
            found.add(Wakeup.JOBS)
        if any(isinstance(chore, CancelJobs) for chore in batch.chores):
            found.add(Wakeup.ORDERS)  # the jobs may run elsewhere
        return frozenset(found)

    def _notes(self, now: float) -> list[Note]:
        """Returns which worker has held which job for a while."""
        notes: list[Note] = []
        for worker, held in self.held.items():
            new = not held.noted and (held.early or now - held.note_since >= NOTE_AFTER / 2)
            if new or (held.noted and held.has_news and held.progress_at <= now):
                notes += held.notes(worker, now)
        return notes

    def confirm(self, result: Result, now: float) -> list[tuple[str, Todo]]:
        """Records that the batch was committed, and returns the jobs to send to each worker."""
        batch, self.in_flight = self.in_flight, None
        assert batch is not None
        self._unsure &= not batch.poll
        self._postpone(result.postponed, now)
        self.tally.committed(now, settled=bool(batch.settlements), claimed=bool(result.grants))
        handed: list[tuple[str, Todo]] = []
        wanted = {want.crew: want.limit for want in batch.wants}
        if result.changed:
            for crew, pool in self.pools.items():
                pool.check_store |= crew not in wanted
                pool.stirred = True
        self.woken(result.woken, now)
        for grant in result.grants:
            pool = self.pools[grant.crew]
            if grant.crew in self.searches:
                new = sum(claim.first and claim.item is not None for claim in grant.claims)
                short = len(grant.claims) < wanted[grant.crew] and not grant.limited
                self.searches[grant.crew].taken(new, short=short)
            if grant.waiting:
                self._waiting[grant.crew] = -(-grant.waiting // pool.per_worker)
                pool.owed = True
            if grant.claims and len(grant.claims) >= wanted[grant.crew]:
                pool.check_store = True
            elif grant.next_in_ms is not None:
                due = now + grant.next_in_ms / 1000
                pool.due_at = due if pool.due_at is None else min(pool.due_at, due)
            if not pool.prefetched:
                pool.gather_until = None  # the jobs that waited are gone, and these have not waited
            pool.add(self._in_time(grant.claims, now))
            self._suspects.update(claim.id for claim in grant.claims if claim.suspect and not claim.expired)
            if grant.urgent:
                self._give_back(pool, now, min(grant.urgent, len(pool.prefetched)))
                self._write_at = now  # the same transaction claims the more urgent jobs
            if self.closed or not pool.available or pool.paused:
                self._give_back(pool, now)
            handed += self._assign(pool, now)
        for crew, search in self.searches.items():
            pool, due = self.pools[crew], search.due_asleep()
            asleep = pool.asleep and not pool.available and not pool.paused and not self.closed
            if asleep and due is not None and due <= now:
                self._waiting.setdefault(crew, 1)  # no worker is awake to call discover
        return handed

    def _in_time(self, claims: Sequence[Claim], now: float) -> Sequence[Claim]:
        """Returns the claims without those that should have been started earlier, which are cancelled."""
        late = [claim for claim in claims if claim.expired]
        if not late:
            return claims
        for claim in late:
            self._add_settlement(expired(claim), now)
        self._write_at = now
        return [claim for claim in claims if not claim.expired]

    def _postpone(self, left: Batch, now: float) -> None:
        """Keeps the settlements and chores that were not written for a later batch; the requests are refused."""
        if left.settlements or left.chores:
            self._postponed = Batch(
                settlements=(*self._postponed.settlements, *left.settlements),
                chores=(*self._postponed.chores, *left.chores),
            )
            self._postponed_until = now + POSTPONE

    def failed(self, now: float, pause: float) -> tuple[Request, ...]:
        """Keeps the content of a failed batch for a retry after `pause` seconds. Returns its requests."""
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
        """Returns the crews with jobs for sleeping workers, as reported by the store since the last call."""
        found, self._waiting = self._waiting, {}
        return found


def _bounded(seconds: float | None, held: Held, now: float) -> float:
    """Returns how long a job took: as its worker has measured it, but not longer than the worker has had it."""
    if seconds is None:
        return now - held.since
    return max(0.0, seconds if seconds < now - held.received else now - held.received)


def _joined(first: Todo | None, more: Hand | None) -> Todo:
    """Returns what a worker receives, with more short jobs behind."""
    if more is None:
        assert first is not None
        return first
    if isinstance(first, Hand):
        return first.with_more(more)
    assert first is None or isinstance(first, Claim)
    return Hand(first, more.ahead)
