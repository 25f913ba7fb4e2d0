"""Tests for a node with real workers on a PostgreSQL store."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from operating import become
from scripted_app import chargehand
from world import Started, World

import pgserver
from chargehand import Chargehand, JobFailed, StoreError, clock
from chargehand.doctor import looks, server
from chargehand.doctor.examine import facts_from
from chargehand.model.doctor.diagnosis import diagnose
from chargehand.model.job import State
from chargehand.stores.location import locate_unread
from chargehand.stores.postgres.address import parse
from chargehand.testing import eventually

if (packages := pgserver.missing()) is not None:
    pytest.skip(f"nodes on PostgreSQL are NOT tested: pip install {packages}", allow_module_level=True)

import psycopg

FULL_DISK = """
CREATE FUNCTION {0}.full() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE 'No space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON {0}.chargehand_job FOR EACH ROW EXECUTE FUNCTION {0}.full()
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return World(tmp_path, pgserver.new_store())


@pytest.fixture
def hand(world: World) -> Iterator[Chargehand]:
    made = chargehand(world.address)
    yield made
    made.close()


@pytest.fixture
def work(world: World) -> Iterator[Callable[..., Started]]:
    """Starts `chargehand work`; what still runs at the end of the test is stopped."""
    started: list[Started] = []

    def start(node: str = "") -> Started:
        started.append(Started(world, NODE_NAME=node) if node else Started(world))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.kill(signal.SIGTERM)
            each.end()


def running_stores() -> list[str]:
    """Returns the stores of the nodes that `doctor` finds."""
    found = {}
    for _, part in looks.nodes():
        found |= part
    return [node["path"] for node in found["nodes"]]


def doctor_finds(url: str) -> set[str]:
    """Returns the causes that `doctor` finds, which must find the node, too."""
    found = {}
    assert str(locate_unread(url)) in running_stores()
    for _, part in server.store(url):
        found |= part
    facts = facts_from(msgspec.to_builtins(found), plain=True, others=())
    return {finding.cause for finding in diagnose(facts, clock.hour).findings}


# spec: ST-1, WK-4, WK-6
def test_jobs_run_and_those_of_a_killed_node_run_again(
    hand: Chargehand, world: World, work: Callable[[], Started]
) -> None:
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    node = work()
    done = world.put(do)
    eventually(lambda: done.job().state is State.DONE, what="the first job done")
    become(hand, "healthy")
    assert doctor_finds(world.address) == {"not-durable"}, "the server of the tests has fsync off"
    pgserver.admin(FULL_DISK.format(parse(world.address).schema))
    with pytest.raises(StoreError, match="the server's disk is full") as full:
        world.put(do)
    assert full.value.code == "disk-full", "as the node was told"
    pgserver.admin(f"DROP FUNCTION {parse(world.address).schema}.full CASCADE")
    gate = world.gate()
    held = world.put(do, gate)
    world.started(held)
    pid = int(node.ready()["pid"])
    os.kill(pid, signal.SIGSTOP)
    assert str(locate_unread(world.address)) in running_stores(), "a node that answers nothing is found, too"
    os.kill(pid, signal.SIGKILL)  # its host starts another one
    world.started(held, times=2)
    gate.touch()
    eventually(lambda: held.job().state is State.DONE, what="the job of the killed node done")
    assert [attempt.outcome for attempt in held.attempts()] == ["interrupted", "done"]


# spec: MN-1, SV-11
def test_two_nodes_of_one_machine_need_only_different_names(
    hand: Chargehand, world: World, work: Callable[..., Started]
) -> None:
    hand.crew("do", "scripted_handlers:Doer", workers=2)
    one, _ = work("one"), work("two")

    def pids(name: str) -> list[int | None]:
        rows = [row for row in hand.internal.health() if row.node == name]
        return [row.pid for row in rows] if len(rows) == 4 and all(row.is_healthy for row in rows) else []

    first, second = (eventually(lambda name=name: pids(name), what=f"node {name}") for name in ("one", "two"))
    assert (hand.status() or {})["node"] in ("one", "two"), "a process of another name uses a node that runs here"
    named = chargehand(world.address, node="two")
    assert (named.status() or {})["node"] == "two"
    (app,) = {row.pid for row in hand.internal.health() if (row.node, row.component) == ("one", "app")}
    assert app is not None
    os.kill(app, signal.SIGKILL)  # the next node of this name ends what is left of it, and nothing else
    eventually(lambda: pids("one") not in ([], first), what="the next node of this name")
    assert pids("two") == second
    assert doctor_finds(world.address) == {"not-durable"}
    one.kill(signal.SIGTERM)
    one.end()
    assert (hand.status() or {})["node"] == "two"
    named.close()


# spec: WK-4, WK-10
def test_a_handler_settles_in_its_own_transaction(hand: Chargehand, world: World) -> None:
    settle = hand.crew("settle", "scripted_handlers:PostgresSettler", workers=2, transactional=True, max_attempts=1)
    with hand.transaction() as tx:
        tx.execute("CREATE TABLE song (title text, worker int)")
    gate = world.gate()
    with hand.running():
        taken = world.put(settle, gate, title="taken away")
        first = world.started(taken)
        (claim,) = hand.claims()
        assert hand.release(taken.id, claim.claim)
        second = world.started(taken, times=2)
        gate.touch()
        good, bad = world.put(settle, title="good"), world.put(settle, title="bad", spoil=True)
        crashed = world.put(settle, title="crashed after the commit", exit=True)
        assert good.wait(20) == {"by": world.starts(good)[0]}
        with pytest.raises(JobFailed, match="spoilt"):
            bad.wait(20)
        assert crashed.wait(20) == {"by": world.starts(crashed)[0]}
        assert taken.wait(20) in ({"by": first}, {"by": second})
        eventually(lambda: not hand.claims(), what="all workers idle")
    with hand.transaction() as tx:
        titles = [title for (title,) in tx.execute("SELECT title FROM song ORDER BY title")]
    assert titles == ["crashed after the commit", "good", "taken away"]
    assert [attempt.outcome for attempt in crashed.attempts()] == ["done"]
    assert taken.wait(20) == {"by": second}


# spec: WK-2, MN-2
def test_a_caller_with_an_open_transaction_delays_only_jobs_with_its_key(hand: Chargehand, world: World) -> None:
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    with hand.running(), psycopg.connect(pgserver.url()) as connection:
        theirs = do.enqueue({"ledger": world.ledger}, key="k", within=connection)
        parent = world.put(do, follow=[("do", {"ledger": world.ledger}, {"key": "k"})])
        with ThreadPoolExecutor(1) as pool:
            ours = pool.submit(do.enqueue, {"ledger": world.ledger}, key="k")
            for _ in range(3):
                world.put(do).wait(20)
            assert (ours.done(), parent.job().state) == (False, State.RUNNING)
            connection.commit()
            assert [ref.wait(20) for ref in (theirs, ours.result(20))] == [1, 1]
        (child,) = parent.wait(20)
        assert do.ref(child).wait(20) == 1


def test_several_jobs_at_the_same_time(hand: Chargehand, world: World) -> None:  # spec: WP-15
    """One of them crashes its worker: only it ends in quarantine; another times out, and its worker goes on."""
    crew = hand.crew("many", "concurrent_handlers:Waiter", takes=dict, workers=2, concurrency=30, max_attempts=1)
    bad = world.put(crew, waits=0.3, end="exit")
    refs = [world.put(crew, waits=0.05) for _ in range(60)]
    late = world.put(crew, world.gate(), options={"timeout": 0.3})
    with hand.running():
        for ref in refs:
            ref.wait(60)
        with pytest.raises(JobFailed, match="poison"):
            bad.wait(60)
        with pytest.raises(JobFailed, match="timed out"):
            late.wait(60)
    assert {ref.job().state for ref in refs} == {State.DONE}
    assert max(ref.job().crashes for ref in (*refs, late)) <= 1
