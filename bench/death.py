"""Measures the time from a kill to its detection, and until the job runs again."""

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
"""Restart delay of a killed worker in seconds: one by default; here just long enough not to disturb the measurement."""


def _held(on: Stage, number: int) -> int:
    """Returns the pid of a worker with a running job. When the job runs again, it finishes immediately."""
    free = on.folder / f"free-{number}"
    on.crew.enqueue({"ear": on.ear.name, "free": str(free)})
    pid = on.ear.hear().pid
    free.touch()
    return pid


def _kill_one(on: Stage, number: int) -> tuple[float, float]:
    """Kills a worker with a job next to an idle one; returns the seconds to detection and to the next run."""
    pid = _held(on, number)
    clock.sleep(random.uniform(0.01, 0.03))  # so that the kill happens at a random time while the machine is idle
    killed = monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    noticed = on.log.arrival(Event.WORKER_EXITED)
    again = on.ear.hear()
    if again.pid == pid:
        raise RuntimeError("a killed worker ran the job")
    on.log.arrival(Event.WORKER_READY)  # the restarted worker
    return (noticed - killed) / 1e9, (again.began - killed) / 1e9


def _kills(handler: str, count: int) -> tuple[list[float], list[float], list[float]]:
    """Returns, for each kill, the seconds until detection, until the job runs again, and of a bare commit."""
    with stage(CrewSpec("hold", handler, 2), pause=PAUSE, piped=True) as on:
        noticed, again = zip(*(_kill_one(on, number) for number in range(count)), strict=True)
        return list(noticed), list(again), bare.commits(on.folder, count, paced=True)


@measures("kill to noticed, p50", "kill to noticed, p99", "kill to running again, p50", "kill to running again, p99")
def bare_worker() -> Iterable[Row]:
    """Detection is the arrival of the node's log line in our pipe; the handler's clock gives the next run."""
    noticed, again, commits = _kills("Hold", KILLS)
    deaths = bare.deaths(KILLS // 2)
    limits = bare.sums(deaths, commits, bare.wake_ups(KILLS))
    late = f"the node's log line arrives {1000 * (p50(noticed) - p50(deaths)):.1f} ms after a bare pidfd is readable"
    slow = f"detected after {1000 * p50(noticed):.1f} ms (bare: {1000 * p50(deaths):.1f}), then a commit of "
    slow += f"{1000 * p50(commits):.1f} ms from idle, and wake-ups"
    yield Row("kill to noticed, p50", 1000 * p50(noticed), "ms", 1000 * p50(deaths), 3.0, note=late)
    yield Row("kill to noticed, p99", 1000 * p99(noticed), "ms", 1000 * p99(deaths), 15.0, note=late)
    yield Row("kill to running again, p50", 1000 * p50(again), "ms", 1000 * p50(limits), 5.0, note=slow)
    yield Row("kill to running again, p99", 1000 * p99(again), "ms", 1000 * p99(limits), 15.0, note=slow)


@measures("kill of 300 MB to running again, p50")
def laden_worker() -> Iterable[Row]:
    """Most of the time is the kernel's release of the memory."""
    _, again, commits = _kills("Laden", LADEN_KILLS)
    deaths = bare.deaths(10, megabytes=300)
    limits = bare.sums(deaths, commits, bare.wake_ups(LADEN_KILLS))
    note = f"the kernel needs {1000 * p50(deaths):.0f} ms to terminate a bare process of that size"
    yield Row("kill of 300 MB to running again, p50", 1000 * p50(again), "ms", 1000 * p50(limits), 35.0, note=note)


@measures("kill of everything to running again")
def everything() -> Iterable[Row]:
    """Measures from the start of a new host, after host, node and workers were killed, until the job runs again."""
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
    note = "in addition to the starts of three interpreters (host, node, worker) with their imports"
    yield Row("kill of everything to running again", p50(took), "ms", limit, limit + 100, note=note)


@measures("spawn to ready")
def spawn_to_ready() -> Iterable[Row]:
    """Measures from the scheduled restart of a worker until the node logs that it is ready."""
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
    yield Row("spawn to ready", p50(took), "ms", p50(limits), 120.0, note="start of an interpreter and its imports")
