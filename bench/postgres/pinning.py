"""Measures turns while an old transaction keeps the server from removing dead rows."""

from collections.abc import Iterable

import psycopg

from bench.postgres.server import machine
from bench.postgres.turns import Turns, shown
from bench.row import Row, measures, p50

JOBS = 200_000
SIZE = 64
SAMPLE = 150


@measures("turn with xmin held through 200,000 jobs")
def pinned() -> Iterable[Row]:
    """Compares the last turns with the first ones."""
    server = machine()
    queue = Turns(server)
    try:
        queue.fill(JOBS + 3 * SIZE * SAMPLE)
        queue.analyze()
        for _ in range(SAMPLE):
            queue.turn(SIZE)
        with psycopg.connect(server.url()) as pin:
            pin.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            pin.execute("SELECT pg_current_xact_id()")
            turns = [queue.turn(SIZE) for _ in range(JOBS // SIZE + SAMPLE)]
    finally:
        queue.close()
    first, last = turns[:SAMPLE], turns[-SAMPLE:]
    ratio = p50([turn.cpu for turn in last]) / p50([turn.cpu for turn in first])
    worst = max(turn.wall for turn in turns)
    note = f"a turn of {SIZE} takes {shown(first)} at first and {shown(last)} at last; the longest took {worst:.2f} s"
    yield Row("turn with xmin held through 200,000 jobs", ratio, "× before", 1.0, 2.0, note=note)
