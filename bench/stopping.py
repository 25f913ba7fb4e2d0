"""Measures the duration of a graceful shutdown."""

from collections.abc import Iterable
from time import monotonic_ns

from bench import bare
from bench.hosting import CrewSpec
from bench.row import Row, measures
from bench.scene import stage

WORKERS = 20
JOB = 1.0
"""Seconds of a job of the busy workers."""


@measures("stop 20 idle workers")
def stop_idle() -> Iterable[Row]:
    """Measures from the host's call until it returns, when all processes have exited. Limit: exits of bare
    interpreters.
    """
    with stage(CrewSpec("nothing", "Nothing", WORKERS)) as on:
        took = on.stop()
    limit = bare.exits(WORKERS)
    note = f"exits of {WORKERS} interpreters, and the work of the node for each"
    yield Row("stop 20 idle workers", took, "s", limit, 0.5, note=note)


@measures("stop 20 busy workers")
def stop_busy() -> Iterable[Row]:
    """Stops 20 workers that each run a job of one second. Limit: the remaining time of the last job."""
    with stage(CrewSpec("busy", "Busy", WORKERS)) as on:
        on.crew.enqueue_many([{"ear": on.ear.name, "seconds": JOB}] * WORKERS)
        last = max(on.ear.hear().began for _ in range(WORKERS))
        limit = JOB - (monotonic_ns() - last) / 1e9
        took = on.stop()
        (counts,) = on.hand.counts()
        if counts.done != WORKERS:
            raise RuntimeError(f"the running jobs were not done: {counts}")
    note = f"after the end of the last job: exits of {WORKERS} interpreters"
    yield Row("stop 20 busy workers", took, "s", limit, 1.5, note=note)
