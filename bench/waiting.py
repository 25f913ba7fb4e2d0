"""Measures jobs that only wait, in workers that perform many of them at the same time."""

from collections.abc import Iterable

from bench.hosting import CrewSpec
from bench.processes import pss
from bench.row import Row, measures, p50
from bench.scene import PATIENCE, stage
from bench.working import ROUNDS
from chargehand import clock
from chargehand.model.job import State
from chargehand.testing import eventually

JOBS, SECONDS, AT_ONCE, WORKERS = 1000, 0.5, 100, 2


@measures("1,000 jobs that wait 0.5 s", "memory of 100 jobs in hand")
def waiting() -> Iterable[Row]:
    """1,000 jobs of 0.5 s of waiting, 2 workers with `concurrency=100`, from the enqueue to the last result; and what a
    worker's memory grows by while it has 100 of them in hand."""
    with stage(CrewSpec("wait", "Wait", WORKERS, AT_ONCE)) as on:
        for _ in range(20):  # one after the other: nothing of many jobs is in the memory of the workers
            on.crew.enqueue(0.0).wait(PATIENCE)
        before = pss(on.pids()[1])
        refs = on.crew.enqueue_many([2.0] * WORKERS * AT_ONCE)
        most: list[float] = []

        def ended() -> bool:
            most.append(pss(on.pids()[1]))
            return refs[-1].job().state is State.DONE

        eventually(ended, PATIENCE, what="all have ended")
        grown = (max(most) - before) / WORKERS
        took: list[float] = []
        for _ in range(ROUNDS):
            began = clock.monotonic()
            for ref in on.crew.enqueue_many([SECONDS] * JOBS):
                ref.wait(PATIENCE)
            took.append(clock.monotonic() - began)
    limit = JOBS * SECONDS / (WORKERS * AT_ONCE)
    yield Row("1,000 jobs that wait 0.5 s", p50(took), "s", limit, 3.5)
    yield Row("memory of 100 jobs in hand", grown, "MiB", None, 5.0)
