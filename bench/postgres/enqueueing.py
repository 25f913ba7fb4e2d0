"""Measures durable enqueues per second: single calls, several callers, bulk."""

from collections.abc import Iterable

from bench.caller import rate_of
from bench.hosting import CrewSpec
from bench.postgres import bare
from bench.postgres.server import machine
from bench.row import Row, measures, p50
from bench.scene import stage
from chargehand import clock

BULK = 50_000
COMMITS = 1500


@measures("enqueue one by one", "8 callers against 1")
def one_by_one() -> Iterable[Row]:
    """Enqueues from other processes through the node, while no worker runs."""
    server = machine()
    store = server.new_store()
    with stage(CrewSpec("later", "Nothing", 0), store=store) as on:
        commits = bare.commits(server, COMMITS)
        one, _ = rate_of(1, on)
        eight, used = rate_of(8, on)
        again, _ = rate_of(1, on)
        commits += bare.commits(server, COMMITS)
        together = bare.commits(server, COMMITS, inserts=8)
    server.drop(store)
    one = (one + again) / 2
    limit = len(commits) / sum(commits)
    wait = (1 / one - 1 / limit) * 1e6
    yield Row(
        "enqueue one by one", one, "jobs/s", limit, 0.5 * limit, more_is_better=True,
        note=f"in addition to a bare insert a call takes {wait:.0f} µs: four wake-ups (caller, node, store thread, and "
        "back), validation, and two tables instead of one",
    )  # fmt: skip
    yield Row(
        "8 callers against 1", eight / one, "×", 8 * len(together) / sum(together) / limit, 3.0, more_is_better=True,
        note=f"{eight:.0f} jobs/s in total: the node needs {used * 1e6:.0f} µs of CPU per job, and shares the cores "
        "with its callers and the server",
    )  # fmt: skip


@measures("enqueue in bulk")
def in_bulk() -> Iterable[Row]:
    """One call, one transaction, next to a running node; the median of three. The limit is COPY into one table."""
    server = machine()
    store = server.new_store()
    rates: list[float] = []
    with stage(CrewSpec("later", "Nothing", 0), store=store) as on:
        for _ in range(3):
            began = clock.monotonic()
            on.crew.enqueue_many([None] * BULK)
            rates.append(BULK / (clock.monotonic() - began))
        limit = p50([bare.bulk_rate(server, BULK) for _ in range(3)])
    server.drop(store)
    note = f"{1e6 / p50(rates):.1f} µs per job: validated in Python, sent as JSON, in two tables with four indexes"
    yield Row("enqueue in bulk", p50(rates), "jobs/s", limit, None, more_is_better=True, note=note)
