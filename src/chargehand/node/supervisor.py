"""Starts workers, reads what they send, and carries out what the fleet and the ledger decide.

Nothing here blocks, sleeps, or calls the store. Everything runs on the node's main thread, because the kernel ends a
worker together with the thread that started it.
"""

import signal
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, assert_never

import msgspec

from chargehand import clock, log
from chargehand.errors import summary
from chargehand.model import chores
from chargehand.model.fleet.cards import VISIBLE
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.lifecycle import (
    Action,
    Ask,
    BreakerClosed,
    BreakerOpened,
    Broken,
    CancelJob,
    Dismiss,
    DumpStacks,
    Event,
    Examine,
    Examined,
    Exited,
    ExpireJob,
    Forgiven,
    Framed,
    GivenUp,
    Kill,
    MoreTime,
    NotStarted,
    Occupied,
    Removed,
    Replace,
    Report,
    SetPaused,
    Spawn,
    Started,
    Status,
    StopAsked,
    Suspected,
    Terminate,
    Tick,
    Unsound,
)
from chargehand.model.fleet.place import Place
from chargehand.model.held import longest
from chargehand.model.job import KEPT_LIMIT, Claim, Done, Found, Outcome, Settled
from chargehand.model.ledger import SUCCESSES, Begun, Hand, Ledger, Todo
from chargehand.model.records import Discovery
from chargehand.model.search import Look, look_name
from chargehand.node.handle import Handle, start_worker
from chargehand.node.loop import Channel, Loop
from chargehand.node.output import OutputLine
from chargehand.node.reaper import Reaper, crash_report
from chargehand.processes import proc
from chargehand.processes.child import spawn_error
from chargehand.processes.leftovers import Life
from chargehand.processes.record import ProcessRecord
from chargehand.protocol.frame import BadFrame, Frame, encode
from chargehand.protocol.worker import (
    FoundFrame,
    KeepFrame,
    OutcomeFrame,
    ProgressFrame,
    ResultsFrame,
    ahead_frame,
    batch_frame,
    brokens,
    fatals,
    found_of,
    founds,
    healths,
    job_frame,
    keeps,
    more_times,
    outcome_of,
    outcomes,
    questions,
)
from chargehand.settings.plan import CrewPlan, NodePlan

REST = 0.02
"""Seconds for which a worker's health socket is not read after two frames in quick succession: short jobs change its
state thousands of times a second, each change would wake the node, and only the newest state matters."""
IN_A_ROW = 1.0
"""Most seconds between two frames in quick succession: a heartbeat of an idle worker costs one wake-up, not two."""
MOST_IDLE_TURN = 5.0
SEVERAL, TOGETHER = 4, 0.0005
"""From this number of jobs in a worker's hand on, its outcomes are read after so many seconds, all at once: each would
wake the node otherwise."""


class SupervisorEvents(Protocol):
    """What the supervisor reports to the node, beside what it tells the fleet and the ledger."""

    def ended(self, component: str, job_id: str, seconds: float, flows: Sequence[str]) -> None:
        """A worker settled this job, which took so many seconds, in a transaction of its own; these flows ended."""

    def keep(self, chore: chores.Chore) -> None:
        """The store is to write this."""

    def given_up(self, component: str, reason: str) -> None:
        """The fleet gave this worker up."""

    def restarted(self, component: str) -> None:
        """The crashes or restarts of this worker have changed."""

    def changed(self, component: str) -> None:
        """The state of this worker, as readers see it, may have changed."""

    def began(self, component: str, todo: Begun) -> None:
        """A worker was handed a job, several jobs, or a look for items."""

    def worked(self, component: str) -> None:
        """A worker has finished a job or a look."""

    def asked(self, component: str, question: ResultsFrame) -> None:
        """A job asks for results of the jobs that it followed."""

    def heard(self, component: str, job: str | None, progress: ProgressFrame | None) -> None:
        """A worker sent a health frame; `progress` is given only if it changed."""

    def left(self, claims: Sequence[Claim]) -> None:
        """A worker has died while it held these claims."""

    def said(self, component: str, line: OutputLine) -> None:
        """A worker printed or logged a line."""


class Supervisor:
    """Owns the worker processes of this node. The node calls `next_due`, `tick`, `stop`, `hand_out` and `act`."""

    def __init__(
        self, loop: Loop, plan: NodePlan, fleet: Fleet, ledger: Ledger, lives: ProcessRecord, events: SupervisorEvents
    ) -> None:
        self._loop, self._plan, self._fleet, self._ledger, self._lives = loop, plan, fleet, ledger, lives
        self._events = events
        self._crews = {crew.name: crew for crew in plan.crews}
        self.handles: dict[str, Handle] = {}
        self.files_owner: str | None = None
        """The name of the store among those that may have the same folder for files of jobs."""
        self._reaper = Reaper(loop, fleet, ledger, lives, self.handles, self._take_back, self._exited, events.left)
        self._resting: deque[tuple[float, Callable[[], object]]] = deque()
        """Sockets and pipes that are not read for a moment: when to go on, and how."""
        self._at_work: dict[str, float] = {}
        """Workers with several jobs in hand, whose outcomes are read together: when."""
        self._replanned = True
        """Whether the fleet's next due time must be computed again."""
        self._planned: float | None = None
        """The fleet's next due time, or an earlier job timeout; it may be too early, never too late."""

    # deadlines

    def next_due(self) -> float | None:
        """Returns when `tick` has something to do, or an earlier time. It changes far less often than jobs end."""
        if self._replanned or self._reaper.dying:
            self._replanned = False
            self._planned = _earliest(self._fleet.next_due(), *self._reaper.next_due())
        due = self._planned
        if self._at_work:
            due = _earliest(due, *self._at_work.values())
        return _earliest(due, self._resting[0][0]) if self._resting else due

    def tick(self, now: float, *, late: bool) -> None:
        """Let the fleet act on the time that passed. A late step reads every health socket before it judges silence."""
        while self._resting and (late or self._resting[0][0] <= now):
            self._resting.popleft()[1]()
        for component in [component for component, due in self._at_work.items() if late or due <= now]:
            self._read_work(component)
        if late:
            for handle in self.handles.values():
                if handle.pulse is not None:
                    handle.pulse.drain()
        self._reaper.check_again(now)
        if (self._planned is None or self._planned > now) and not (late or self._reaper.dying or self._replanned):
            return  # only sockets were due
        self.act(self._fleet.handle(Tick(), now))  # `now` was read when it was known that this process was not held up

    def beat(self) -> None:
        """Do what is due at every heartbeat of the node."""
        self._reaper.beat()

    def keep_free(self, unkillable: Sequence[Life]) -> None:
        """Fill no place whose earlier process cannot be killed, and fill a place that became free."""
        by = {life.component: life.pid for life in unkillable}
        for component in {*self._fleet.places, *self._fleet.occupied, *by}:
            self.tell(Occupied(component, by.get(component)))
        for component, pid in by.items():
            log.error("an earlier worker cannot be killed and keeps its job", component=component, pid=pid)

    def stop(self) -> None:
        """Ask every worker to stop. The fleet enforces the grace period."""
        self.tell(StopAsked())

    @property
    def gone(self) -> bool:
        """Whether no worker process, nothing that one started, and no output of one is left."""
        return not self.handles and not self._reaper.dying and not self._resting and self._fleet.all_gone()

    # decisions and actions

    def tell(self, event: Event) -> None:
        """Pass an event to the fleet, and carry out the actions that it returns."""
        self.act(self._fleet.handle(event, clock.monotonic()))

    def _exited(self, event: Exited) -> None:
        """Pass an exit to the fleet. A planned exit has no action, but readers must see it."""
        self.tell(event)
        self._events.changed(event.component)

    def act(self, actions: Sequence[Action]) -> None:
        """Carry out the fleet's actions."""
        self._replanned = True
        for action in actions:
            self._act(action)
            if not isinstance(action, Examine | BreakerOpened | BreakerClosed):
                self._events.changed(action.component)
        for component in self._fleet.unsaved():
            self._events.restarted(component)
        for component in self._fleet.take_waiting():
            self._events.changed(component)

    def _act(self, action: Action) -> None:
        match action:
            case Spawn(component):
                self._spawn(component)
            case Ask(component):
                self._ask(self.handles[component])
            case SetPaused(component, paused):
                self._tell_pulse(self.handles[component], "PAUSE" if paused else "RESUME", {})
            case CancelJob(component, job):
                claim = self._ledger.held[component].claims[job]
                log.info("a running job is asked to cancel", component=component, job=job, item=claim.item)
                self._tell_pulse(self.handles[component], "CANCEL", {"id": job, "fence": claim.number})
            case ExpireJob(component, job):
                held = self._ledger.held.get(component)
                claim = held and held.find(job)
                log.warning("a running job has exceeded its timeout and is asked to end", component=component, job=job)
                about = {"id": job, "fence": claim.number if claim else 0, "late": True}
                self._tell_pulse(self.handles[component], "CANCEL", about)
            case Dismiss(component):
                self._dismiss(component)
            case DumpStacks(component, reason):
                job = self._fleet.places[component].doing
                pid = self.handles[component].child.pid
                log.warning(
                    "worker will be killed after a stack dump", component=component, pid=pid, reason=reason, job=job
                )
                self.handles[component].dump_last_stacks()
            case Terminate(component):
                self._terminate(self.handles[component])
            case Kill(component, reason):
                log.warning(
                    "worker force-killed", event=log.Event.WORKER_KILLED, component=component,
                    pid=self.handles[component].child.pid, reason=reason,
                )  # fmt: skip
                self._kill(self.handles[component])
            case Examine(component):
                flags, handle = self._fleet.places[component].flags, self.handles[component]
                behind = handle.output is not None and handle.output.was_behind()
                pulse = handle.health.pulse if handle.health else 0
                self.tell(Examined(component, proc.usage_of(handle.child.pid, pulse), behind))
                if self._fleet.places[component].flags != flags:
                    self._events.changed(component)
            case Report():
                self._events.keep(chores.KeepReport(crash_report(action)))
            case Suspected(component, text):
                log.warning(
                    "worker will be replaced: its process may be broken",
                    event=log.Event.WORKER_SUSPECT,
                    component=component,
                    pid=self._fleet.places[component].last_pid,
                    reason=text,
                )
            case GivenUp(component, reason):
                remedy = f"chargehand reset {component}"
                log.error(
                    "worker given up",
                    event=log.Event.WORKER_GIVEN_UP,
                    component=component,
                    pid=self._fleet.places[component].last_pid,
                    reason=summary(reason),
                    remedy=remedy,
                )
                self._events.given_up(component, reason)
            case Forgiven(component):
                self._events.keep(chores.Forgive(component))
            case Replace(component, reason, pause):
                log.warning(
                    "worker will be started again",
                    event=log.Event.WORKER_DELAYED,
                    component=component,
                    pid=self._fleet.places[component].last_pid,
                    reason=summary(reason),
                    in_s=f"{pause:.2f}",
                )
            case BreakerOpened(crew, cause, probe):
                log.error(
                    "all workers of a crew crashed for the same cause; one is started as a probe",
                    event=log.Event.BREAKER_OPENED,
                    crew=crew,
                    cause=cause,
                    tried=probe,
                )
            case BreakerClosed(crew, why):
                log.info("the other workers of the crew start again", crew=crew, why=why)
            case Removed(component):
                log.info("worker removed", component=component)
            case _:
                assert_never(action)

    def _kill(self, handle: Handle) -> None:
        handle.killed = True
        handle.child.signal_session(signal.SIGKILL)

    def _tell_pulse(self, handle: Handle, kind: str, body: dict[str, Any]) -> None:
        assert handle.pulse is not None
        handle.pulse.send(encode(kind, body))

    def _terminate(self, handle: Handle) -> None:
        """Send SIGTERM to what the worker started, with the worker stopped: it would take their exits for results."""
        log.warning(
            "worker terminated", event=log.Event.WORKER_TERMINATED, component=handle.component, pid=handle.child.pid
        )
        handle.child.signal(signal.SIGSTOP)
        if handle.work is not None:
            handle.work.drain()
            handle.work.close()
        handle.child.signal_descendants(signal.SIGTERM)

    def kill_all(self) -> None:
        """Kill every worker and what it started, without a grace period. Their jobs are released as interrupted."""
        for handle in self.handles.values():
            self._kill(handle)

    def _ask(self, handle: Handle) -> None:
        self._dismiss(handle.component)
        for channel in (handle.work, handle.pulse):
            if channel is not None:
                channel.send(encode("STOP", {}))

    def _spawn(self, component: str) -> None:
        place = self._fleet.places[component]
        crew = self._crews[place.crew]
        mark = f"{self._lives.mark}/{component}/{place.life}"
        try:
            environment = crew.environment_of(place.index)
            if place.gpus:
                environment[VISIBLE] = ",".join(gpu.uuid for gpu in place.gpus)
            handle, ends = start_worker(component, place.crew, mark, environment, self._lives)
        except OSError as error:
            self.tell(NotStarted(component, f"not started: {spawn_error(error)}"))
            return
        self._lives.add(handle.child)
        self.handles[component] = handle
        handle.listen(
            self._loop,
            ends,
            self._worked_all,
            self._pulsed,
            self._printed,
            self._job_of,
            self._rest,
            self._has_read,
            self._speaks,
        )
        self._loop.add(handle.child.pidfd, lambda _: self._reaper.on_exit(handle))
        assert handle.work is not None
        handle.work.send(encode("INIT", self._init(handle, crew, mark)))
        log.info("worker spawned", event=log.Event.WORKER_SPAWNED, component=component, pid=handle.child.pid)
        self.tell(Started(component, handle.child.pid))

    def _init(self, handle: Handle, crew: CrewPlan, mark: str) -> dict[str, Any]:
        plan, component = self._plan, handle.component
        return {
            "component": component,
            "life": mark,
            "log_secret": handle.log_secret,
            "crew": crew.name,
            "handler": crew.handler,
            "python_path": plan.python_path,
            "paused": self._fleet.places[component].paused,
            "threads": crew.threads,
            "batch": crew.batch,
            "concurrency": crew.concurrency,
            # The heartbeats of a worker with several jobs show whether its event loop runs.
            "beat": plan.liveness.beat if crew.concurrency == 1 else min(plan.liveness.beat, plan.liveness.lag / 2),
            "turn": min(MOST_IDLE_TURN, plan.liveness.idle / 4),
            "lag": plan.liveness.lag,
            "grace": plan.liveness.grace + plan.liveness.terminate,
            "node": plan.node,
            "node_life": self._lives.life,
            "store": plan.store if crew.transactional else None,
            "files": plan.files,
            "files_limit": plan.files_limit,
            "files_owner": self.files_owner,
            "takes": crew.takes,
            "gives": crew.gives,
            "retry_on": crew.retry_on,
            "give_up_on": crew.give_up_on,
            "hide": crew.hide,
            "hooks": {} if plan.hooks.is_receiver(crew.queue) else plan.hooks.in_worker,
            "synchronous": plan.synchronous,
            "crews": {name: msgspec.to_builtins(other) for name, other in self._crews.items()},
        }

    # what workers send

    def hand_out(self, component: str, todo: Todo) -> None:
        """Send the worker a job, several jobs, or a request to look for items."""
        handle = self.handles[component]
        assert handle.work is not None
        if isinstance(todo, Claim):  # the most frequent case first
            handle.work.send(job_frame(todo))
            timeout = None if todo.timeout_ms is None else todo.timeout_ms / 1000
            self._began(component, todo, todo.id, timeout, clock.monotonic())
            return
        if self._crews[handle.crew].concurrency > 1:
            self._hand_out_each(handle, handle.work, todo)
            return
        others: Sequence[str] = ()
        if isinstance(todo, Hand):
            self._send_hand(handle, todo)
            if todo.first is None:
                return
            todo = todo.first
            job, timeout = todo.id, None if todo.timeout_ms is None else todo.timeout_ms / 1000
        elif isinstance(todo, Look):
            handle.work.send(encode("LOOK", {"after": todo.after, "limit": todo.limit}))
            job, timeout = look_name(todo.crew), self._plan.discovery.timeout
        else:
            handle.work.send(batch_frame(todo))
            job, timeout, others = todo[0].id, longest(todo), [other.id for other in todo[1:]]
        self._began(component, todo, job, timeout, clock.monotonic(), others)

    def _send_hand(self, handle: Handle, hand: Hand) -> None:
        """Send the worker short jobs, with permits to begin them, which it must have when the jobs arrive."""
        assert handle.work is not None
        if hand.first is not None and hand.permit:
            jobs = (hand.first, *hand.ahead)
            handle.work.send(ahead_frame(handle.permits.give(len(jobs)), jobs, first=True))
        else:
            ahead = ahead_frame(handle.permits.give(len(hand.ahead)), hand.ahead)
            handle.work.send(ahead if hand.first is None else job_frame(hand.first) + ahead)

    def _began(
        self,
        component: str,
        todo: Begun,
        job: str,
        timeout: float | None,
        now: float,
        others: Sequence[str] = (),
    ) -> None:
        """Tell others that a worker has begun this."""
        self._fleet.began(component, job, timeout, now, others)
        if timeout is not None and (self._planned is None or now + timeout < self._planned):
            self._planned = now + timeout
        self._events.began(component, todo)

    def _hand_out_each(self, handle: Handle, work: Channel, todo: Todo) -> None:
        """Send jobs, or a request to look for items, to a worker that performs several at the same time."""
        if isinstance(todo, Look):
            work.send(encode("LOOK", {"after": todo.after, "limit": todo.limit}))
            begun: list[tuple[str, float | None]] = [(look_name(todo.crew), self._plan.discovery.timeout)]
        else:
            assert isinstance(todo, list)
            claims = todo
            work.send(b"".join(job_frame(claim) for claim in claims))
            begun = [(claim.id, None if claim.timeout_ms is None else claim.timeout_ms / 1000) for claim in claims]
        now = clock.monotonic()
        for job, timeout in begun:
            self._fleet.began(handle.component, job, timeout, now)
            if timeout is not None and (self._planned is None or now + timeout < self._planned):
                self._planned = now + timeout
        self._events.began(handle.component, todo)

    # jobs that workers have not begun

    def call_back(self, components: Sequence[str] | None = None) -> None:
        """Call back the jobs that these workers (None: all) have not begun. What they have begun is known then."""
        called = self._ledger.hands() if components is None else components
        self._ledger.filling = False
        for component in called:
            self._take_back(self.handles[component])
            # A worker sends an outcome before it takes its next permit: after this its first job is what it performs.
            self._read_work(component)
        self._ledger.filling = True

    def call_back_due(self, now: float) -> None:
        """Call back jobs that wait behind one that takes long, or while another worker is idle, and hand them out."""
        due = self._ledger.recalls(now)
        if due:
            self.call_back(due)
            self.spread()

    def spread(self) -> None:
        """Hand jobs that were called back to idle workers."""
        for component, todo in self._ledger.spread(clock.monotonic()):
            self.hand_out(component, todo)

    def _dismiss(self, component: str) -> None:
        """Give no more jobs to a worker, and hand those that it has not begun to others."""
        self._ledger.dismiss(component)
        if component in self.handles:
            self._take_back(self.handles[component])

    def _take_back(self, handle: Handle) -> None:
        """Take back what a worker has not begun, and hand it to others if the worker leaves."""
        held = self._ledger.held.get(handle.component)
        if held is None or not held.unsure:
            return
        now = clock.monotonic()
        behind = handle.work is not None and handle.work.clogged
        if self._ledger.recalled(handle.component, handle.permits.take_back(), now, behind=behind):
            self._fleet.ended(handle.component, now, job=False)
            self.act(self._fleet.let_go(handle.component, now))
        if self._ledger.filling:
            self.spread()

    def _has_read(self, handle: Handle) -> None:
        """Hand out jobs to a worker that has begun none of its last ones, because it did not read."""
        todo = self._ledger.has_read(handle.component, clock.monotonic())
        if todo is not None:
            self.hand_out(handle.component, todo)

    def _read_work(self, component: str) -> None:
        """Read the outcomes that a worker has sent, and listen to it again unless it has several more jobs."""
        self._at_work.pop(component, None)
        handle = self.handles.get(component)
        if handle is not None and handle.work is not None and handle.work.open:
            handle.work.drain()
            if component not in self._at_work:
                handle.work.listen(True)

    def _worked_all(self, handle: Handle, frames: Sequence[Frame | BadFrame]) -> None:
        """Handle the frames of one read on the work socket."""
        every = self._ledger.held
        held = every.get(handle.component)
        if len(frames) == 1 and (held is None or not (held.ahead or held.sent_ahead or held.permitted)):
            self._worked(handle, frames[0])
        else:
            if handle.output is not None:
                handle.output.catch_up()  # what these jobs have printed, before the next one begins
            self._worked_one_by_one(handle, frames)
        held = every.get(handle.component)
        if held and len(held.ahead) >= SEVERAL and handle.work is not None and handle.work.open:
            handle.work.listen(False)
            self._at_work[handle.component] = clock.monotonic() + TOGETHER

    def _worked_one_by_one(self, handle: Handle, frames: Sequence[Frame | BadFrame]) -> None:
        """Handle several frames. Jobs that ended well one after the other count together."""
        component = handle.component
        ends: list[tuple[Done, float | None]] = []
        for frame in frames:
            held = self._ledger.held.get(component)
            if isinstance(frame, Frame) and frame.kind == "DONE" and held is not None and held.ahead:
                claim = held.claim if not ends else _at(held.ahead, len(ends) - 1)
                try:
                    ends.append(self._done(claim, outcomes.decode(frame.body)))
                    continue
                except (ValueError, RecursionError) as error:
                    self._ended_well(handle, ends)
                    self._bad(handle, frame, str(error))
                    self._break(handle)
                    return
            if ends:
                self._ended_well(handle, ends)
                ends = []
            self._worked(handle, frame)
            if handle.work is None or not handle.work.open:
                return
        self._ended_well(handle, ends)

    def _done(self, claim: Claim | None, body: OutcomeFrame) -> tuple[Done, float | None]:
        """Returns the good end of this job, and the seconds that it took. Raises ValueError if it is another job."""
        if claim is None or claim.id != body.id or claim.number != body.claim:
            raise ValueError("DONE names a job that this worker does not hold")
        outcome = outcome_of("DONE", body)
        assert isinstance(outcome, Done)
        return outcome, None if body.us is None else body.us / 1e6

    def _ended_well(self, handle: Handle, ends: Sequence[tuple[Done, float | None]]) -> None:
        """Handle the good ends of a worker's first jobs."""
        if not ends:
            return
        now, component = clock.monotonic(), handle.component
        if not self._fleet.ended(component, now, jobs=len(ends)):
            self._dismiss(component)
        following = self._ledger.finished_all(component, ends, now, handle.child.pid)
        self._go_on(handle, following, now)
        self._events.worked(component)

    def _worked(self, handle: Handle, frame: Frame | BadFrame) -> None:
        """Handle a frame on the work socket. A bad one can do no more than end the worker's own job."""
        try:
            if isinstance(frame, BadFrame):
                raise ValueError(frame.why)
            if frame.kind == "DONE":  # the most frequent kind first
                self._outcome(handle, frame.kind, outcomes.decode(frame.body))
            elif frame.kind == "READY":
                if handle.welcomed:
                    raise ValueError("READY was sent twice")
                self._ready(handle)
            elif frame.kind == "FATAL":
                handle.said = fatals.decode(frame.body)
            elif frame.kind == "BROKEN":
                self._unsound(handle, brokens.decode(frame.body).why)
            elif frame.kind == "FOUND":
                self._found(handle, founds.decode(frame.body))
            elif frame.kind == "KEEP":
                self._kept(handle, keeps.decode(frame.body))
            elif frame.kind == "RESULTS":
                self._events.asked(handle.component, questions.decode(frame.body))
            elif frame.kind == "MORETIME":
                self.tell(MoreTime(handle.component, more_times.decode(frame.body).seconds))
            else:
                self._outcome(handle, frame.kind, outcomes.decode(frame.body))
        except (ValueError, RecursionError) as error:  # errors of msgspec and of our own checks are ValueErrors
            self._bad(handle, frame, str(error))
            self._break(handle)  # it may have been an outcome: one bad frame is enough

    def _kept(self, handle: Handle, body: KeepFrame) -> None:
        """Handle a checkpoint. One of a job that has ended is ignored: a thread that the job left running sent it."""
        state = bytes(body.state).decode()
        if len(state) > KEPT_LIMIT:
            raise ValueError(f"a checkpoint of {len(state)} characters; the maximum is {KEPT_LIMIT}")
        self._ledger.keep(handle.component, body.id, body.claim, state, clock.monotonic())

    def _ready(self, handle: Handle) -> None:
        handle.welcomed = True
        log.info("worker ready", event=log.Event.WORKER_READY, component=handle.component, pid=handle.child.pid)
        paused = self._fleet.places[handle.component].paused
        self.tell(Framed(handle.component, "paused" if paused else "healthy"))
        self._events.changed(handle.component)
        now = clock.monotonic()
        jobs = self._crews[handle.crew].recycle_jobs
        claim = self._ledger.welcome(handle.component, handle.crew, now, handle.child.mark, jobs)
        if claim is not None:
            self.hand_out(handle.component, claim)

    def _unsound(self, handle: Handle, why: str) -> None:
        """Handle the report of a worker that its own process is broken."""
        handle.broken = why
        self._ledger.broke(handle.component)
        log.warning(
            "worker reported that its process is broken", event=log.Event.WORKER_BROKEN, component=handle.component,
            pid=handle.child.pid, why=summary(why),
        )  # fmt: skip
        self.tell(Unsound(handle.component))

    def replace_distrusted(self) -> None:
        """Have the workers replaced whose processes the ledger does not trust."""
        for distrust in self._ledger.take_distrusted():
            self.act(self._fleet.distrust(distrust.worker, distrust.text, clock.monotonic()))

    def _found(self, handle: Handle, body: FoundFrame) -> None:
        """Handle the page of items that a worker's `discover` returned."""
        search = self._ledger.searches.get(handle.crew)
        if search is None or search.asked != handle.component:
            raise ValueError("FOUND was sent by a worker that was not asked to look")
        now = clock.monotonic()
        found: tuple[Found, ...] = ()
        try:
            found = found_of(body)
            error = search.found([each.item for each in found], body.more and bool(found), now)
        except ValueError as wrong:
            error = str(wrong)
            search.failed(error, now)
        if error is not None:
            log.error(
                "discover failed",
                event=log.Event.DISCOVER_FAILED,
                component=handle.component,
                error=summary(error),
            )
        else:
            crew = self._crews[handle.crew]
            page = Discovery(
                queue=crew.queue, found=found, priority=crew.priority, max_attempts=crew.max_attempts,
                timeout_ms=crew.timeout_ms, most_done=self._plan.discovery.most_done,
                window_ms=round(self._plan.discovery.window * 1000),
            )  # fmt: skip
            self._ledger.chore(chores.QueueFound(handle.crew, page, search.looked_at), now, urgent=True)
        if self._crews[handle.crew].concurrency > 1:
            self._looked_beside_jobs(handle, now)
            return
        if not self._fleet.ended(handle.component, now, job=False):
            self._dismiss(handle.component)
        self._go_on(handle, self._ledger.looked(handle.component, now), now)

    def _go_on(self, handle: Handle, following: Todo | None, now: float) -> None:
        if isinstance(following, Claim):  # the most frequent case first
            self.hand_out(handle.component, following)
            return
        held = self._ledger.held.get(handle.component)
        if held is not None and not held.others and (following is None or _continues(following)):
            timeout = None if held.claim.timeout_ms is None else held.claim.timeout_ms / 1000
            self._began(handle.component, held.claim, held.claim.id, timeout, now)
        if following is not None:
            self.hand_out(handle.component, following)
        elif held is None:
            self.act(self._fleet.let_go(handle.component, now))

    def _outcome(self, handle: Handle, kind: str, body: OutcomeFrame) -> None:
        held = self._ledger.held.get(handle.component)
        claim = held and held.find(body.id)
        if held is None or claim is None or claim.number != body.claim or (held.ahead and claim is not held.claim):
            raise ValueError(f"{kind} names a job that this worker does not hold")
        outcome = outcome_of(kind, body)
        since = held.since
        now = clock.monotonic()
        if self._crews[handle.crew].concurrency > 1:
            since = held.since_of(body.id)
            self._one_of_several(handle, outcome, body.id, now)
            self._events.worked(handle.component)
            if isinstance(outcome, Settled):
                self._events.ended(handle.component, body.id, now - since, body.flows)
            return
        if not isinstance(outcome, SUCCESSES):
            self._take_back(handle)  # it begins no other job until it is handed one
        if held.others:
            self._fleet.one_ended(handle.component, body.id, now)
            self._ledger.finished(handle.component, outcome, now, handle.child.pid, body.id)
        else:
            if not self._fleet.ended(handle.component, now):
                self._dismiss(handle.component)
            took = None if body.us is None else body.us / 1e6
            following = self._ledger.finished(handle.component, outcome, now, handle.child.pid, seconds=took)
            if self._ledger.distrusted:
                self.replace_distrusted()
            self._go_on(handle, following, now)
        self._events.worked(handle.component)
        if isinstance(outcome, Settled):
            self._events.ended(handle.component, body.id, now - since, body.flows)

    def _one_of_several(self, handle: Handle, outcome: Outcome, job: str, now: float) -> None:
        """Handle the end of one of the jobs that a worker performs at the same time."""
        if not self._fleet.slot_ended(handle.component, job, now):
            self._dismiss(handle.component)
        self._ledger.block(handle.component, False)
        self._ledger.finished(handle.component, outcome, now, handle.child.pid, job)
        if self._ledger.distrusted:
            self.replace_distrusted()
        self._perhaps_let_go(handle, now)

    def _looked_beside_jobs(self, handle: Handle, now: float) -> None:
        """Handle the end of a call of `discover` in a worker that performs several jobs at the same time."""
        if not self._fleet.slot_ended(handle.component, look_name(handle.crew), now, work=False):
            self._dismiss(handle.component)
        self._ledger.looked(handle.component, now)
        self._perhaps_let_go(handle, now)

    def _perhaps_let_go(self, handle: Handle, now: float) -> None:
        """Have a worker stopped that holds nothing any more, if it is to leave."""
        if self._fleet.places[handle.component].job is None:
            self.act(self._fleet.let_go(handle.component, now))

    def _pulsed(self, handle: Handle, frame: Frame | BadFrame) -> None:
        try:
            if isinstance(frame, BadFrame):
                raise ValueError(frame.why)
            if frame.kind != "HEALTH":
                raise ValueError(f"unexpected {frame.kind}")
            health = healths.decode(frame.body)
            if (health.component_id, health.incarnation) != (handle.component, handle.child.mark):
                raise ValueError(f"health frame of another component: {health.component_id}")
        except (ValueError, RecursionError) as error:
            self._bad(handle, frame, str(error))
            return
        before = handle.health
        news = health.progress is not None and (health.current_job, health.progress)
        if news and before is not None and news == (before.current_job, before.progress):
            news = False
        if news:
            text = msgspec.json.encode(health.progress).decode()
            self._ledger.progress(handle.component, text, clock.monotonic(), health.current_job)
        handle.health, handle.bad_frames = health, 0
        ended = before is None or (health.done, health.errors) != (before.done, before.errors)
        handle.strays.look(active=ended or health.current_job is not None)
        self._events.heard(handle.component, health.current_job, health.progress if news else None)
        for other in health.others:
            text = msgspec.json.encode(other.progress).decode()
            self._ledger.progress(handle.component, text, clock.monotonic(), other.job)
            self._events.heard(handle.component, other.job, other.progress)
        heard_at, handle.heard_at = handle.heard_at, clock.monotonic()
        if handle.pulse is not None and not handle.pulse.deaf and handle.heard_at - heard_at < IN_A_ROW:
            handle.pulse.listen(False)
            self._rest(lambda: handle.pulse and handle.pulse.listen(True))
        # `healthy` counts only once READY has come on the work socket: the two sockets are not ordered.
        place = self._fleet.places[handle.component]
        early = place.status is Status.STARTING and health.status in ("healthy", "paused")
        shown = (place.status, place.flags)
        status = "starting" if early else health.status
        self.tell(Framed(handle.component, status, health.turns, health.memory))
        if (place.status, place.flags) != shown:
            self._events.changed(handle.component)
            self._check_loop(handle, place)

    def _check_loop(self, handle: Handle, place: Place) -> None:
        """Give no jobs to a worker whose event loop is blocked."""
        if place.concurrency == 1:
            return
        self._ledger.block(handle.component, place.stalled)
        if place.stalled:
            log.warning(
                "worker's event loop is blocked: a job of the crew calls code that does not await",
                event=log.Event.LOOP_BLOCKED, component=handle.component, pid=handle.child.pid, job=place.doing,
                remedy=f"chargehand stack {handle.component}",
            )  # fmt: skip

    def _rest(self, then: Callable[[], object]) -> None:
        """Call this after a short rest."""
        self._resting.append((clock.monotonic() + REST, then))

    def _printed(self, handle: Handle, line: OutputLine) -> None:
        self._events.said(handle.component, line)

    def _job_of(self, handle: Handle) -> str | None:
        """Returns the job that the worker's output belongs to."""
        held = self._ledger.held.get(handle.component)
        if held is None or held.others or held.ahead or held.sent_ahead:
            return None  # it may be of another job, of the one before or of the next one
        return held.claim.id

    def _speaks(self, handle: Handle) -> None:
        """Have the crew of a worker that has printed text handed one job at a time: the text does not name its job."""
        held = self._ledger.held.get(handle.component)
        if held is not None and (held.ahead or held.sent_ahead):
            self._ledger.speaks(handle.component, clock.monotonic())

    def _bad(self, handle: Handle, frame: Frame | BadFrame, why: str) -> None:
        handle.keep_bad_frame(frame, why)
        log.warning("bad frame", component=handle.component, pid=handle.child.pid, why=why)
        if handle.bad_frames >= self._plan.liveness.bad_frames:
            self._break(handle)

    def _break(self, handle: Handle) -> None:
        """Stop reading from this worker, and have it replaced."""
        for channel in (handle.work, handle.pulse):
            assert channel is not None
            channel.close()
        if handle.exit is None:
            self.tell(Broken(handle.component))


def _continues(todo: Todo) -> bool:
    """Whether a worker that receives this goes on with a job that it has."""
    return isinstance(todo, Hand) and todo.first is None


def _at(claims: deque[Claim], index: int) -> Claim | None:
    return claims[index] if index < len(claims) else None


def _earliest(*moments: float | None) -> float | None:
    return min((moment for moment in moments if moment is not None), default=None)
