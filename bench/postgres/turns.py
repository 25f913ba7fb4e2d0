"""A queue that is filled by SQL, and a node without workers that settles and claims its jobs."""

import os
from time import thread_time

from bench.postgres.server import Machine, schema_of
from bench.processes import cpu
from bench.row import p50
from chargehand import clock
from chargehand.model.batch import Batch, Want
from chargehand.model.job import Done, Settlement, settle
from chargehand.model.records import CrewRow, Holder
from chargehand.stores import open_store

SIZE = 50
"""Number of jobs settled and claimed in one turn."""
HOLDER = Holder("bench", "bench")

_JOBS = """
INSERT INTO {0}.chargehand_job (seq, id, queue, rank, run_at_ms, max_attempts, limit_key, created_ms, payload)
SELECT n, lpad(to_hex(n), 32, '0'), 'later', 0, 0, 3, {1}, 0, 'null' FROM generate_series(%s::bigint, %s::bigint) AS n
"""
_LIVE = """
INSERT INTO {0}.chargehand_live (seq, place, rank, queue, limit_key, run_at_ms)
SELECT n, n, 0, 'later', {1}, 0 FROM generate_series(%s::bigint, %s::bigint) AS n
"""


class Turn:
    """What a turn took, in seconds."""

    def __init__(self, wall: float, client: float, server: float) -> None:
        self.wall, self.client, self.server = wall, client, server

    @property
    def cpu(self) -> float:
        """The CPU time of both sides: the wall time is mostly that of the disk, which would hide any growth."""
        return self.client + self.server


class Turns:
    """A store with one queue, and the turns of a node on it."""

    def __init__(
        self, server: Machine, *, keys: int = 0, limit: int | None = None, limit_per_key: int | None = None
    ) -> None:
        """`keys`: the number of limit keys that the jobs have in turn."""
        self._machine, self.url = server, server.new_store()
        self._key = f"'key ' || n %% {keys}" if keys else "NULL"
        self._last = 0
        os.environ["XDG_STATE_HOME"] = str(server.state)  # that of the last stage is deleted
        self.store = open_store(self.url, node=True)
        row = CrewRow(
            name="later", queue="later", handler="bench.handlers:Nothing", workers=2, max_attempts=3, timeout_ms=None,
            limit=limit, limit_per_key=limit_per_key,
        )  # fmt: skip
        with self.store.transaction() as tx:
            tx.fleet.register(HOLDER, (row,), {})
        self._backend = self._find_backend()
        self._held: tuple[Settlement, ...] = ()

    def _find_backend(self) -> int:
        ((pid,),) = self._machine.rows(
            f"SELECT backend FROM {schema_of(self.url)}.chargehand_node WHERE incarnation = 'bench'"
        )
        return pid

    def fill(self, count: int) -> None:
        """Adds jobs, as Chargehand's statements would leave them."""
        first, self._last = self._last + 1, self._last + count
        for statement in (_JOBS, _LIVE):
            self._machine.rows(statement.format(schema_of(self.url), self._key), first, self._last)

    def analyze(self) -> None:
        """Collects statistics, as autovacuum does sooner or later."""
        for table in ("chargehand_job", "chargehand_live"):
            self._machine.rows(f"ANALYZE {schema_of(self.url)}.{table}")

    def turn(self, size: int = SIZE) -> Turn:
        """Settles the jobs that are held, and claims as many others."""
        batch = Batch(settlements=self._held, wants=(Want("later", "later", size),))
        began, client, server = clock.monotonic(), thread_time(), sum(cpu(self._backend))
        result = self.store.turn(batch, HOLDER)
        took = Turn(clock.monotonic() - began, thread_time() - client, sum(cpu(self._backend)) - server)
        claims = result.grants[0].claims
        if len(claims) != size or result.lost:
            raise RuntimeError(f"a claim of {size} returned {len(claims)}, {len(result.lost)} were lost")
        ended = (settle(claim, Done(), worker="bench", pid=1) for claim in claims)
        self._held = tuple(settlement for settlement in ended if settlement is not None)
        return took

    def close(self) -> None:
        """Deletes the store."""
        self.store.close()
        self._machine.drop(self.url)


def shown(turns: list[Turn]) -> str:
    """Returns the median CPU time of turns, for a note."""
    client, server = p50([turn.client for turn in turns]), p50([turn.server for turn in turns])
    return f"{1000 * client:.2f} + {1000 * server:.2f} ms of CPU (client + server)"
