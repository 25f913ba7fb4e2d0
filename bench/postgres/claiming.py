"""Measures the cost of a claim with few and with very many jobs in the queue."""

from collections.abc import Iterable

from bench.postgres.server import machine
from bench.postgres.turns import SIZE, Turn, Turns, shown
from bench.row import Row, measures, p50

FEW, MANY = 1000, 5_000_000
TURNS = 200


@measures("claim with 5 million waiting")
def claim_with_many() -> Iterable[Row]:
    """Alternates between the two stores, so that disturbances affect both."""
    queues = Turns(machine()), Turns(machine())
    try:
        for queue, count in zip(queues, (FEW, MANY), strict=True):
            queue.fill(count)
            queue.analyze()
        for _ in range(TURNS // 5):
            for queue in queues:
                queue.fill(SIZE)
                queue.turn()
        turns: list[tuple[Turn, Turn]] = []
        for _ in range(TURNS):
            for queue in queues:
                queue.fill(SIZE)
            few, many = queues
            turns.append((few.turn(), many.turn()))
    finally:
        for queue in queues:
            queue.close()
    few, many = (list(each) for each in zip(*turns, strict=True))
    note = f"a turn that settles and claims {SIZE} takes {shown(few)} with {FEW:,} waiting, {shown(many)} with {MANY:,}"
    ratio = p50([turn.cpu for turn in many]) / p50([turn.cpu for turn in few])
    yield Row("claim with 5 million waiting", ratio, "× a thousand", 1.0, 1.3, note=note)
