"""Processes that applications and handlers fork."""

import json
import os
import subprocess
import sys
from typing import Any

from world import World

from chargehand import Chargehand
from chargehand.model.job import State
from chargehand.testing import eventually
from paths import python_path

STUCK = 20.0
"""Seconds. A process that waits for a lock which a fork made unattainable gives up after 60 s; load costs a few."""
APPLICATION = """
import json, multiprocessing, os, sys, threading
from concurrent.futures import ProcessPoolExecutor
from scripted_app import chargehand
from chargehand import StoreError, clock

hand = chargehand(sys.argv[1])
do = hand.crew("do", "scripted_handlers:Doer", workers=1)
payload = {"ledger": sys.argv[2]}
told = {"waits": [], "ends": []}
writing = threading.Event()

def write():
    while writing.is_set():
        began = clock.monotonic()
        with hand.transaction() as tx:
            do.enqueue(payload, within=tx)
        do.enqueue(payload)
        told["waits"].append(clock.monotonic() - began)

def use(n):
    began = clock.monotonic()
    ref = do.enqueue(payload)
    do.enqueue_many([payload] * 33)  # so many are written without the node
    ref.job()
    return clock.monotonic() - began

def forked(action):
    pid = os.fork()
    if not pid:
        os._exit(action())
    return pid

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def refused():
    do.enqueue(payload)  # through the node, after the parent's transaction
    try:
        hand.counts()
    except StoreError as error:
        return 7 if "was in a transaction" in str(error) else 8

def everybody():
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        told["waits"] += pool.map(use, range(4))
    told["ends"] += [ended(forked(lambda: use(0) > float(sys.argv[3]))) for _ in range(4)]

if __name__ == "__main__":
    hand.open()
    writing.set()
    writers = [threading.Thread(target=write, daemon=True) for _ in range(2)]
    for writer in writers:
        writer.start()
    everybody()
    with hand.running() as host:
        host.ready.wait(20)
        everybody()
        writing.clear()
        for writer in writers:
            writer.join()
        with hand.transaction():
            pid = forked(refused)
        told["ends"].append(ended(pid))
    with hand.transaction() as tx:
        told["ends"].append(tx.execute("PRAGMA integrity_check")[0][0])
    hand.close()
    print(json.dumps(told))
"""


def test_forked_processes_of_an_application_use_its_chargehand(world: World) -> None:  # spec: ST-2
    """Other threads write meanwhile; first without a node, then with one."""
    done = subprocess.run(
        [sys.executable, "-c", APPLICATION, str(world.store), world.ledger, str(STUCK)],
        env={**os.environ, "PYTHONPATH": python_path()}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["ends"] == [0] * 8 + [7, "ok"], done.stderr
    assert max(told["waits"]) < STUCK


def test_processes_that_a_handler_forks(hand: Chargehand, world: World) -> None:  # spec: WP-1 WK-8 WK-9
    fork = hand.crew("fork", "forking_handlers:Forking", workers=1, max_attempts=1)

    def worker() -> dict[str, Any]:
        return (hand.status() or {})["workers"][0]

    def does(what: str) -> Any:
        return world.put(fork, do=what).wait(20)

    with hand.running():
        assert does("nest") == [[0, 1, 4], [0, 1, 4, 9]]
        assert does("look") == "40 files, blocked: [], SIGTERM: <Handlers.SIG_DFL: 0>"
        assert does("close") == 7
        refusals = does("refuse")
        assert ["works only in the process that performs the job" in text for text in refusals] == [True] * 3, refusals
        assert does("leave") == [0, 7, 1]
        eventually(lambda: {"child: logged by child 1", "raised by a child"} <= _logged(hand))
        gate = world.gate()
        ref = world.put(fork, gate, do="progress")
        eventually(lambda: (worker()["progress"] or {}).get("stage") == "in a pool")
        gate.touch()
        assert ref.wait(20) == 45
        pid = worker()["pid"]
        ref = world.put(fork, do="cancel")
        eventually(lambda: worker()["progress"])
        hand.cancel(ref.id)
        eventually(lambda: ref.job().state is State.CANCELLED)
        assert (worker()["pid"], worker()["restart_count"]) == (pid, 0)


def _logged(hand: Chargehand) -> set[str]:
    return {line["text"].rpartition("Error: ")[2] for line in hand.logs("fork")}
