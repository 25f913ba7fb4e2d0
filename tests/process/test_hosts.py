"""Hosts that come and go, fork, nest, and lose their store."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from world import Started, World, gone

from chargehand import Chargehand, StoreError
from chargehand.host import nodelock, restart_plan
from chargehand.host.host import Host
from chargehand.log import Event
from chargehand.model.job import State
from chargehand.processes import proc
from chargehand.stores.location import Location, locate
from chargehand.testing import eventually
from paths import python_path


def script(world: World, text: str) -> "subprocess.Popen[str]":
    head = (
        "import os, sys\nfrom scripted_app import chargehand\nfrom chargehand import clock\n"
        f"hand = chargehand({str(world.store)!r})\ndo = hand.crew('do', 'scripted_handlers:Doer', workers=1)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", head + text],
        env={**os.environ, "PYTHONPATH": python_path()}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_host_may_be_gone_at_once(hand: Chargehand, world: World, capfd: pytest.CaptureFixture[str]) -> None:
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    for _ in range(5):
        with hand.running():
            pass
    assert "Traceback" not in capfd.readouterr().err
    with hand.running():
        assert world.put(do).wait(20) == 1
        with hand.running():
            assert world.put(do).wait(20) == 1
        assert world.put(do).wait(20) == 1  # the inner one did not stop the outer one


def test_a_forked_copy_of_a_host_neither_holds_nor_stops_anything(world: World) -> None:  # spec: WP-7
    host = script(
        world,
        "with hand.running() as host:\n"
        "    host.ready.wait(20)\n"
        "    if os.fork() == 0:\n"
        "        hand.close()\n"
        "        os.write(1, f'closed {os.getpid()}\\n'.encode())\n"
        "        clock.sleep(60)\n"
        "        os._exit(0)\n"
        "    os.write(1, f'node {host.node_pid}\\n'.encode())\n"
        "    clock.sleep(60)\n",
    )
    assert host.stdout
    told = dict(host.stdout.readline().split() for _ in range(2))
    node, copy = int(told["node"]), int(told["closed"])
    assert not gone(node)
    host.kill()
    host.wait()
    eventually(lambda: gone(node), 30, what="the node sees that its host is gone, though a copy of it lives")
    os.kill(copy, signal.SIGKILL)
    host.communicate()


def test_a_script_that_ends_without_a_word_leaves_nothing(world: World) -> None:  # spec: WP-7
    job = {"ledger": world.ledger, "end": "give up"}
    done = script(world, f"hand.host().ready.wait(20)\nprint(do.enqueue({job!r}).id)\n")
    out, error = done.communicate(timeout=60)
    assert (done.returncode, len(out.strip())) == (0, 32)
    assert "Traceback" not in error


def test_a_second_ctrl_c_ends_what_jobs_started_too(  # spec: WP-6
    world: World, work: Callable[..., Started]
) -> None:
    started = work()
    started.ready()
    do = started.hand.crew("do", "scripted_handlers:Doer")
    ref = world.put(do, world.gate(), children=["sleep", "fork", "session", "daemon"])
    world.started(ref)
    children = world.children_of(4)
    started.kill(signal.SIGINT)
    eventually(lambda: (started.view() or {}).get("stopping"))
    started.kill(signal.SIGINT)
    started.end()
    assert [child for child in children if not gone(child)] == []
    assert (ref.job().state, ref.job().interruptions) == (State.QUEUED, 1)


def test_a_store_that_is_deleted_acknowledges_nothing_more(hand: Chargehand, world: World) -> None:  # spec: ST-2
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    with hand.running():
        assert world.put(do).wait(20) == 1
        for end in ("", "-wal", "-shm"):
            os.unlink(f"{world.store}{end}")
        with pytest.raises(StoreError, match="was deleted or replaced"):
            world.put(do)
        eventually(lambda: "was deleted" in str((hand.status() or {})["store"]["failing"]))


def test_nothing_is_enqueued_by_an_empty_list(hand: Chargehand, world: World) -> None:
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    with hand.running() as host:
        assert host.ready.wait(20)
        assert do.enqueue_many([]) == []


def test_a_worker_that_would_host_a_node_is_told_so(world: World) -> None:
    (world.folder / "unguarded.py").write_text(
        "from scripted_app import chargehand\nfrom chargehand import Handler\n"
        "class H(Handler):\n    def perform(self, job): return 1\n"
        f"hand = chargehand({str(world.store)!r})\ncrew = hand.crew('c', 'unguarded:H', workers=1)\n"
        "with hand.running():\n    crew.enqueue(1).wait(3)\n"
    )
    env = {**os.environ, "PYTHONPATH": python_path(world.folder)}
    done = subprocess.run([sys.executable, "-m", "unguarded"], env=env, capture_output=True, text=True, check=False)
    assert "if __name__ == '__main__':" in done.stderr


def test_deleted_files_of_a_node_are_made_again(hand: Chargehand, world: World) -> None:  # spec: SV-11
    hand.crew("do", "scripted_handlers:Doer", workers=1)
    location = locate(str(world.store))
    with hand.running() as host:
        assert host.ready.wait(20)
        node = host.node_pid
        location.node.unlink()
        location.socket.unlink()
        eventually(lambda: location.socket.exists() and nodelock.holder(location))
        assert nodelock.holder(location) == {**(nodelock.holder(location) or {}), "pid": node}
        assert nodelock.take(location) is None
        assert (hand.status() or {})["pid"] == node


def test_a_host_that_cannot_announce_its_pause_still_starts_the_next_node(  # spec: SV-11
    hand: Chargehand, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_full(store: Location, plan: restart_plan.RestartPlan | None) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(restart_plan, "announce", disk_full)
    monkeypatch.setattr("chargehand.host.host.ANNOUNCED", 0.1)
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    with hand.running() as host:
        assert host.ready.wait(20)
        node = host.node_pid
        assert node
        os.kill(node, signal.SIGKILL)
        assert world.put(do).wait(20) == 1
        assert host.node_pid != node


def test_the_lock_file_never_names_an_earlier_node(world: World) -> None:  # spec: SV-11
    location = locate(str(world.store))
    first = nodelock.take(location)
    assert first is not None
    nodelock.sign(first, 11952, "here", ["c" * 200] * 100, "")
    assert (nodelock.holder(location) or {})["pid"] == 11952
    nodelock.release(first)
    second = nodelock.take(location)  # the next host, which has not started its node yet
    assert second is not None
    assert nodelock.holder(location) == {}
    nodelock.release(second)


def test_a_host_that_waits_names_its_crews_that_the_running_node_does_not_have(  # spec: SV-11
    hand: Chargehand, world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chargehand.host.host.STANDBY_POLL", 0.01)
    caplog.set_level("INFO")
    looks = 0
    holder = nodelock.holder

    def counted(store: Location) -> dict[str, Any] | None:
        nonlocal looks
        looks += 1
        return holder(store)

    def logged() -> list[tuple[Any, ...]]:
        facts: list[dict[str, Any]] = [record.__dict__.get("facts", {}) for record in caplog.records]
        found = [(each.get("event"), each.get("pid"), each.get("crews")) for each in facts]
        return [line for line in found if line[0] in (Event.NODE_STANDBY, Event.CREWS_UNSERVED)]

    def looked(more: int) -> None:
        before = looks
        eventually(lambda: looks >= before + more)

    monkeypatch.setattr(nodelock, "holder", counted)
    for name in ("aaa", "bbb", "ccc"):
        hand.crew(name, "scripted_handlers:Doer", workers=1)
    lock = nodelock.take(hand.location)
    assert lock is not None
    host = Host(hand.brief())
    host.start()
    try:
        looked(3)
        assert logged() == []  # the node of the lock is not started yet
        expected: list[tuple[Any, ...]] = []
        for pid, crews, missing in (
            (1, ["bbb"], "aaa, ccc"),
            (2, ["ccc", "bbb", "aaa", "x"], None),
            (3, [], "aaa, bbb, ccc"),
        ):
            nodelock.sign(lock, pid, "elsewhere", crews, "")
            looked(4)
            expected.append((Event.NODE_STANDBY, pid, None))
            expected += [] if missing is None else [(Event.CREWS_UNSERVED, pid, missing)]
            assert logged() == expected
        os.ftruncate(lock, 0)
        old = {"pid": 4, "node": "n", "pid_namespace": nodelock.pid_namespace()}  # as version 0.1.0 signs
        os.pwrite(lock, json.dumps(old).encode(), 0)
        looked(4)
        assert logged() == [*expected, (Event.NODE_STANDBY, 4, None)]
        warnings = [record for record in caplog.records if record.levelname == "WARNING"]
        assert all("own store" in record.__dict__["facts"]["remedy"] for record in warnings)
    finally:
        host.stop(10)
        host.close()
        nodelock.release(lock)


def test_the_jobs_of_a_node_that_was_replaced_are_no_suspects(  # spec: RP-10 SV-11
    hand: Chargehand, world: World
) -> None:
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    gate = world.gate()
    with hand.running() as host:
        refs = [world.put(do, gate) for _ in range(2)]
        for ref in refs:
            world.started(ref)
        node = host.node_pid
        assert node
        with hand.transaction():  # so that it is not stopped within a transaction: nobody else could write
            os.kill(node, signal.SIGSTOP)
            eventually(lambda: (found := proc.stat(node)) and found.state == "T")
        other = Host(hand.brief())
        try:
            locate(str(world.store)).node.unlink()
            other.start()
            for ref in refs:  # of two suspects, only one would run
                world.started(ref, times=2)
            os.kill(node, signal.SIGCONT)
            gate.touch()
            assert [ref.wait(20) for ref in refs] == [1, 1]
        finally:
            other.stop(20)
            other.close()
    assert [(ref.job().crashes, ref.job().interruptions) for ref in refs] == [(0, 1), (0, 1)]


def test_a_node_whose_lock_another_took_stops_and_leaves_the_other_its_files(  # spec: SV-11
    hand: Chargehand, world: World
) -> None:
    hand.crew("do", "scripted_handlers:Doer", workers=1)
    location = locate(str(world.store))
    with hand.running() as host:
        assert host.ready.wait(20)
        node = host.node_pid
        assert node
        os.kill(node, signal.SIGSTOP)  # otherwise it is the first to take the lock of the new file
        location.node.unlink()
        lock = nodelock.take(location)
        assert lock is not None
        location.socket.unlink()
        for file in (location.socket, location.lives):
            file.write_bytes(b"the other's")
        os.kill(node, signal.SIGCONT)
        eventually(lambda: gone(node), what="the node has stopped")
        assert location.socket.read_bytes() == b"the other's"
        assert location.lives.read_bytes().startswith(b"the other's")
        nodelock.release(lock)
        eventually(lambda: host.ready.is_set() and host.node_pid not in (None, node), what="the host serves again")
