"""Many writers at once, and one who does not let go."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from world import World, gone

from chargehand import Chargehand, clock
from chargehand.testing import eventually
from paths import python_path

ENQUEUER = """
import json, sys
from scripted_app import chargehand
from chargehand import clock
path, ledger, mode, count = sys.argv[1:]
hand = chargehand(path)
do = hand.crew("do", "scripted_handlers:Doer")
waits, ids = [], []
for n in range(int(count)):
    began = clock.monotonic()
    if mode == "node":
        ids.append(do.enqueue({"ledger": ledger}).id)
    else:
        with hand.transaction() as tx:
            tx.execute("INSERT INTO song (title) VALUES (?)", (str(n),))
            ids.append(do.enqueue({"ledger": ledger}, within=tx).id)
    waits.append(clock.monotonic() - began)
hand.close()
print(json.dumps({"ids": ids, "worst": max(waits), "total": sum(waits)}))
"""


def start(world: World, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", arguments[0], str(world.store), world.ledger, *arguments[1:]],
        env={**os.environ, "PYTHONPATH": python_path()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_eight_processes_enqueue_while_the_node_works(  # spec: ST-2 WK-3
    hand: Chargehand, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    hand.crew("do", "scripted_handlers:Doer", workers=2)
    with hand.transaction() as tx:
        tx.execute("CREATE TABLE song (title TEXT)")
    with hand.running() as host:
        assert host.ready.wait(20)
        modes = ["node", "store"] * 4
        processes = [start(world, ENQUEUER, mode, "100") for mode in modes]
        told = [process.communicate(timeout=60) for process in processes]
        assert [error for _, error in told] == [""] * 8
        reports = [json.loads(output) for output, _ in told]
        ids = [job_id for report in reports for job_id in report["ids"]]
        assert len(set(ids)) == 800
        eventually(lambda: hand.counts()[0].done == 800, 60)
    assert sorted(job_id for job_id, _ in world.lines("end")) == sorted(ids)
    with hand.transaction() as tx:
        assert tx.execute("SELECT count(*) FROM song") == [(400,)]
    worst = 1000 * max(report["worst"] for report in reports)
    lines = [f"\n  8 enqueuers, 100 jobs each, beside a working node: worst wait {worst:.0f} ms"]
    for mode in ("node", "store"):
        totals = [r["total"] for r, m in zip(reports, modes, strict=True) if m == mode]
        lines.append(f"  fairness through the {mode}: slowest/fastest {max(totals) / min(totals):.2f}")
    with capsys.disabled():
        sys.stdout.write("\n".join(lines) + "\n")


HOLDER = """
import sys
from pathlib import Path
from chargehand.stores import open_store
store = open_store(sys.argv[1])
with store.transaction() as tx:
    tx.execute("CREATE TABLE held (x)")  # so that SQLite's own write lock is held, too, beside ours
    print("held", flush=True)
    sys.stdin.read()
"""
HELD = float(os.environ.get("CHARGEHAND_TEST_HELD", "3"))
"""Seconds; it was tried with 20."""


def test_a_worker_dies_while_somebody_holds_the_write_lock(hand: Chargehand, world: World) -> None:  # spec: SV-3
    """For a while nobody can write; meanwhile every death is noticed and every place filled."""
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    gate = world.gate()
    with hand.running():
        refs = [world.put(do, gate) for _ in range(2)]
        for ref in refs:
            world.started(ref)
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(world.store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        until = clock.monotonic() + HELD
        killed: list[int] = []
        while clock.monotonic() < until:
            victim = (hand.status() or {})["workers"][len(killed) % 2]
            os.kill(victim["pid"], signal.SIGKILL)
            killed.append(victim["pid"])

            def replaced(place: str = victim["component"], old: int = victim["pid"]) -> bool:
                found = next(w for w in (hand.status() or {})["workers"] if w["component"] == place)
                return found["status"] == "healthy" and found["pid"] not in (None, old)

            eventually(replaced, what="the place is filled while the store cannot be written")
        assert all(gone(pid) for pid in killed)
        assert holder.poll() is None
        assert (hand.status() or {})["store"]["waiting_s"] > 1
        holder.communicate()
        gate.touch()
        for ref in refs:
            ref.wait(20)
        assert [ref.job().crashes for ref in refs] == [1, 1]
        assert [len(world.ends(ref)) for ref in refs] == [1, 1]


def fill(ballast: Path) -> None:
    """Write until the disk is full."""
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def test_the_store_fails_for_a_while_and_nothing_is_lost(world: World, hand: Chargehand) -> None:  # spec: SV-3
    """A disk that is full for a while: outcomes wait in the node, and are written when there is room."""
    if os.geteuid() != 0:
        pytest.skip("NOT PROVEN HERE: needs root, to mount a small file system")
    disk = world.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(disk)], check=True)
    try:
        small = World(disk)
        small.ledger = world.ledger
        from scripted_app import chargehand

        other = chargehand(small.store)
        do = other.crew("do", "scripted_handlers:Doer", workers=1)
        gate = world.gate()
        with other.running():
            ref = world.put(do, gate, result="x" * 40_000)
            world.started(ref)
            ballast = disk / "ballast"
            fill(ballast)
            gate.touch()
            eventually(lambda: (other.status() or {})["store"]["failing"], what="the node says what is wrong")
            assert "full" in (other.status() or {})["store"]["failing"]
            with pytest.raises(Exception, match="full"):
                other.find_crew("do").enqueue({"ledger": world.ledger, "result": "y" * 100_000})
            ballast.unlink()
            assert ref.wait(30) == "x" * 40_000
            assert world.put(do, result="again").wait(30) == "again"
        assert len(world.starts(ref)) == 1
        other.close()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_store_whose_path_is_very_long(tmp_path: Path) -> None:
    """A Unix socket's name may have 107 bytes; a store's path may be longer."""
    from scripted_app import chargehand

    folder = tmp_path / ("d" * 100) / ("e" * 100)
    folder.mkdir(parents=True)
    world = World(folder)
    hand = chargehand(world.store)
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    with hand.running() as host:
        assert host.ready.wait(20)
        assert hand.status()
        assert world.put(do).wait(20) == 1
    hand.close()
