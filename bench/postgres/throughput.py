"""Measures jobs per second of one and of several nodes, in turn with SQLite and PgQueuer, and what a job costs the
server."""

import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field

from bench.environment import Unavailable
from bench.hosting import CrewSpec
from bench.postgres.peer import PgQueuer
from bench.postgres.server import Machine, machine, schema_of
from bench.postgres.turns import SIZE, Turns
from bench.row import Row, measures, p50
from bench.scene import PATIENCE, Stage, stage
from bench.working import JOBS, ROUNDS, Backlog, cpu_of, work_off
from chargehand import clock
from chargehand.testing import eventually

CREW = CrewSpec("nothing", "Nothing", 2)
LARGE = 200
"""The batch size at which PgQueuer is fastest."""
FLUSHED = 1.5
"""Seconds after which a session that works has reported its commits."""


@dataclass
class _Seen:
    """The figures of all rounds."""

    here: list[float] = field(default_factory=list[float])
    sqlite: list[float] = field(default_factory=list[float])
    peer: list[float] = field(default_factory=list[float])
    peer_large: list[float] = field(default_factory=list[float])
    missing: str = ""
    """Why there is no figure of PgQueuer."""
    cpu: list[float] = field(default_factory=lambda: [0.0] * 4)
    """The CPU seconds of the node's main thread, its store thread, the workers, and the server."""
    wal: int = 0
    commits: int = 0

    def round_here(self, server: Machine, on: Stage) -> None:
        """Adds a round of the node on PostgreSQL."""
        backlog = Backlog(on, JOBS)
        clock.sleep(FLUSHED)
        commits, wal, cpu = server.commits(), server.wal(), (*cpu_of(on), server.cpu())
        self.here.append(JOBS / backlog.work_off())
        used = zip(self.cpu, (*cpu_of(on), server.cpu()), cpu, strict=True)
        self.cpu = [total + now - then for total, now, then in used]
        self.wal += server.wal() - wal
        clock.sleep(FLUSHED)
        self.commits += server.commits() - commits

    def a_job(self) -> list[float]:
        """Returns the CPU time of a job in µs, as in `cpu`."""
        return [seconds / (ROUNDS * JOBS) * 1e6 for seconds in self.cpu]


def _rounds(server: Machine) -> _Seen:
    """Measures all in turn, so that disturbances affect all."""
    seen, peer = _Seen(), None
    try:
        peer = PgQueuer(server)
    except Unavailable as error:
        seen.missing = str(error)
    with stage(CREW, store=server.new_store()) as here, stage(CREW) as sqlite:
        for on in (here, sqlite):
            work_off(on, 1000)
        for _ in range(ROUNDS):
            seen.round_here(server, here)
            seen.sqlite.append(JOBS / work_off(sqlite, JOBS))
            if peer is not None:
                seen.peer.append(peer.rate(JOBS, None))
                seen.peer_large.append(peer.rate(JOBS, LARGE))
    return seen


def _alone(server: Machine) -> float:
    """Returns the jobs per second that the turns of a store settle and claim without workers."""
    queue = Turns(server)
    try:
        queue.fill(SIZE * 400)
        queue.analyze()
        for _ in range(50):
            queue.turn()
        return SIZE / p50([queue.turn().wall for _ in range(300)])
    finally:
        queue.close()


_PEERS = "jobs per second against PgQueuer", "jobs per second against PgQueuer, batch 200"
_SERVER = "log of a job", "commits of a job"


@measures("jobs per second", "jobs per second against SQLite", *_PEERS, *_SERVER)
def jobs_per_second() -> Iterable[Row]:
    """No-op jobs, 2 workers, one job each, enqueued in bulk first; medians of several rounds.

    What the server does for a job is counted from the claim to the outcome.
    """
    server = machine()
    seen = _rounds(server)
    limit = _alone(server)
    main, store, workers, of_server = seen.a_job()
    here, sqlite = p50(seen.here), p50(seen.sqlite)
    cores = here * sum(seen.a_job()) / 1e6
    note = (
        f"CPU: a job takes {main:.0f} µs of the node's main thread, {store:.0f} µs of its store thread, "
        f"{workers:.0f} µs of a worker and {of_server:.0f} µs of the server, which keeps {cores:.1f} cores busy"
    )
    yield Row("jobs per second", here, "jobs/s", limit, 8_000, more_is_better=True, note=note)
    yield Row(
        "jobs per second against SQLite", here / sqlite, "×", None, None, more_is_better=True,
        note=f"{here:,.0f} and {sqlite:,.0f} jobs/s",
    )  # fmt: skip
    for name, rates, goal in zip(_PEERS, (seen.peer, seen.peer_large), (1.3, 1.0), strict=True):
        ratio = here / p50(rates) if rates else None
        why = f"{here:,.0f} and {p50(rates):,.0f} jobs/s" if rates else seen.missing
        yield Row(name, ratio, "×", None, goal, more_is_better=True, note=why)
    jobs = ROUNDS * JOBS
    yield Row("log of a job", seen.wal / jobs, "bytes of WAL", None, 900.0, note="from the claim to the outcome")
    per_commit = jobs / seen.commits
    yield Row(
        "commits of a job", seen.commits / jobs, "commits", None, None,
        note=f"{per_commit:.0f} jobs in a transaction",
    )  # fmt: skip


SHARE = 0.8
"""The middle part of the jobs, by which several nodes are measured: they do not begin at the same moment."""
_RATE = """
SELECT (percentile_disc({high}) WITHIN GROUP (ORDER BY finished_ms)
  - percentile_disc({low}) WITHIN GROUP (ORDER BY finished_ms)) / 1000.0, count(*), count(DISTINCT node)
FROM {schema}.chargehand_end
"""


def _rate_of(server: Machine, nodes: int) -> tuple[float, int]:
    """Returns the jobs per second of this number of nodes, and how many of them had jobs."""
    store = server.new_store()
    with ExitStack() as stack:
        stages = [stack.enter_context(stage(CREW, store=store, node=f"node-{nr}")) for nr in range(nodes)]
        jobs = JOBS * 2
        stages[0].crew.enqueue_many([None] * jobs)
        low, high = (1 - SHARE) / 2, (1 + SHARE) / 2
        sql = _RATE.format(schema=schema_of(store), low=low, high=high)
        eventually(lambda: server.rows(sql)[0][1] == jobs, PATIENCE, what="all are done")
        ((seconds, _, busy),) = server.rows(sql)
    server.drop(store)
    return SHARE * jobs / float(seconds), busy


@measures("jobs per second, 2 nodes", "jobs per second, 4 nodes")
def several_nodes() -> Iterable[Row]:
    """As many workers on each node. The limit is one node, measured in the same way."""
    server = machine()
    rates: dict[int, list[float]] = {1: [], 2: [], 4: []}
    busy: dict[int, int] = {}
    for _ in range(2):
        for nodes, of in rates.items():
            rate, busy[nodes] = _rate_of(server, nodes)
            of.append(rate)
    for nodes in (2, 4):
        note = f"{busy[nodes]} of {nodes} nodes had jobs; they share {os.cpu_count()} cores with the server"
        yield Row(
            f"jobs per second, {nodes} nodes", p50(rates[nodes]), "jobs/s", p50(rates[1]), None, more_is_better=True,
            note=note,
        )  # fmt: skip
