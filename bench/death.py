"""From a death to its being noticed, and to the dead one's job running again."""

import os
import random
import signal
from collections.abc import Iterable
from time import monotonic_ns

from bench import bare
from bench.hosting import CrewSpec
from bench.row import Row, measures, p50, p99
from bench.scene import Stage, stage
from chargehand import clock
from chargehand.log import Event

KILLS = 120
LADEN_KILLS = 25
RESTARTS = 7
PAUSE = 0.05
"""Seconds until a dead worker's successor is started: by default it is one; here only so long that it disturbs
nothing that is measured."""


def _held(on: Stage, number: int) -> int:
    """A worker that has a job in hand: its pid. When the job runs again it will end at once."""
    free = on.folder / f"free-{number}"
    on.crew.enqueue({"ear": on.ear.name, "free": str(free)})
    pid = on.ear.hear().pid
    free.touch()
    return pid


def _kill_one(on: Stage, number: int) -> tuple[float, float]:
    """Kill a worker with a job in hand beside an idle sibling; seconds until noticed, and until the job runs again."""
    pid = _held(on, number)
    clock.sleep(random.uniform(0.01, 0.03))  # so that it dies at any moment, and the machine is at rest
    killed = monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    noticed = on.log.arrival(Event.WORKER_EXITED)
    again = on.ear.hear()
    if again.pid == pid:
        raise RuntimeError("the job was run by a dead worker")
    on.log.arrival(Event.WORKER_READY)  # its successor
    return (noticed - killed) / 1e9, (again.began - killed) / 1e9


def _kills(handler: str, count: int) -> tuple[list[float], list[float], list[float]]:
    """So many kills: seconds until noticed, until running again, and of a bare commit on the same disk."""
    with stage(CrewSpec("hold", handler, 2), pause=PAUSE, piped=True) as on:
        noticed, again = zip(*(_kill_one(on, number) for number in range(count)), strict=True)
        return list(noticed), list(again), bare.commits(on.folder, count, paced=True)


@measures("kill to noticed, p50", "kill to noticed, p99", "kill to running again, p50", "kill to running again, p99")
def bare_worker() -> Iterable[Row]:
    """Noticed is when the node's log line arrives in our pipe; running again is what the handler's own clock says."""
    noticed, again, commits = _kills("Hold", KILLS)
    deaths = bare.deaths(KILLS // 2)
    limits = bare.sums(deaths, commits, bare.wake_ups(KILLS))
    late = f"the node's log line comes {1000 * (p50(noticed) - p50(deaths)):.1f} ms after a bare pidfd tells"
    slow = f"noticed after {1000 * p50(noticed):.1f} ms (bare: {1000 * p50(deaths):.1f}), then a commit of "
    slow += f"{1000 * p50(commits):.1f} ms from rest, and wake-ups"
    yield Row("kill to noticed, p50", 1000 * p50(noticed), "ms", 1000 * p50(deaths), 3.0, note=late)
    yield Row("kill to noticed, p99", 1000 * p99(noticed), "ms", 1000 * p99(deaths), 15.0, note=late)
    yield Row("kill to running again, p50", 1000 * p50(again), "ms", 1000 * p50(limits), 5.0, note=slow)
    yield Row("kill to running again, p99", 1000 * p99(again), "ms", 1000 * p99(limits), 15.0, note=slow)


@measures("kill of 300 MB to running again, p50")
def laden_worker() -> Iterable[Row]:
    """The kernel's teardown of the memory is most of it."""
    _, again, commits = _kills("Laden", LADEN_KILLS)
    deaths = bare.deaths(10, megabytes=300)
    limits = bare.sums(deaths, commits, bare.wake_ups(LADEN_KILLS))
    note = f"the kernel needs {1000 * p50(deaths):.0f} ms to end a bare process of that size"
    yield Row("kill of 300 MB to running again, p50", 1000 * p50(again), "ms", 1000 * p50(limits), 35.0, note=note)


@measures("kill of everything to running again")
def everything() -> Iterable[Row]:
    """Host, node and workers killed; from the start of a new host until the job runs again. Limit: bare starts."""
    took: list[float] = []
    limits: list[float] = []
    chain = (
        "bench.hosting, chargehand.app",
        "chargehand.node.node, chargehand.stores.sqlite.store",
        "chargehand.worker.main",
    )
    with stage(CrewSpec("hold", "Hold", 2)) as on:
        for number in range(RESTARTS):
            _held(on, number)
            on.kill()
            began = monotonic_ns()
            on.start()
            took.append((on.ear.hear().began - began) / 1e6)
            on.healthy()
            limits.append(sum(1000 * bare.start(imports) for imports in chain))
    limit = p50(limits)
    note = "beyond three interpreters' starts one after the other (host, node, worker) with their imports"
    yield Row("kill of everything to running again", p50(took), "ms", limit, limit + 100, note=note)


@measures("spawn to ready")
def spawn_to_ready() -> Iterable[Row]:
    """From the moment that the successor is due, which is known, until the node has logged that it is ready."""
    took: list[float] = []
    limits: list[float] = []
    with stage(CrewSpec("nothing", "Nothing", 1), pause=0.1, piped=True) as on:
        for _ in range(20):
            (_, (pid,)) = on.pids()
            os.kill(pid, signal.SIGKILL)
            due = on.log.arrival(Event.WORKER_DELAYED) + 0.1e9
            took.append((on.log.arrival(Event.WORKER_READY) - due) / 1e6)
            on.healthy()
            limits.append(1000 * bare.start("chargehand.worker.main, bench.handlers"))
    yield Row("spawn to ready", p50(took), "ms", p50(limits), 120.0, note="an interpreter's start and its imports")
