"""Lets a node work off jobs that were enqueued in bulk."""

from bench.processes import cpu
from bench.scene import PATIENCE, Stage
from chargehand import clock
from chargehand.testing import eventually

JOBS = 20_000
ROUNDS = 3


def done(on: Stage) -> int:
    """Returns how many jobs are done."""
    return sum(counts.done for counts in on.hand.counts())


class Backlog:
    """Jobs that were enqueued in bulk while the crew was paused."""

    def __init__(self, on: Stage, jobs: int) -> None:
        self._on, self._jobs = on, jobs
        on.hand.pause(on.crew.name)
        self._before = done(on)
        self._refs = on.crew.enqueue_many([None] * jobs)

    def work_off(self) -> float:
        """Returns the seconds from the resume until all jobs are done.

        Pause and resume go through the node: by polling the store the node would notice them up to a second later.
        """
        began = clock.monotonic()
        self._on.hand.resume(self._on.crew.name)
        for ref in self._refs[-8:]:
            ref.wait(PATIENCE)
        # The job before the last may finish after it, in the other worker.
        eventually(lambda: done(self._on) - self._before == self._jobs, PATIENCE, what="all are done")
        return clock.monotonic() - began


def work_off(on: Stage, jobs: int) -> float:
    """Returns the seconds that the node needs for this number of jobs, enqueued before."""
    return Backlog(on, jobs).work_off()


def cpu_of(on: Stage) -> tuple[float, float, float]:
    """Returns the CPU seconds of the node's main thread, its store thread, and the workers."""
    node, workers = on.pids()
    return *cpu(node), sum(sum(cpu(pid)) for pid in workers)
