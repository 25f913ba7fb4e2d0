"""A real PostgreSQL for tests: one server for a whole test run, in memory, started on first use.

Run as a program, it keeps the server until the process that is named on its command line has ended, however that ends.
"""

import fcntl
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from chaos.servers import MEMORY, WITH_PASSWORD, Server, Site, missing

__all__ = ["WITH_PASSWORD", "admin", "empty", "missing", "new_store", "url", "weak_role"]
ROOT = Path(__file__).parent.parent


def owner() -> int:
    """Returns the process of the whole test run: with pytest-xdist, the parent of the workers."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


@cache
def url() -> str:
    """Returns the URL of the server, that of TEST_POSTGRES_URL or one that the first call of a test run starts."""
    if chosen := os.environ.get("TEST_POSTGRES_URL"):
        return chosen
    folder = Path(MEMORY or tempfile.gettempdir()) / f"chargehand-test-pg-{owner()}"
    folder.mkdir(mode=0o711, exist_ok=True)
    found = folder / "url"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            _start_keeper(folder)
    return found.read_text()


def _start_keeper(folder: Path) -> None:
    # Tests look for processes that they left behind by a variable of the environment; the server is none of them.
    environment = {name: text for name, text in os.environ.items() if name != "CHARGEHAND_TEST_RUN"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with (folder / "log").open("w") as output:
        keeper = subprocess.Popen(
            [sys.executable, __file__, str(owner()), str(folder)], env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=output,
        )  # fmt: skip
        said = (folder / "log").open()
    keeper.returncode = 0  # it outlives this process: nobody waits for it
    assert keeper.stdout is not None
    with keeper.stdout as ready, said:
        if not ready.readline():
            raise RuntimeError(f"PostgreSQL does not start: {said.read()}")


def new_store() -> str:
    """Returns the URL of a new, empty store."""
    return f"{url()}&schema=test_{os.urandom(6).hex()}"


def admin(sql: str) -> list[tuple[Any, ...]]:
    """Returns the rows of a statement that a superuser executes."""
    import psycopg

    with psycopg.connect(url(), autocommit=True) as connection:
        found = connection.execute(sql.encode())
        return found.fetchall() if found.description is not None else []


@contextmanager
def weak_role(*options: str, password: str | None = None) -> Generator[tuple[str, str]]:
    """Yields the name of a role without rights but for one schema, and the URL of the store in that schema."""
    name = f"weak_{os.urandom(6).hex()}"
    secret = "" if password is None else f" PASSWORD '{password}'"
    admin(f"CREATE ROLE {name} LOGIN{secret} {' '.join(options)}; CREATE SCHEMA {name} AUTHORIZATION {name}")
    if password is not None:
        admin(f"DO $$ BEGIN CREATE ROLE {WITH_PASSWORD}; EXCEPTION WHEN OTHERS THEN NULL; END $$")
        admin(f"GRANT {WITH_PASSWORD} TO {name}")
    try:
        yield name, f"{url().replace('postgres@', f'{name}@', 1)}&schema={name}"
    finally:
        admin(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '{name}'")
        admin(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


_cleaners: dict[str, Any] = {}


def empty(conninfo: str, schema: str) -> None:
    """Deletes the rows of all tables of a schema, except those that say which version it is, and other tables."""
    import psycopg

    if conninfo not in _cleaners:
        _cleaners[conninfo] = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
    connection = _cleaners[conninfo]
    found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
    words = [
        f"{'DELETE FROM' if name.startswith('chargehand_') else 'DROP TABLE'} {schema}.{name}"
        for (name,) in found
        if name != "chargehand_schema"
    ]
    connection.execute(";".join(words).encode())


def keep(pid: int, folder: Path) -> None:
    """Starts the server, and stops it when the process has ended."""
    watched = os.pidfd_open(pid)
    try:
        server = Server(Site(folder), "")
        server.initialise()
        server.start()
        (folder / "url.new").write_text(server.url)
        (folder / "url.new").rename(folder / "url")
        os.write(1, b"ready\n")
        os.close(1)
        poller = select.poll()
        poller.register(watched, select.POLLIN)
        poller.poll()
        server.stop()  # at once: nothing in it is needed any more
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    keep(int(sys.argv[1]), Path(sys.argv[2]))
