"""The simulated supervisor: what the shipped fleet decides is done, and what workers say is told to it and the ledger.

It follows the protocol of the shipped supervisor, step by step; whatever it decides by itself is wrong.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from actors import Worker

from chargehand.model.death import Death, last_outcome
from chargehand.model.fleet import Fleet
from chargehand.model.job import Claim
from chargehand.model.ledger import Ledger, Todo
from chargehand.model.lifecycle import (
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
    Exited,
    Forgiven,
    Framed,
    GivenUp,
    Heed,
    Kill,
    MoreTime,
    NotStarted,
    Recall,
    Removed,
    Replace,
    Report,
    Spawn,
    Started,
    Status,
    Terminate,
)
from chargehand.model.policy import Terms

if TYPE_CHECKING:
    from stage import World

MOST_BAD_FRAMES = 3


class Supervision:
    """See the module."""

    def __init__(self, world: "World", counts: dict[str, int]) -> None:
        self.world, self.oracle = world, world.oracle
        profile = world.profile
        terms = {crew: _counted(found, counts[crew]) for crew, found in profile.crews.items()}
        self.fleet = Fleet(terms, profile.restart, profile.liveness, profile.starts, world.jitter.random)
        self.ledger = Ledger([(crew, crew) for crew in terms], world.jitter.random, world.now)
        self.alive = True
        self.workers: dict[str, Worker] = {}
        self._noisy: dict[Worker, int] = {}
        self._deaf: set[Worker] = set()
        self._dying: list[tuple[float, Worker]] = []

    def readable(self, worker: Worker, channel: str) -> None:
        """Something came on a socket, or a process ended."""
        raise NotImplementedError

    # decisions become acts

    def tell(self, event: Event) -> None:
        self.act(self.fleet.handle(event, self.world.now))

    def act(self, actions: Sequence[Action]) -> None:
        self.oracle.statuses(thoroughly=bool(actions))
        for action in actions:
            self._act(action)

    def _act(self, action: Action) -> None:
        oracle = self.oracle
        match action:
            case Spawn(component):
                self._spawn(component)
            case Ask(component):
                worker = self.workers[component]
                oracle.asked(worker)
                self.ledger.dismiss(component)
                worker.told_to_stop()
            case Heed(component, paused):
                self.workers[component].told_paused(paused)
            case Recall(component):
                raise AssertionError(f"nobody here cancels what runs: {component}")
            case Dismiss(component):
                self.ledger.dismiss(component)
            case DumpStacks(component, reason):
                oracle.condemned(self.workers[component], reason)
            case Terminate(component):
                worker = self.workers[component]
                oracle.terminated(worker)
                worker.frozen = True
                self._read(worker, "work")
            case Kill(component, reason):
                self._kill(self.workers[component], reason)
            case Examine(component):
                self.tell(Examined(component, self.workers[component].cpu()))
            case Report() | GivenUp() | Forgiven() | Replace() | BreakerOpened() | BreakerClosed() | Removed():
                self._announce(action)

    def _announce(self, action: Any) -> None:
        world = self.world
        world.note(f"{action}")
        world.tally[type(action).__name__] += 1
        if isinstance(action, GivenUp):
            world.given_up[action.component] = action.reason
        elif isinstance(action, Forgiven):
            world.given_up.pop(action.component, None)
        self.oracle.announced(action)

    def _kill(self, worker: Worker, reason: str) -> None:
        world = self.world
        world.note(f"kill {worker}: {reason}")
        world.tally[f"kill: {reason}"] += 1
        self.oracle.killed(worker, reason)
        if not worker.unkillable_for:
            worker.unkillable_for = world.chance.choice([0.0001, 0.001, 0.02, 0.02, 6.0])
        worker.kill()

    def _spawn(self, component: str) -> None:
        world = self.world
        kind = world.fates.draw_load(component)
        self.oracle.spawned(component)
        if kind == "not started":
            self.oracle.not_started(component)
            self.tell(NotStarted(component, "not started: no memory for a process"))
            self.oracle.after_burial(component, component.split(":")[1])
            return
        worker = Worker(world, self, component, world.new_pid(), self.fleet.places[component].paused)
        world.note(f"spawn {worker}, which loads: {kind}")
        world.processes.append(worker)
        self.workers[component] = worker
        self.oracle.life_of(component).worker = worker
        self.tell(Started(component, worker.pid))
        world.fates.load(worker, kind)

    # a worker speaks

    def hand_out(self, component: str, claim: Todo) -> None:
        assert isinstance(claim, Claim), "no crew here discovers or takes several at once"
        worker = self.workers[component]
        self.world.note(f"{worker} gets job {claim.id}, fence {claim.fence}")
        self.oracle.handed(worker, claim)
        self.fleet.began(
            component, claim.id, None if claim.timeout_ms is None else claim.timeout_ms / 1000, self.world.now
        )
        worker.receive(claim)

    def _read(self, worker: Worker, channel: str) -> None:
        messages = worker.work if channel == "work" else worker.pulse
        taken, messages[:] = messages[:], []
        for message in taken:
            if worker in self._deaf or not self.alive:
                return
            if channel == "work":
                self._worked(worker, message)
            else:
                self._pulsed(worker, message)

    def _pulsed(self, worker: Worker, message: Any) -> None:
        match message:
            case ("health", status, turns, memory):
                self._noisy[worker] = 0
                place = self.fleet.places[worker.component]
                early = place.status is Status.STARTING and status in ("healthy", "paused")
                self.oracle.heard(worker, status, memory)
                self.tell(Framed(worker.component, "starting" if early else status, turns, memory))
            case _:
                self._noisy[worker] = self._noisy.get(worker, 0) + 1
                if self._noisy[worker] >= MOST_BAD_FRAMES:
                    self._break(worker)

    def _worked(self, worker: Worker, message: Any) -> None:
        match message:
            case ("ready",):
                self._ready(worker)
            case ("fatal", _):
                pass  # kept with the worker until it is buried
            case ("more time", seconds):
                self.tell(MoreTime(worker.component, seconds))
            case ("outcome", job_id, fence, outcome):
                held = self.ledger.held.get(worker.component)
                if held is None or (held.claim.id, held.claim.fence) != (job_id, fence):
                    self._break(worker)
                else:
                    self._outcome(worker, held.claim, outcome)
            case _:
                self._break(worker)

    def _ready(self, worker: Worker) -> None:
        self.oracle.ready(worker)
        paused = self.fleet.places[worker.component].paused
        self.tell(Framed(worker.component, "paused" if paused else "healthy"))
        claim = self.ledger.welcome(worker.component, worker.crew, self.world.now)
        if claim is not None:
            self.hand_out(worker.component, claim)

    def _outcome(self, worker: Worker, claim: Claim, outcome: Any) -> None:
        now, component = self.world.now, worker.component
        self.world.note(f"{worker} ends job {claim.id}: {type(outcome).__name__}")
        self.oracle.performed(worker, claim, outcome)
        if not self.fleet.ended(component, now):
            self.ledger.dismiss(component)
        following = self.ledger.finished(component, outcome, now, worker.pid)
        if following is None:
            self.act(self.fleet.let_go(component, now))
        else:
            self.hand_out(component, following)

    def _break(self, worker: Worker) -> None:
        self._deaf.add(worker)
        if worker.alive:
            self.tell(Broken(worker.component))

    # a worker dies

    def _died(self, worker: Worker) -> None:
        self.ledger.dismiss(worker.component)
        self._read(worker, "work")
        self._read(worker, "pulse")
        self._deaf.add(worker)
        left = self.world.chance.choice([0.0, 0.0, 0.0, 0.002, 0.5])
        self._dying.append((self.world.now + left, worker))
        if left:
            self.world.tally["something left of a dead worker"] += 1

    def _look_at_the_dying(self) -> None:
        due = [entry for entry in self._dying if entry[0] <= self.world.now]
        for entry in due:
            self._dying.remove(entry)
            self._bury(entry[1])

    def _bury(self, worker: Worker) -> None:
        now, component = self.world.now, worker.component
        place = self.fleet.places[component]
        del self.workers[component]
        death = Death(
            exit_code=worker.exit_code,
            signal=worker.signal,
            said=worker.said,
            had_job=component in self.ledger.held,
            oom=worker.oom,
        )
        asked = place.status is Status.STOPPING
        outcome = last_outcome(death, place.verdict, repr(worker), asked=asked)
        self.oracle.buried(worker)
        self.ledger.gone(component, outcome, now, worker.pid)
        self.tell(Exited(component=component, death=death, crew_done=self.ledger.benches[worker.crew].done))
        self.oracle.after_burial(component, worker.crew)


def _counted(terms: Terms, workers: int) -> Terms:
    return Terms(
        workers=workers,
        recycle_jobs=terms.recycle_jobs,
        recycle_memory=terms.recycle_memory,
        idle_exit=terms.idle_exit,
        memory=terms.memory,
        gpu_memory=terms.gpu_memory,
    )
