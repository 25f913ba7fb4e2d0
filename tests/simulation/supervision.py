"""The simulated supervisor: what the shipped fleet decides is done, and what workers say is told to it and the ledger.

It follows the protocol of the shipped supervisor, step by step; whatever it decides by itself is wrong.
"""

from collections.abc import Sequence
from typing import Any

from actors import Worker
from hearing import Hearing
from several import Several

from chargehand.model.chores import KeepRestarts
from chargehand.model.fleet.death import Death, last_outcome
from chargehand.model.fleet.lifecycle import (
    Action,
    Ask,
    BreakerClosed,
    BreakerOpened,
    CancelJob,
    Dismiss,
    DumpStacks,
    Event,
    Examine,
    Examined,
    Exited,
    ExpireJob,
    Forgiven,
    GivenUp,
    Kill,
    NotStarted,
    Removed,
    Replace,
    Report,
    SetPaused,
    Spawn,
    Started,
    Suspected,
    Terminate,
)

CODE = "the same code"
"""The fingerprint of every crew."""


class Supervision(Hearing):
    """See the module."""

    # decisions become acts

    def tell(self, event: Event) -> None:
        self.act(self.fleet.handle(event, self.world.now))

    def act(self, actions: Sequence[Action]) -> None:
        oracle = self.oracle
        oracle.statuses(thoroughly=bool(actions))
        self._acting += 1
        for action in actions:
            self._act(action)
        self._acting -= 1
        if self._acting:
            return  # an action of another act: what that one decided is not carried out yet
        for component in sorted(self.fleet.unsaved()):
            place = self.fleet.places[component]
            self.ledger.chore(KeepRestarts(component, CODE, place.history.copy(), place.restarts_total), self.world.now)
            oracle.kept(component)
        oracle.all_kept()

    def _act(self, action: Action) -> None:
        oracle = self.oracle
        match action:
            case Spawn(component):
                self._spawn(component)
            case Ask(component):
                worker = self.workers[component]
                oracle.asked(worker)
                self.dismiss(component)
                worker.told_to_stop()
            case SetPaused(component, paused):
                self.workers[component].told_paused(paused)
            case CancelJob(component, job):
                number = self.ledger.held[component].claims[job].number
                oracle.recalled(self.workers[component], job)
                self.workers[component].told_cancelled(job, number)
            case ExpireJob(component, job):
                held = self.ledger.held.get(component)
                claim = held and held.find(job)
                oracle.expired(self.workers[component], job)
                self.workers[component].told_late(job, claim.number if claim else 0)
            case Dismiss(component):
                self.dismiss(component)
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
                self.tell(Examined(component, self.workers[component].usage()))
            case Suspected():
                self.world.note(f"{action}")
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
        kind_of = Several if self.fleet.places[component].concurrency > 1 else Worker
        worker = kind_of(world, self, component, world.new_pid(), self.fleet.places[component].paused)
        world.note(f"spawn {worker}, which loads: {kind}")
        world.processes.append(worker)
        self.workers[component] = worker
        worker.gpus = tuple(gpu.uuid for gpu in self.fleet.places[component].gpus)
        self.oracle.life_of(component).worker = worker
        self.tell(Started(component, worker.pid))
        world.fates.load(worker, kind)

    # a worker dies

    def _died(self, worker: Worker) -> None:
        self.ledger.dismiss(worker.component)
        self._read(worker, "work")
        self._read(worker, "pulse")
        self._deaf.add(worker)
        self._take_back(worker)
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
            broken=worker.broken,
            oom=worker.oom,
        )
        outcome = last_outcome(death, place.verdict, repr(worker), asked=place.asked, blocked=place.blocked)
        self.oracle.buried(worker)
        self.ledger.gone(component, outcome, now, worker.pid, place.blamed)
        self.tell(Exited(component=component, death=death, crew_done=self.ledger.pools[worker.crew].done))
        self.oracle.after_burial(component, worker.crew)
