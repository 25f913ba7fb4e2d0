"""Tests for moving a store into another one: completeness, order, interruptions, refusals, and texts."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import (
    DIRECT,
    EARLIER_ME,
    HOUR,
    ME,
    NOON,
    Wall,
    begin,
    bring,
    cancel,
    cancel_flow,
    crew,
    end,
    everything,
    fan_out,
    finish,
    flow_of,
    job,
    note,
    pause,
    perform_all,
    predecessors,
    put,
    record,
    register,
    retry,
    retry_flow,
    state,
    take,
    take_one,
)
from hypothesis import given
from hypothesis import strategies as st

import pgserver
from chargehand.codec import clean
from chargehand.errors import StoreError
from chargehand.host import nodelock, restart_plan
from chargehand.host.moving import move
from chargehand.model.access import ApiKey, Deed, OperationFilter, Remembered, Scope, Session
from chargehand.model.batch import Note, Want
from chargehand.model.flows import FlowFilter, NewFlow
from chargehand.model.job import Done, Enqueued, Found, GaveUp, Interrupted, NewJob, Raised, State
from chargehand.model.records import (
    CrashFilter,
    CrashReport,
    Discovery,
    GivenUpMark,
    HealthNote,
    Holder,
    JobFilter,
    RecurringPlan,
    RestartNote,
)
from chargehand.store import Store
from chargehand.stores import moving, open_reader, open_store, open_writer
from chargehand.stores.location import Location, locate
from chargehand.stores.moving import JOBS, PARTS, TRIED, Move, Moved, Row, Writer
from chargehand.stores.sqlite.store import SqliteStore

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        (packages := pgserver.missing()) is not None,
        reason=f"the PostgreSQL store is NOT tested: pip install {packages}",
    ),
]
Place = Callable[[str, str], Location]
"""Returns the location of a new store: of this kind and role."""
ACROSS = [("sqlite", "postgres"), ("postgres", "sqlite")]
WAYS = [*ACROSS, ("sqlite", "sqlite"), ("postgres", "postgres")]
ways = pytest.mark.parametrize(("kind", "to"), WAYS)
across = pytest.mark.parametrize(("kind", "to"), ACROSS)
OTHER = Holder("node-a", "life-3")
LONG_KEY = "ö" * 900


@cache
def postgres_url(role: str) -> str:
    """Returns the URL of a store of this process; tests empty it, which is faster than a new one."""
    url = f"{pgserver.url()}&schema=test_moving_{os.getpid()}_{role}"
    open_store(url).close()
    return url


@pytest.fixture(autouse=True)
def state_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))


@pytest.fixture
def place(folder: Path) -> Place:
    def new(kind: str, role: str) -> Location:
        if kind == "sqlite":
            return locate(f"sqlite:///{folder}/{role}.db")
        found = locate(postgres_url(role))
        assert found.server is not None
        run(found, "DROP TABLE IF EXISTS chargehand_moving")
        pgserver.empty(found.server.conninfo, str(found.server.schema))
        return found

    return new


def run(where: Location, *statements: str) -> list[Any]:
    """Runs statements, and returns the rows of the last; also on the target of an unfinished move."""
    if where.server is None:
        import apsw

        connection = apsw.Connection(str(where.path))
        try:
            return [connection.execute(each).fetchall() for each in statements][-1]
        finally:
            connection.close()
    import psycopg

    with psycopg.connect(where.server.conninfo) as connection:
        connection.execute(f"SET LOCAL search_path = {where.server.schema}".encode())
        found = [connection.execute(each.encode()) for each in statements][-1]
        return found.fetchall() if found.description is not None else []


@pytest.fixture
def opened(wall: Wall) -> Iterator[Callable[[Location], Store]]:
    stores: list[Store] = []

    def one(where: Location) -> Store:
        if where.server is None:
            stores.append(SqliteStore(where.path, now_ms=wall))
        else:
            from chargehand.stores.postgres.store import PostgresStore

            stores.append(PostgresStore(where.server, now_ms=wall))
        return stores[-1]

    yield one
    for store in stores:
        store.close()


Open = Callable[[Location], Store]


def moved(source: Location, target: Location, **options: bool) -> Moved:
    return move(source, target, lambda *_: None, **options)


# what a store holds


def fill(store: Store, wall: Wall) -> None:
    """Writes rows of every kind, and jobs in every state except `running`, with every kind of history."""
    wall.at = NOON
    register(
        store, crew("tag", workers=2, limit_per_key=1, rate="900/day"), crew("mail", "r", limit=4, hide=("token",))
    )
    bring(store, State.DONE, label="done at once", tags=("nightly", "größe: 日本", "nightly"))
    twice = bring(store, State.RUNNING, id="twice", payload='{"a": "\\u0000"}')
    end(store, twice, Raised("Traceback: x"), worker="worker:tag:1", pid=7, duration_ms=20)
    wall.at += HOUR
    note(store, again := take_one(store), progress='{"done": 1}')
    end(store, again, Done('{"r": 1}'), worker="worker:tag:0", pid=8, duration_ms=30)
    bring(store, State.FAILED, max_attempts=1, key="free again")
    bring(store, State.FAILED, id="to retry", tags=("nightly",))
    bring(store, State.CANCELLED)
    bring(store, State.QUEUED, priority=-1)
    put(store, job("given up on early"))
    cancel(store, "given up on early")
    cancelled_late = bring(store, State.RUNNING)
    cancel(store, cancelled_late.id)
    end(store, cancelled_late, Interrupted("stop"))
    put(store, job("holder", queue="r", key="k"))
    parent = bring(store, State.RUNNING)
    end(store, parent, Done("1", (job("child", queue="r"), job("alias of holder", queue="r", key="k"))))
    retry(store, "to retry")
    with store.transaction() as tx:
        found = (Found(item="song", label="a song"), Found(item=LONG_KEY, payload='["x"]'))
        tx.jobs.discover([Discovery(queue="q", found=found, priority=3, max_attempts=2, timeout_ms=None)])
    put(store, job("pruned", queue="s"))
    cancel(store, "pruned")
    put(store, *(job(f"suspect {n}", queue="s", timeout_ms=None) for n in range(2)))
    take(store, 2, queue="s", holder=EARLIER_ME)
    with store.transaction() as tx:
        tx.jobs.recover(ME, "the node died", died=[EARLIER_ME.life])
    put(
        store, job("future", delay_ms=HOUR, limit_key="x"), job("urgent", priority=9, limit_key="x"), job("last"),
        job("long", key="k" * 200, limit_key=LONG_KEY),
    )  # fmt: skip
    fill_flows(store)
    fill_people(store)
    with store.transaction() as tx:
        tx.jobs.delete(["pruned"])


def fill_flows(store: Store) -> None:
    """Writes flows in every state, and jobs that wait for others, in one queue that nothing else uses."""
    hook = NewJob(id="x", queue="hooks", label="told")
    begin(store, NewFlow(id="goes on", name="größe", on_end=hook), job("root", queue="u"))
    put(
        store,
        job("sum", queue="u", flow="goes on", after=("root",), if_failed="run"),
        job("out", queue="u", after=("sum",)),
    )
    finish(store, "root", fan_out(*(job(f"part {n}", queue="u", flow="goes on") for n in range(3))))
    finish(store, "part 0", Done('"zero"'))
    begin(store, NewFlow(id="failed", name="f", arrival=True, on_end=hook), job("bad", queue="v"))
    put(store, job("for its sake", queue="v", flow="failed", after=("bad",)))
    finish(store, "bad", GaveUp("x"))
    begin(store, "cancelled", job("unwanted member", queue="v"))
    cancel_flow(store, "cancelled")
    put(store, *(job(f"track {n}", queue="u", sequence="album", share="anna") for n in range(2)))
    put(store, job("once", queue="v", key="once", unique_for_ms=HOUR, expires_ms=9 * HOUR))
    claim = take_one(store, queue="v")
    with store.transaction() as tx:
        tx.jobs.note([Note(seq=claim.seq, claim=claim.number, worker="w", age_ms=0, kept='"here"')])
    end(store, claim, GaveUp("x"))


def fill_people(store: Store) -> None:
    pause(store, "tag")
    pause(store, "*", for_ms=HOUR)
    report = {
        "component": "worker:tag:0", "crew": "tag", "incarnation": "i", "pid": 77, "reason": "killed", "text": "t",
        "exit_code": None, "signal": 9, "job": "j-1", "memory": 1 << 40, "uptime_ms": 1500, "follows": "restarts",
        "stacks": "Thread 1", "lines": ("one", "two"), "frames": ("{",),
    }  # fmt: skip
    plans = [RecurringPlan(name=name, schedule="every 1h", job="{}", next_run_ms=NOON) for name in ("a", "b")]
    key = ApiKey(id="k1", name="ann", digest="d1", scopes=(Scope.READ, Scope.CONTROL), created_ms=NOON, used_ms=NOON)
    restarts = RestartNote(
        component="worker:tag:0", fingerprint="f", charged_age_ms=(HOUR, 0), streak=2, rested_age_ms=5, restarts=1,
        restarts_total=9,
    )  # fmt: skip
    with store.transaction() as tx:
        tx.jobs.recur(plans, ME)
        tx.jobs.fire("a", NOON, NOON + 3 * HOUR, NewJob(id="fired", queue="r"))
        tx.fleet.scale("tag", 5, ME)
        tx.fleet.report([CrashReport(id=f"c{n}", charged=bool(n), **report) for n in range(2)], ME)  # type: ignore[arg-type]
        tx.fleet.mark([GivenUpMark(component="worker:tag:1", crew="tag", reason="often", fingerprint="f")], ME)
        tx.fleet.keep_restarts([restarts], ME)
        tx.fleet.project([HealthNote(component="worker:tag:0", status="healthy", flags=("stalled",))], ME)
        tx.fleet.snapshot()
        tx.access.add_key(key)
        tx.access.add_key(msgspec.structs.replace(key, id="k2", digest="d2", name="bob"))
        tx.access.revoke_key("bob")
        tx.access.sign_in(Session(digest="s", key="k1", created_ms=NOON, expires_ms=NOON + 9 * HOUR))
        tx.access.log([Deed(who="ann", verb="pause", detail="new model"), Deed(who="ann", verb="stop", origin="cli")])
        tx.access.remember(Remembered(caller="k1", key="i1", digest="d", status=201, body='{"ids": []}'))


def view(store: Store) -> dict[str, Any]:
    """Returns everything that a store shows, through the contract."""
    jobs = everything(store)
    with store.transaction() as tx:
        remembered = tx.access.remembered("k1", "i1")
    found = {
        "jobs": [msgspec.structs.replace(each, claim=None) for each in jobs],
        "attempts": {each.id: store.jobs.attempts(each.id) for each in jobs},
        "tagged": [each.id for each in store.jobs.find(JobFilter(tag="nightly"))],
        "alias": getattr(store.jobs.get("alias of holder"), "id", None),
        "counts": store.jobs.counts(),
        "flows": store.flows.find(FlowFilter()),
        "predecessors": {each.id: predecessors(store, each.id) for each in jobs},
        "followers": {each.id: [one.id for one in store.jobs.followers(each.id)] for each in jobs},
        "children": {each.id: [one.id for one in store.jobs.children(each.id)] for each in jobs},
        "recurring": store.jobs.recurring(),
        "crews": store.fleet.crews(),
        "pauses": store.fleet.pauses(),
        "crashes": store.fleet.crashes(CrashFilter()),
        "given up": [msgspec.structs.replace(each, node="") for each in store.fleet.given_up()],
        "restarts": [msgspec.structs.replace(each, node="") for each in store.fleet.restarts()],
        "history": store.fleet.snapshots(0, 10),
        "keys": store.access.api_keys(),
        "operations": store.access.operations(OperationFilter()),
        "remembered": remembered,
    }
    return msgspec.json.decode(msgspec.json.encode(found))


def claimable(store: Store) -> list[tuple[str, list[tuple[str, bool, bool]]]]:
    """Claims from every queue, in order, and returns the jobs; those that no node knew before are marked."""
    with store.transaction() as tx:
        for scope in ("tag", "*"):
            tx.fleet.resume(scope)
        grants = tx.jobs.claim([Want(queue, queue, 50) for queue in ("q", "r", "s", "u", "v", "hooks")], OTHER)
    return [(each.crew, [(one.id, one.first, one.suspect) for one in each.claims]) for each in grants]


# everything moves


@ways
def test_everything_moves_and_the_source_is_as_it_was(  # spec: ST-5
    place: Place, opened: Open, wall: Wall, kind: str, to: str
) -> None:
    source, target = place(kind, "source"), place(to, "target")
    store = opened(source)
    fill(store, wall)
    before = view(store)
    store.close()
    content = hashlib.sha256(source.path.read_bytes()).digest() if kind == "sqlite" else None
    result = moved(source, target)
    if content is not None:
        assert hashlib.sha256(source.path.read_bytes()).digest() == content
    assert (result.before, result.queued_again, result.rows["job"]) == (False, 0, len(before["jobs"]))
    assert all(result.rows.values()), f"the test has no rows of a part: {result.rows}"
    copy = opened(target)
    assert view(copy) == before
    assert copy.access.sessions() == [], "sign-ins end"
    store = opened(source)
    assert view(store) == before
    assert claimable(copy) == claimable(store)
    put(copy, job("newest"))
    newest = max(each["seq"] for each in before["jobs"])
    assert record(copy, "newest").seq > newest


@ways
def test_flows_go_on_in_the_other_store(  # spec: FL-4, ST-5
    place: Place, opened: Open, wall: Wall, kind: str, to: str
) -> None:
    wall.at = NOON
    source, target = place(kind, "source"), place(to, "target")
    store = opened(source)
    fill_flows(store)
    store.close()
    moved(source, target)
    copy = opened(target)
    assert perform_all(copy, "u") == ["part 1", "part 2", "sum", "track 0", "track 1", "out"]
    assert [one.id for one in predecessors(copy, "sum")] == ["root", "part 0", "part 1", "part 2"]
    assert (flow_of(copy, "goes on").state, flow_of(copy, "goes on").ends) == ("done", 1)
    assert retry(copy, "bad") == ["bad"]
    assert perform_all(copy, "v") == ["bad", "for its sake"]
    assert (flow_of(copy, "failed").state, flow_of(copy, "failed").ends) == ("done", 2)
    assert sorted(retry_flow(copy, "cancelled")) == ["unwanted member"]
    assert len(take(copy, 10, queue="hooks")) == 3
    assert put(copy, job("twice", queue="v", key="once")) == [Enqueued("once", False)]
    cancel(copy, "unwanted member")
    retry(copy, "once")
    assert take_one(copy, queue="v").kept == '"here"'


@ways
def test_numbers_of_deleted_jobs_and_entries_are_not_given_again(  # spec: ST-5
    place: Place, opened: Open, kind: str, to: str
) -> None:
    source, target = place(kind, "source"), place(to, "target")
    store = opened(source)
    for last in ("a", "b"):
        put(store, job(last))
        cancel(store, last)
    with store.transaction() as tx:
        tx.access.log([Deed(who="ann", verb="stop")] * 3)
    used = record(store, "b").seq
    last_entry = store.access.operations(OperationFilter())[0].id
    with store.transaction() as tx:
        tx.jobs.delete(["b"])
        tx.execute("DELETE FROM chargehand_operation")
    store.close()
    moved(source, target)
    copy = opened(target)
    put(copy, job("c"))
    with copy.transaction() as tx:
        tx.access.log([Deed(who="ann", verb="stop")])
    assert record(copy, "c").seq > used
    assert copy.access.operations(OperationFilter())[0].id > last_entry


@across
def test_a_running_job_is_queued_again_as_interrupted_and_nothing_waits_for_it(  # spec: ST-5
    place: Place, opened: Open, wall: Wall, kind: str, to: str
) -> None:
    wall.at = NOON
    source, target = place(kind, "source"), place(to, "target")
    store = opened(source)
    register(store, crew("q", limit_per_key=1))
    put(store, *(job(name, limit_key="k") for name in ("a", "b", "c")), job("ahead", queue="r"), job("unwanted"))
    claim = take_one(store)
    note(store, claim, "worker:q:0", '{"done": 1}')
    assert (claim.id, [each.id for each in take(store, 2)]) == ("a", ["unwanted"]), "b and c are set aside"
    cancel(store, "unwanted")
    with store.transaction() as tx:
        tx.jobs.claim([Want("r", "r", 1, early=1)], ME)
    store.close()
    result = moved(source, target)
    assert (result.queued_again, result.rows["job"]) == (3, 5)
    copy = opened(target)
    found = record(copy, "a")
    assert (found.state, found.interruptions, found.attempts, found.progress) == (State.QUEUED, 1, 0, None)
    (attempt,) = copy.jobs.attempts("a")
    assert (attempt.outcome, attempt.worker, attempt.node) == ("interrupted", "worker:q:0", "node-a")
    assert attempt.claim == str(claim.number)
    assert (state(copy, "unwanted"), record(copy, "unwanted").reason) == (State.CANCELLED, "cancelled")
    assert copy.jobs.claims() == []
    again = take_one(copy, holder=OTHER)
    assert (again.id, again.first) == ("a", False)
    end(copy, again, Done(), holder=OTHER)
    assert [take_one(copy, holder=OTHER).id, take_one(copy, queue="r", holder=OTHER).id] == ["b", "ahead"]


# interruptions


class Dying:
    """A writer whose process dies at one of its writes: before it, or after its commit."""

    def __init__(self, writer: Writer, at: int, after: bool) -> None:
        self._writer, self._at, self._after, self._count = writer, at, after, 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._writer, name)
        if name not in ("begin", "write", "finish"):
            return found

        def act(*args: Any) -> None:
            self._count += 1
            if self._count != self._at:
                found(*args)
                return
            if self._after:
                found(*args)
            raise KeyboardInterrupt

        return act


def attempt_move(source: Location, target: Location, at: int, after: bool) -> bool:
    """Moves until the write with this number. Returns whether there were fewer writes than that."""
    original, writer = open_reader(source), open_writer(target)
    copy = open_reader(target, target=True)
    try:
        dying: Any = Dying(writer, at, after)
        Move(original, dying, copy, lambda *_: None).run()
    except KeyboardInterrupt:
        return False
    finally:
        for each in (copy, writer, original):
            each.close()
    return True


@across
def test_a_move_that_is_interrupted_anywhere_goes_on_where_it_was(  # spec: ST-5
    place: Place, opened: Open, wall: Wall, monkeypatch: pytest.MonkeyPatch, kind: str, to: str
) -> None:
    monkeypatch.setattr(moving, "PAGE_ROWS", 7)
    source, target = place(kind, "source"), place(to, "target")
    store = opened(source)
    fill(store, wall)
    before = view(store)
    store.close()
    tries = 0
    while not attempt_move(source, target, 2, after=bool(tries % 2)):
        tries += 1
        if tries == 2:
            with pytest.raises(StoreError, match="move that has not finished"):
                opened(target)
            with pytest.raises(StoreError, match="move that has not finished"):
                moved(target, place("sqlite", "third"))
    assert tries >= 12
    assert view(opened(target)) == before


@across
def test_starts_count_in_the_target(  # spec: ST-5, WK-19
    place: Place, opened: Open, wall: Wall, kind: str, to: str
) -> None:
    wall.at = NOON
    source, target = place(kind, "source"), place(to, "target")
    store = opened(source)
    register(store, crew("q", rate="3/h", rate_per_key="1/h"))
    put(store, *(job(name, limit_key=name[0]) for name in ("a1", "a2", "b1", "c1", "d1")))
    for claim in take(store, 2):
        end(store, claim, Done())
    store.close()
    moved(source, target)
    wall.at = NOON + HOUR // 2
    copy = opened(target)
    register(copy, crew("q", rate="3/h", rate_per_key="1/h"), holder=OTHER)
    assert [claim.id for claim in take(copy, 9, holder=OTHER)] == ["c1"]
    wall.at = NOON + HOUR
    assert [claim.id for claim in take(copy, 9, holder=OTHER)] == ["a2", "d1"]


@across
def test_a_move_that_was_killed_after_its_end_says_that_it_is_done(  # spec: ST-5
    place: Place, opened: Open, wall: Wall, kind: str, to: str
) -> None:
    source, target = place(kind, "source"), place(to, "target")
    fill(store := opened(source), wall)
    store.close()
    last = len(PARTS) + 2
    assert not attempt_move(source, target, last, after=True)
    result = moved(source, target)
    assert (result.before, result.rows["operation"]) == (True, 2)


def test_a_source_that_changes_during_the_move_is_noticed(place: Place, opened: Open) -> None:  # spec: ST-5
    source, target = place("sqlite", "source"), place("postgres", "target")
    store = opened(source)
    put(store, job("a"), job("b"))
    assert not attempt_move(source, target, 2, after=True)
    cancel(store, "a")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"differ in `job` after the move.*--start-over"):
            moved(source, target)
    moved(source, target, start_over=True)
    copy = opened(target)
    assert [state(copy, each) for each in ("a", "b")] == [State.CANCELLED, State.QUEUED]


@across
def test_a_move_can_start_over(place: Place, opened: Open, wall: Wall, kind: str, to: str) -> None:  # spec: ST-5
    source, target = place(kind, "source"), place(to, "target")
    fill(store := opened(source), wall)
    before = view(store)
    store.close()
    assert not attempt_move(source, target, len(PARTS) + 1, after=True)
    moved(source, target, start_over=True)
    assert view(opened(target)) == before


# refusals


@ways
def test_a_target_with_other_data_is_refused_and_kept(  # spec: ST-5
    place: Place, opened: Open, kind: str, to: str
) -> None:
    source, target = place(kind, "source"), place(to, "target")
    put(opened(source), job("a"))
    other = opened(target)
    put(other, job("b"))
    for _ in range(2):
        with pytest.raises(StoreError, match=r"holds data already \(1 of `job`\)"):
            moved(source, target, start_over=True)
    assert [each.id for each in everything(other)] == ["b"]


def test_an_unfinished_move_is_not_continued_from_another_source(place: Place, opened: Open) -> None:
    source, target = place("sqlite", "source"), place("sqlite", "target")
    for where in (source, other := place("sqlite", "other")):
        put(opened(where), job("a"))
    assert not attempt_move(source, target, 2, after=True)
    with pytest.raises(StoreError, match=r"unfinished move from .*source\.db"):
        moved(other, target)


@pytest.mark.parametrize("used", ["source", "target"])
def test_stores_with_a_node_are_refused(place: Place, opened: Open, used: str) -> None:  # spec: ST-5
    stores = {"source": place("sqlite", "source"), "target": place("sqlite", "target")}
    put(opened(stores["source"]), job("a"))
    lock = nodelock.take(stores[used])
    assert lock is not None
    nodelock.sign(lock, 4711, "node", [], "")
    with pytest.raises(StoreError, match=rf"{used}.db cannot be moved.*a node \(pid 4711\) uses it"):
        moved(stores["source"], stores["target"])
    nodelock.release(lock)
    plan = restart_plan.RestartPlan(host=os.getpid(), start=_start(), deaths=2, window=300, last="killed", at_ms=0)
    restart_plan.announce(stores[used], plan)
    with pytest.raises(StoreError, match=rf"{used}.db cannot be moved.*host \(pid {os.getpid()}\) starts a node"):
        moved(stores["source"], stores["target"])
    restart_plan.announce(stores[used], None)
    moved(stores["source"], stores["target"])


def _start() -> int:
    from chargehand.processes import proc

    found = proc.stat(os.getpid())
    assert found is not None
    return found.start


@DIRECT
@pytest.mark.parametrize("used", ["source", "target"])
def test_stores_with_a_node_on_another_machine_are_refused(  # spec: ST-5
    place: Place, opened: Open, monkeypatch: pytest.MonkeyPatch, used: str
) -> None:
    from chargehand.stores.postgres import moving as postgres

    monkeypatch.setattr(postgres, "BEATS", 0.1)
    monkeypatch.setattr(postgres, "SESSION_ENDS", 0.1)
    stores = {"source": place("postgres", "source"), "target": place("postgres", "target")}
    put(opened(stores["source"]), job("a"))
    node = opened(stores[used])
    register(node)
    with pytest.raises(StoreError, match=r"cannot be moved.*nodes run on it \(node-a\)"):
        moved(stores["source"], stores["target"])
    node.close()
    run(stores[used], "UPDATE chargehand_node SET backend = NULL")  # as behind a pooler
    with monkeypatch.context() as patch:
        beat = "UPDATE chargehand_node SET beat = beat + 1"
        patch.setattr(postgres.clock, "sleep", lambda _: run(stores[used], beat))
        with pytest.raises(StoreError, match=r"cannot be moved.*nodes run on it \(node-a\)"):
            moved(stores["source"], stores["target"])
    moved(stores["source"], stores["target"])


def test_a_store_is_not_moved_onto_itself_or_from_nowhere(place: Place) -> None:
    nowhere = place("sqlite", "source")
    with pytest.raises(StoreError, match="as source and as target"):
        moved(nowhere, nowhere)
    with pytest.raises(StoreError, match="there is no store at"):
        moved(nowhere, place("sqlite", "target"))
    assert list(nowhere.path.parent.iterdir()) == [], "nothing was created"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_source_of_another_version_is_refused_and_not_migrated(place: Place, opened: Open, kind: str) -> None:
    source = place(kind, "source")
    put(opened(source), job("a"))
    newest = "(SELECT max(version) FROM chargehand_schema)"
    older = f"UPDATE chargehand_schema SET version = version + 100 WHERE version = {newest}"
    run(source, older)
    try:
        with pytest.raises(StoreError, match="made by another version"):
            moved(source, place("sqlite", "target"))
    finally:
        run(source, older.replace("+ 100", "- 100"))


# texts and sizes


def test_texts_that_a_database_cannot_hold_are_escaped_and_fail_nothing(place: Place, opened: Open, wall: Wall) -> None:
    source, target = place("sqlite", "source"), place("postgres", "target")
    fill(store := opened(source), wall)
    put(store, job("tagged", tags=("x",)))
    store.close()
    texts = {
        "job": ["label", "item", "error", "payload", "result", "reason", "limit_key"],
        "crash": ["text", "follows", "stacks", "lines"], "operation": ["who", "detail"], "pause": ["reason"],
        "given_up": ["reason"], "remembered": ["caller", "body"], "recurring": ["job"], "key": ["name"],
    }  # fmt: skip
    hostile = "'a' || char(0) || 'b'"
    unique = {"caller", "name"}
    run(
        source,
        *(
            f"UPDATE chargehand_{part} SET {name} = {f'{name} || ' if name in unique else ''}{hostile}"
            for part, names in texts.items()
            for name in names
        ),
        """UPDATE chargehand_job SET tags = '["\\u0000", "\\ud800", "\\ud83d\\ude00"]' WHERE id = 'tagged'""",
    )
    moved(source, target)
    copy = opened(target)
    found = record(copy, "tagged")
    assert (found.label, found.error) == (clean("a\0b"), clean("a\0b"))
    assert found.tags == tuple(map(clean, ("\0", "\ud800", "😀")))
    assert [each.id for each in copy.jobs.find(JobFilter(tag=clean("\0")))] == ["tagged"]
    assert moved(source, target).before


def test_a_page_is_bounded_by_its_bytes(  # spec: ST-5
    place: Place, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "PAGE_BYTES", 10_000)
    for kind in ("sqlite", "postgres"):
        source = place(kind, "source")
        store = opened(source)
        put(store, *(job(payload=json.dumps("x" * size)) for size in (4000, 4000, 4000, 20_000, 1)))
        for _ in range(2):
            end(store, take_one(store), Raised("y" * 9000))
        reader = open_reader(source)
        try:
            assert [len(rows) for rows in moving.pages(reader, JOBS)] == [1, 1, 1, 1, 1]
            monkeypatch.setattr(moving, "PAGE_BYTES", 30_500)
            assert [len(rows) for rows in moving.pages(reader, JOBS)] == [1, 2, 2]
        finally:
            reader.close()
            monkeypatch.setattr(moving, "PAGE_BYTES", 10_000)


# the schema


LEFT_OUT = {
    "sqlite": {
        # "ahead" and "life" are of running jobs, which are queued again
        "job": {"waits_for", "fence", "ahead", "life"},
        "attempt": {"job", "fence"},
    },
    "postgres": {
        "job": {"rank"},
        "attempt": {"job", "nr"},
        "live": {"rank", "ahead", "incarnation"},
        "end": {"pid", "duration_ms"},  # of the last attempt
        "edge": {"due"},  # all open edges are looked at after a move
        # of several nodes, the newest row is moved, and the target has one node
        "crew": {"node"},
        "worker": {"node"},
        "given_up": {"node"},
        "recurring": {"nodes"},
        "limit": {"rate", "rate_per_key"},  # a node that starts declares them again
        "suspect": {"incarnation"},  # the node that had the job, which does not return to the target
    },
}
NOT_MOVED = {
    "schema", "addition", "node", "health", "session", "probe", "tag", "search", "request", "rate", "opening",
}  # fmt: skip
"""Tables that describe the store itself, its running nodes and sign-ins; tags are made from the jobs, a node declares
its rates again when it starts, and the first claim decides which jobs wait for them."""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_every_column_of_every_table_is_moved_or_left_out_for_a_reason(place: Place, opened: Open, kind: str) -> None:
    """Whoever adds a column or a table decides here what a move does with it."""
    where = place(kind, "source")
    opened(where).close()
    if where.server is None:
        columns = """SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c
            WHERE t.type = 'table' AND t.name LIKE 'chargehand_%'"""
    else:
        columns = f"""SELECT table_name, column_name FROM information_schema.columns
            WHERE table_schema = '{where.server.schema}'"""
    tables: dict[str, set[str]] = {}
    for table, column in run(where, columns):
        tables.setdefault(table.removeprefix("chargehand_"), set()).add(column)
    known = {part.name: set(part.columns) for part in PARTS} | {"attempt": set(moving.ATTEMPT)}
    known["live"] = known["end"] = known["job"]
    for table in tables.keys() - NOT_MOVED:
        assert tables[table] - known[table] == LEFT_OUT[kind].get(table, set()), table


# rows


def row_of_job(**fields: Any) -> Row:
    tried = [dict.fromkeys(moving.ATTEMPT) | {"claim": claim} for claim in fields.pop("claims", ())]
    row = dict.fromkeys(JOBS.columns) | {"seq": 1, "state": "queued", "interruptions": 0, TRIED: tried}
    return row | fields


def prepared(row: Row) -> Row:
    (found,) = moving.prepared(JOBS, [row])
    return found


@given(
    claims=st.lists(st.integers(1, 6), max_size=5, unique=True),
    state=st.sampled_from(["queued", "running", "done", "cancelled"]),
    cancel=st.none() | st.just(5),
    text=st.text(st.characters(codec=None), max_size=4),
    tags=st.none() | st.lists(st.text(st.characters(codec=None), max_size=2), max_size=2),
)
def test_rows_that_are_prepared_stay_as_they_are(
    claims: list[int], state: str, cancel: int | None, text: str, tags: list[str] | None
) -> None:
    fields = {"label": text, "error": text, "tags": None if tags is None else json.dumps(tags), "cancel_ms": cancel}
    held = {"claim": 7, "node": "n", "started_ms": 3} if state == "running" else {}
    once = prepared(row_of_job(claims=claims, state=state, **fields, **held))
    numbers = [each["claim"] for each in once[TRIED]]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == len(claims) + (state == "running")
    assert once["state"] != "running"
    msgspec.json.encode(once)  # valid Unicode
    assert prepared(json.loads(json.dumps(once))) == once


def test_claim_numbers_of_a_clock_that_was_set_back_ascend() -> None:
    found = prepared(row_of_job(claims=[5, 3, 4, 9], claim=3, state="failed"))
    assert [each["claim"] for each in found[TRIED]] == [5, 6, 7, 9]
    assert found["claim"] == 6


def test_a_job_that_was_cancelled_while_queued_keeps_its_last_claim() -> None:
    assert prepared(row_of_job(claims=[5], state="cancelled"))["claim"] == 5
    assert prepared(row_of_job(state="cancelled"))["claim"] is None


def test_a_page_has_at_least_one_row_and_no_more_bytes_than_allowed() -> None:
    most = moving.PAGE_BYTES
    assert moving.cut([]) is None
    assert moving.cut([([1], most * 3), ([2], 1)]) == [1]
    assert moving.cut([([1], most - 1), ([2], 1), ([3], 1)]) == [2]
