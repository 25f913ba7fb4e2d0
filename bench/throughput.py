"""Measures jobs per second, and how evenly they are distributed."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

from chaos import servers

from bench import bare
from bench.hosting import CrewSpec
from bench.row import Row, measures, p50
from bench.scene import PATIENCE, stage
from bench.working import JOBS, ROUNDS, cpu_of, work_off

CREW = CrewSpec("nothing", "Nothing", 2)
LARGE = 200
"""The batch size at which PgQueuer is fastest."""
GOAL, ONE_GOAL = 20_000.0, 10_000.0


@contextmanager
def _peer() -> Generator[tuple[Callable[[], float] | None, str]]:
    """A function that returns the jobs per second of PgQueuer on a server of its own; or why there is none."""
    if (packages := servers.missing()) is not None:
        yield None, f"pip install {packages}"
        return
    from bench.environment import Unavailable
    from bench.postgres.peer import PgQueuer
    from bench.postgres.server import serving

    with serving() as server:
        try:
            peer = PgQueuer(server)
        except Unavailable as error:
            yield None, str(error)
            return
        yield lambda: peer.rate(JOBS, LARGE), ""


@measures("jobs per second", "jobs per second, one in hand", "jobs per second against PgQueuer, batch 200")
def jobs_per_second() -> Iterable[Row]:
    """No-op jobs, 2 workers, enqueued in bulk first; medians of several rounds, in turn with workers that are handed
    one job at a time, and with PgQueuer on PostgreSQL."""
    rates: list[float] = []
    ones: list[float] = []
    theirs: list[float] = []
    with stage(CREW) as on, stage(CREW, most_in_hand=1) as one, _peer() as (peer, missing):
        for each in (on, one):
            work_off(each, 1000)
        used = [0.0, 0.0, 0.0]
        for _ in range(ROUNDS):
            before = cpu_of(on)
            rates.append(JOBS / work_off(on, JOBS))
            used = [total + now - then for total, now, then in zip(used, cpu_of(on), before, strict=True)]
            ones.append(JOBS / work_off(one, JOBS))
            if peer is not None:
                theirs.append(peer())
        limit = p50([bare.batch_rate(on.folder, JOBS, 50) for _ in range(ROUNDS)])
    main, store, workers = (seconds / (ROUNDS * JOBS) * 1e6 for seconds in used)
    cores = p50(rates) * (main + store + workers) / 1e6
    note = (
        f"CPU: a job takes {main:.0f} µs of the node's main thread, {store:.0f} µs of its store thread "
        f"and {workers:.0f} µs of a worker, which keeps {cores:.1f} cores busy"
    )
    goal = min(GOAL, 2 * p50(ones))  # on a slower machine, twice as many as with one job in hand
    yield Row("jobs per second", p50(rates), "jobs/s", limit, goal, more_is_better=True, note=note)
    wakes = "wake-ups: each job is sent to a worker by itself, and its outcome is read by itself"
    yield Row("jobs per second, one in hand", p50(ones), "jobs/s", limit, ONE_GOAL, more_is_better=True, note=wakes)
    ratio = p50(rates) / p50(theirs) if theirs else None
    why = f"{p50(rates):,.0f} and {p50(theirs):,.0f} jobs/s" if theirs else missing
    yield Row(
        "jobs per second against PgQueuer, batch 200", ratio, "×", None, 1.0, more_is_better=True, note=why
    )  # fmt: skip


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
