"""The hands: start workers, listen to them, bury them. What is to be done is decided by the fleet and the ledger.

Nothing here blocks, sleeps, or calls the store. Everything runs on the node's main thread, because workers die with
the thread that started them.
"""

import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, assert_never

import msgspec

from chargehand import clock, launch, log
from chargehand.config import CrewPlan, NodePlan
from chargehand.errors import EXIT_CONFIGURATION, EXIT_UNRECOVERABLE, summary
from chargehand.lives import Lives
from chargehand.messages import (
    FatalFrame,
    HealthFrame,
    OutcomeFrame,
    fatals,
    healths,
    job_frame,
    more_times,
    outcome_of,
    outcomes,
)
from chargehand.model.fleet import Fleet
from chargehand.model.frame import WORK_FRAME_LIMIT, BadFrame, Frame, encode
from chargehand.model.job import Claim, Crashed, Interrupted, Outcome, Settled
from chargehand.model.ledger import Ledger
from chargehand.model.lifecycle import (
    Action,
    Ask,
    Broken,
    Event,
    Examine,
    Examined,
    Exited,
    Framed,
    GivenUp,
    Kill,
    MoreTime,
    NotStarted,
    Occupied,
    Replace,
    Spawn,
    Started,
    Status,
    StopAsked,
    Terminate,
    Tick,
)
from chargehand.wire import Channel, Loop

PULSE_FRAME_LIMIT = 64 << 10
REST = 0.02
"""Seconds for which a worker's pulse is not listened to after a frame: small jobs change its state thousands of times a
second, each of which would wake the node; of health only the newest matters."""
MOST_BAD_FRAMES = 3
"""In a row, on the pulse; after that the worker cannot be trusted."""
ASHES, LONGEST_ASHES = 0.001, 1.0
"""Seconds until it is looked again whether what a dead worker left is gone: at first, and at the most."""


class Hand:
    """One life of a worker, as the supervisor holds it."""

    def __init__(self, component: str, crew: str, child: launch.Child) -> None:
        self.component, self.crew, self.child = component, crew, child
        self.work: Channel | None = None
        self.pulse: Channel | None = None
        self.said: FatalFrame | None = None
        self.health: HealthFrame | None = None
        self.bad_frames = 0
        self.welcomed = False
        self.exit: tuple[int | None, int | None] | None = None
        self.look_at, self.patience = 0.0, ASHES


class Supervisor:
    """See the module. The node calls `step_due`, `tick`, `stop`, `hand_out`, `bury`."""

    def __init__(
        self, loop: Loop, plan: NodePlan, fleet: Fleet, ledger: Ledger, lives: Lives, on_end: Callable[[str], None]
    ) -> None:
        self._loop, self._plan, self._fleet, self._ledger, self._lives = loop, plan, fleet, ledger, lives
        self._on_end = on_end
        self._crews = {crew.name: crew for crew in plan.crews}
        self.hands: dict[str, Hand] = {}
        self._dying: dict[int, Hand] = {}
        """Dead workers, by pid, of whom something is still left."""
        self._resting: deque[tuple[float, Hand]] = deque()
        """Workers whose pulse is not listened to, and until when."""

    # time

    def next_due(self) -> float | None:
        """When `tick` has something to do."""
        due = [self._fleet.next_due()]
        due += [hand.look_at for hand in self._dying.values()]
        if self._resting:
            due.append(self._resting[0][0])
        return min((moment for moment in due if moment is not None), default=None)

    def tick(self, now: float, late: float) -> None:
        """Let time pass. A step that came late hears everybody before it judges anybody."""
        while self._resting and (late or self._resting[0][0] <= now):
            _, hand = self._resting.popleft()
            if hand.pulse is not None:
                hand.pulse.listen(True)
        if late:
            for hand in self.hands.values():
                if hand.pulse is not None:
                    hand.pulse.drain()
        for hand in [hand for hand in self._dying.values() if hand.look_at <= now]:
            self._bury(hand)
        self._tell(Tick(late))

    def keep_free(self, unkillable: Sequence[launch.Life]) -> None:
        """Fill no place whose earlier life cannot be killed; fill those again whose has gone."""
        by = {life.component: life.pid for life in unkillable}
        for component in self._fleet.places:
            self._tell(Occupied(component, by.get(component)))
        for component, pid in by.items():
            log.error("an earlier worker is unkillable; it keeps its job and its place", component=component, pid=pid)

    def stop(self) -> None:
        """Ask every worker to stop; the fleet presses on by itself."""
        self._tell(StopAsked())

    @property
    def gone(self) -> bool:
        """Whether no worker, and nothing of one, is left."""
        return not self.hands and not self._dying and self._fleet.all_gone()

    # decisions become acts

    def _tell(self, event: Event) -> None:
        for action in self._fleet.handle(event, clock.monotonic()):
            self._act(action)

    def _act(self, action: Action) -> None:
        match action:
            case Spawn(component):
                self._spawn(component)
            case Ask(component):
                self._ask(self.hands[component])
            case Terminate(component):
                self._terminate(self.hands[component])
            case Kill(component, reason):
                log.warning("worker force-killed", component=component, reason=reason)
                self.hands[component].child.signal_session(signal.SIGKILL)
            case Examine(component):
                self._tell(Examined(component, launch.cpu_of(self.hands[component].child)))
            case GivenUp(component, reason):
                log.error("worker given up", component=component, reason=summary(reason))
            case Replace(component, reason, pause):
                log.warning("worker to be respawned", component=component, reason=summary(reason), in_s=f"{pause:.2f}")
            case _:
                assert_never(action)

    def _terminate(self, hand: Hand) -> None:
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
            hand.child.signal_session(signal.SIGKILL)

    def _ask(self, hand: Hand) -> None:
        self._ledger.dismiss(hand.component)
        for channel in (hand.work, hand.pulse):
            if channel is not None:
                channel.send(encode("STOP", {}))

    def _spawn(self, component: str) -> None:
        place = self._fleet.places[component]
        crew = self._crews[place.crew]
        mark = f"{self._lives.mark}/{component}/{place.life}"
        pairs: list[tuple[socket.socket, socket.socket]] = []
        try:
            pairs += [socket.socketpair(), socket.socketpair()]
            theirs = [pair[1] for pair in pairs]
            child = launch.launch(
                f"from chargehand.worker import main; main({theirs[0].fileno()}, {theirs[1].fileno()}, {os.getpid()})",
                component,
                mark=mark,
                pass_fds=[sock.fileno() for sock in theirs],
                env={**os.environ, **{k: v.replace("{index}", str(place.index)) for k, v in crew.environment.items()}},
                name=component,
            )
        except OSError as error:
            for ours, _ in pairs:
                ours.close()
            self._tell(NotStarted(component, f"not started: {launch.spawn_error(error)}"))
            return
        finally:
            for _, sock in pairs:
                sock.close()
        (work, _), (pulse, _) = pairs
        self._lives.add(child)
        hand = Hand(component, place.crew, child)
        self.hands[component] = hand
        hand.work = Channel(self._loop, work, WORK_FRAME_LIMIT, lambda _, f: self._worked(hand, f), _unheeded)
        hand.pulse = Channel(self._loop, pulse, PULSE_FRAME_LIMIT, lambda _, f: self._pulsed(hand, f), _unheeded)
        self._loop.add(child.pidfd, lambda _: self._died(hand))
        hand.work.send(encode("INIT", self._init(component, crew, mark)))
        log.info("worker spawned", component=component, pid=child.pid)
        self._tell(Started(component, child.pid))

    def _init(self, component: str, crew: CrewPlan, mark: str) -> dict[str, Any]:
        plan = self._plan
        return {
            "component": component,
            "life": mark,
            "crew": crew.name,
            "handler": crew.handler,
            "python_path": plan.python_path,
            "beat": plan.liveness.beat,
            "grace": plan.liveness.grace + plan.liveness.terminate,
            "node": plan.node,
            "node_life": self._lives.life,
            "store": plan.store if crew.transactional else None,
            "crews": {name: msgspec.to_builtins(other) for name, other in self._crews.items()},
        }

    # a worker speaks

    def hand_out(self, component: str, claim: Claim) -> None:
        """Give the worker this job."""
        hand = self.hands[component]
        assert hand.work is not None
        hand.work.send(job_frame(claim))

    def _worked(self, hand: Hand, frame: Frame | BadFrame) -> None:
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
            elif frame.kind == "MORETIME":
                self._tell(MoreTime(hand.component, more_times.decode(frame.body).seconds))
            else:
                self._outcome(hand, frame.kind, outcomes.decode(frame.body))
        except (ValueError, RecursionError) as error:  # msgspec's and our own errors about data are ValueErrors
            self._bad(hand, str(error))
            self._break(hand)  # it may have been an outcome: one is enough

    def _ready(self, hand: Hand) -> None:
        hand.welcomed = True
        log.info("worker ready", component=hand.component, pid=hand.child.pid)
        self._tell(Framed(hand.component, "healthy"))
        now = clock.monotonic()
        claim = self._ledger.welcome(hand.component, hand.crew, now)
        if claim is not None:
            self.hand_out(hand.component, claim)

    def _outcome(self, hand: Hand, kind: str, body: OutcomeFrame) -> None:
        held = self._ledger.held.get(hand.component)
        if held is None or (held.claim.id, held.claim.fence) != (body.id, body.fence):
            raise ValueError(f"{kind} for a job that this worker does not have")
        outcome = outcome_of(kind, body)
        following = self._ledger.finished(hand.component, outcome, clock.monotonic(), hand.child.pid)
        if following is not None:
            self.hand_out(hand.component, following)
        if isinstance(outcome, Settled):
            self._on_end(body.id)

    def _pulsed(self, hand: Hand, frame: Frame | BadFrame) -> None:
        try:
            if isinstance(frame, BadFrame):
                raise ValueError(frame.why)
            if frame.kind != "HEALTH":
                raise ValueError(f"unexpected {frame.kind}")
            health = healths.decode(frame.body)
            if (health.component_id, health.incarnation) != (hand.component, hand.child.mark):
                raise ValueError(f"health of somebody else: {health.component_id}")
        except (ValueError, RecursionError) as error:
            self._bad(hand, str(error))
            return
        hand.health, hand.bad_frames = health, 0
        if hand.pulse is not None and not hand.pulse.deaf:
            hand.pulse.listen(False)
            self._resting.append((clock.monotonic() + REST, hand))
        # `healthy` counts only once READY has come on the work socket: the two sockets are not ordered.
        place = self._fleet.places[hand.component]
        early = place.status is Status.STARTING and health.status == "healthy"
        self._tell(Framed(hand.component, "starting" if early else health.status))

    def _bad(self, hand: Hand, why: str) -> None:
        hand.bad_frames += 1
        log.warning("bad frame", component=hand.component, pid=hand.child.pid, why=why)
        if hand.bad_frames >= MOST_BAD_FRAMES:
            self._break(hand)

    def _break(self, hand: Hand) -> None:
        """Listen to this worker no more, and have it replaced."""
        for channel in (hand.work, hand.pulse):
            assert channel is not None
            channel.close()
        if hand.exit is None:
            self._tell(Broken(hand.component))

    # a worker dies

    def _died(self, hand: Hand) -> None:
        """The kernel says that the process is gone. First hear what it still said; then see to what it left."""
        self._loop.remove(hand.child.pidfd)
        self._ledger.dismiss(hand.component)
        for channel in (hand.work, hand.pulse):
            assert channel is not None
            channel.drain()
            channel.close()
        launch.kill_group(hand.child)
        hand.exit = hand.child.exit()
        self._dying[hand.child.pid] = hand
        self._bury(hand)

    def _bury(self, hand: Hand) -> None:
        """Nothing of a worker may be left when its job is given back and its place filled."""
        others = [other.child for other in self._dying.values() if other is not hand]
        try:
            left = bool(launch.end_strangers([other.child.pid for other in self.hands.values()], others))
        except OSError as error:  # no descriptor to look with: then nobody knows, and it is looked again
            log.warning("what a dead worker left cannot be seen", component=hand.component, why=error.strerror)
            left = True
        if left:
            hand.look_at = clock.monotonic() + hand.patience
            hand.patience = min(2 * hand.patience, LONGEST_ASHES)
            return
        del self._dying[hand.child.pid]
        del self.hands[hand.component]
        self._lives.drop(hand.child)
        hand.child.close()
        code, number = hand.exit or (None, None)
        said = hand.said.why if hand.said else None
        bench = self._ledger.benches[hand.crew]
        now = clock.monotonic()
        outcome = self._last_outcome(hand, code, number)
        claim = self._ledger.gone(hand.component, outcome, now, hand.child.pid)
        log.info(
            "worker exited", component=hand.component, pid=hand.child.pid, exit_code=code, signal=number,
            job=claim.id if claim else None,
        )  # fmt: skip
        self._tell(
            Exited(
                component=hand.component,
                exit_code=code,
                signal=number,
                said=said,
                had_job=claim is not None,
                crew_done=bench.done,
            )
        )

    def _last_outcome(self, hand: Hand, code: int | None, number: int | None) -> Outcome:
        """What a death means for the job in hand: a crash, unless it was our wish or nothing that the job did."""
        place = self._fleet.places[hand.component]
        how = f"killed by signal {number} ({_signal_name(number)})" if number else f"ended with exit code {code}"
        if place.status is Status.STOPPING:
            return Interrupted(f"{hand.component} (pid {hand.child.pid}) was stopped before the job was done")
        if code in (EXIT_CONFIGURATION, EXIT_UNRECOVERABLE) and hand.said is not None:
            return Interrupted(f"{hand.component} (pid {hand.child.pid}) gave up: {hand.said.why}")
        verdict = f" after a {place.verdict}" if place.verdict else ""
        return Crashed(f"{hand.component} (pid {hand.child.pid}) {how}{verdict} with the job in hand")


def _signal_name(number: int | None) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else "unknown"


def _unheeded(channel: Channel) -> None:
    """A closed socket is no death: a grandchild may hold it open, or a handler close it. The pidfd tells."""


def workers_view(supervisor: Supervisor, fleet: Fleet, ledger: Ledger) -> Sequence[dict[str, Any]]:
    """Every worker's place, for readers."""
    view: list[dict[str, Any]] = []
    for place in fleet.places.values():
        hand = supervisor.hands.get(place.component)
        held = ledger.held.get(place.component)
        view.append(
            {
                "component": place.component,
                "crew": place.crew,
                "status": place.status.value,
                "pid": hand.child.pid if hand and launch.alive(hand.child.pid, hand.child.start) else None,
                "current_job": held.claim.id if held else None,
                "progress": msgspec.to_builtins(hand.health.progress) if hand and hand.health and held else None,
                "memory": hand.health.memory if hand and hand.health else None,
                "restart_count": place.restarts,
                "reason": place.reason,
            }
        )
    return view
