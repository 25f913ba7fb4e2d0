"""Whole systems on a virtual clock: the shipped fleet and ledger, the shipped SQL, simulated processes and people.

A seed decides everything, so a history that breaks a promise can be run again, step by step.
"""

import heapq
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chargehand.dispatch import execute
from chargehand.model.fleet import Fleet
from chargehand.model.job import Claim, Crashed, Done, GaveUp, Interrupted, NewJob, Outcome, Raised, RetryLater
from chargehand.model.ledger import Batch, Ledger, Result
from chargehand.model.lifecycle import (
    Action,
    Ask,
    Event,
    Examine,
    Examined,
    Exited,
    Framed,
    Kill,
    Spawn,
    Started,
    Status,
    StopAsked,
    Terminate,
    Tick,
)
from chargehand.model.policy import LivenessPolicy, RestartPolicy
from chargehand.store import Holder
from chargehand.stores.sqlite import SqliteStore

EPOCH_MS = 1_700_000_000_000
CREWS = (("a", 2), ("b", 1))


class Broken(AssertionError):
    """A promise was broken."""


class Worker:
    """A simulated process: what it holds, and whether it lives, is silent, or has been asked to stop."""

    def __init__(self, component: str, node: "Node", pid: int) -> None:
        self.component, self.node, self.pid = component, node, pid
        self.alive = True
        self.mute = False
        self.stopping = False
        self.ready = False
        self.claim: Claim | None = None


class Node:
    """One life of a simulated node around the shipped mind."""

    def __init__(self, world: "World", life: str) -> None:
        self.world, self.holder = world, Holder("sim", life)
        self.alive = True
        chance = world.chance.random
        now = world.now
        self.fleet = Fleet(CREWS, world.restart, LivenessPolicy(), chance, now)
        self.ledger = Ledger([(crew, crew) for crew, _ in CREWS], chance, now)
        self.workers: dict[str, Worker] = {}

    def tell(self, event: Event) -> None:
        before = {c: p.status for c, p in self.fleet.places.items()}
        for action in self.fleet.handle(event, self.world.now):
            self.act(action)
        for component, place in self.fleet.places.items():
            if place.status is Status.STARTING and before[component] is Status.FAILED:
                raise Broken(f"{component} was started again though it was given up")

    def act(self, action: Action) -> None:
        world = self.world
        match action:
            case Spawn(component):
                self.spawn(component)
            case Ask(component):
                worker = self.workers[component]
                worker.stopping = True
                self.ledger.dismiss(component)
                if worker.ready and worker.claim is None and not worker.mute:
                    world.after(0.01, lambda: world.die(worker, code=0))
            case Terminate(component):
                world.note(f"terminate {component}")  # it is in C code, and does not hear
            case Kill(component, reason):
                worker = self.workers[component]
                world.note(f"kill {component}: {reason}")
                if not worker.mute and reason == "heartbeat timeout":
                    raise Broken(f"{component} was killed as silent though it spoke")
                world.after(world.chance.uniform(0, 0.05), lambda: world.die(worker, signal=9))
            case Examine(component):
                worker = self.workers[component]
                cpu = 1.0 if worker.mute else world.now
                self.tell(Examined(component, cpu))
            case _:
                world.note(str(action))

    def spawn(self, component: str) -> None:
        world = self.world
        if any(w.alive and w.component == component for w in world.processes):
            raise Broken(f"two lives in {component}")
        worker = Worker(component, self, world.new_pid())
        world.processes.append(worker)
        self.workers[component] = worker
        self.tell(Started(component, worker.pid))
        world.note(f"spawn {component} pid {worker.pid}")
        world.after(0.05, lambda: world.beat(worker))
        world.after(world.chance.uniform(0.05, 2.0), lambda: world.load(worker))

    def hand_out(self, component: str, claim: Claim) -> None:
        world, worker = self.world, self.workers[component]
        if any(w.alive and w.claim and w.claim.id == claim.id for w in world.processes):
            raise Broken(f"{claim.id} is in two living hands")
        if worker.claim is not None:
            raise Broken(f"{component} has two jobs in hand")
        if worker.stopping:
            raise Broken(f"{component} was given a job after it was asked to stop")
        world.note(f"{component} pid {worker.pid} gets {claim.id} fence {claim.fence}")
        world.executed[claim.id] = world.executed.get(claim.id, 0) + 1
        worker.claim = claim
        world.perform(worker, claim)


class World:
    """A seed's whole history."""

    def __init__(self, seed: int, store: SqliteStore, people: SqliteStore) -> None:
        self.seed, self.store, self.people = seed, store, people
        self.chance = random.Random(seed)
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.history: list[str] = []
        self.processes: list[Worker] = []
        self.pids = 100
        self.executed: dict[str, int] = {}
        self.accepted: dict[str, int] = {}
        self.enqueued: list[str] = []
        self.poison: set[str] = set()
        self.node: Node | None = None
        self.lives = 0
        self.calm = False
        self.restart = RestartPolicy(rapid_limit=10**6, lifetime_limit=10**6, longest_pause=5.0)

    # the machine

    def note(self, text: str) -> None:
        self.history.append(f"{self.now:10.3f}  {text}")

    def after(self, delay: float, act: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + delay, self.count, act))

    def new_pid(self) -> int:
        self.pids += 1
        return self.pids

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.now * 1000)

    def run(self, until: float) -> None:
        """Let everything happen that happens until then."""
        while True:
            event_at = self.events[0][0] if self.events else until
            node_at = self.node_due()
            if min(event_at, node_at) >= until:
                break
            if event_at <= node_at:
                self.now, _, act = heapq.heappop(self.events)
                act()
            else:
                self.now = max(self.now, node_at)
                self.turn()
                if self.node_due() <= self.now:
                    self.now += 0.0005  # a real step takes its time, too
        self.now = until

    def node_due(self) -> float:
        """When the node's next step has something to do."""
        node = self.node
        if node is None:
            return float("inf")
        due = (node.fleet.next_due(), node.ledger.batch_due(self.now))
        return max(self.now, min((moment for moment in due if moment is not None), default=float("inf")))

    def turn(self) -> None:
        """One step of the node: what is due is done."""
        node = self.node
        if node is None:
            return
        due = node.fleet.next_due()
        if due is not None and due <= self.now:
            node.tell(Tick())
        batch_due = node.ledger.batch_due(self.now)
        if batch_due is not None and batch_due <= self.now:
            self.submit(node)
        if node.fleet.stopping and node.fleet.all_gone() and node.ledger.settled:
            self.end_node(node)

    # the store

    def submit(self, node: Node) -> None:
        batch = node.ledger.next_batch(self.now)
        if batch == Batch():
            node.ledger.confirm(Result(), self.now)
            return
        delay = self.chance.choice([0.001, 0.002, 0.005, 0.02, self.chance.uniform(0, 20) * (not self.calm)])
        if not self.calm and self.chance.random() < 0.05:
            self.after(delay, lambda: self.store_fails(node))
            return
        self.after(delay / 2, lambda: self.commit(node, batch, delay / 2))

    def store_fails(self, node: Node) -> None:
        if node.alive:
            self.note("the store fails")
            node.ledger.failed(self.now, 0.1)

    def commit(self, node: Node, batch: Batch, delay: float) -> None:
        if not node.alive and self.chance.random() < 0.5:
            return  # the node died before its commit; otherwise, after it
        if self.node is not node and self.node is not None:
            return  # its lock is another's: a dead process cannot write later than its successor starts
        result = execute(self.store, batch, node.holder)
        for settlement in batch.settlements:
            if settlement.outcome == "done" and settlement.id not in result.lost:
                self.accepted[settlement.id] = self.accepted.get(settlement.id, 0) + 1
        self.after(delay, lambda: self.confirm(node, result))

    def confirm(self, node: Node, result: Result) -> None:
        if not node.alive:
            return
        for job_id in result.lost:
            self.note(f"lost claim of {job_id}")
        for component, claim in node.ledger.confirm(result, self.now):
            node.hand_out(component, claim)

    # workers

    def beat(self, worker: Worker) -> None:
        if worker.alive and worker.node.alive:
            if not worker.mute:
                status = "stopping" if worker.stopping else "healthy" if worker.ready else "starting"
                worker.node.tell(Framed(worker.component, status))
            self.after(5.0, lambda: self.beat(worker))

    def load(self, worker: Worker) -> None:
        if not worker.alive or not worker.node.alive:
            return
        if worker.stopping:
            self.die(worker, code=0)
            return
        worker.ready = True
        worker.node.tell(Framed(worker.component, "healthy"))
        crew = worker.component.split(":")[1]
        claim = worker.node.ledger.welcome(worker.component, crew, self.now)
        if claim is not None:
            worker.node.hand_out(worker.component, claim)

    def perform(self, worker: Worker, claim: Claim) -> None:
        fate = 1.0 if self.calm else self.chance.random()
        took = self.chance.choice([0.0001, 0.001, 0.05, 1.0, 30.0])
        if claim.id in self.poison or fate < 0.06:
            self.after(took, lambda: self.die(worker, signal=11))
        elif fate < 0.09:
            self.note(f"{worker.component} falls silent")
            worker.mute = True
            self.after(self.chance.uniform(10, 200), lambda: self.wake(worker, claim))
        else:
            self.after(took, lambda: self.finish(worker, claim))

    def wake(self, worker: Worker, claim: Claim) -> None:
        if worker.alive:
            self.note(f"{worker.component} speaks again")
            worker.mute = False
            self.finish(worker, claim)

    def outcome(self) -> Outcome:
        if self.calm:
            return Done()
        choices: list[Outcome] = [
            Done(),
            Done(),
            Done(),
            Done(),
            Raised("x"),
            RetryLater(500, "later"),
            GaveUp("never"),
        ]
        return self.chance.choice(choices)

    def finish(self, worker: Worker, claim: Claim) -> None:
        if not worker.alive or worker.claim is not claim or not worker.node.alive:
            return
        worker.claim = None
        following = worker.node.ledger.finished(worker.component, self.outcome(), self.now, worker.pid)
        if following is not None:
            worker.node.hand_out(worker.component, following)
        elif worker.stopping:
            self.after(0.01, lambda: self.die(worker, code=0))

    def die(self, worker: Worker, *, code: int | None = None, signal: int | None = None) -> None:
        if not worker.alive:
            return
        worker.alive = False
        self.note(f"{worker.component} pid {worker.pid} dies: {code if signal is None else f'signal {signal}'}")
        if worker.node.alive:
            self.after(self.chance.choice([0.0005, 0.002]), lambda: self.bury(worker, code, signal))

    def bury(self, worker: Worker, code: int | None, signal: int | None) -> None:
        node = worker.node
        if not node.alive:
            return
        place = node.fleet.places[worker.component]
        outcome: Outcome = Crashed("x")
        if place.status is Status.STOPPING:
            outcome = Interrupted("x")
        held = node.ledger.gone(worker.component, outcome, self.now, worker.pid)
        bench = node.ledger.benches[place.crew]
        node.tell(
            Exited(
                component=worker.component,
                exit_code=code,
                signal=signal,
                said=None,
                had_job=held is not None,
                crew_done=bench.done,
            )
        )

    # nodes and people

    def start_node(self) -> None:
        self.lives += 1
        for worker in self.processes:
            worker.alive = False  # what an earlier node left is ended first
        node = Node(self, f"life {self.lives}")
        with self.store.transaction() as tx:
            recovered = tx.recover(node.holder, "the node died")
        self.note(f"node starts; {len(recovered)} jobs recovered")
        self.node = node

    def kill_node(self) -> None:
        if self.node is not None:
            self.note("node is killed")
            self.node.alive = False
            self.node = None
            for worker in self.processes:
                worker.alive = False
            self.after(self.chance.uniform(0.05, 3), self.start_node)

    def stop_node(self) -> None:
        node = self.node
        if node is not None and not node.fleet.stopping:
            self.note("node is asked to stop")
            node.ledger.close(self.now)
            node.tell(StopAsked())

    def end_node(self, node: Node) -> None:
        """A node that was asked to stop and has nothing left: nothing may be left of it in the store, either."""
        self.note("node has stopped")
        node.alive = False
        self.node = None
        if any(count.running for count in self.store.counts()):
            raise Broken(f"a node stopped in order and left jobs running: {self.store.counts()}")
        if any(worker.alive for worker in self.processes):
            raise Broken("a node stopped in order and left workers")
        self.after(self.chance.uniform(0.05, 3), self.start_node)

    def kill_a_worker(self) -> None:
        living = [w for w in self.processes if w.alive]
        if living:
            self.die(self.chance.choice(living), signal=9)

    def enqueue(self) -> None:
        crew = self.chance.choice(["a", "b"])
        jobs = [
            NewJob(
                id=f"{self.seed}-{len(self.enqueued) + n}",
                queue=crew,
                priority=self.chance.choice([0, 0, 5]),
                delay_ms=self.chance.choice([0, 0, 0, 700, 40_000]),
            )
            for n in range(self.chance.choice([1, 1, 3, 20]))
        ]
        with self.people.transaction() as tx:
            tx.enqueue(jobs)
        self.enqueued += [job.id for job in jobs]
        if self.chance.random() < 0.1:
            self.poison.add(jobs[0].id)
        if self.node is not None and self.chance.random() < 0.5:
            self.node.ledger.hint(crew)

    def pause_or_resume(self) -> None:
        scope = self.chance.choice(["*", "a", "b"])
        with self.people.transaction() as tx:
            if not tx.resume(scope):
                tx.pause(scope, "somebody", None)

    def disturb(self) -> None:
        acts = [self.enqueue, self.kill_a_worker, self.kill_node, self.stop_node, self.pause_or_resume]
        self.chance.choices(acts, weights=[8, 4, 1, 1, 1])[0]()


def simulate(seed: int, stage: "Stage") -> World:
    """One history: trouble for a while, then calm until everything is done. Raises Broken."""
    world = stage.world = World(seed, stage.store, stage.people)
    with stage.people.transaction() as tx:
        for table in ("job", "attempt", "pause"):
            tx.execute(f"DELETE FROM chargehand_{table}")
    try:
        world.start_node()
        for _ in range(world.chance.randrange(5, 30)):
            world.disturb()
            world.run(world.now + world.chance.choice([0.01, 0.5, 3, 40, 120]))
        settle_down(world)
        check(world)
    except Broken as broken:
        story = "\n".join(world.history[-60:])
        raise Broken(f"seed {seed}: {broken}\nThe last that happened:\n{story}") from broken
    return world


def settle_down(world: World) -> None:
    """No more trouble; everybody is let go on; everything must end."""
    world.calm = True
    with world.people.transaction() as tx:
        for scope in ("*", "a", "b"):
            tx.resume(scope)
    for _ in range(60):
        world.run(world.now + 60)
        if all(count.queued == count.running == 0 for count in world.store.counts()):
            return
    raise Broken(f"something is stuck: {world.store.counts()}")


def check(world: World) -> None:
    """The promises, from the simulator's own ledger and the store's."""
    for job_id in world.enqueued:
        job = world.store.job(job_id)
        if job is None:
            raise Broken(f"{job_id} is lost")
        done = [a for a in world.store.attempts(job_id) if a.outcome == "done"]
        if len(done) > 1 or world.accepted.get(job_id, 0) > 1:
            raise Broken(f"{job_id} was completed twice")
        if (job.state == "done") != (len(done) == 1):
            raise Broken(f"{job_id} is {job.state} with {len(done)} good ends")
        if job_id in world.poison and not (job.state == "failed" and job.reason == "poison" and job.crashes == 3):
            raise Broken(f"{job_id} is poison but {job.state}, {job.crashes} crashes")
        fences = [a.fence for a in world.store.attempts(job_id)]
        if len(fences) != len(set(fences)) or (fences and fences[-1] > job.fence):
            raise Broken(f"{job_id} has fences {fences}, and {job.fence}")
        if world.executed.get(job_id, 0) < len([a for a in world.store.attempts(job_id) if a.outcome != "interrupted"]):
            raise Broken(f"{job_id} has more attempts than executions")


class Stage:
    """A store whose clock is the present world's, with a connection for the node and one for everybody else."""

    def __init__(self, folder: Path) -> None:
        self.world: World | None = None
        self.store, self.people = (
            SqliteStore(folder / "sim.db", tend=tend, now_ms=self.now_ms) for tend in (True, False)
        )
        for store in (self.store, self.people):
            db: Any = store._db
            db.pragma("synchronous", "OFF")

    def now_ms(self) -> int:
        return self.world.now_ms() if self.world else EPOCH_MS

    def close(self) -> None:
        self.store.close()
        self.people.close()
