"""Reads the SQL statements of the PostgreSQL store: named blocks in the folder `sql`. It runs none."""

import re
from pathlib import Path

NOW = "(SELECT coalesce($1::bigint, (extract(epoch FROM now()) * 1000)::bigint))"
"""The time of the transaction in milliseconds, in statements whose first parameter is the clock of a test, or null. A
query of its own is computed once, and not for each row."""
LOOKUP = "CASE WHEN octet_length({0}) > 500 THEN encode(sha256(convert_to({0}, 'UTF8')), 'hex') ELSE {0} END"
"""The form of a key in `chargehand_live`: an index of PostgreSQL refuses rows of more than 2,700 bytes."""
PLACED = """(
  SELECT s.*, CASE WHEN share IS NULL THEN seq
    ELSE first_value(begins) OVER (PARTITION BY queue, rank, share ORDER BY seq) + nth - 1 END AS own
  FROM (
    SELECT n.*, CASE WHEN share IS NOT NULL AND nth = 1 THEN greatest(
      coalesce(
        (SELECT max(place) FROM chargehand_live r WHERE r.queue = n.queue AND r.claim IS NOT NULL AND r.rank = n.rank),
        (SELECT place FROM chargehand_live r WHERE r.queue = n.queue AND r.claim IS NULL AND r.waits IS NULL
          AND r.rank = n.rank ORDER BY place LIMIT 1),
        first),
      1 + (SELECT place FROM chargehand_live r WHERE r.queue = n.queue AND r.rank = n.rank AND r.share = n.share
        ORDER BY place DESC LIMIT 1)) END AS begins
    FROM (
      SELECT m.*, row_number() OVER (PARTITION BY queue, rank, share ORDER BY seq) AS nth,
        min(seq) OVER (PARTITION BY queue, rank) AS first
      FROM {0} m) AS n) AS s)"""
"""The rows of a query with their places (`own`), as `model.flows.share_place` computes them: for the first row of each
share, from which the others are counted on."""
_TABLE = re.compile(r"(')?\bchargehand_(?=\w)")
"""A table, or a sequence in a string."""
_LOOKUP = re.compile(r"\{lookup (\S+)\}")
_PLACED = re.compile(r"\{placed (\w+)\}")
_NAME = re.compile(r"^-- name: (\w+(?: \w+)*)\n", re.MULTILINE)
_ONLY = re.compile(r"\{(\w+): ([^}]*)\}")


def load(topic: str) -> dict[str, bytes]:
    """Returns the statements of one file by their names.

    A block may have several names, and parts for one of these: `{name: part}`. `{now}` stands for the time of the
    transaction, `{lookup key}` for the form of a key in `chargehand_live`, and `{placed made}` for the rows of `made`
    with their places.
    """
    text = Path(__file__).parent.joinpath("sql", f"{topic}.sql").read_text("utf-8")
    text = _LOOKUP.sub(lambda found: LOOKUP.format(found[1]), text.replace("{now}", NOW))
    text = _PLACED.sub(lambda found: PLACED.format(found[1]), text)
    _, *parts = _NAME.split(text)
    return {
        name: _ONLY.sub(lambda found, name=name: found[2] if found[1] == name else "", sql).strip().encode()
        for names, sql in zip(parts[::2], parts[1::2], strict=True)
        for name in names.split()
    }


def in_transaction_of_caller(sql: bytes, schema: str) -> bytes:
    """Returns a statement for a connection whose search path may be any, and whose transaction may be old.

    `schema` is quoted if it must be. The time is that of the statement, not that of the beginning of the transaction.
    """
    quoted = schema.replace("'", "''")
    text = _TABLE.sub(lambda found: f"'{quoted}.{found[0][1:]}" if found[1] else f"{schema}.{found[0]}", sql.decode())
    return text.replace("FROM now()", "FROM statement_timestamp()").encode()
