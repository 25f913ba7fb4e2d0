"""The systems that are compared: which versions, how they are set up, and what is asked of them."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Peer:
    """One system with one kind of store."""

    name: str
    program: str
    """The file in `systems`."""
    server: Literal["redis", "postgres"] | None
    packages: tuple[str, ...]
    """Pinned; empty: this project, in the environment in which the measurement runs."""
    settings: str
    """What differs from the defaults, for readers of the table."""
    jobs: int
    """Jobs of the measurement of throughput: a few seconds of work."""
    commands: int = 1
    """How many worker commands run two processes."""
    python: tuple[int, int] = (3, 11)
    """The least version of Python."""


PEERS = (
    Peer("Chargehand, SQLite", "chargehand_program", None, (), "defaults: every commit is synced", 60_000),
    Peer("Chargehand, PostgreSQL", "chargehand_program", "postgres", (), "defaults", 40_000),
    Peer(
        "Celery", "celery_program", "redis", ("celery[redis]==5.7.0",),
        "prefork; prefetch of 128 for throughput; else acks_late, reject_on_worker_lost, prefetch of 1", 5_000,
    ),
    Peer("RQ", "rq_program", "redis", ("rq==2.12.0", "redis==8.1.0"), "Retry(2); SimpleWorker for throughput", 3_000),
    Peer("Dramatiq", "dramatiq_program", "redis", ("dramatiq==2.2.1", "redis==8.1.0"), "backoff of 1 to 10 ms", 10_000),
    Peer("Huey", "huey_program", "redis", ("huey==3.5.4", "redis==8.1.0"), "worker type: process", 10_000),
    Peer(
        "Procrastinate", "procrastinate_program", "postgres", ("procrastinate==3.10.0", "psycopg-binary==3.3.9"),
        "concurrency of 10 for throughput, else 1", 3_000, 2,
    ),
    Peer(
        "PgQueuer", "pgqueuer_program", "postgres", ("pgqueuer==1.6.0", "asyncpg==0.32.0"),
        "batches of 200 for throughput; retries in the database", 20_000, 2,
    ),
    Peer("Awa", "awa_program", "postgres", ("awa-pg==0.6.9",), "100 jobs at a time for throughput, else 1", 10_000, 2),
    Peer(
        "Oban for Python", "oban_program", "postgres", ("oban==0.7.0",), "limit 100 for throughput, else 1", 10_000, 2,
        (3, 12),
    ),
)  # fmt: skip
