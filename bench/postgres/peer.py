"""PgQueuer on the same server, for comparison: two processes, no-op jobs that were enqueued in bulk first.

It is installed into an environment of its own, `.venvs/pgqueuer`, on first use.
"""

import subprocess
from pathlib import Path

import psycopg

from bench.environment import python_of
from bench.postgres.server import Machine
from bench.scene import PATIENCE, ended

PACKAGES = ("pgqueuer==1.6.0", "asyncpg==0.32.0")
PROCESSES = 2
DATABASE = "pgqueuer"
_PROGRAM = Path(__file__).with_name("peer_process.py")
_DONE = "SELECT count(*) FILTER (WHERE status = 'successful'), extract(epoch FROM max(created)) FROM pgqueuer_log"


class PgQueuer:
    """An installation on the server."""

    def __init__(self, server: Machine) -> None:
        self._server, self._python = server, str(python_of("pgqueuer", PACKAGES))
        server.rows(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        server.rows(f"CREATE DATABASE {DATABASE}")
        self._url = server.url(DATABASE)
        self._run("install", self._url)

    def _run(self, *words: object) -> None:
        subprocess.run([self._python, _PROGRAM, *map(str, words)], check=True, timeout=PATIENCE)

    def rate(self, jobs: int, batch: int | None) -> float:
        """Returns jobs per second from the start until the last one is logged as successful.

        `batch` is how many jobs a process takes at once; None: the default.
        """
        self._run("fill", self._url, jobs)
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            ((before, _),) = connection.execute(_DONE).fetchall()
            workers = [self._worker(batch) for _ in range(PROCESSES)]
            try:
                ((began,),) = connection.execute("SELECT extract(epoch FROM clock_timestamp())").fetchall()
                for worker in workers:
                    assert worker.stdin is not None
                    worker.stdin.write(b"go\n")
                    worker.stdin.flush()
                for worker in workers:
                    assert worker.stdout is not None
                    if worker.stdout.readline() != b"ended\n":
                        raise RuntimeError("a process of PgQueuer failed")
            finally:
                for worker in workers:
                    ended(worker)
            ((after, last),) = connection.execute(_DONE).fetchall()
        if after - before != jobs:
            raise RuntimeError(f"PgQueuer has completed {after - before} of {jobs} jobs")
        return jobs / float(last - began)

    def _worker(self, batch: int | None) -> "subprocess.Popen[bytes]":
        words = [self._python, _PROGRAM, "work", self._url, str(batch or 0)]
        worker = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert worker.stdout is not None
        if worker.stdout.readline() != b"ready\n":
            raise RuntimeError("a process of PgQueuer did not start")
        return worker
