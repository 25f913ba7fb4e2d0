"""What is measured of each system. The log of the jobs is the witness, not what a system says of itself.

Times of jobs are those of the monotonic clock, which all processes of a machine share.
"""

import os
import signal
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.peers.system import System
from bench.row import p50, p99
from bench.scene import PATIENCE
from chargehand import clock
from chargehand.testing import eventually

LATENCIES = 100
ONE_BY_ONE = 300
FRAGILE = 100
IDLE_SECONDS = 10.0


@dataclass
class Limits:
    """How long a system may take before a measurement of it ends without a value."""

    recovery: float
    throughput: float = 120.0
    fragile: float = 90.0


@dataclass
class Figures:
    """What was measured of one system. None: not measured; `notes` say why."""

    name: str
    version: str
    settings: str
    jobs_per_second: float | None = None
    bulk_per_second: float | None = None
    one_by_one_per_second: float | None = None
    start_p50_ms: float | None = None
    start_p99_ms: float | None = None
    child_s: float | None = None
    """Seconds from the SIGKILL of the process with a job until the job runs again. None: not within the limit."""
    tree_s: float | None = None
    """The same, if all worker processes are killed and started again at once."""
    wrongly_failed: int | None = None
    """Of 100 good jobs beside a broken process: how many failed for good."""
    idle_cpu_percent: float | None = None
    memory_mib: float | None = None
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Returns the entry of the results."""
        return asdict(self)


def throughput(system: System, figures: Figures, limits: Limits) -> None:
    """Enqueues one by one and in bulk, then starts the workers: from the first start of a job until all have ended."""
    single = system.tags(ONE_BY_ONE)
    began, ended = system.enqueue("note", single)
    figures.one_by_one_per_second = len(single) / (ended - began) * 1e9
    many = system.tags(system.peer.jobs)
    began, ended = system.enqueue("note", many, bulk=True)
    figures.bulk_per_second = len(many) / (ended - began) * 1e9
    jobs = len(single) + len(many)
    system.start("throughput")
    try:
        wait(lambda: system.log.stat().st_size > 0, PATIENCE, "its first job starts")
        wait(lambda: _lines(system) >= jobs and system.unfinished() == 0, limits.throughput, "all jobs end")
        until = clock.monotonic()
        first = min(at for _, at, _ in system.lines("start"))
        rate = jobs / (until - first / 1e9)
        figures.jobs_per_second = max(rate, figures.jobs_per_second or 0.0)
    except TimeoutError as error:
        figures.notes.append(f"throughput: {error}")
    finally:
        system.stop()


def _lines(system: System) -> int:
    return system.log.read_bytes().count(b"\n")


def latency(system: System, figures: Figures) -> None:
    """Enqueues one job after the other while the workers are idle: from the call until the job starts."""
    found: list[float] = []
    for (tag,) in (system.tags(1) for _ in range(LATENCIES)):
        began, _ = system.enqueue("note", [tag])
        wait(lambda tag=tag: system.starts_of(tag), PATIENCE, "a job starts")
        found.append((system.starts_of(tag)[0][0] - began) / 1e6)
    figures.start_p50_ms, figures.start_p99_ms = p50(found), p99(found)


def resting(system: System, figures: Figures) -> None:
    """Lets the workers be idle."""
    wait(lambda: system.unfinished() == 0, PATIENCE, "it is idle")
    clock.sleep(1.0)  # what follows a job has ended
    before, _ = system.usage()
    began = clock.monotonic()
    clock.sleep(IDLE_SECONDS)
    after, memory = system.usage()
    figures.idle_cpu_percent = (after - before) / (clock.monotonic() - began) * 100
    figures.memory_mib = memory


def recovery(system: System, figures: Figures, limits: Limits) -> None:
    """Kills the process that performs a job, and then all worker processes."""
    figures.child_s = _again(system, limits.recovery, figures, "child", lambda pid: os.kill(pid, signal.SIGKILL))

    def tree(pid: int) -> None:
        system.kill()
        system.start("safe")

    figures.tree_s = _again(system, limits.recovery, figures, "tree", tree)


def _again(system: System, limit: float, figures: Figures, what: str, kill: Callable[[int], None]) -> float | None:
    if not system.processes():
        figures.notes.append("the worker command ended when one of its processes was killed")
        system.start("safe")
    (tag,) = system.tags(1)
    system.enqueue("hold", [tag])
    wait(lambda: system.starts_of(tag), PATIENCE, "a job starts")
    killed = clock.monotonic()
    kill(system.starts_of(tag)[0][1])
    try:
        wait(lambda: len(system.starts_of(tag)) > 1, limit, "a killed job runs again")
    except TimeoutError:
        figures.notes.append(f"{what}: not within {limit:g} s")
        return None
    return system.starts_of(tag)[1][0] / 1e9 - killed


def fragile(system: System, figures: Figures, limits: Limits) -> None:
    """Gives good jobs to two processes, one of which is broken and fails every job at once."""
    system.enqueue("fragile", system.tags(FRAGILE), bulk=True)
    try:
        wait(lambda: system.unfinished() == 0, limits.fragile, "all jobs end")
    except TimeoutError as error:
        figures.notes.append(f"broken process: {error}")
    figures.wrongly_failed = system.failed()


def wait(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Waits for a condition. Raises TimeoutError."""
    try:
        eventually(condition, seconds, what=what)
    except AssertionError:
        raise TimeoutError(f"not within {seconds:g} s: {what}") from None


def merged(rounds: list[Figures]) -> Figures:
    """Returns the medians of several rounds."""
    first = rounds[0]
    for name, value in asdict(first).items():
        values = [each for each in (getattr(figures, name) for figures in rounds) if each is not None]
        if values and isinstance(value, (int, float)) and not isinstance(value, bool):
            setattr(first, name, statistics.median(values))
    for figures in rounds[1:]:
        first.notes += [note for note in figures.notes if note not in first.notes]
    return first
