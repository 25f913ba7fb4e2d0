"""Measures the cost of a claim with few and with very many unrelated jobs."""

from collections.abc import Iterable
from functools import partial

from bench.crowd import SIZE, Crowd
from bench.row import Row, measures, p50
from bench.scene import folder

FEW, MANY = 1000, 1_000_000
BATCHES = 100
KINDS = ("waiting", "future", "finished", "limited")


def claim_with(kind: str) -> Iterable[Row]:
    """Alternates between the two stores, so that disturbances affect both."""
    with folder() as path:
        crowds = Crowd(path / "few.db", kind, FEW), Crowd(path / "many.db", kind, MANY)
        try:
            for _ in range(BATCHES // 5):
                _ = [crowd.batch() for crowd in crowds]
            few, many = zip(*([crowd.batch() for crowd in crowds] for _ in range(BATCHES)), strict=True)
        finally:
            for crowd in crowds:
                crowd.close()
    note = f"a batch of {SIZE} takes {1000 * p50(few):.2f} ms with {FEW:,} {kind}, {1000 * p50(many):.2f} with {MANY:,}"
    yield Row(f"claim with a million {kind}", p50(many) / p50(few), "× a thousand", 1.0, 1.3, note=note)


for _kind in KINDS:
    measures(f"claim with a million {_kind}")(partial(claim_with, _kind))
