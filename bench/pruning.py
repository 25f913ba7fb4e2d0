"""Measures how long claims wait while a million finished jobs are pruned."""

import select
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from bench.bare import pace
from bench.crowd import HOLDER, SIZE, Crowd
from bench.row import Row, measures, p50, p99
from bench.scene import PATIENCE, folder
from chargehand import clock
from chargehand.model.batch import Result
from chargehand.model.records import NodeAbout, Retention
from chargehand.node import store_thread
from chargehand.node.store_thread import Failure, StoreThread, Unusable
from chargehand.stores import open_store

MANY = 1_000_000
BATCHES = 500
FIRST_ROUND = 0.05
"""Seconds until the store thread prunes for the first time: a minute by default."""


@contextmanager
def _thread(path: Path, keep: int) -> Generator[StoreThread]:
    """Starts the store thread of a node with this retention."""
    made = StoreThread(
        lambda: open_store(str(path), node=True), HOLDER, (), NodeAbout(), Retention(count=keep), (), True, dict,
        lambda _: True,
    )  # fmt: skip
    made.start()
    try:
        yield made
    finally:
        made.stop()
        made.join()


def _result(thread: StoreThread) -> Result:
    """Waits for the result of a batch and ignores other results."""
    poller = select.poll()
    poller.register(thread.ready, select.POLLIN)
    while poller.poll(PATIENCE * 1000):
        for news in thread.take():
            if isinstance(news, Result):
                return news
            if isinstance(news, Failure | Unusable):
                raise RuntimeError(news.why)
    raise TimeoutError("no result from the store thread")


def _waits(path: Path, keep: int, crowd: Crowd) -> list[float]:
    """Returns the seconds from submitting a batch to the store thread until its claims arrive."""
    took: list[float] = []
    with _thread(path, keep) as thread:
        for _ in range(BATCHES):
            pace()
            began = clock.monotonic()
            thread.submit(crowd.next_batch())
            result = _result(thread)
            took.append(clock.monotonic() - began)
            crowd.took(result.grants[0], result.lost)
    return took[1:]  # the first batch waited for the store to open


@measures("claim while a million are pruned, p99", "claim while a million are pruned, worst")
def pruning() -> Iterable[Row]:
    """The limit is the same store and the same jobs, with nothing to prune."""
    with folder() as path:
        crowd = Crowd(path / "many.db", "finished", MANY)
        usual = store_thread.PRUNE_EVERY
        try:
            calm = _waits(crowd.path, 2 * MANY, crowd)
            store_thread.PRUNE_EVERY = FIRST_ROUND
            left, began = crowd.finished(), clock.monotonic()
            took = _waits(crowd.path, MANY // 10, crowd)
            seconds, gone = clock.monotonic() - began, left + BATCHES * SIZE - crowd.finished()
        finally:
            store_thread.PRUNE_EVERY = usual
            crowd.close()
    if not BATCHES < gone < MANY:
        raise RuntimeError(f"{gone:,} jobs were pruned; expected some, but not all")
    note = (
        f"p50 {1000 * p50(took):.2f} ms, without pruning {1000 * p50(calm):.2f}; a claim waits for a deletion of "
        f"{store_thread.PRUNE_AT_ONCE} jobs, {gone / seconds:,.0f} per second"
    )
    for name, of, more in (("p99", p99, 15), ("worst", max, 50)):
        calmly = 1000 * of(calm)
        yield Row(f"claim while a million are pruned, {name}", 1000 * of(took), "ms", calmly, calmly + more, note=note)
