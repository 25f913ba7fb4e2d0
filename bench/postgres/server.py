"""The PostgreSQL server of the measurements: on the real disk, durable, and on the cores of the nodes."""

import itertools
import os
import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from chaos.servers import Server, Site

from bench.processes import cpu
from chargehand.processes import proc
from chargehand.stores.sqlite.files import filesystem_of

SETTINGS: dict[str, Any] = {
    "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "512MB",
    "dynamic_shared_memory_type": "posix", "autovacuum_naptime": "1min",
    # No checkpoint during a measurement: the first change of each page after it would be counted as well.
    "max_wal_size": "16GB", "checkpoint_timeout": "1h",
}  # fmt: skip
"""All other settings have their defaults."""
PLACE = "/var/tmp"
"""Not the repository: run as root, the server belongs to another user, who may not be able to read that."""
_servers: list["Machine"] = []
_numbers = itertools.count()


class Machine:
    """The running server, and what can be read of it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.state = server.data.with_name("state")
        """A folder for the files that belong to stores on this server."""
        self.admin = psycopg.connect(server.url, autocommit=True)

    def rows(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        """Returns the rows of a statement that a superuser executes."""
        found = self.admin.execute(sql.encode(), args or None)
        return found.fetchall() if found.description is not None else []

    def url(self, database: str = "postgres") -> str:
        """Returns the URL of a database."""
        return self._server.url.replace("/postgres?", f"/{database}?", 1)

    def new_store(self) -> str:
        """Returns the URL of a new, empty store."""
        return f"{self.url()}&schema=bench_{next(_numbers)}"

    def drop(self, store: str) -> None:
        """Deletes a store."""
        self.rows(f"DROP SCHEMA IF EXISTS {schema_of(store)} CASCADE")

    def wal(self) -> int:
        """Returns the number of bytes of write-ahead log that were written so far."""
        ((position,),) = self.rows("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
        return position

    def commits(self) -> int:
        """Returns the number of transactions that were committed so far, a second late at most."""
        ((count,),) = self.rows("SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'")
        return count

    def sessions(self, pids: Sequence[int]) -> list[int]:
        """Returns the server processes of the connections of these processes."""
        names = [f"chargehand {pid}" for pid in pids]
        return [
            pid for (pid,) in self.rows("SELECT pid FROM pg_stat_activity WHERE application_name = ANY (%s)", names)
        ]

    def cpu(self) -> float:
        """Returns the CPU seconds of all processes of the server that live."""
        assert self._server.process is not None
        used = 0.0
        for pid in proc.descendants(self._server.process.pid):
            with suppress(FileNotFoundError, ProcessLookupError):  # workers of autovacuum end
                used += sum(cpu(pid))
        return used


def schema_of(store: str) -> str:
    """Returns the schema of a store."""
    return store.rpartition("=")[2]


def machine() -> Machine:
    """Returns the server that runs."""
    return _servers[-1]


@contextmanager
def serving() -> Generator[Machine]:
    """Starts the server; stops it and deletes its files at the end."""
    kind = filesystem_of(Path(PLACE), Path("/proc/self/mountinfo").read_text())
    if kind in ("tmpfs", "ramfs"):
        raise RuntimeError(f"{PLACE} is on a {kind}: cannot measure durable writes there")
    place = Path(tempfile.mkdtemp(prefix="chargehand-bench-", dir=PLACE))
    try:
        os.chmod(place, 0o711)
        with (place / "log").open("wb") as log:
            server = Server(Site(place), "", before=None, output=log.fileno(), **SETTINGS)
            server.initialise()
            server.start()
            try:
                made = Machine(server)
                _servers.append(made)
                yield made
                made.admin.close()
            finally:
                server.stop()
    finally:
        shutil.rmtree(place, ignore_errors=True)
