"""Tests for several nodes on one PostgreSQL store: what is kept for each, names, and nodes that disappear."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import ME, NOON, Wall, crew, job, put, record, register, state, take_one

import pgserver
from chargehand.errors import ConfigurationError, NobodyServes, StoreError, UnknownCrew
from chargehand.host import reach
from chargehand.host.offline import states
from chargehand.host.operations import Operations
from chargehand.host.readings import Readings
from chargehand.live.bodies import HealthBody, NodeBody, QueueBody
from chargehand.live.components import component_of
from chargehand.model.batch import Batch, Want
from chargehand.model.chores import AnswerRequest, Lead, LookAtQueues, RecordStop
from chargehand.model.health import Verdict
from chargehand.model.job import Done, JobPolicy, State, settle
from chargehand.model.records import (
    CrashFilter,
    CrashReport,
    GivenUpMark,
    HealthNote,
    Holder,
    LastLife,
    NodeAbout,
    NodeRequest,
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

from chargehand.node.store_thread import Failure, News, Opened, StoreThread, Unusable
from chargehand.stores.postgres import beats, driver
from chargehand.stores.postgres.reading import LONGEST_REQUEST_MS
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
    assert [each.node for each in store.fleet.given_up()] == ["node-b"]
    assert [each.node for each in store.fleet.restarts()] == ["node-a", "node-b"]
    assert len(store.fleet.crews()) == 1


# spec: MN-1
def test_what_a_node_has_left_counts_if_it_returns_and_is_deleted_if_it_never_does(open_one: Opener) -> None:
    wall = Wall()
    wall.at = NOON
    store = open_one(now_ms=wall)
    mark = GivenUpMark(component="worker:q:0", crew="q", reason="why", fingerprint="f")
    for holder in (ME, THERE):
        register(store, crew("q", workers=2), holder=holder)
        project(store, worker(), holder=holder)
        with store.transaction() as tx:
            tx.fleet.mark([mark], holder)
            tx.fleet.keep_restarts([RestartNote(component="worker:q:0", fingerprint="f")], holder)
            tx.jobs.recur([RecurringPlan(name="nightly", schedule="{}", job="{}", next_run_ms=1)], holder)
            tx.fleet.lead(["q"], (), holder)
    wall.at += 100 * DAY
    store.leave(THERE)
    wall.at += 29 * DAY
    store.prune(Retention(), 10)
    assert [each.node for each in store.fleet.given_up()] == ["node-a", "node-b"], "it was there until a month ago"
    wall.at += 2 * DAY
    store.prune(Retention(), 10)
    assert [each.node for each in store.fleet.given_up()] == ["node-a"]
    assert [each.node for each in store.fleet.restarts()] == ["node-a"]
    assert (store.fleet.crews("node-b"), len(store.fleet.crews("node-a"))) == ([], 1)
    with store.transaction() as tx:
        assert tx.execute("SELECT nodes FROM chargehand_recurring") == [(["node-a"],)]
        assert tx.execute("SELECT incarnation FROM chargehand_search") == [(ME.life,)]
        assert tx.fleet.lead((), ["q"], ME) == []
    store.leave(ME)
    store.prune(Retention(), 10)
    assert len(store.fleet.given_up()) == 1


# spec: CL-6
def test_crash_reports_of_one_node_can_be_listed(open_one: Opener, operations: Operations) -> None:
    store = open_one()
    report = CrashReport(
        id="a", component="worker:q:0", crew="q", job=None, incarnation="1", pid=1, reason="crash", text="",
        exit_code=None, signal=9, memory=None, uptime_ms=1, charged=True, follows="",
    )  # fmt: skip
    with store.transaction() as tx:
        tx.fleet.report([report], ME)
        tx.fleet.report([msgspec.structs.replace(report, id="b")], THERE)
    assert [each.id for each in operations.crashes(CrashFilter(component="node-b/q:0"))] == ["b"]
    assert len(operations.crashes(CrashFilter(component="worker:q:0"))) == 2


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


# spec: RP-10, MN-2
def test_a_job_that_ends_its_node_is_found_by_the_nodes_that_expire_it(
    open_one: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beats, "LOOK_EVERY", 0.0)
    watcher = open_one(node=True)
    register(watcher)
    put(watcher, job("guilty"), job("innocent"))
    for number, expected in enumerate(["interrupted", "crashed", "crashed", "crashed"]):
        node, holder = open_one(node=True), Holder(f"victim-{number}", f"victim's life {number}")
        register(node, holder=holder, lease=0.01)
        claims = node.turn(Batch(wants=(Want("q", "q", 2),)), holder).grants[0].claims
        assert claims[0].id == "guilty"
        if number == 1:
            assert [claim.suspect for claim in claims] == [True], "one suspect at a time"
        watch(watcher, holder)
        assert watcher.jobs.attempts("guilty")[-1].outcome == expected
        with watcher.transaction() as tx:
            tx.execute("UPDATE chargehand_live SET waits = NULL")  # as if the time had passed
    assert (state(watcher, "guilty"), record(watcher, "guilty").reason) == (State.FAILED, "poison")
    assert record(watcher, "innocent").crashes == 0


def watch(watcher: PostgresStore, holder: Holder) -> None:
    """The watcher takes turns until it takes this node for dead."""

    def expired() -> bool:
        watcher.turn(Batch(), ME)
        return watcher.fleet.last_life(holder.node) is None

    eventually(expired, what="the node is expired")


# spec: RP-10, MN-2
@pytest.mark.parametrize("asked", [False, True])
def test_a_node_that_was_asked_to_stop_or_returns_makes_no_suspects(
    open_one: Opener, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    monkeypatch.setattr(beats, "LOOK_EVERY", 0.0)
    watcher, node = open_one(node=True), open_one(node=True)
    register(watcher)
    register(node, holder=THERE, lease=0.01)
    put(watcher, job("one"), job("two"))
    assert len(node.turn(Batch(wants=(Want("q", "q", 2),)), THERE).grants[0].claims) == 2
    if asked:
        node.turn(Batch(chores=(RecordStop(),)), THERE)
    watch(watcher, THERE)
    wants = Batch(wants=(Want("q", "q", 2),))
    if asked:
        assert [claim.suspect for claim in watcher.turn(wants, ME).grants[0].claims] == [False, False]
        return
    node.turn(Batch(), THERE)
    assert node.new_life() is not None, "it had not died"
    assert [claim.suspect for claim in watcher.turn(wants, ME).grants[0].claims] == [False, False]


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
    assert (result.lost, len(result.grants[0].claims)) == ((("lost", lost.number),), 1)
    assert state(node, "kept") is State.DONE


# spec: MN-2, WK-12
def test_an_expired_node_claims_nothing_from_a_queue_whose_keys_have_limits(open_one: Opener) -> None:
    node = open_one(node=True)
    register(node, crew("q", limit_per_key=1))
    put(node, job(limit_key="x"), job())
    expire(open_one(), ME)
    assert node.turn(Batch(wants=WANT), ME).grants[0].claims == ()
    life = node.new_life()
    assert life is not None
    assert len(node.turn(Batch(wants=WANT), life.holder).grants[0].claims) == 1


# spec: MN-2
def test_a_node_that_learns_from_a_poll_that_it_was_expired_claims_as_its_new_life(open_one: Opener) -> None:
    node, other = open_one(node=True), open_one()
    register(node, crew("q"))
    node.turn(Batch(poll=True), ME)
    put(other, job())
    expire(other, ME)
    assert len(node.turn(Batch(poll=True, wants=WANT), ME).grants[0].claims) == 1
    life = node.new_life()
    assert life is not None
    assert node.session.rows(b"SELECT incarnation FROM chargehand_live") == [(life.holder.life,)]


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


# spec: MN-1
def test_a_node_of_this_machine_whose_process_has_ended_is_gone_before_its_lease_is_over(
    open_one: Opener, readings: Readings
) -> None:
    store = open_one(node=True)
    two_nodes(store)
    assert readings.verdict().reasons == ()
    about = msgspec.structs.asdict(OWN)
    for life, name, start in (("life-y", "node-y", OWN.start or 0), ("life-z", "node-z", (OWN.start or 0) + 1)):
        register(store, crew("q"), holder=Holder(name, life), **about)
        note = HealthNote(component="app", status="healthy", heartbeat_age_ms=0, pid=1, pid_start=start)
        project(store, note, holder=Holder(name, life))
    assert readings.verdict().reasons == ("node node-z is gone: its jobs go to other nodes",)


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


# requests to nodes


def order(name: str, holder: Holder = THERE, kind: str = "ORDER", body: str = "{}") -> NodeRequest:
    return NodeRequest(id=name, life=holder.life, kind=kind, body=body)


def leave(store: PostgresStore, *requests: NodeRequest) -> None:
    with store.transaction() as tx:
        tx.fleet.ask(requests)


# spec: MN-3
def test_a_request_reaches_the_life_of_the_node_that_it_names_and_the_answer_its_caller(open_one: Opener) -> None:
    here, there = open_one(node=True), open_one(node=True)
    register(here, crew("q"))
    register(there, crew("q"), crew("r", queue="r", workers=0), holder=THERE)
    project(there, worker(), worker("worker:r:0"), HealthNote(component="app", status="healthy"), holder=THERE)
    assert [(node.name, node.life, node.crews, node.workers, node.without) for node in here.fleet.living()] == [
        ("node-a", "life-2", ("q",), (), ()), ("node-b", "life-b", ("q", "r"), ("worker:q:0", "worker:r:0"), ("r",)),
    ]  # fmt: skip
    there.turn(Batch(poll=True, unsure=True), THERE)
    leave(here, order("1", body='{"text": "\\u0000"}'), order("2"))
    assert here.fleet.requests(ME) == []
    asked = there.turn(Batch(poll=True), THERE).asked
    assert asked is not None
    assert [(each.id, each.body) for each in asked] == [("1", '{"text": "\\u0000"}'), ("2", "{}")]
    assert [(each.answer, each.lives) for each in here.fleet.replies(["1", "2"])] == [(None, True)] * 2
    there.turn(Batch(chores=(AnswerRequest("1", '{"ok": 1}'),)), THERE)
    assert [each.id for each in there.fleet.requests(THERE)] == ["2"]
    expire(here, THERE)
    found = {each.id: (each.answer, each.lives) for each in here.fleet.replies(["1", "2", "3"])}
    assert found == {"1": ('{"ok": 1}', False), "2": (None, False)}
    with here.transaction() as tx:
        assert {each.id: each.answer for each in tx.fleet.withdraw(["1", "2"])} == {"1": '{"ok": 1}', "2": None}
    assert here.fleet.replies(["1", "2"]) == []


# spec: MN-3
def test_a_request_that_its_caller_left_behind_is_not_carried_out_later(open_one: Opener) -> None:
    wall = Wall()
    wall.at = NOON
    store = open_one(now_ms=wall)
    register(store, crew("q"), holder=THERE)
    leave(store, order("1"))
    wall.at += LONGEST_REQUEST_MS - 1
    assert len(store.fleet.requests(THERE)) == 1
    wall.at += 1
    assert store.fleet.requests(THERE) == []
    assert len(store.fleet.replies(["1"])) == 1
    wall.at += 60_001
    store.prune(Retention(), 10)
    assert store.fleet.replies(["1"]) == []


# spec: MN-3, WK-10
def test_of_many_wakes_of_one_crew_one_waits_and_the_last_is_not_lost(open_one: Opener) -> None:
    store = open_one()
    register(store, crew("q"), holder=THERE)
    leave(store, order("1", kind="WAKE", body='{"id": "q"}'), order("2", kind="WAKE", body='{"id": "r"}'))
    leave(store, order("3", kind="WAKE", body='{"id": "q"}'), order("4"), order("5"))
    assert sorted(each.id for each in store.fleet.requests(THERE)) == ["2", "3", "4", "5"]
    store.turn(Batch(chores=(AnswerRequest("1", None), AnswerRequest("2", None))), THERE)
    assert sorted(each.id for each in store.fleet.requests(THERE)) == ["3", "4", "5"]


# who searches


def lead(store: PostgresStore, holder: Holder, *ready: str, unready: tuple[str, ...] = ()) -> list[str]:
    (led,) = store.turn(Batch(chores=(Lead(ready, unready),)), holder).done
    return sorted(led)


# spec: MN-1, WK-10
def test_one_node_at_a_time_searches_for_a_crew_until_it_is_gone_or_cannot(open_one: Opener) -> None:
    one, two = open_one(node=True), open_one(node=True)
    register(one, crew("q"))
    register(two, crew("q"), holder=THERE)
    assert lead(one, ME, "q", "r") == ["q", "r"]
    assert lead(two, THERE, "q", "s") == ["s"]
    assert lead(one, ME, "q", "r", "s") == ["q", "r"]
    assert lead(one, ME, "r", unready=("q", "s")) == ["r"]
    assert lead(two, THERE, "q", "r", "s") == ["q", "s"]
    one.leave(ME)
    assert lead(two, THERE, "q", "r") == ["q", "r"]
    expire(two, THERE)
    assert lead(one, ME, "q") == [], "a node that is not registered searches for nothing"
    register(one, crew("q"), holder=Holder(ME.node, "next"))
    assert lead(one, Holder(ME.node, "next"), "q", "r") == ["q", "r"]


# spec: MN-1, WK-10
def test_of_nodes_that_begin_to_search_at_once_one_does(open_one: Opener) -> None:
    stores = [open_one(node=True) for _ in range(4)]
    holders = [Holder(f"node-{number}", f"life-{number}") for number in range(4)]
    for store, holder in zip(stores, holders, strict=True):
        register(store, crew("q"), holder=holder)
    barrier = threading.Barrier(4)

    def begin(number: int) -> list[str]:
        barrier.wait()
        return lead(stores[number], holders[number], "q")

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(begin, range(4))) == [[], [], [], ["q"]]


# pauses of one node


# spec: MN-3, PD-1
@pytest.mark.parametrize("limit", [None, 5])
@pytest.mark.parametrize("scope", ["node-b/*", "node-b/q"])
def test_a_pause_of_one_node_holds_its_claims_and_no_others(open_one: Opener, scope: str, limit: int | None) -> None:
    one, two = open_one(node=True), open_one(node=True)
    register(one, crew("q", limit=limit))
    register(two, crew("q", limit=limit), holder=THERE)
    put(one, job(), job())
    with one.transaction() as tx:
        tx.fleet.pause(scope, "me", None, 60_000)
    (grant,) = two.turn(Batch(wants=WANT), THERE).grants
    assert (grant.claims, grant.limited) == ((), True)
    assert grant.next_in_ms is not None
    assert len(one.turn(Batch(wants=WANT), ME).grants[0].claims) == 1
    with one.transaction() as tx:
        tx.fleet.resume(scope)
    assert len(two.turn(Batch(wants=WANT), THERE).grants[0].claims) == 1


# orders, from the side of their callers


@pytest.fixture
def operations(url: str, open_one: Opener) -> Any:
    """The operations of a machine without a node; node-b runs elsewhere."""
    register(open_one(), crew("q"), holder=THERE)
    made = Operations(locate(url), synchronous="full")
    yield made
    made.close()


def answered(store: PostgresStore, answer: dict[str, Any], *, scope: str | None) -> dict[str, Any]:
    """Waits for a request to node-b, answers it, and returns it."""
    (request,) = eventually(lambda: store.fleet.requests(THERE), what="a request")
    body = msgspec.json.decode(request.body)
    assert body["scope"] == scope
    store.turn(Batch(chores=(AnswerRequest(request.id, msgspec.json.encode(answer).decode()),)), THERE)
    return body


# spec: MN-3
def test_an_order_goes_to_a_node_elsewhere_and_back_comes_what_happened(
    open_one: Opener, operations: Operations
) -> None:
    store = open_one()
    with ThreadPoolExecutor(1) as pool:
        order = pool.submit(operations.drain, "node-b/*", end=True)
        body = answered(store, {"answers": [{"component": "worker:q:0", "text": "stops", "code": "stops"}]}, scope=None)
        assert [(each.component, each.code) for each in order.result()] == [("node-b/q:0", "stops")]
        assert (body["verb"], body["end"]) == ("drain", True)
        order = pool.submit(operations.scale, "q", 3)
        answered(store, {"error": "too many", "kind": "ConfigurationError"}, scope="q")
        with pytest.raises(ConfigurationError, match="too many"):
            order.result()
        dump = pool.submit(operations.stack, "q:0")
        answered(
            store, {"stacks": {"component": "worker:q:0", "code": "dumped", "text": "", "stacks": "main"}}, scope="q:0"
        )
        assert (dump.result().component, dump.result().stacks) == ("worker:q:0", "main")
        past = pool.submit(operations.worker_history, "node-b/q:0")
        diary = {"component": "worker:q:0", "node": "node-b", "at_ms": 1, "moments": []}
        assert answered(store, {"diary": diary}, scope="q:0")["id"] == "worker:q:0"
        assert past.result() == diary
        assert operations.worker_history("nobody/q:0") is None
        logs = pool.submit(lambda: list(operations.logs("node-b/q", count=5)))
        line = {"at_ms": 1, "level": "info", "text": "x", "component": "worker:q:0", "job": None, "event": None}
        assert answered(store, {"lines": [line], "last": "1"}, scope="q")["count"] == 5
        assert [(each["component"], each["text"]) for each in logs.result()] == [("node-b/q:0", "x")]
    with store.transaction() as tx:
        assert tx.execute("SELECT count(*) FROM chargehand_request") == [(0,)]


# spec: MN-3
def test_a_node_that_does_not_answer_or_is_gone_is_an_error_in_words(
    open_one: Opener, operations: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "CALL_TIMEOUT", 0.2)
    store = open_one()
    with pytest.raises(NobodyServes, match=r"node node-b did not answer within 0\.2 s.*withdrawn"):
        operations.stop("q")
    assert store.fleet.requests(THERE) == [], "it is not carried out later"
    register(store, crew("q"), holder=Holder("node-c", "life-c"))
    store.leave(Holder("node-c", "life-c"))
    with pytest.raises(NobodyServes, match="no node 'node-c' that runs; there are: node-b"):
        operations.stop("node-c/q")
    for act in (operations.stop, operations.pause, operations.stack):
        with pytest.raises(UnknownCrew, match="there is no node 'nobody', and there was none; there are: node-b"):
            act("nobody/q")
    monkeypatch.setattr(reach, "CALL_TIMEOUT", 30.0)
    with ThreadPoolExecutor(1) as pool:
        order = pool.submit(operations.stop, "q")
        eventually(lambda: store.fleet.requests(THERE), what="a request")
        expire(store, THERE)
        with pytest.raises(NobodyServes, match="node node-b is gone"):
            order.result()
    with pytest.raises(NobodyServes, match="no node serves"):
        operations.stop("q")


# spec: MN-3, PD-1
def test_a_pause_needs_no_answer_of_a_node(open_one: Opener, operations: Operations) -> None:
    store = open_one()
    project(store, worker(pid=7, current_job="j1"), holder=THERE)
    (answer,) = operations.pause("q:0", reason="why")
    assert (answer.component, answer.text) == ("worker:q:0", "finishes j1, then takes nothing more")
    assert [(pause.scope, pause.reason) for pause in operations.pauses()] == [("node-b/worker:q:0", "why")]
    (answer,) = operations.resume("q:0")
    assert (answer.code, operations.pauses()) == ("resumed", [])
    assert [answer.code for answer in operations.pause("node-b/*")] == ["paused"]
    expire(store, THERE)
    assert [answer.text for answer in operations.pause("q")] == [
        "is paused; no node runs, and the next one takes no jobs either"
    ]
    with pytest.raises(UnknownCrew):
        operations.pause("nothing")
    operations.resume("node-b/*")
    operations.resume("q")
    assert operations.pauses() == []
    assert [entry.target for entry in operations.keys.operations(None)][:2] == ["q", "node-b/*"]


# spec: MN-3, WK-10
def test_a_wake_reaches_the_nodes_elsewhere_and_nobody_waits_for_them(open_one: Opener, operations: Operations) -> None:
    operations.wake("q")
    operations.wake("q")
    (request,) = open_one().fleet.requests(THERE)
    assert (request.kind, msgspec.json.decode(request.body)["id"]) == ("WAKE", "q")
    with pytest.raises(UnknownCrew):
        operations.wake("nothing")


# spec: MN-2
def test_a_turn_that_meets_a_lock_has_beaten(open_one: Opener) -> None:
    node, caller = open_one(node=True), open_one()
    register(node)
    put(node, job("one"))
    held = take_one(node)
    end = settle(held, Done())
    assert end is not None
    thread = StoreThread(
        lambda: node, ME, [], NodeAbout(), Retention(), (), True, dict, lambda _: True, JobPolicy()
    )  # fmt: skip
    before = node.fleet.last_life(ME.node)
    with caller.transaction() as tx:
        tx.jobs.cancel(["one"])
        failure = thread._turn(node, Batch(settlements=(end,)))
    after = node.fleet.last_life(ME.node)
    assert isinstance(failure, Failure)
    assert (failure.beaten, failure.code) == (True, "store-locked")
    assert before is not None
    assert after is not None
    assert (after.beat or 0) > (before.beat or 0)
    os.close(thread.ready)


# spec: RP-10, MN-1
def test_a_node_whose_name_is_taken_over_from_another_machine_died_unless_it_was_asked_to_stop() -> None:
    own = msgspec.structs.replace(OWN, machine="here")
    thread = StoreThread(
        lambda: pytest.fail("it is not opened"), ME, [], own, Retention(), (), True, dict, lambda _: True, JobPolicy()
    )  # fmt: skip
    elsewhere = NodeAbout(pid=1, start=1, boot="another", pid_namespace="1")
    asked = msgspec.structs.replace(elsewhere, asked=True)
    assert thread._find_died(LastLife("there", elsewhere, beat=7)) == ("there",)
    assert thread._find_died(LastLife("there", asked, beat=7)) == ()
    assert thread._find_died(LastLife("here", own, beat=7)) == (), "the record of its processes says that it was asked"
    assert thread._find_died(LastLife("earlier boot", elsewhere)) == (), "in a store for one node"
    assert thread._find_died(None) == ()
    os.close(thread.ready)


# spec: WK-12
def test_a_limit_that_is_lifted_may_bring_back_any_number_of_jobs(
    open_one: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(driver.NODE_SETTINGS, "statement_timeout", "1s")
    store = open_one(node=True)
    register(store, crew("q", limit_per_key=1))
    put(store, *(job(f"j{number}", limit_key="x") for number in range(3)))
    assert len(store.turn(Batch(wants=(Want("q", "q", 3),)), ME).grants[0].claims) == 1
    pgserver.admin(
        f"""CREATE FUNCTION {store.session.address.schema}.slow() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN IF old.waits = 'limit' THEN PERFORM pg_sleep(0.6); END IF; RETURN new; END $$;
        CREATE TRIGGER slow BEFORE UPDATE ON {store.session.address.schema}.chargehand_live
        FOR EACH ROW EXECUTE FUNCTION {store.session.address.schema}.slow()"""
    )
    register(store, crew("q"))
    assert len(store.turn(Batch(wants=(Want("q", "q", 3),)), ME).grants[0].claims) == 2


# spec: MN-2
def test_what_was_observed_on_a_lost_connection_expires_nobody(
    open_one: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may have been away since, so that the other node could not beat."""
    monkeypatch.setattr(beats, "LOOK_EVERY", 0.0)
    watcher = open_one(node=True)
    register(watcher)
    register(watcher, holder=THERE, lease=0.0)
    register(watcher)  # the last one is the node of this store
    usual, lost = beats.Beats.dead, [True]

    def dead(self: beats.Beats, *seen: Any) -> list[beats.Seen]:
        found = usual(self, *seen)
        if found and lost.pop():
            watcher.session.drop()
        return found

    monkeypatch.setattr(beats.Beats, "dead", dead)
    while lost:
        watcher.turn(Batch(), ME)
    assert watcher.fleet.last_life(THERE.node) is not None
    lost.append(False)
    watcher.turn(Batch(), ME)
    watcher.turn(Batch(), ME)
    assert watcher.fleet.last_life(THERE.node) is None, "on the new connection it is observed anew"


# spec: MN-2
def test_a_late_answer_makes_no_node_older_than_it_is() -> None:
    """A beat was seen when the answer came, and stood still until the question was asked."""
    seen, watched = beats.Seen("life", "node", 7, False, '{"lease": 3}'), beats.Beats()
    assert watched.dead([seen], 10.0, 1, asked_at=0.0) == []
    assert watched.dead([seen], 11.0, 1, asked_at=10.5) == [], "it was read 0.5 s before"
    assert watched.dead([seen], 99.0, 1, asked_at=12.9) == [], "it may have been read at 12.9"
    assert watched.dead([seen], 99.0, 1, asked_at=13.0) == [seen]
