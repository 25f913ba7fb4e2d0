"""The simulated ears of a node: what workers say on their sockets is told to the shipped fleet and ledger.

It follows the protocol of the shipped supervisor, step by step; whatever it decides by itself is wrong.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from actors import Worker

from chargehand.model.chores import QueueFound
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.lifecycle import Action, Broken, Event, Framed, MoreTime, Status, Unsound
from chargehand.model.fleet.policy import Terms
from chargehand.model.held import Held, longest
from chargehand.model.job import Claim, Found
from chargehand.model.ledger import Ledger, Todo
from chargehand.model.records import Discovery
from chargehand.model.search import Look

if TYPE_CHECKING:
    from stage import World

MOST_BAD_FRAMES = 3


class Hearing:
    """See the module."""

    def __init__(self, world: "World", counts: dict[str, int]) -> None:
        self.world, self.oracle = world, world.oracle
        profile = world.profile
        terms = {crew: _counted(found, counts[crew]) for crew, found in profile.crews.items()}
        self.fleet = Fleet(terms, profile.restart, profile.liveness, profile.starts, world.jitter.random)
        queues = [(crew, crew) for crew in terms]
        self.ledger = Ledger(
            queues, world.jitter.random, world.now, profile.discovers, profile.batching, discovery=world.discovery
        )
        self.alive = True
        self.workers: dict[str, Worker] = {}
        self._acting = 0
        self._noisy: dict[Worker, int] = {}
        self._deaf: set[Worker] = set()
        self._dying: list[tuple[float, Worker]] = []

    def readable(self, worker: Worker, channel: str) -> None:
        """Something came on a socket, or a process ended."""
        raise NotImplementedError

    def tell(self, event: Event) -> None:
        """Have the fleet decide, and do what it says."""
        raise NotImplementedError

    def act(self, actions: Sequence[Action]) -> None:
        """Do what was decided."""
        raise NotImplementedError

    # a worker speaks

    def hand_out(self, component: str, todo: Todo) -> None:
        worker, now = self.workers[component], self.world.now
        if isinstance(todo, Look):
            self.world.note(f"{worker} is to look after {todo.after}")
            self.oracle.asked_to_look(worker, todo)
            self.fleet.began(component, f"{todo.crew}/?", self.world.discovery.timeout, now)
        elif isinstance(todo, list):
            self.world.note(f"{worker} gets jobs {', '.join(f'{claim.id}, claim {claim.number}' for claim in todo)}")
            self.oracle.handed(worker, todo)
            self.fleet.began(component, todo[0].id, longest(todo), now, [other.id for other in todo[1:]])
        else:
            self.world.note(f"{worker} gets job {todo.id}, claim {todo.number}")
            self.oracle.handed(worker, [todo])
            timeout = None if todo.timeout_ms is None else todo.timeout_ms / 1000
            self.fleet.began(component, todo.id, timeout, now)
        worker.receive(todo)

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
            case ("broken",):
                self.oracle.broke(worker)
                self.ledger.broke(worker.component)
                self.tell(Unsound(worker.component))
            case ("more time", seconds):
                self.tell(MoreTime(worker.component, seconds))
            case ("found", items, more):
                self._found(worker, items, more)
            case ("outcome", job_id, number, outcome):
                held = self.ledger.held.get(worker.component)
                claim = held and held.find(job_id)
                if held is None or claim is None or claim.number != number:
                    self._break(worker)
                else:
                    self._outcome(worker, held, claim, outcome)
            case _:
                self._break(worker)

    def _ready(self, worker: Worker) -> None:
        self.oracle.ready(worker)
        paused = self.fleet.places[worker.component].paused
        self.tell(Framed(worker.component, "paused" if paused else "healthy"))
        claim = self.ledger.welcome(worker.component, worker.crew, self.world.now, str(worker.pid))
        if claim is not None:
            self.hand_out(worker.component, claim)

    def _found(self, worker: Worker, items: Sequence[Found] | None, more: bool) -> None:
        search, now, component = self.ledger.searches.get(worker.crew), self.world.now, worker.component
        if search is None or search.asked != component:
            self._break(worker)
            return
        self.world.note(f"{worker} found {'nothing: it failed' if items is None else [found.item for found in items]}")
        self.oracle.has_looked(worker)
        if items is None:
            search.failed("the table cannot be read", now)
        elif search.found([found.item for found in items], more and bool(items), now) is None:
            page = Discovery(
                queue=worker.crew, found=tuple(items), priority=0, max_attempts=3,
                timeout_ms=self.world.profile.item_timeout,
            )  # fmt: skip
            self.ledger.chore(QueueFound(worker.crew, page, search.looked_at), now, urgent=True)
        if not self.fleet.ended(component, now, job=False):
            self.ledger.dismiss(component)
        self._go_on(worker, self.ledger.looked(component, now))

    def _go_on(self, worker: Worker, following: Todo | None) -> None:
        if following is not None:
            self.hand_out(worker.component, following)
        else:
            self.act(self.fleet.let_go(worker.component, self.world.now))

    def _outcome(self, worker: Worker, held: Held, claim: Claim, outcome: Any) -> None:
        now, component = self.world.now, worker.component
        self.world.note(f"{worker} ends job {claim.id}: {type(outcome).__name__}")
        self.oracle.performed(worker, claim, outcome)
        if held.others:
            self.fleet.one_ended(component, claim.id, now)
            self.ledger.finished(component, outcome, now, worker.pid, claim.id)
            return
        if not self.fleet.ended(component, now):
            self.ledger.dismiss(component)
        following = self.ledger.finished(component, outcome, now, worker.pid)
        self.replace_distrusted()
        self._go_on(worker, following)

    def replace_distrusted(self) -> None:
        """Has the workers replaced whose processes the ledger does not trust."""
        for distrust in self.ledger.take_distrusted():
            self.oracle.distrusted(distrust)
            self.act(self.fleet.distrust(distrust.worker, distrust.text, self.world.now))

    def _break(self, worker: Worker) -> None:
        self._deaf.add(worker)
        if worker.alive:
            self.tell(Broken(worker.component))


def _counted(terms: Terms, workers: int) -> Terms:
    return msgspec.structs.replace(terms, workers=workers)
