"""Measures flows on PostgreSQL."""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

from bench.flowing import FAN_IN, LATENCY, THROUGHPUT, fan_in_rows, flow_rows, follower_rows
from bench.postgres.server import machine
from bench.row import Row, measures


@contextmanager
def _store() -> Generator[str]:
    server = machine()
    store = server.new_store()
    try:
        yield store
    finally:
        server.drop(store)


def _on_a_server(rows: Callable[[str], Iterable[Row]]) -> Callable[[], Iterable[Row]]:
    def measure() -> Iterable[Row]:
        with _store() as store:
            return list(rows(store))

    return measure


measures(*THROUGHPUT)(_on_a_server(flow_rows))
measures(*LATENCY)(_on_a_server(follower_rows))
measures(*FAN_IN)(_on_a_server(fan_in_rows))
