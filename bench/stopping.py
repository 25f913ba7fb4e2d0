"""How long a stop takes."""

from collections.abc import Iterable
from time import monotonic_ns

from bench import bare
from bench.hosting import CrewSpec
from bench.row import Row, measures
from bench.scene import stage

WORKERS = 20
JOB = 1.0
"""Seconds that a job of the busy ones takes."""


@measures("stop 20 idle workers")
def stop_idle() -> Iterable[Row]:
    """From the host's call until it returns; everything is gone then. Limit: as many bare interpreters' ends."""
    with stage(CrewSpec("nothing", "Nothing", WORKERS)) as on:
        took = on.stop()
    limit = bare.exits(WORKERS)
    note = f"{WORKERS} interpreters' ends, and what the node does for each"
    yield Row("stop 20 idle workers", took, "s", limit, 0.5, note=note)


@measures("stop 20 busy workers")
def stop_busy() -> Iterable[Row]:
    """The same with a job of one second in every hand. Limit: what the last of them had still to do."""
    with stage(CrewSpec("busy", "Busy", WORKERS)) as on:
        on.crew.enqueue_many([{"ear": on.ear.name, "seconds": JOB}] * WORKERS)
        last = max(on.ear.hear().began for _ in range(WORKERS))
        limit = JOB - (monotonic_ns() - last) / 1e9
        took = on.stop()
        (counts,) = on.hand.counts()
        if counts.done != WORKERS:
            raise RuntimeError(f"the jobs in hand were not done: {counts}")
    note = f"beyond the last job's end: {WORKERS} interpreters' ends"
    yield Row("stop 20 busy workers", took, "s", limit, 1.5, note=note)
