"""Measures jobs per second, and how evenly they are distributed."""

from collections import Counter
from collections.abc import Iterable

from bench import bare
from bench.hosting import CrewSpec
from bench.row import Row, measures, p50
from bench.scene import PATIENCE, stage
from bench.working import JOBS, ROUNDS, cpu_of, work_off


@measures("jobs per second")
def jobs_per_second() -> Iterable[Row]:
    """No-op jobs, 2 workers, one job each, enqueued in bulk first; the median of several rounds."""
    with stage(CrewSpec("nothing", "Nothing", 2)) as on:
        work_off(on, 1000)
        before = cpu_of(on)
        rates = [JOBS / work_off(on, JOBS) for _ in range(ROUNDS)]
        main, store, workers = (
            (now - then) / (ROUNDS * JOBS) * 1e6 for now, then in zip(cpu_of(on), before, strict=True)
        )
        limit = p50([bare.batch_rate(on.folder, JOBS, 50) for _ in range(ROUNDS)])
    cores = p50(rates) * (main + store + workers) / 1e6
    note = (
        f"CPU and wake-ups: a job takes {main:.0f} µs of the node's main thread, {store:.0f} µs of its store thread "
        f"and {workers:.0f} µs of a worker, which keeps {cores:.1f} cores busy"
    )
    yield Row("jobs per second", p50(rates), "jobs/s", limit, 10_000, more_is_better=True, note=note)


@measures("fairness of 8 workers")
def fairness() -> Iterable[Row]:
    """The largest divided by the smallest number of jobs of one of 8 workers, for some thousand jobs."""
    jobs = 4000
    with stage(CrewSpec("who", "Who", 8)) as on:
        refs = on.crew.enqueue_many([None] * jobs)
        for ref in refs[-8:]:
            ref.wait(PATIENCE)
        done = Counter(ref.wait(PATIENCE) for ref in refs)
        _, workers = on.pids()
    shares = [done[pid] for pid in workers]
    spread = max(shares) / max(1, min(shares))
    yield Row("fairness of 8 workers", spread, "most/fewest", 1.0, 2.0, note=f"jobs a worker: {sorted(shares)}")
