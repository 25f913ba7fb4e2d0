"""What a node publishes of the other nodes, and what it writes for them: within a second, and no more than that."""

from typing import Any, cast

import msgspec

from chargehand.live.bodies import HealthBody, NodeBody, QueueBody, WorkerBody
from chargehand.live.store_view import StoreLook, StoreView
from chargehand.model.batch import Batch, Grant, Result
from chargehand.model.chores import Project
from chargehand.model.figures import WINDOW
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.policy import LivenessPolicy, RestartPolicy, StartPolicy, Terms
from chargehand.model.health import Verdict
from chargehand.model.held import Held
from chargehand.model.job import Claim
from chargehand.model.ledger import Ledger
from chargehand.model.past import STEP
from chargehand.model.records import Counts, HealthRow, NodeAbout, NodeCrew, NodeRow
from chargehand.model.topic import parse
from chargehand.node.health_rows import HealthRows
from chargehand.node.live import Live
from chargehand.node.reader import Reader
from chargehand.settings.plan import CrewPlan, NodePlan

WORKER = "worker:tag:0"


def row(
    component: str = WORKER, node: str = "b", *, lives: bool = True, status: str = "healthy", **more: Any
) -> HealthRow:
    """A row of a node of another machine, whose pids mean nothing here."""
    job = more.pop("current_job", None)
    metadata = more if component == "app" else {"crew": "tag", "text": None, "will_work": True, **more}
    return HealthRow(
        component=component, node=node, status=status, flags=(), reason=None, pid=1, pid_start=2, incarnation="i",
        current_job=job, last_heartbeat_ms=5, restart_count=0, last_restart_ms=None, exit_code=None, signal=None,
        created_at_ms=1, metadata=msgspec.Raw(msgspec.json.encode(metadata)), age_ms=100, node_lives=lives,
        boot="another boot", pid_namespace="another namespace",
    )  # fmt: skip


def node(name: str = "b", *, lives: bool = True) -> NodeRow:
    about = NodeAbout(machine=f"machine-{name}", version="1") if lives else None
    crews = (NodeCrew(name="tag", queue="tagging", workers=1),)
    return NodeRow(
        name=name, lives=lives, started_ms=1, about=about, last_heartbeat_ms=5, age_ms=100, crews=crews
    )  # fmt: skip


class Asked:
    """A reader that only notes what it is asked to read."""

    def __init__(self) -> None:
        self.looks: list[StoreLook] = []

    def ask(self, look: StoreLook) -> None:
        self.looks.append(look)

    def rest(self) -> None:
        self.looks.clear()


class World:
    """A node that shares its store, or has it alone, with a subscriber of everything but jobs."""

    def __init__(self, *, shared: bool = True, topics: tuple[str, ...] = ()) -> None:
        self.now, self.reader = 100.0, Asked()
        plan = NodePlan(
            store="x", node="a", crews=(CrewPlan(name="own", queue="own", handler="m:H"),), python_path=()
        )  # fmt: skip
        fleet = Fleet({}, RestartPolicy(), LivenessPolicy(), StartPolicy(), lambda: 0.0)
        ledger = Ledger([("own", "own")], lambda: 0.0, self.now)
        self.live = Live(
            "life", plan, fleet, ledger, {}, cast(Reader, self.reader), lambda: ({}, None, {}, ()), shared=shared
        )
        self.live.watch(parse(topics), self.now)

    def look(self, *rows: HealthRow, nodes: tuple[NodeRow, ...] = (), counts: tuple[Counts, ...] = ()) -> StoreLook:
        """Lets the read that is due take place."""
        self.now = max(self.now, self.live.due())
        self.live.step(self.now)
        look = self.reader.looks.pop()
        seen = StoreView(
            look=look, fleet=(nodes, rows) if look.fleet else None, counts=counts if look.queues else None
        )  # fmt: skip
        self.live.seen(seen, 0.001, self.now)
        return look

    def body(self, key: str) -> Any:
        event = self.live.broker.get(key)
        return None if event is None else event.body


# spec: MN-1, MN-7
def test_workers_and_nodes_elsewhere_are_published_within_a_second() -> None:
    world = World()
    both = (node("a"), node())
    assert world.look(row(), row("app"), row(node="a"), nodes=both).fleet
    shown = world.body(f"{WORKER}:status@b")
    assert isinstance(shown, WorkerBody)
    assert (shown.node, shown.status, shown.pid, shown.current_job) == ("b", "healthy", 1, None)
    assert world.body(f"{WORKER}:status@a") is None, "a node knows its own workers better than the store"
    there = world.body("node:b:status")
    assert isinstance(there, NodeBody)
    assert (there.status, there.machine, there.crews[0].live) == ("healthy", "machine-b", 1)
    before, at = world.live.broker.version, world.now
    look = world.look(row(current_job="j", progress={"done": 1, "total": 2}), row("app"), nodes=both)
    assert (look.fleet, world.now - at <= 1.0) == (True, True)
    shown = world.body(f"{WORKER}:status@b")
    assert (shown.current_job, shown.progress.done, there.crews[0].busy) == ("j", 1, 0)
    assert world.body("node:b:status").crews[0].busy == 1
    assert world.live.broker.version == before + 2
    world.look(row(current_job="j", progress={"done": 1, "total": 2}), row("app"), nodes=both)
    assert world.live.broker.version == before + 2, "nothing has changed, so nothing is sent"


# spec: MN-1
def test_a_node_that_is_gone_is_shown_with_its_workers_and_one_that_was_stopped_is_removed() -> None:
    world = World()
    world.look(row(status="crashed", text="signal 9"), row("app"), nodes=(node(),))
    assert world.body("system:health") == HealthBody(Verdict.DEGRADED, ("worker:tag:0 crashed: signal 9",))
    world.look(row(lives=False), row("app", lives=False), nodes=(node(lives=False),))
    assert world.body("node:b:status").status == "gone"
    gone = world.body(f"{WORKER}:status@b")
    assert (gone.status, gone.pid, gone.text) == ("unknown", None, "its node b is gone")
    assert world.body("system:health").errors == ("node b is gone: its jobs go to other nodes",)
    world.look()
    assert (world.body("node:b:status"), world.body(f"{WORKER}:status@b")) == (None, None)
    assert world.body("system:health").errors == ()


# spec: MN-7
def test_the_throughput_of_a_queue_is_that_of_all_nodes() -> None:
    world = World()
    counts = (Counts(queue="tagging", queued=6),)
    world.look(row("app", rates={"tagging": [2.0, 0.5]}), row("app", "c", rates={"tagging": [1.0, 2.0]}), counts=counts)
    queue = world.body("queue:tagging:status")
    assert isinstance(queue, QueueBody)
    assert (queue.rate, queue.mean_duration_s, queue.eta_s) == (3.0, 1.0, 2.0)


# spec: MN-7
def test_jobs_are_read_once_a_second_while_somebody_follows_them() -> None:
    world = World(topics=("job:j1",))
    assert world.look().ids == ("j1",)
    looks = 0
    until = world.now + 5
    while world.now < until:
        assert world.look().ids == ("j1",)
        looks += 1
    assert 5 <= looks <= 8


# spec: MN-7
def test_a_node_that_has_its_store_alone_reads_no_nodes() -> None:
    world = World(shared=False)
    looks = [world.look() for _ in range(3)]
    assert not any(look.fleet for look in looks)
    assert looks[-1].only_if_changed
    assert world.now >= 102, "as seldom as before"


def claim(job: str) -> Claim:
    return Claim(
        id=job, seq=1, number=1, queue="q", payload="null", label=None, priority=0, failures=0, max_attempts=3,
        crashes=0, timeout_ms=None,
    )  # fmt: skip


class Writing:
    """The health rows of a node with one worker."""

    def __init__(self, *, shared: bool) -> None:
        self.fleet = Fleet({"tag": Terms(workers=1)}, RestartPolicy(), LivenessPolicy(), StartPolicy(), lambda: 0.0)
        self.fleet.begin(0.0)
        self.ledger = Ledger([("tag", "q")], lambda: 0.0, 0.0)
        about: dict[str, Any] = {"machine": "m"}
        self.rows = HealthRows(
            self.fleet, self.ledger, {}, now=0.0, beat=5.0, history=None, shared=(lambda _: about) if shared else None
        )
        self.rows.chores(0.0, None)

    def written(self, now: float) -> list[tuple[str, str | None]]:
        found = [chore for chore in self.rows.chores(now, None) if isinstance(chore, Project)]
        return [(note.component, note.current_job) for chore in found for note in chore.notes]


# spec: MN-7
def test_what_workers_do_is_written_once_a_second_for_other_nodes_and_only_if_it_changed() -> None:
    world = Writing(shared=True)
    world.ledger.held[WORKER] = Held(claim("j1"), 0.0)
    world.rows.worked(0.1)
    world.rows.worked(0.5)
    assert world.rows.due() == 1.1
    assert world.written(1.0) == []
    assert world.written(1.1) == [("app", None), (WORKER, "j1")]
    assert (world.rows.due(), world.written(2.1)) == (2.1, []), "the job goes on"
    world.ledger.held[WORKER] = Held(claim("j2"), 2.5)
    assert world.written(3.1) == [("app", None), (WORKER, "j2")]
    del world.ledger.held[WORKER]
    assert world.written(4.1) == [("app", None), (WORKER, None)]
    assert world.rows.due() == 5.0, "only the heartbeat, while there is nothing to do"


# spec: MN-7
def test_a_node_that_has_its_store_alone_writes_its_rows_as_seldom_as_before() -> None:
    world = Writing(shared=False)
    world.ledger.held[WORKER] = Held(claim("j1"), 0.0)
    world.rows.worked(0.1)
    assert (world.rows.due(), world.written(1.2)) == (5.0, [])


def test_an_idle_node_does_not_read_its_store_for_the_charts() -> None:
    """Each of its beats claims in vain."""
    world = World(shared=False)
    world.live.watch(None, world.now)
    moments = [world.now]
    for _ in range(60):
        world.live.committed(Batch(poll=True), Result(grants=(Grant("own", (), None),)), world.now)
        if world.live.due() <= world.now + 5:
            moments.append(world.live.due())
            world.live.step(world.live.due())
            world.live.seen(StoreView(look=world.reader.looks.pop()), 0.001, moments[-1])
        world.now += 5
    assert moments[-1] <= moments[0] + WINDOW + 2 * STEP, "nothing has changed since the start"
