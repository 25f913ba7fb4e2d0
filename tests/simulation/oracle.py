"""All promises together: what is handed to whom, what people ordered, and the parts of the other modules.

Nothing here asks the shipped code what it thinks: it is written from the specification, and told what happens.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from actors import Worker
from book import EPS, HICCUP
from oracle_liveness import LivenessPromises
from record import Life, Record

from chargehand.model.fleet.fleet import AFTER_A_LOOK
from chargehand.model.job import Claim, Outcome, TimedOut
from chargehand.model.search import Look
from chargehand.model.trust import Distrust

LONGEST_LOOK = 30.0
CALLED_BACK = 0.010
"""Seconds after which a job that waits in a hand for no good reason has been called back."""
TROUBLED = 60.0
"""Seconds that a store which is slow or fails may need for what it otherwise does within two."""


class Oracle(LivenessPromises):
    """See the module. It raises Broken."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._cancels: set[tuple[str, int]] = set()
        """Claims of which the present node knows that they are to end."""

    def node_starts(self, counts: dict[str, int], given_up: Iterable[str]) -> None:
        super().node_starts(counts, given_up)
        self._cancels.clear()

    # frames

    def heard(self, worker: Worker, status: str, memory: int) -> None:
        life = self.life(worker)
        life.heard_at = self.world.now
        if status == "stopping" and life.asked_at is None and life.verdict is None:
            life.sigterm = True  # it goes, and that was not the node's wish
        life.memory = memory

    def ready(self, worker: Worker) -> None:
        life = self.life(worker)
        life.ready_at = life.idle_since = life.heard_at = self.world.now
        self.jobs.trials.ready(worker)
        self._changed_at = self.world.now

    # work

    def _may_get(self, worker: Worker, what: str) -> Life:
        """Somebody is handed something: it must be free, ready, wanted and not paused."""
        life, terms = self.life(worker), self.world.profile.crews[worker.crew]
        if terms.concurrency == 1:
            self.check(not worker.busy and not life.busy, f"{worker} gets {what}, but is busy: {life.hand}")
        else:
            full = len(life.hand) + life.looks >= terms.concurrency
            self.check(not full, f"{worker} gets {what}, but has {len(life.hand)} in hand: {life.hand}")
            alone = [job for job, claim in life.hand.items() if claim.crashes]
            self.check(not alone, f"{worker} gets {what} beside {alone}, whose next crash it would pay for")
            stalled = self.world.places()[worker.component].stalled
            self.check(not stalled, f"{worker} gets {what}, though its loop is known to be blocked")
        self.check(life.ready_at is not None, f"{worker} gets {what} before it said that it is ready")
        self.check(not self.stopping, f"{worker} gets {what} though the node stops")
        self.check(life.asked_at is None, f"{worker} gets {what} after it was asked to stop")
        self.check(life.verdict is None, f"{worker} gets {what} though it is condemned")
        self.check(not life.dismissed and not life.may_be_asked, f"{worker} gets {what} though it is to leave")
        paused = self.applied & {"*", worker.crew, worker.component}
        self.check(not paused, f"{worker} gets {what} though {paused} is paused")
        worn = terms.recycle_jobs is not None and life.jobs >= terms.recycle_jobs
        large = terms.recycle_memory is not None and life.jobs > 0 and life.memory > terms.recycle_memory
        self.check(not worn and not large, f"{worker} gets {what} though it is to be recycled ({life.jobs} done)")
        if not life.busy:
            life.busy_since = self.world.now
        life.handed_at, life.idle_since, life.unsure = self.world.now, None, 0.0
        return life

    def handed(self, worker: Worker, claims: Sequence[Claim]) -> None:
        """A worker gets a job, or several at once."""
        life = self._may_get(worker, f"job {', '.join(claim.id for claim in claims)}")
        most, _ = self.world.profile.batching.get(worker.crew, (1, 0.0))
        self.check(1 <= len(claims) <= most, f"{worker} gets {len(claims)} jobs at once")
        for claim in claims:
            hands = [w for w in self.world.processes if claim.id in w.hand]
            self.check(not hands, f"job {claim.id} is in two living hands: {hands}")
            self.check(worker.crew == claim.queue, f"{worker} gets a job of {claim.queue}")
            alone = len(claims) == 1 or not (claim.crashes or claim.failures)
            alone = alone and not (claim.crashes and life.hand)
            self.check(alone, f"{worker} gets job {claim.id} with others, which would pay for its next crash")
            heard = (claim.id, claim.number) in self._cancels
            self.check(not heard, f"{worker} gets job {claim.id}, though the node knows that it is cancelled")
            self.jobs.handed(claim)
            life.hand[claim.id] = life.known[claim.id] = claim
        life.first = claims[0].id
        limits = [claim.timeout_ms for claim in claims if claim.timeout_ms is not None]
        life.limit = max(limits) / 1000 if len(limits) == len(claims) else None
        if self.several(worker.crew):
            if len(life.hand) > 1:
                self.world.tally["beside others"] += 1
            elif claims[0].crashes:
                self.world.tally["alone after a crash"] += 1
            for claim in claims:
                limit = None if claim.timeout_ms is None else claim.timeout_ms / 1000
                life.deadlines[claim.id] = (self.world.now, limit)
            life.limit = _least_patient(life)
        self.world.tally["jobs handed out"] += len(claims)

    # short jobs that are sent ahead (WK-18)

    def sent_ahead(self, worker: Worker, claims: Sequence[Claim], *, first: bool) -> None:
        """A worker is sent jobs that it begins later."""
        life, profile = self.life(worker), self.world.profile
        what = f"jobs ahead: {', '.join(claim.id for claim in claims)}"
        self.check(life.ready_at is not None and not self.stopping, f"{worker} is sent {what}")
        leaves = life.asked_at is not None or life.verdict is not None or life.dismissed or life.may_be_asked
        self.check(not leaves, f"{worker} is sent {what} though it is to leave")
        paused = self.applied & {"*", worker.crew, worker.component}
        self.check(not paused, f"{worker} is sent {what} though {paused} is paused")
        self.check(first is not bool(life.known), f"{worker} is sent {what}, but has {list(life.known)}")
        terms = profile.crews[worker.crew]
        left = profile.most_in_hand if terms.recycle_jobs is None else terms.recycle_jobs - life.jobs
        known = len(life.known) + len(claims)
        self.check(known <= min(left, profile.most_in_hand), f"{worker} is sent {what}, more than it may have")
        for claim in claims:
            lives = [record.life for record in self.records.values() if record.life is not None]
            hands = [life.worker for life in lives if claim.id in life.hand or claim.id in life.ahead]
            self.check(not hands, f"job {claim.id} is sent to {worker}, but {hands} has it")
            self.check(worker.crew == claim.queue, f"{worker} gets a job of {claim.queue}")
            past = claim.crashes or claim.failures or claim.suspect
            self.check(
                not past or (first and len(claims) == 1), f"job {claim.id} is sent ahead though it failed before"
            )
            heard = (claim.id, claim.number) in self._cancels
            self.check(not heard, f"{worker} is sent job {claim.id}, though the node knows that it is cancelled")
            life.ahead[claim.id] = claim
            life.known[claim.id] = claim
        if first:
            life.idle_since = None
        self.world.tally["jobs sent ahead"] += len(claims)

    def begins(self, worker: Worker, claim: Claim) -> None:
        """A worker begins a job that it was sent ahead."""
        life = self.life(worker)
        self.check(life.ahead.pop(claim.id, None) is claim, f"{worker} begins job {claim.id}, which was called back")
        paused = self.applied & {"*", worker.crew, worker.component}
        self.check(not paused, f"{worker} begins job {claim.id} though {paused} is paused")
        others = [w for w in self.world.processes if w is not worker and claim.id in w.hand]
        self.check(not others, f"job {claim.id} is in two living hands: {others}")
        self.jobs.handed(claim)
        life.hand[claim.id] = claim
        life.first = claim.id
        life.handed_at, life.idle_since, life.unsure = self.world.now, None, CALLED_BACK
        life.limit = None if claim.timeout_ms is None else claim.timeout_ms / 1000
        self.world.tally["jobs handed out"] += 1

    def called_back(self, worker: Worker, count: int) -> None:
        """The node takes back what a worker has not begun."""
        life = self.life(worker)
        self.check(count == len(life.ahead), f"{worker} gives back {count}, but has not begun {list(life.ahead)}")
        for job in life.ahead:
            del life.known[job]
        life.ahead.clear()
        self.world.tally["jobs called back"] += count
        self.world.note(f"{worker} gives back {count}")

    def hands_checked(self) -> None:
        """After a step of the node nothing waits behind a job that takes long, or while another worker is idle."""
        now = self.world.now
        for record in self.records.values():
            life = record.life
            if life is None or not life.ahead or life.worker is None or not life.worker.alive:
                continue
            behind = now - max(life.handed_at, life.heard_end_at)
            self.check(behind <= CALLED_BACK, f"{list(life.ahead)} wait in {life.worker} since {behind:.4f} s")
            for other in self.crew(record.crew):
                free = other.life is not None and not other.life.known and not other.life.busy and other.life.idle_since
                if other.life is not None and free and self._takes(other):
                    self.check(now - free <= CALLED_BACK, f"{other.component} is idle, {list(life.ahead)} wait")

    def _takes(self, record: Record) -> bool:
        life = record.life
        assert life is not None
        leaves = life.asked_at is not None or life.verdict is not None or life.dismissed or life.may_be_asked
        alive = life.worker is not None and life.worker.alive and life.ready_at is not None
        return alive and not leaves and not self.applied & {"*", record.crew, record.component}

    def performed(self, worker: Worker, claim: Claim, outcome: Outcome) -> None:
        life = self.life(worker)
        life.known.pop(claim.id, None)
        life.heard_end_at = self.world.now
        self.check(life.hand.get(claim.id) == claim, f"{worker} ends job {claim.id}, but has {life.hand}")
        several = self.several(worker.crew)
        if isinstance(outcome, TimedOut):
            self.check(claim.id in life.expired, f"{worker} ends job {claim.id} for its timeout, which it has")
        self.jobs.performed(worker, claim.id if several else life.first, claim, outcome)
        del life.hand[claim.id]
        life.recalled.pop(claim.id, None)
        life.expired.pop(claim.id, None)
        life.idle_since = None if life.hand or life.looks else self.world.now
        if several:
            del life.deadlines[claim.id]
            life.limit = _least_patient(life)
            life.idle_before = self.world.now
        life.jobs += 1
        self.done[worker.crew] += 1

    # processes that are not believed (WP-12, WP-13)

    def distrusted(self, distrust: Distrust) -> None:
        """The node replaces a process because of the jobs that it failed."""
        life = self.life_of(distrust.worker)
        assert life.worker is not None
        self.jobs.trials.distrusted(life.worker, distrust)
        life.suspect = life.dismissed = True

    def broke(self, worker: Worker) -> None:
        """A worker says that its process is broken."""
        life = self.life(worker)
        self.jobs.trials.broke(worker)
        if life.verdict is None:
            life.verdict, life.condemned_at = "broken", self.world.now

    # cancelling (WK-8)

    def cancel_heard(self, ids: Sequence[str]) -> None:
        """The node knows that these are cancelled: whoever has one, and does not leave anyway, has been told."""
        for job_id in ids:
            self._cancels.add((job_id, self.jobs.jobs[job_id].number))
        for life in [record.life for record in self.records.values() if record.life is not None]:
            untold = [job for job in ids if job in life.hand and job not in life.recalled]
            leaves = life.asked_at is not None or life.verdict is not None
            self.check(leaves or not untold, f"{life.worker} has {untold}, and was not told that they are cancelled")

    def recalled(self, worker: Worker, job: str) -> None:
        """A worker is told that its job is cancelled."""
        life = self.life(worker)
        self.world.note(f"{worker} is told that job {job} is cancelled")
        self.check(job in life.hand, f"{worker} is told that job {job} is cancelled, but has {list(life.hand)}")
        self.check(job not in life.recalled, f"{worker} is told twice that job {job} is cancelled")
        self.check(self.jobs.jobs[job].cancel_at is not None, f"{worker} is to end job {job}, which nobody cancelled")
        life.recalled[job] = self.world.now
        self.world.tally["told of a cancel"] += 1

    def expired(self, worker: Worker, job: str) -> None:
        """A worker is told that one of several jobs has had its time: not too early, not too late, and once."""
        life, now = self.life(worker), self.world.now
        self.world.note(f"{worker} is told that {job} has had its time")
        self.check(job in life.deadlines, f"{worker} is to end {job}, but has {list(life.deadlines)}")
        self.check(job not in life.expired and job not in life.recalled, f"{worker} is told twice to end {job}")
        since, limit = life.deadlines[job]
        over = -1.0 if limit is None else now - since - limit - self.slack(since)
        self.check(-EPS <= over <= HICCUP, f"{worker} is to end {job}, whose timeout of {limit} was {over:.3f} s ago")
        life.expired[job] = now
        self.world.tally["told of a timeout"] += 1

    def watch(self) -> None:
        super().watch()
        node = self.world.node
        if node is None or not node.attentive() or self.world.now < self.world.store_fails_until + TROUBLED:
            return
        for record in self.records.values():
            life = record.life
            if life is None or life.asked_at is not None or life.verdict is not None:
                continue
            for job in life.hand.keys() - life.recalled.keys():
                since = self.jobs.jobs[job].cancel_at
                late = 0.0 if since is None else self.world.now - since - self.slack(since)
                self.check(late <= TROUBLED, f"{life.worker} has job {job}, cancelled {late:.0f} s ago; nobody told it")

    # looking (WK-10)

    def asked_to_look(self, worker: Worker, look: Look) -> None:
        idle_since = self.life(worker).idle_since
        life = self._may_get(worker, "a look")
        life.idle_before = idle_since
        self.check(worker.crew in self.world.profile.discovers, f"{worker} is to look, but its crew finds nothing")
        others = [r.component for r in self.crew(worker.crew) if r.life is not None and r.life.looks]
        self.check(not others, f"{worker} is to look while {others} does")
        self.jobs.looks(worker.crew)
        life.looks = True
        if self.several(worker.crew):
            life.deadlines[f"{worker.crew}/?"] = (self.world.now, LONGEST_LOOK)
        life.limit = _least_patient(life) if self.several(worker.crew) else LONGEST_LOOK
        self.world.tally["looks"] += 1

    def has_looked(self, worker: Worker) -> None:
        life = self.life(worker)
        self.check(life.looks, f"{worker} has looked, but nobody asked it to")
        life.looks = False
        life.deadlines.pop(f"{worker.crew}/?", None)
        life.expired.pop(f"{worker.crew}/?", None)
        if self.several(worker.crew):
            life.limit = _least_patient(life)
        idle_exit = self.world.profile.crews[worker.crew].idle_exit
        stays = 0.0 if idle_exit is None else min(idle_exit, AFTER_A_LOOK) - idle_exit
        before = self.world.now if life.idle_before is None else life.idle_before
        life.idle_since = max(before, self.world.now + stays)  # at least so long, for what it may have found
        if life.hand:
            life.idle_since = None

    # people

    def paused(self, scopes: frozenset[str]) -> None:
        self.applied = scopes

    def ordered(self, verb: str, components: list[str]) -> None:
        """What a person wants, before the fleet hears of it."""
        self.forgiven = set()
        self._reset = set()
        for component in components:
            record = self.records[component]
            getattr(self, f"_order_{verb}")(record)

    def _order_start(self, record: Record) -> None:
        if record.intent == "remove" or record.state in ("failed", "breaker", "due"):
            return
        record.intent = "run"
        if record.life is None:
            record.due(self.world.now)

    def _order_stop(self, record: Record) -> None:
        if record.state == "failed":
            return
        record.intent = "remove" if record.intent == "remove" else "stay"
        if record.life is None:
            record.state, record.crashed = "stay", False
        else:
            record.life.may_be_asked = True

    def _order_drain(self, record: Record) -> None:
        if record.life is not None and record.life.busy:
            record.intent = "remove" if record.intent == "remove" else "stay"
            record.life.dismissed = True
        else:
            self._order_stop(record)

    def _order_restart(self, record: Record) -> None:
        record.renew()
        if record.life is not None:
            record.intent = "remove" if record.intent == "remove" else "run"
            record.life.may_be_asked = True
        else:
            self.forgiven.add(record.component)
            if record.state == "failed":
                record.forget()
            record.intent = "run"
            record.due(self.world.now)

    def _order_reset(self, record: Record) -> None:
        self.forgiven.add(record.component)
        self._reset.add(record.crew)
        record.forget()
        if record.life is None:
            record.intent = "run"
            record.due(self.world.now)

    def scaled(self, crew: str, count: int) -> None:
        """A person changes the size of a crew."""
        self.forgiven = set()
        for record in self.crew(crew):
            if record.index >= count:
                self.forgiven.add(record.component)
                record.intent = "remove"
                if record.life is not None and record.life.busy:
                    record.life.dismissed = True
                elif record.life is not None:
                    record.life.may_be_asked = True
            elif record.intent == "remove":
                record.intent = "run"
        for index in range(count):
            if f"worker:{crew}:{index}" not in self.records:
                self.add(crew, index)


def _least_patient(life: Life) -> float | None:
    """None if one of the jobs has no timeout."""
    limits = [limit for _, limit in life.deadlines.values()]
    return None if None in limits else max((limit for limit in limits if limit is not None), default=None)
