"""Measures the cost of turns of queues with limits."""

from collections.abc import Iterable

from bench.postgres.server import machine
from bench.postgres.turns import SIZE, Turns, shown
from bench.row import Row, measures, p50

TURNS = 100
KEYS = 50
_NAMES = "claim with a limit that is not reached", "claim with 50 keys, one job each"


@measures(*_NAMES)
def limited() -> Iterable[Row]:
    """Alternates between the queues. With one job for each key, every turn can claim one job of each of the keys."""
    server = machine()
    plain, wide, keyed = (
        Turns(server), Turns(server, limit=100 * SIZE), Turns(server, keys=KEYS, limit_per_key=1),
    )  # fmt: skip
    queues = plain, wide, keyed
    try:
        for queue in queues:
            queue.fill(SIZE * (2 * TURNS))
            queue.analyze()
        for _ in range(TURNS // 5):
            for queue in queues:
                queue.turn()
        turns = [[queue.turn() for queue in queues] for _ in range(TURNS)]
    finally:
        for queue in queues:
            queue.close()
    without, *others = (list(each) for each in zip(*turns, strict=True))
    for name, each in zip(_NAMES, others, strict=True):
        ratio = p50([turn.cpu for turn in each]) / p50([turn.cpu for turn in without])
        note = f"a turn of {SIZE} takes {shown(each)}; without a limit {shown(without)}"
        yield Row(name, ratio, "× no limit", 1.0, None, note=note)
