"""The hands: start workers, listen to them, bury them. What is to be done is decided by the fleet and the ledger.

Nothing here blocks, sleeps, or calls the store. Everything runs on the node's main thread, because workers die with
the thread that started them.
"""

import signal
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, assert_never

import msgspec

from chargehand import clock, log
from chargehand.errors import summary
from chargehand.model import chores
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.lifecycle import (
    Action,
    Ask,
    BreakerClosed,
    BreakerOpened,
    Broken,
    Dismiss,
    DumpStacks,
    Event,
    Examine,
    Examined,
    Forgiven,
    Framed,
    GivenUp,
    Heed,
    Kill,
    MoreTime,
    NotStarted,
    Occupied,
    Recall,
    Removed,
    Replace,
    Report,
    Spawn,
    Started,
    Status,
    StopAsked,
    Terminate,
    Tick,
)
from chargehand.model.held import longest
from chargehand.model.job import Claim, Settled
from chargehand.model.ledger import Ledger, Todo
from chargehand.model.records import Discovery
from chargehand.model.search import LONGEST_LOOK, Look
from chargehand.node.handle import Handle, take_on
from chargehand.node.loop import Loop
from chargehand.node.output import OutputLine
from chargehand.node.reaper import Reaper, crash_report
from chargehand.processes import proc
from chargehand.processes.child import Life, spawn_error
from chargehand.processes.record import ProcessRecord
from chargehand.protocol.frame import BadFrame, Frame, encode
from chargehand.protocol.worker import (
    FoundFrame,
    OutcomeFrame,
    ProgressFrame,
    batch_frame,
    fatals,
    found_of,
    founds,
    healths,
    job_frame,
    more_times,
    outcome_of,
    outcomes,
)
from chargehand.settings.plan import CrewPlan, NodePlan

REST = 0.02
"""Seconds for which a worker's pulse is not listened to after two frames in a row: small jobs change its state
thousands of times a second, each of which would wake the node; of health only the newest matters."""
IN_A_ROW = 1.0
"""Seconds between two such frames, at most: the beats of an idle worker cost one wake-up each, not two."""
MOST_BAD_FRAMES = 3
"""In a row, on the pulse; after that the worker cannot be trusted."""
MOST_IDLE_TURN = 5.0


class Ears(Protocol):
    """Who hears of what the supervisor does, beside the fleet and the ledger: the node."""

    def ended(self, component: str, job_id: str, seconds: float) -> None:
        """A worker settled this job, which took so long, in a transaction of its own."""

    def keep(self, chore: chores.Chore) -> None:
        """This is to be written."""

    def given_up(self, component: str, reason: str) -> None:
        """This worker will not be started again."""

    def changed(self, component: str) -> None:
        """Something that readers see has changed."""

    def began(self, component: str, todo: Todo) -> None:
        """A worker was handed this."""

    def worked(self, component: str) -> None:
        """A worker has ended something that it had in hand."""

    def heard(self, component: str, job: str | None, progress: ProgressFrame | None) -> None:
        """A worker said how it is, and how far it is, if that is news."""

    def said(self, component: str, line: OutputLine) -> None:
        """A worker printed or logged a line."""


class Supervisor:
    """See the module. The node calls `next_due`, `tick`, `stop`, `hand_out`, `act`."""

    def __init__(
        self, loop: Loop, plan: NodePlan, fleet: Fleet, ledger: Ledger, lives: ProcessRecord, ears: Ears
    ) -> None:
        self._loop, self._plan, self._fleet, self._ledger, self._lives = loop, plan, fleet, ledger, lives
        self._ears = ears
        self._crews = {crew.name: crew for crew in plan.crews}
        self.hands: dict[str, Handle] = {}
        self._burial = Reaper(loop, fleet, ledger, lives, self.hands, self.tell)
        self._resting: deque[tuple[float, Callable[[], object]]] = deque()
        """Workers whose pulse, or output, is not listened to, and until when."""
        self._replanned = True
        """The fleet has decided something since it was last asked when it has something to do."""
        self._planned: float | None = None
        """What it said then, or the timeout of a job that was handed out since; it may be too early, never too late."""

    # time

    def next_due(self) -> float | None:
        """When `tick` has something to do, or earlier. Jobs come and go far more often than that changes."""
        if self._replanned or self._burial.dying:
            self._replanned = False
            self._planned = _earliest(self._fleet.next_due(), *self._burial.next_due())
        return _earliest(self._planned, self._resting[0][0]) if self._resting else self._planned

    def tick(self, now: float, *, late: bool) -> None:
        """Let time pass. A step that came late hears everybody before it judges anybody."""
        while self._resting and (late or self._resting[0][0] <= now):
            self._resting.popleft()[1]()
        if late:
            for hand in self.hands.values():
                if hand.pulse is not None:
                    hand.pulse.drain()
        self._burial.look_again(now)
        self.act(self._fleet.handle(Tick(), now))  # by the time at which it is known that we were not held up

    def beat(self) -> None:
        """Something that is to be done from time to time."""
        self._burial.beat()

    def keep_free(self, unkillable: Sequence[Life]) -> None:
        """Fill no place whose earlier life cannot be killed; fill those again whose has gone."""
        by = {life.component: life.pid for life in unkillable}
        for component in {*self._fleet.places, *self._fleet.occupied, *by}:
            self.tell(Occupied(component, by.get(component)))
        for component, pid in by.items():
            log.error("an earlier worker is unkillable; it keeps its job and its place", component=component, pid=pid)

    def stop(self) -> None:
        """Ask every worker to stop; the fleet presses on by itself."""
        self.tell(StopAsked())

    @property
    def gone(self) -> bool:
        """Whether no worker, and nothing of one, is left."""
        return not self.hands and not self._burial.dying and self._fleet.all_gone()

    # decisions become acts

    def tell(self, event: Event) -> None:
        """Have the fleet decide, and do what it says."""
        self.act(self._fleet.handle(event, clock.monotonic()))

    def act(self, actions: Sequence[Action]) -> None:
        """Do what was decided."""
        self._replanned = True
        for action in actions:
            self._act(action)
            if not isinstance(action, Examine | BreakerOpened | BreakerClosed):
                self._ears.changed(action.component)

    def _act(self, action: Action) -> None:
        match action:
            case Spawn(component):
                self._spawn(component)
            case Ask(component):
                self._ask(self.hands[component])
            case Heed(component, paused):
                self._tell_pulse(self.hands[component], "PAUSE" if paused else "RESUME", {})
            case Recall(component, job):
                log.info("job is being cancelled", component=component, job=job)
                fence = self._ledger.held[component].claims[job].fence
                self._tell_pulse(self.hands[component], "CANCEL", {"id": job, "fence": fence})
            case Dismiss(component):
                self._ledger.dismiss(component)
            case DumpStacks(component, reason):
                job = self._fleet.places[component].doing
                log.warning("worker condemned", component=component, reason=reason, job=job)
                self.hands[component].ask_where_it_stands(signal.SIGUSR1)
            case Terminate(component):
                self._terminate(self.hands[component])
            case Kill(component, reason):
                log.warning("worker force-killed", component=component, reason=reason)
                self._kill(self.hands[component])
            case Examine(component):
                flags = self._fleet.places[component].flags
                self.tell(Examined(component, proc.cpu_of(self.hands[component].child.pid)))
                if self._fleet.places[component].flags != flags:
                    self._ears.changed(component)
            case Report():
                self._ears.keep(chores.KeepReport(crash_report(action)))
            case GivenUp(component, reason):
                remedy = f"chargehand reset {component}"
                log.error(
                    "worker given up",
                    event=log.Event.WORKER_GIVEN_UP,
                    component=component,
                    reason=summary(reason),
                    remedy=remedy,
                )
                self._ears.given_up(component, reason)
            case Forgiven(component):
                self._ears.keep(chores.Forgive(component))
            case Replace(component, reason, pause):
                log.warning(
                    "worker to be respawned",
                    event=log.Event.WORKER_DELAYED,
                    component=component,
                    reason=summary(reason),
                    in_s=f"{pause:.2f}",
                )
            case BreakerOpened(crew, cause, probe):
                log.error(
                    "all of a crew crashed of the same cause; one is tried",
                    event=log.Event.BREAKER_OPENED,
                    crew=crew,
                    cause=cause,
                    tried=probe,
                )
            case BreakerClosed(crew, why):
                log.info("the others of the crew come back", crew=crew, why=why)
            case Removed(component):
                log.info("worker removed", component=component)
            case _:
                assert_never(action)

    def _kill(self, hand: Handle) -> None:
        hand.killed = True
        hand.child.signal_session(signal.SIGKILL)

    def _tell_pulse(self, hand: Handle, kind: str, body: dict[str, Any]) -> None:
        assert hand.pulse is not None
        hand.pulse.send(encode(kind, body))

    def _terminate(self, hand: Handle) -> None:
        """Let what the worker started end by itself, but not the worker: it would take their deaths for results."""
        log.warning("worker terminated", component=hand.component, pid=hand.child.pid)
        hand.child.signal(signal.SIGSTOP)
        if hand.work is not None:
            hand.work.drain()
            hand.work.close()
        hand.child.signal_descendants(signal.SIGTERM)

    def kill_all(self) -> None:
        """Wait for nobody: end every worker and what it started, now. What they held goes back unharmed."""
        for hand in self.hands.values():
            self._kill(hand)

    def _ask(self, hand: Handle) -> None:
        self._ledger.dismiss(hand.component)
        for channel in (hand.work, hand.pulse):
            if channel is not None:
                channel.send(encode("STOP", {}))

    def _spawn(self, component: str) -> None:
        place = self._fleet.places[component]
        crew = self._crews[place.crew]
        mark = f"{self._lives.mark}/{component}/{place.life}"
        try:
            hand, ends = take_on(component, place.crew, mark, crew.environment_of(place.index))
        except OSError as error:
            self.tell(NotStarted(component, f"not started: {spawn_error(error)}"))
            return
        self._lives.add(hand.child)
        self.hands[component] = hand
        hand.listen(self._loop, ends, self._worked, self._pulsed, self._printed, self._rest)
        self._loop.add(hand.child.pidfd, lambda _: self._burial.died(hand))
        assert hand.work is not None
        hand.work.send(encode("INIT", self._init(component, crew, mark)))
        log.info("worker spawned", event=log.Event.WORKER_SPAWNED, component=component, pid=hand.child.pid)
        self.tell(Started(component, hand.child.pid))

    def _init(self, component: str, crew: CrewPlan, mark: str) -> dict[str, Any]:
        plan = self._plan
        return {
            "component": component,
            "life": mark,
            "crew": crew.name,
            "handler": crew.handler,
            "python_path": plan.python_path,
            "paused": self._fleet.places[component].paused,
            "threads": crew.threads,
            "batch": crew.batch,
            "beat": plan.liveness.beat,
            "turn": min(MOST_IDLE_TURN, plan.liveness.idle / 4),
            "grace": plan.liveness.grace + plan.liveness.terminate,
            "node": plan.node,
            "node_life": self._lives.life,
            "store": plan.store if crew.transactional else None,
            "synchronous": plan.synchronous,
            "crews": {name: msgspec.to_builtins(other) for name, other in self._crews.items()},
        }

    # a worker speaks

    def hand_out(self, component: str, todo: Todo) -> None:
        """Give the worker this job, or have it look for some."""
        hand = self.hands[component]
        assert hand.work is not None
        others: list[str] = []
        if isinstance(todo, Claim):
            hand.work.send(job_frame(todo))
            job, timeout = todo.id, None if todo.timeout_ms is None else todo.timeout_ms / 1000
        elif isinstance(todo, Look):
            hand.work.send(encode("LOOK", {"after": todo.after, "limit": todo.limit}))
            job, timeout = f"{todo.crew}/?", LONGEST_LOOK
        else:
            hand.work.send(batch_frame(todo))
            job, timeout, others = todo[0].id, longest(todo), [other.id for other in todo[1:]]
        now = clock.monotonic()
        self._fleet.began(component, job, timeout, now, others)
        if timeout is not None and (self._planned is None or now + timeout < self._planned):
            self._planned = now + timeout
        self._ears.began(component, todo)

    def _worked(self, hand: Handle, frame: Frame | BadFrame) -> None:
        """A line on the work socket. Whatever it is, it can do no more than end its own job."""
        try:
            if isinstance(frame, BadFrame):
                raise ValueError(frame.why)
            if frame.kind == "READY":
                if hand.welcomed:
                    raise ValueError("READY a second time")
                self._ready(hand)
            elif frame.kind == "FATAL":
                hand.said = fatals.decode(frame.body)
            elif frame.kind == "FOUND":
                self._found(hand, founds.decode(frame.body))
            elif frame.kind == "MORETIME":
                self.tell(MoreTime(hand.component, more_times.decode(frame.body).seconds))
            else:
                self._outcome(hand, frame.kind, outcomes.decode(frame.body))
        except (ValueError, RecursionError) as error:  # msgspec's and our own errors about data are ValueErrors
            self._bad(hand, frame, str(error))
            self._break(hand)  # it may have been an outcome: one is enough

    def _ready(self, hand: Handle) -> None:
        hand.welcomed = True
        log.info("worker ready", event=log.Event.WORKER_READY, component=hand.component, pid=hand.child.pid)
        paused = self._fleet.places[hand.component].paused
        self.tell(Framed(hand.component, "paused" if paused else "healthy"))
        self._ears.changed(hand.component)
        now = clock.monotonic()
        claim = self._ledger.welcome(hand.component, hand.crew, now)
        if claim is not None:
            self.hand_out(hand.component, claim)

    def _found(self, hand: Handle, body: FoundFrame) -> None:
        """A worker has looked for work in the application's tables."""
        search = self._ledger.searches.get(hand.crew)
        if search is None or search.asked != hand.component:
            raise ValueError("FOUND though it was not asked to look")
        now = clock.monotonic()
        found, error = (), body.error
        try:
            found = found_of(body)
        except ValueError as wrong:
            error = str(wrong)
        if error is not None:
            search.failed(error, now)
            log.error(
                "looking for work failed",
                event=log.Event.DISCOVER_FAILED,
                component=hand.component,
                error=summary(error),
            )
        else:
            search.found(found[-1].item if found else None, body.more and bool(found))
            crew = self._crews[hand.crew]
            page = Discovery(
                queue=crew.queue, found=found, priority=crew.priority, max_attempts=crew.max_attempts,
                timeout_ms=crew.timeout_ms,
            )  # fmt: skip
            self._ledger.chore(chores.QueueFound(hand.crew, page, search.looked_at), now, urgent=True)
        if not self._fleet.ended(hand.component, now, job=False):
            self._ledger.dismiss(hand.component)
        self._go_on(hand, self._ledger.looked(hand.component, now), now)

    def _go_on(self, hand: Handle, following: Todo | None, now: float) -> None:
        if following is not None:
            self.hand_out(hand.component, following)
        else:
            self.act(self._fleet.let_go(hand.component, now))

    def _outcome(self, hand: Handle, kind: str, body: OutcomeFrame) -> None:
        held = self._ledger.held.get(hand.component)
        claim = held and held.find(body.id)
        if held is None or claim is None or claim.fence != body.fence:
            raise ValueError(f"{kind} for a job that this worker does not have")
        outcome = outcome_of(kind, body)
        now = clock.monotonic()
        if held.others:
            self._fleet.one_ended(hand.component, body.id, now)
            self._ledger.finished(hand.component, outcome, now, hand.child.pid, body.id)
        else:
            if not self._fleet.ended(hand.component, now):
                self._ledger.dismiss(hand.component)
            self._go_on(hand, self._ledger.finished(hand.component, outcome, now, hand.child.pid), now)
        self._ears.worked(hand.component)
        if isinstance(outcome, Settled):
            self._ears.ended(hand.component, body.id, now - held.since)

    def _pulsed(self, hand: Handle, frame: Frame | BadFrame) -> None:
        try:
            if isinstance(frame, BadFrame):
                raise ValueError(frame.why)
            if frame.kind != "HEALTH":
                raise ValueError(f"unexpected {frame.kind}")
            health = healths.decode(frame.body)
            if (health.component_id, health.incarnation) != (hand.component, hand.child.mark):
                raise ValueError(f"health of somebody else: {health.component_id}")
        except (ValueError, RecursionError) as error:
            self._bad(hand, frame, str(error))
            return
        before = hand.health
        news = health.progress is not None and (health.current_job, health.progress)
        if news and before is not None and news == (before.current_job, before.progress):
            news = False
        if news:
            text = msgspec.json.encode(health.progress).decode()
            self._ledger.progress(hand.component, text, clock.monotonic(), health.current_job)
        hand.health, hand.bad_frames = health, 0
        self._ears.heard(hand.component, health.current_job, health.progress if news else None)
        heard_at, hand.heard_at = hand.heard_at, clock.monotonic()
        if hand.pulse is not None and not hand.pulse.deaf and hand.heard_at - heard_at < IN_A_ROW:
            hand.pulse.listen(False)
            self._rest(lambda: hand.pulse and hand.pulse.listen(True))
        # `healthy` counts only once READY has come on the work socket: the two sockets are not ordered.
        place = self._fleet.places[hand.component]
        early = place.status is Status.STARTING and health.status in ("healthy", "paused")
        shown = (place.status, place.flags)
        status = "starting" if early else health.status
        self.tell(Framed(hand.component, status, health.turns, health.memory))
        if (place.status, place.flags) != shown:
            self._ears.changed(hand.component)

    def _rest(self, then: Callable[[], object]) -> None:
        """Do that in a moment."""
        self._resting.append((clock.monotonic() + REST, then))

    def _printed(self, hand: Handle, line: OutputLine) -> None:
        if line.job is None:
            held = self._ledger.held.get(hand.component)
            line.job = held.claim.id if held and not held.others else None
        self._ears.said(hand.component, line)

    def _bad(self, hand: Handle, frame: Frame | BadFrame, why: str) -> None:
        hand.keep_bad(frame, why)
        log.warning("bad frame", component=hand.component, pid=hand.child.pid, why=why)
        if hand.bad_frames >= MOST_BAD_FRAMES:
            self._break(hand)

    def _break(self, hand: Handle) -> None:
        """Listen to this worker no more, and have it replaced."""
        for channel in (hand.work, hand.pulse):
            assert channel is not None
            channel.close()
        if hand.exit is None:
            self.tell(Broken(hand.component))


def _earliest(*moments: float | None) -> float | None:
    return min((moment for moment in moments if moment is not None), default=None)
