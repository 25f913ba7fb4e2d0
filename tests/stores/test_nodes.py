"""Tests for several nodes on one PostgreSQL store: what is kept for each, names, and nodes that disappear."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import ME, NOON, Wall, crew, job, put, register, state, take_one

import pgserver
from chargehand.errors import ConfigurationError, StoreError
from chargehand.host.offline import states
from chargehand.host.readings import Readings
from chargehand.live.bodies import HealthBody, NodeBody, QueueBody
from chargehand.live.components import component_of
from chargehand.model.batch import Batch, Want
from chargehand.model.chores import LookAtQueues
from chargehand.model.health import Verdict
from chargehand.model.job import Done, JobPolicy, State, settle
from chargehand.model.records import (
    GivenUpMark,
    HealthNote,
    Holder,
    NodeAbout,
    OtherNodes,
    RecurringPlan,
    RestartNote,
    Retention,
)
from chargehand.model.status import NodeStatus
from chargehand.model.topic import DEFAULT
from chargehand.model.topic import parse as parse_topics
from chargehand.processes import proc
from chargehand.stores.location import locate
from chargehand.stores.postgres.address import parse
from chargehand.testing import eventually

if (packages := pgserver.missing()) is not None:
    pytest.skip(f"several nodes are NOT tested: pip install {packages}", allow_module_level=True)

from chargehand.node.store_thread import News, Opened, StoreThread, Unusable
from chargehand.stores.postgres import beats
from chargehand.stores.postgres.store import PostgresStore

THERE = Holder("node-b", "life-b")
WANT = (Want("q", "q", 1),)
DAY = 86_400_000
_FIRST = proc.stat(1)
OWN = NodeAbout(
    pid=1, start=_FIRST.start if _FIRST else 0, boot=proc.boot_id(), pid_namespace=proc.pid_namespace()
)  # fmt: skip
"""A node whose process lives."""


@pytest.fixture(autouse=True)
def state_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    return folder / "state"


@pytest.fixture
def url() -> str:
    return pgserver.new_store()


@pytest.fixture
def open_one(url: str) -> Any:
    opened: list[PostgresStore] = []

    def make(**options: Any) -> PostgresStore:
        opened.append(PostgresStore(parse(url), **options))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


Opener = Callable[..., PostgresStore]


def worker(component: str = "worker:q:0", status: str = "healthy", **about: Any) -> HealthNote:
    metadata = msgspec.json.encode({"crew": component.split(":")[1], "will_work": True}).decode()
    return HealthNote(component=component, status=status, heartbeat_age_ms=0, metadata=metadata, **about)


def project(store: PostgresStore, *notes: HealthNote, holder: Holder) -> None:
    with store.transaction() as tx:
        tx.fleet.project(notes, holder)


def others(store: PostgresStore, holder: Holder = ME) -> OtherNodes:
    (found,) = store.turn(Batch(chores=(LookAtQueues(),)), holder).done
    assert abs(found.now_ms - store.now_ms()) < 60_000, "all nodes share the clock of the server"
    return found


def expire(store: PostgresStore, *holders: Holder) -> None:
    with store.transaction() as tx:
        tx.execute("DELETE FROM chargehand_node WHERE incarnation = ANY (%s)", ([each.life for each in holders],))


# what is kept for each node


# spec: MN-1, RP-5
def test_marks_budgets_and_counts_are_kept_for_each_node(open_one: Opener) -> None:
    store = open_one()
    register(store, crew("q", workers=2))
    register(store, crew("q", workers=2), holder=THERE)
    mark = GivenUpMark(component="worker:q:0", crew="q", reason="why", fingerprint="f")
    note = RestartNote(component="worker:q:0", fingerprint="f", restarts=3, restarts_total=7)
    with store.transaction() as tx:
        tx.fleet.mark([mark], THERE)
        tx.fleet.keep_restarts([note], THERE)
        tx.fleet.scale("q", 5, THERE)
        tx.fleet.mark((), ME, cleared=["worker:q:0"])
        tx.fleet.keep_restarts([msgspec.structs.replace(note, restarts=1)], ME)
    assert (store.fleet.given_up("node-a"), len(store.fleet.given_up("node-b"))) == ([], 1)
    assert [each.restarts for each in store.fleet.restarts("node-a")] == [1]
    assert [each.restarts for each in store.fleet.restarts("node-b")] == [3]
    assert [each.scaled for each in store.fleet.crews("node-a")] == [None]
    assert [each.scaled for each in store.fleet.crews("node-b")] == [5]
    assert (len(store.fleet.given_up()), len(store.fleet.restarts()), len(store.fleet.crews())) == (1, 2, 1)


# spec: MN-1
def test_a_registration_leaves_the_rows_of_other_nodes_alone(open_one: Opener) -> None:
    store = open_one()
    register(store, crew("q"), holder=THERE)
    project(store, worker(), holder=THERE)
    register(store, crew("q"))
    project(store, worker(), holder=ME)
    register(store, crew("q"), holder=Holder(ME.node, "another life"))
    assert [(row.node, row.status, row.node_lives) for row in store.fleet.health()] == [("node-b", "healthy", True)]
    found = store.fleet.last_life(THERE.node)
    assert found is not None
    assert found.life == THERE.life
    assert store.fleet.last_life("nobody") is None


# spec: MN-1, WK-12
def test_the_limits_are_those_of_all_nodes_that_live(open_one: Opener) -> None:
    one, two = open_one(node=True), open_one(node=True)
    register(one, crew("q", limit=2))
    register(two, crew("q"), holder=THERE)
    put(one, *(job() for _ in range(4)))
    for node, holder in ((one, ME), (two, THERE)):
        assert len(node.turn(Batch(wants=WANT), holder).grants[0].claims) == 1
    assert two.turn(Batch(wants=WANT), THERE).grants[0].claims == ()
    one.leave(ME)
    register(two, crew("q"), holder=THERE)
    assert len(two.turn(Batch(wants=WANT), THERE).grants[0].claims) == 1


# spec: MN-1, WK-12
def test_nodes_that_register_at_once_agree_on_the_limits(open_one: Opener) -> None:
    stores = [open_one() for _ in range(4)]
    ready = threading.Barrier(4)

    def start(nr: int) -> None:
        ready.wait()
        register(stores[nr], crew("q", limit=nr + 1), holder=Holder(f"node-{nr}", f"life-{nr}"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, range(4)))
    assert stores[0].session.rows(b"SELECT queue, allowed FROM chargehand_limit") == [("q", 1)]


# names


# spec: MN-1
def test_a_second_node_of_a_living_name_is_refused_in_words(open_one: Opener) -> None:
    store, second = open_one(), open_one()
    register(store, pid=77, machine="db7")
    with pytest.raises(StoreError, match=r"'node-a' \(pid 77 on db7\).*CHARGEHAND_NODE"), second.transaction() as tx:
        tx.fleet.register(Holder(ME.node, "another life"), [], {}, after="some other life")
    found = store.fleet.last_life(ME.node)
    assert found is not None
    assert found.life == ME.life
    store.leave(ME)
    assert store.fleet.last_life(ME.node) is None
    with second.transaction() as tx:
        tx.fleet.register(Holder(ME.node, "another life"), [], {})


# spec: MN-1
def test_of_several_that_take_a_name_at_once_one_gets_it(open_one: Opener) -> None:
    register(open_one(), holder=Holder("node-a", "dead"))
    stores = [open_one() for _ in range(4)]
    ready = threading.Barrier(4)

    def start(nr: int) -> bool:
        ready.wait()
        try:
            with stores[nr].transaction() as tx:
                tx.fleet.register(Holder("node-a", f"life-{nr}"), [], {}, after="dead")
        except StoreError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(start, range(4))) == 1


@pytest.fixture
def start(open_one: Opener) -> Any:
    """Starts the store thread of a node; what it reports first is returned."""
    started: list[StoreThread] = []

    def begin(life: str, about: NodeAbout) -> News:
        thread = StoreThread(
            lambda: open_one(node=True), Holder("node-a", life), [], about, Retention(), (), True, dict, lambda _: True,
            JobPolicy(),
        )  # fmt: skip
        started.append(thread)
        thread.start()
        return eventually(thread.take, what="news of the store thread")[0]

    yield begin
    for thread in started:
        thread.stop()
        thread.join(5)


# spec: MN-1
def test_a_node_whose_predecessor_is_proven_dead_takes_over_at_once_and_one_that_lives_is_not_replaced(
    open_one: Opener, start: Callable[[str, NodeAbout], News]
) -> None:
    store = open_one()
    register(store, holder=Holder("node-a", "living"), **msgspec.structs.asdict(OWN))
    news = start("second", OWN)
    assert isinstance(news, Unusable)
    assert "CHARGEHAND_NODE" in news.why
    found = store.fleet.last_life("node-a")
    assert found is not None
    assert found.life == "living"
    register(store, holder=Holder("node-a", "dead"), **msgspec.structs.asdict(OWN) | {"start": 5})
    assert isinstance(start("third", OWN), Opened)


# spec: MN-1
def test_the_name_of_a_node_elsewhere_is_taken_when_its_lease_is_over(
    open_one: Opener, start: Callable[[str, NodeAbout], News]
) -> None:
    """Its pid belongs to a process that lives here, which means nothing."""
    store = open_one(node=True)
    there = msgspec.structs.asdict(OWN) | {"boot": "another", "lease": 0.3}
    register(store, holder=Holder("node-a", "there"), **there)
    assert isinstance(start("second", OWN), Opened)
    register(store, holder=Holder("node-a", "beats"), **there | {"lease": 60.0})
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(0.05):
            store.turn(Batch(poll=True), Holder("node-a", "beats"))

    beating = threading.Thread(target=beat)
    beating.start()
    news = start("third", OWN)
    stop.set()
    beating.join()
    assert isinstance(news, Unusable)


# nodes that disappear


# spec: MN-2
def test_a_node_that_finds_itself_expired_begins_a_new_life_with_what_it_still_holds(open_one: Opener) -> None:
    node, other = open_one(node=True), open_one(node=True)
    register(node, crew("q", limit=5))
    register(other, holder=THERE)
    put(node, job("kept"), job("lost"), job("new"))
    kept, lost = take_one(node), take_one(node)
    expire(other, ME)
    with other.transaction() as tx:
        assert tx.jobs.release("lost", str(lost.number), "taken")
    assert node.new_life() is None
    assert node.turn(Batch(wants=WANT), ME).grants[0].claims == ()
    life = node.new_life()
    assert life is not None
    assert (life.holder.node, life.holder.life != ME.life) == (ME.node, True)
    assert life.held == {(kept.seq, kept.number)}
    assert node.new_life() is None
    assert [each.name for each in node.fleet.crews(ME.node, living=True)] == ["q"]
    ends = [settle(claim, Done()) for claim in (kept, lost)]
    batch = Batch(settlements=tuple(each for each in ends if each is not None), wants=WANT)
    result = node.turn(batch, life.holder)
    assert (result.lost, len(result.grants[0].claims)) == (("lost",), 1)
    assert state(node, "kept") is State.DONE


# spec: MN-1, MN-2
def test_a_node_that_finds_its_name_taken_says_so(open_one: Opener) -> None:
    node, other = open_one(node=True), open_one()
    register(node)
    register(other, holder=Holder(ME.node, "another life"))
    with pytest.raises(StoreError, match="another node with the name 'node-a'"):
        node.turn(Batch(poll=True), ME)


# spec: MN-2
def test_a_node_is_expired_by_the_lease_that_it_declared(open_one: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, three = (open_one(node=True) for _ in range(3))
    register(one)
    register(two, holder=THERE, lease=0.0)
    register(three, holder=Holder("node-c", "life-c"))
    put(one, job("theirs"))
    take_one(two, holder=THERE)
    monkeypatch.setattr(beats, "LOOK_EVERY", 0.0)
    for _ in range(3):
        one.turn(Batch(), ME)
    assert state(one, "theirs") is State.QUEUED
    assert one.fleet.last_life(THERE.node) is None
    assert one.fleet.last_life("node-c") is not None


# spec: MN-1
def test_the_workers_of_a_node_that_is_gone_are_shown_as_such(open_one: Opener, url: str) -> None:
    store = open_one(node=True)
    register(store, crew("q"), **msgspec.structs.asdict(OWN))
    project(
        store,
        worker(),
        HealthNote(component="app", status="healthy", heartbeat_age_ms=0, pid=1, pid_start=OWN.start),
        holder=ME,
    )
    register(store, crew("gpu", "gpu"), holder=THERE, boot="another")
    project(store, worker("worker:gpu:0", pid=1, pid_start=5, current_job="j"), holder=THERE)
    shown = {each.node: each for each in map(component_of, store.fleet.health()) if each.component != "app"}
    assert (shown["node-b"].status, shown["node-b"].pid) == ("healthy", 1), "no process of this machine is judged"
    assert (others(store).served, others(store).gone) == (("gpu",), ())
    put(store, job(queue="gpu"))
    readings = Readings(locate(url), synchronous="full")
    assert readings.verdict().reasons == ()
    expire(store, THERE)
    shown = {each.node: each for each in map(component_of, store.fleet.health()) if each.component != "app"}
    gone = shown["node-b"]
    assert (gone.status, gone.pid, gone.current_job, gone.is_healthy) == ("unknown", None, None, False)
    assert gone.text == "its node node-b is gone"
    assert (others(store).served, others(store).gone) == ((), ("node-b",))
    unserved, said = readings.verdict().reasons
    assert unserved == "queue gpu has waiting jobs that no worker takes: no crew serves it"
    assert said == "node node-b is gone: its jobs go to other nodes"
    assert readings.why_waiting("gpu") == "no crew serves it"
    assert (readings.component("worker:gpu:0") or gone).status == "unknown"
    readings.close()


# spec: MN-1
def test_a_node_that_was_stopped_is_not_reported_as_gone_and_one_that_is_gone_is_forgotten_after_a_day(
    open_one: Opener,
) -> None:
    wall = Wall()
    wall.at = start = NOON
    store = open_one(node=True, now_ms=wall)
    register(store)
    register(store, holder=THERE)
    project(store, worker(), holder=THERE)
    expire(store, THERE)
    stopped = Holder("node-c", "life-c")
    register(store, holder=stopped)
    with store.transaction() as tx:
        tx.fleet.project((), stopped, complete=True)
    store.leave(stopped)
    register(store)
    assert others(store).gone == ("node-b",)
    wall.at = start + DAY
    store.prune(Retention(), 10)
    assert others(store).gone == ("node-b",)
    wall.at += 1
    store.prune(Retention(), 10)
    assert others(store).gone == ()


# what any process can read


def node_row(start: int | None = OWN.start, **more: Any) -> HealthNote:
    """The row of a node itself, whose process is the first of its machine."""
    text = msgspec.json.encode(more).decode()
    return HealthNote(component="app", status="healthy", heartbeat_age_ms=0, pid=1, pid_start=start, metadata=text)


@pytest.fixture
def readings(url: str) -> Any:
    made = Readings(locate(url), synchronous="full")
    yield made
    made.close()


def two_nodes(store: PostgresStore) -> None:
    """Registers a node of this machine and one of another, each with a worker of the same name."""
    here = msgspec.structs.replace(OWN, machine="here", version="1")
    register(store, crew("q", workers=2), **msgspec.structs.asdict(here))
    project(store, node_row(rates={"q": [2.0, 1.0]}), worker(pid=1, pid_start=OWN.start), holder=ME)
    register(store, crew("q"), crew("gpu", "gpu"), holder=THERE, boot="another", machine="there", version="2")
    mine = worker(pid=77, pid_start=5, current_job="j")
    telemetry = {"machine": "there", "version": "2", "started_ms": 5, "rates": {"q": [1.0, 4.0]}}
    project(store, node_row(9, **telemetry), mine, holder=THERE)


# spec: MN-1
def test_all_nodes_are_seen_from_any_process_and_no_pid_of_another_machine_is_judged(
    open_one: Opener, readings: Readings
) -> None:
    store = open_one(node=True)
    two_nodes(store)
    here, there = readings.nodes()
    assert (here.name, here.status, here.machine, here.version, here.pid) == ("node-a", "healthy", "here", "1", 1)
    assert (there.name, there.status, there.machine, there.version, there.pid) == ("node-b", "healthy", "there", "2", 1)
    counted = [(crew.crew, crew.queue, crew.configured, crew.live, crew.busy) for crew in there.crews]
    assert counted == [("gpu", "gpu", 1, 0, 0), ("q", "q", 1, 1, 1)]
    assert [(crew.configured, crew.live, crew.busy) for crew in here.crews] == [(2, 1, 0)]
    project(store, node_row(3), holder=ME)
    assert [node.status for node in readings.nodes()] == ["gone", "healthy"], "its process is dead, on this machine"
    expire(store, THERE)
    (_, there) = readings.nodes()
    assert (there.status, there.pid, there.machine, there.version) == ("gone", None, "there", "2")
    assert [(crew.crew, crew.live, crew.busy) for crew in there.crews] == [("gpu", 0, 0), ("q", 0, 0)]


# spec: MN-1
def test_a_worker_of_several_nodes_is_named_with_its_node(open_one: Opener, readings: Readings) -> None:
    store = open_one(node=True)
    two_nodes(store)
    for question in (readings.component, readings.is_healthy):
        with pytest.raises(ConfigurationError, match="name one of node-a/q:0, node-b/q:0"):
            question("worker:q:0")
    found = readings.component("node-b/q:0")
    assert found is not None
    assert (found.node, found.component, found.current_job) == ("node-b", "worker:q:0", "j")
    assert readings.is_healthy("node-b/q:0")
    assert readings.is_healthy("app")
    assert readings.component("node-c/q:0") is None
    project(store, worker(status="crashed"), holder=THERE)
    (said,) = readings.verdict().reasons
    assert said.startswith("node-b/q:0 crashed")
    expire(store, THERE)
    assert (readings.component("worker:q:0") or found).node == "node-a", "the other one is gone"
    assert (readings.component("node-b/q:0") or found).status == "unknown"


# spec: MN-1, MN-7
def test_a_process_without_a_node_shows_the_nodes_workers_and_throughput_of_all(
    open_one: Opener, readings: Readings
) -> None:
    store = open_one(node=True)
    two_nodes(store)
    put(store, job())
    shown = {each.key: each.body for each in states(readings, parse_topics(DEFAULT))}
    assert {key for key in shown if key.startswith(("node:", "worker:"))} == {
        "node:node-a:status", "node:node-b:status", "worker:q:0:status@node-a", "worker:q:0:status@node-b",
    }  # fmt: skip
    queue = shown["queue:q:status"]
    assert isinstance(queue, QueueBody)
    assert (queue.rate, queue.mean_duration_s, queue.queued) == (3.0, 2.0, 1)
    assert shown["system:health"] == HealthBody(Verdict.HEALTHY)
    assert readings.unserved() == {}
    assert {each.node for each in readings.elsewhere(None)} == {"node-a", "node-b"}
    assert {each.node for each in readings.elsewhere(NodeStatus(node="node-a", pid=1))} == {"node-b"}
    expire(store, THERE)
    shown = {each.key: each.body for each in states(readings, parse_topics(DEFAULT))}
    gone = shown["node:node-b:status"]
    assert isinstance(gone, NodeBody)
    assert gone.status == "gone"
    queue = shown["queue:q:status"]
    assert isinstance(queue, QueueBody)
    assert (queue.rate, {each.node for each in readings.elsewhere(None)}) == (2.0, {"node-a"})


# recurring jobs


def plan(name: str, schedule: str = "s", next_run_ms: int = 1000) -> RecurringPlan:
    return RecurringPlan(name=name, schedule=schedule, job="{}", next_run_ms=next_run_ms)


def recur(store: PostgresStore, *plans: RecurringPlan, holder: Holder) -> list[str]:
    with store.transaction() as tx:
        tx.jobs.recur(plans, holder)
    return [each.name for each in store.jobs.recurring()]


# spec: WK-11, MN-1
def test_a_node_replaces_its_own_recurring_jobs_and_leaves_those_of_nodes_that_live(open_one: Opener) -> None:
    store = open_one()
    register(store)
    register(store, holder=THERE)
    recur(store, plan("both"), plan("mine"), holder=ME)
    assert recur(store, plan("both", next_run_ms=5), plan("theirs"), holder=THERE) == ["both", "mine", "theirs"]
    assert store.jobs.recurring()[0].next_run_ms == 1000, "the next time is kept"
    assert recur(store, plan("new"), holder=ME) == ["both", "new", "theirs"]
    assert recur(store, holder=ME) == ["both", "theirs"]
    expire(store, THERE)
    assert recur(store, plan("mine"), holder=ME) == ["mine"]


# spec: WK-11
def test_nodes_that_start_at_once_declare_the_same_recurring_jobs_and_one_of_them_fires(open_one: Opener) -> None:
    stores = [open_one() for _ in range(4)]
    ready = threading.Barrier(4)

    def start(nr: int) -> bool:
        holder = Holder(f"node-{nr}", f"life-{nr}")
        register(stores[nr], holder=holder)
        ready.wait()
        recur(stores[nr], plan("a"), plan("b"), holder=holder)
        with stores[nr].transaction() as tx:
            return tx.jobs.fire("a", 1000, 2000, job(f"fired-{nr}"))

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(start, range(4))) == 1
    assert [(each.name, each.next_run_ms) for each in stores[0].jobs.recurring()] == [("a", 2000), ("b", 1000)]
