"""A seed's whole world: the clock, the processes, the store, people, and the oracle that watches all of it."""

import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from actors import Worker
from application import Application
from clockwork import Clockwork
from fates import Fates
from hands import Node
from oracle import Oracle
from people import People
from profiles import Profile
from supervision import CODE

from chargehand.model import ledger, search
from chargehand.model.fleet.place import Place
from chargehand.model.fleet.policy import restored
from chargehand.model.records import Holder
from chargehand.stores.sqlite import jobs
from chargehand.stores.sqlite.store import SqliteStore

EPOCH_MS = 1_700_000_000_000
USUAL = (ledger.POLL, search.ENOUGH, jobs.new_claim)
"""What a world changes in the shipped modules, as it was."""
TABLES = ("job", "attempt", "pause", "node", "crew", "worker", "suspect", "edge", "flow", "sequence")


class Stage:
    """A store whose clock is the present world's, with a connection for the node and one for everybody else."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        self._folder = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        self.world: World | None = None
        path = Path(self._folder.name) / "sim.db"
        self.store, self.people = (
            SqliteStore(path, tend=tend, now_ms=self._now_ms, new_ids=self._new_ids) for tend in (True, False)
        )
        for store in (self.store, self.people):
            db: Any = store._db
            db.pragma("synchronous", "OFF")

    def _now_ms(self) -> int:
        return self.world.now_ms() if self.world else EPOCH_MS

    def _new_ids(self, count: int) -> Iterator[str]:
        """The world's own ids: a seed gives the same history each time, so none comes from chance or the clock."""
        assert self.world is not None
        return (self.world.new_item_id() for _ in range(count))

    def clear(self, world: "World") -> None:
        """For the next world: nothing of the last is left, not even in the numbering."""
        self.world = world
        with self.people.transaction() as tx:
            for table in TABLES:
                tx.execute(f"DELETE FROM chargehand_{table}")
            tx.execute("DELETE FROM sqlite_sequence")
        self.store._data_version = -1

    def close(self) -> None:
        """Nothing is left, not even in the shipped modules: others may need them as they are."""
        ledger.POLL, search.ENOUGH, jobs.new_claim = USUAL
        self.store.close()
        self.people.close()
        self._folder.cleanup()


class World(Clockwork):
    """See the module."""

    def __init__(self, seed: int, profile: Profile, stage: Stage) -> None:
        super().__init__()
        self.seed, self.profile, self.stage = seed, profile, stage
        self.chance, self.jitter = random.Random(seed), random.Random(seed + 1)
        self.history: list[tuple[float, str]] = []
        self.tally: Counter[str] = Counter()
        self.processes: list[Worker] = []
        self.node: Node | None = None
        self.given_up: dict[str, str] = {}
        """What is remembered through restarts of the node: who was given up, and why."""
        self.counts = {crew: terms.workers for crew, terms in profile.crews.items()}
        self.store_fails_until = 0.0
        self.keys_held_until = 0.0
        """Until then the store postpones every outcome, as if it enqueued a job whose key a caller holds."""
        self._pids, self.lives, self._item_ids, self._claims = 100, 0, 0, 0
        self._killed: str | None = None
        """The present life of the node, if it was killed before anybody asked it to stop."""
        self._died: str | None = None
        """The life before the present one, if that was killed."""
        self._unkillable: list[Worker] = []
        """Workers of earlier nodes, as the present one knows them."""
        self.application = Application(self)
        self.oracle = Oracle(self)
        self.fates = Fates(self)
        self.folk = People(self)
        ledger.POLL = profile.poll
        search.ENOUGH = profile.enough
        jobs.new_claim = self.new_claim
        self.discovery = search.DiscoveryPolicy(interval=profile.look_every)
        stage.clear(self)

    def note(self, text: str) -> None:
        self.history.append((self.now, text))

    def new_pid(self) -> int:
        self._pids += 1
        return self._pids

    def new_item_id(self) -> str:
        self._item_ids += 1
        return f"i{self._item_ids}"

    def new_claim(self) -> int:
        self._claims += 1
        return self._claims

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.now * 1000)

    def places(self) -> Mapping[str, Place]:
        assert self.node is not None
        return self.node.fleet.places

    # time

    def run(self, until: float) -> None:
        """Let everything happen that happens until then."""
        while True:
            event_at = self.next_at()
            node_at = self.node.wake_at if self.node is not None else float("inf")
            if min(event_at, node_at) > until:
                break
            if event_at <= node_at:
                self.happen()
            elif self.node is not None:
                self.now = max(self.now, node_at)
                self.node.step()
        self.now = until

    def sleep(self, seconds: float) -> None:
        """The whole machine stands still: nobody does anything, and everybody is late."""
        self.note(f"the machine sleeps for {seconds} s")
        self.postpone(seconds)
        # Forgiven is what goes beyond the node's own plan: it cannot know when in its wait the machine fell asleep.
        late = seconds if self.node is None else self.node.woken_late()
        for worker in self.processes:
            worker.stood_still(seconds, min(seconds, late))

    def watch(self) -> None:
        """The oracle looks at everybody now and then, not only when something happens."""
        self.oracle.watch()
        self.after(self.profile.liveness.beat * 4 + 0.3, self.watch)

    # nodes

    def start_node(self) -> None:
        """A node's life begins: whoever is left of the last one is ended first, or keeps its place."""
        died, self._killed, self.lives = self._killed, None, self.lives + 1
        self._died = died
        occupied: dict[str, Worker] = {}
        for worker in list(self.processes):
            if worker.unkillable_for and worker.component not in occupied:
                occupied[worker.component] = worker
            else:
                worker.die(signal=9)
        life = f"life {self.lives}"
        spared = {job for worker in occupied.values() for job in worker.hand}
        with self.stage.store.transaction() as tx:
            ended = tx.jobs.recover(Holder("sim", life), "the node died", tuple(occupied), died=lives(died))
        recovered = [settlement.id for settlement in ended]
        self.note(f"a node starts: {len(recovered)} jobs recovered, unkillable: {list(occupied.values())}")
        self.oracle.node_starts(self.counts, self.given_up)
        self.oracle.jobs.node_starts()
        self.oracle.jobs.recovered(recovered, spared, some=bool(occupied), died=died)
        node = self.node = Node(self, life, self.counts)
        self._unkillable = list(occupied.values())
        for component, worker in occupied.items():
            if component in node.fleet.places:
                node.occupy(component, worker.pid)
            self._await_end(worker, self.now + worker.unkillable_for)
        node.apply_pauses()
        notes = self.stage.store.fleet.restarts()
        past = {note.component: (restored(note, CODE, self.now), note.restarts_total) for note in notes}
        actions = node.fleet.begin(self.now, self.given_up, past)
        self.oracle.begun()
        node.act(actions)
        node.poke()

    def _await_end(self, worker: Worker, until: float) -> None:
        """The node looks now and then whether a worker that could not be killed is gone; a former kill may end it."""
        if not worker.alive or self.now >= until:
            self._at_last(worker)
        else:
            self.after(min(0.5, until - self.now), lambda: self._await_end(worker, until))

    def _at_last(self, worker: Worker) -> None:
        """A worker that could not be killed is gone: whatever node there is takes note."""
        node = self.node
        worker.die(signal=9)
        if node is None or worker not in self._unkillable:
            return
        self._unkillable.remove(worker)
        left = [w for w in self.processes if w.node is not node]
        spared = {job for w in left for job in w.hand}
        with self.stage.store.transaction() as tx:
            ended = tx.jobs.recover(
                node.store.holder, "the node died", tuple(w.component for w in left), died=lives(self._died)
            )
        recovered = [settlement.id for settlement in ended]
        self.note(f"{worker} is gone at last: {len(recovered)} jobs recovered")
        self.oracle.jobs.recovered(recovered, spared, some=True, died=self._died)

        def vacate() -> None:
            self.oracle.vacated(worker.component)
            if worker.component in node.fleet.places:
                node.occupy(worker.component, None)
            node.ledger.hint()

        node.order(vacate)

    def is_last(self, life: str) -> bool:
        """Whether no node has started since this one."""
        return life == f"life {self.lives}"

    def kill_node(self) -> None:
        """SIGKILL to the node: the kernel ends its workers with it, but for what it cannot end."""
        node = self.node
        if node is None:
            return
        self.note("the node is killed")
        self.tally["node killed"] += 1
        self._killed = None if node.fleet.stopping else node.store.holder.life
        self._leave(node)
        for worker in list(self.processes):
            stays = int(worker.component.split(":")[2]) < self.counts[worker.crew]
            if self.chance.random() < 0.1 and stays:
                worker.unkillable_for = self.chance.choice([0.5, 5.0, 40.0])
                worker.frozen = True
                self.tally["unkillable"] += 1
            else:
                worker.die(signal=9)

    def node_ends(self, node: Node) -> None:
        """A node that was asked to stop has nothing left: nothing may be left of it in the store, either."""
        self.note("the node has stopped")
        self.tally["node stopped"] += 1
        settled = node.ledger.settled
        self._leave(node)
        running = [job.id for job in self.oracle.jobs.jobs.values() if job.state == "running"]
        left = [worker for worker in self.processes if worker.node is node]
        self.oracle.check(not left, f"a node stopped in order and left {left}")
        spared = any(worker.node is not node for worker in self.processes)
        self.oracle.check(not (settled and running) or spared, f"a node stopped in order and left {running} running")

    def _leave(self, node: Node) -> None:
        node.alive = False
        self.node = None
        self.after(self.chance.uniform(0.05, 3), self.start_node)


def lives(died: str | None) -> tuple[str, ...]:
    """The lives that ended unasked, if one did."""
    return () if died is None else (died,)
