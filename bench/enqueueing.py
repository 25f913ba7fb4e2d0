"""Measures durable enqueues per second: single calls, several callers, bulk."""

from collections.abc import Iterable

from bench import bare
from bench.caller import rate_of
from bench.hosting import CrewSpec
from bench.row import Row, measures, p50
from bench.scene import stage
from chargehand import clock

BULK = 100_000


@measures("enqueue one by one", "8 callers against 1")
def one_by_one() -> Iterable[Row]:
    """Enqueues from other processes through the node, while no worker runs."""
    with stage(CrewSpec("later", "Nothing", 0)) as on:
        commits = bare.commits(on.folder, 1500)
        one, _ = rate_of(1, on)
        eight, used = rate_of(8, on)
        again, _ = rate_of(1, on)
        commits += bare.commits(on.folder, 1500)
        together = bare.commits(on.folder, 1500, inserts=8)
    one = (one + again) / 2
    limit = len(commits) / sum(commits)
    wait = (1 / one - 1 / limit) * 1e6
    yield Row(
        "enqueue one by one", one, "jobs/s", limit, 0.5 * limit, more_is_better=True,
        note=f"in addition to the commit a call takes {wait:.0f} µs: three wake-ups (node, store thread, caller), "
        "and Python in three threads whose caches are cold",
    )  # fmt: skip
    yield Row(
        "8 callers against 1", eight / one, "×", 8 * len(together) / sum(together) / limit, 3.0, more_is_better=True,
        note=f"{eight:.0f} jobs/s in total: the node needs {used * 1e6:.0f} µs of CPU per job, and shares the cores "
        "with its callers",
    )  # fmt: skip


@measures("enqueue in bulk")
def in_bulk() -> Iterable[Row]:
    """One call, one transaction, next to a running node; the median of three."""
    rates: list[float] = []
    with stage(CrewSpec("later", "Nothing", 0)) as on:
        for _ in range(3):
            began = clock.monotonic()
            on.crew.enqueue_many([None] * BULK)
            rates.append(BULK / (clock.monotonic() - began))
        limit = p50([bare.bulk_rate(on.folder, BULK) for _ in range(3)])
    note = (
        f"{1e6 / p50(rates):.1f} µs per job: it is created and validated in Python, and is in two indexes, not in one"
    )
    yield Row("enqueue in bulk", p50(rates), "jobs/s", limit, 100_000, more_is_better=True, note=note)
