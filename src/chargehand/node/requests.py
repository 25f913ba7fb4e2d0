"""Handles the requests that reach a node: orders, pauses, cancels, enqueues; and keeps what they need.

The decisions are the model's; the supervisor carries them out. This module owns no process and no socket.
"""

from collections.abc import Sequence

from chargehand import clock, log
from chargehand.errors import ChargehandError, ConfigurationError, UnknownCrew, summary
from chargehand.live.bodies import node_worker
from chargehand.model import chores, routing
from chargehand.model.access import Deed
from chargehand.model.batch import Batch, Request, Result
from chargehand.model.drain import Drain
from chargehand.model.fleet import orders
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.lifecycle import PausesChanged, WorkWaits
from chargehand.model.fleet.orders import LONGEST_PAUSE_MS, Answer, AnswerCode, Verb
from chargehand.model.fleet.policy import restored
from chargehand.model.health import member_of, unserved
from chargehand.model.job import NewJob
from chargehand.model.ledger import Ledger
from chargehand.model.records import CancelResult, Discovered, GivenUpMark, OtherNodes, Pause, RecurringPlan
from chargehand.model.status import NodeWorker
from chargehand.model.store_clock import StoreClock
from chargehand.node.followers import Followers, ended
from chargehand.node.job_files import JobFilesThread
from chargehand.node.live import Live
from chargehand.node.lookups import Lookups, NotRead
from chargehand.node.replies import Token, answer_order, refuse_with, reply, waits
from chargehand.node.store_thread import Opened
from chargehand.node.supervisor import Supervisor
from chargehand.protocol.control import MOST_FOLLOWED, Call
from chargehand.settings import schedule
from chargehand.settings.plan import NodePlan

CLOCK_SKEW_MS = 1000
"""How far the clock may go back before times in the store are corrected."""
STARTING = (Verb.START, Verb.RESTART, Verb.RESET)
"""Orders that end the drain of the node, because they start workers. So does `scale`."""


class Requests:
    """Handles requests, and what the store answers to them."""

    def __init__(
        self,
        plan: NodePlan,
        fleet: Fleet,
        ledger: Ledger,
        supervisor: Supervisor,
        live: Live,
        followers: Followers,
        lookups: Lookups,
        job_files: JobFilesThread | None = None,
        *,
        shared: bool = False,
    ) -> None:
        """`shared`: other nodes may use the store."""
        self._shared, self._job_files = shared, job_files
        self._plan, self._fleet, self._ledger, self._supervisor = plan, fleet, ledger, supervisor
        self._live, self._followers, self._lookups = live, followers, lookups
        self._looking = False
        """Whether the store is being asked which awaited jobs have ended."""
        self._look_again = False
        self._fingerprints: dict[str, str] = {}
        self._opened = False
        self._orders: list[tuple[Token, Call]] = []
        """Orders that came before the store was open."""
        self.enqueuing = False
        """Whether a request to enqueue has arrived; the node sets it to False when it has passed it to the store."""
        self._queues = {crew.name: crew.queue for crew in plan.crews}
        self._pauses: list[str] = []
        self.pauses_due: float | None = None
        """When the first pause expires."""
        self.unserved: dict[str, str] = {}
        self.others = OtherNodes()
        self.drain = Drain()
        self._clock = StoreClock()
        self._recurring: list[RecurringPlan] = []
        self._clock_ms: int | None = None
        """The time of the last check of the clock; None before the first."""

    # start

    def opened(self, news: Opened, now: float) -> None:
        """The store is open: apply scaled counts, given-up marks and pauses from it, and start the workers."""
        self._opened, self._fingerprints = True, news.fingerprints
        self._learn(news.others, now)
        for crew, count in news.scaled.items():
            if crew in self._fleet.crews:
                log.info("crew has a count set by scale", event=log.Event.CREW_SCALED, crew=crew, workers=count)
                self._supervisor.act(orders.scale(self._fleet, crew, count, now)[0])
        failed: dict[str, str] = {}
        for mark in news.given_up:
            if mark.component not in self._fleet.places:
                self._ledger.chore(chores.Forgive(mark.component), now)
            elif mark.fingerprint != news.fingerprints.get(mark.crew):
                log.info(
                    "worker is started again: its code, its settings or the installed packages have changed",
                    event=log.Event.WORKER_FORGIVEN,
                    component=mark.component,
                )
                self._ledger.chore(chores.Forgive(mark.component), now)
            else:
                failed[mark.component] = mark.reason
                log.error(
                    "worker is still given up", event=log.Event.WORKER_STILL_GIVEN_UP, component=mark.component,
                    reason=summary(mark.reason),
                    remedy=f"chargehand reset {mark.component}",
                )  # fmt: skip
        for scope, left_ms in news.pauses:
            if routing.local(scope, self._plan.node) is None:
                continue
            log.warning(
                "a pause from before this node started is in force", event=log.Event.PAUSE_IN_FORCE, scope=scope,
                left_s=None if left_ms is None else left_ms / 1000,
                remedy="chargehand resume" if scope == "*" else f"chargehand resume {scope.removeprefix('worker:')}",
            )  # fmt: skip
        self._paused(self._own_pauses(news.pauses), now)
        self._ledger.chore(chores.Recur(tuple(schedule.plans(self._plan.recurring, self._now_ms(now)))), now)
        past = {
            note.component: (restored(note, news.fingerprints.get(note.crew), now), note.restarts_total)
            for note in news.restarts
        }
        self._supervisor.act(self._fleet.begin(now, failed, past))
        for token, call in self._orders:
            self.order(token, call)

    def _learn(self, others: OtherNodes, now: float) -> None:
        self.others = others
        self._ledger.elsewhere = frozenset(others.served)
        if others.now_ms is not None:
            self._clock.read(others.now_ms, now)

    def _now_ms(self, now: float) -> int:
        """Returns the time of the store's clock."""
        return self._clock.now_ms(clock.now_ms(), now)

    def mark(self, component: str, reason: str) -> GivenUpMark:
        """Returns the mark that keeps a worker given up across restarts of the node."""
        crew = self._fleet.places[component].crew
        fingerprint = self._fingerprints.get(crew, "")
        return GivenUpMark(component=component, crew=crew, reason=reason, fingerprint=fingerprint)

    def restarts(self, component: str) -> chores.KeepRestarts:
        """Returns what the next node must know of the crashes and restarts of a worker."""
        place = self._fleet.places[component]
        fingerprint = self._fingerprints.get(place.crew, "")
        return chores.KeepRestarts(component, fingerprint, place.history.copy(), place.restarts_total)

    # results from the store

    def committed(self, batch: Batch, result: Result, now: float) -> None:
        """Apply what a committed batch means for pauses, sleeping workers, and callers that wait for an answer."""
        if result.pauses is not None:
            self._paused(self._own_pauses(result.pauses), now)
        for crew, count in self._ledger.waiting().items():
            self._supervisor.tell(WorkWaits(crew, count))
        if result.waiting is not None and not self._fleet.stopping:
            members = [member_of(place) for place in self._fleet.places.values()]
            looked = zip(batch.chores, result.done, strict=True)
            self._learn(next(done for chore, done in looked if isinstance(chore, chores.LookAtQueues)), now)
            waiting = [each for each in result.waiting if each[0] not in self.others.served]
            self._served(unserved(waiting, self._queues, members, self._pauses))
        if result.recurring is not None:
            self._recurring = list(result.recurring)
        if result.cancelling:
            self._cancelled(result.cancelling, now)
        for chore, done in zip(batch.chores, result.done, strict=True):
            if isinstance(chore, chores.CancelJobs):
                found: list[CancelResult] = done
                self._cancelled([job.id for job in found if not job.at_once], now)
                self._answer_cancel(chore.token, found)
            elif isinstance(chore, chores.Recur):
                late = schedule.too_late(self._recurring, self._now_ms(now))
                if late:
                    self._ledger.chore(chores.SetClockBack(tuple(late)), now)
            elif isinstance(chore, chores.Fire):
                self._ledger.hint(chore.firing.job.queue)
                fired = "by us" if done else "by another, or paused"
                log.info("recurring job is due", name=chore.firing.name, fired=fired)
            elif isinstance(chore, chores.KeepReport | chores.KeepGivenUp):
                for job in chore.jobs:
                    self._ledger.hint(job.queue)
            elif isinstance(chore, chores.ExpireJobs | chores.SweepFlows):
                if done:
                    self._live.written(now)
                if done == chore.limit:
                    self._ledger.chore(chore, now)
            elif isinstance(chore, chores.SetClockBack):
                self._ledger.hint()
            elif isinstance(chore, chores.QueueFound):
                self._found(chore.crew, done, now)
            elif isinstance(chore, chores.Lead):
                self._ledger.lead(done, now)
            elif isinstance(chore, chores.SetPause):
                answer_order(chore.token, self._pausing(chore, done))
            elif isinstance(chore, chores.ClearPause):
                answer_order(chore.token, orders.resumed(self._fleet, chore.scope))

    def _own_pauses(self, pauses: tuple[tuple[str, int | None], ...]) -> tuple[tuple[str, int | None], ...]:
        """Returns the pauses that concern this node, in the form in which it knows their scopes."""
        found = ((routing.local(scope, self._plan.node), left) for scope, left in pauses)
        return tuple((scope, left) for scope, left in found if scope is not None)

    def _paused(self, pauses: tuple[tuple[str, int | None], ...], now: float) -> None:
        self._pauses = [scope for scope, _ in pauses]
        left = [ms for _, ms in pauses if ms is not None]
        self.pauses_due = now + min(left) / 1000 if left else None
        self._supervisor.call_back()
        for component, claim in (*self._ledger.pause(self._pauses, now), *self._ledger.spread(now)):
            self._supervisor.hand_out(component, claim)
        self._supervisor.tell(PausesChanged(self._pauses))

    def _pausing(self, chore: chores.SetPause, before: Pause | None) -> list[Answer]:
        texts: list[Answer] = []
        replaced = orders.replacing(before)
        for place in orders.places_of(self._fleet, chore.scope):
            job = f"finishes {place.doing}, then takes" if place.job else "takes"
            text = f"{job} nothing more" if place.alive else f"is {place.status.value}, and will take nothing"
            texts.append(Answer(place.component, f"{text}{replaced}", AnswerCode.PAUSED))
        return texts or [Answer(chore.scope, f"is paused; it has no workers{replaced}", AnswerCode.PAUSED)]

    def _served(self, found: dict[str, str]) -> None:
        for queue, why in found.items():
            if self.unserved.get(queue) != why:
                log.error(
                    "a queue has waiting jobs and no worker to run them",
                    event=log.Event.QUEUE_UNSERVED,
                    queue=queue,
                    why=summary(why),
                )
        for queue in self.unserved.keys() - found.keys():
            log.info("a queue is served again or empty", event=log.Event.QUEUE_SERVED, queue=queue)
        self.unserved = found

    def _cancelled(self, ids: Sequence[str], now: float) -> None:
        """Cancel jobs that this node runs or holds."""
        self._supervisor.call_back(self._ledger.hands_with(ids))
        for component, job in self._ledger.cancelled(ids, now):
            self._supervisor.act(self._fleet.cancel(component, job, now))
        self._supervisor.spread()

    def fire(self, now: float) -> None:
        """Enqueue the recurring jobs that are due. The store lets each time fire once, on any number of nodes."""
        now_ms = self._now_ms(now)
        self._check_clock(now_ms, now)
        for firing in schedule.due(self._recurring, now_ms):
            self._ledger.chore(chores.Fire(firing), now, urgent=True)
            self._recurring = [plan for plan in self._recurring if plan.name != firing.name]

    def _check_clock(self, now_ms: int, now: float) -> None:
        """Correct times in the store if the clock was set back since the last check."""
        before, self._clock_ms = self._clock_ms, now_ms
        if before is None or now_ms >= before - CLOCK_SKEW_MS:
            return
        log.warning("the clock was set back", event=log.Event.CLOCK_SET_BACK, by_s=(before - now_ms) / 1000)
        late = schedule.too_late(self._recurring, now_ms)
        self._ledger.chore(chores.SetClockBack(tuple(late)), now, urgent=True)

    def fire_due(self, now: float) -> float | None:
        """Returns when the next recurring job is due."""
        if not self._recurring:
            return None
        first = min(plan.next_run_ms for plan in self._recurring)
        return now + max(0, first - self._now_ms(now)) / 1000

    def _found(self, crew: str, page: Discovered, now: float) -> None:
        self._ledger.searches[crew].stored(page.queued, now)
        if page.queued:
            self._ledger.hint(self._queues[crew])
        for item in page.no_progress:
            log.error("an item was done several times and is still found; it is quarantined", crew=crew, item=item)

    def wake(self, crew: str) -> None:
        """Look for items at once. UnknownCrew or ConfigurationError if the crew does not exist or does not discover."""
        if crew not in self._queues:
            raise UnknownCrew(f"there is no crew {crew!r}; there are: {', '.join(sorted(self._queues)) or 'none'}")
        if crew not in self._ledger.searches:
            raise ConfigurationError(f"crew {crew!r} is not declared discovers=True: it looks for no items")
        self._ledger.searches[crew].wake(clock.monotonic())
        self._supervisor.tell(WorkWaits(crew, 1))

    # requests

    def cancel(self, token: Token, call: Call) -> None:
        cancel = chores.CancelJobs(token=token, ids=call.ids, who=call.who, origin=call.origin)
        self._ledger.chore(cancel, clock.monotonic())

    def _answer_cancel(self, token: Token, found: Sequence[CancelResult]) -> None:
        """Answer which jobs are cancelled, and which are about to be."""
        reply(token, cancelled=[[job.id, job.at_once] for job in found])
        for job in found:
            if job.at_once:
                self._followers.ended(job.id)

    def enqueue(self, token: Token, jobs: tuple[NewJob, ...]) -> None:
        self._ledger.enqueue(Request(token, jobs), clock.monotonic())
        self.enqueuing = True

    def hint(self, queue: str | None, *, deleted: bool = False) -> None:
        """Look for work in this queue, or in all: another process has written into the store. With `deleted`, it has
        deleted jobs, which may have folders."""
        now = clock.monotonic()
        self._ledger.hint(queue)
        if queue is None:  # not only new jobs: others may be cancelled, or have ended
            self._ledger.others_wrote(now)
            self.look_at_awaited()
        self._live.written(now)
        if deleted and self._job_files is not None:
            self._job_files.sweep_now()

    def look_at_awaited(self) -> None:
        """Find out which jobs and flows that callers wait for have ended otherwise than by a worker of this node."""
        if not self._followers.by_job or self._looking:
            self._look_again = self._looking
            return
        self._looking, self._look_again = True, False
        awaited = list(self._followers.by_job)[:MOST_FOLLOWED]
        self._lookups.ask(lambda store: ended(store, awaited), self._looked)

    def _looked(self, found: list[str] | NotRead) -> None:
        self._looking = False
        if not isinstance(found, NotRead):  # otherwise those that wait look themselves
            for each in found:
                self._followers.ended(each)
        if self._look_again:
            self.look_at_awaited()

    def hurry(self) -> None:
        """Write outcomes soon: a caller waits for a job, which may have ended a moment ago."""
        self._ledger.hurry(clock.monotonic())

    def check_scope(self, scope: str | None) -> None:
        """Raises UnknownCrew, which lists the crews and workers, if there is none of this name."""
        orders.places_of(self._fleet, scope)

    def order(self, token: Token, call: Call) -> None:
        """Carry out an order and answer it. An order that comes before the store is open waits until it is."""
        if not self._opened:
            self._orders.append((token, call))
            return
        if not waits(token):
            log.warning("order dropped: its caller had stopped waiting", verb=call.verb, scope=call.scope or "*")
            return
        try:
            self._carry_out(token, call, clock.monotonic())
        except ChargehandError as error:
            log.warning("order refused", verb=call.verb, scope=call.scope or "*", who=call.who, why=error)
            refuse_with(token, error)

    def _carry_out(self, token: Token, call: Call, now: float) -> None:
        """Carry out an order. ConfigurationError or UnknownCrew if it cannot be carried out."""
        try:
            verb = Verb(call.verb)
        except ValueError:
            raise ConfigurationError(f"there is no order {call.verb!r}; there are: {', '.join(Verb)}") from None
        log.info(
            "order",
            event=log.Event.ORDER,
            verb=verb.value,
            scope=call.scope or "*",
            who=call.who,
            reason=call.reason,
            count=call.count,
        )
        whole = call.scope in (None, routing.ALL)
        if call.end and not (verb is Verb.DRAIN and whole):
            raise ConfigurationError("only a node that is drained as a whole can end: name the node, and no crew")
        match verb:
            case Verb.PAUSE | Verb.RESUME:
                self._keep_pause(token, verb, call, now)
            case Verb.SCALE:
                actions, answers = orders.scale(self._fleet, call.scope, call.count, now)
                self.drain.lift()
                self._supervisor.act(actions)
                assert call.scope is not None
                assert call.count is not None
                self._ledger.chore(chores.KeepScale(call.scope, call.count), now)
                answer_order(token, answers)
            case _:
                actions, answers = orders.carry_out(self._fleet, verb, call.scope, now)
                self._supervisor.act(actions)
                if verb is Verb.DRAIN and whole:
                    self.drain.order(end=call.end)
                elif verb in STARTING:
                    self.drain.lift()
                answer_order(token, answers)
        in_turn = verb in (Verb.PAUSE, Verb.RESUME)
        self._ledger.chore(chores.KeepDeed(self._deed(verb, call), token if in_turn else None), now)

    def _deed(self, verb: Verb, call: Call) -> Deed:
        """Returns the entry for the operator log."""
        detail = orders.detail_of(call.reason if call.count is None else f"{call.count} workers", call.for_ms)
        target = orders.normal_scope(self._fleet, call.scope)
        if self._shared:
            target = f"{self._plan.node}/{target}"
        return Deed(who=call.who, origin=call.origin, verb=verb.value, target=target, detail=detail)

    def _keep_pause(self, token: Token, verb: Verb, call: Call, now: float) -> None:
        scope = orders.normal_scope(self._fleet, call.scope)
        if verb is Verb.RESUME:
            self._ledger.chore(chores.ClearPause(token=token, scope=scope), now)
            return
        if call.for_ms is not None and not 0 < call.for_ms <= LONGEST_PAUSE_MS:
            raise ConfigurationError(f"a pause of {call.for_ms} ms: allowed is up to {LONGEST_PAUSE_MS} ms")
        self._ledger.chore(
            chores.SetPause(token=token, scope=scope, who=call.who, reason=call.reason, for_ms=call.for_ms), now
        )

    # status

    def workers(self) -> tuple[NodeWorker, ...]:
        """Returns every worker as it is now."""
        now, policy = clock.monotonic(), self._plan.restart
        handles, held = self._supervisor.handles, self._ledger.held
        return tuple(
            node_worker(place, handles.get(component), held.get(component), policy, now)
            for component, place in self._fleet.places.items()
        )

    @property
    def paused(self) -> tuple[str, ...]:
        """The scopes that are paused."""
        return tuple(self._pauses)
