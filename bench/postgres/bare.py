"""Measures the limits of the server: the same operations with minimal means, without Chargehand."""

import psycopg

from bench.bare import pace
from bench.postgres.server import Machine
from chargehand import clock

_TABLE = """
DROP TABLE IF EXISTS bare;
CREATE TABLE bare (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE, payload text NOT NULL);
"""
_INSERT = b"INSERT INTO bare (id, payload) SELECT id, 'null' FROM json_array_elements_text($1::json) AS id"


def _connect(server: Machine) -> psycopg.Connection:
    connection = psycopg.connect(
        server.url(), autocommit=True, prepare_threshold=0, cursor_factory=psycopg.RawCursor
    )  # fmt: skip
    connection.execute(_TABLE.encode(), prepare=False)
    return connection


def commits(server: Machine, count: int, *, inserts: int = 1, paced: bool = False) -> list[float]:
    """Returns the seconds of each of several commits with this number of inserted rows."""
    took: list[float] = []
    with _connect(server) as connection:
        for nr in range(count):
            if paced:
                pace()
            ids = "[" + ",".join(f'"{nr * inserts + each:032x}"' for each in range(inserts)) + "]"
            began = clock.monotonic()
            connection.execute(_INSERT, (ids,))
            took.append(clock.monotonic() - began)
    return took[10:]


def bulk_rate(server: Machine, rows: int) -> float:
    """Returns the rows per second that are copied in one transaction."""
    with _connect(server) as connection:
        began = clock.monotonic()
        with connection.cursor() as cursor, cursor.copy(b"COPY bare (id, payload) FROM STDIN") as copy:
            for nr in range(rows):
                copy.write_row((f"{nr:032x}", "null"))
        return rows / (clock.monotonic() - began)
