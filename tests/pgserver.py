"""A real PostgreSQL for tests: one server for a whole test run, in memory, started on first use.

TEST_POSTGRES names the folder of another PostgreSQL than the newest of the package, TEST_POOLER the program of a
PgBouncer through which the tests reach it.

Run as a program, it keeps the server until the process that is named on its command line has ended, however that ends.
"""

import atexit
import ctypes
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from chaos.servers import MEMORY, WITH_PASSWORD, Server, Site, missing

__all__ = ["POOLER", "WITH_PASSWORD", "admin", "empty", "missing", "new_store", "url", "weak_role"]
ROOT = Path(__file__).parent.parent
POOLER = os.environ.get("TEST_POOLER")
"""The program of the pooler; None: there is none."""
_POOLER_SETTINGS = """
[databases]
* = host={sockets} port=5432 auth_user=postgres
[pgbouncer]
listen_port = 5432
unix_socket_dir = {folder}
auth_type = trust
pool_mode = transaction
default_pool_size = 60
max_client_conn = 300
query_wait_timeout = 20
"""


def owner() -> int:
    """Returns the process of the whole test run: with pytest-xdist, the parent of the workers."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


@cache
def url() -> str:
    """Returns the URL of the server, that of TEST_POSTGRES_URL or one that the first call of a test run starts."""
    return os.environ.get("TEST_POSTGRES_URL") or (_folder() / "url").read_text()


@cache
def _folder() -> Path:
    """Returns the folder of the server, which the first call of a test run starts."""
    folder = Path(MEMORY or tempfile.gettempdir()) / f"chargehand-test-pg-{owner()}"
    folder.mkdir(mode=0o711, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "url").exists():
            _start_keeper(folder)
    return folder


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
    """Returns the rows of a statement that a superuser executes, not through the pooler."""
    import psycopg

    at = url() if POOLER is None else (_folder() / "direct").read_text()
    with psycopg.connect(at, autocommit=True) as connection:
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
        atexit.register(_cleaners[conninfo].close)
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
        site = Site(folder)
        server = Server(site, "")
        server.initialise()
        server.start()
        (folder / "direct").write_text(server.url)
        (folder / "url.new").write_text(server.url if POOLER is None else _start_pooler(POOLER, site, server))
        (folder / "url.new").rename(folder / "url")
        os.write(1, b"ready\n")
        os.close(1)
        poller = select.poll()
        poller.register(watched, select.POLLIN)
        poller.poll()
        server.stop()  # at once: nothing in it is needed any more
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start_pooler(program: str, site: Site, server: Server) -> str:
    """Starts a pooler in transaction mode, which ends with this process. Returns the URL that leads through it."""
    folder = site.make_folder("pooler", 0o755)
    file = site.folder / "pooler.ini"
    file.write_text(_POOLER_SETTINGS.format(sockets=server.sockets, folder=folder))
    process = site.start(program, "-q", file, before=_die_with_parent, output=2)
    while not (folder / ".s.PGSQL.5432").exists():
        if process.poll() is not None:
            raise RuntimeError(f"the pooler ended with status {process.returncode}")
        select.select([], [], [], 0.01)
    return f"postgresql://postgres@/postgres?host={folder}"


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


if __name__ == "__main__":
    keep(int(sys.argv[1]), Path(sys.argv[2]))
