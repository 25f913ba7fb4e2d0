"""The simulated ears of a node: what workers say on their sockets is told to the shipped fleet and ledger.

It follows the protocol of the shipped supervisor, step by step; whatever it decides by itself is wrong.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from actors import Message, Worker

from chargehand.model.chores import QueueFound
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.lifecycle import Action, Broken, Event, Framed, MoreTime, Status, Unsound
from chargehand.model.fleet.policy import Terms
from chargehand.model.held import Held, longest
from chargehand.model.job import Claim, Done, Found, JobPolicy
from chargehand.model.ledger import SUCCESSES, Hand, Ledger, Todo
from chargehand.model.records import Discovery
from chargehand.model.search import Look, look_name

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
            queues, world.jitter.random, world.now, profile.discovers, profile.batching, discovery=world.discovery,
            policy=JobPolicy(most_in_hand=profile.most_in_hand),
            concurrency={crew: found.concurrency for crew, found in terms.items()},
        )  # fmt: skip
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
        if self.fleet.places[component].concurrency > 1:
            self._hand_out_each(worker, todo)
        elif isinstance(todo, Hand):
            ahead = todo.ahead
            if todo.first is not None and todo.permit:
                ahead = (todo.first, *ahead)
            elif todo.first is not None:
                self.world.note(f"{worker} gets job {todo.first.id}, claim {todo.first.number}")
                self.oracle.handed(worker, [todo.first])
            self.world.note(f"{worker} is sent ahead {', '.join(f'{c.id}, claim {c.number}' for c in ahead)}")
            self.oracle.sent_ahead(worker, ahead, first=todo.permit)
            if todo.first is not None:
                self._began(component, todo.first)
        elif isinstance(todo, Look):
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
            self._began(component, todo)
        worker.receive(todo)

    def _hand_out_each(self, worker: Worker, todo: Todo) -> None:
        """Several at the same time: each by itself."""
        now = self.world.now
        if isinstance(todo, Look):
            self.world.note(f"{worker} is to look after {todo.after}")
            self.oracle.asked_to_look(worker, todo)
            self.fleet.began(worker.component, look_name(todo.crew), self.world.discovery.timeout, now)
            return
        assert isinstance(todo, list)
        for claim in todo:
            self.world.note(f"{worker} gets job {claim.id}, claim {claim.number}, beside {len(worker.hand)}")
            self.oracle.handed(worker, [claim])
            timeout = None if claim.timeout_ms is None else claim.timeout_ms / 1000
            self.fleet.began(worker.component, claim.id, timeout, now)

    def _began(self, component: str, claim: Claim) -> None:
        timeout = None if claim.timeout_ms is None else claim.timeout_ms / 1000
        self.fleet.began(component, claim.id, timeout, self.world.now)

    # jobs that workers have not begun

    def call_back(self, components: Sequence[str] | None = None) -> None:
        called = self.ledger.hands() if components is None else components
        self.ledger.filling = False
        for component in called:
            worker = self.workers[component]
            self._take_back(worker)
            self._read(worker, "work")
        self.ledger.filling = True

    def call_back_due(self) -> None:
        due = self.ledger.recalls(self.world.now)
        if due:
            self.call_back(due)
            self.spread()

    def spread(self) -> None:
        for component, todo in self.ledger.spread(self.world.now):
            self.hand_out(component, todo)

    def dismiss(self, component: str) -> None:
        self.ledger.dismiss(component)
        if component in self.workers:
            self._take_back(self.workers[component])

    def _take_back(self, worker: Worker) -> None:
        component, now = worker.component, self.world.now
        held = self.ledger.held.get(component)
        if held is None or not held.unsure:
            return
        count = worker.give_back()
        self.oracle.called_back(worker, count)
        if self.ledger.recalled(component, count, now):
            self.fleet.ended(component, now, job=False)
            self.act(self.fleet.let_go(component, now))
        if self.ledger.filling:
            self.spread()

    def _ended_well(self, worker: Worker, messages: Sequence[Any]) -> None:
        """Several jobs ended well, one after the other."""
        now, component = self.world.now, worker.component
        held = self.ledger.held[component]
        for claim, (_, _, _, outcome) in zip([held.claim, *held.ahead], messages, strict=False):
            self.world.note(f"{worker} ends job {claim.id}: Done, with others")
            self.oracle.performed(worker, claim, outcome)
        if not self.fleet.ended(component, now, jobs=len(messages)):
            self.dismiss(component)
        ends = [(outcome, None) for _, _, _, outcome in messages]
        self._go_on(worker, self.ledger.finished_all(component, ends, now, worker.pid))

    def _together(self, worker: Worker, messages: list[Message]) -> int:
        """How many of these are good ends of its jobs, in order, that count together."""
        held = self.ledger.held.get(worker.component)
        if held is None or not held.ahead:
            return 0
        count = 0
        for claim, message in zip([held.claim, *held.ahead], messages, strict=False):
            if message[0] != "outcome" or message[1:3] != (claim.id, claim.number) or not isinstance(message[3], Done):
                break
            count += 1
        return count

    def _read(self, worker: Worker, channel: str) -> None:
        messages = worker.work if channel == "work" else worker.pulse
        taken, messages[:] = messages[:], []
        while taken:
            if worker in self._deaf or not self.alive:
                return
            together = self._together(worker, taken) if channel == "work" else 0
            if together:
                done, taken = taken[:together], taken[together:]
                self._ended_well(worker, done)
                continue
            message = taken.pop(0)
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
                flags = place.flags
                self.tell(Framed(worker.component, "starting" if early else status, turns, memory))
                if place.concurrency > 1 and place.flags != flags:
                    self.ledger.block(worker.component, place.stalled)
                    self.world.tally["blocked"] += place.stalled
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
                other = held is not None and held.ahead and claim is not held.claim
                if held is None or claim is None or claim.number != number or other:
                    self._break(worker)
                else:
                    self._outcome(worker, held, claim, outcome)
            case _:
                self._break(worker)

    def _ready(self, worker: Worker) -> None:
        self.oracle.ready(worker)
        paused = self.fleet.places[worker.component].paused
        self.tell(Framed(worker.component, "paused" if paused else "healthy"))
        jobs = self.world.profile.crews[worker.crew].recycle_jobs
        claim = self.ledger.welcome(worker.component, worker.crew, self.world.now, str(worker.pid), jobs)
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
        if self.fleet.places[component].concurrency > 1:
            if not self.fleet.slot_ended(component, look_name(worker.crew), now, work=False):
                self.dismiss(component)
            self.ledger.looked(component, now)
            self._perhaps_let_go(component)
            return
        if not self.fleet.ended(component, now, job=False):
            self.dismiss(component)
        self._go_on(worker, self.ledger.looked(component, now))

    def _go_on(self, worker: Worker, following: Todo | None) -> None:
        held = self.ledger.held.get(worker.component)
        continues = following is None or (isinstance(following, Hand) and following.first is None)
        if held is not None and not held.others and continues:
            self._began(worker.component, held.claim)
        if following is not None:
            self.hand_out(worker.component, following)
        elif held is None:
            self.act(self.fleet.let_go(worker.component, self.world.now))

    def _outcome(self, worker: Worker, held: Held, claim: Claim, outcome: Any) -> None:
        now, component = self.world.now, worker.component
        self.world.note(f"{worker} ends job {claim.id}: {type(outcome).__name__}")
        if not isinstance(outcome, SUCCESSES):
            self._take_back(worker)
        self.oracle.performed(worker, claim, outcome)
        if self.fleet.places[component].concurrency > 1:
            self._one_of_several(worker, claim, outcome)
            return
        if held.others:
            self.fleet.one_ended(component, claim.id, now)
            self.ledger.finished(component, outcome, now, worker.pid, claim.id)
            return
        if not self.fleet.ended(component, now):
            self.dismiss(component)
        following = self.ledger.finished(component, outcome, now, worker.pid)
        self.replace_distrusted()
        self._go_on(worker, following)

    def _one_of_several(self, worker: Worker, claim: Claim, outcome: Any) -> None:
        now, component = self.world.now, worker.component
        if not self.fleet.slot_ended(component, claim.id, now):
            self.dismiss(component)
        self.ledger.block(component, False)
        self.ledger.finished(component, outcome, now, worker.pid, claim.id)
        self.replace_distrusted()
        self._perhaps_let_go(component)

    def _perhaps_let_go(self, component: str) -> None:
        if self.fleet.places[component].job is None:
            self.act(self.fleet.let_go(component, self.world.now))

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
